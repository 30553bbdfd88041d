"""A capture that fails leaves PyTorch as it was."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture.graphs.into_graph import captured_into

POOL = (0, 7)


class Allocator:
    """PyTorch's, with the pools that captures under way allocate from, and their users."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ends_captures: bool) -> None:
        self.under_way: list[object] = []
        self.users: list[object] = []
        self.stream = "before"
        self.ends_captures = ends_captures
        for name, function in (
            ("graph", self.graph),
            ("graph_pool_handle", lambda: POOL),
            ("current_device", lambda: 0),
            ("current_stream", lambda: self.stream),
            ("set_stream", lambda stream: setattr(self, "stream", stream)),
        ):
            monkeypatch.setattr(torch.cuda, name, function)
        end, release = "_cuda_endAllocateToPool", "_cuda_releasePool"
        monkeypatch.setattr(torch._C, end, self.end, raising=False)
        monkeypatch.setattr(torch._C, release, self.release, raising=False)

    def end(self, device: int, pool: object) -> None:
        if pool not in self.under_way:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.under_way.remove(pool)

    def release(self, device: int, pool: object) -> None:
        self.users.remove(pool)

    @contextmanager
    def graph(self, graph: Any, pool: object, stream: str = "capture") -> Iterator[None]:
        self.under_way.append(pool)
        self.users.append(pool)
        before, self.stream = self.stream, stream
        problem: Exception | None = None
        try:
            yield
        except RuntimeError as raised:
            problem = raised
        if problem is None or self.ends_captures:
            self.end(0, pool)
            self.stream = before
        if problem is not None:
            raise problem


@pytest.mark.parametrize("ends_captures", [True, False])
def test_a_capture_that_fails_is_no_longer_under_way(
    ends_captures: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Allocator(monkeypatch, ends_captures=ends_captures)

    def fail() -> None:
        assert made.stream == "own"
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"), captured_into(object(), stream="own"):
        fail()
    assert made.under_way == []
    assert made.stream == "before"
    assert made.users == ([POOL] if ends_captures else [])  # PyTorch gives back what it has ended


def test_a_capture_that_goes_well_keeps_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Allocator(monkeypatch, ends_captures=False)
    with captured_into(object()):
        assert made.under_way == [POOL]
    assert made.under_way == []
    assert made.users == [POOL]
