"""A capture from end to end on a stand-in GPU: PyTorch on the host, one node per operator.

That operators are captured as a real GPU has them is tested in `tests/gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.driver.trace import capture_trace as tracing
from tessera.driver.trace.capture_trace import GraphNodes, Trace, TraceOptions, write_trace
from tessera.frontend.capture.dry_run import without_gpu
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.memory import CapturedMemory
from tessera.frontend.capture.model_file import load_model
from tessera.frontend.capture.tensors import tensors_in
from tessera.ir.program.program import LibraryCall, Role
from tests.helpers.command import tessc

pytestmark = pytest.mark.filterwarnings("ignore")
EAGER = TraceOptions(route="eager")
MODELS = Path(__file__).parents[3] / "examples" / "models"

if TYPE_CHECKING:
    from tests.helpers.stand_in_gpu import Driver


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Driver:
    from tests.helpers.stand_in_gpu import install

    return install(monkeypatch)


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(8.0))

    def forward(self, x: Any, *, shift: Any) -> dict[str, Any]:
        scaled = torch.mul(x, self.weight)
        return {"out": torch.add(scaled, shift), "more": [torch.relu(scaled)]}


@pytest.mark.usefixtures("gpu")
def test_from_a_module_to_bytes(tmp_path: Path) -> None:
    x, shift = torch.linspace(-1, 1, 8), torch.full((8,), 0.5)
    found = tracing.trace(Scale(), x, shift=shift, options=EAGER)
    program = found.program
    assert [step.operator for step in program.steps if isinstance(step, LibraryCall)] == [
        "aten::mul.Tensor",
        "aten::add.Tensor",
        "aten::relu",
    ]
    assert {step.stream for step in program.work()} == {"0"}
    roles = {buffer.name: buffer.role for buffer in program.declared_buffers()}
    assert sorted(roles.values(), key=lambda role: role.value) == [
        Role.INPUT,
        Role.INPUT,
        Role.OUTPUT,
        Role.OUTPUT,
        Role.TEMP,
        Role.WEIGHT,
    ]
    assert (roles["shift"], roles["weight"]) == (Role.INPUT, Role.WEIGHT)
    assert found.nodes == GraphNodes(
        kernels=3, memsets=0, copies=0, others=0, in_calls=3, skipped=0
    )
    assert found.diagnostics == ()
    write_trace(found, tmp_path / "t.ptx", suffix=".safetensors")
    report = run_trace(tmp_path / "t.ptx", RunOptions())
    kept = {buffer.name: data.reshape(-1).view(np.uint8) for buffer, data in report.kept()}
    assert kept.keys() == found.reference.keys() == {"out", "out1"}
    for name, content in found.reference.items():
        np.testing.assert_array_equal(kept[name], content)


def test_a_refusal_while_a_call_is_captured_does_not_come_from_itself(gpu: Driver) -> None:
    """Who follows where it came from would never end; so did a capture with several processes."""
    with pytest.raises(TesseraError) as caught:
        tracing.trace(lambda x: torch._foreach_add([x], 1.0), torch.ones(8), options=EAGER)
    assert "_foreach" in str(caught.value.diagnostics[0].headline)
    assert caught.value.__cause__ is not caught.value


@pytest.mark.parametrize("data", [True, False])
def test_state_is_what_a_replay_changes_with_and_without_data(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch, data: bool
) -> None:
    x, read = torch.ones(9), CapturedMemory.read
    reads: list[str] = []
    monkeypatch.setattr(CapturedMemory, "read", lambda me, b: reads.append(b.name) or read(me, b))
    monkeypatch.setattr(torch.cuda.CUDAGraph(True), "replay", lambda: x.add_(1))
    found = tracing.trace(torch.relu, x, options=replace(EAGER, data=data))
    roles = {buffer.name: buffer.role for buffer in found.program.declared_buffers()}
    assert Role.STATE in roles.values()
    assert bool(reads) == bool(found.contents) == bool(found.reference) == data


def test_numbers_that_are_drawn_otherwise_are_refused(
    gpu: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.default_generators[0], "step", 4)
    with pytest.raises(TesseraError) as caught:
        tracing.trace(torch.relu, torch.ones(4), options=EAGER)
    assert caught.value.diagnostics[0].code == "TSR6002"
    assert "random numbers" in str(caught.value.diagnostics[0].headline)


def test_a_failed_capture_leaves_the_generator_as_it_was(gpu: Driver) -> None:
    calls: list[int] = []

    def step(x: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            raise ValueError("called too often")
        return torch.relu(x)

    with pytest.raises(TesseraError) as caught:
        tracing.trace(step, torch.ones(4), options=EAGER)
    (found,) = caught.value.diagnostics
    assert found.code == "TSR6003"
    assert found.notes[0] == "called too often"
    assert "`step`, test_capture_whole.py" in found.notes[1]
    assert torch.cuda.default_generators[0].state == "as before"


@pytest.mark.parametrize("last", [0, 3])
def test_a_model_that_leaves_does_not_end_the_capture_without_a_word(
    gpu: Driver, last: int
) -> None:
    calls: list[int] = []

    def step(x: Any) -> Any:
        calls.append(1)
        if len(calls) > last:
            raise SystemExit(3)
        return torch.relu(x)

    with pytest.raises(TesseraError) as caught:
        tracing.trace(step, torch.ones(4), options=EAGER)
    assert caught.value.diagnostics[0].code == ("TSR6003" if last else "TSR6008")


def test_inputs_may_have_any_names(gpu: Driver) -> None:
    """Also those of the arguments of `trace`."""
    named = {"function": torch.ones(4), "options": torch.ones(4)}
    inputs = Inputs(named=named)
    found = tracing.trace_call(lambda function, options: function + options, inputs, EAGER)
    assert roles(found) == {"function": "input", "options": "input", "out": "output"}


@pytest.mark.usefixtures("gpu")
def test_a_tensor_that_the_host_makes_during_the_call_is_refused() -> None:
    def step(x: Any) -> Any:
        return torch.where(x > 0, x, torch.tensor(0.5))

    with pytest.raises(TesseraError, match="TSR6003") as caught:
        tracing.trace(step, torch.ones(4), options=EAGER)
    assert "not permitted" in caught.value.diagnostics[0].notes[0]


@pytest.mark.usefixtures("gpu")
def test_nothing_to_capture() -> None:
    with pytest.raises(TesseraError) as caught:
        tracing.trace(lambda: None, options=EAGER)
    assert caught.value.diagnostics[0].code == "TSR6003"


# --- what may be in a model ---------------------------------------------------------------------


def captured(
    gpu: Driver, folder: Path, function: Any, *inputs: Any, kept: tuple[Any, ...] = ()
) -> Trace:
    """A capture whose trace, run on the CPU backend, gives what PyTorch computed."""
    modules = [one for one in (function, *inputs) if isinstance(one, torch.nn.Module)]
    gpu.kept = [
        *kept,
        *tensors_in(inputs),
        *(t for one in modules for t in one.state_dict().values()),
    ]
    gpu.kept += [t for one in modules for t in one.buffers()]
    found = tracing.trace(function, *inputs, options=EAGER)
    write_trace(found, folder / "t.ptx")
    report = run_trace(folder / "t.ptx", RunOptions())
    results = {buffer.name: (buffer, data) for buffer, data in report.kept()}
    assert found.reference.keys() <= results.keys()
    for name, content in found.reference.items():
        buffer, data = results[name]
        own = data.reshape(-1).view(np.uint8)
        if buffer.dtype is not None and buffer.dtype.value == "f32":
            pair = (one.view(np.float32) for one in (own, content))
            np.testing.assert_allclose(*pair, rtol=1e-4, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(own, content, name)
    return found


def roles(found: Trace) -> dict[str, str]:
    return {b.name: b.role.value for b in found.program.declared_buffers()}


@dataclass
class Result:
    first: Any
    more: Any = None


class Running(torch.nn.Module):
    """A count and a mean that live on, neither of them in the state that is saved."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0), persistent=False)
        self.register_buffer("mean", torch.zeros(8), persistent=False)

    def forward(self, x: Any) -> Any:
        self.count += 1
        self.mean.mul_(0.5).add_(x.mean(0))
        return self.mean / self.count


