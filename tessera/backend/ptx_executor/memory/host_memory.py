"""Host memory: how much is available, and a setting that keeps freed memory in the process.

Linux promises more memory than it has, and kills a process that uses too much. A large allocation
is therefore compared with the free memory before it is filled.
"""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT_BYTES = 256 << 20
_LARGEST_BYTES = 64 << 20
_MEMINFO = Path("/proc/meminfo")
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
# Cached files count as used, but the kernel drops them when memory is short.
_CACHED = frozenset({"active_file", "inactive_file"})


def available_bytes() -> int | None:
    """Free bytes, within both the machine and the process's control group; None if unknown."""
    rooms = [room for room in (_of_machine(), *map(_of_group, _GROUPS)) if room is not None]
    return min(rooms, default=None)


def _of_machine() -> int | None:
    try:
        text = _MEMINFO.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return None


def _of_group(group: tuple[str, str, str]) -> int | None:
    folder, limit, used = group
    try:
        room = int(Path(folder, limit).read_text()) - int(Path(folder, used).read_text())
        stat = [line.split() for line in Path(folder, "memory.stat").read_text().splitlines()]
        return max(room + sum(int(words[1]) for words in stat if words[0] in _CACHED), 0)
    except (OSError, ValueError, IndexError):
        return None


@functools.cache
def keep_freed_memory() -> bool:
    """Keep freed memory in the process from the first launch on; return whether it worked.

    A launch makes and drops arrays of a few hundred kilobytes for every instruction. The C library
    of Linux gives such memory back to the system at once by default, and then every array costs a
    page fault per 4 KiB: nearly half of the time of a launch. This setting keeps up to 256 MiB. It
    changes only the speed of the process and the idle memory that it holds. With a C library other
    than glibc it does nothing.
    """
    try:
        library = ctypes.CDLL(None)
        set_option = library.mallopt
        library.gnu_get_libc_version  # noqa: B018
    except (OSError, AttributeError, TypeError):
        return False
    settings = (
        (_MMAP_THRESHOLD, _LARGEST_BYTES),
        (_TRIM_THRESHOLD, _KEPT_BYTES),
        (_TOP_PAD, 1 << 20),
    )
    return all(bool(set_option(option, value)) for option, value in settings)
