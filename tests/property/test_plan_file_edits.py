"""Plan files with one thing changed by hand: refused, or shown to make no difference.

Every line of a plan is left out, doubled and moved; every number and name in it becomes another.
What the judge then accepts has the same records, or differs in what only tells (predictions, names
of where numbers come from), or gives the bytes of one device in every order: `plan_races` finds
nothing unordered and `plan_simulator` gets the bytes right.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.runtime import Runtime
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.plan.tsp_machine import machine_flaws
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.plan.verify_predictions import verify_predictions
from tessera.ir.program.program import Program
from tessera.passes.checker.check_plan import check_plan
from tests.helpers.command import tessc
from tests.helpers.plan_files import plan_of
from tests.helpers.plan_races import races
from tests.helpers.plan_simulator import differs
from tests.helpers.served import graph_of
from tests.helpers.share import share
from tests.helpers.wild_traces import shared_buffers, wild_trace

NUMBER = re.compile(r"(?<![\w.\"-])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w\"])")
NAME = re.compile(r'(?<==)"[^"]*"')
ODD = ["0", "-1", str(1 << 62), str(1 << 70), "9" * 400, "1e308", "1e999", "nan", "null", ""]
TELLING = {"machine_digest": "f" * 64, "link": "?", "options": "?", "strategy": "?"}


@cache
def made(seed: int) -> tuple[str, Plan, tuple[Program, ...], tuple[KernelGraph, ...]]:
    """A plan of one or two traces with everything in them, on two or three devices."""
    rng = random.Random(seed)
    shared = shared_buffers(rng)
    count = rng.choice([1, 2])
    traces = [parse_trace(wild_trace(seed + 1000 * n, shared), "t.ptx") for n in range(count)]
    devices = "abc"[: rng.choice([2, 3])]
    placements = [[rng.choice(devices) for _ in program.work()] for program in traces]
    made = plan_of(
        traces,
        placements,
        slots=rng.choice([1, 2, 8]),
        lanes=rng.choice([1, 3]),
        shares=[1 / count] * count,
    )
    text = print_plan(made)
    plan = parse_plan(text)
    programs = tuple(parse_trace(one.text, "t.ptx") for one in plan.traces)
    return text, plan, programs, tuple(map(graph_of, programs))


def changes(text: str, rng: random.Random) -> Iterator[str]:
    """The text with one line or one value of the plan changed; its traces stay."""
    lines = text.split("\n")
    end = next(number for number, line in enumerate(lines) if line.startswith("|"))
    names = sorted({name for line in lines[:end] for name in NAME.findall(line)})
    numbers = sorted({number for line in lines[:end] for number in NUMBER.findall(line)})
    for at in range(end):
        line, rest = lines[at], lines[:at] + lines[at + 1 :]
        to = rng.randrange(end)
        yield "\n".join(rest)
        yield "\n".join([*lines[: at + 1], *lines[at:]])
        yield "\n".join([*rest[: at + 1], line, *rest[at + 1 :]])
        yield "\n".join([*rest[:to], line, *rest[to:]])
        for match in NUMBER.finditer(line):
            near = [str(int(match[0]) + by) for by in (-1, 1, 256)] if match[0].isdigit() else []
            for new in (*near, rng.choice(ODD), rng.choice(numbers)):
                yield "\n".join([*lines[:at], _with(line, match, new), *lines[at + 1 :]])
        for match in NAME.finditer(line):
            for new in (rng.choice(names), rng.choice(['""', '"host"', '"\\u0000"', "x"])):
                yield "\n".join([*lines[:at], _with(line, match, new), *lines[at + 1 :]])


def _with(line: str, match: re.Match[str], new: str) -> str:
    return line[: match.start()] + new + line[match.end() :]


def judged(
    text: str, programs: tuple[Program, ...], graphs: tuple[KernelGraph, ...]
) -> Plan | None:
    """The plan in a text, if it is read and proved: what `driver.run.open_plan` asks of a file."""
    try:
        plan = parse_plan(text)
    except TesseraError:
        return None
    if [*verify_predictions(plan), *machine_flaws(plan)]:
        return None
    return None if check_plan(plan, programs, graphs) else plan


def doing(plan: Plan) -> list[object]:
    """What a run does; all else only tells."""
    placed = [[(s.device, s.arch) for s in t.steps] for r in plan.replicas for t in r.traces]
    return [[(r.policy, r.lowered) for r in plan.replicas], placed]


def harm(
    replica: LoweredReplica, programs: tuple[Program, ...], graphs: tuple[KernelGraph, ...]
) -> str:
    return races(replica, programs, graphs) or differs(replica, programs, graphs, 10)


def check_edits(seed: int, most: int) -> Counter[str]:
    text, plan, programs, graphs = made(seed)
    assert judged(text, programs, graphs) == plan
    rng = random.Random(seed)
    every = [one for one in changes(text, rng) if one != text]
    verdicts: Counter[str] = Counter()
    for edited in rng.sample(every, min(most, len(every))):
        found = judged(edited, programs, graphs)
        if found is None:
            verdicts["refused"] += 1
        elif doing(found) == doing(plan):
            verdicts["the same"] += 1
        else:
            verdicts["no difference"] += 1
            for replica in found.replicas:
                problem = harm(replica.lowered, programs, graphs)
                assert problem == "", (seed, set(edited.split("\n")) - set(text.split("\n")))
    return verdicts


def test_every_edit_is_refused_or_makes_no_difference() -> None:
    verdicts: Counter[str] = Counter()
    for seed in (3, 8, 11, 14):
        verdicts += check_edits(seed, len(share(range(90))))
    assert verdicts["refused"] > 0.85 * verdicts.total()
    assert min(verdicts.values()) > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_every_edit_is_refused_or_makes_no_difference_at_length(seed: int) -> None:
    check_edits(seed, 10**9)


# --- what a check refuses does not run -------------------------------------------------------


def without(kind: str, text: str) -> str:
    """The text without its first line of a kind."""
    return re.sub(rf"(?m)^ +{kind} .*\n", "", text, count=1)


BROKEN = {
    "a wait is missing": lambda text: without("compute wait", text),
    "a transfer is missing": lambda text: without("out send", text),
    "a transfer is short": lambda text: text.replace('"b" bytes=0:32', '"b" bytes=0:28'),
    "an order is swapped": lambda text: re.sub(
        r"(?m)^( +compute launch \d+\n)( +compute record \d+\n)", r"\2\1", text, count=1
    ),
    "a step is elsewhere": lambda text: re.sub(r'(step 0 .*device=)"a"', r'\1"b"', text, count=1),
    "a buffer is reused": lambda text: re.sub(
        r'(device="b" kind="slot" offset=)256', r"\g<1>0", text, count=1
    ),
    "a state is in a slot": lambda text: text.replace(
        'kind="lane" offset=', 'kind="slot" offset=', 1
    ),
    "waits go round": lambda text: text.replace("in recv 2\n", "in wait 2\n      in recv 2\n"),
    "memory is full": lambda text: re.sub(r"capacity_bytes=\d+", "capacity_bytes=64", text),
    "a digest is none": lambda text: re.sub(r'machine_digest="\w+"', 'machine_digest="x"', text),
}
TRACE = """//! tessera.trace 1
//! buffer x bytes=64 role=input
//! buffer t bytes=64 role=temp
//! buffer s bytes=64 role=state
//! buffer y bytes=64 role=output
//! memcpy t x bytes=64
//! memcpy s+32 t bytes=32
//! memcpy y t bytes=64
"""


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_refused_does_not_run(what: str, tmp_path: Path) -> None:
    plan = plan_of([parse_trace(TRACE, "t.ptx")], [["a", "b", "b"]])
    good = print_plan(plan)
    text = BROKEN[what](good)
    assert text != good
    path = tmp_path / "plan.tsp"
    path.write_text(good)
    assert tessc("check", str(path)).code == 0
    path.write_text(text)
    outcomes = [tessc("check", str(path)), tessc("run", str(path), "--backend", "cpu")]
    assert [one.code for one in outcomes] == [1, 1]
    with pytest.raises(TesseraError) as failure:
        Runtime(str(path), backend="cpu")
    code = failure.value.diagnostics[0].code
    for one in outcomes:
        assert one.err.startswith("error[TSR"), one.err
        assert f"error[{code}]" in one.err
        assert "Traceback" not in one.err


def test_what_only_tells_may_change() -> None:
    _, plan, programs, graphs = made(3)
    changed = replace(plan, **TELLING)  # type: ignore[arg-type]
    assert judged(print_plan(changed), programs, graphs) == changed
    for digest in ("", "f" * 63, "F" * 64, "g" * 64):
        assert judged(print_plan(replace(plan, machine_digest=digest)), programs, graphs) is None
