"""What the judge of plans says of changes that still parse, by kind of change.

    python -m benchmarks.planning.plan_changes [--plans N] [--each M] [--seconds S]
        [--rows FILE] [-o FILE]

Plans of random steps on one to three devices and hosts, and of example traces and kernels with
parts and twins, placed at random. Each change runs in 50 random orders of operations, with requests
that overlap, against one device; `different` counts those that give another result, never end or
touch what is not there. All of these must be refused (`accepted_though_different` must be 0), and
nearly all changes that provably change nothing must be accepted. A row per plan is kept in
`--rows`, and the same command goes on where it ended.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.common import ROOT, Row, add_row, arguments, machine, read_rows, write
from tessera.ir.plan.launch_program import LoweredReplica
from tests.helpers.plan_cases import Case
from tests.helpers.plan_changes import SCHEDULES, Tally, judge, placed_plan, random_plan

EXAMPLES = (
    ("mlp",),
    ("dit",),
    ("gpt_steps_prefill", "gpt_steps_decode"),
    ("llama_steps_prefill", "llama_steps_decode"),
    ("recurrent_steps_prefill", "recurrent_steps_decode"),
    ("mixed_steps_3", "mixed_steps_8"),
    ("divided",),
    ("llama_decode",),
    ("llama_prefill",),
    ("mmdit",),
    ("moe",),
    ("mamba",),
    ("vision_language",),
)
LARGE = 5  # of the last ones, whose many cells take time, fewer changes are tried


def plans(
    count: int, each: int
) -> Iterator[tuple[str, int, int, Callable[[], tuple[Case, LoweredReplica]]]]:
    """Names, seeds, how many changes, and what makes the plan."""
    for seed in range(5000, 5000 + count):
        yield "random", seed, each, partial(random_plan, seed)
    for place, names in enumerate(EXAMPLES):
        is_large = place >= len(EXAMPLES) - LARGE
        for seed in range(1 if is_large else 2):
            most = max(4, each // (10 if is_large else 3))
            yield " and ".join(names), seed, most, partial(placed_plan, names, seed)


def summary(rows: list[Row]) -> Row:
    """Counts of all plans, by kind of change."""
    kinds: dict[str, Counter[str]] = {}
    harmless: dict[str, Counter[str]] = {}
    for row in rows:
        for found, table in ((row["changes"], kinds), (row["harmless"], harmless)):
            for kind, what, count in found:
                table.setdefault(kind, Counter())[what] += count
    total = sum(kinds.values(), Counter())
    sure = sum(harmless.values(), Counter())
    tried = total["refused"] + total["accepted"]
    return {
        "plans": len(rows),
        "plans_of_examples": sum(row["plan"] != "random" for row in rows),
        "orders_of_operations": SCHEDULES,
        "changes_that_parse": tried,
        "changes_that_do_not": total["does not parse"],
        "different": total["different"],
        "refused": total["refused"],
        "accepted": total["accepted"],
        "accepted_though_different": sum(len(row["faults"]) for row in rows),
        "changes_that_change_nothing": sure.total(),
        "of_these_accepted": sure["accepted"],
        "by_kind": {kind: dict(sorted(own.items())) for kind, own in sorted(kinds.items())},
        "that_change_nothing_by_kind": {k: dict(own) for k, own in sorted(harmless.items())},
    }


def main() -> None:
    parser = arguments(__doc__, "plan_changes.json")
    parser.add_argument("--plans", type=int, default=300, help="plans of random steps")
    parser.add_argument("--each", type=int, default=30, help="changes of each plan")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no plan after this")
    parser.add_argument("--rows", type=Path, default=ROOT / "out" / "plan_changes.jsonl")
    given = parser.parse_args()
    begun = time.monotonic()
    known = {(row["plan"], row["seed"]) for row in read_rows(given.rows)}
    for name, seed, most, make in plans(given.plans, given.each):
        if (name, seed) in known or time.monotonic() - begun > given.seconds:
            continue
        tally = Tally()
        judge(name, *make(), seed, most, tally, run_refused=True)
        for fault in (*tally.faults, *tally.refused):
            print(fault, flush=True)
        row = {
            "plan": name,
            "seed": seed,
            "changes": [[*key, count] for key, count in tally.changes.items()],
            "harmless": [[*key, count] for key, count in tally.harmless.items()],
            "faults": tally.faults,
        }
        add_row(given.rows, row)
    found = {"benchmark": "plan_changes", **machine(), **summary(read_rows(given.rows))}
    write(found, given.output)
    print({name: value for name, value in found.items() if "by_kind" not in name})


if __name__ == "__main__":
    main()
