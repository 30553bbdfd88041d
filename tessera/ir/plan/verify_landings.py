"""Whether landings and what uses them hold together, as far as that needs no trace.

In: launch programs of a replica. Out: records with what is wrong with them. The order of puts and
credits is for the checker: it decides whether a run is right.
"""

from __future__ import annotations

from collections.abc import Iterator

from tessera.ir.plan.launch_program import (
    AwaitPut,
    Credit,
    Landing,
    LandingId,
    LoweredReplica,
    Put,
    Queued,
    Transfer,
)


def verify_landings(lowered: LoweredReplica) -> Iterator[tuple[object, str]]:
    """What is wrong, each with the record to blame."""
    landings: dict[LandingId, Landing] = {}
    for landing in lowered.landings:
        if landing.id in landings:
            yield landing, f"a second landing has the number `{landing.id}`"
        landings[landing.id] = landing
        for name in (landing.source, landing.target):
            if name not in lowered.devices:
                yield landing, f"there is no device `{name}` in this replica"
        if landing.source == landing.target:
            yield landing, "a landing is for bytes of another device"
        if landing.bytes < 1:
            yield landing, "a landing has room for at least one byte"
    for trace in lowered.traces:
        transfers = {transfer.id: transfer for transfer in trace.transfers}
        for program in trace.programs:
            for queued in program.operations:
                match queued.operation:
                    case Put(number, own) | AwaitPut(number, own):
                        yield from _landed(queued, transfers.get(number), landings.get(own))
                    case Credit(own):
                        known = landings.get(own)
                        if known is None or known.target != program.device:
                            yield queued, f"there is no landing {own} here"
                    case _:
                        pass


def _landed(
    queued: Queued, transfer: Transfer | None, landing: Landing | None
) -> Iterator[tuple[object, str]]:
    if landing is None:
        yield queued, "there is no such landing"
    elif transfer is not None:
        if (landing.source, landing.target) != (transfer.source, transfer.target):
            yield queued, f"landing {landing.id} is for bytes from `{landing.source}`"
        if transfer.size > landing.bytes:
            yield queued, f"landing {landing.id} has {landing.bytes} bytes, not {transfer.size}"
