"""Keeps the bytecode of installed packages if Python keeps none beside them.

In: nothing. Out: inside the block of `kept_bytecode`, modules of installed packages are loaded from
bytecode that an earlier command compiled. If packages came without bytecode and Python may not
write any (`PYTHONDONTWRITEBYTECODE`, read-only folders), every start would compile thousands of
files of PyTorch, which takes longer than the rest of a second capture. Otherwise nothing is done.

The bytecode is in one file with a checksum: a damaged file counts as absent. Bytecode is used only
for an unchanged source file (`stamp_of`), by a stricter check than Python's own. The name of the
store encodes Python's version, its settings and its folders. The user's own files are left to
Python, and so are files with a custom loader.
"""

from __future__ import annotations

import importlib.util
import json
import marshal
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from tessera.frontend.cache.private_files import (
    Stamp,
    cache_file,
    is_settled,
    keep_checked,
    read_checked,
    stamp_of,
)
from tessera.frontend.text.grammar import PACKAGE

SUFFIX = ".bytecode"
MAX_FILE_BYTES = 256 << 20
_LONGEST = 20  # digits of a size
_FORMAT = "tessera-bytecode 1"
# The file is rewritten once new bytecode exceeds this fraction of its content.
_WORTH = 1 / 32
KeptCode = tuple[Stamp, bytes | memoryview]


@contextmanager
def kept_bytecode(package: str) -> Iterator[None]:
    """Load modules of installed packages from kept bytecode, if Python has none for `package`."""
    path = _path()
    if path is None or not _is_without(package):
        yield
        return
    store = BytecodeStore(path)
    before = SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, name: str) -> CodeType | None:
        if type(loader) is not SourceFileLoader:  # a loader that may change the code
            return before(loader, name)
        return store.code_of(loader.path, lambda: before(loader, name))

    _set_loader(get_code)
    try:
        yield
    finally:
        _set_loader(before)
    store.keep()


def _set_loader(get_code: Callable[[SourceFileLoader, str], CodeType | None]) -> None:
    """Replace the function that loads the code of Python files."""
    setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010  (a method, for mypy)


class BytecodeStore:
    """The kept bytecode of files, and new bytecode."""

    def __init__(self, path: Path, roots: tuple[str, ...] | None = None) -> None:
        self._path = path
        self._roots = _roots() if roots is None else roots
        self._kept = _read(path)
        self._new: dict[str, KeptCode] = {}

    def code_of(self, file: str, compiled: Callable[[], CodeType | None]) -> CodeType | None:
        """The code of a file: from the kept bytecode, or from `compiled`."""
        stamp = _stamp(file) if file.startswith(self._roots) else None
        if stamp is None:
            return compiled()
        known = self._kept.get(file)
        if known is not None and known[0] == stamp:
            kept: CodeType = marshal.loads(known[1])
            return kept
        code = compiled()
        if code is not None and is_settled(stamp) and _stamp(file) == stamp:
            self._new[file] = stamp, marshal.dumps(code)
        return code

    def keep(self) -> None:
        """Rewrite the file, if enough bytecode is new."""
        kept, new = _bytes_of(self._kept), _bytes_of(self._new)
        if new <= _WORTH * kept:
            return
        there = {file: old for file, old in self._kept.items() if _stamp(file) == old[0]}
        files = {**there, **self._new}
        if _bytes_of(files) > MAX_FILE_BYTES:
            return
        places, at = [], 0
        for file, (stamp, data) in files.items():
            places.append((file, stamp, at, len(data)))
            at += len(data)
        head = json.dumps(places).encode()
        body = b"".join((b"%d\n" % len(head), head, *(data for _, data in files.values())))
        keep_checked(self._path, body)


def _bytes_of(files: Mapping[str, KeptCode]) -> int:
    return sum(len(data) for _, data in files.values())


def _read(path: Path) -> dict[str, KeptCode]:
    """The kept bytecode by file; empty if it is damaged, or not this user's."""
    data = read_checked(path)
    if data is None:
        return {}
    end = bytes(data[:_LONGEST]).index(b"\n") + 1
    size = int(data[: end - 1])
    body = data[end + size :]
    return {
        file: (tuple(stamp), body[at : at + length])
        for file, stamp, at, length in json.loads(bytes(data[end : end + size]))
    }


def _path() -> Path | None:
    told = (_FORMAT, sys.version, sys.implementation.cache_tag, sys.flags.optimize, _roots())
    return cache_file(repr((*told, importlib.util.MAGIC_NUMBER)), SUFFIX)


def _is_without(package: str) -> bool:
    """Whether Python has no bytecode of a package and may not write any."""
    if sys.pycache_prefix is not None or sys.implementation.name != "cpython":
        return False
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None or not spec.has_location or spec.origin is None:
        return False
    folder = os.path.dirname(spec.origin)
    may_write = not sys.dont_write_bytecode and os.access(folder, os.W_OK)
    return not may_write and not os.path.exists(importlib.util.cache_from_source(spec.origin))


def _roots() -> tuple[str, ...]:
    """The folders of installed packages, and Tessera's own folder."""
    paths = (*(sysconfig.get_path(name) for name in ("purelib", "platlib")), str(PACKAGE))
    return tuple(dict.fromkeys(os.path.join(path, "") for path in paths if path))


def _stamp(file: str) -> Stamp | None:
    try:
        return stamp_of(os.stat(file))
    except OSError:
        return None
