"""Several changes to a launch program that go together: refused, or they make no difference."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tessera.passes.checker.check_plan import check_replica
from tests.helpers.plan_cases import random_case
from tests.helpers.plan_compounds import compound
from tests.helpers.plan_mutants import mutants
from tests.helpers.plan_races import races
from tests.helpers.plan_simulator import differs
from tests.property.test_check_plan import lower


def check_compounds(seed: int, most: int) -> Counter[bool]:
    """Whether changes were refused; those that were not give the same bytes in every order."""
    case = random_case(seed, most_steps=6, tables=seed % 3 == 0)
    replica = lower(case, seed, hosts=1 + (seed % 5 == 0))
    singles = list(mutants(replica, case.programs))
    rng = random.Random(seed)
    verdicts: Counter[bool] = Counter()
    for _ in range(most):
        made = compound(rng, replica, singles)
        if made is None or made[1] == replica:
            continue
        what, mutant = made
        refused = bool(check_replica(mutant, case.programs, case.graphs, case.placements))
        verdicts[refused] += 1
        if not refused:
            assert races(mutant, case.programs, case.graphs) == "", (seed, what)
            assert differs(mutant, case.programs, case.graphs, 10, replica) == "", (seed, what)
    return verdicts


def test_changes_that_go_together_are_refused_or_make_no_difference() -> None:
    verdicts: Counter[bool] = Counter()
    for seed in (50003, 50005, 50007, 50010):
        verdicts += check_compounds(seed, 25)
    assert verdicts[True] > 0.6 * verdicts.total()
    assert verdicts[False] > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(51000, 51100))
def test_changes_that_go_together_at_length(seed: int) -> None:
    check_compounds(seed, 60)
