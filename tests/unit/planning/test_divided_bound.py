"""The bound on divided plans: random shares, twins and wholes have no smaller loads."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.driver.traces import load_traces
from tessera.ir.objectives import THROUGHPUT
from tessera.planning.division.divided_bound import divided_bound
from tessera.planning.division.divided_promises import Divider
from tessera.planning.division.proposals import Shares, find_proposals
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting_problem import build_problem
from tessera.planning.make_plan import setting_of
from tessera.planning.search.candidates import candidate_of
from tests.helpers.share import share


def _divider(folder: Path, gpus: str, batch: int, link: str) -> Divider:
    step = ServingStep(
        model="llama-8b", phase="decode", batch=batch, tokens=1, rows=batch, capacity=1024
    )
    path = folder / "decode.ptx"
    path.write_text(serving_trace(step, 2))
    options = PlanOptions(gpus=gpus, link=link)
    return Divider(setting_of(load_traces([str(path)]), options, Watch()))


def _bound(divider: Divider) -> float:
    problem = build_problem(divider.setting, 2, 2).problem
    return divided_bound(problem, divider.ways.traces, THROUGHPUT)


@pytest.mark.parametrize("seed", share(range(12)))
def test_no_divided_plan_has_less_load_than_the_bound(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    gpus = ",".join(rng.sample(("a100", "l40s", "h100", "l4"), 2))
    link = rng.choice(("10Gb/s", "100Gb/s", "300GB/s"))
    divider = _divider(tmp_path, gpus, rng.choice((1, 8, 64)), link)
    shares = [[rng.random() + 0.05, rng.random() + 0.05] for _ in range(3)]
    rules: list[Shares | None] = [None, *(partial(_same, own) for own in shares)]
    loads = []
    for fixed in rules:
        for proposal in find_proposals(
            divider.ways, divider.setting.machine, is_rate=True, lanes=2, slot_bytes=0, fixed=fixed
        ):
            divided = divider.divided(proposal.divisions)
            problem = build_problem(divided, 2, 2, is_placed=True).problem
            parts = tuple((placement, 1.0) for placement in proposal.replicas)
            loads.append(candidate_of(problem, "parts", parts).period_ns)
    assert loads
    assert min(loads) >= _bound(divider) * (1 - 1e-6)


def _same(shares: Sequence[float], group: Sequence[int]) -> Sequence[float]:
    return shares[: len(group)]


def test_exchanges_are_in_the_bound(tmp_path: Path) -> None:
    slow, fast = (_bound(_divider(tmp_path, "h100,l40s", 64, link)) for link in ("1Gb/s", "1TB/s"))
    assert slow > 1.003 * fast
