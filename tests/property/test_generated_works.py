"""Works of all generators keep their promise on the CPU backend, as `tests/gpu` tries on a GPU."""

from __future__ import annotations

import pytest

from tessera.backend.ptx_executor.device import Device
from tests.gpu.check_generated import families
from tests.helpers.generated_works import KINDS, generated_work
from tests.helpers.memory_programs import BODIES, memory_program
from tests.helpers.region_check import check
from tests.helpers.region_cpu import CpuMachine
from tests.helpers.share import share


@pytest.mark.parametrize(
    ("kind", "seed"), share([(kind, seed) for seed in range(16) for kind in KINDS])
)
def test_regions_of_generated_works_hold(kind: str, seed: int) -> None:
    work = generated_work(kind, seed)
    with Device() as device:
        rows = list(check(work, CpuMachine(work, device), repeats=False))
    assert [row["wrong"] for row in rows if row["wrong"]] == []


def test_memory_programs_have_the_memory_instructions_of_a_gpu() -> None:
    found = set().union(*(families(memory_program(seed)[0]) for seed in range(len(BODIES))))
    assert {
        *("ld.global", "ld.shared", "ld.local", "ld.const", "ldu.global", "st.global", "st.shared"),
        *("st.local", "st.async.shared", "atom.global", "atom.shared", "red.global", "red.shared"),
        *("red.async.shared", "cp.async.shared.global", "cp.async.bulk.global.shared"),
        *("cp.reduce.async.bulk.global.shared", "mbarrier.arrive_drop.shared", "discard.global"),
        *("ldmatrix.shared", "stmatrix.shared", "wmma.load.global", "wmma.store.global"),
    } <= found