def some(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def rows() -> Any:
    return torch.tensor([1, 3])


CALLS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], dict[str, str]]] = {
    "views with offsets": (
        lambda a: a[1:, ::2] + a[:-1, 1::2],
        lambda: (some(4, 8),),
        {"a": "input", "out": "output"},
    ),
    "an input that is a view": (
        lambda a: a * 2,
        lambda: (some(4, 8)[:, 2:6],),
        {"a": "input", "out": "output"},
    ),
    "one tensor twice": (
        lambda a, b: a @ b,
        lambda: (some(8, 8),) * 2,
        {"a": "input", "out": "output"},
    ),
    "a tensor that repeats itself": (
        lambda a: a + 1,
        lambda: (some(1, 8).expand(4, 8),),
        {"a": "input", "out": "output"},
    ),
    "in place on a view": (
        lambda a: a[1:3].fill_(3),
        lambda: (some(4, 4),),
        {"a": "state"},
    ),
    "into a view": (
        lambda a, b: torch.mul(a[:, 0], 2, out=b[:, 1]),
        lambda: (some(4, 8), some(4, 8)),
        {"a": "input", "b": "state"},
    ),
    "an output that is an input": (
        lambda a: (a, a + 1),
        lambda: (some(4),),
        {"a": "input", "out1": "output"},
    ),
    "outputs in containers": (
        lambda a: Result({"q": [a + 1, (a + 2, None)]}, (a.sum(), 3)),
        lambda: (some(4, 8),),
        {"a": "input", "out": "output", "out1": "output", "out2": "output"},
    ),
    "single numbers": (
        lambda a, b: a.mean() * b,
        lambda: (some(4), torch.tensor(2.0)),
        {"a": "input", "b": "input", "out": "output", "t0": "temp"},
    ),
    "nothing at all": (
        lambda a, b: (torch.cat([a, a[:0]]), b),
        lambda: (some(4), torch.empty(0, 3)),
        {"a": "input", "out": "output"},
    ),
    "a mask of infinities": (
        lambda a: a.masked_fill(a > 0, float("-inf")),
        lambda: (some(4, 4),),
        {"a": "input", "out": "output", "t0": "temp"},
    ),
    "indices with a gap": (
        lambda a, i: a[:, i],
        lambda: (some(4, 8), rows()),
        {"a": "input", "i": "input", "out": "output"},
    ),
    "adding up at indices": (
        lambda a, i, b: a.index_put_((i,), b, accumulate=True),
        lambda: (some(4, 8), rows(), some(2, 8)),
        {"a": "state", "i": "input", "b": "input"},
    ),
    "channels last": (
        lambda a: a.clone(memory_format=torch.channels_last),
        lambda: (some(1, 3, 4, 4),),
        {"a": "input", "out": "output"},
    ),
    "two that change places": (
        lambda a, b: (b.clone(), a.copy_(b)),
        lambda: (some(3), some(3)),
        {"a": "state", "b": "input", "out": "output"},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_captured_and_gives_the_same(gpu: Driver, name: str, tmp_path: Path) -> None:
    function, inputs, wanted = CALLS[name]
    assert roles(captured(gpu, tmp_path, function, *inputs())) == wanted


def test_what_a_module_keeps_is_state(gpu: Driver, tmp_path: Path) -> None:
    found = captured(gpu, tmp_path, Running(), some(4, 8))
    wanted = {"x": "input", "count": "state", "mean": "state", "out": "output"}
    assert {name: role for name, role in roles(found).items() if role != "temp"} == wanted
    count = {b.name: b for b in found.program.declared_buffers()}["count"]
    assert (count.bytes, count.shape) == (4, None)


def test_a_module_that_takes_shape_when_it_is_called(gpu: Driver, tmp_path: Path) -> None:
    assert roles(captured(gpu, tmp_path, torch.nn.LazyLinear(3), some(4, 8))) == {
        "input": "input",
        "weight": "weight",
        "bias": "weight",
        "out": "output",
    }


def test_a_lazy_module_that_nobody_calls_is_no_part(gpu: Driver, tmp_path: Path) -> None:
    waiting = [torch.nn.LazyLinear(3), torch.nn.LazyBatchNorm1d()]
    found = captured(gpu, tmp_path, lambda a: a + 1, some(4, 8))
    assert {"in0", "a"} & set(roles(found))
    assert "weight" not in roles(found).values()
    assert len(waiting) == 2


def test_an_operator_of_the_users_own_is_looked_into(gpu: Driver, tmp_path: Path) -> None:
    """Also what it makes and drops on the way: no address serves two tensors."""
    addresses: list[int] = []

    @torch.library.custom_op("tessera_tests::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        scratch = torch.empty(1000)
        addresses.append(scratch.data_ptr())
        scratch[: x.numel()].copy_(x.flatten())
        return (scratch[: x.numel()] * 2).reshape(x.shape).clone()

    found = captured(gpu, tmp_path, lambda a: twice(twice(a)) + 1, some(4, 8))
    names = [s.operator for s in found.program.steps if isinstance(s, LibraryCall)]
    once = ["aten::copy_", "aten::mul.Tensor", "aten::clone"]
    assert names == [*once, *once, "aten::add.Tensor"]
    assert len(set(addresses[-2:])) == 2
    sizes = [b.bytes for b in found.program.declared_buffers() if b.role is Role.TEMP]
    assert sizes.count(4000) == 2


def test_a_tensor_of_a_subclass_that_lives_on_and_is_returned_is_state(
    gpu: Driver, tmp_path: Path
) -> None:
    class Own(torch.Tensor):
        pass

    total = torch.Tensor._make_subclass(Own, some(4))
    found = captured(gpu, tmp_path, lambda a: total.add_(a), some(4), kept=(total,))
    assert roles(found) == {"a": "input", "total": "state"}


@pytest.mark.usefixtures("gpu")
def test_operators_that_take_functions_are_refused_in_words() -> None:
    def step(a: Any) -> Any:
        return torch.cond(a.sum() > 0, lambda x: x + 1, lambda x: x - 1, (a,))

    with pytest.raises(TesseraError, match=r"TSR6002.*decides by data on the GPU \(`cond`\)"):
        tracing.trace(step, some(4), options=EAGER)


@pytest.mark.parametrize("name", ["llama", "qwen", "mamba", "vit"])
def test_models_of_the_transformers_library_by_the_route_without_a_compiler(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    """As library calls, which give on the CPU what PyTorch does.

    Language models are given their mask: one of their own has a number in it that the host copies
    to the GPU during the call.
    """
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tests.helpers.stand_in_gpu import install

    with without_gpu():
        model, inputs = load_model((MODELS / "huggingface.py", name), {"layers": 1})
    given = [one.float() if one.is_floating_point() else one for one in inputs.plain]
    if name in ("llama", "qwen"):
        length = given[0].shape[1]
        given.append(torch.full((1, 1, length, length), -1e9).triu(1))
    found = captured(install(monkeypatch), tmp_path, model.float(), *given)
    assert all(isinstance(step, LibraryCall) for step in found.program.work())
    assert {"input", "weight", "output"} <= set(roles(found).values())


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_operators_are_the_same_in_inference_mode(gpu: Driver, tmp_path: Path, guard: Any) -> None:
    """There, PyTorch does not take `matmul` and its like apart before they are seen."""

    def step(a: Any, b: Any) -> Any:
        with guard():
            return torch.matmul(a, b).to(torch.float64).flatten().float()

    found = captured(gpu, tmp_path, step, some(2, 3, 4), some(2, 4, 5))
    names = [s.operator for s in found.program.steps if isinstance(s, LibraryCall)]
    assert names == ["aten::bmm", "aten::_to_copy", "aten::_to_copy"]


def test_a_triton_kernel_that_pytorch_wraps_is_launched(gpu: Driver, tmp_path: Path) -> None:
    """By an operator that takes the kernel; here it does its work by another."""

    class Wrapper(torch._ops.HigherOrderOperator):  # type: ignore[misc]
        def __call__(self, *, kwargs: dict[str, Any]) -> Any:
            return super().__call__(kwargs=kwargs)

    wrapped = Wrapper("triton_kernel_wrapper_tests")
    done: list[Any] = []
    keys = torch._C.DispatchKey
    wrapped.py_impl(keys.CompositeExplicitAutograd)(lambda *, kwargs: done.append(kwargs["x"]))
    for key in (keys.AutogradCPU, keys.ADInplaceOrView, keys.BackendSelect):
        wrapped.fallthrough(key)

    def step(x: Any) -> Any:
        wrapped(kwargs={"x": x})
        return torch.relu(x)

    found = captured(gpu, tmp_path, step, some(4))
    assert len(done) == 4
    assert roles(found) == {"x": "input", "out": "output"}


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("more", [(), ("--no-data",), ("--contents", "safetensors")])
def test_the_command_writes_all_files_or_none(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Of a model whose inputs have names that the library has for other things."""
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def step(size=4):\n"
        "    x = torch.ones(size)\n"
        "    return (lambda options, function: torch.add(options, function)),"
        " {'options': x, 'function': x + 1}\n"
    )
    given = ("trace", f"{model}:step", "--route", "eager", "--set", "size=6", *more)
    done = tessc(*given, "-o", str(tmp_path / "out.ptx"))
    assert done.code == 0, done.err
    suffix = ".safetensors" if more[:1] == ("--contents",) else ".npz"
    files = {f"out{suffix}", f"out.ref{suffix}"} if more != ("--no-data",) else set()
    left = {place.name for place in tmp_path.iterdir() if place.is_file()}
    assert left == {"model.py", "out.ptx", *files}
    assert "captured 0 launches and 1 other steps" in done.text
    assert "role=input dtype=f32 shape=6" in (tmp_path / "out.ptx").read_text()
    (tmp_path / f"other.ref{suffix}").mkdir()
    done = tessc(*given, "-o", str(tmp_path / "other.ptx"))
    assert done.code == (0 if more == ("--no-data",) else 1)
    assert (tmp_path / "other.ptx").exists() == (more == ("--no-data",))
    assert not (tmp_path / f"other{suffix}").exists()


def test_two_steps_of_a_model_share_what_they_hold_by_name(gpu: Driver, tmp_path: Path) -> None:
    """As prompts and single tokens with one cache, given as an input or held by the step."""

    class Cache:
        def __init__(self) -> None:
            self.layers = [{"keys": torch.zeros(4, 2), "values": torch.zeros(4, 2)}]

    cache = Cache()
    held = tuple(cache.layers[0].values())

    def step(x: Any, past: Any = None) -> Any:
        layer = cache.layers[0]
        layer["keys"][: len(x)].copy_(x)
        layer["values"][: len(x)].copy_(x * 2)
        return layer["keys"].sum()

    states = {"cache.layers.0.keys", "cache.layers.0.values"}
    for rows in (3, 1):
        found = captured(gpu, tmp_path, step, some(rows, 2), kept=held)
        kept = {name for name, role in roles(found).items() if role == "state"}
        assert kept == states
        assert roles(found)["x"] == "input"

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cache = cache

        def forward(self, x: Any) -> Any:
            return self.cache.layers[0]["keys"].add_(x)

    found = captured(gpu, tmp_path, Step(), some(4, 2), kept=held)
    assert roles(found) == {"x": "input", "cache.layers.0.keys": "state"}
