"""A request under way on GPUs, and its outputs that later requests of its lane take.

In: requests as they begin. Out: the record that `backend.cuda.backend` keeps of each, and the place
of an input that is an output of the previous request.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessera.backend.cuda.pace import Pace
from tessera.backend.cuda.replica import ReadyTrace
from tessera.backend.service import Bytes, DeviceBytes, EarlierOutput, Request
from tessera.diagnostics import TesseraError, error

_MOST_BYTES = 1 << 16
"""Most bytes of outputs that are kept for the next request."""


@dataclass(slots=True)
class Flight:
    """A request under way."""

    request: Request
    ready: ReadyTrace
    pace: Pace
    begun_ns: int
    looked_ns: int = 0
    turn: int = 0
    outputs: Mapping[str, Bytes] = field(default_factory=dict)


class LastOutputs:
    """The outputs, present or future, of the last request of every lane.

    Outputs arrive in pinned memory of the request's stage. The next request of the slot runs after
    it, and reads them there. That memory stays unchanged until the slot has begun as many further
    requests as it has stages. If a lane has no request under way, its next request may run in
    another slot: the previous request has then ended, and the host has its outputs.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._last: dict[int, Flight] = {}

    def note(self, flight: Flight, turn: int) -> Flight:
        """Note that a request begins, as number `turn` of its slot; returns its record."""
        flight.turn = turn
        outputs = flight.ready.buffers.outputs.values()
        if sum(view.nbytes for view in outputs) <= _MOST_BYTES:
            self._last[flight.request.lane] = flight
        else:
            self._last.pop(flight.request.lane, None)
        return flight

    def resolve(
        self, request: Request, turns: Sequence[int]
    ) -> tuple[Mapping[str, Bytes], dict[str, DeviceBytes]]:
        """The inputs of a request that come from the host, and the places of the others."""
        if not request.in_place:
            return request.inputs, {}
        inputs, in_place = dict(request.inputs), dict[str, DeviceBytes]()
        for name, given in request.in_place.items():
            if isinstance(given, DeviceBytes):
                in_place[name] = given
                continue
            before = self._last.get(request.lane)
            if before is None or given.name not in before.ready.buffers.outputs:
                message = f"input `{name}`: no request before has given `{given.name}`"
                raise TesseraError(error("TSR5053", message))
            slot = before.request.slot
            if slot == request.slot and turns[slot] - before.turn < self._depth:
                in_place[name] = _pinned(before, given)
            else:
                inputs[name] = before.outputs[given.name]
        return inputs, in_place


def _pinned(flight: Flight, given: EarlierOutput) -> DeviceBytes:
    """The place where an output of a request arrives; its own stream need not wait for it."""
    view = flight.ready.buffers.outputs[given.name]
    address = view.__array_interface__["data"][0]
    return DeviceBytes(address=address, nbytes=view.nbytes, type_name="", ready=None, keep=view)
