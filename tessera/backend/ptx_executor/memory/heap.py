"""Keep freed memory in the process while launches run.

A launch makes and drops arrays of a few hundred kilobytes for every instruction. The C library
of Linux gives such memory back to the system at once by default, and then every array costs a
page fault per 4 KiB: nearly half of the time of a launch. `keep_freed_memory` asks it to hold
on to up to 256 MiB. It changes how fast a process runs and how much idle memory it holds, and
nothing else; where the C library is another one it does nothing.
"""

from __future__ import annotations

import ctypes
import functools

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_KEPT = 256 << 20
_LARGEST = 64 << 20


@functools.cache
def keep_freed_memory() -> bool:
    """Set the limits, once in a process; whether that was possible."""
    try:
        library = ctypes.CDLL(None)
        set_option = library.mallopt
        library.gnu_get_libc_version  # noqa: B018
    except (OSError, AttributeError, TypeError):
        return False
    settings = ((_MMAP_THRESHOLD, _LARGEST), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, 1 << 20))
    return all(bool(set_option(option, value)) for option, value in settings)
