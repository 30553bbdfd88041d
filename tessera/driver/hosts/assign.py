"""Assigns the devices of a plan to hosts.

In: a `HostTable` and a plan. Out: the host of each device that the plan uses, and a warning for
each host without such a device. A host that lists `devices` gets these; any other host gets the
devices of the node with its name.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics import Diagnostic, warning
from tessera.frontend.machine.hosts_file import bad_hosts
from tessera.ir.plan.hosts import HostEntry, HostTable
from tessera.ir.plan.plan import Plan, hosts_of


def assign_hosts(table: HostTable, plan: Plan) -> dict[str, HostEntry]:
    """The host of every device; raises if a device has none, or slices of one card have two."""
    nodes = hosts_of(plan)
    used = list(dict.fromkeys(d for r in plan.replicas for d in r.lowered.devices))
    listed = {device: host for host in table.hosts for device in host.devices}
    for device, host in listed.items():
        if device not in nodes:
            raise bad_hosts(
                f"host `{host.name}` lists device `{device}`, which the plan does not have",
                f"its devices are: {', '.join(nodes)}",
            )
    by_name = {host.name: host for host in table.hosts if not host.devices}
    assigned: dict[str, HostEntry] = {}
    missing: list[str] = []
    for device in used:
        own = listed.get(device) or by_name.get(nodes[device])
        if own is None:
            missing.append(device)
        else:
            assigned[device] = own
    if missing:
        raise _missing(missing, nodes, table)
    _check_slices(plan, assigned)
    return assigned


def unused_hosts(table: HostTable, plan: Plan) -> tuple[Diagnostic, ...]:
    """A warning for every host that has no device of the plan: its name may be misspelled."""
    used = {host.name for host in assign_hosts(table, plan).values()}
    nodes = ", ".join(f"`{node}`" for node in dict.fromkeys(hosts_of(plan).values()) if node)
    return tuple(
        warning(
            "TSR5074",
            f"host `{host.name}` of `{table.name}` has no device that the plan uses",
            hint=(f"the nodes of the plan are: {nodes}" if nodes else "the plan has no nodes")
            + "; list the devices of a host with another name under its `devices`",
        )
        for host in table.hosts
        if host.name not in used
    )


def _missing(missing: Sequence[str], nodes: dict[str, str], table: HostTable) -> Exception:
    node = nodes[missing[0]]
    of = f" of node `{node}`" if node else ""
    names = ", ".join(f"`{host.name}`" for host in table.hosts)
    return bad_hosts(
        f"no host of `{table.name}` has device `{missing[0]}`{of}",
        f"name a host as its node, or list the device under `devices` of one of: {names}",
    )


def _check_slices(plan: Plan, assigned: dict[str, HostEntry]) -> None:
    """Refuse slices of one card on two hosts."""
    of_card: dict[str, tuple[str, str]] = {}
    for device in plan.devices:
        host = assigned.get(device.name)
        if host is None:
            continue
        first, other = of_card.setdefault(device.card, (device.name, host.name))
        if other != host.name:
            raise bad_hosts(
                f"`{first}` and `{device.name}` are slices of one card, and on two hosts: "
                f"`{other}` and `{host.name}`"
            )
