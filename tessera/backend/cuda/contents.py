"""Contents of device memory before the first request: weights, states, and address words.

In: a model, and the memory of its replica. Out: nothing; memory is written. Memory that is private
to a request shares bytes with other requests, so some of it is written again at the start of every
request: the words of its `pointers` records, and weights that have a copy per slot. Words of states
are written again only if they differ from request to request; the checker has then proved that no
step may write them. Otherwise states keep the values that steps wrote there.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import numpy as np

from tessera.backend.address_words import Home, plain_word
from tessera.backend.cuda.api import Bytes
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.host_memory import HostMemory
from tessera.backend.cuda.loading import Loader
from tessera.backend.cuda.memory import ReplicaMemory
from tessera.backend.service import Model
from tessera.ir.plan.launch_program import AreaKind, Place
from tessera.ir.plan.launch_program import Bytes as Ranges
from tessera.ir.program.program import (
    POINTER_BYTES,
    Buffer,
    PointerTable,
    PointerWord,
    Program,
    Role,
)
from tessera.ir.program.seeded import Seeded, source_of


class ReplicaContents:
    """Writes and reads the memory of a replica."""

    def __init__(self, helpers: Helpers, model: Model, memory: ReplicaMemory) -> None:
        self._driver = helpers.driver
        self._devices = helpers.devices
        self._loader = Loader(helpers)
        self._model = model
        self._memory = memory
        # States of one name are one state in all traces, with one place on a device.
        self._states = {
            (place.device, self._buffer(place).name): place
            for place in reversed(model.lowered.places)
            if place.kind is AreaKind.LANE and self._buffer(place).role is Role.STATE
        }

    # --- at the start ----------------------------------------------------------------------

    def write_all(self) -> None:
        """Write weights, states and words; equal names in several traces share one place."""
        done: set[tuple[str, AreaKind, int]] = set()
        for place in self._model.lowered.places:
            key = place.device, place.kind, place.offset
            if key in done or place.kind not in (AreaKind.WEIGHTS, AreaKind.LANE):
                continue
            done.add(key)
            if place.kind is AreaKind.WEIGHTS:
                self._load(place, 0, self._model.weights, (place.held(self._buffer(place).bytes),))
            else:
                self._write_states(place)
        self._loader.finish()
        for place in self._model.lowered.places:
            if place.kind in (AreaKind.WEIGHTS, AreaKind.LANE):
                self._write_words(place)

    def _write_states(self, place: Place) -> None:
        """Write every lane's state if its home is here or nowhere; otherwise it stays poison."""
        ranges = self._current(place)
        for lane, states in enumerate(self._model.states):
            self._load(place, lane, states, ranges)

    def _load(self, place: Place, lane: int, given: Mapping[str, Bytes], ranges: Ranges) -> None:
        """Load ranges of a buffer; no other bytes of its contents are read."""
        name = self._buffer(place).name
        address, source = self._address(place, 0, lane), source_of(given, name)
        if len(ranges) > 1 and isinstance(source, Seeded):
            source = given[name]
        skipped = self._model.firsts.get(name, 0)
        for start, end in ranges:
            target, own = address + skipped, (start - skipped, end - skipped)
            self._loader.put(place.device, target, source, *own)

    def _current(self, place: Place) -> Ranges:
        return self._model.lowered.current_bytes(place, self._buffer(place).bytes)

    def _write_words(self, place: Place) -> None:
        table = self._table(place)
        if table is None:
            return
        self._driver.use(self._devices[place.device].context)
        copies = len(self._model.states) if place.kind is AreaKind.LANE else 1
        for lane in range(max(copies, 1)):
            address = self._address(place, 0, lane)
            for offset, word in self._words(place, table, 0, lane):
                self._driver.upload(address + offset, np.frombuffer(word, np.uint8))

    # --- at the start of a request -----------------------------------------------------------

    def prologue(
        self, host: HostMemory, trace: int, slot: int, lane: int
    ) -> list[tuple[str, int, int, int]]:
        """The copies that a request makes first: device, target, pinned source, size in bytes."""
        copies = []
        for place in self._model.lowered.places:
            if place.trace != trace or not self._is_rewritten(place):
                continue
            base = self._address(place, slot, lane)
            for offset, content in self._rewritten(place, slot, lane):
                source = host.copy_of(content)
                copies.append((place.device, base + offset, source, content.nbytes))
        return copies

    def _is_rewritten(self, place: Place) -> bool:
        if place.kind is AreaKind.SLOT:
            return self._table(place) is not None or self._buffer(place).role is Role.WEIGHT
        table = self._table(place) if place.kind is AreaKind.LANE else None
        if self._model.lowered.slots == 1 and self._is_lone(place):
            # The words have the same address for every request, and a step may have overwritten
            # them.
            return False
        return table is not None and any(
            self._kind_of(place, int(word.target.buffer)) is AreaKind.SLOT for word in table.words
        )

    def _is_lone(self, place: Place) -> bool:
        """Whether only one trace has a state of this name."""
        name = self._buffer(place).name
        places = self._model.lowered.places
        return all(p.trace == place.trace for p in places if self._buffer(p).name == name)

    def _kind_of(self, place: Place, buffer: int) -> AreaKind | None:
        key = (place.trace, place.device, self._program(place).buffers[buffer].id)
        home = self._memory.places.get(key)
        return None if home is None else home.kind

    def _rewritten(self, place: Place, slot: int, lane: int) -> Iterator[tuple[int, Bytes]]:
        buffer, table = self._buffer(place), self._table(place)
        words = list(self._words(place, table, slot, lane)) if table is not None else []
        if buffer.role is Role.WEIGHT:
            content = _flat(self._model.weights[buffer.name]).copy()
            for offset, word in words:
                content[offset : offset + 8] = np.frombuffer(word, np.uint8)
            yield 0, content
            return
        run_start, run = 0, b""
        for offset, word in sorted(words):
            if run and offset != run_start + len(run):
                yield run_start, np.frombuffer(run, np.uint8)
                run = b""
            if not run:
                run_start = offset
            run += word
        if run:
            yield run_start, np.frombuffer(run, np.uint8)

    # --- between requests ---------------------------------------------------------------------

    def state_address(self, lane: int, device: str, name: str) -> int:
        """The address of byte 0 of a lane's state on a device, which may hold only a part."""
        return self._address(self._states[device, name], 0, lane)

    def read_states(self, lane: int) -> dict[str, Bytes]:
        """The states of a lane, read from their homes; address words as in `address_words`."""
        states: dict[str, Bytes] = {}
        for trace, served in enumerate(self._model.traces):
            for buffer in served.program.buffers:
                if buffer.role is Role.STATE and buffer.name not in states:
                    states[buffer.name] = self._read_state(trace, buffer, lane)
        return states

    def pieces(self, lane: int) -> dict[str, list[tuple[int, Bytes]]]:
        """The bytes of a lane's states that are current here, by name: pairs of start and bytes."""
        states: dict[str, list[tuple[int, Bytes]]] = {}
        for (device, name), place in self._states.items():
            if device in self._devices:
                content = self._read_state(place.trace, self._buffer(place), lane)
                states[name] = [(start, content[start:end]) for start, end in self._current(place)]
        return states

    def _read_state(self, trace: int, buffer: Buffer, lane: int) -> Bytes:
        homes = [
            home
            for home in self._model.lowered.homes
            if (home.trace, home.buffer) == (trace, buffer.id)
        ]
        content = np.zeros(buffer.bytes, np.uint8)
        current = {
            device: self._current(place)
            for (device, name), place in self._states.items()
            if name == buffer.name and device in self._devices  # else in another process
        }
        if sum(end - start for own in current.values() for start, end in own) < buffer.bytes:
            first = self._model.states[lane][buffer.name]
            at = self._model.firsts.get(buffer.name, 0)
            content[at : at + first.nbytes] = _flat(first)
        for device, ranges in current.items():
            self._driver.use(self._devices[device].context)
            address = self.state_address(lane, device, buffer.name)
            for start, end in ranges:
                content[start:end] = self._driver.download(address + start, end - start)
        for table in self._model.traces[trace].program.pointer_tables:
            for word in table.words if table.buffer == buffer.id else ():
                here = content[word.offset : word.offset + POINTER_BYTES]
                at = word.offset
                holders = (h.device for h in homes if any(s <= at < e for s, e in h.bytes))
                plain = self._plain_word(here.tobytes(), trace, word, next(holders, None), lane)
                here[:] = np.frombuffer(plain, np.uint8)
        return content

    def _plain_word(
        self, held: bytes, trace: int, word: PointerWord, holder: str | None, lane: int
    ) -> bytes:
        """The device-independent value of a state word; its request may have been in any slot."""
        nothing = bytes(POINTER_BYTES)
        if holder is None or held == nothing:
            return nothing
        for slot in range(self._model.lowered.slots):
            base = self._memory.address(trace, holder, word.target.buffer, slot, lane)
            homes = self._homes(trace, holder, slot, lane)
            plain = plain_word(held, base + word.target.offset, homes)
            if plain != held:
                return plain
        return held

    def _homes(self, trace: int, device: str, slot: int, lane: int) -> Iterator[Home]:
        """The buffers of a request with their addresses; buffers on other devices come last."""
        buffers = self._model.traces[trace].program.buffers
        here = [b for b in buffers if (trace, device, b.id) in self._memory.places]
        away = [b for b in buffers if (trace, device, b.id) not in self._memory.places]
        for buffer in (*here, *away):
            address = self._memory.address(trace, device, buffer.id, slot, lane)
            place = self._memory.places.get((trace, device, buffer.id))
            held = (0, buffer.bytes) if place is None else place.held(buffer.bytes)
            yield buffer.name, address, held

    # --- places -------------------------------------------------------------------------------

    def _words(
        self, place: Place, table: PointerTable, slot: int, lane: int
    ) -> Iterator[tuple[int, bytes]]:
        for word in table.words:
            target = self._memory.address(place.trace, place.device, word.target.buffer, slot, lane)
            yield word.offset, struct.pack("<Q", target + word.target.offset)

    def _table(self, place: Place) -> PointerTable | None:
        tables = self._program(place).pointer_tables
        return next((table for table in tables if table.buffer == place.buffer), None)

    def _program(self, place: Place) -> Program:
        return self._model.traces[place.trace].program

    def _buffer(self, place: Place) -> Buffer:
        buffer: Buffer = self._program(place).buffers[place.buffer]
        return buffer

    def _address(self, place: Place, slot: int, lane: int) -> int:
        return self._memory.address(place.trace, place.device, place.buffer, slot, lane)


def _flat(content: Bytes) -> Bytes:
    return np.ascontiguousarray(content).reshape(-1).view(np.uint8)
