"""Experts are priced by those that are read; products as products, however a model writes them."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from math import ceil, prod

import pytest

from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.machine.profile import parse_profile
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.costs import Costs, CostSource, Duration, StepCosts
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import BufferId, LaunchId, LibraryCall, Operand, Pointer
from tessera.ir.program.routing import Routing
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.adjust_costs import merge_profiles
from tessera.planning.prices.call_shapes import call_shape_of
from tessera.planning.prices.device_model import Traffic
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.expert_routing import (
    UNEVEN,
    UNIFORM,
    expected_experts,
    expected_tiles,
    likelihoods,
)
from tessera.planning.prices.library_calls import Attention, Experts, Grouped, Product
from tessera.planning.prices.library_launches import call_ns
from tessera.planning.prices.product_launches import grouped
from tessera.planning.prices.work_shapes import call_shape

H200 = machine_of("h200").cards[0].gpu
SKEWED = Routing(skew=1.0)
SIZES = [(1, 8, 128), (8, 4, 32), (16, 8, 128), (64, 2, 8), (200, 6, 64), (33, 1, 16), (7, 8, 8)]


def drawn(tokens: int, chosen: int, experts: int, skew: float, rng: random.Random) -> list[int]:
    """Rows of each expert in one draw: each token chooses without replacement."""
    rows = [0] * experts
    for _ in range(tokens):
        # The greatest keys u ** (1 / weight) are a draw without replacement by weight.
        keys = [(rng.random() ** ((place + 1) ** skew), place) for place in range(experts)]
        for _, place in sorted(keys)[-chosen:]:
            rows[place] += 1
    return rows


@pytest.mark.parametrize(("tokens", "chosen", "experts"), SIZES)
@pytest.mark.parametrize("routing", [UNIFORM, UNEVEN, SKEWED])
def test_experts_and_tiles_are_those_of_random_draws(
    tokens: int, chosen: int, experts: int, routing: Routing
) -> None:
    rng = random.Random(7)
    draws = [drawn(tokens, chosen, experts, routing.skew, rng) for _ in range(40)]
    distinct = sum(sum(rows > 0 for rows in draw) for draw in draws) / len(draws)
    sizes = (tokens, chosen, experts, routing)
    assert expected_experts(*sizes) == pytest.approx(distinct, rel=0.06)
    for height in (4, 16, 64):
        tiles = sum(ceil(rows / height) for draw in draws for rows in draw) / len(draws)
        assert expected_tiles(*sizes, height) == pytest.approx(tiles, rel=0.07)
    counted = Routing(counts=tuple(draws[0]))
    assert expected_experts(tokens, chosen, experts, counted) == sum(map(bool, draws[0]))
    parts = likelihoods(chosen, experts, routing)
    assert sum(part * count for part, count in parts) == pytest.approx(min(chosen, experts))


@pytest.mark.parametrize(("tokens", "chosen", "experts"), SIZES)
def test_measured_rows_are_a_law_of_choices(tokens: int, chosen: int, experts: int) -> None:
    """Rows that were counted of many tokens predict the experts that fewer tokens need."""
    rng = random.Random(3)
    rows = tuple(drawn(3000, chosen, experts, 1.0, rng))
    measured, skewed = (
        expected_experts(tokens, chosen, experts, law) for law in (Routing(rows=rows), SKEWED)
    )
    assert measured == pytest.approx(skewed, rel=0.06)


def test_a_trace_that_states_its_routing_has_the_narrower_bar() -> None:
    """A stated law is taken; rows of another number of experts say nothing of these."""
    sizes = {"tokens": 16, "hidden": 2048, "inner": 768, "chosen": 8, "experts": 128}
    (unknown,) = durations("h200", **sizes)
    laws = (Routing(), Routing(skew=0.5), Routing(skew=2.0), Routing(rows=(1, 2, 3)))
    even, uneven, skewed, other = (durations("h200", routing=law, **sizes)[0] for law in laws)
    assert even.ns > unknown.ns > uneven.ns > skewed.ns
    assert unknown.ns == pytest.approx((even.ns * uneven.ns) ** 0.5)
    assert even.error < unknown.error
    assert (other.ns, other.error) == (unknown.ns, unknown.error)


def test_tiles_hold_the_rows_of_one_expert_each() -> None:
    """All operations are there, and the padding of the last tile of each expert."""
    shape = Grouped(tokens=100, chosen=4, experts=32, n=640, k=512)
    for work in grouped(shape, 1.0):
        assert sum(count for _, count in work.units) >= 2.0 * shape.rows * shape.n * shape.k
    few = Grouped(tokens=8, chosen=1, experts=256, n=640, k=512)
    padded = min(sum(count for _, count in work.units) for work in grouped(few, 1.0))
    assert padded >= 2.0 * 0.98 * 16 * few.rows * few.n * few.k


TRACE = """//! tessera.trace 1
//! buffer places bytes={places} role=input
//! buffer x bytes={x} role=input
//! buffer up bytes={up} role=weight
//! buffer down bytes={down} role=weight
//! buffer y bytes={x} role=output
//! op tessera::experts reads=[places:s64[{tokens},{chosen}], x:bf16[{tokens},{hidden}], \
up:bf16[{experts},{wide},{hidden}], down:bf16[{experts},{hidden},{inner}]] \
writes=[y:bf16[{tokens},{hidden}]] attrs={{"tokens": {tokens}, "hidden": {hidden}, \
"inner": {inner}, "chosen": {chosen}, "experts": {experts}}}
"""


def durations(gpus: str, routing: Routing | None = None, **sizes: int) -> list[Duration]:
    made = step_of(gpus, routing, **sizes).on_device
    return [cost for cost in made if isinstance(cost, Duration)]


def step_of(gpus: str, routing: Routing | None = None, **sizes: int) -> StepCosts:
    tokens, hidden, inner = sizes["tokens"], sizes["hidden"], sizes["inner"]
    matrix = 2 * sizes["experts"] * hidden * inner
    text = TRACE.format(
        **sizes,
        wide=2 * inner,
        places=8 * tokens * sizes["chosen"],
        x=2 * tokens * hidden,
        up=2 * matrix,
        down=matrix,
    )
    program = replace(parse_trace(text), routing=routing)
    graph = AnalysisManager(program).get(Dependences).graph
    (step,) = estimate_costs(program, graph, machine_of(gpus)).steps
    return step


def test_rows_between_the_products_count_as_bytes() -> None:
    """All 8 experts have rows of 2 bytes; what is in between is written and read."""
    made = step_of("h200", tokens=512, hidden=256, inner=128, chosen=2, experts=8)
    weights, rows = 8 * 3 * 256 * 128, 1024 * (2 * 128 + 128 + 256)
    operands = 2 * (weights + 2 * 512 * 256)
    assert made.memory_bytes == pytest.approx(operands + 4 * rows, rel=0.02)


@pytest.mark.parametrize(("seeded", "part"), [(False, 0.3), (True, 0.3), (True, 1.2)])
def test_a_profile_by_a_seed_does_not_count_if_tokens_chose_too_few_experts(
    seeded: bool, part: float
) -> None:
    machine = machine_of("h200")
    step = step_of("h200", tokens=32, hidden=4096, inner=1408, chosen=8, experts=128)
    (guess,) = step.on_device
    assert isinstance(guess, Duration)
    row = {"step": 0, "name": step.name, "gpu": "h200", "ns": part * guess.ns}
    text = {"schema": "tessera-profile/1", "program": "any", "rows": [row], "seeded": seeded}
    profile = parse_profile(json.dumps(text))
    (found,) = merge_profiles(Costs((step,)), machine, [profile]).steps[0].on_device
    assert isinstance(found, Duration)
    if seeded and part < 1:
        assert (found.ns, found.source) == (guess.ns, guess.source)
        assert "fewer experts than expected" in found.origin
    else:
        assert (found.ns, found.source) == (row["ns"], CostSource.PROFILE)


def test_a_step_bound_by_weights_goes_with_bandwidth() -> None:
    """GPT-OSS 20B and DeepSeek-V2-Lite at batch 8: 2.4 times the bandwidth, about half the time.

    Their first operand holds places, not numbers that are multiplied.
    """
    for sizes in (
        {"hidden": 2880, "inner": 2880, "chosen": 4, "experts": 32},
        {"hidden": 2048, "inner": 1408, "chosen": 6, "experts": 64},
    ):
        matrix = 6.0 * sizes["hidden"] * sizes["inner"]
        hit = [expected_experts(8, sizes["chosen"], sizes["experts"], r) for r in (UNIFORM, UNEVEN)]
        for cost, gpu in zip(durations("a100,l40s,h200", tokens=8, **sizes), "als", strict=True):
            speed = {"a": 2039.0, "l": 864.0, "s": 4800.0}[gpu]
            least, most = (count * matrix / speed for count in sorted(hit))
            assert least <= cost.ns <= 1.6 * most
            assert 1.0 + cost.error >= (most / least) ** 0.5  # the routing is in the bar


PER_BLOCK, PER_ROW = "f32[8,2,2]", "f32[8,256,1]"


@pytest.mark.parametrize(
    ("up", "scales", "down", "stored"),
    [
        ("bf16[8,256,256]", "f32[256]", "bf16[8,256,128]", "bfloat16"),
        ("e4m3[8,256,256]", PER_BLOCK, "e4m3[8,256,128]", "fp8_block"),
        ("e4m3[8,256,256]", PER_ROW, "e4m3[8,256,128]", "fp8"),
        ("e4m3[8,256,256]", "f32[8]", "e4m3[8,256,128]", "fp8"),
        ("u8[8,256,128]", "u8[8,256,8]", "u8[8,256,64]", "w4a16_mxfp4"),
        ("u8[8,256,8,16]", "u8[8,256,8]", "u8[8,256,4,16]", "w4a16_mxfp4"),
        ("u8[8,256,128]", "bf16[8,256,2]", "u8[8,256,64]", "int4_wo"),
        ("u8[8,256,256]", "bf16[8,256,2]", "u8[8,256,128]", None),  # a weight to a byte
        ("f32[8,256,256]", "f32[256]", "f32[8,256,128]", None),
    ],
)
def test_experts_are_looked_up_by_how_their_weights_are_stored(
    up: str, scales: str, down: str, stored: str | None
) -> None:
    text = f"""//! tessera.trace 1
