"""How long the judge of plans takes, at several sizes.

    python -m benchmarks.planning.check_plan [-o FILE]

A chain of steps with side readers and state, spread over four devices in blocks; the CPU seconds of
lowering and of the proof.
"""

from __future__ import annotations

import json
import random
import time

from benchmarks.common import arguments, machine, write
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import Affine, Descriptor, Dimension, Interval
from tessera.ir.program.program import Program, Role
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.plan_cases import Effect, build

SIZES = (500, 1000, 5000)
WHOLE = Interval(0, 1 << 20)
HALF = Interval(1 << 19, 1 << 20)


def chain(steps: int) -> tuple[Program, KernelGraph]:
    """A long model: each step reads the one before, a weight, at times an older one or a state."""
    rng = random.Random(1)
    buffers = [("x", 1 << 20, Role.INPUT), ("y", 1 << 20, Role.OUTPUT)]
    buffers += [(f"w{n}", 1 << 20, Role.WEIGHT) for n in range(50)]
    buffers += [(f"s{n}", 1 << 22, Role.STATE) for n in range(40)]
    buffers += [(f"t{n}", 1 << 20, Role.TEMP) for n in range(steps // 2)]
    made: list[list[Effect]] = []
    before = "x"
    for step in range(steps):
        after = f"t{step // 2}" if step < steps - 1 else "y"
        one: list[Effect] = [(before, "read", WHOLE), (f"w{rng.randrange(50)}", "read", WHOLE)]
        if step % 5 == 0:
            rows = Descriptor(rng.randrange(16) * 256, 256, (Dimension(16384, 256),))
            one.append((f"s{step % 40}", "atomic", Affine((rows,))))
        if step % 7 == 0 and step > 20:
            one.append((f"t{step // 2 - 8}", "read", Interval(0, 1 << 19)))
        one.append((after, "must", HALF if step % 2 else WHOLE))
        made.append(one)
        before = after
    return build(buffers, made)


def measure(steps: int) -> dict[str, object]:
    program, graph = chain(steps)
    placement = [f"g{step // 7 % 4}" for step in range(steps)]
    begin = time.process_time()
    lowered = lower_replica([program], [graph], [placement], slots=4, lanes=4)
    middle = time.process_time()
    found = check_replica(lowered, [program], [graph], [placement])
    end = time.process_time()
    assert found == ()
    return {
        "steps": steps,
        "operations": sum(len(one.operations) for one in lowered.traces[0].programs),
        "transfers": len(lowered.traces[0].transfers),
        "lower_cpu_seconds": round(middle - begin, 2),
        "check_cpu_seconds": round(end - middle, 2),
    }


def main() -> None:
    given = arguments(__doc__, "check_plan.json").parse_args()
    value = {
        "benchmark": "check_plan",
        **machine(),
        "devices": 4,
        "sizes": [measure(steps) for steps in SIZES],
    }
    write(value, given.output)
    print(json.dumps(value["sizes"], indent=2))


if __name__ == "__main__":
    main()
