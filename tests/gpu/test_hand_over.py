"""Rows of states that go from one slice of a real GPU to another while both serve."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.backend.cuda.doctor import check_machine
from tessera.driver.run.runtime import Runtime
from tests.helpers.handed_rows import hand_rows, roles_plan
from tests.helpers.host_runs import hosts_file

MACHINE = check_machine()
TARGETS = {"a": "cuda:0:84sm", "b": "cuda:0:48sm"}

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MACHINE.gpus, reason=f"no GPU: {MACHINE.problem}"),
]


@pytest.mark.parametrize("placements", [("aa", "bb"), ("ab", "ba")])
def test_sequences_go_on_in_the_other_slice(placements: tuple[str, str]) -> None:
    """Memory to memory in one process: the replicas share a card."""
    with Runtime(roles_plan(placements), backend="cuda", targets=TARGETS) as runtime:
        assert sum(hand_rows(runtime, seed, rounds=200) for seed in range(4)) > 20


def test_sequences_go_on_in_the_process_of_the_other_slice(tmp_path: Path) -> None:
    """Through the host: each slice is a process of its own."""
    hosts = hosts_file(tmp_path, 'name = "here"\ndevices = ["a", "b"]')
    plan = roles_plan(("aa", "bb"))
    with Runtime(plan, backend="cuda", targets=TARGETS, hosts=hosts) as runtime:
        assert hand_rows(runtime, 7, rounds=100) > 5
