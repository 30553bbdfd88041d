"""Capture on a real GPU: every node is in the trace, the trace gives PyTorch's bytes, and what
cannot be captured says why."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from dataclasses import dataclass
from difflib import unified_diff
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.trace.capture_trace import Trace, TraceOptions, trace
from tessera.ir.program.program import (
    Event,
    Launch,
    LibraryCall,
    Memcpy,
    Memset,
    Program,
    Role,
    Wait,
)
from tests.helpers.returned import every_form

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)

triton = pytest.importorskip("triton", reason="Triton is not installed")
tl = pytest.importorskip("triton.language", reason="Triton is not installed")

# PyTorch's own modules warn when they are first imported.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
EAGER = TraceOptions(route="eager")
AS_IS = TraceOptions(route="as-is")
LIBRARY = TraceOptions(route="library")


def replayed(found: Trace, requests: int = 1) -> list[dict[str, np.ndarray]]:
    """Outputs and states of some requests of a trace, one after the other on the whole GPU."""
    from tessera.backend.cuda.backend import CudaBackend
    from tessera.backend.service import BackendOptions, Request
    from tests.helpers.served import model_of

    program = found.program
    roles = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    model = model_of([program], [["a"] * sum(1 for _ in program.work())], slots=1)
    for kind, target in ((Role.WEIGHT, model.weights), (Role.STATE, model.states[0])):
        target.update({n: c for n, c in found.contents.items() if roles[n] is kind})
    inputs = {n: c for n, c in found.contents.items() if roles[n] is Role.INPUT}
    backend = CudaBackend(model, BackendOptions(targets={"a": "cuda:0"}))
    results = []
    for number in range(requests):
        backend.begin(Request(number=number, trace=0, slot=0, lane=0, inputs=inputs))
        done: tuple[Any, ...] = ()
        while not done:
            done = backend.collect(10.0)
        results.append(dict(done[0].outputs) | dict(backend.read_states(0)))
    backend.close()
    return results


def check(found: Trace) -> Program:
    """Every node of the graph is in the trace, and the trace gives what PyTorch computed."""
    steps = list(found.program.work())
    nodes = found.nodes
    calls = sum(isinstance(step, LibraryCall) for step in steps)
    draws = sum(isinstance(s, Launch) and s.kernel == "draw_seeds" for s in steps)
    alone = nodes.kernels + nodes.memsets + nodes.copies + nodes.others - nodes.in_calls
    assert len(steps) - calls - draws == alone
    assert nodes.in_calls >= calls + draws
    assert not [d for d in found.diagnostics if d.code == "TSR6005"]
    (result,) = replayed(found)
    tables = {found.program.buffers[table.buffer].name for table in found.program.pointer_tables}
    assert found.reference.keys() <= result.keys()
    for name, content in found.reference.items():
        if name not in tables:
            np.testing.assert_array_equal(result[name], content, name)
    return found.program


def roles_of(program: Program) -> list[Role]:
    return [buffer.role for buffer in program.declared_buffers()]


def refused(function: Any, *inputs: Any, options: TraceOptions = AS_IS, **named: Any) -> Any:
    with pytest.raises(TesseraError) as caught:
        trace(function, *inputs, options=options, **named)
    return caught.value.diagnostics[0]


def ones(*shape: int, **more: Any) -> Any:
    return torch.ones(*shape, device="cuda", **more)


def rand(*shape: int, **more: Any) -> Any:
    return torch.randn(*shape, device="cuda", **more)


# --- what is captured --------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["auto", "ptx", "library", "eager", "as-is"])
def test_results_of_every_form_are_outputs_once(route: str) -> None:
    model, inputs = every_form()
    given = {name: tensor.cuda() for name, tensor in inputs.items()}
    found = trace(model.cuda(), options=TraceOptions(route=route), **given)
    buffers = check(found).declared_buffers()
    outputs = [buffer.name for buffer in buffers if buffer.role is Role.OUTPUT]
    assert outputs == ["out", *(f"out{number}" for number in range(9, 15))]


@pytest.mark.parametrize("route", ["eager", "as-is"])
def test_a_result_that_is_conjugated_when_it_is_read_is_refused(route: str) -> None:
    given = torch.ones(4, dtype=torch.complex64, device="cuda")
    said = refused(lambda x: (x * 2).conj(), given, options=TraceOptions(route=route))
    assert said.code == "TSR6002"
    assert "the result `out`" in str(said.headline)


def test_compiled_a_function_becomes_launches() -> None:
    weight = rand(64, 64)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) + 1

    found = trace(step, rand(32, 64), options=TraceOptions(route="ptx", archs=("sm_80", "sm_90")))
    program = check(found)
    roles = roles_of(program)
    assert [roles.count(r) for r in (Role.INPUT, Role.WEIGHT, Role.OUTPUT)] == [1, 1, 1]
    assert not any(isinstance(step, LibraryCall) for step in program.steps)
    arches = [[variant.arch for variant in module.variants] for module in program.modules]
    assert all(one == ["sm_90a", "sm_80"] for one in arches)


def test_eager_a_tensor_written_in_place_is_state() -> None:
    total = torch.zeros(64, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return total * 2

    program = check(trace(step, rand(64), options=EAGER))
    assert roles_of(program).count(Role.STATE) == 1


def test_eager_a_weight_that_is_updated_is_state_and_tied_weights_are_one() -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(32, 32, bias=False)
            self.second = torch.nn.Linear(32, 32, bias=False)
            self.second.weight = self.first.weight
            self.moved = torch.nn.Parameter(torch.ones(32))
            self.register_buffer("shift", torch.full((32,), 0.5))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.moved.mul_(0.5)
            return self.second(self.first(x) * self.moved) + self.shift

    program = check(trace(Tied().cuda(), rand(8, 32), options=EAGER))
    roles = {b.name: b.role for b in program.declared_buffers() if b.role is not Role.TEMP}
    assert roles == {
        "x": Role.INPUT,
        "first.weight": Role.WEIGHT,
        "moved": Role.STATE,
        "shift": Role.WEIGHT,
        "out": Role.OUTPUT,
    }


def test_eager_memsets_and_copies_are_steps() -> None:
    from cuda.bindings import driver

    kept = rand(256)

    def step(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(x)
        made.copy_(x)
        stream = torch.cuda.current_stream().cuda_stream
        driver.cuMemsetD32Async(kept.data_ptr(), 0x3F800000, 128, stream)
        return made

    program = check(trace(step, rand(256), options=EAGER))
    assert [type(step) for step in program.steps] == [Memcpy, Memset]
    assert roles_of(program).count(Role.STATE) == 1


def test_eager_what_the_graph_leaves_open_stays_open() -> None:
    side = torch.cuda.Stream()

    def step(x: torch.Tensor) -> torch.Tensor:
        first = x + 1
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            left = first * 2
            left = left * 3
        right = first - 1
        torch.cuda.current_stream().wait_stream(side)
        return left + right

    program = check(trace(step, rand(1024), options=EAGER))
    assert {step.stream for step in program.work()} == {"0", "1"}
    assert sum(isinstance(step, Event) for step in program.steps) == 2
    assert sum(isinstance(step, Wait) for step in program.steps) == 2


@dataclass
class Result:
    value: Any
    more: dict[str, Any]


def test_eager_inputs_and_outputs_of_all_shapes() -> None:
    """Names, views of one storage, gaps, nothing at all, numbers; results in an object."""
    storage = rand(64)

    def step(x: torch.Tensor, *, y: torch.Tensor, empty: torch.Tensor, scale: float) -> Result:
        joined = torch.cat([x.t() * scale, empty])
        return Result(joined, {"sum": joined + y, "parts": (y * 2, [y - 1])})

    found = trace(
        step,
        storage[:32].view(4, 8)[:, ::2],
        y=storage[16:32].view(4, 4),
        empty=torch.empty(0, 4, device="cuda"),
        scale=2.0,
        options=EAGER,
    )
    program = check(found)
    roles = roles_of(program)
    assert (roles.count(Role.INPUT), roles.count(Role.OUTPUT)) == (1, 4)


def test_eager_an_input_on_the_host_is_told() -> None:
    factor = torch.tensor(3.0)
    found = trace(lambda x, f: x * f, rand(64), factor, options=EAGER)
    assert [d.code for d in found.diagnostics] == ["TSR6012"]
    check(found)


def test_eager_what_is_copied_from_the_host_is_a_constant() -> None:
    """A number, an index and a tensor that the host holds."""
    rows = torch.tensor([3, 1])

    def step(x: torch.Tensor) -> torch.Tensor:
        kept = torch.where(x > 0.5, torch.tensor(2.0, device="cuda"), x)
        return kept[rows] + torch.arange(8.0).cuda()

    found = trace(step, rand(4, 8), options=EAGER)
    assert [d.code for d in found.diagnostics] == ["TSR6012"]
    assert {b.name for b in check(found).buffers} >= {"constant0", "constant1", "constant2"}


def test_compiled_dropout_has_its_state() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5) + torch.rand_like(x)

    torch.manual_seed(7)
    found = trace(step, ones(4096), options=LIBRARY)
    program = check(found)
    assert next(b for b in program.buffers if b.name == "random_state").role is Role.STATE
    first, second = replayed(found, 2)
    assert (first["out"] != second["out"]).any()


def test_compiled_by_the_user() -> None:
    compiled = torch.compile(lambda x: torch.softmax(x, -1) * 2)
    program = check(trace(compiled, rand(16, 128)))
    assert all(isinstance(step, Launch) for step in program.steps)


def test_kernels_a_table_of_pointers() -> None:
    """Experts behind addresses in memory, by a Triton kernel that the user tunes and launches."""
    sizes = [triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})]
    gather = triton.autotune(configs=sizes, key=["n"])(triton.jit(_gather_experts))
    experts = [rand(256) for _ in range(4)]
    table = torch.tensor([e.data_ptr() for e in experts], dtype=torch.int64, device="cuda")

    def step(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(4, 256, device="cuda")
        gather[lambda meta: (4, 256 // meta["BLOCK"])](table, x, out, 256)
        return out

    found = trace(step, rand(256), options=AS_IS)
    (record,) = found.program.pointer_tables
    assert len(record.words) == 4
    program = check(found)
    assert roles_of(program).count(Role.WEIGHT) == 5


def _gather_experts(table, x, out, n, BLOCK: tl.constexpr):  # type: ignore
    expert = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    weight = tl.load(table + expert).to(tl.pointer_type(tl.float32))
    tl.store(out + expert * n + at, tl.load(weight + at) * tl.load(x + at))


SCALE = """
extern "C" __constant__ float factor = 2.0f;
struct Job { const float *x; float *y; long long n; float by; };
extern "C" __global__ void scale(Job job) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < job.n) job.y[i] = job.x[i] * job.by;
}
extern "C" __global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * factor;
}
"""


class _Stream:
    """PyTorch's current stream, as cuda.core asks for it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, torch.cuda.current_stream().cuda_stream


