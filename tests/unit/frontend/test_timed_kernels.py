"""Kernels that the compiler tunes when they are first run are timed inside graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture import timed_kernels
from tessera.frontend.capture.timed_kernels import kernels_timed_in_graphs

pytest.importorskip("triton", reason="triton is not installed")

BY_THE_COMPILER = 7.0


class Tuner:
    """As much of the compiler's as is used: its kernel changes what is called `state`."""

    def __init__(self) -> None:
        self.inductor_meta: dict[str, Any] = {}
        self.custom_kernel = False
        self.reset_to_zero_arg_names: list[str] = []

    def bench(self, launcher: Any, *given: Any, with_profiler: bool = False, **named: Any) -> float:
        return BY_THE_COMPILER

    def clone_args(self, *given: Any, **named: Any) -> tuple[list[Any], dict[str, Any]]:
        return list(given), {k: v.clone() if k == "state" else v for k, v in named.items()}


class OnGpu(torch.Tensor):  # type: ignore[misc, name-defined]
    """A tensor that says that it is on a GPU."""

    is_cuda = True


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What was timed; the first one that is an error is raised."""
    from torch._inductor.runtime import triton_heuristics

    timed: list[Any] = []

    def cold_ms(large: tuple[Any, ...], run: Any) -> float:
        if timed and isinstance(timed[0], Exception):
            raise timed[0]
        run(*(tensor.clone().as_subclass(OnGpu) for tensor in large))
        timed.append(large)
        return 3.0

    monkeypatch.setattr(triton_heuristics, "CachingAutotuner", Tuner)
    monkeypatch.setattr(timed_kernels, "cold_ms", cold_ms)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=9))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    return timed


def launcher(spilled: int | None = 0) -> Any:
    def launch(x: Any, size: int, *, state: Any, stream: int) -> None:
        assert (size, stream) == (2, 9)
        state += x

    launch.n_spills = spilled  # type: ignore[attr-defined]
    return launch


def test_a_candidate_is_called_with_copies_on_the_stream_of_the_graph(times: list[Any]) -> None:
    x, state = torch.ones(2).as_subclass(OnGpu), torch.zeros(2).as_subclass(OnGpu)
    with kernels_timed_in_graphs():
        assert Tuner().bench(launcher(), x, 2, state=state) == 3.0
        assert Tuner().bench(launcher(None), x, 2, state=state) == 3.0
    assert len(times[0]) == 2
    assert float(state.sum()) == 0.0
    assert Tuner().bench(launcher(), x, 2, state=state) == BY_THE_COMPILER


def test_where_that_cannot_be_the_compiler_times_it(times: list[Any]) -> None:
    x, state = torch.ones(2).as_subclass(OnGpu), torch.zeros(2).as_subclass(OnGpu)
    with kernels_timed_in_graphs():
        assert Tuner().bench(launcher(17), x, 2, state=state) == BY_THE_COMPILER
        assert Tuner().bench(launcher(), x, 2, state=state, with_profiler=True) == BY_THE_COMPILER
        for name, value in (("custom_kernel", True), ("reset_to_zero_arg_names", ["state"])):
            tuner = Tuner()
            setattr(tuner, name, value)
            assert tuner.bench(launcher(), x, 2, state=state) == BY_THE_COMPILER
        plain = torch.ones(2)
        assert Tuner().bench(launcher(), plain, 2, state=plain) == BY_THE_COMPILER
        lenient = Tuner()
        lenient.inductor_meta["spill_threshold"] = 20
        assert lenient.bench(launcher(17), x, 2, state=state) == 3.0
        times.insert(0, RuntimeError("not in a graph"))
        assert Tuner().bench(launcher(), x, 2, state=state) == BY_THE_COMPILER
        times[0] = ValueError("does not fit")  # the compiler has its own way with these
        with pytest.raises(ValueError, match="does not fit"):
            Tuner().bench(launcher(), x, 2, state=state)


def test_the_compiler_has_what_is_replaced() -> None:
    """Else kernels would be timed from the host again, and nobody would see it."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    before = CachingAutotuner.bench
    with kernels_timed_in_graphs():
        assert CachingAutotuner.bench is not before
    assert CachingAutotuner.bench is before
    assert callable(CachingAutotuner.clone_args)
