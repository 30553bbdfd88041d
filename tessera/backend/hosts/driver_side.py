"""What the driver of a run over hosts keeps: requests, inputs and outputs.

In: a model. Out: records and an `Exchange` for `HostsBackend`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tessera.backend.service import Bytes, Model, Request, TimelineEvent
from tessera.ir.plan.launch_program import (
    HOST,
    Landing,
    LandingId,
    LoweredReplica,
    Transfer,
    TransferId,
)


@dataclass(slots=True)
class DeviceDone:
    """What a device reports of a request."""

    events: tuple[TimelineEvent, ...]
    printed: list[tuple[int, str]]


@dataclass(slots=True)
class SentRequest:
    """A request that has begun."""

    request: Request
    started_ns: int
    done: dict[str, DeviceDone] = field(default_factory=dict)


class DriverExchange:
    """Where inputs and outputs are on the driver: memory per slot and transfer, made once."""

    def __init__(self, model: Model) -> None:
        self._sizes = {
            (trace.trace, transfer.id): transfer.size
            for trace in model.lowered.traces
            for transfer in trace.transfers
        }
        self._regions: dict[tuple[int, int, int], Bytes] = {}

    def region(self, trace: int, slot: int, transfer: TransferId) -> Bytes:
        """The bytes of a transfer from or to the driver."""
        key = (trace, slot, transfer)
        if key not in self._regions:
            self._regions[key] = np.empty(self._sizes[trace, transfer], np.uint8)
        return self._regions[key]

    def landing(self, slot: int, landing: LandingId) -> Bytes:
        """The driver has none."""
        raise KeyError(landing)

    def post(self, request: int, slot: int, transfer: Transfer, landing: LandingId | None) -> None:
        """What is to be sent goes with the request."""

    def credit(self, request: int, landing: Landing) -> None:
        """The driver has none."""


def peers_of(lowered: LoweredReplica) -> dict[str, set[str]]:
    """Which devices have something to send to which, or to credit."""
    peers: dict[str, set[str]] = {device: set() for device in lowered.devices}
    for trace in lowered.traces:
        for transfer in trace.transfers:
            if HOST not in (transfer.source, transfer.target):
                peers[transfer.source].add(transfer.target)
                peers[transfer.target].add(transfer.source)
    return peers
