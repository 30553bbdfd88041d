"""Groups of calls that become one kernel: random programs compute the same, and `dims` is true."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from tessera.driver.trace.patterns.flow import ValueFlow
from tessera.driver.trace.patterns.fuse import fuse
from tessera.driver.trace.patterns.kernels import Kernels
from tessera.ir.operators.cut_rules import dims_of
from tessera.ir.operators.table import bind
from tessera.ir.program import program as ir
from tests.unit.driver.trace.test_patterns import operators, program_of

Memory = dict[int, np.ndarray]


def view(memory: Memory, operand: ir.Operand) -> np.ndarray:
    flat = memory[operand.pointer.buffer][operand.pointer.offset // 4 :]
    steps = [4 * step for step in operand.element_strides()]
    return np.lib.stride_tricks.as_strided(flat, operand.shape, steps)


def execute(call: ir.LibraryCall, memory: Memory) -> None:
    read = [view(memory, operand).copy() for operand in call.reads]
    given = dict(call.attributes)
    match call.operator.removeprefix("aten::"):
        case "add.Tensor" | "add_.Tensor":
            made = read[0] + (read[1] if len(read) > 1 else given["other"])
        case "mul.Tensor":
            made = read[0] * read[1]
        case "clone":
            made = read[0]
        case "copy_":
            made = read[1]
        case "mean.dim":
            made = read[0].mean(-1, keepdims=True)
        case "cat":
            made = np.concatenate(read, given["dim"])
        case "bmm":
            made = read[0] @ read[1]
    view(memory, call.writes[0])[...] = made


def text(name: str, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> str:
    place = f"+{4 * offset}" if offset else ""
    return f"{name}{place}:f32[{','.join(map(str, shape))}]{{{','.join(map(str, strides))}}}"


def strides_of(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(shape[n + 1 :]) for n in range(len(shape)))


def random_records(draw: random.Random) -> str:
    """Calls on tensors of 2 x 6 x 8 elements, seen in several ways."""
    names, full = ["x", "y", "kc"], "f32[2,6,8]{48,8,1}"
    lines = [f"aten::clone reads=[{name}:{full}] writes=[{name}0:{full}]" for name in names]

    def seen(name: str, way: int) -> str:
        ways = [
            ((2, 6, 8), (48, 8, 1), 0),
            ((2, 8, 6), (48, 1, 8), 0),
            ((12, 8, 1), (8, 1, 1), 0),
            ((2, 3, 2, 8), (48, 16, 8, 1), 0),
            ((2, 6, 4), (48, 8, 1), 4),
        ]
        return text(name, *ways[way])

    for number in range(draw.randint(3, 9)):
        made = f"t{number}"
        one, other = draw.choice(names), draw.choice(names)
        way = draw.randrange(4)
        shape = ((2, 6, 8), (2, 8, 6), (12, 8, 1), (2, 3, 2, 8))[way]
        out = text(made, shape, strides_of(shape))
        match draw.randrange(7):
            case 0 | 1:
                kind = draw.choice(("add", "mul"))
                line = f"{kind}.Tensor reads=[{seen(one, way)}, {seen(other, way)}] writes=[{out}]"
            case 2:
                line = f"clone reads=[{seen(one, way)}] writes=[{out}]"
            case 3:  # a mean, and its use
                low = (*shape[:-1], 1)
                mean = text(f"m{number}", low, strides_of(low))
                attrs = 'attrs={"dim":[-1],"keepdim":true}'
                lines.append(f"aten::mean.dim reads=[{seen(one, way)}] writes=[{mean}] {attrs}")
                line = f"mul.Tensor reads=[{seen(other, way)}, {mean}] writes=[{out}]"
            case 4:
                parts = f"{seen(one, 4)}, {text(other, (2, 6, 4), (48, 8, 1))}"
                out = text(made, (2, 6, 8), (48, 8, 1))
                line = f'cat reads=[{parts}] writes=[{out}] attrs={{"dim":-1}}'
            case 5:  # in place
                state = seen("kc", 0)
                line = f"copy_ reads=[{state}, {seen(one, 0)}] writes=[{state}]"
                made = "kc"
            case _:  # a product of computed values: [2, 6, 8] by [2, 8, 6], in the shape of all
                half = text(made, (2, 6, 6), (48, 8, 1))
                lines.append(f"aten::clone reads=[{seen(one, 0)}] writes=[{made}:{full}]")
                line = f"bmm reads=[{seen(one, 0)}, {seen(other, 1)}] writes=[{half}]"
        lines.append(f"aten::{line}")
        names.append(made)
    return "\n".join(lines)


def fresh(program: ir.Program, draw: np.random.Generator) -> Memory:
    return {int(b.id): draw.normal(size=b.bytes // 4).astype(np.float32) for b in program.buffers}


def run(groups: list[list[ir.LibraryCall]], memory: Memory) -> Memory:
    memory = {buffer: array.copy() for buffer, array in memory.items()}
    for group in groups:
        for call in group:
            execute(call, memory)
    return memory


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_compute_the_same_in_kernels(seed: int) -> None:
    """Groups at their places leave the same behind; and a range of a lane of the results needs
    only that range of the operands, whatever the others hold."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    program = program_of(random_records(draw), kc="state")
    calls = [step for step in program.steps if isinstance(step, ir.LibraryCall)]
    kept = [b for b in program.buffers if b.role is not ir.Role.TEMP]
    memory = fresh(program, numbers)
    found = list(Kernels(ValueFlow(calls, program.buffers)).find())
    taken = {at for group, _, _ in found for at in group}
    targets = {target: group for group, _, target in found}
    order = [
        [calls[n] for n in targets.get(at, [at])]
        for at in range(len(calls))
        if at in targets or at not in taken
    ]
    plain, moved = run([[call] for call in calls], memory), run(order, memory)
    for buffer in kept:
        np.testing.assert_allclose(
            moved[int(buffer.id)], plain[int(buffer.id)], rtol=1e-4, atol=1e-4
        )
    assert fuse(program)[0].steps
    for group, made, _ in found:
        check_lanes([calls[n] for n in group], made, memory, numbers)


