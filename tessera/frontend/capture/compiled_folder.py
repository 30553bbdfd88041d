"""Where torch.compile and Triton keep what they compiled and measured, for the next capture.

In: nothing. Out: a folder of our cache, for as long as a capture takes, or an empty one that goes
away after it where there is no cache. A second capture of the same model, or of one with the same
kernels, then compiles and measures little.

What lies there is checked before it is used: the files of each kernel against a digest that was
noted when a capture ended, tables of measured times for being whole. What is damaged is removed,
and made again. What an interrupted capture left counts: Triton and Inductor put files there whole,
by renaming, so any number of captures can share the folder. Every combination of versions has a
folder of its own; above the limit the oldest kernels go.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tessera.frontend.cache.private_files import (
    COMPILED,
    MAX_FOLDER_BYTES,
    is_private,
    read_private,
    write_whole,
)
from tessera.settings import overridden, read_settings

_NOTED = "noted.json"


@contextmanager
def compiled_folder(sms: int = 0, apart: str = "") -> Iterator[None]:
    """Have compilers keep what they make in our cache, or in a folder that goes away.

    What was measured on so many SMs of a GPU is kept by itself; 0 is all of them. What has a name
    of its own (`apart`) is kept apart from the rest.
    """
    from torch._inductor import utils

    folder = _folder(apart)
    if folder is None:
        fresh = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache
        with fresh():
            yield
        return
    drop_damaged(folder)
    measured = folder / f"{sms}sm" if sms else folder
    places = {"TORCHINDUCTOR_CACHE_DIR": measured, "TRITON_CACHE_DIR": folder / "triton"}
    utils.clear_caches()
    try:
        with overridden({name: str(place) for name, place in places.items()}):
            yield
    finally:
        utils.clear_caches()
        note_kernels(folder)


def _folder(apart: str) -> Path | None:
    """The folder for these versions; none where there is no cache that is ours alone."""
    import torch
    import triton

    settings = read_settings()
    if settings.cache_dir is None or not settings.use_cache:
        return None
    versions = f"{torch.__version__} {triton.__version__} {torch.version.cuda}{apart}"
    name = hashlib.blake2b(versions.encode(), digest_size=8).hexdigest()
    folder = settings.cache_dir / COMPILED / name
    try:
        for place in (settings.cache_dir, folder.parent, folder):
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not is_private(place):
                return None
    except OSError:
        return None
    return folder


def drop_damaged(folder: Path) -> None:
    """Remove kernels whose files have changed since they were noted, and tables that are cut."""
    noted = _noted(folder)
    for kernel in _kernels(folder):
        with contextlib.suppress(OSError):  # another capture may be at it
            known = noted.get(kernel.name)
            if known is not None and known != _digest(kernel):
                shutil.rmtree(kernel, ignore_errors=True)
    with contextlib.suppress(OSError):
        for table in (*folder.glob("cache/*"), *folder.glob("*sm/cache/*")):
            if not _is_table(table):
                table.unlink(missing_ok=True)


def note_kernels(folder: Path) -> None:
    """Note what kernels there are; drop the oldest if they are too many."""
    sizes: dict[Path, tuple[float, int]] = {}
    noted, before = {}, _noted(folder)
    for kernel in _kernels(folder):
        with contextlib.suppress(OSError):
            files = [entry.stat() for entry in os.scandir(kernel) if entry.is_file()]
            newest = max((status.st_mtime for status in files), default=0.0)
            sizes[kernel] = newest, sum(status.st_size for status in files)
            if _is_whole(kernel):
                noted[kernel.name] = before.get(kernel.name) or _digest(kernel)
    total = sum(size for _, size in sizes.values())
    for kernel in sorted(sizes, key=lambda kernel: sizes[kernel][0]):
        if total <= MAX_FOLDER_BYTES:
            break
        shutil.rmtree(kernel, ignore_errors=True)
        noted.pop(kernel.name, None)
        total -= sizes[kernel][1]
    with contextlib.suppress(OSError):
        write_whole(folder / _NOTED, json.dumps(noted).encode())


def _kernels(folder: Path) -> list[Path]:
    """The folders of Triton's kernels, one for each."""
    try:
        with os.scandir(folder / "triton") as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _is_whole(kernel: Path) -> bool:
    """Whether nobody is writing there: Triton puts the list of a kernel's files there last."""
    names = [file.name for file in kernel.iterdir()]
    return any(name.startswith("__grp__") for name in names) or (
        bool(names) and all(name.endswith(".so") for name in names)
    )


def _digest(kernel: Path) -> str:
    """A digest of a kernel's files, by name and content."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(kernel.iterdir()):
        if file.is_file():
            digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _noted(folder: Path) -> dict[str, str]:
    try:
        noted = json.loads(read_private(folder / _NOTED) or b"{}")
    except ValueError:
        return {}
    return noted if isinstance(noted, dict) else {}


def _is_table(file: Path) -> bool:
    """Whether a file is a table of measured times, as Inductor reads it."""
    try:
        held = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(held, dict) and isinstance(held.get("cache"), dict)
