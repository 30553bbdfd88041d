"""`tessera.Runtime`: requests from a program, from threads, and mistakes."""

from __future__ import annotations

import math
import os
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera
from tessera.backend.processes.inline import InlineBackend
from tessera.backend.service import Completion
from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import Result, Runtime, inputs_of, read_inputs
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Program, Role
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.traces import COPY, trace

BUFFERS = """
buffer x bytes=64 role=input dtype=f32 shape=4x4
buffer s bytes=64 role=state dtype=f32 shape=16
buffer y bytes=64 role=output dtype=f32 shape=4x4
buffer old bytes=64 role=output dtype=f32 shape=16
"""
STEPS = """
launch m.copy grid=1,1,1 block=16,1,1 args=[old, s, u32:16]
launch m.copy grid=1,1,1 block=16,1,1 args=[s, x, u32:16]
launch m.copy grid=1,1,1 block=16,1,1 args=[y, s, u32:16]
"""


def program() -> Program:
    """`y` is the input; `old` is that of the lane's request before."""
    return trace(BUFFERS, COPY, STEPS)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    plan = plan_of([program()], [["a", "b", "a"]], slots=2, lanes=3)
    path = write_plan(tmp_path_factory.mktemp("runtime"), plan)
    with Runtime(path, backend="cpu") as made:
        yield made


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No processes, for tests of what goes on around them."""
    make = lambda choice, model, options: InlineBackend(model, options)  # noqa: E731
    monkeypatch.setattr("tessera.driver.run.serving.make_backend", make)


def values(number: float) -> np.ndarray:
    return np.full((4, 4), number, np.float32)


def test_a_request(runtime: Runtime) -> None:
    result = runtime.submit({"x": values(3)}, sequence=0).result(300)
    assert sorted(result) == ["old", "y"]
    assert result["y"].dtype == np.float32
    np.testing.assert_array_equal(result["y"], values(3))
    assert result.latency_ns > 0


def test_lanes_keep_their_order_and_their_states(runtime: Runtime) -> None:
    futures = [
        (lane, n, runtime.submit({"x": values(10 * n + lane)}, sequence=lane))
        for n in range(1, 4)
        for lane in (1, 2)
    ]
    for lane, n, future in futures:
        result = future.result(300)
        assert result["y"][0, 0] == 10 * n + lane
        if n > 1:
            assert result["old"][0] == 10 * (n - 1) + lane
    assert runtime.states(1)["s"][0] == 31


def test_requests_from_threads(runtime: Runtime) -> None:
    found: dict[int, float] = {}

    def send(number: int) -> None:
        result = runtime.submit({"x": values(number)}, sequence=number % 3).result(300)
        found[number] = float(result["y"][1, 1])

    threads = [threading.Thread(target=send, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: float(number) for number in range(9)}


class Dlpack:
    """An array that speaks only DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **more: Any) -> Any:
        return self._array.__dlpack__(**more)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "given",
    [
        values(5),
        np.asfortranarray(values(5)),
        values(5).view(np.uint8),
        Dlpack(values(5)),
        values(5).tolist(),
    ],
    ids=["array", "columns first", "bytes", "dlpack", "lists"],
)
def test_kinds_of_arrays(given: Any) -> None:
    if isinstance(given, list):
        given = np.array(given, np.float32)
    content = read_inputs(inputs_of(program()), {"x": given})[0]["x"]
    assert content.dtype == np.uint8
    np.testing.assert_array_equal(content.view(np.float32), values(5).reshape(-1))


