"""Memory of hosts for transfers between them: said, and kept to."""

from __future__ import annotations

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.plan import PlanOptions, plan
from tessera.frontend.machine.machine_file import parse_machine
from tessera.ir.plan.plan import Plan, hosts_of, staged_bytes

MACHINE = """
link = "100Gb/s"
[[node]]
name = "left"
{memory}
[[node.card]]
gpu = "a100"
[[node]]
name = "right"
[[node.card]]
gpu = "l40s"
"""


def planned(memory: str, slots: int | None = None) -> Plan:
    machine = parse_machine(MACHINE.format(memory=memory))
    pins = ("#0=a100-0", "#7=l40s-0")
    options = PlanOptions(machine=machine, pins=pins, slots=slots)
    return plan("examples/traces/mlp.ptx", options, compare=False).plan


def test_slots_are_as_many_as_the_memory_of_a_host_takes() -> None:
    free = planned("")
    landed = sum(landing.bytes for landing in free.replicas[0].lowered.landings)
    staged = staged_bytes(free.replicas, hosts_of(free))
    assert staged == dict.fromkeys(("left", "right"), landed * free.replicas[0].slots)
    assert free.replicas[0].slots > 1
    tight = planned(f'memory = "{landed}B"')
    assert tight.replicas[0].slots == 1
    assert staged_bytes(tight.replicas, hosts_of(tight))["left"] <= landed
    assert tight.machine_digest != free.machine_digest


@pytest.mark.parametrize(("room", "hint"), [(8, '`memory = "9216B"`'), (10000, "`--slots 1`")])
def test_more_slots_than_fit_are_refused(room: int, hint: str) -> None:
    with pytest.raises(TesseraError) as caught:
        planned(f'memory = "{room}B"', slots=2)
    (said,) = caught.value.diagnostics
    assert said.code == "TSR3010"
    assert f"of the memory of node `left`, and may take {room}" in str(said.headline)
    assert (said.hint or "").startswith(f"with {hint} ")
    assert caught.value.exit_code == 3
