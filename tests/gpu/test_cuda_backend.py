"""The CUDA backend on a real GPU: equal bytes on slices, faults, emitted programs, operators.

`benchmarks/running/cuda_correct.py` does the same at length. A fault costs the process its context,
so it happens in a process of its own.
"""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.cuda.doctor import check_machine
from tessera.backend.cuda.emitted.emit_python import emit_python
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions
from tessera.driver.load import load
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.program.program import Role
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, inputs_of, model_of, serve

TRACES = Path(__file__).parents[2] / "examples" / "traces"
SLICES = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}
MACHINE = check_machine()

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MACHINE.gpus, reason=f"no GPU: {MACHINE.problem}"),
]


@pytest.mark.parametrize("seed", range(10))
def test_random_traces_on_slices(seed: int) -> None:
    rng = random.Random(seed)
    program = random_program(seed, variable=seed % 5 == 0, races=False, wide=seed % 3 == 1)
    places = [rng.choice("ab") for _ in program.work()]
    model = model_of([program], [places], slots=1 + seed % 4, lanes=2)
    if seed % 2:
        (lowered,) = model.lowered.traces
        gate = rng.randrange(len(places))
        model = replace(
            model, lowered=replace(model.lowered, traces=(replace(lowered, gate=gate),))
        )
    asks = [Ask(i, 0, i % 2) for i in range(6)]
    options = BackendOptions(targets=SLICES, timeline=seed % 2 == 0)
    backend = CudaBackend(model, options, cuda=CudaOptions(graphs=seed % 3 > 0, guard_bytes=256))
    assert backend.replica.memory is not None
    done, states = serve(backend, model, asks, backend.replica.memory.check_guards)
    assert_equal(model, asks, expected(model, asks), done, states)


@pytest.mark.parametrize(
    "name", ["dit", "llama_prefill", "llama_decode", "mamba", "moe", "llama_decode_library"]
)
def test_captured_models_give_the_bytes_of_pytorch(name: str) -> None:
    """On the whole GPU as PyTorch computed them, and on two slices the same."""
    program = load(TRACES / f"{name}.ptx")
    with np.load(TRACES / f"{name}.ref.npz") as stored:
        wanted = {key: stored[key].reshape(-1).view(np.uint8) for key in stored}
    count = sum(1 for _ in program.work())
    rng = random.Random(1)
    for places, targets in (
        (["a"] * count, {"a": "cuda:0"}),
        ([rng.choice("ab") for _ in range(count)], SLICES),
    ):
        model = model_of([program], [places], slots=1)
        with open_contents(program, TRACES) as contents:
            given = {
                b.name: np.array(contents.read(b))
                for b in program.buffers
                if b.role is not Role.VARIABLE
            }
        kept = {b.name: b.role for b in program.buffers}
        model.weights.update({n: c for n, c in given.items() if kept[n] is Role.WEIGHT})
        model.states[0].update({n: c for n, c in given.items() if kept[n] is Role.STATE})
        backend = CudaBackend(model, BackendOptions(targets=targets))
        inputs = {n: c for n, c in given.items() if kept[n] is Role.INPUT}
        found = serve_one(backend, inputs)
        for key, content in wanted.items():
            np.testing.assert_array_equal(found[key], content, f"{name}: {key}")


def serve_one(backend: CudaBackend, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from tessera.backend.service import Request

    backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs=inputs))
    done: tuple = ()
    while not done:
        done = backend.collect(10.0)
    found = dict(done[0].outputs) | dict(backend.read_states(0))
    backend.close()
    return found


def test_emitted_programs(tmp_path: Path) -> None:
    program = random_program(3, races=False)
    places = ["ab"[i % 2] for i, _ in enumerate(program.work())]
    model = model_of([program], [places], slots=2, lanes=2)
    for name, text in emit_python(model.lowered, model.traces, SLICES).items():
        (tmp_path / name).write_text(text)
    asks = [Ask(i, 0, i % 2) for i in range(4)]
    states = {f"{n}@{i}": c for i, lane in enumerate(model.states) for n, c in lane.items()}
    inputs = {f"{n}@{i}": c for i, a in enumerate(asks) for n, c in inputs_of(model, a).items()}
    np.savez(tmp_path / "data.npz", **model.weights, **states)
    np.savez(tmp_path / "inputs.npz", **inputs)
    command = [
        sys.executable,
        "run.py",
        "--data",
        "data.npz",
        "--inputs",
        "inputs.npz",
        "--outputs",
        "out.npz",
        "--requests",
        "4",
    ]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    with np.load(tmp_path / "out.npz") as found:
        for number, want in enumerate(expected(model, asks)):
            for name, content in want.outputs.items():
                np.testing.assert_array_equal(found[f"{name}@{number}"], content)


