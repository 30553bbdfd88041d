"""Random oracle kernels, compiled afresh: thousands of a night.

Needs g++ and NVRTC (or nvcc, which is slower); clang takes part where there is one. The seed is
the day's unless ORACLE_SEED says otherwise; it is in the message of a failure.
"""

from __future__ import annotations

import datetime
import os

import pytest

from tests.oracle.check import analysed, cpu_problems, region_problems
from tests.oracle.compilers import missing, no_host_compiler
from tests.oracle.record import random_cases

COUNT = 300
GROUPS = 10


def _seed() -> int:
    given = os.environ.get("ORACLE_SEED")
    return int(given) if given else datetime.date.today().toordinal() * 100_000


@pytest.mark.fuzz
@pytest.mark.parametrize("group", range(GROUPS))
def test_random_kernels(group: int) -> None:
    """Regions, results and logs of random programs are the host's."""
    no_nvrtc = missing("nvrtc")
    reason = no_host_compiler() or (no_nvrtc and missing("nvcc"))
    if reason:
        pytest.skip(reason)
    ways = ["nvcc"] if no_nvrtc else ["nvrtc", "nvrtc-G", "nvrtc"]
    if missing("clang") is None:
        ways += ["clang", "clang-O0"]
    seed = _seed() + group * 10_000
    wrong = []
    for case in random_cases(COUNT, seed, ways):
        program, stated, _ = analysed(case)
        problems = [*region_problems(case, stated), *cpu_problems(case, program, case.runs)]
        if problems:
            wrong.append(f"{case.id}: {problems[0]}\n{case.source.code}")
    assert not wrong, f"seed {seed}: {len(wrong)} of {COUNT} wrong\n" + "\n".join(wrong[:5])
