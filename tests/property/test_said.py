"""What is said of code and programs is what was said before, to the letter.

`tests/data/said.json` has the cases that `tests/choose_said.py` chose, each with a digest;
`--update-golden` writes the digests anew.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.golden import record
from tests.helpers.said import digest

FILE = Path(__file__).parents[1] / "data" / "said.json"
CASES: dict[str, list[str]] = json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("part", CASES)
def test_the_same_is_said(part: str, update_golden: bool) -> None:
    kind = part.split()[0]
    seeds = [one.split()[0] for one in CASES[part]]
    found = [f"{seed} {digest(kind, int(seed))}" for seed in seeds]
    if update_golden:
        record(FILE, part, found)
        return
    other = [seed for seed, old, new in zip(seeds, CASES[part], found, strict=True) if old != new]
    assert not other, f"compare `python -m tests.helpers.said {kind} {other[0]}` with and without"
