"""`tessc run --verify` on slices of a real GPU, with plans of an analysis that misses a read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.cuda.doctor import check_machine
from tests.helpers.command import Outcome, tessc
from tests.helpers.dropped_reads import CASES, Case, dropped
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.word_traces import word_trace

MACHINE = check_machine()
SLICES = "a=cuda:0:84sm,b=cuda:0:48sm"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MACHINE.gpus, reason=f"no GPU: {MACHINE.problem}"),
]


def verified(folder: Path, case: Case, *more: str) -> Outcome:
    targets = ",".join(part for part in SLICES.split(",") if part[0] in case.places)
    path = write_plan(folder, case.plan(slots=2, lanes=2))
    return tessc("run", path, "--requests", "8", "--map", targets, "--verify", *more)


@pytest.mark.parametrize("name", CASES)
def test_a_read_that_the_analysis_has_missed_is_found(tmp_path: Path, name: str) -> None:
    assert verified(tmp_path, CASES[name]).code == 0
    with dropped(CASES[name]):
        result = verified(tmp_path, CASES[name])
    assert result.code == 5, result.text + result.err


def test_output_bytes_that_no_step_writes_are_counted(tmp_path: Path) -> None:
    words = np.arange(8 * 64, dtype=np.uint32).reshape(8, 64) ** 2 % 7
    np.savez(tmp_path / "in.npz", x=words)
    case = Case(temps="", steps=("odd y x x",), places="a")
    result = verified(tmp_path, case, "--inputs", str(tmp_path / "in.npz"), "--json")
    assert result.code == 0, result.err
    shown = json.loads(result.text)["verified"]
    assert shown["unwritten_bytes"] == 4 * int((words % 2 == 0).sum())


@pytest.mark.parametrize("seed", range(8))
def test_patterns_change_nothing_that_a_plan_knows_of(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    program = word_trace(seed) if seed % 3 == 2 else random_program(seed, races=False)
    places = [rng.choice("ab") for _ in program.work()]
    path = write_plan(tmp_path, plan_of([program], [places], slots=1 + seed % 3, lanes=2))
    used = ",".join(part for part in SLICES.split(",") if part[0] in places)
    result = tessc("run", path, "--requests", "8", "--map", used, "--verify")
    assert result.code == 0, result.err
