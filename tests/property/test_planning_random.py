"""Random traces on random machines: a plan fits, is proved, and no baseline beats it.

Memory and the baselines are read from the text of the plan, by other means than the reader's.
"""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.plan.print_plan import print_plan
from tessera.planning.promise.doubt import Doubt
from tests.helpers.share import share

GIGA = 1_000_000_000
GPUS = ("a100", "l40s", "h100", "rtx-pro-6000", "h200:60sm,h200:60sm")
VALUE = {"throughput": "period_ns", "latency": "latency_ns", "cost": "usd_per_request"}


def random_trace(rng: random.Random) -> str:
    """Copies and fills between buffers of every role; some states, some strided reuse."""
    lines = ["//! tessera.trace 1"]
    sizes: dict[str, int] = {}
    weights = [f"w{n}" for n in range(rng.randint(1, 4))]
    states = [f"s{n}" for n in range(rng.randint(0, 2))]
    temps = [f"t{n}" for n in range(rng.randint(1, 4))]
    for names, role, most in ((weights, "weight", 30), (states, "state", 3), (temps, "temp", 3)):
        for name in names:
            sizes[name] = rng.randrange(1, most * 100) * (GIGA // 100)
            lines.append(f"//! buffer {name} bytes={sizes[name]} role={role}")
    for name, role in (("x", "input"), ("y", "output")):
        sizes[name] = rng.randrange(1, 50) * 1_000_000
        lines.append(f"//! buffer {name} bytes={sizes[name]} role={role}")
    written = ["x", *states]
    for _ in range(rng.randint(3, 12)):
        target = rng.choice([*temps, *states, "y"])
        source = rng.choice([*weights, *written])
        if source == target or rng.random() < 0.15:
            count = rng.randrange(1, sizes[target] + 1)
            lines.append(f"//! memset {target} bytes={count} value=0x00")
        else:
            count = rng.randrange(1, min(sizes[target], sizes[source]) + 1)
            at, behind = (rng.choice([0, sizes[name] - count]) for name in (target, source))
            lines.append(f"//! memcpy {target}+{at} {source}+{behind} bytes={count}")
        written.append(target)
    return "\n".join(lines) + "\n"


def check(text: str, objective: str, doubt: Doubt | None) -> None:
    """From the letters of the file."""
    used: dict[str, int] = {}
    for device, size, count in re.findall(
        r'^  area device="([^"]+)" kind="\w+" bytes=(\d+) count=(\d+)$', text, re.MULTILINE
    ):
        used[device] = used.get(device, 0) + int(size) * int(count)
    cards = dict(re.findall(r'^device name="([^"]+)" card="([^"]+)"', text, re.MULTILINE))
    room = dict(re.findall(r'^card name="([^"]+)" .*capacity_bytes=(\d+)', text, re.MULTILINE))
    for card, capacity in room.items():
        total = sum(size for device, size in used.items() if cards[device] == card)
        assert total <= int(capacity)
    key = VALUE[objective]
    mine = re.search(rf"^plan .*\b{key}=(\S+)", text, re.MULTILINE)
    bound = re.search(r"^plan .*\bbound=(\S+)", text, re.MULTILINE)
    assert mine is not None
    assert bound is not None
    assert float(bound[1]) <= float(mine[1]) * (1 + 1e-9)
    held_back = doubt is not None and not doubt.is_sure  # a split, for its error bars
    for other in re.findall(rf"^baseline .*\b{key}=(\S+)", text, re.MULTILINE):
        assert held_back or float(mine[1]) <= float(other) * (1 + 1e-9)


def attempt(path: Path, options: PlanOptions) -> PlanReport | TesseraError:
    try:
        return plan(str(path), options, compare=False)
    except TesseraError as failure:
        return failure


def run(folder: Path, seed: int) -> str:
    """Plan one instance; what came of it."""
    rng = random.Random(seed)
    path = folder / "t.ptx"
    path.write_text(random_trace(rng))
    chosen = rng.sample(GPUS, rng.randint(1, 3))
    memory = tuple(
        (name, rng.randrange(2, 24) * GIGA) for name in {n.partition(":")[0] for n in chosen}
    )
    objective = rng.choice(list(VALUE))
    options = PlanOptions(
        gpus=",".join(chosen),
        objective=objective,
        memory=memory,
        link=rng.choice(["1Gb/s", "100Gb/s", "pcie4"]),
    )
    found = attempt(path, options)
    if isinstance(found, TesseraError):
        assert found.exit_code == 3, found
        assert found.diagnostics[0].code in ("TSR3010", "TSR3011"), found
        assert found.diagnostics[0].hint is not None
        return "refused"
    # A candidate that is given up is a disagreement between planner and lowering.
    given_up = [one for one in found.diagnostics if one.code == "TSR3018"]
    assert not [one for one in given_up if "need" not in str(one.headline)], given_up
    text = print_plan(found.plan)
    check(text, objective, found.decision.doubt)
    assert print_plan(parse_plan(text)) == text
    split = any(len(replica.lowered.devices) > 1 for replica in found.plan.replicas)
    return "split" if split else "whole"


def test_random_instances(tmp_path: Path) -> None:
    came = [run(tmp_path, seed) for seed in share(range(40))]
    assert {"split", "whole", "refused"} <= set(came)


@pytest.mark.slow
def test_many_random_instances(tmp_path: Path) -> None:
    came = [run(tmp_path, seed) for seed in range(1000, 2000)]
    assert min(came.count(kind) for kind in ("split", "whole", "refused")) > 30
