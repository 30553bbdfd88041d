"""Files of a folder that nobody else can write to.

In: bytes and a name. Out: the same bytes, or nothing. A folder that others may write to is not
used, links and other people's files are passed over, and files appear whole, by renaming, so that
any number of processes can share a folder. What is inside is checked by a checksum.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

CHECKSUM_BYTES = 16
SUFFIXES = (".module", ".regions")
MAX_FOLDER_BYTES = 1 << 30


def checksum(data: bytes | memoryview) -> bytes:
    """What tells damaged bytes from whole ones."""
    return hashlib.blake2b(data, digest_size=CHECKSUM_BYTES).digest()


def is_private(folder: Path) -> bool:
    """Whether a folder is ours and nobody else can put files into it."""
    try:
        status = os.stat(folder)
    except OSError:
        return False
    ours = not hasattr(os, "getuid") or status.st_uid == os.getuid()
    return stat.S_ISDIR(status.st_mode) and ours and not status.st_mode & 0o022


def read_private(path: Path) -> bytes | None:
    """The bytes of a plain file of ours; links and others' files are passed over."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
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


def trim(folder: Path) -> None:
    """Drop the files least recently written once the folder has grown too large."""
    files = sorted(_entries(folder), key=lambda entry: entry[1])
    excess = sum(size for _, _, size in files) - MAX_FOLDER_BYTES
    for path, _, size in files:
        if excess <= 0:
            return
        path.unlink(missing_ok=True)
        excess -= size


def _entries(folder: Path) -> Iterator[tuple[Path, float, int]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES):
                with contextlib.suppress(FileNotFoundError):
                    status = entry.stat(follow_symlinks=False)
                    yield Path(entry.path), status.st_mtime, status.st_size