def test_arrays_are_not_copied() -> None:
    given = values(1)
    assert np.shares_memory(read_inputs(inputs_of(program()), {"x": given})[0]["x"], given)
    assert np.shares_memory(read_inputs(inputs_of(program()), {"x": Dlpack(given)})[0]["x"], given)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input `x` is missing"),
        ({"x": values(1), "z": values(1)}, "`z` is no input"),
        ({"x": values(1)[:2]}, "takes 64 bytes, not 32"),
        ({"x": values(1).astype(np.int32)}, "is of type float32, not int32"),
        ({"x": values(1).astype(">f4")}, "is of type float32, not >f4"),
        ({"x": "text"}, "is of type float32"),
    ],
)
def test_inputs_that_do_not_fit(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(TesseraError, match=message) as failure:
        read_inputs(inputs_of(program()), inputs)
    assert failure.value.diagnostics[0].code == "TSR5053"


@pytest.mark.parametrize(
    "more", [{"sequence": 3}, {"sequence": -1}, {"trace": "other"}, {"trace": 1}]
)
def test_requests_that_do_not_fit(runtime: Runtime, more: dict[str, Any]) -> None:
    with pytest.raises(TesseraError, match="TSR5053"):
        runtime.submit({"x": values(1)}, **more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sequence": "0"}, "`sequence` must be a whole number, not a str: '0'"),
        ({"sequence": 0.0}, "`sequence` must be a whole number, not a float: 0.0"),
        ({"sequence": None}, "`sequence` must be a whole number, not None"),
        ({"sequence": True}, "`sequence` must be a whole number, not a bool: True"),
        ({"sequence": [0]}, "`sequence` must be a whole number, not a list"),
        ({"trace": 0.5}, "`trace` must be a whole number, not a float: 0.5"),
        ({"trace": ["t"]}, "`trace` must be a whole number, not a list"),
        ({"trace": False}, "`trace` must be a whole number, not a bool: False"),
        ({"inputs": None}, "`inputs` must be a mapping of names to arrays, not None"),
        ({"inputs": [values(1)]}, "`inputs` must be a mapping of names to arrays, not a list"),
        ({"inputs": "x"}, "`inputs` must be a mapping of names to arrays, not a str: 'x'"),
        ({"inputs": {0: values(1)}}, "`0` is no input"),
        ({"inputs": {"x": None}}, "input `x` is of type float32, not object"),
        ({"inputs": {"x": {}}}, "input `x` is of type float32, not object"),
    ],
)
def test_arguments_of_the_wrong_type(runtime: Runtime, more: dict[str, Any], said: str) -> None:
    with pytest.raises(TesseraError, match=re.escape(said)) as failure:
        runtime.submit(**{"inputs": {"x": values(1)}, **more})
    assert [one.code for one in failure.value.diagnostics] == ["TSR5053"]
    if "sequence" in more:
        with pytest.raises(TesseraError, match=re.escape(said)):
            runtime.states(more["sequence"])


def test_numbers_of_numpy_are_numbers(runtime: Runtime) -> None:
    future = runtime.submit({"x": values(2)}, sequence=np.int64(0), trace=np.uint8(0))
    assert future.result(300)["y"][0, 0] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": "2"}, "`slots` must be a whole number, not a str: '2'"),
        ({"slots": 2.0}, "`slots` must be a whole number, not a float: 2.0"),
        ({"sequences": True}, "`sequences` must be a whole number, not a bool"),
        ({"max_steps": "many"}, "`max_steps` must be a whole number"),
        ({"seed": None}, "`seed` must be a whole number, not None"),
        ({"seed": "1"}, "`seed` must be a whole number, not a str: '1'"),
        ({"time_limit_s": "60"}, "`time_limit_s` must be a number, not a str: '60'"),
        ({"time_limit_s": None}, "`time_limit_s` must be a number, not None"),
        ({"time_limit_s": 10**400}, "`time_limit_s` must be a number"),
        ({"throttle_bytes_per_s": "1GB/s"}, "`throttle_bytes_per_s` must be a number"),
        ({"backend": None}, "`backend` must be a text, not None"),
        ({"backend": ["cpu"]}, "`backend` must be a text, not a list"),
        ({"policy": 1}, "`policy` must be a text, not a int: 1"),
        ({"targets": ["a=cpu"]}, "`targets` must be a mapping of devices to targets, not a list"),
        ({"targets": {"a": 0}}, "`targets` must be a mapping of texts to texts, not a int: 0"),
        ({"data": 3}, "`data` must be a path, not a int: 3"),
        ({"data": [3]}, "`data` must be a path, not a int: 3"),
        ({"data_root": 3}, "`data_root` must be a path, not a int: 3"),
        ({"timeline": "no"}, "`timeline` must be True or False, not a str: 'no'"),
        ({"plan": None}, "`plan` must be a path or a `Plan`, not None"),
        ({"plan": 7}, "`plan` must be a path or a `Plan`, not a int: 7"),
    ],
)
def test_options_of_the_wrong_type(options: dict[str, Any], said: str) -> None:
    given = {"plan": plan_of([program()], [["a", "b", "a"]]), "backend": "cpu", **options}
    with pytest.raises(TesseraError, match=re.escape(said)) as failure:
        Runtime(**given)
    assert [one.code for one in failure.value.diagnostics] == ["TSR5053"]


