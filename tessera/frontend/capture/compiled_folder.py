"""The folder where torch.compile and Triton keep compiled code and measurements.

In: nothing. Out: a folder of our cache for the duration of a capture, or an empty temporary folder
if there is no cache. A second capture of the same model, or of one with the same kernels, then
compiles and measures little.

Files are checked before they are used: kernels, compiled graphs and their code against digests that
were noted when a capture ended (unless their stamps are unchanged), tables of measured times for
completeness. Damaged files are removed and made again. A compiled graph is used only for the same
graph, inputs, options, versions and GPU (torch.compile sees to that) and for the same code of ours
and the same route (`kept_products.made_by`): the model itself is recorded again by every capture.
Files of an interrupted capture are used: Triton and Inductor write whole files, by renaming, so any
number of captures can share the folder. Every combination of versions has its own folder; above the
limit the oldest items are removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tessera.frontend.cache.private_files import (
    COMPILED,
    MAX_COMPILED_BYTES,
    checksum,
    is_private,
    read_private,
    write_whole,
)
from tessera.settings import overridden, read_settings

_NOTED = "noted.json"
_LONGEST_WRITE_S = 600


@contextmanager
def compiled_folder(apart: str = "", *, sms: int = 0) -> Iterator[None]:
    """Direct the caches of the compilers to our cache, or to a temporary folder without one.

    `apart` names a separate folder. Measurements on a number of SMs (`sms`) are kept separately;
    0 means all SMs.
    """
    folder = _folder(apart)
    if folder is None:
        with TemporaryDirectory(ignore_cleanup_errors=True) as passing, _kept_in(Path(passing)):
            yield
        return
    drop_damaged(folder)
    try:
        with _kept_in(folder, sms):
            yield
    finally:
        note_kernels(folder)


@contextmanager
def _kept_in(folder: Path, sms: int = 0) -> Iterator[None]:
    """Direct the caches of the compilers to a folder."""
    from torch._inductor import utils

    measured = folder / f"{sms}sm" if sms else folder
    places = {"TORCHINDUCTOR_CACHE_DIR": measured, "TRITON_CACHE_DIR": folder / "triton"}
    utils.clear_caches()
    try:
        with overridden({name: str(place) for name, place in places.items()}):
            yield
    finally:
        utils.clear_caches()


def _folder(apart: str) -> Path | None:
    """The folder for these versions; None if there is no cache that only this user can write to."""
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
    """Remove items that changed since they were noted, and incomplete tables.

    If the notes are damaged, damaged items cannot be recognised, so all items are removed.
    """
    noted = _noted(folder)
    for item in _items(folder):
        with contextlib.suppress(OSError):  # another capture may be removing it
            known, _, stamp = (noted or {}).get(_name(item, folder), "").partition(" ")
            changed = known and stamp != _stamp(item) and known != _digest(item)
            if (noted is None or changed) and not _is_written(item):
                _remove(item)
    with contextlib.suppress(OSError):
        for table in (*folder.glob("cache/*"), *folder.glob("*sm/cache/*")):
            if not _is_table(table):
                table.unlink(missing_ok=True)
        for choice in (*folder.glob("*/*.best_config"), *folder.glob("*sm/*/*.best_config")):
            if noted is None or not isinstance(_json(choice), dict):
                choice.unlink(missing_ok=True)


def note_kernels(folder: Path) -> None:
    """Note all items, and remove the oldest above the limit in bytes."""
    sizes: dict[Path, tuple[float, int]] = {}
    noted, before = {}, _noted(folder) or {}
    for item in _items(folder):
        with contextlib.suppress(OSError):
            files = [file.stat() for file in _files(item)]
            newest = max((status.st_mtime for status in files), default=0.0)
            sizes[item] = newest, sum(status.st_size for status in files)
            if _is_whole(item):
                name, stamp = _name(item, folder), _stamp(item)
                known = before.get(name, "")
                noted[name] = known if known.endswith(f" {stamp}") else f"{_digest(item)} {stamp}"
    total = sum(size for _, size in sizes.values())
    for item in sorted(sizes, key=lambda item: sizes[item][0]):
        if total <= MAX_COMPILED_BYTES:
            break
        if _is_written(item):
            continue
        _remove(item)
        noted.pop(_name(item, folder), None)
        total -= sizes[item][1]
    with contextlib.suppress(OSError):
        write_whole(folder / _NOTED, json.dumps(_signed(noted)).encode())


def _items(folder: Path) -> list[Path]:
    """Triton's kernels, a folder for each, and single files: compiled graphs and their code."""
    kernels = _entries(folder / "triton")
    places = (folder, *(place for place in _entries(folder) if place.name.endswith("sm")))
    kept = ("fxgraph/*/*/*", "aotautograd/*/*", "??/*.py")
    return [
        *kernels,
        *(file for place in places for kind in kept for file in place.glob(kind) if file.is_file()),
    ]


def _entries(folder: Path) -> list[Path]:
    """The folders inside a folder."""
    try:
        with os.scandir(folder) as entries:
            return [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _name(item: Path, folder: Path) -> str:
    return item.relative_to(folder).as_posix()


def _files(item: Path) -> list[Path]:
    return [item] if item.is_file() else [file for file in item.iterdir() if file.is_file()]


def _remove(item: Path) -> None:
    if item.is_dir():
        shutil.rmtree(item, ignore_errors=True)
    else:
        item.unlink(missing_ok=True)


def _is_written(item: Path) -> bool:
    """Whether another capture is writing an item: Triton writes into a folder inside, and renames.

    A process that was killed leaves such a folder behind.
    """
    since = time.time() - _LONGEST_WRITE_S
    try:
        return item.is_dir() and any(inner.stat().st_mtime > since for inner in _entries(item))
    except OSError:
        return True


def _is_whole(item: Path) -> bool:
    """Whether an item is complete: Triton writes the list of a kernel's files last."""
    if item.is_file():
        return not item.name.startswith(".")  # files get their final names when they are complete
    names = [file.name for file in item.iterdir()]
    return any(name.startswith("__grp__") for name in names) or (
        bool(names) and all(name.endswith(".so") for name in names)
    )


def _stamp(item: Path) -> str:
    """A value that changes with every write to the files: unchanged files need no digest."""
    digest = hashlib.blake2b(digest_size=8)
    for file in sorted(_files(item)):
        status = file.stat()
        told = (file.name, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        digest.update(repr(told).encode())
    return digest.hexdigest()


def _digest(item: Path) -> str:
    """A digest of files, by name and content."""
    digest = hashlib.blake2b(digest_size=16)
    for file in sorted(_files(item)):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()


def _noted(folder: Path) -> dict[str, str] | None:
    """The note of each item; empty before the first capture, None if the notes are damaged."""
    if not (folder / _NOTED).exists():
        return {}
    try:
        held = json.loads(read_private(folder / _NOTED) or b"")
    except ValueError:
        return None
    items = held.get("items") if isinstance(held, dict) else None
    return items if isinstance(items, dict) and held == _signed(items) else None


def _signed(items: dict[str, str]) -> dict[str, object]:
    """Notes with a checksum."""
    return {"checksum": checksum(json.dumps(items, sort_keys=True).encode()).hex(), "items": items}


def _is_table(file: Path) -> bool:
    """Whether a file is a table of measured times, as Inductor reads it."""
    held = _json(file)
    return isinstance(held, dict) and isinstance(held.get("cache"), dict)


def _json(file: Path) -> object:
    """The value in a file of JSON; None if the file is not JSON."""
    try:
        held: object = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return held
