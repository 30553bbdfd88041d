"""How much memory the machine can still give, so that a large buffer is refused in words.

Linux promises more memory than it has and ends the process when it is used, so an allocation
has to be held against what is free before it is filled.
"""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)
# Cached files count as used, and are given up when memory is short.
_CACHED = frozenset({"active_file", "inactive_file"})


def available_bytes() -> int | None:
    """Free memory of the machine and of the process's control group; None if unknown."""
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