//! buffer x bytes=8192 role=input
//! buffer up bytes=2097152 role=weight
//! buffer scales bytes=65536 role=weight
//! buffer down bytes=1048576 role=weight
//! buffer y bytes=8192 role=output
//! op tessera::experts reads=[x:bf16[16,256], up:{up}, scales:{scales}, down:{down}] \
writes=[y:bf16[16,256]] attrs={{"tokens": 16, "hidden": 256, "inner": 128, "chosen": 2, \
"experts": 8}}
"""
    (call,) = parse_trace(text).steps
    assert isinstance(call, LibraryCall)
    shape = call_shape(call)
    assert (None if shape is None else shape.fixed[0]) == stored


def test_more_tokens_read_more_experts_until_all_are_read() -> None:
    sizes = {"hidden": 2048, "inner": 768, "chosen": 8, "experts": 128}
    times = [durations("h200", tokens=tokens, **sizes)[0].ns for tokens in (1, 4, 16, 64, 256)]
    assert times == sorted(times)
    assert times[2] > 3 * times[0]
    assert times[4] < 1.5 * times[3]


def operand(
    *shape: int, strides: tuple[int, ...] | None = None, dtype: DataType = DataType.BF16
) -> Operand:
    return Operand(pointer=Pointer(BufferId(0), 0), dtype=dtype, shape=shape, strides=strides)


def called(name: str, *reads: Operand, to: Operand) -> LibraryCall:
    return LibraryCall(id=LaunchId(0), operator=f"aten::{name}", reads=reads, writes=(to,))


def test_a_product_is_priced_alike_however_it_is_written() -> None:
    """A weight that is expanded over the batch is read once, for the rows of the whole batch."""
    plain = called("mm", operand(8, 4096), operand(4096, 1024), to=operand(8, 1024))
    wide = operand(8, 4096, 1024, strides=(0, 1, 4096))
    batched = called("bmm", operand(8, 1, 4096), wide, to=operand(8, 1, 1024))
    assert call_shape_of(batched, 0.0) == call_shape_of(plain, 0.0)
    assert call_shape(batched) == call_shape(plain)
    turned = called(
        "bmm",
        operand(8, 1024, 4096, strides=(0, 4096, 1)),
        operand(8, 4096, 1),
        to=operand(8, 1024, 1),
    )
    assert call_shape_of(turned, 0.0)[0] == Product(m=1024, n=8, k=4096, step=1024)
    own = called("bmm", operand(8, 1, 4096), operand(8, 4096, 1024), to=operand(8, 1, 1024))
    found, _ = call_shape_of(own, 0.0)
    assert isinstance(found, Product)
    assert found.batch == 8
    assert call_shape(own) is None


def test_heads_that_share_keys_are_priced_once() -> None:
    """Falcon has 71 heads over one: as many tiles as its queries fill, not one for each head."""
    sizes = {"batch": 8, "kv_heads": 1, "queries": 1, "keys": 2048, "size": 64}
    few, many = (
        call_ns(Attention(**sizes, heads=heads, causal=False), Traffic(cold=4.0e6), H200, 132)
        for heads in (64, 71)
    )
    assert many < 1.7 * few


def test_grouped_products_are_those_of_the_experts_that_have_rows() -> None:
    rows, held = operand(128, 2048), operand(128, 2048, 1536)
    ends = operand(128, dtype=DataType.S32)
    shape, _ = call_shape_of(called("_grouped_mm", rows, held, ends, to=operand(128, 1536)), 0.0)
    assert shape == Grouped(tokens=128, chosen=1, experts=128, n=1536, k=2048)
    assert isinstance(shape, Grouped)
    assert shape.moved == pytest.approx(2 * 2048 * 1536 * 128 * (1 - (1 - 1 / 128) ** 128))
    both = Experts(shape, shape)
    assert both.moved == 2 * shape.moved < 2.0 * 2 * prod(held.shape)


# A thread has an element of the result: it goes through the experts from the one that the first
# number in `ends` names to the one that the last names, and adds up what their weights give.
GROUPED = """//! tessera.trace 1
//! buffer rows bytes={rows} role=input dtype=bf16 shape={count}x{k}
//! buffer weights bytes={weights} role=weight dtype=bf16 shape={experts}x{n}x{k}
//! buffer ends bytes={ends} role=input dtype=s32 shape={experts}
//! buffer out bytes={out} role=output dtype=bf16 shape={count}x{n}
//! module m
.version 8.4
.target sm_80
.address_size 64
.visible .entry k(.param .u64 rows, .param .u64 weights, .param .u64 ends, .param .u64 out)
{{
.reg .pred %p<4>; .reg .b32 %r<16>; .reg .b16 %h<4>; .reg .f32 %f<4>; .reg .b64 %d<16>;
ld.param.u64 %d1, [rows]; ld.param.u64 %d2, [weights]; ld.param.u64 %d3, [ends];
ld.param.u64 %d4, [out];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %tid.x;
ld.global.u32 %r4, [%d3]; ld.global.u32 %r5, [%d3+{last}];
min.u32 %r4, %r4, {most}; min.u32 %r5, %r5, {most};
mad.lo.u32 %r6, %r1, 16, %r3; mul.wide.u32 %d5, %r6, {row}; add.s64 %d1, %d1, %d5;
ld.global.b16 %h1, [%d1]; cvt.f32.bf16 %f1, %h1;
LOOP:
setp.gt.u32 %p1, %r4, %r5; @%p1 bra DONE;
mul.wide.u32 %d6, %r4, {stride}; add.s64 %d7, %d2, %d6; ld.global.b16 %h2, [%d7];
cvt.f32.bf16 %f2, %h2; fma.rn.f32 %f1, %f1, %f2, %f1; add.u32 %r4, %r4, 1; bra LOOP;
DONE:
mad.lo.u32 %r7, %r6, {n}, %r2; mul.wide.u32 %d8, %r7, 2; add.s64 %d4, %d4, %d8;
cvt.rn.bf16.f32 %h3, %f1; st.global.b16 [%d4], %h3;
ret;
}}
//! launch m.k grid={tiles},{across},1 block=16,1,1 smem=49152 args=[rows, weights, ends, out]
"""


def test_a_launch_that_goes_through_experts_reads_those_that_tokens_choose() -> None:
    """Its loop comes from data, so its code does not say how much it reads: its buffers do."""
    count, experts, n, k = 128, 128, 1536, 2048
    text = GROUPED.format(
        count=count, experts=experts, n=n, k=k, rows=2 * count * k, out=2 * count * n,
        weights=2 * experts * n * k, ends=4 * experts, last=4 * experts - 4, most=experts - 1,
        row=2 * k, stride=2 * n * k, tiles=count // 16, across=n // 32,
    )  # fmt: skip
    program = parse_trace(text)
    graph = AnalysisManager(program).get(Dependences).graph
    (step,) = estimate_costs(program, graph, machine_of("a100,h200")).steps
    hit = [expected_experts(count, 1, experts, routing) for routing in (UNIFORM, UNEVEN)]
    assert step.work is not None
    assert step.work.indexed_bytes == pytest.approx(hit[0] * 2 * n * k)
    for cost, speed in zip(step.on_device, (2039.0, 4800.0), strict=True):
        assert isinstance(cost, Duration)
        assert hit[1] * 2 * n * k / speed <= cost.ns <= 3 * hit[0] * 2 * n * k / speed
    # Measured as 131 us on an H200, with a kernel by Triton, whose tiles are as these.
    assert isinstance(step.on_device[1], Duration)
    assert abs(step.on_device[1].ns / 131e3 - 1) < step.on_device[1].error
