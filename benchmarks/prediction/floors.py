"""A search for impossible times, and for GPUs in the wrong order.

    python -m benchmarks.prediction.floors [--calls N] [--seed N] [-o FILE]

With the extra `tables`, the tables of all GPUs are searched, too. `search`: random calls (products,
attention, experts, of any size) priced as for a plan, on all GPUs, on a few, or on slices of one.
`impossible` are times below the bytes or the operations at the rates of the data sheet, counted
here. `inverted` are pairs in which a GPU is slower than one that is not better in bandwidth or any
arithmetic, and one of the times is a guess; `stated` are those in which the bars do not overlap.
Where measured times of other GPUs contradict each other, no guess agrees with both.
`slices_before_wholes` are slices that are over 2% faster than a larger slice or the whole GPU.
`h200`: times of libraries on an H200 (`h200_rows.jsonl.xz`) that are below the floor.
"""

from __future__ import annotations

import json
import lzma
from collections import Counter
from itertools import pairwise, permutations
from math import hypot, log, log1p, prod
from random import Random
from typing import Any

from benchmarks.common import RESULTS, arguments, write
from benchmarks.prediction.fit_durations import library_shape
from tessera.driver.traces import loaded_program
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.plan.costs import Duration, StepNeeds
from tessera.ir.plan.machine import Gpu, Machine
from tessera.ir.plan.tables import LIBRARIES
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    Buffer,
    BufferId,
    LaunchId,
    LibraryCall,
    Memset,
    Operand,
    Pointer,
    Program,
    Role,
)
from tessera.planning.given.options import PlanOptions
from tessera.planning.prices.call_shapes import operations_of
from tessera.planning.prices.durations import trace_costs
from tessera.planning.prices.floors import GUESSES, floor_ns

ROWS = RESULTS / "h200_rows.jsonl.xz"
NO_CALL = Memset(id=0, target=Pointer(0), bytes=0, value=0)  # type: ignore[arg-type]
UNITS = ("fp32", "tf32", "fp16", "bf16", "fp8")
TYPES = {DataType.BF16: "bf16", DataType.F16: "fp16", DataType.E4M3: "fp8"}
Drawn = tuple[str, DataType, list[tuple[int, ...]], tuple[int, ...], dict[str, Any], float]


