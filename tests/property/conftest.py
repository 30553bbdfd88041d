"""Regions that a test holds against a log are as tight as recorded, or the test fails.

`--update-golden` records them again; read the diff. Random cases of Hypothesis are not recorded,
since other versions of it take others.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.helpers.access_oracle import LOOSE
from tests.helpers.golden import record

FILE = Path(__file__).parents[1] / "data" / "tightness.json"
RECORDED: dict[str, list[int]] = json.loads(FILE.read_text("utf-8"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Function) -> Generator[None]:
    """Fails a test that would pass, where regions are not as tight as they were."""
    LOOSE[:] = 0
    yield
    if is_hypothesis_test(item.function) or settings.default != settings.get_profile("ci"):
        return
    name, loose = item.nodeid.removeprefix("tests/property/"), LOOSE.tolist()
    kept = RECORDED.get(name, [0, 0, 0])
    if loose != kept and item.config.getoption("--update-golden"):
        record(FILE, name, loose if any(loose) else None)
        return
    assert loose == kept, f"bytes read and written too many, writes not proven: {loose}, not {kept}"
