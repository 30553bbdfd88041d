"""Regions that a test holds against a log are as tight as recorded, or the test fails.

`--update-golden` records them again; read the diff. Random cases of Hypothesis are not recorded,
since other versions of it take others.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from tests.helpers.access_oracle import LOOSE

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
        _record(name, loose)
        return
    assert loose == kept, f"bytes read and written too many, writes not proven: {loose}, not {kept}"


def _record(name: str, loose: list[int]) -> None:
    with FILE.open("r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # there may be other workers
        recorded = json.load(file) | {name: loose}
        lines = [f"{json.dumps(n)}: {recorded[n]}" for n in sorted(recorded) if any(recorded[n])]
        file.seek(0)
        file.truncate()
        file.write("{\n" + ",\n".join(lines) + "\n}\n")
