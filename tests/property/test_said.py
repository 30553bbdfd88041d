"""What is said of code and programs is what was said before, to the letter.

`tests/data/said.json` has a digest for each case; `--update-golden` writes them anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.helpers.golden import record
from tests.helpers.said import SAID, said

FILE = Path(__file__).parents[1] / "data" / "said.json"
SEEDS = {"code": 180, "soup": 60, "values": 160, "runs": 100, "plans": 20}
PARTS = [(kind, first) for kind in SAID for first in range(0, SEEDS.get(kind, 20), 20)]


@pytest.mark.parametrize(("kind", "first"), PARTS)
def test_the_same_is_said(kind: str, first: int, update_golden: bool) -> None:
    seeds = range(first, first + 20)
    found = [hashlib.sha256(said(kind, seed).encode()).hexdigest()[:6] for seed in seeds]
    name = f"{kind} {first}"
    if update_golden:
        record(FILE, name, found)
        return
    kept = json.loads(FILE.read_text("utf-8"))[name]
    other = [seed for seed, old, new in zip(seeds, kept, found, strict=True) if old != new]
    assert not other, f"compare `python -m tests.helpers.said {kind} {other[0]}` with and without"