@pytest.mark.parametrize("graphs", [True, False])
def test_tensors_of_the_gpu_are_read_in_place(graphs: bool) -> None:
    """Tensors that another stream is still writing, some not aligned, beside host arrays."""
    torch = pytest.importorskip("torch", reason="needs torch")
    program = random_program(5)
    places = ["ab"[i % 2] for i, _ in enumerate(program.work())]
    model = model_of([program], [places], slots=2, lanes=2)
    asks = [Ask(i, 0, i % 2) for i in range(8)]
    backend = CudaBackend(
        model, BackendOptions(targets=SLICES, timeline=False), cuda=CudaOptions(graphs=graphs)
    )
    dispatcher = Dispatcher(backend, slots=2, lanes=2)
    futures = []
    side = torch.cuda.Stream()
    for number, ask in enumerate(asks):
        host, in_place = {}, {}
        for name, content in inputs_of(model, ask).items():
            if number % 3 == 2 or not content.nbytes:
                host[name] = content
                continue
            with torch.cuda.stream(side):
                torch.cuda._sleep(2_000_000)
                room = torch.empty(content.nbytes + 4, dtype=torch.uint8, device="cuda")
                tensor = room[4 * (number % 2) :][: content.nbytes]
                tensor.copy_(torch.from_numpy(content))
                located = backend.locate(tensor, content.nbytes)
            assert located is not None
            assert located.address == tensor.data_ptr()
            in_place[name] = located
        futures.append(dispatcher.submit(host, trace=0, lane=ask.lane, in_place=in_place))
    done = [future.result(60) for future in futures]
    states = [dispatcher.read_states(lane) for lane in range(2)]
    dispatcher.close()
    assert_equal(model, asks, expected(model, asks), done, states)


FAULT = """
from tests.unit.backend.cuda.test_backend import two_copies, SLICES
from tests.helpers.served import Ask, inputs_of
from tessera.backend.cuda.backend import CudaBackend, CudaOptions
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, ServiceFault

model = two_copies("launch m.{} grid=1,1,1 block=1,1,1 smem=0 args=[{}]\\n")
backend = CudaBackend(model, BackendOptions(targets=SLICES), cuda=CudaOptions(graphs={}))
dispatcher = Dispatcher(backend, slots=2, lanes=1, limit_s=5)
try:
    dispatcher.submit(inputs_of(model, Ask(0)), trace=0, lane=0).result(30)
except ServiceFault as fault:
    print(fault.diagnostics[0].code, fault.step, fault.device, *fault.diagnostics[0].notes, sep="|")
"""

PICKY = """
import numpy as np
from tests.unit.backend.cuda.test_queueing import BUFFERS, PICKY
from tests.helpers.served import model_of
from tests.helpers.traces import trace
from tessera.backend.cuda.backend import CudaBackend
from tessera.backend.host_loop.dispatch import Dispatcher
from tessera.backend.service import BackendOptions, ServiceFault

steps = "launch m.picky grid=1,1,1 block=1,1,1 smem=0 args=[y, x]"
model = model_of([trace(BUFFERS, PICKY, steps)], [["a"]], slots=1)
backend = CudaBackend(model, BackendOptions(targets={"a": "cuda:0"}))
dispatcher = Dispatcher(backend, slots=1, lanes=1, limit_s=5)
contents = [np.full(256, number == 2, np.uint8) for number in range(4)]
futures = [dispatcher.submit({"x": one}, trace=0, lane=0) for one in contents]
for future in futures:
    try:
        print("done", future.result(30).request)
    except ServiceFault as fault:
        print(fault.diagnostics[0].code, fault.request)
dispatcher.close()
"""


def test_what_finished_right_before_a_fault_is_kept() -> None:
    """Four requests queue up on the GPU; the third faults as soon as the second has ended."""
    found = subprocess.run(
        [sys.executable, "-c", PICKY],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert found.stdout.splitlines() == ["done 0", "done 1", "TSR5106 2", "TSR5106 2"], found


@pytest.mark.parametrize("kernel", ["fault", "stop"])
@pytest.mark.parametrize("graphs", [True, False])
def test_faults_end_the_run(kernel: str, graphs: bool) -> None:
    code = FAULT.format(kernel, "z" if kernel == "fault" else "", graphs)
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        check=False,
        timeout=120,
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith("TSR5106"), found.stderr
    if not graphs:
        assert found.stdout.split("|")[1:3] == ["2", "b"]
