"""Changes to a lowered replica that provably change nothing: the judge of plans should accept them.

What is used of a replica is that it is right, and its text; nothing of the judge. Some change the
names of devices or which of several twins runs where, so placements come along.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tessera.ir.plan.launch_program import LoweredReplica
from tests.helpers import plan_harmless_memory as memory
from tests.helpers import plan_harmless_operations as operations
from tests.helpers.plan_cases import Case
from tests.helpers.plan_harmless_operations import Changed


def harmless(
    rng: random.Random, case: Case, replica: LoweredReplica, kinds: Sequence[str] = ()
) -> tuple[str, Case, LoweredReplica] | None:
    """One change and its kind; None if there is none of the kind that was drawn."""
    kind = rng.choice(kinds or list(KINDS))
    made = KINDS[kind](rng, case, replica)
    return None if made is None or made == (case, replica) else (kind, *made)


KINDS: dict[str, Callable[[random.Random, Case, LoweredReplica], Changed | None]] = {
    one.__name__.replace("_", " "): one
    for one in (
        operations.other_events,
        operations.other_numbers,
        operations.other_landings,
        operations.other_order_of_records,
        operations.other_mix_of_queues,
        operations.more_events,
        operations.more_waits,
        operations.exchanged_waits,
        operations.exchanged_operations,
        operations.exchanged_transfers,
        operations.split_transfers,
        operations.joined_transfers,
        memory.larger_areas,
        memory.memory_of_its_own,
        memory.more_places,
        memory.exchanged_places,
        memory.fewer_frees,
        memory.more_copies,
        memory.other_gate,
        memory.other_names,
        memory.exchanged_twins,
    )
}
