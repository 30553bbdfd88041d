"""Files in a folder that only this user can write to.

In: bytes and a name. Out: the same bytes, or nothing. A folder that others may write to is not
used, links and other people's files are passed over, and files appear whole, by renaming, so that
any number of processes can share a folder. What is inside is checked by a checksum. A stamp
says whether a file was written to, without reading it.
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
COMPILED = "compiled"  # a folder in the cache: what compilers keep there for themselves
MAX_FOLDER_BYTES = 1 << 30
# Of kernels for products, an 8B model has some hundred to choose from, each most of a megabyte.
MAX_COMPILED_BYTES = 4 << 30
_SHARE = 16  # of the limit: how much may come between two looks, and goes at once


def checksum(data: bytes | memoryview) -> bytes:
    """A checksum, to tell damaged bytes."""
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
    """The bytes of a plain file of ours; links, pipes and others' files are passed over."""
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
    """Put a file there in one step, or leave what is there."""
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
    """Keeps a folder from growing past its limit, without looking at all of it for every file.

    Files are only looked through when the bytes written since the last look could have filled what
    room was left then. Others write too, so a look is also due after a share of the limit. A look
    that finds too much drops the files least recently written, down to what leaves room for more.
    """

    def __init__(self, most_bytes: int = MAX_FOLDER_BYTES) -> None:
        self._most = most_bytes
        self._until_next: dict[Path, int] = {}

    def wrote(self, folder: Path, size: int) -> None:
        """A file of `size` bytes was put into a folder."""
        left = self._until_next.get(folder, 0) - size
        if left < 0:
            left = self._trim(folder)
        self._until_next[folder] = left

    def _trim(self, folder: Path) -> int:
        """Drop the oldest files if there are too many; how many bytes may come before the next."""
        files = list(_entries(folder))
        total = sum(size for _, _, size in files)
        if total > self._most:
            for path, _, size in sorted(files, key=lambda entry: entry[1]):
                if total <= self._most - self._most // _SHARE:
                    break
                path.unlink(missing_ok=True)
                total -= size
        # No more than a share at once: other processes fill the same folder.
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
    """What `keep_checked` kept; None if it is damaged, or not ours."""
    data = read_private(path) if is_private(path.parent) else None
    if data is None:
        return None
    body = memoryview(data)[CHECKSUM_BYTES:]
    return body if checksum(body) == data[:CHECKSUM_BYTES] else None


def cache_file(key: str, suffix: str) -> Path | None:
    """The file of the cache for a key; None without a cache."""
    settings = read_settings()
    if settings.cache_dir is None or not settings.use_cache:
        return None
    name = hashlib.blake2b(key.encode(), digest_size=16).hexdigest()
    return settings.cache_dir / (name + suffix)


def kept(folder: Path) -> dict[str, tuple[int, int]]:
    """The number of files of each kind, and their bytes; empty without a folder."""
    by_kind: dict[str, tuple[int, int]] = {}
    with contextlib.suppress(FileNotFoundError, NotADirectoryError, PermissionError):
        for path, _, size in _entries(folder):
            kind = _KINDS[path.suffix]
            count, total = by_kind.get(kind, (0, 0))
            by_kind[kind] = count + 1, total + size
    sizes = [size for _, size in _compiled(folder)]
    return by_kind | ({"compiled kernels": (len(sizes), sum(sizes))} if sizes else {})


def clear_cache(folder: Path) -> tuple[int, str]:
    """Remove the files of the cache, and nothing else; the number removed, and a reason if it
    failed."""
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
    """Files that compilers keep, with their bytes; links are not followed."""
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
# Times of files are this coarse at worst: what was just written could change again unseen.
SETTLED_NS = 3_000_000_000


def stamp_of(status: os.stat_result) -> Stamp:
    """Both times of a file to the nanosecond, its size, and which file it is."""
    times = status.st_mtime_ns, status.st_ctime_ns
    return (*times, status.st_size, status.st_ino, status.st_dev)


def is_settled(stamp: Stamp) -> bool:
    """Whether the last write to a file is old enough: it can no longer change and keep its
    stamp."""
    return max(stamp[:2]) + SETTLED_NS < time.time_ns()