@pytest.mark.usefixtures("inline")
def test_a_plan_that_was_never_a_file_finds_contents_beside_its_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "here").mkdir()
    weights = np.arange(4, dtype=np.float32)
    np.savez(tmp_path / "there" / "w.npz", w=weights)
    np.savez(tmp_path / "here" / "w.npz", w=weights + 1)  # not these
    (tmp_path / "there" / "t.ptx").write_text(
        "//! tessera.trace 1\n//! resident data=w.npz\n//! buffer w bytes=16 role=weight\n"
        "//! buffer y bytes=16 role=output dtype=f32 shape=4\n//! memcpy y w bytes=16\n"
    )
    monkeypatch.chdir(tmp_path)
    report = tessera.plan("there/t.ptx", tessera.PlanOptions(gpus="a100"))
    monkeypatch.chdir(tmp_path / "here")
    with Runtime(report.plan, backend="cpu") as runtime:
        assert np.array_equal(runtime.submit({}).result(300)["y"], weights)
    assert str(tmp_path) not in print_plan(report.plan)  # the file does not say where it was
    text = print_plan(report.plan).replace("share=1.0", f'share=1.0 folder="{tmp_path}"')
    with pytest.raises(TesseraError, match="folder"):
        parse_plan(text)


@pytest.mark.usefixtures("inline")
def test_a_closed_runtime() -> None:
    runtime = Runtime(plan_of([program()], [["a", "b", "a"]]), backend="cpu")
    future = runtime.submit({"x": values(2)})
    runtime.close()
    assert future.result(0)["y"][0, 0] == 2
    with pytest.raises(TesseraError, match="TSR5050"):
        runtime.submit({"x": values(1)})
    runtime.close()


@pytest.mark.usefixtures("inline")
def test_leaving_through_an_exception_does_not_wait() -> None:
    futures = []

    def fail() -> None:
        with Runtime(plan_of([program()], [["a", "b", "a"]]), backend="cpu") as runtime:
            futures.append(runtime.submit({"x": values(2)}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert futures[0].done()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"slots": 0}, "`slots` must be 1 or more, not 0"),
        ({"sequences": -1}, "`sequences` must be 1 or more"),
        ({"max_steps": 0}, "`max_steps` must be 1 or more"),
        ({"time_limit_s": float("nan")}, "`time_limit_s` must be above 0"),
        ({"throttle_bytes_per_s": 0.0}, "`throttle_bytes_per_s` must be above 0"),
        ({"seed": -1}, "`seed` must be 0 or more"),
        ({"backend": "tpu"}, "no backend `tpu`"),
        ({"targets": {"a": "gpu7"}}, "`gpu7` cannot stand for `a`"),
    ],
)
def test_options_without_sense(options: dict[str, Any], said: str) -> None:
    plan = plan_of([program()], [["a", "b", "a"]])
    with pytest.raises(TesseraError, match=re.escape(said)):
        Runtime(plan, **{"backend": "cpu", **options})


def test_a_forked_child_is_told(runtime: Runtime) -> None:
    """It would wait for threads that a fork does not take along."""
    child = os.fork()
    if child == 0:
        signal.alarm(600)
        told = 0
        for call in (lambda: runtime.submit({"x": values(1)}).result(300), runtime.states):
            try:
                call()
            except TesseraError as failure:
                told += "another process" in str(failure)
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert runtime.submit({"x": values(2)}).result(300)["y"][0, 0] == 2


@pytest.mark.parametrize("sequence", [-1, 99])
def test_states_of_a_sequence_that_is_not_there(runtime: Runtime, sequence: int) -> None:
    with pytest.raises(TesseraError, match=f"there is no sequence {sequence}"):
        runtime.states(sequence)


