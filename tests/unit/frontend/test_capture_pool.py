"""Kernels of a capture are compiled in other processes, or in this one where that fails."""

from __future__ import annotations

import importlib.util
import pickle
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError, error
from tessera.driver.trace import capture_trace as tracing
from tessera.driver.trace.capture_trace import TraceOptions
from tessera.frontend.capture import compile_pool
from tessera.frontend.capture.compile_pool import pool_failed, process_counts
from tessera.frontend.capture.inputs import Inputs


@pytest.mark.parametrize(
    ("cores", "setting", "counts"),
    [
        (2, "", (1,)),
        (3, "", (1,)),
        (16, "", (16, 1)),
        (64, "", (16, 1)),
        (16, "1", (1,)),
        (16, "0", (1,)),
        (2, "2", (2, 1)),
        (16, "many", (16, 1)),
    ],
)
def test_as_many_processes_as_there_are_cores_for(
    cores: int, setting: str, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", str(cores))
    monkeypatch.setenv("TESSERA_COMPILE_PROCESSES", setting)
    assert process_counts(for_others=False) == counts
    assert process_counts(for_others=True) == (1,)


def test_a_pool_that_failed_is_told_from_a_model_that_does_not_compile() -> None:
    from torch._inductor.compile_worker.subproc_pool import SubprocException

    for lost in (
        SubprocException("Traceback"),
        BrokenProcessPool("gone"),
        CancelledError(),
        RuntimeError("SubprocPool closed"),
        RuntimeError("Attempting to use a closed pool"),
    ):
        told = TesseraError(error("TSR6010", "not compiled"))
        told.__cause__ = RuntimeError("raised:")
        told.__cause__.__context__ = lost
        assert pool_failed(told)
    assert not pool_failed(TesseraError(error("TSR6010", "not compiled")))
    assert not pool_failed(RuntimeError("out of shared memory"))


@pytest.mark.parametrize("route", ["auto", "ptx"])
def test_a_capture_goes_on_without_a_pool_that_failed(
    route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the route `ptx` there is a second way to compile, which is not taken for that."""
    from torch._inductor import config

    from tessera.frontend.capture import routes, session

    tried: list[tuple[int, str]] = []
    dropped: list[bool] = []
    made = session.Call(raw=None, notes=(), memory=None, graph=None, kept=None, returned=None)  # type: ignore[arg-type]

    def compiled(function: Any, route: str, backends: str, *, alike: bool) -> Any:
        assert not alike
        tried.append((config.compile_threads, backends))
        return function

    def capture(*given: Any, **named: Any) -> session.Call:
        if config.compile_threads > 1:
            problem = TesseraError(error("TSR6010", "not compiled"))
            raise problem from BrokenProcessPool("gone")
        return made

    monkeypatch.setenv("TESSERA_COMPILE_PROCESSES", "3")
    monkeypatch.setattr(routes, "start_pool", lambda: None)
    monkeypatch.setattr(compile_pool, "drop_pool", lambda: dropped.append(True))
    monkeypatch.setattr(routes, "compiled", compiled)
    monkeypatch.setattr(session, "capture", capture)
    inputs = Inputs(plain=(), named={})
    assert tracing._capture(lambda: None, inputs, TraceOptions(route=route)) == made
    assert [count for count, _ in tried] == [3, 1]
    assert len({backends for _, backends in tried}) == 1
    assert dropped == [True]


def test_what_another_process_has_compiled_has_its_ptx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Inductor's processes send kernels: without the function that they were made of."""
    triton = pytest.importorskip("triton", reason="triton is not installed")
    from torch._inductor.runtime.triton_heuristics import TritonCompileResult
    from triton.backends.compiler import GPUTarget

    from tessera.frontend.capture.kernels import KernelSources, find_codes, without_folders

    place = Path(__file__).parents[2] / "data" / "kernels" / "sources" / "triton_kernels.py"
    kernels = importlib.util.spec_from_file_location("triton_kernels", place)
    assert kernels is not None
    assert kernels.loader is not None
    module = importlib.util.module_from_spec(kernels)
    kernels.loader.exec_module(module)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    types = {"out": "*fp32", "x": "*fp32", "y": "*fp32", "n": "i32", "BLOCK": "constexpr"}
    source = triton.compiler.ASTSource(module.add, types, {(4,): 128})
    kernel = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
    sent = TritonCompileResult(kernel, None, {}, {}).__getstate__()
    sent["kernel"]["src"] = None
    received = TritonCompileResult.__new__(TritonCompileResult)
    received.__setstate__(pickle.loads(pickle.dumps(sent)))
    sources = KernelSources({7: received.kernel}, {}, {})
    (code,), problems = find_codes({7: "add"}, (), sources)
    (variant,) = code.variants
    assert variant.text == without_folders(kernel.asm["ptx"])
    assert (variant.arch, variant.threads, problems) == ("sm_90a", 64, [])
    _, problems = find_codes({7: "add"}, ("sm_80",), sources)
    assert problems == ["`add` has no source to compile for sm_80"]