def test_kernels_of_nvrtc() -> None:
    """A PTX module of cuda.core is found; one of machine code needs its PTX from the user."""
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    device = core.Device()
    device.set_current()
    options = core.ProgramOptions(arch="compute_80", std="c++17")
    ptx = core.Program(SCALE, "c++", options).compile("ptx")
    options = core.ProgramOptions(arch="sm_90", std="c++17")
    cubin = core.Program(SCALE, "c++", options).compile("cubin")

    def stepper(module: Any) -> Any:
        kernel = module.get_kernel("twice")

        def step(x: torch.Tensor) -> torch.Tensor:
            out = torch.empty_like(x)
            config = core.LaunchConfig(grid=2, block=128)
            arguments = (x.data_ptr(), out.data_ptr(), np.int32(256))
            core.launch(device.create_stream(_Stream()), config, kernel, *arguments)
            return out

        return step

    check(trace(stepper(ptx), rand(256), options=AS_IS))
    assert refused(stepper(cubin), rand(256)).code == "TSR6004"
    given = TraceOptions(route="as-is", ptx=(("scale.ptx", ptx.code.decode()),))
    check(trace(stepper(cubin), rand(256), options=given))
    set_factor(ptx.get_kernel("twice"), 3.0)
    found = refused(stepper(ptx), rand(256))
    assert found.code == "TSR6002"
    assert "`factor`" in str(found.headline)


