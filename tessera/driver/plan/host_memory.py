"""Memory of hosts that transfers between them take, against what they may take.

In: a machine and launch programs. Out: nodes that have too little.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Replica, staged_bytes


def nodes_over(machine: Machine, replicas: Sequence[Replica]) -> list[tuple[str, int, int]]:
    """Nodes whose transfers take more of the host's memory than they may: what, and of how much."""
    cards = machine.cards
    hosts = {device.name: cards[device.card].node for device in machine.devices}
    staged = staged_bytes(replicas, hosts)
    return [(n, staged[n], room) for n, room in machine.node_memory if staged.get(n, 0) > room]
