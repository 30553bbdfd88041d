"""Options are one record per command: what click reads, the records take, and they refuse alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessera import PlanOptions, PlanRunOptions, TesseraError
from tessera.cli.analyze import AnalyzeCommand
from tessera.cli.check import CheckCommand
from tessera.cli.given import names_of
from tessera.cli.main import cli
from tessera.cli.plan import PlanCommand
from tessera.cli.profile import ProfileCommand
from tessera.cli.run import RunCommand
from tessera.cli.trace import TraceCommand
from tessera.driver.analyze import AnalyzeOptions
from tessera.driver.profile.profile_trace import ProfileOptions
from tessera.driver.run.open_plan import CheckOptions
from tessera.driver.run.options import KeepOptions
from tessera.driver.run.run_trace import RunOptions
from tessera.frontend.machine.gpus import machine_of
from tessera.ir.options import WrongOption

RECORDS: dict[str, tuple[type, ...]] = {
    "analyze": (AnalyzeCommand, AnalyzeOptions),
    "check": (CheckCommand, CheckOptions, AnalyzeOptions),
    "plan": (PlanCommand, PlanOptions),
    "profile": (ProfileCommand, ProfileOptions),
    "run": (RunCommand, RunOptions, PlanRunOptions, KeepOptions),
    "trace": (TraceCommand,),
}


@pytest.mark.parametrize("command", RECORDS)
def test_every_parameter_is_a_field_of_a_record(command: str) -> None:
    """A parameter that no record has would be read and then forgotten."""
    known = {name for kind in RECORDS[command] for name in names_of(kind)}
    typed = {parameter.name for parameter in cli.commands[command].params} - {"form", "help"}
    assert typed - known == set()


def test_wrong_options_are_said_in_the_words_of_whoever_gave_them() -> None:
    wrong = WrongOption("{strategy} and {placement} exclude each other", " {as} typed")
    assert str(wrong) == "`strategy` and `placement` exclude each other {as} typed"
    said = wrong.spelled(lambda name: f"--{name}")
    assert said == "`--strategy` and `--placement` exclude each other {as} typed"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"prices": ("a100=cheap",)}, "TSR3002"),
        ({"prices": ("a100",)}, "TSR3002"),
        ({"memory": ("l40s=much",)}, "TSR3002"),
    ],
)
def test_texts_of_a_plan_that_cannot_be_read(given: dict[str, Any], code: str) -> None:
    with pytest.raises(TesseraError, match=code):
        PlanOptions(gpus="a100", **given)


def test_texts_and_values_are_the_same_machine(tmp_path: Path) -> None:
    texts = PlanOptions(gpus="a100,l40s", prices=("a100=1.5",), memory=("l40s=40GB",))
    pairs = PlanOptions(gpus="a100,l40s", prices=(("a100", 1.5),), memory=(("l40s", 40 * 10**9),))
    assert texts.find_machine() == pairs.find_machine() != machine_of("a100,l40s")
    with pytest.raises(TesseraError, match="TSR1900"):
        PlanOptions(machine=str(tmp_path / "none.toml")).find_machine()


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"slots": 0}, "TSR5053"),
        ({"requests": 0}, "TSR5053"),
        ({"sequences": "2"}, "TSR5053"),
        ({"limit_s": float("inf")}, "TSR5053"),
        ({"backend": "tpu"}, "TSR5055"),
        ({"targets": "a100"}, "TSR5055"),
        ({"targets": {"a100": "disk"}}, "TSR5055"),
    ],
)
def test_a_run_that_cannot_be_is_refused_when_its_options_are_made(
    given: dict[str, Any], code: str
) -> None:
    with pytest.raises(TesseraError, match=code):
        PlanRunOptions(**given)


def test_targets_as_a_text() -> None:
    text = PlanRunOptions(targets="a100=cuda:0,l40s=cuda:1:48sm")
    assert text.find_targets() == {"a100": "cuda:0", "l40s": "cuda:1:48sm"}
    assert PlanRunOptions(targets={"a": "cpu"}).find_targets() == {"a": "cpu"}
    assert PlanRunOptions().find_targets() == {}


def test_what_a_run_keeps_goes_to_two_files(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="name the same file"):
        KeepOptions(outputs=str(tmp_path / "o"), timeline_file=str(tmp_path / "." / "o"))
    with pytest.raises(ValueError, match="`timeline_file` names a file"):
        KeepOptions(timeline_file="-")