def drawn(rng: Random) -> Drawn:
    """An operator, the type of its operands, their shapes, that of its result, attributes, and the
    operations that it cannot do without."""

    def size(low: int, high: int, step: int = 1) -> int:
        return max(low, round(2 ** rng.uniform(log(low, 2), log(high, 2))) // step * step)

    dtype = rng.choice((DataType.BF16, DataType.BF16, DataType.F16))
    m, n, k = size(1, 16384), size(64, 32768, 64), size(64, 32768, 64)
    attributes: dict[str, Any]
    match rng.randrange(6):
        case 0:
            return "aten::mm", dtype, [(m, k), (k, n)], (m, n), {}, 2.0 * m * n * k
        case 1:
            odd = size(17, 5000), size(17, 5000)
            shapes = [(m, odd[0]), (odd[1], odd[0])]
            return "aten::linear", dtype, shapes, (m, odd[1]), {}, 2.0 * m * prod(odd)
        case 2:
            attributes = {"out_dtype": "bf16"}
            shapes = [(m, k), (k, n), (1,), (1,)]
            return "aten::_scaled_mm", DataType.E4M3, shapes, (m, n), attributes, 2.0 * m * n * k
        case 3:
            experts, hidden, inner = size(4, 256), size(512, 8192, 128), size(256, 8192, 128)
            chosen, m = min(experts, size(1, 8)), min(m, 8192)
            attributes = {"tokens": m, "hidden": hidden, "inner": inner, "chosen": chosen}
            attributes["experts"] = experts
            shapes = [(m, hidden), (experts, 2 * inner, hidden), (experts, hidden, inner)]
            done = 6.0 * m * chosen * hidden * inner
            return "tessera::experts", dtype, shapes, (m, hidden), attributes, done
    batch, few, group = size(1, 64), size(1, 16), rng.choice((1, 4, 7, 8))
    keys, width = size(16, 16384), rng.choice((64, 80, 96, 128, 256))
    queries = rng.choice((1, 1, min(16, keys), keys))
    query, key = (batch, few * group, queries, width), (batch, few, keys, width)
    attributes = {"is_causal": queries == keys, "enable_gqa": True}
    done = 4.0 * prod(query) * keys / (2 if queries == keys else 1)
    name = "aten::scaled_dot_product_attention"
    return name, dtype, [query, key, key], query, attributes, done


def program_of(call: Drawn) -> Program:
    """A program of one call; all operands but the first are weights."""
    name, dtype, shapes, result, attributes, _ = call
    types = [DataType.F32 if shape == (1,) else dtype for shape in shapes]
    types.append(DataType.BF16 if dtype is DataType.E4M3 else dtype)
    operands = [
        Operand(pointer=Pointer(BufferId(n), 0), dtype=own, shape=shape)
        for n, (own, shape) in enumerate(zip(types, (*shapes, result), strict=True))
    ]
    roles = [Role.INPUT, *(Role.WEIGHT for _ in shapes[1:]), Role.OUTPUT]
    buffers = tuple(
        Buffer(id=BufferId(n), name=f"b{n}", bytes=bytes_of(operand), role=role)
        for n, (operand, role) in enumerate(zip(operands, roles, strict=True))
    )
    step = LibraryCall(
        id=LaunchId(0),
        operator=name,
        reads=tuple(operands[:-1]),
        writes=(operands[-1],),
        attributes=tuple(attributes.items()),
    )
    return Program(buffers=buffers, steps=(step,))


def bytes_of(operand: Operand) -> int:
    return prod(operand.shape) * operand.dtype.bytes


def machine_for(rng: Random) -> tuple[str, Machine]:
    """All GPUs, or a few, or slices of one."""
    names = sorted(gpu_table())
    kind = rng.choice(("every", "few", "slices"))
    if kind == "every":
        return kind, machine_of(",".join(names), "none")
    if kind == "few":
        return kind, machine_of(",".join(rng.sample(names, 3)), "none")
    name = rng.choice(names)
    own = find_gpu(name).sms
    slices = [f"{name}:{own // 8 * 2}sm", f"{name}:{own // 8 * 6}sm"]
    return kind, machine_of(",".join([name, *slices][rng.randrange(2) :]), "none")


def is_better(first: Gpu, second: Gpu) -> bool:
    rates = [
        (g.memory_bandwidth, *(g.flops(unit) or 0.0 for unit in UNITS)) for g in (first, second)
    ]
    return all(a >= b for a, b in zip(*rates, strict=True))


def search(calls: int, seed: int) -> dict[str, Any]:
    """What is wrong with the times of random calls."""
    found: Counter[str] = Counter()
    worst: dict[str, list[str]] = {"impossible": [], "stated": []}
    for number in range(calls):
        rng = Random(f"{seed} {number}")
        call = drawn(rng)
        program, (kind, machine) = program_of(call), machine_for(rng)
        library = rng.choice((None, *LIBRARIES))
        options = PlanOptions(gpus="", library=library)
        (step,) = trace_costs(loaded_program(program, "call"), machine, options, ()).steps
        known = [
            (machine.gpu_of(device), device.sms, cost)
            for device, cost in zip(machine.devices, step.on_device, strict=True)
            if isinstance(cost, Duration)
        ]
        found["times"] += len(known)
        moved = bytes_of(program.steps[0].writes[0])  # type: ignore[union-attr]
        if "experts" not in call[0]:
            moved += sum(b.bytes for b in program.buffers if b.role is Role.WEIGHT)
        for gpu, _, cost in known:
            rates = [gpu.flops(unit) or 0.0 for unit in (TYPES[call[1]], "fp16")]
            least = max(call[-1] / max(rates), (moved - gpu.l2_bytes) / gpu.memory_bandwidth) * 1e9
            if cost.ns < 0.999 * least:
                worst["impossible"].append(f"{call[0]} {call[2]} {gpu.key} {cost.ns / least:.2f}")
        if kind == "slices":
            order = sorted((sms, cost.ns) for _, sms, cost in known)
            pairs = list(pairwise(order))
            found["pairs_of_slices"] += len(pairs)
            found["slices_before_wholes"] += sum(b > 1.02 * a for (_, a), (_, b) in pairs)
            continue
        for (one, _, own), (other, _, its) in permutations(known, 2):
            if one.key == other.key or not is_better(one, other):
                continue
            found["pairs"] += 1
            sources = {own.source, its.source}
            if own.ns <= 1.0001 * its.ns:
                continue
            found["inverted" if sources & set(GUESSES) else "inverted_in_tables"] += 1
            found["inverted_on_few"] += kind == "few" and bool(sources & set(GUESSES))
            if log(own.ns / its.ns) > hypot(log1p(own.error), log1p(its.error)):
                worst["stated"].append(f"{call[0]} {call[2]} {one.key} {other.key} {library}")
    counts = ("times", "pairs", "inverted", "inverted_on_few", "inverted_in_tables")
    slices = ("pairs_of_slices", "slices_before_wholes")
    return {
        "calls": calls,
        **{name: found[name] for name in (*counts, *slices)},
        **{name: len(some) for name, some in worst.items()},
        **{f"some_{name}": some[:8] for name, some in worst.items() if some},
    }


def below() -> dict[str, int]:
    """Measured times of libraries below the floor."""
    gpu = find_gpu("h200")
    measured = low = 0
    for line in lzma.decompress(ROWS.read_bytes()).decode().splitlines():
        row = json.loads(line)
        if "error" in row or row["source"] != "library":
            continue
        shape, moved = library_shape(row)
        is_cold = row["rotated_bytes"] > 1.4 * gpu.l2_bytes
        operations = operations_of(shape, NO_CALL)
        needs = StepNeeds(cold=moved * is_cold, operations=operations, kept=1e10)
        measured += 1
        low += row["ns"] < floor_ns(needs, gpu, row["sms"])
    return {"rows": measured, "below": low}


def main() -> None:
    parser = arguments(__doc__, "floors.json")
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = search(options.calls, options.seed)
    document = {"schema": "tessera-floors/2", "search": found, "h200": below()}
    print(json.dumps(document, indent=1))
    write(document, options.output)


if __name__ == "__main__":
    main()