def one_input(dtype: DataType, *shape: int) -> dict[str, Buffer]:
    size = dtype.bytes * math.prod(shape)
    return {
        "x": Buffer(id=BufferId(0), name="x", bytes=size, role=Role.INPUT, dtype=dtype, shape=shape)
    }


def test_rows_that_are_not_those_of_the_input() -> None:
    wanted = one_input(DataType.F32, 2, 4)
    array = np.arange(8, dtype=np.float32)
    with pytest.raises(TesseraError, match=r"is of shape \(2, 4\), not \(4, 2\)"):
        read_inputs(wanted, {"x": array.reshape(4, 2)})
    for given in (
        array,
        array.reshape(2, 4),
        array.reshape(1, 2, 4),
        array.reshape(8, 1),
        array.view(np.uint8).reshape(4, 8),
    ):
        content, _ = read_inputs(wanted, {"x": given})
        assert content["x"].tobytes() == array.tobytes()


def test_bits_are_of_any_type_of_their_size() -> None:
    wanted = one_input(DataType.B32, 4)
    for given in (np.arange(4, dtype=np.int32), np.arange(4, dtype=np.float32)):
        assert read_inputs(wanted, {"x": given})[0]["x"].tobytes() == given.tobytes()
    for wrong in (np.arange(4, dtype=">i4"), np.arange(2, dtype=np.int64)):
        with pytest.raises(TesseraError, match="is of type uint32"):
            read_inputs(wanted, {"x": wrong})


def test_tensors_that_put_off_what_they_do() -> None:
    """The minus of a view and the conjugate are only noted in a tensor, not in its memory."""
    torch = pytest.importorskip("torch", reason="needs torch")
    values = torch.arange(8, dtype=torch.float32)
    turned = torch.view_as_complex(values.reshape(4, 2)).conj()
    content, _ = read_inputs(one_input(DataType.F32, 4), {"x": turned.imag})
    assert content["x"].view(np.float32).tolist() == [-1, -3, -5, -7]
    content, _ = read_inputs(one_input(DataType.C64, 4), {"x": turned})
    assert content["x"].view(np.complex64).tolist() == [0 - 1j, 2 - 3j, 4 - 5j, 6 - 7j]


@pytest.mark.usefixtures("inline")
def test_two_traces_share_states() -> None:
    put = trace(BUFFERS, COPY, "launch m.copy grid=1,1,1 block=16,1,1 args=[s, x, u32:16]")
    get = trace(BUFFERS, COPY, "launch m.copy grid=1,1,1 block=16,1,1 args=[y, s, u32:16]")
    plan = plan_of([put, get], [["a"], ["b"]], lanes=2, shares=[0.5, 0.5])
    with Runtime(plan, backend="cpu") as runtime:
        assert runtime.traces == ("trace0", "trace1")
        with pytest.raises(TesseraError, match="say which trace"):
            runtime.submit({"x": values(0)})
        for lane in (0, 1):
            runtime.submit({"x": values(7 + lane)}, sequence=lane, trace="trace0")
        for lane in (0, 1):
            result = runtime.submit({"x": values(0)}, sequence=lane, trace=1).result(300)
            assert result["y"][0, 0] == 7 + lane


def test_results_in_types_that_numpy_lacks() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    buffer = Buffer(
        id=BufferId(0), name="y", bytes=4, role=Role.OUTPUT, dtype=DataType.BF16, shape=(2, 1)
    )
    content = np.array([0x3F80, 0x4000], np.uint16).view(np.uint8)
    done = Completion(request=0, outputs={"y": content}, started_ns=0, ended_ns=1)
    tensor = Result(Program(buffers=(buffer,)), done).torch("y")
    assert tensor.dtype is torch.bfloat16
    assert tensor.tolist() == [[1.0], [2.0]]


def test_tensors_without_memory_in_rows() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    wanted = {"x": Buffer(id=BufferId(0), name="x", bytes=12, role=Role.INPUT, dtype=DataType.F32)}
    for tensor in (torch.zeros(3, device="meta"), torch.zeros(3).to_sparse()):
        with pytest.raises(TesseraError, match="input `x` is no array"):
            read_inputs(wanted, {"x": tensor})