def set_factor(kernel: Any, value: float) -> None:
    """Set the constant of a kernel's module from the host."""
    from cuda.bindings import driver

    _, function = driver.cuKernelGetFunction(kernel.handle)
    _, module = driver.cuFuncGetModule(function)
    status, address, size = driver.cuModuleGetGlobal(module, b"factor")
    assert (int(status), size) == (0, 4)
    content = np.array([value], np.float32)
    (status,) = driver.cuMemcpyHtoD(address, content.ctypes.data, 4)
    assert int(status) == 0


def test_kernels_of_cupy_with_memory_of_cupy() -> None:
    """A struct with pointers, on an array that PyTorch knows nothing of."""
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    core = pytest.importorskip("cuda.core", reason="cuda.core is not installed")
    kernel = cupy.RawKernel(SCALE, "scale")
    mine = cupy.arange(256, dtype=cupy.float32)
    job = np.dtype([("x", "<u8"), ("y", "<u8"), ("n", "<i8"), ("by", "<f4"), ("pad", "<u4")])

    def step(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty(2, 256, device="cuda")
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            for row, source in enumerate((mine.data.ptr, x.data_ptr())):
                one = np.array([(source, out[row].data_ptr(), 256, 3.0, 0)], job)
                kernel((2,), (128,), (one[0],))
        return out

    options = core.ProgramOptions(arch="compute_80", std="c++17")
    text = core.Program(SCALE, "c++", options).compile("ptx").code.decode()
    for given in ((("scale.ptx", text),), ()):
        found = trace(step, rand(256), options=TraceOptions(route="as-is", ptx=given))
        assert roles_of(check(found)).count(Role.WEIGHT) == 1


# --- what is refused ---------------------------------------------------------------------------


def test_refused_waiting_for_the_gpu() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return x * float(x.sum().item())

    found = refused(step, ones(8))
    assert found.code == "TSR6003"
    assert "`step`, test_capture.py" in found.notes[1]


def test_refused_what_breaks_the_graph_of_the_compiler() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1

    found = refused(step, ones(8), options=LIBRARY)
    assert found.code == "TSR6010"
    assert any("test_capture.py" in note for note in found.notes)


def test_refused_random_numbers_outside_compiled_code() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5)

    found = refused(step, ones(64), options=EAGER)
    assert found.code == "TSR6002", found


