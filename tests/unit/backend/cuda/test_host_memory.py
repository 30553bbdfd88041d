from __future__ import annotations

import gc

import numpy as np

from tessera.backend.cuda.host_memory import Recycled


def test_memory_is_used_again_only_when_nobody_has_it() -> None:
    recycled = Recycled()
    content = np.arange(64, dtype=np.uint8)
    first = recycled.copy_of(content)
    address = first.ctypes.data
    part = first[8:16].view(np.uint32)
    del first
    gc.collect()
    other = recycled.copy_of(content + 1)
    assert other.ctypes.data != address
    assert part.tobytes() == bytes(range(8, 16))
    del part
    gc.collect()
    again = recycled.copy_of(content)
    assert again.ctypes.data == address
    assert again.tobytes() == content.tobytes()
    assert again.flags.writeable
