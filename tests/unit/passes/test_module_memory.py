"""Modules bring all their variables along, used or not, to every device that loads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.ir.plan.launch_program import AreaKind, LoweredReplica
from tessera.ir.program.program import Program
from tessera.passes.checker.check_plan import check_plan, check_replica
from tessera.planning.lower.lower_plan import lower_replica
from tests.helpers.served import graph_of
from tests.helpers.traces import COPY, HEADER, trace

BUFFERS = """
buffer x bytes=4096 role=input
buffer y bytes=4096 role=output
buffer z bytes=4096 role=output
"""
STEPS = """
launch m.copy grid=1,1,1 block=256,1,1 args=[y, x, u32:256]
launch m.copy grid=1,1,1 block=256,1,1 args=[z, x, u32:256]
"""
VARIABLES = ".global .align 8 .b8 unused[{}]; .const .align 8 .b8 table[100];\n"
GB = 1_000_000_000


def program(size: int) -> Program:
    return trace(BUFFERS, VARIABLES.format(size) + COPY, STEPS)


def module_bytes(replica: LoweredReplica) -> dict[str, int]:
    return {a.device: a.bytes for a in replica.areas if a.kind is AreaKind.MODULE}


def test_every_device_that_loads_a_module_has_its_variables() -> None:
    one = program(5000)
    graph = graph_of(one)
    for placement, devices in (("aa", {"a"}), ("ab", {"a", "b"})):
        replica = lower_replica([one], [graph], [list(placement)], slots=4, lanes=4)
        found = module_bytes(replica)
        assert found.keys() == devices
        assert all(5100 <= size < 6200 for size in found.values()), "once, not per slot"
        assert not check_replica(replica, [one], [graph], [list(placement)])


def test_every_trace_loads_modules_of_its_own() -> None:
    both = [program(5000), program(7000)]
    graphs = [graph_of(one) for one in both]
    replica = lower_replica(both, graphs, [["a", "a"], ["a", "b"]], slots=1, lanes=1)
    found = module_bytes(replica)
    assert found["a"] >= 12200
    assert 7100 <= found["b"] < 8200
    assert not check_replica(replica, both, graphs, [["a", "a"], ["a", "b"]])


@pytest.mark.parametrize("size", [0, 5099, None])
def test_the_judge_counts_them_by_itself(size: int | None) -> None:
    one = program(5000)
    graph = graph_of(one)
    replica = lower_replica([one], [graph], [["a", "a"]], slots=1, lanes=1)
    kept = [area for area in replica.areas if area.kind is not AreaKind.MODULE]
    (area,) = (area for area in replica.areas if area.kind is AreaKind.MODULE)
    less = [] if size is None else [replace(area, bytes=size)]
    changed = replace(replica, areas=(*kept, *less))
    (found,) = check_replica(changed, [one], [graph], [["a", "a"]])
    assert found.code == "TSR4009"
    assert "take 5100" in str(found.headline)
    enough = replace(replica, areas=(*kept, replace(area, bytes=5100)))
    assert not check_replica(enough, [one], [graph], [["a", "a"]])


def test_a_module_that_does_not_run_is_not_loaded() -> None:
    other = "//! module n\n" + HEADER + VARIABLES.format(9000)
    text = trace(BUFFERS, COPY + other, STEPS)
    graph = graph_of(text)
    replica = lower_replica([text], [graph], [["a", "a"]], slots=1, lanes=1)
    assert module_bytes(replica) == {}
    assert not check_replica(replica, [text], [graph], [["a", "a"]])


@pytest.fixture
def large(tmp_path: Path) -> str:
    path = tmp_path / "large.ptx"
    records = "".join(f"//! {line}\n" for line in BUFFERS.strip().splitlines())
    steps = "".join(f"//! {line}\n" for line in STEPS.strip().splitlines())
    kernels = f"//! module m\n{HEADER}{VARIABLES.format(60 * GB)}{COPY}"
    path.write_text(f"//! tessera.trace 1\n{records}{kernels}{steps}")
    return str(path)


def test_what_does_not_fit_is_refused(large: str) -> None:
    with pytest.raises(TesseraError) as caught:
        plan(large, PlanOptions(gpus="l40s"))
    assert caught.value.diagnostics[0].code == "TSR3010"
    assert "60.0 GB" in "".join(caught.value.diagnostics[0].notes)


def test_what_fits_is_counted_in_the_plan_and_kept_off_small_cards(large: str) -> None:
    found = plan(large, PlanOptions(gpus="a100,l40s")).plan
    used = {card.name: card.used_bytes for card in found.cards}
    assert used["a100-0"] > 60 * GB
    assert used["l40s-0"] == 0


def test_two_variants_of_a_module_with_variables_on_one_device(large: str) -> None:
    """A plan that was edited to run both would have two copies of each variable there."""
    text = Path(large).read_text().replace(f"[{60 * GB}]", "[5000]")
    start, end = text.index("//! module m"), text.index("//! launch")
    old = text[start:end].replace("sm_80", "sm_75")
    Path(large).write_text(text[:end] + old + text[end:])
    made = plan(large, PlanOptions(gpus="a100"))
    program = made.setting.traces[0].program
    graph = made.setting.traces[0].graph
    assert not check_plan(made.plan, [program], [graph])
    (replica,) = made.plan.replicas
    (placed,) = replica.traces
    assert {step.arch for step in placed.steps} == {"sm_80"}
    steps = (replace(placed.steps[0], arch="sm_75"), *placed.steps[1:])
    edited = replace(replica, traces=(replace(placed, steps=steps),))
    found = check_plan(replace(made.plan, replicas=(edited,)), [program], [graph])
    assert "TSR4013" in [one.code for one in found]
