"""Tessera against the recorded oracle: kernels that C compilers and the host worked out alone.

No compiler and no GPU is needed. `python -m tests.oracle.record` makes the recorded set.
"""

from __future__ import annotations

import functools
import json
from collections import Counter

import pytest

from tests.oracle import forms
from tests.oracle.check import Tightness, analysed, cpu_problems, region_problems, tightness
from tests.oracle.compilers import WAYS
from tests.oracle.record import TIGHTNESS
from tests.oracle.recorded import DATA, Case, read

GROUPS = 8
# Cases that are wrong today, with the reason; it should be empty.
KNOWN = json.loads((DATA / "known.json").read_text())


@functools.cache
def cases() -> list[Case]:
    return read()


def quick() -> list[Case]:
    """What every run takes: NVRTC's code of all forms of three pointers, some of the rest.

    Random programs take most of the time: of these, one in sixteen.
    """
    found, three = [], {source.name for source in forms.three_pointers()}
    for number, case in enumerate(cases()):
        if case.source.family == "random":
            is_taken = number % 16 == 0
        else:
            is_form = case.way == "nvrtc" and case.name in three
            is_taken = is_form or number % 5 == 0 or (case.way == "nvrtc" and number % 5 < 2)
        if is_taken:
            found.append(case)
    return found


@pytest.mark.parametrize("group", range(GROUPS))
def test_regions_and_cpu_backend_agree_with_the_host(group: int) -> None:
    """Regions hold, results and logs are the host's, and nothing is wider than it was."""
    _agree(quick()[group::GROUPS])


@pytest.mark.slow
def test_all_regions_and_cpu_backend_agree_with_the_host() -> None:
    _agree(cases())


def _agree(chosen: list[Case]) -> None:
    recorded = json.loads(TIGHTNESS.read_text())
    wrong = []
    for number, case in enumerate(chosen):
        program, stated, pinned = analysed(case)
        # Regions are held against all runs; the CPU backend runs the first and one other.
        other = 1 + number % (len(case.runs) - 1)
        runs = [case.runs[0], case.runs[other]]
        problems = [*region_problems(case, stated), *cpu_problems(case, program, runs)]
        if problems and case.id not in KNOWN:
            wrong.append(f"{case.id}: {problems[0]}\n{case.source.code}")
        limit = Tightness(*recorded.get(case.id, (0, 0, 0, 0)))
        tight = tightness(case, stated, pinned)
        if any(a > b for a, b in zip(tight.values(), limit.values(), strict=True)):
            wrong.append(f"{case.id} is wider than recorded: {tight}, {limit}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:5])


def test_the_recorded_set_is_complete() -> None:
    """Every form of three pointers, every way to compile, and enough of all."""
    found = cases()
    names = {case.name for case in found}
    three = [source.name for source in forms.three_pointers()]
    assert len(three) == 195
    assert names >= set(three)
    assert {case.name for case in quick()} >= set(three)
    assert len(quick()) >= 450
    assert len(names) >= 600
    assert len({case.id for case in found}) == len(found)
    ways = Counter(case.way for case in found)
    assert all(ways[way] >= 20 for way in WAYS if way != "nvcc-G")
    assert {case.id for case in found} >= set(KNOWN)


def test_cases_say_something() -> None:
    """All have several runs, and nearly all write something in one of them."""
    found = cases()
    assert all(len(case.runs) >= 3 for case in found)
    writing = [c for c in found if any(t.writes for run in c.runs for t in run.touched)]
    assert len(writing) > 0.98 * len(found)
