"""Sentences about gains, over the whole range of their figures: none contradicts the figures."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.driver.diff_plans import FigurePair
from tessera.ir.choices import Ending
from tessera.planning.promise.doubt import Doubt, Standing
from tessera.report.diff import pair_row
from tessera.report.plan import _doubt

ENDS = (-0.4, -0.1, 0.0, 0.1, 0.4)
BARS = [(low, gain, high) for low, gain, high in product(ENDS, repeat=3) if low < high]


def doubt_of(low: float, gain: float, high: float) -> Doubt:
    wins = 1.0 if low > 0 else 0.0 if high < 0 else 0.5
    return Doubt(split="kernel", rival="dp", gain=gain, low=low, high=high, wins=wins, causes=())


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize(("low", "gain", "high"), BARS)
def test_whether_a_split_pays(low: float, gain: float, high: float, given: bool) -> None:
    doubt = doubt_of(low, gain, high)
    ended = Ending.GIVEN if given else Ending.GAP
    report: Any = SimpleNamespace(
        decision=SimpleNamespace(doubt=doubt), plan=SimpleNamespace(ended=ended)
    )
    figures, *rest = _doubt(report)
    assert f"{gain:+.1%}, {low:+.1%} to {high:+.1%}" in figures
    text = " ".join(rest)
    assert ("`dp` is ahead" in text) == (high < 0 and gain < 0)
    assert ("do not tell" in text) == (not doubt.is_sure and not (high < 0 and gain < 0))
    assert ("so it is not taken" in text) == (not doubt.is_sure and not given)


@pytest.mark.parametrize(("low", "gain", "high"), BARS)
def test_no_ranking_against_the_figure(low: float, gain: float, high: float) -> None:
    standing = doubt_of(low, gain, high).standing
    assert (standing is Standing.AHEAD) == (low > 0 and gain > 0)
    assert (standing is Standing.BEHIND) == (high < 0 and gain < 0)


@pytest.mark.parametrize(
    ("unit", "before", "after", "change"),
    [
        ("share", 1e-6, 3.5e-6, ""),  # both are printed as 0.00%
        ("share", 0.0, 0.427, "+42.70 points"),
        ("share", 0.05, 0.02, "-3.00 points"),
        ("ns", 100.0, 150.0, "+50.0%"),
        ("ns", 100.0, None, ""),
        ("bytes", 0.0, 8.0, ""),
    ],
)
def test_a_change(unit: str, before: float, after: float | None, change: str) -> None:
    row = pair_row(FigurePair(name="gap", unit=unit, before=before, after=after))
    assert row[3] == change
