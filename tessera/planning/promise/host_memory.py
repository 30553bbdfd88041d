"""Memory of hosts that transfers between them take, against what they may take.

In: a machine and launch programs. Out: nodes that have too little.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics import Diagnostic, error
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.plan import Replica, staged_bytes


def nodes_over(machine: Machine, replicas: Sequence[Replica]) -> list[tuple[str, int, int]]:
    """Nodes whose transfers take more of the host's memory than they may: what, and of how much."""
    cards = machine.cards
    hosts = {device.name: cards[device.card].node for device in machine.devices}
    staged = staged_bytes(replicas, hosts)
    return [(n, staged[n], room) for n, room in machine.node_memory if staged.get(n, 0) > room]


def short_of_memory(machine: Machine, replicas: Sequence[Replica]) -> Diagnostic | None:
    """What is said of launch programs that take too much of a host's memory; None: none do."""
    over = nodes_over(machine, replicas)
    if not over:
        return None
    node, taken, room = over[0]
    slots = max(replica.slots for replica in replicas)
    fewer = room * slots // taken
    need = taken if fewer or slots == 1 else -(-taken // slots)
    hint = f'with `memory = "{need}B"` of that `[[node]]` in the machine file it fits'
    if fewer:
        hint = f"with `--slots {fewer}` it fits; {hint}"
    elif slots > 1:
        hint += ", with `--slots 1`"
    return error(
        "TSR3010",
        f"transfers take {taken} bytes of the memory of node `{node}`, and may take {room}",
        hint=f"{hint}; plans that do not split requests (`--strategy dp`) need none",
    )
