"""Operators of a call on fake tensors: what is recorded, in which roles, and what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.trace.meta_trace import OTHER, trace_fake
from tessera.frontend.capture import stand_in
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program import program as ir
from tests.helpers.command import tessc

pytestmark = pytest.mark.filterwarnings("ignore")
ROOT = Path(__file__).parents[3]


def traced(function: Callable[..., object], *shapes: tuple[int, ...], fused: bool = False) -> Any:
    def make() -> tuple[Callable[..., object], Inputs]:
        return function, Inputs(plain=tuple(torch.ones(shape).cuda() for shape in shapes))

    return trace_fake(make, fused=fused)


def operators(found: Any) -> list[str]:
    return [step.operator for step in found.trace.program.steps]


def test_views_and_allocations_are_no_steps() -> None:
    def step(x: Any) -> Any:
        made = torch.empty(4, 3, device="cuda")
        made.copy_(x.t())
        made.unsqueeze_(1).transpose_(0, 2).as_strided_((4, 3), (3, 1))
        return made[1:, None].expand(3, 2, 3) + 1

    assert operators(traced(step, (3, 4))) == ["aten::copy_", "aten::add.Tensor"]


NOBODYS: list[Any] = []


def test_tensors_of_nobodys_are_numbered_as_the_call_uses_them() -> None:
    """Whatever else lives, in whichever order they were made."""

    def step(x: Any) -> Any:
        return (x @ NOBODYS[-2]).sum(0, keepdim=True) + NOBODYS[-3]

    def make() -> tuple[Callable[..., object], Inputs]:
        NOBODYS.extend(torch.ones(n, 8).cuda() for n in (5, 3, 8, 6))
        return step, Inputs(plain=(torch.ones(2, 8).cuda(),))

    try:
        for _ in range(2):
            buffers = trace_fake(make, fused=False).trace.program.declared_buffers()
            weights = [(b.name, b.shape) for b in buffers if b.role == ir.Role.WEIGHT]
            assert weights == [("c0", (8, 8)), ("c1", (3, 8))]
    finally:
        NOBODYS.clear()


def test_what_lives_on_and_is_written_is_state() -> None:
    class Counting(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4096, 4096)
            self.register_buffer("total", torch.zeros(4096))
            self.kept = [torch.zeros(8, 4096).cuda()]

        def forward(self, x: Any) -> Any:
            made = self.linear(x)
            self.total.add_(made.sum(0))
            self.kept[0].copy_(made)
            return made * 2

    found = trace_fake(
        lambda: (Counting().cuda(), Inputs(named={"x": torch.ones(8, 4096).cuda()})), fused=False
    )
    roles = {b.name: b.role.value for b in found.trace.program.declared_buffers()}
    assert roles["linear.weight"] == roles["linear.bias"] == "weight"
    assert (roles["x"], roles["total"], roles["out"]) == ("input", "state", "output")
    assert Counter(roles.values())["state"] == 2
    weight = next(b for b in found.trace.program.buffers if b.name == "linear.weight")
    assert (weight.bytes, weight.shape) == (4 * 4096**2, (4096, 4096))


def test_weights_that_are_drawn_until_they_fit() -> None:
    """`trunc_normal_` looks at its numbers, which weights without memory have not."""

    def make() -> tuple[Callable[..., object], Inputs]:
        layer = torch.nn.Linear(64, 64)
        torch.nn.init.trunc_normal_(layer.weight, std=0.02)
        with torch.device("cuda"):
            torch.nn.init.trunc_normal_(torch.empty(8, 8), std=0.02)
        return layer.cuda(), Inputs(plain=(torch.ones(2, 64).cuda(),))

    assert operators(trace_fake(make, fused=False)) == ["aten::addmm"]
    assert float(torch.nn.init.trunc_normal_(torch.zeros(9), std=0.1).abs().max()) > 0


def test_numbers_that_the_host_holds_are_numbers() -> None:
    """A tensor of the host without dimensions, and what is put into a part of a tensor."""

    def make() -> tuple[Callable[..., object], Inputs]:
        factor = torch.tensor(2.5)

        def step(x: Any) -> Any:
            x[0] = 1
            return x * factor

        return step, Inputs(plain=(torch.ones(4, 4).cuda(),))

    found = trace_fake(make, fused=False)
    assert operators(found) == ["aten::fill_.Tensor", "aten::mul.Tensor"]
    last = found.trace.program.steps[-1]
    assert dict(last.attributes)["other"] == 2.5


def test_attention_is_one_operator() -> None:
    attend = torch.nn.functional.scaled_dot_product_attention
    found = traced(lambda q, k, v: attend(q, k, v, is_causal=True), *3 * [(2, 4, 8, 16)])
    (step,) = found.trace.program.steps
    assert step.operator == "aten::scaled_dot_product_attention"
    assert dict(step.attributes) == {"is_causal": True}


def test_attention_under_vmap_is_what_pytorch_makes_of_it() -> None:
    """Its operands have a dimension more than they show."""
    attend = torch.vmap(torch.nn.functional.scaled_dot_product_attention)
    found = traced(attend, *3 * [(5, 2, 4, 8, 16)])
    (softmax,) = [step for step in found.trace.program.steps if "softmax" in step.operator]
    assert softmax.writes[0].shape == (5, 2, 4, 8, 8)


def test_small_tensors_of_the_host_are_real() -> None:
    sizes = torch.tensor([3, 5])
    found = traced(lambda x: [x * 2 for _ in range(int(sizes.sum()))], (4,))
    assert operators(found) == ["aten::mul.Tensor"] * 8


def test_an_operator_that_no_trace_holds_is_kept_with_its_operands() -> None:
    found = traced(lambda x: torch.fft.rfft(x).real + 1, (4, 16))
    assert operators(found)[0] == OTHER
    (step, *_) = found.trace.program.steps
    assert dict(step.attributes)["name"] == "aten::_fft_r2c"
    assert [d.code for d in found.trace.diagnostics] == ["TSR6013"]


@pytest.mark.parametrize(
    ("function", "code", "words"),
    [
        (lambda x: x * x.sum().item(), "TSR6003", "reads a value of a tensor on the GPU"),
        (lambda x: x.nonzero(), "TSR6003", "size depends on data"),
        (lambda x: x.cpu() + 1, "TSR6003", "copies from the GPU to the host"),
        (lambda x: torch.nn.functional.dropout(x), "TSR6002", "draws random numbers"),
        (lambda x: x.view(-1), "TSR6003", "launches nothing"),
        (lambda x: x + torch.ones(7).cuda(), "TSR6008", "raised"),
    ],
)
def test_what_needs_data_is_refused(function: Callable[..., object], code: str, words: str) -> None:
    with pytest.raises(TesseraError) as refused:
        traced(function, (3, 4))
    assert refused.value.diagnostics[0].code == code
    assert words in str(refused.value.diagnostics[0].headline)


def test_what_comes_from_the_host_is_a_constant() -> None:
    found = traced(lambda x: x + torch.tensor([1.0, 2.0]).to("cuda"), (3, 2))
    assert operators(found) == ["aten::add.Tensor"]
    assert [d.code for d in found.trace.diagnostics] == ["TSR6012"]


def test_a_model_file_from_the_command_line(tmp_path: Path) -> None:
    """The roles are those of the same model captured on a GPU."""
    out = tmp_path / "decode.ptx"
    model = ROOT / "examples" / "models" / "llama.py"
    done = tessc("trace", f"{model}:decode", "-o", str(out), "--device", "meta")
    assert done.code == 0, done.err
    assert "it has no kernels" in done.text
    program = parse_trace(out.read_text())
    captured = parse_trace((ROOT / "examples" / "traces" / "llama_decode.ptx").read_text())

    def roles(of: ir.Program) -> dict[str, str]:
        return {b.name: b.role.value for b in of.declared_buffers() if b.shape and "." in b.name}

    assert roles(program) == roles(captured)
    assert any(step.operator == "tessera::fused_rows" for step in program.steps)  # type: ignore[union-attr]


def test_a_pytorch_without_the_names_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stand_in, "_REGISTRY", "no_such_name")
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(TesseraError, match="TSR6014") as refused:
        stand_in._give_guard()
    assert stand_in.TESTED in str(refused.value.diagnostics[0].hint)


def test_a_kernel_of_triton_may_touch_all_that_it_is_given() -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")

    @triton.jit  # type: ignore[untyped-decorator]
    def doubled(x: Any, y: Any, count: Any) -> None:
        pass

    def step(x: Any) -> Any:
        made = torch.empty_like(x)
        doubled[(1,)](x[1:], made, 8)
        return made + 1

    found = traced(step, (4, 8))
    first, second = found.trace.program.steps
    assert dict(first.attributes)["name"] == "triton::doubled"
    assert [operand.shape for operand in first.writes] == [(32,), (32,)]
    assert second.operator == "aten::add.Tensor"
    assert [b.role.value for b in found.trace.program.buffers if b.name == "x"] == ["state"]
    assert [d.code for d in found.trace.diagnostics] == ["TSR6013"]


def test_a_kernel_of_triton_may_touch_bytes_behind_the_last_whole_element() -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")

    @triton.jit  # type: ignore[untyped-decorator]
    def doubled(x: Any) -> None:
        pass

    def step(x: Any) -> Any:
        doubled[(1,)](x[:2].view(torch.int64))
        return x + 1

    first = traced(step, (3,)).trace.program.steps[0]
    assert [(operand.dtype.value, operand.shape) for operand in first.writes] == [("u8", (12,))]


def test_an_operator_of_somebodys_own_is_its_operands() -> None:
    def made(x: Any, kept: Any) -> Any:
        raise AssertionError("nothing runs")

    marks = {"x": torch.Tensor, "kept": torch.Tensor, "return": torch.Tensor}
    made.__annotations__ = marks
    own = torch.library.custom_op("tessera_test::made", made, mutates_args=("kept",))
    own.register_fake(lambda x, kept: torch.empty_like(x))
    found = traced(lambda x, kept: own(x, kept) + 1, (4, 8), (3,))
    first = found.trace.program.steps[0]
    assert dict(first.attributes)["name"] == "tessera_test::made"
    assert [operand.shape for operand in first.writes] == [(3,), (4, 8)]


def test_more_results_than_a_trace_holds_are_refused() -> None:
    triton = pytest.importorskip("triton", reason="triton is not installed")

    @triton.jit  # type: ignore[untyped-decorator]
    def many(*given: Any) -> None:
        pass

    with pytest.raises(TesseraError) as refused:
        traced(lambda x: many[(1,)](*(torch.empty(4, device="cuda") for _ in range(17))), (4,))
    assert refused.value.diagnostics[0].code == "TSR6002"
    assert "17 tensors" in refused.value.diagnostics[0].notes[0]


def test_memory_that_no_trace_can_name_is_refused() -> None:
    with pytest.raises(TesseraError, match=r"TSR6002.*`out` has 2000000000000000 bytes"):
        traced(lambda x: x.expand(5 * 10**14) + 1, (1,))


def test_an_operator_of_no_operands_and_the_cells_of_a_network() -> None:
    def step(x: Any, h: Any) -> Any:
        return recurrent(x, h)[0] @ torch.eye(8, device="cuda")

    def make() -> Any:
        nonlocal recurrent
        recurrent = torch.nn.GRU(8, 8).cuda()
        return step, Inputs(plain=(torch.zeros(3, 2, 8).cuda(), torch.zeros(1, 2, 8).cuda()))

    recurrent: Any = None
    made = trace_fake(make)
    names = [call.operator for call in made.trace.program.work()]
    assert names.count("tessera::other") == 1
    assert "tessera::fused" in names  # the gates of a cell


def branch(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y * 2, (x,))


def attend(x: Any) -> Any:
    query, key = x.new_ones(1, 32, 4, 8), x.new_ones(1, 7, 4, 8)
    attention = torch.nn.functional.scaled_dot_product_attention
    return attention(query, key, key, enable_gqa=True)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda x: torch.sparse.mm(x.to_sparse(), x), "makes a sparse tensor (`aten::_to_sparse`)"),
        (lambda x: torch.multinomial(x.softmax(-1), 2), "draws random numbers"),
        (branch, "decides by data on the GPU (`cond`)"),
        (attend, "query, key and value of attention do not fit"),
    ],
)
def test_what_a_trace_cannot_hold_is_named_with_its_line(step: Any, words: str) -> None:
    with pytest.raises(TesseraError) as refused:
        traced(step, (4, 4))
    said = refused.value.diagnostics[0]
    assert words in str(said.headline)
    assert any("test_capture_meta.py:" in note for note in said.notes)
    assert "float8" not in str(said.hint)
