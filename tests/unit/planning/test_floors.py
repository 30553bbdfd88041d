"""No duration is impossible, and no guess puts the worse of two GPUs first."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from math import prod
from random import Random

import pytest

from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.operators.table import table
from tessera.ir.plan.costs import Costs, CostSource, Duration, FloorMark, StepCosts, StepNeeds
from tessera.ir.plan.machine import Machine
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    Buffer,
    BufferId,
    LaunchId,
    LibraryCall,
    Operand,
    Pointer,
    Program,
    Role,
)
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.durations import below_floors
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.floors import between_measured, floor_ns, keep_possible, order_of
from tests.helpers.random_calls import random_case

EVERY = machine_of(",".join(gpu_table()), "none")
FUNCTIONS = {entry.function: entry.name for entry in table().values()}
FUSED = ("fused", "fused_products", "fused_rows")
WITHOUT_CASES = (*FUSED, "latent_attention", "quantized_linear")
GUESSES = (CostSource.MODEL, CostSource.SHEET)


def buffer(number: int, size: int, role: Role) -> Buffer:
    return Buffer(id=BufferId(number), name=f"b{number}", bytes=size, role=role)


def priced(call: LibraryCall, sizes: list[int], roles: list[Role], machine: Machine) -> StepCosts:
    """A program of one call."""
    buffers = tuple(
        buffer(n, size, role) for n, (size, role) in enumerate(zip(sizes, roles, strict=True))
    )
    program = Program(buffers=buffers, steps=(call,))
    graph = AnalysisManager(program).get(Dependences).graph
    (step,) = keep_possible(estimate_costs(program, graph, machine), machine).steps
    return step


def check(step: StepCosts, machine: Machine) -> None:
    """No duration below its floor, and none above that of a GPU that is worse in everything."""
    assert step.needs is not None
    times = [
        (machine.gpu_of(d), cost) for d, cost in zip(machine.devices, step.on_device, strict=True)
    ]
    for gpu, cost in times:
        assert isinstance(cost, Duration)
        floor = floor_ns(step.needs, gpu, gpu.sms)
        assert cost.ns >= floor * (1 - 1e-9)
        bound = step.needs.cold / gpu.memory_bandwidth * 1e9
        assert cost.ns >= bound * (1 - 1e-9) or step.needs.kept <= gpu.l2_bytes / 2
    for (gpu, cost), (other, its) in permutations(times, 2):
        assert isinstance(cost, Duration)
        assert isinstance(its, Duration)
        units = ("fp32", "tf32", "fp16", "bf16", "fp8")
        rates = [(gpu.flops(unit) or 0.0, other.flops(unit) or 0.0) for unit in units]
        if gpu.memory_bandwidth >= other.memory_bandwidth and all(a >= b for a, b in rates):
            assert cost.ns <= its.ns * (1 + 1e-9), (gpu.key, other.key, step)


@pytest.mark.parametrize("function", sorted(FUNCTIONS))
def test_every_operator_on_every_gpu(function: str) -> None:
    rng = Random(function)
    if function in WITHOUT_CASES:
        pytest.skip("its operands are those of other operators: no random ones")
    case = random_case(FUNCTIONS[function], rng)
    written = {operand.pointer.buffer for operand in case.call.writes}
    roles = [
        Role.OUTPUT if n in written else rng.choice((Role.WEIGHT, Role.INPUT))
        for n in range(len(case.contents))
    ]
    sizes = [array.nbytes for array in case.contents]
    check(priced(case.call, sizes, roles, EVERY), EVERY)


def large_call(
    rng: Random,
) -> tuple[str, list[tuple[int, ...]], tuple[int, ...], dict[str, object]]:
    """An operator with operands of sizes of real models: first what is computed, then weights."""

    def size(low: int, high: int) -> int:
        return 1 << rng.randint(low, high)

    rows, wide, deep = size(0, 13), size(6, 14), size(6, 14)
    batch, heads, length = size(0, 6), size(3, 6), size(7, 13)
    attributes: dict[str, object]
    match rng.choice(("mm", "attention", "norm", "add", "softmax", "embedding", "experts")):
        case "mm":
            return "aten::mm", [(rows, deep), (deep, wide)], (rows, wide), {}
        case "attention":
            queries = rng.choice((1, length))
            query = (batch, heads, queries, 128)
            key = (batch, heads >> rng.randint(0, 3), length, 128)
            attributes = {"is_causal": queries == length, "enable_gqa": True}
            name = "aten::scaled_dot_product_attention"
            return name, [query, key, key], query, attributes
        case "norm":
            return "tessera::rms_norm", [(rows, wide), (wide,)], (rows, wide), {"eps": 1e-5}
        case "add":
            return "aten::add.Tensor", [(rows, wide), (rows, wide)], (rows, wide), {}
        case "softmax":
            attributes = {"dim": -1, "half_to_float": False}
            return "aten::_softmax", [(rows, wide)], (rows, wide), attributes
        case "embedding":
            return "aten::embedding", [(wide, deep), (rows,)], (rows, deep), {}
    experts, inner = size(3, 8), size(8, 12)
    sizes = {"tokens": rows, "hidden": deep, "inner": inner, "chosen": 2, "experts": experts}
    reads = [(rows, deep), (experts, 2 * inner, deep), (experts, deep, inner)]
    return "tessera::experts", reads, (rows, deep), dict(sizes)


@pytest.mark.parametrize("seed", range(30))
def test_sizes_of_real_models_on_every_gpu(seed: int) -> None:
    rng = Random(seed)
    name, reads, out, attributes = large_call(rng)
    dtype = rng.choice((DataType.BF16, DataType.BF16, DataType.F32))
    operands = [
        Operand(pointer=Pointer(BufferId(n), 0), dtype=dtype, shape=shape)
        for n, shape in enumerate((*reads, out))
    ]
    if name == "aten::embedding":
        operands[1] = replace(operands[1], dtype=DataType.S64)
    call = LibraryCall(
        id=LaunchId(0),
        operator=name,
        reads=tuple(operands[:-1]),
        writes=(operands[-1],),
        attributes=tuple(attributes.items()),  # type: ignore[arg-type]
    )
    sizes = [prod(operand.shape) * operand.dtype.bytes for operand in operands]
    roles = [Role.INPUT, *(Role.WEIGHT for _ in operands[1:-1]), Role.OUTPUT]
    step = priced(call, sizes, roles, EVERY)
    check(step, EVERY)
    check_beside_measured(step, rng)


def check_beside_measured(step: StepCosts, rng: Random) -> None:
    """Measured times of some GPUs: a table is not below the floor, guesses are in order."""
    costs = list(step.on_device)
    for n in rng.sample(range(len(costs)), 4):
        cost = costs[n]
        assert isinstance(cost, Duration)
        ns = cost.ns * rng.choice((0.01, 0.7, 1.4))
        costs[n] = Duration(ns=ns, source=CostSource.TABLE, error=0.1)
    (found,) = keep_possible(Costs((replace(step, on_device=tuple(costs)),)), EVERY).steps
    assert found.needs is not None
    gpus = [EVERY.gpu_of(device) for device in EVERY.devices]
    known = [(g, c) for g, c in zip(gpus, found.on_device, strict=True) if isinstance(c, Duration)]
    for gpu, cost in known:
        assert cost.ns >= floor_ns(found.needs, gpu, gpu.sms) * (1 - 1e-9)
    guesses = [pair for pair in known if pair[1].source in GUESSES]
    for (gpu, cost), (other, its) in permutations(guesses, 2):
        is_better = gpu.memory_bandwidth >= other.memory_bandwidth
        units = ("fp32", "tf32", "fp16", "bf16", "fp8")
        if is_better and all((gpu.flops(u) or 0) >= (other.flops(u) or 0) for u in units):
            assert cost.ns <= its.ns * (1 + 1e-9)


WIDE = Program(
    buffers=(
        buffer(0, 2 * 8 * 8192, Role.INPUT),
        buffer(1, 2 * 8192 * 8192, Role.WEIGHT),
        buffer(2, 2 * 8 * 8192, Role.OUTPUT),
    ),
    steps=(
        LibraryCall(
            id=LaunchId(0),
            operator="aten::mm",
            reads=(
                Operand(pointer=Pointer(BufferId(0), 0), dtype=DataType.BF16, shape=(8, 8192)),
                Operand(pointer=Pointer(BufferId(1), 0), dtype=DataType.BF16, shape=(8192, 8192)),
            ),
            writes=(
                Operand(pointer=Pointer(BufferId(2), 0), dtype=DataType.BF16, shape=(8, 8192)),
            ),
        ),
    ),
)


@pytest.mark.parametrize(
    ("source", "factor", "mark"),
    [
        (CostSource.PROFILE, 0.5, FloorMark.BELOW),
        (CostSource.PROFILE, 0.99, None),
        (CostSource.TABLE, 0.5, FloorMark.RAISED),
        (CostSource.SHEET, 0.5, FloorMark.RAISED),
        (CostSource.SHEET, 3.0, None),
        (CostSource.SHEET, 80.0, FloorMark.FAR),
    ],
)
def test_what_is_below_or_far_above_is_marked(
    source: CostSource, factor: float, mark: FloorMark | None
) -> None:
    machine = machine_of("a100")
    gpu = machine.cards[0].gpu
    graph = AnalysisManager(WIDE).get(Dependences).graph
    (step,) = estimate_costs(WIDE, graph, machine).steps
    assert step.needs is not None
    floor = floor_ns(step.needs, gpu, gpu.sms)
    assert floor == pytest.approx(2 * 8192 * 8192 / 2039e9 * 1e9)
    given = Duration(ns=factor * floor, source=source, error=0.2)
    costs = keep_possible(Costs((replace(step, on_device=(given,)),)), machine)
    (cost,) = costs.steps[0].on_device
    assert isinstance(cost, Duration)
    assert cost.mark is mark
    if mark is FloorMark.RAISED:
        assert floor <= cost.ns <= 1.2 * floor
    else:
        assert cost.ns == given.ns
    assert (cost.error > 0.5) == (mark is FloorMark.FAR)
    assert bool(below_floors([costs])) == (mark is FloorMark.BELOW)


def test_of_measured_times_that_contradict_each_other_the_most_alike_counts() -> None:
    names = ("b200", "rtx-pro-6000-blackwell-server", "rtx-pro-6000-blackwell-ws")
    better, alike, gpu = map(find_gpu, names)
    rate = order_of(StepNeeds(cold=1e9), (better, alike, gpu))
    for measured in ([(better, 3e5), (alike, 2e5)], [(alike, 2e5), (better, 3e5)]):
        assert between_measured(1e5, gpu, measured, rate) == 2e5
