"""What lowering makes of random placements, and what the judge says of it once it is changed.

In: a seed. Out: lines: the launch program, then the findings for changed ones.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from tessera.passes.checker.check_plan import check_replica
from tests.helpers.plan_changes import crowded_plan, random_plan
from tests.helpers.plan_compounds import compound
from tests.helpers.plan_edits import edits
from tests.helpers.plan_mutants import mutants

CHANGES = 12


def said_of_plan(seed: int) -> Iterator[str]:
    """The lines of a seed."""
    case, replica = (crowded_plan if seed % 2 else random_plan)(seed // 2)
    yield repr(replica)
    rng = random.Random(f"said {seed}")
    singles = [*mutants(replica, case.programs)]
    others = [*singles, *edits(replica, case.programs)]
    for _ in range(CHANGES):
        made = rng.choice(others) if rng.random() < 0.7 else compound(rng, replica, singles)
        if made is not None:
            found = check_replica(made[1], case.programs, case.graphs, case.placements)
            yield f"{made[0]}: " + "; ".join(
                f"{one.code} {one.headline} {[*map(str, one.notes)]}" for one in found
            )
