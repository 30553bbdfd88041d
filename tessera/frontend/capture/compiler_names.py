"""The digests that identify both compilers in the keys of their caches.

In: the installed PyTorch and Triton. Out: the compilers have the names that they would compute from
their own files. To compute them, each process would read hundreds of megabytes, which takes longer
than the rest of a second capture of a small model.

Names are kept until a file of either compiler is written or added (`stamp_of`). They are not kept
for compilers whose folders are links, as in development installs. A damaged file counts as absent.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tessera.frontend.cache.private_files import (
    Stamp,
    cache_file,
    is_settled,
    keep_checked,
    read_checked,
    stamp_of,
)

SUFFIX = ".names"
_FORMAT = "tessera-names 1"
# Not part of a compiler: Python's own files, and headers.
_LEFT_OUT = ("__pycache__", "include")


def start_naming() -> threading.Thread | None:
    """Give the compilers their names; missing names are computed while the model is recorded.

    Both compilers remember their names; a compiler that needs its name earlier computes it.
    """
    with contextlib.suppress(Exception):  # the compiler reports the failure when it needs a name
        path = _path()
        kept = None if path is None else _read(path)
        if kept is not None and _tell(*kept):
            return None
    thread = threading.Thread(target=_make, name="naming", daemon=True)
    thread.start()
    return thread


def _make() -> None:
    from torch._inductor.codecache import torch_key
    from torch._inductor.runtime import triton_compat

    with contextlib.suppress(Exception):
        path = _path()
        names = triton_compat.triton_key(), torch_key()
        if path is not None and path == _path():
            told = [names[0], names[1].hex()]
            keep_checked(path, json.dumps(told).encode())


def _tell(triton_name: str, torch_name: bytes) -> bool:
    """Give both compilers their names; false if this version does not accept one."""
    from torch._inductor.codecache import torch_key
    from torch._inductor.runtime import triton_compat

    settle = getattr(torch_key, "set", None)
    asked = triton_compat.triton_key
    if settle is None or not callable(asked):
        return False
    with contextlib.suppress(RuntimeError, AssertionError):  # it already has its name
        settle(torch_name)

    def triton_key() -> str:
        return triton_name

    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(triton_key.__name__) is asked:
            setattr(module, triton_key.__name__, triton_key)
    return True


def _path() -> Path | None:
    """The file with the names for the current files; None if they cannot be kept."""
    if cache_file("", SUFFIX) is None:  # then the stamps of thousands of files are not needed
        return None
    told: list[object] = [_FORMAT, sys.version]
    for folder in _folders():
        for file, stamp in _stamps(folder):
            if stamp is None or not is_settled(stamp):
                return None
            told.append((file, stamp))
    return cache_file(repr(told), SUFFIX)


def _folders() -> list[str]:
    import torch
    import triton

    return [os.path.dirname(os.path.abspath(package.__file__)) for package in (torch, triton)]


def _stamps(folder: str) -> Iterator[tuple[str, Stamp | None]]:
    """The files below a folder with their stamps, in order; None stands for a link to a folder."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if not entry.is_dir():
                yield entry.path, stamp_of(entry.stat())
            elif entry.is_symlink():
                yield entry.path, None
            elif entry.name not in _LEFT_OUT:
                yield from _stamps(entry.path)


def _read(path: Path) -> tuple[str, bytes] | None:
    text = read_checked(path)
    if text is None:
        return None
    triton_name, torch_name = json.loads(bytes(text))
    return str(triton_name), bytes.fromhex(torch_name)
