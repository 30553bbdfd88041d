"""The host's side of a request: inputs into the exchange, outputs out of it, states put together.

Inputs and outputs are transfers like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from tessera.backend.processes.exchange import Exchange, pack, unpack
from tessera.backend.processes.messages import Pieces
from tessera.backend.service import Bytes, Model, Request
from tessera.ir.plan.launch_program import HOST, POISON, LoweredTrace
from tessera.ir.program import program as ir


class HostSide:
    """What the host does for every request of a model."""

    def __init__(self, model: Model, exchange: Exchange) -> None:
        self._model = model
        self._exchange = exchange
        self._lowered: dict[int, LoweredTrace] = {t.trace: t for t in model.lowered.traces}
        self._written: dict[int, dict[str, Bytes]] = {}

    def put_inputs(self, request: Request) -> None:
        """The bytes that come from the host, before the request begins."""
        for transfer in self._lowered[request.trace].transfers:
            if transfer.source == HOST:
                region = self._exchange.region(request.trace, request.slot, transfer.id)
                pack(transfer, self._content(request, transfer.buffer), region)

    def _content(self, request: Request, number: ir.BufferId) -> Bytes:
        buffer = self._model.traces[request.trace].program.buffers[number]
        if buffer.role is ir.Role.INPUT:
            return request.inputs[buffer.name]
        return self._initial(request.trace, buffer)

    def _initial(self, trace: int, buffer: ir.Buffer) -> Bytes:
        given = self._model.fillings[trace].get(buffer.name)
        return np.full(buffer.bytes, POISON, np.uint8) if given is None else given.copy()

    def take_outputs(self, trace: int, slot: int) -> dict[str, Bytes]:
        """The outputs of a request that is done on every device; words for addresses are zero."""
        buffers = self._model.traces[trace].program.buffers
        outputs = {b.id: self._initial(trace, b) for b in buffers if b.role is ir.Role.OUTPUT}
        for transfer in self._lowered[trace].transfers:
            if transfer.target == HOST and transfer.buffer in outputs:
                region = self._exchange.region(trace, slot, transfer.id)
                unpack(transfer, region, outputs[transfer.buffer])
        for table in self._model.traces[trace].program.pointer_tables:
            for word in table.words if table.buffer in outputs else ():
                outputs[table.buffer][word.offset : word.offset + ir.POINTER_BYTES] = 0
        return {buffers[number].name: content for number, content in outputs.items()}

    def keep_states(self, lane: int, states: Mapping[str, Bytes]) -> None:
        """From now on a lane began with these."""
        written = self._written.setdefault(lane, {})
        written.update((name, content.copy()) for name, content in states.items())

    def join_states(self, lane: int, devices: Iterable[Pieces]) -> dict[str, Bytes]:
        """A lane's states: what it began with, and over it what the devices say is current."""
        first = {**self._model.states[lane], **self._written.get(lane, {})}
        states = {name: np.array(given, np.uint8) for name, given in first.items()}
        for served in self._model.traces:
            for table in served.program.pointer_tables:
                content = states.get(served.program.buffers[table.buffer].name)
                for word in table.words if content is not None else ():
                    assert content is not None
                    content[word.offset : word.offset + ir.POINTER_BYTES] = 0
        for states_there in devices:
            for name, pieces in states_there.items():
                for start, piece in pieces:
                    states[name][start : start + len(piece)] = piece
        return states
