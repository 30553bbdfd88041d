"""Works of all generators keep their promise on the CPU backend, as `tests/gpu` tries on a GPU."""

from __future__ import annotations

import json
from contextlib import closing

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tests.gpu.check_generated import contents_of, families
from tests.gpu.cuda_machine import CudaMachine, GuardedPages, OutsideError, take_gpu
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.generated_works import KINDS, generated_work
from tests.helpers.memory_programs import BODIES, memory_program
from tests.helpers.region_check import check, from_values, to_values
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


@pytest.mark.parametrize("kind", KINDS)
def test_works_travel_and_run_between_unmapped_pages(kind: str) -> None:
    work = generated_work(kind, 3)
    row = {"name": work.name, "work": json.loads(json.dumps(to_values(work)))}
    contents = contents_of(row)
    for sent, content in zip(contents, work.contents, strict=True):
        np.testing.assert_array_equal(sent, content)
    driver = take_gpu(FakeCuda(memory=256 << 20))
    pages = GuardedPages(driver)
    with closing(CudaMachine(from_values(row["work"], contents), driver, pages)) as machine:
        assert not machine.allocated
        assert [row["wrong"] for row in check(machine.work, machine) if row["wrong"]] == []


def test_a_write_next_to_a_buffer_shows() -> None:
    driver = take_gpu(FakeCuda(memory=256 << 20))
    pages = GuardedPages(driver)
    for at_end in (False, True):
        address, low, high = pages.place(3, 1000, at_end=at_end) or (0, 0, 0)
        assert (low > 0) == at_end
        assert (address + 1000 + high) % pages.page == 0 or not at_end
        assert address % 256 == 0
        assert high > 0
    work = generated_work("words", 3)
    machine = CudaMachine(work, driver, pages)
    machine.write(work.contents)
    start, low, _ = machine.places[0]
    driver.cuMemsetD8(start - 1 if low else start + work.buffers[0][1], 0, 1)
    with pytest.raises(OutsideError, match="next to"):
        machine.read()


def test_memory_programs_have_the_memory_instructions_of_a_gpu() -> None:
    found = set().union(*(families(memory_program(seed)[0]) for seed in range(len(BODIES))))
    assert {
        *("ld.global", "ld.shared", "ld.local", "ld.const", "ldu.global", "st.global", "st.shared"),
        *("st.local", "st.async.shared", "atom.global", "atom.shared", "red.global", "red.shared"),
        *("red.async.shared", "cp.async.shared.global", "cp.async.bulk.global.shared"),
        *("cp.reduce.async.bulk.global.shared", "mbarrier.arrive_drop.shared", "discard.global"),
        *("ldmatrix.shared", "stmatrix.shared", "wmma.load.global", "wmma.store.global"),
    } <= found
