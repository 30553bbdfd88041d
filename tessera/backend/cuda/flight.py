"""A request under way on GPUs, and what those that follow it in its lane take from it.

In: requests as they begin. Out: the record that `backend.cuda.backend` keeps of each, and where an
input is that is an output of the request before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessera.backend.cuda.pace import Pace
from tessera.backend.cuda.replica import ReadyTrace
from tessera.backend.service import Bytes, DeviceBytes, EarlierOutput, Request
from tessera.diagnostics import TesseraError, error

_MOST_BYTES = 1 << 16
"""Most bytes of outputs that are kept for a following request."""


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
    """What the last request of every lane has given, or will.

    Its outputs come to pinned memory of its stage. The next request of its slot, which runs after
    it, fetches them there. That memory stays as it is until as many requests have begun in the slot
    as it has stages. A request of a lane that has none under way may be in another slot: then the
    one before it has ended, and the host has its outputs.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._last: dict[int, Flight] = {}

    def note(self, flight: Flight, turn: int) -> Flight:
        """A request begins, as that of its slot with this number; gives it."""
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
        """The inputs of a request that come from the host, and where others are."""
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
    """Where an output of a request comes to; nothing has to be waited for on its stream."""
    view = flight.ready.buffers.outputs[given.name]
    address = view.__array_interface__["data"][0]
    return DeviceBytes(address=address, nbytes=view.nbytes, type_name="", ready=None, keep=view)