def check_lanes(
    group: list[ir.LibraryCall], made: ir.LibraryCall, memory: Memory, numbers: np.random.Generator
) -> None:
    """Change everything but a range of a lane: the results in the range stay."""
    reads, writes = (part.split(",") for part in str(dict(made.attributes)["dims"]).split("->"))
    before = run([group], memory)
    units = dict(dims_of(bind(made)).units)

    def first(array: np.ndarray, names: str, letter: str) -> np.ndarray:
        if letter not in names:
            return array
        rows = np.moveaxis(array, names.index(letter), 0)
        return rows[: units[letter] // 2 * (len(rows) // units[letter])]

    for letter in units:
        needed = {buffer: np.zeros_like(array) for buffer, array in memory.items()}
        for operand, names in zip(made.reads, reads, strict=True):
            first(view(needed, operand), names, letter)[...] = 1
        changed = {
            buffer: np.where(needed[buffer] == 1, array, numbers.normal(size=array.shape))
            for buffer, array in memory.items()
        }
        changed = {buffer: array.astype(np.float32) for buffer, array in changed.items()}
        after = run([group], changed)
        for operand, names in zip(made.writes, writes, strict=True):
            old, new = (first(view(m, operand), names, letter) for m in (before, after))
            np.testing.assert_allclose(new, old, rtol=1e-4, atol=1e-4)


NORM = """aten::add.Tensor reads=[x:f32[4,4096], r:f32[4,4096]] writes=[s:f32[4,4096]]
aten::mul.Tensor reads=[s:f32[4,4096], s:f32[4,4096]] writes=[p:f32[4,4096]]
aten::mean.dim reads=[p:f32[4,4096]] writes=[m:f32[4,1]] attrs={"dim":[-1],"keepdim":true}
aten::rsqrt reads=[m:f32[4,1]] writes=[q:f32[4,1]]
aten::add.Tensor reads=[w:f32[4096]] writes=[v:f32[4096]] attrs={"other":1}
aten::mul.Tensor reads=[s:f32[4,4096], q:f32[4,1]] writes=[n:f32[4,4096]]
aten::mul.Tensor reads=[n:f32[4,4096], v:f32[4096]] writes=[o:f32[4,4096]]"""


def test_a_residual_a_norm_and_what_its_weight_needs_are_one_kernel() -> None:
    fused, counts = fuse(program_of(NORM, s="output"))
    assert counts == {"one kernel": 1}
    (step,) = fused.steps
    assert isinstance(step, ir.LibraryCall)
    assert step.operator == "tessera::fused_rows"
    assert dict(step.attributes)["dims"] == "a_,a_,_->a_,a_"
    assert len(step.reads) == 3


def test_blocks_that_need_each_other_stay_apart() -> None:
    """A product with a weight in between; means along rows of what has means along columns."""
    product = NORM.replace(
        "aten::rsqrt reads=[m:f32[4,1]]", "aten::mm reads=[m:f32[4,1], u:f32[1,1]]"
    )
    assert operators(fuse(program_of(product))[0])[1] == "aten::mm"
    across = """\
aten::mean.dim reads=[x:f32[64,64]] writes=[m:f32[64,1]] attrs={"dim":[-1],"keepdim":true}
aten::mul.Tensor reads=[x:f32[64,64], m:f32[64,1]] writes=[y:f32[64,64]]
aten::mean.dim reads=[y:f32[64,64]{1,64}] writes=[n:f32[64,1]] attrs={"dim":[-1],"keepdim":true}
aten::mul.Tensor reads=[y:f32[64,64], n:f32[1,64]] writes=[z:f32[64,64]]"""
    assert operators(fuse(program_of(across))[0]) == ["tessera::fused_rows"] * 2


SCORES = """aten::clone reads=[k:bf16[2,3,2,5,8]{120,40,0,8,1}] writes=[k2:bf16[2,3,2,5,8]]
aten::clone reads=[v:bf16[2,3,2,5,8]{120,40,0,8,1}] writes=[v2:bf16[2,3,2,5,8]]
aten::bmm reads=[q:bf16[12,4,8], k2:bf16[12,8,5]{40,1,8}] writes=[s:bf16[12,4,5]]
aten::div.Tensor reads=[s:bf16[2,6,4,5]] writes=[d:bf16[2,6,4,5]] attrs={"other":50.0}
aten::tanh reads=[d:bf16[2,6,4,5]] writes=[h:bf16[2,6,4,5]]
aten::mul.Tensor reads=[h:bf16[2,6,4,5]] writes=[c:bf16[2,6,4,5]] attrs={"other":50.0}
aten::add.Tensor reads=[c:bf16[2,6,4,5], mask:bf16[2,1,4,5]] writes=[a:bf16[2,6,4,5]]
aten::cat reads=[a:bf16[2,6,4,5], sinks:bf16[2,6,4,1]{0,1,0,1}] writes=[w:bf16[2,6,4,6]] \
attrs={"dim":-1}
aten::_softmax reads=[w:bf16[2,6,4,6]] writes=[p:f32[2,6,4,6]] attrs={"dim":-1,"half_to_float":true}
aten::_to_copy reads=[p:f32[2,6,4,6]] writes=[z:bf16[2,6,4,6]] attrs={"dtype":"bf16"}
aten::bmm reads=[z:bf16[12,4,5]{24,6,1}, v2:bf16[12,5,8]] writes=[o:bf16[12,4,8]]
aten::clone reads=[o:bf16[2,4,6,8]{192,8,32,1}] writes=[y:bf16[2,4,6,8]]"""


def test_caps_masks_and_sinks_are_attention() -> None:
    fused, counts = fuse(program_of(SCORES))
    assert counts == {"attention written out": 1, "copy of a result": 1}
    (step,) = fused.steps
    assert isinstance(step, ir.LibraryCall)
    assert step.operator == "tessera::attention"
    assert [operand.shape for operand in step.reads[:3]] == [
        (2, 6, 4, 8),
        (2, 3, 5, 8),
        (2, 3, 5, 8),
    ]
    assert step.writes[0].element_strides() == (192, 8, 48, 1)
    assert dict(step.attributes)["softcap"] == 50.0


def test_scores_that_something_else_happens_to_are_no_attention() -> None:
    for old, new in (("aten::tanh", "aten::sin"), ('"dim":-1,"half', '"dim":-2,"half')):
        assert old in SCORES
        assert "attention written out" not in fuse(program_of(SCORES.replace(old, new)))[1]


def test_latent_keys_are_made_only_where_that_is_less_work() -> None:
    def records(queries: int) -> str:
        return f"""aten::mm reads=[kc:bf16[80,16], w:bf16[16,48]] writes=[p:bf16[80,48]]
aten::cat reads=[p:bf16[2,3,40,8]{{1920,16,48,1}}, r:bf16[2,3,40,4]{{160,0,4,1}}] \
writes=[k:bf16[2,3,40,12]] attrs={{"dim":-1}}
aten::scaled_dot_product_attention reads=[q:bf16[2,3,{queries},12], k:bf16[2,3,40,12], \
p+16:bf16[2,3,40,8]{{1920,16,48,1}}] writes=[o:bf16[2,3,{queries},8]]"""

    assert fuse(program_of(records(1)))[1] == {"latent attention": 1}
    assert "latent attention" not in fuse(program_of(records(40)))[1]
