"""Files in a folder that only this user can write to.

In: bytes and a name. Out: the same bytes, or nothing. A folder that others may write to is not
used, links and other users' files are skipped, and files appear whole, by renaming, so that any
number of processes can share a folder. The content is checked by a checksum. A stamp shows whether
a file was written to, without reading it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tessera.settings import read_settings

CHECKSUM_BYTES = 16
_KINDS = {
    ".module": "parsed modules",
    ".regions": "what kernels touch",
    ".tuning": "measured choices of tiles",
    ".products": "measured products",
    ".bytecode": "bytecode of packages",
    ".names": "names of compilers",
}
SUFFIXES = tuple(_KINDS)
COMPILED = "compiled"  # a folder in the cache for the compilers' own files
MAX_FOLDER_BYTES = 1 << 30
# An 8B model has about a hundred candidate kernels for products, each almost 1 MB.
MAX_COMPILED_BYTES = 4 << 30
_SHARE = 16  # 1/16 of the limit may be written between two scans, and is removed at once


def checksum(data: bytes | memoryview) -> bytes:
    """A checksum that detects damaged bytes."""
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).digest()


def is_private(folder: Path) -> bool:
    """Whether a folder is this user's and no other user can put files into it."""
    try:
        status = os.stat(folder)
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return stat.S_ISDIR(status.st_mode) and ours and not status.st_mode & 0o022


def read_private(path: Path) -> bytes | None:
    """The bytes of a plain file of this user; None for links, pipes and other users' files."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        ours = not hasattr(os, "getuid") or status.st_uid == os.getuid()
        return file.read() if stat.S_ISREG(status.st_mode) and ours else None


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in one step, or leave the existing file."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class Trimmer:
    """Keeps a folder below its limit, without scanning it for every file.

    The folder is scanned only when the bytes written since the last scan could have filled the room
    left then. Other processes write too, so a scan is also due after a share of the limit. A scan
    that finds too many bytes removes the least recently written files until there is room for more.
    """

    def __init__(self, most_bytes: int = MAX_FOLDER_BYTES) -> None:
        self._most = most_bytes
        self._until_next: dict[Path, int] = {}

    def wrote(self, folder: Path, size: int) -> None:
        """Note that a file of `size` bytes was written to a folder."""
        left = self._until_next.get(folder, 0) - size
        if left < 0:
            left = self._trim(folder)
        self._until_next[folder] = left

    def _trim(self, folder: Path) -> int:
        """Remove the oldest files if the limit is exceeded; the bytes that may be written until the
        next scan."""
        files = list(_entries(folder))
        total = sum(size for _, _, size in files)
        if total > self._most:
            for path, _, size in sorted(files, key=lambda entry: entry[1]):
                if total <= self._most - self._most // _SHARE:
                    break
                path.unlink(missing_ok=True)
                total -= size
        # At most a share until the next scan: other processes fill the same folder.
        return max(0, min(self._most - total, self._most // _SHARE))


TRIMMER = Trimmer()


def keep_checked(path: Path, body: bytes) -> None:
    """Keep bytes with a checksum; does nothing if the folder is not this user's, or is full."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if is_private(path.parent):
            write_whole(path, checksum(body) + body)
            TRIMMER.wrote(path.parent, CHECKSUM_BYTES + len(body))


def read_checked(path: Path) -> memoryview | None:
    """The bytes that `keep_checked` stored; None if they are damaged, or the file is not ours."""
    data = read_private(path) if is_private(path.parent) else None
    if data is None:
        return None
    body = memoryview(data)[CHECKSUM_BYTES:]
    return body if checksum(body) == data[:CHECKSUM_BYTES] else None


def cache_file(key: str, suffix: str) -> Path | None:
    """The file in the cache for a key; None if there is no cache."""
    settings = read_settings()
    if settings.cache_dir is None or not settings.use_cache:
        return None
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return settings.cache_dir / (name + suffix)


def kept(folder: Path) -> dict[str, tuple[int, int]]:
    """The number of files of each kind, and their bytes; empty if the folder does not exist."""
    by_kind: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for path, _, size in _entries(folder):
            kind = _KINDS[path.suffix]
            count, total = by_kind.get(kind, (0, 0))
            by_kind[kind] = count + 1, total + size
    sizes = [size for _, size in _compiled(folder)]
    return by_kind | ({"compiled kernels": (len(sizes), sum(sizes))} if sizes else {})


def clear_cache(folder: Path) -> tuple[int, str]:
    """Remove only the files of the cache; the number removed, and the reason if that failed."""
    if not folder.exists():
        return 0, ""
    if not is_private(folder):
        return 0, "it is not a folder that this user alone can write to"
    removed = 0
    for path, _, _ in list(_entries(folder)):
        try:
            path.unlink(missing_ok=True)
        except OSError as problem:
            return removed, (problem.strerror or str(problem)).lower()
        removed += 1
    removed += sum(1 for _ in _compiled(folder))
    shutil.rmtree(folder / COMPILED, ignore_errors=True)
    return removed, ""


def _compiled(folder: Path) -> Iterator[tuple[str, int]]:
    """The compilers' files, with their sizes in bytes; links are not followed."""
    for place, _, names in os.walk(folder / COMPILED):
        for name in names:
            path = os.path.join(place, name)
            with contextlib.suppress(OSError):
                yield path, os.lstat(path).st_size


def _entries(folder: Path) -> Iterator[tuple[Path, float, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), status.st_mtime, status.st_size


Stamp = tuple[int, ...]
# The coarsest resolution of file times, in ns: a file just written could change again unnoticed.
SETTLED_NS = 3_000_000_000


def stamp_of(status: os.stat_result) -> Stamp:
    """Both times of a file in ns, its size, and its identity."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return (*times, status.st_size, status.st_ino, status.st_dev)


def is_settled(stamp: Stamp) -> bool:
    """Whether the last write to a file is so old that any further change would change its stamp."""
    return max(stamp[:2]) + SETTLED_NS < time.time_ns()