def test_refused_copies_from_the_host() -> None:
    data = torch.ones(64).pin_memory()
    found = refused(lambda x: x + data.to("cuda", non_blocking=True), ones(64))
    assert found.code == "TSR6002"
    assert "from the host" in str(found.headline)


def test_refused_changing_what_was_copied_from_the_host() -> None:
    found = refused(lambda x: x + torch.zeros(64).cuda().add_(x), ones(64), options=EAGER)
    assert found.code == "TSR6003"
    assert "`constant0`" in str(found.headline)


def test_refused_host_callbacks() -> None:
    from cuda.bindings import driver

    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
    address = ctypes.cast(callback, ctypes.c_void_p).value

    def step(x: torch.Tensor) -> torch.Tensor:
        made = x + 1
        stream = torch.cuda.current_stream().cuda_stream
        (status,) = driver.cuLaunchHostFunc(stream, driver.CUhostFn(address), 0)
        assert int(status) == 0
        return made

    found = refused(step, ones(8))
    assert found.code == "TSR6002"
    assert "a host callback" in str(found.headline)


def test_refused_conditional_nodes() -> None:
    from cuda.bindings import driver

    def called(status: Any, *values: Any) -> tuple[Any, ...]:
        assert int(status) == 0, status
        return values

    def step(x: torch.Tensor) -> torch.Tensor:
        made = x + 1
        stream = torch.cuda.current_stream().cuda_stream
        if not torch.cuda.is_current_stream_capturing():
            return made
        _, _, graph, before, edges, count = called(*driver.cuStreamGetCaptureInfo(stream))
        (context,) = called(*driver.cuCtxGetCurrent())
        (handle,) = called(*driver.cuGraphConditionalHandleCreate(graph, context, 1, 0))
        wanted = driver.CUgraphNodeParams()
        wanted.type = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_CONDITIONAL
        wanted.conditional.handle = handle
        wanted.conditional.type = driver.CUgraphConditionalNodeType.CU_GRAPH_COND_TYPE_IF
        wanted.conditional.size = 1
        wanted.conditional.ctx = context
        (node,) = called(*driver.cuGraphAddNode(graph, before, edges or None, count, wanted))
        replace = driver.CUstreamUpdateCaptureDependencies_flags
        called(
            *driver.cuStreamUpdateCaptureDependencies(
                stream, [node], None, 1, int(replace.CU_STREAM_SET_CAPTURE_DEPENDENCIES)
            )
        )
        return made * 2

    found = refused(step, ones(8))
    assert found.code == "TSR6002", found
    assert "a conditional node" in str(found.headline)


