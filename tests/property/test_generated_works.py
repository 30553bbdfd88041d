"""Works of all generators keep their promise on the CPU backend, as `tests/gpu` tries on a GPU."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tests.gpu.check_generated import contents_of, families
from tests.gpu.cuda_machine import CudaMachine, GuardedPages, OutsideError, take_gpu
from tests.helpers import generated_works
from tests.helpers.async_programs import PARTS, Hopper, async_program
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


@pytest.mark.parametrize("way", ["ne", "eq"])
def test_what_data_decides_about_is_not_certain(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores and reductions of boxes, in a branch on a number from memory."""

    def decided(part: str, seed: int) -> Hopper:
        made, changed = async_program(part, seed), 0
        lines = made.text.splitlines()
        for at, line in enumerate(lines):
            if ".bulk_group [%" in line and "tensor" in line:
                asked = f"ld.global.b32 %r3, [%x]; setp.{way}.u32 %p2, %r3, 77; @%p2 bra PAST{at};"
                lines[at], changed = f"{asked}\n{line}\nPAST{at}:", changed + 1
        seen.append(changed)
        return replace(made, text="\n".join(lines))

    seen = list[int]()
    monkeypatch.setattr(generated_works, "async_program", decided)
    for seed in range(8):
        work = generated_work("tensor", seed)
        with Device() as device:
            rows = list(check(work, CpuMachine(work, device), repeats=False))
        assert [row["wrong"] for row in rows if row["wrong"]] == []
    assert sum(seen) >= 2


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


def test_programs_have_the_memory_instructions_of_a_gpu() -> None:
    texts = [memory_program(seed)[0] for seed in range(len(BODIES))]
    texts += [async_program(part, seed).text for part in PARTS for seed in range(80)]
    found = set().union(*map(families, texts))
    forms = (Path(__file__).parents[1] / "data/opcodes/memory_forms.txt").read_text().splitlines()
    known = set().union(*(families(line) for line in forms if not line.startswith("#")))
    absent = {
        *("tcgen05", "multimem", "fabric", "clusterlaunchcontrol"),  # not on an H200, or one alone
        *("tex", "tld4", "suld", "sust", "sured"),  # need objects that the host makes
    }
    left = {name for name in known - found if name.split(".")[0] not in absent}
    # The newest of the ISA; calls are in other programs.
    assert left == {
        *("applypriority.async.bulk.global", "applypriority.async.bulk.tensor.global"),
        *("st.async.global", "st.bulk", "st.bulk.shared", "mbarrier.shared", "st.param"),
    }
