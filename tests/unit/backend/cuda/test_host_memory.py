from __future__ import annotations

import numpy as np
import pytest

from tessera.backend.cuda.host_memory import Recycled

SIZE = 1 << 17


@pytest.mark.parametrize(
    "part",
    [
        lambda result: result[8:16].view(np.uint32),
        lambda result: result.reshape(2, -1).T,
        lambda result: memoryview(result)[8:],
        lambda result: np.from_dlpack(result),
        lambda result: result.base,
    ],
)
def test_memory_is_used_again_only_when_nobody_has_it(part: object) -> None:
    recycled = Recycled()
    content = np.arange(SIZE, dtype=np.uint32).view(np.uint8)[:SIZE]
    first = recycled.copy_of(content)
    address = first.ctypes.data
    assert first.flags.writeable
    assert not np.shares_memory(first, content)
    kept = part(first)  # type: ignore[operator]
    before = bytes(kept)
    del first
    other = recycled.copy_of(content + 1)
    assert other.ctypes.data != address
    assert bytes(kept) == before
    del kept
    again = recycled.copy_of(content)
    assert again.ctypes.data == address
    assert again.tobytes() == content.tobytes()
    assert other.tobytes() == (content + 1).tobytes()


def test_who_keeps_everything_has_everything() -> None:
    recycled = Recycled()
    contents = [np.full(SIZE, number, np.uint8) for number in range(100)]
    results = [recycled.copy_of(content) for content in contents]
    assert len({result.ctypes.data for result in results}) == 100
    assert all((result == number).all() for number, result in enumerate(results))
    del results
    assert sum(len(kept) for kept in recycled._kept.values()) == 64


def test_small_results_and_sizes_apart() -> None:
    recycled = Recycled()
    for size in (0, 1, 100, SIZE, SIZE + 4):
        content = np.random.default_rng(size).integers(0, 256, size, np.uint8)
        assert recycled.copy_of(content).tobytes() == content.tobytes()