def test_refused_communication() -> None:
    kernel = triton.jit(ncclDevKernel_stand_in)

    def step(x: torch.Tensor) -> torch.Tensor:
        made = torch.empty_like(x)
        kernel[(1,)](x, made)
        return made

    found = refused(step, ones(1))
    assert found.code == "TSR6002", found
    assert "ncclDevKernel_stand_in" in str(found)


def ncclDevKernel_stand_in(x, y):  # type: ignore
    tl.store(y, tl.load(x))


def test_refused_a_call_that_fails_only_while_it_is_captured() -> None:
    calls = []

    def step(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        if len(calls) > 3:
            raise ValueError("called too often")
        return x + 1

    found = refused(step, ones(8))
    assert found.code == "TSR6003"
    assert found.notes[0] == "called too often"


def test_refused_no_memory_and_no_work_and_errors() -> None:
    def hungry(x: torch.Tensor) -> torch.Tensor:
        return x + torch.empty(1 << 48, device="cuda")

    def wrong(x: torch.Tensor) -> torch.Tensor:
        raise KeyError("layers")

    assert refused(hungry, ones(8)).code == "TSR5102"
    assert refused(lambda x: None, ones(8)).code == "TSR6003"
    assert refused(lambda x: x.view(2, 4), ones(8)).code == "TSR6003"
    assert refused(wrong, ones(8)).code == "TSR6008"


def test_refused_operators_and_operands_that_no_trace_holds() -> None:
    assert "_foreach" in str(refused(lambda x: torch._foreach_add([x], 1.0), ones(8)).headline)
    twisted = torch.ones(4, 4, dtype=torch.complex64, device="cuda")
    assert refused(lambda x: x.conj() @ x, twisted).code == "TSR6002"


# --- the command -------------------------------------------------------------------------------

MODEL = """
import torch

def step(size=64):
    layer = torch.nn.Linear(size, size).cuda()
    return layer, {"input": torch.ones(4, size, device="cuda")}
"""


def test_command_from_a_model_to_a_run(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(MODEL)

    def tessc(*arguments: str) -> str:
        command = [sys.executable, "-m", "tessera", *arguments]
        root = Path(__file__).parents[2]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    out, plan = tmp_path / "out.ptx", tmp_path / "out.tsp"
    tessc(
        "trace",
        f"{tmp_path / 'model.py'}:step",
        "-o",
        str(out),
        "--route",
        "eager",
        "--set",
        "size=32",
        "--contents",
        "safetensors",
    )
    names = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert names == ["model.py", "out.ptx", "out.ref.safetensors", "out.safetensors"]
    tessc("plan", str(out), "--gpus", "h200", "-o", str(plan))
    told = tessc("run", str(plan), "--backend", "cuda", "--requests", "1", "--verify")
    assert "PyTorch" in told
    tessc(
        "trace",
        f"{tmp_path / 'model.py'}:step",
        "-o",
        str(tmp_path / "bare.ptx"),
        "--no-data",
        "--route",
        "eager",
    )
    assert not (tmp_path / "bare.npz").exists()


@pytest.mark.parametrize("target", ["cuda:0", "cuda:0:84sm"])
def test_library_calls_run_inside_the_graph_of_a_request(target: str) -> None:
    """With the bytes of PyTorch, on a slice too, request after request."""
    from tessera.backend.cuda.backend import CudaBackend
    from tessera.backend.service import BackendOptions, Request
    from tests.helpers.served import model_of

    module = torch.nn.Sequential(
        torch.nn.Linear(1024, 4096), torch.nn.GELU(), torch.nn.Linear(4096, 512, bias=False)
    ).to("cuda", torch.bfloat16)
    found = trace(module, rand(64, 1024, dtype=torch.bfloat16), options=LIBRARY)
    work = tuple(found.program.work())
    assert sum(isinstance(step, LibraryCall) for step in work) == 2
    assert found.times is not None
    assert 0 < found.times.share < 1
    model = model_of([found.program], [["a"] * len(work)], slots=1)
    model.weights.update(found.contents)
    backend = CudaBackend(model, BackendOptions(targets={"a": target}))
    assert all(ready.graph is not None for ready in backend.replica.ready.values())
    for number in range(3):
        given = Request(number=number, trace=0, slot=0, lane=0, inputs=found.contents)
        backend.begin(given)
        done: tuple[Any, ...] = ()
        while not done:
            done = backend.collect(10.0)
        for name, content in found.reference.items():
            np.testing.assert_array_equal(done[0].outputs[name], content, name)
    backend.close()


def test_by_the_route_auto_products_are_measured() -> None:
    weight = rand(512, 512, dtype=torch.bfloat16)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) @ weight

    found = trace(step, rand(64, 512, dtype=torch.bfloat16))
    check(found)
    (product,) = {(p.name, p.operands) for p in found.products}
    assert product == ("mm", ("bfloat16 64x512", "bfloat16 512x512"))
    assert all(p.library_ns and p.triton_ns for p in found.products)


def test_kernels_are_tuned_for_slices_and_run_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step by itself may take the code for either number of SMs, on any device."""
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    from dataclasses import replace as changed

    from tessera.backend.cuda.backend import CudaBackend
    from tessera.backend.service import BackendOptions, Request
    from tessera.frontend.trace.read_trace import parse_trace
    from tessera.ir.program.print_trace import print_program
    from tests.helpers.served import model_of

    weight = rand(2048, 2048, dtype=torch.bfloat16)

    def step(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x @ weight) @ weight

    x = rand(512, 2048, dtype=torch.bfloat16)
    options = TraceOptions(route="ptx", tune="h200,h200:48sm")
    found = trace(step, x, options=options)
    assert not [d for d in found.diagnostics if d.code == "TSR6006"], found.diagnostics
    program = parse_trace(print_program(found.program), "t.ptx")
    work = tuple(program.work())
    codes = [[v.arch for v in program.modules[launch.module].variants] for launch in work]
    wanted = torch.from_numpy(found.reference["out"].copy()).view(torch.bfloat16).float()
    for turn in range(2):
        arches = tuple(choices[min(turn, len(choices) - 1)] for choices in codes)
        model = model_of([program], [["a"] * len(work)], slots=1)
        model.weights.update(found.contents)
        model = changed(model, traces=(changed(model.traces[0], arches=arches),))
        backend = CudaBackend(model, BackendOptions(targets={"a": "cuda:0:48sm"}))
        backend.begin(Request(number=0, trace=0, slot=0, lane=0, inputs=found.contents))
        done: tuple[Any, ...] = ()
        while not done:
            done = backend.collect(10.0)
        made = torch.from_numpy(np.array(done[0].outputs["out"])).view(torch.bfloat16).float()
        assert float((made.reshape(-1) - wanted).norm() / wanted.norm()) < 0.01
        backend.close()
    # A second time, nothing is measured anew: the same code comes out.
    again = trace(step, x, options=options)
    texts = (print_program(one.program).splitlines() for one in (found, again))
    assert not (lines := list(unified_diff(*texts, n=0))), "\n".join(lines[:60])


NOBODYS: Any = None


def test_a_tensor_that_is_nobodys_parameter_is_tuned_for_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name does not depend on what else lives, such as the tensors of an earlier capture."""
    monkeypatch.setattr(sys.modules[__name__], "NOBODYS", rand(256, 256, dtype=torch.bfloat16))

    def step(x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = x @ NOBODYS
        return made

    x = rand(64, 256, dtype=torch.bfloat16)
    options = TraceOptions(route="ptx", tune="h200,h200:48sm")
    found = [trace(step, x, options=options) for _ in range(2)]
    check(found[0])
    assert not [d for one in found for d in one.diagnostics if d.code == "TSR6006"]
    names = [[b.name for b in one.program.buffers] for one in found]
    assert names[0] == names[1]
