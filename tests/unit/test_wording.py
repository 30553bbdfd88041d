"""Texts for people are shown and joined; a decision by one of them does not pass `mypy`."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
from mypy import api

from tessera.ir.graph.access import Pin
from tessera.wording import Wording

ROOT = Path(__file__).parents[2]
# Deliberate violations, one a line: each is a decision by the wording of a text.
VIOLATIONS = (
    'why == "it is cut"',
    'why != "it is cut"',
    'why == Wording("it is cut")',
    '"cut" in why',
    'why in ("cut", "lost")',
    'why.startswith("cut")',
    'why.find("cut")',
    'why < Wording("it is cut")',
    "why[0]",
    "len(why)",
    '{"cut": 1}[why]',
    're.search("cut", why)',
    "name = why",
    "bool(1) if why else bool(0)",
)
# What a text for people is for.
USES = ('f"refused: {why}"', 'str(why + ", here")', 'Wording.join([why, "and so"])', "why is why")


def test_wordings_are_shown_and_joined() -> None:
    why = Wording("it is cut")
    assert str(why) == "it is cut"
    assert f"{why:>12}|" == "   it is cut|"
    assert str("yes, " + why + "; " + Wording("gone")) == "yes, it is cut; gone"
    assert str(Wording.join([why, "gone"])) == "it is cut, gone"
    assert repr(why) == "Wording('it is cut')"


def test_records_of_wordings_are_compared() -> None:
    assert (1, Wording("a")) == (1, Wording("a"))
    assert (1, Wording("a")) != (1, Wording("b"))
    assert len({Wording("a"), Wording("a"), Wording("b")}) == 2
    assert pickle.loads(pickle.dumps(Wording("a"))) == Wording("a")


def test_records_of_wordings_are_taken_apart_as_far_as_the_wording() -> None:
    pin = Pin(Wording("a"))
    assert asdict(pin)["reason"] == Wording("a")


@pytest.mark.parametrize("decide", [lambda why: why == "a", lambda why: why in ("a", "b"), bool])
def test_a_decision_stops_at_run_time_too(decide: object) -> None:
    with pytest.raises(TypeError, match="a wording is"):
        decide(Wording("a"))


def test_mypy_refuses_every_decision(tmp_path: Path) -> None:
    lines = ["import re", "from wording import Wording", "name, why = '', Wording('')"]
    file = tmp_path / "violations.py"
    file.write_text("\n".join([*lines, *VIOLATIONS, *USES]))
    # Alone: below `tessera`, it is typed after the whole package.
    own = shutil.copy(ROOT / "tessera" / "wording.py", tmp_path)
    out, err, _ = api.run(["--config-file", str(ROOT / "pyproject.toml"), str(file), own])
    assert not err
    refused = {
        int(line.split(".py:")[1].split(":")[0]) for line in out.splitlines() if ": error:" in line
    }
    first = len(lines) + 1
    assert refused == set(range(first, first + len(VIOLATIONS))), out
