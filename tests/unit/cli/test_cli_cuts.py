"""`tessc analyze --why-not-cut`: how steps can be cut, as text and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = "examples/traces/mlp.ptx"


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_the_page_shows_what_it_prints() -> None:
    page = (ROOT / "docs" / "concepts" / "parts.md").read_text("utf-8")
    session = page.split("```console\n")[1].split("```")[0]
    for shown in session.split("$ tessc ")[1:]:
        command, _, output = shown.partition("\n")
        outcome = tessc(*(word.strip('"') for word in command.split()))
        assert (outcome.code, outcome.text) == (0, output)


@pytest.mark.parametrize("step", ["#4", "count_positive", "m*.count_*"])
def test_a_step_has_a_number_and_names(step: str) -> None:
    outcome = tessc("analyze", MLP, "--why-not-cut", step, "--json")
    assert outcome.code == 0
    value = json.loads(outcome.text)
    assert value["schema"] == "tessera-cuts/1"
    assert value["steps"] == [
        {
            "step": 4,
            "name": "count_positive",
            "axes": [],
            "refused": [
                {
                    "axis": None,
                    "reason": "`atom.global.add.u32` makes its CTAs share bytes of `active`",
                    "place": f"{MLP}:500:2",
                }
            ],
        }
    ]


def test_axes_say_where_they_were_tried() -> None:
    outcome = tessc("analyze", MLP, "--why-not-cut", "relu", "--json")
    (step,) = json.loads(outcome.text)["steps"]
    (axis,) = step["axes"]
    assert axis == {"axis": "x", "extent": 18, "multiple": 1, "tried": [1, 9, 17]}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("8",), "`--why-not-cut` `8`: steps are #0 to #7"),
        (("lineer",), "no step has that name; did you mean `linear`?"),
        (("4", "--full"), "`--why-not-cut` goes with `--json` alone"),
        (("4", "--why", "0:1"), "`--why-not-cut` goes with `--json` alone"),
        (("4", "-k", "relu"), "`--why-not-cut` goes with `--json` alone"),
    ],
)
def test_questions_that_have_no_answer(arguments: tuple[str, ...], reason: str) -> None:
    outcome = tessc("analyze", MLP, "--why-not-cut", *arguments)
    assert (outcome.code, outcome.text) == (2, "")
    assert reason in outcome.err


def test_a_file_without_steps_has_nothing_to_cut(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n")
    outcome = tessc("analyze", str(path), "--why-not-cut", "k")
    assert outcome.code == 2
    assert "there are no steps, so nothing can be cut" in outcome.err
