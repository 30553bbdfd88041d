"""What `tests/gpu/check_oracle.py` does on a GPU, tried on the CPU backend."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tessera.backend.ptx_executor.device import Device
from tests.helpers.region_check import Work
from tests.helpers.region_cpu import CpuMachine
from tests.oracle.check import analysed, stated_values
from tests.oracle.on_machine import check_case, summary
from tests.oracle.recorded import Case, read

SOME = (
    "alias_chain_mixed.nvrtc",
    "together_reduce.nvrtc",
    "struct_multi_tensor.nvrtc",
    "table_swap.nvrtc",
    "overwritten_own_word.nvrtc",
)


class Closing(CpuMachine):
    """The CPU backend; its device is closed by the test."""

    def close(self) -> None:
        """Nothing to give back."""


@functools.cache
def case(name: str) -> Case:
    return next(found for found in read() if found.id == name)


def regions_of(name: str) -> dict[str, Any]:
    _, stated, pinned = analysed(case(name))
    return stated_values(stated, pinned)


def row(name: str, regions: dict[str, Any]) -> dict[str, Any]:
    with Device() as device:

        def machine(work: Work) -> Closing:
            return Closing(work, device)

        return check_case(case(name), regions, machine)


@pytest.mark.parametrize("name", SOME)
def test_cases_hold(name: str) -> None:
    found = row(name, regions_of(name))
    assert found["wrong"] == []
    assert summary([found])["runs"] == len(case(name).runs)


@pytest.mark.parametrize("field", ["read", "may"])
def test_a_region_that_lacks_bytes_is_noticed(field: str) -> None:
    name = "alias_add_apart.nvrtc"
    regions = regions_of(name)
    assert not regions["pinned"]
    wrong = row(name, regions | {field: {}})["wrong"]
    assert any("output" in text or "outside" in text for text in wrong)
