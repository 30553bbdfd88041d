"""Changes to launch programs that still parse, counted by kind: what the judge says of them, and
whether an order of operations is found in which they give another result.

`draw` takes single changes (`plan_mutants`, `plan_edits`), several that go together
(`plan_compounds`) and those that keep a plan consistent (`plan_aims`). `judge` counts them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tessera.driver.load import load
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.verify_plan import verify_plan
from tessera.ir.program.program import Role
from tessera.passes.checker.check_plan import check_replica
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.corpus import ROOT
from tests.helpers.divided_plans import divided_steps, launch, program_of
from tests.helpers.plan_aims import AIMED
from tests.helpers.plan_cases import Case, Effect, build, random_case, with_twins
from tests.helpers.plan_compounds import compound
from tests.helpers.plan_edits import edits
from tests.helpers.plan_files import plan_of, replica_of
from tests.helpers.plan_harmless import harmless
from tests.helpers.plan_mutants import mutants
from tests.helpers.plan_simulator import differs
from tests.helpers.served import graph_of

SCHEDULES = 50
TRACES = ROOT / "examples" / "traces"
Changed = tuple[str, Case, LoweredReplica]


@dataclass
class Tally:
    """Counts by kind of change; a kind is followed by what happened to it."""

    changes: Counter[tuple[str, str]] = field(default_factory=Counter)
    harmless: Counter[tuple[str, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def share(self) -> float:
        """How many of the changes that change nothing are accepted."""
        return sum(n for (_, what), n in self.harmless.items() if what == "accepted") / max(
            1, self.harmless.total()
        )


def random_plan(
    seed: int, *, most_steps: int = 6, most_devices: int = 3
) -> tuple[Case, LoweredReplica]:
    """A plan of random steps on some devices and up to three hosts, with tables, parts of buffers
    or twins in some."""
    case = random_case(
        seed,
        most_steps=most_steps,
        most_devices=most_devices,
        tables=seed % 3 == 0,
        wide=seed % 4 == 1,
    )
    if seed % 5 == 0:
        case = with_twins(case, seed)
    rng = random.Random(seed)
    devices = sorted({device for row in case.placements for device in row})
    replica = lower_replica(
        case.programs,
        case.graphs,
        case.placements,
        slots=rng.choice([1, 2, 2, 3]),
        lanes=rng.choice([1, 2, 2]),
        roomy=[device for device in devices if rng.random() < 0.3],
        hosts={device: str(at % (1 + seed % 3)) for at, device in enumerate(devices)},
    )
    return case, replica


def crowded_plan(seed: int) -> tuple[Case, LoweredReplica]:
    """A plan of a chain of steps over temps of many sizes, which share little memory."""
    rng = random.Random(seed)
    sizes = {f"t{n}": rng.choice([0, 64, 256, 300, 700, 1300, 2000]) for n in range(12)}
    buffers = [("i", 600, Role.INPUT), ("o", 600, Role.OUTPUT)]
    buffers += [(name, size, Role.TEMP) for name, size in sizes.items()]
    made: list[tuple[str, int]] = [("i", 600)]
    steps: list[list[Effect]] = []
    for name, size in (*rng.sample(sorted(sizes.items()), len(sizes)), ("o", 600)):
        if size:
            read = [("read", *rng.choice(made[-4:])) for _ in range(rng.randint(1, 2))]
            first = rng.choice([0, 0, size // 2])
            step: list[Effect] = [(other, how, Interval(0, end)) for how, other, end in read]
            steps.append([*step, (name, "must", Interval(first, size))])
            if first == 0:
                made.append((name, size))
        elif rng.random() < 0.5:
            steps.append([(name, "must", Interval(0, 0)), ("o", "must", Interval(0, 64))])
    program, graph = build(buffers, steps)
    placement = tuple(rng.choice("aab" if seed % 2 else "abc") for _ in steps)
    case = Case((program,), (graph,), (placement,))
    hosts = {device: str(n % (1 + seed % 3)) for n, device in enumerate("abc")}
    replica = lower_replica((program,), (graph,), (placement,), slots=2, lanes=1, hosts=hosts)
    return case, replica


def placed_plan(names: Sequence[str], seed: int) -> tuple[Case, LoweredReplica]:
    """A plan of example traces that share states, placed at random: alone, or in runs of steps."""
    programs = (
        [divided_steps()]
        if names == ("divided",)
        else [load(TRACES / f"{name}.ptx") for name in names]
    )
    graphs = [graph_of(program) for program in programs]
    rng = random.Random(seed)
    placements = []
    for program in programs:
        work = [int(one.id) for one in program.work()]
        wide = 1 if seed % 2 else max(1, len(work) // 4)
        row = [rng.choice("abc") for _ in range(len(work) // wide + 1)]
        places = {step: row[step // wide] for step in work}
        for group in program.twins:
            places |= dict(zip(map(int, group), rng.sample("abc", len(group)), strict=True))
        placements.append(tuple(places.values()))
    case = Case(tuple(programs), tuple(graphs), tuple(placements))
    hosts = {device: str(n % (1 + seed % 2)) for n, device in enumerate("abc")}
    replica = lower_replica(programs, graphs, placements, slots=2, lanes=2, roomy="a", hosts=hosts)
    return case, replica


def judge(
    name: str,
    case: Case,
    replica: LoweredReplica,
    seed: int,
    most: int,
    tally: Tally,
    *,
    run_refused: bool,
) -> None:
    """Try `most` changes of a plan that may matter, and half as many that do not."""
    rng = random.Random(seed)
    assert not _refused(case, replica)
    assert parses(case, replica)
    tried = 0
    for kind, other, changed in draw(rng, case, replica):
        if tried == most:
            break
        if not parses(other, changed):
            tally.changes[kind, "does not parse"] += 1
            continue
        tried += 1
        refused = _refused(other, changed)
        tally.changes[kind, "refused" if refused else "accepted"] += 1
        if refused and not run_refused:
            continue
        found = differs(changed, other.programs, other.graphs, SCHEDULES, replica)
        tally.changes[kind, "different"] += bool(found)
        if found and not refused:
            tally.faults.append(f"{name}, seed {seed}: {kind}: {found}")
    for _ in range(most // 2):
        made = harmless(rng, case, replica)
        if made is None:
            continue
        kind, other, changed = made
        refused = _refused(other, changed)
        tally.harmless[kind, "refused" if refused else "accepted"] += 1
        if refused:
            tally.refused.append(f"{name}, seed {seed}: {kind}: {refused}")
        if (not refused or run_refused) and rng.random() < 0.2:
            found = differs(changed, other.programs, other.graphs, SCHEDULES, replica)
            if found:
                tally.faults.append(f"{name}, seed {seed}: {kind}, which changes nothing: {found}")


def _refused(case: Case, replica: LoweredReplica) -> str:
    found = check_replica(replica, case.programs, case.graphs, case.placements)
    return f"{found[0].code} {found[0].headline}" if found else ""


def draw(rng: random.Random, case: Case, replica: LoweredReplica) -> Iterator[Changed]:
    """Changes without end; single ones of each kind alike. Some change nothing at all."""
    singles = [*mutants(replica, case.programs), *edits(replica, case.programs)]
    kinds: dict[str, list[tuple[str, LoweredReplica]]] = {}
    for what, changed in singles:
        kinds.setdefault(what.split()[0], []).append((what, changed))
    while True:
        which = rng.random()
        if which < 0.3:
            name = rng.choice(list(AIMED))
            made = AIMED[name](rng, case, replica)
            if made is not None:
                yield (name, *made)
        elif which < 0.5:
            found = compound(rng, replica, singles)
            if found is not None:
                yield "together", case, found[1]
        else:
            kind = rng.choice(list(kinds))
            yield kind, case, rng.choice(kinds[kind])[1]


# --- what parses -----------------------------------------------------------------------------


@cache
def _template() -> Plan:
    program = program_of(launch("plain", "h", "x"))
    return plan_of([program], [["g0"]], slots=1, lanes=1)


def parses(case: Case, replica: LoweredReplica) -> bool:
    """Whether a plan file with these programs would be read."""
    own = _template()
    used = {
        name: sum(max(0, a.bytes) * max(0, a.count) for a in replica.areas if a.device == name)
        for name in replica.devices
    }
    if any(size > own.cards[0].capacity_bytes for size in used.values()):
        return False
    cards = tuple(replace(own.cards[0], name=name, used_bytes=size) for name, size in used.items())
    shares = [1 / len(case.programs)] * len(case.programs)
    try:
        plan = replace(
            own,
            cards=cards,
            devices=tuple(replace(own.devices[0], name=c.name, card=c.name) for c in cards),
            traces=tuple(
                replace(own.traces[0], name=f"t{n}", share=share) for n, share in enumerate(shares)
            ),
            replicas=(
                replace(
                    replica_of(case.programs, case.graphs, case.placements, replica),
                    shares=(1.0,) * len(shares),
                ),
            ),
        )
    except (ValueError, IndexError):
        return False
    return next(verify_plan(plan), None) is None
