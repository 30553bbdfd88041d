"""Hand-overs as part of the request after which they happen.

In: the work of a request, and the hand-overs that a plan expects after it. Out: the work with them.
A hand-over begins when the request has ended, and takes time at both ends and on the path; the slot
is free meanwhile. Only some requests are followed by one, so each has that part of the time of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.ir.plan.plan import PlannedHandOver
from tessera.simulation.hardware import Hardware
from tessera.simulation.work import COMPUTE, WIRE, RequestWork, WorkNode


def with_hand_overs(
    work: RequestWork, hand_overs: Sequence[PlannedHandOver], hardware: Hardware
) -> RequestWork:
    """The work of a request, followed by its hand-overs, one after the other."""
    nodes = list(work.nodes)
    for hand_over in hand_overs:
        path = hardware.paths[hand_over.source, hand_over.target]
        end_ns = hand_over.part * path.end_ns(hand_over.bytes)
        wire_ns = hand_over.part * hand_over.bytes * 1e9 / path.bytes_per_second
        rate, late_ns = path.bytes_per_second, hand_over.part * path.latency_ns
        _follow(nodes, COMPUTE, end_ns, (hand_over.source,))
        _follow(nodes, WIRE, wire_ns, path.shares, rate, late_ns)
        _follow(nodes, COMPUTE, end_ns, (hand_over.target,))
    return replace(work, nodes=tuple(nodes), handed=len(nodes) - len(work.nodes))


def _follow(
    nodes: list[WorkNode],
    kind: int,
    ns: float,
    place: tuple[str, ...],
    rate: float = 0.0,
    delay_ns: float = 0.0,
) -> None:
    """Add a node that begins when all others have ended."""
    if ns <= 0:
        return
    last = [number for number, node in enumerate(nodes) if not node.after]
    for number in last:
        nodes[number] = replace(nodes[number], after=(len(nodes),))
    nodes.append(
        WorkNode(
            kind=kind,
            ns=ns,
            place=place,
            after=(),
            before=len(last),
            rate=rate,
            delay_ns=delay_ns,
            alone_ns=ns,
            quiet_ns=ns,
        )
    )
