"""Checks that the puts, waits and credits of a landing alternate, so that no unread byte is lost.

In: the operations of a trace by kind. Out: findings.

A landing belongs to one source and one target. Its puts are in order on the out queue of the
source; its waits and credits are in order on the in queue of the target. The puts must carry the
transfers of the waits, in the same order, and a credit must follow every wait before the next wait.
Then each put comes after the credit of the previous put (`checker.order` makes that an edge), each
credit after its wait, and each wait after its put: no landing is written while an operation may
read it. The last credit leaves the landing free, as the next request in the slot expects it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.ir.plan.launch_program import AwaitPut, Credit, Landing, Put, Queue, Transfer
from tessera.passes.checker.findings import Findings, Op
from tessera.passes.checker.shape import TraceShape


def find_landings(
    landings: Sequence[Landing], devices: Sequence[str], findings: Findings
) -> dict[int, Landing]:
    """The landings by number; records that cannot be landings are reported and left out."""
    known: dict[int, Landing] = {}
    for landing in landings:
        fault = None
        if landing.id in known:
            fault = "is there twice"
        elif landing.source == landing.target or {landing.source, landing.target} - set(devices):
            fault = f"is for bytes from `{landing.source}` to `{landing.target}`"
        elif landing.bytes < 1:
            fault = f"has {landing.bytes} bytes"
        if fault is not None:
            findings.add("TSR4001", f"landing {landing.id} {fault}", at=landing)
            continue
        known[landing.id] = landing
    return known


def check_landings(shape: TraceShape, findings: Findings) -> bool:
    """Whether all landings are used in turns. Requires that every transfer has both its ends."""
    before = findings.count
    for number in shape.transfers:
        _check_pair(shape, shape.sends.get(number), shape.receives.get(number), findings)
    for landing in shape.landings.values() if findings.count == before else ():
        _check_turns(shape, landing, findings)
    return findings.count == before


def _check_pair(
    shape: TraceShape, source: Op | None, target: Op | None, findings: Findings
) -> None:
    """Check that both ends of a transfer name one landing, which is theirs and large enough."""
    if source is None or target is None:  # the other end is the host
        lone = source or target
        if lone is not None and isinstance(lone.operation, Put | AwaitPut):
            what = "a transfer from or to the host is put or awaited, and has no landing"
            findings.add("TSR4017", what, shape.names.op(lone))
        return
    put, taken = source.operation, target.operation
    if not isinstance(put, Put) and not isinstance(taken, AwaitPut):
        return
    names = shape.names
    if not (isinstance(put, Put) and isinstance(taken, AwaitPut)):
        findings.add(
            "TSR4017",
            "a transfer is put and awaited at one end, and sent or received at the other",
            names.op(source),
            names.op(target),
        )
        return
    if put.landing != taken.landing:
        findings.add(
            "TSR4017",
            f"{names.transfer(int(put.transfer))} is put into landing {put.landing} and waited for "
            f"in landing {taken.landing}",
            names.op(source),
            names.op(target),
        )
        return
    fault = _misfit(shape.transfers[put.transfer], shape.landings.get(put.landing))
    if fault is not None:
        what = f"{names.transfer(int(put.transfer))} cannot land in landing {put.landing}: {fault}"
        findings.add("TSR4017", what, names.op(source))


def _misfit(transfer: Transfer, landing: Landing | None) -> str | None:
    if landing is None:
        return "it is not there"
    if (landing.source, landing.target) != (transfer.source, transfer.target):
        return f"that is for bytes from `{landing.source}` to `{landing.target}`"
    if transfer.size > landing.bytes:
        return f"it has {landing.bytes} bytes, and {transfer.size} come"
    return None


def _check_turns(shape: TraceShape, landing: Landing, findings: Findings) -> None:
    """Check that puts and waits are in the same order, and that a credit follows each wait."""
    puts = [*_of(shape, landing, landing.source, Queue.OUT)]
    ends = [*_of(shape, landing, landing.target, Queue.IN)]
    waits = [op for op in ends if isinstance(op.operation, AwaitPut)]
    names = shape.names
    for put, wait in zip(puts, waits, strict=True):
        assert isinstance(put.operation, Put)
        assert isinstance(wait.operation, AwaitPut)
        if put.operation.transfer != wait.operation.transfer:
            findings.add(
                "TSR4017",
                f"what is put into landing {landing.id} is waited for in another order",
                names.op(put),
                names.op(wait),
            )
            return
    wanted: type[AwaitPut | Credit] = AwaitPut
    for op in ends:
        if not isinstance(op.operation, wanted):
            findings.add(
                "TSR4017",
                f"landing {landing.id} is credited before its bytes are waited for"
                if isinstance(op.operation, Credit)
                else f"landing {landing.id} is used again, and was not credited",
                names.op(op),
            )
            return
        wanted = Credit if wanted is AwaitPut else AwaitPut
    if wanted is Credit:
        findings.add(
            "TSR4017",
            f"landing {landing.id} is not credited after its last use",
            names.op(ends[-1]),
            "the next request in the slot would wait for it for ever",
        )


def _of(shape: TraceShape, landing: Landing, device: str, queue: Queue) -> Iterator[Op]:
    for op in shape.queues[device, queue]:
        match op.operation:
            case Put(_, own) | AwaitPut(_, own) | Credit(own) if own == landing.id:
                yield op
            case _:
                pass
