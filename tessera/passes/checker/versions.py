"""The contents of every byte of every device, operation by operation: the core of the checker.

In: the operations of a request in a possible order with their clocks (`checker.order`), the
versions that steps need (`checker.expected`), and the places of buffers (`checker.memory`). Out:
findings.

Each byte of a device has a *tag*, which is its buffer and version (0: poison; twins write one), and
per queue the last operation that read it and the last that wrote it. An operation is right if
- bytes that it may read, or may write but need not, have the tag of the version it needs;
- all earlier writes of these bytes are over when it begins; if it writes, all earlier reads too;
- it does not put an older version over a newer one, and nothing has freed or taken the place
  (`checker.tenants`).
Because all conflicting operations are ordered, every other possible order gives the same bytes:
one walk proves all interleavings. Memory is tracked by address, not by buffer, so the same rules
apply to different tenants of the same bytes.

At the end outputs have reached the host in their last version, each byte once, and bytes that
persist are in their last version at every home.

Longer than 400 lines because the rules of all operations work on the same tables.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tessera.ir.plan.launch_program import (
    HOST,
    AwaitPut,
    Fill,
    Free,
    Home,
    Portion,
    Put,
    Queue,
    Receive,
    Run,
    Send,
    Transfer,
)
from tessera.ir.program.program import Role
from tessera.passes.checker import limits
from tessera.passes.checker.bytes import (
    Array,
    Index,
    common,
    marked,
    minus,
    places,
    ranges_of,
    text,
)
from tessera.passes.checker.expected import FIRST, ExpectedVersions, StepTouch, Versions
from tessera.passes.checker.findings import Findings, Op
from tessera.passes.checker.homes import Claims
from tessera.passes.checker.limits import give_up
from tessera.passes.checker.memory import Memory
from tessera.passes.checker.order import Clock, Order
from tessera.passes.checker.shape import LASTING, TraceShape
from tessera.passes.checker.space import (
    POISON_TAG,
    POISON_VERSION,
    UNCLEAR_TAG,
    build_space,
    count_atoms,
    expand,
)
from tessera.passes.checker.tenants import Tenants
from tessera.passes.checker.waste import Host, find_waste


def check_versions(
    shape: TraceShape,
    order: Order,
    expected: ExpectedVersions,
    memory: Memory,
    claims: Claims,
    findings: Findings,
) -> None:
    """Walk one request, and check each of its operations."""
    if count_atoms(shape, expected, memory) > limits.MOST_ATOMS:
        give_up(shape.trace.trace, "touch too many ranges", findings)
        return
    walk = _VersionWalk(shape, expected, memory, claims, findings)
    for op, done in order:
        walk.do(op, done)
        if walk.work > limits.MOST_WORK:
            give_up(shape.trace.trace, "touch too many ranges", findings)
            return
    walk.finish()


class _VersionWalk:
    """The memory of all devices and of the host during a request."""

    def __init__(
        self,
        shape: TraceShape,
        expected: ExpectedVersions,
        memory: Memory,
        claims: Claims,
        findings: Findings,
    ) -> None:
        self.shape = shape
        self.expected = expected
        self.memory = memory
        self.claims = claims
        self.findings = findings
        self.before = findings.count
        self.names = shape.names
        self.devices = tuple(dict.fromkeys(device for device, _ in shape.queues))
        self.spaces = {
            device: build_space(shape, expected, memory, device) for device in self.devices
        }
        self.work = 0
        self.waste = {
            device: find_waste(device, shape, space) for device, space in self.spaces.items()
        }
        self.tenants = Tenants(shape, memory, self.spaces, findings)
        self.carried: dict[tuple[int, int], int | Versions] = {}
        self.host = Host(shape, expected, findings)
        self._begin()

    def _begin(self) -> None:
        """Enter the bytes in place before a request: homes, constant bytes, own addresses."""
        for home in self.claims.homes:
            self._put(home.device, int(home.buffer), ranges_of(home.bytes))
        for device in self.devices:
            for buffer, where in self.claims.constant.items():
                self._put(device, buffer, where)
            for buffer, words in self.expected.words.items():
                role = self.shape.graph.buffers[buffer].role
                if role is Role.WEIGHT:
                    whole = ranges_of([(0, self.shape.graph.buffers[buffer].bytes)])
                    self._put(device, buffer, whole)
                elif role not in LASTING:
                    self._put(device, buffer, words)

    def _put(self, device: str, buffer: int, where: Array) -> None:
        space = self.spaces[device]
        if buffer not in space.start or len(where) == 0:
            return
        if not space.holds(buffer, where):
            where = common(where, ranges_of([space.held[buffer]]))
        index = space.index(buffer, where)
        here, own = space.tags[index], space.tag(buffer, FIRST)
        # If two buffers start with the same bytes, it is unknown which of them is there.
        space.tags[index] = np.where((here == POISON_TAG) | (here == own), own, UNCLEAR_TAG)

    # --- operations ------------------------------------------------------------------------

    def do(self, op: Op, done: Clock) -> None:
        """Check one operation and record its effects."""
        match op.operation:
            case Run(step):
                self._run(op, done, int(step))
            case Fill(buffer, found):
                self._write(op, done, int(buffer), ranges_of(found), FIRST)
            case Free(buffer):
                self._free(op, done, int(buffer))
            case Send(number) | Put(number):
                self._send(op, done, int(number))
            case Receive(number) | AwaitPut(number):
                self._receive(op, done, int(number))
            case _:
                pass

    def _run(self, op: Op, done: Clock, step: int) -> None:
        space = self.spaces[op.device]
        self._check_weights(op, step)
        touches = []
        for touch in self.expected.touches[step]:
            if not self._has_place(op, touch.buffer, touch.needed, touch.written):
                continue
            needed = space.index_of(touch.buffer, touch.needed)
            written = space.index_of(touch.buffer, touch.written)
            is_clear = self._finds_clear(op, done, touch.buffer)
            touches.append((touch, needed, written, is_clear))
        self.tenants.check_apart(op, [touch.buffer for touch, *_ in touches])
        for touch, needed, written, is_clear in touches:
            ordered = is_clear or self._ordered(op, done, touch.buffer, written, writes=True)
            if not is_clear:
                ordered = self._ordered(op, done, touch.buffer, needed, writes=False) and ordered
            if ordered and len(touch.needed):
                self._check_current(op, touch, needed)
            if ordered and len(touch.written) and not is_clear:
                self._check_newer(op, touch.buffer, written, self.expected.versions[step])
        waste = self.waste[op.device]
        for touch, needed, written, _ in touches:
            if len(touch.needed):
                waste.use(needed)
                space.read(needed, op)
            if len(touch.written):
                waste.overwrite(written, op)
                space.write(written, op, space.tag(touch.buffer, self.expected.versions[step]))

    def _check_weights(self, op: Op, step: int) -> None:
        for weight in self.expected.weights[step]:
            if weight.written:
                self.findings.add(
                    "TSR4005",
                    f"step {self.names.step(step)} may write {self.names.buffer(weight.buffer)}, a "
                    "weight that all requests share",
                    self.names.op(op),
                )
            if weight.buffer in self.expected.bounds or weight.hull[0] == weight.hull[1]:
                continue  # it is walked, and checked like any other buffer, or nothing is touched
            place = self.memory.place(self.shape.trace.trace, op.device, weight.buffer)
            if place is None:
                self._no_place(op, weight.buffer)
                continue
            held = place.held(self.shape.graph.buffers[weight.buffer].bytes)
            if not held[0] <= weight.hull[0] < weight.hull[1] <= held[1]:
                self._not_held(op, weight.buffer, ranges_of([weight.hull]), held)

    def _check_current(self, op: Op, touch: StepTouch, index: Index) -> None:
        space = self.spaces[op.device]
        wanted = expand(space, self.expected, touch.buffer, touch.needed, index, touch.version)
        wrong = space.tags[index] != space.tag(touch.buffer, 0) + wanted
        if not wrong.any():
            return
        first = int(np.flatnonzero(wrong)[0])
        need = int(wanted if isinstance(wanted, int) else wanted[first])
        where = self._where(op, touch.buffer, index, wrong)
        self.findings.add(
            "TSR4004",
            f"step {self.names.step(_step(op))} uses bytes {where} of "
            f"{self.names.buffer(touch.buffer)} that are not current on `{op.device}`",
            self.names.op(op),
            f"it needs {self.names.version(need)}",
            self._what_is_there(op, touch.buffer, index, first),
        )

    def _free(self, op: Op, done: Clock, buffer: int) -> None:
        if not self._has_place(op, buffer):
            return
        space = self.spaces[op.device]
        index = slice(*space.span(buffer))
        self._ordered(op, done, buffer, index, writes=True)
        self.waste[op.device].overwrite(index, op)
        space.write(index, op, POISON_TAG)
        self.tenants.move_out(op, buffer)

    def _send(self, op: Op, done: Clock, number: int) -> None:
        transfer = self.shape.transfers[number]
        self._check_apart(op, transfer)
        for portion in transfer.portions:
            version = self._send_portion(op, done, number, portion)
            if transfer.target == HOST:
                self.host.take(op, int(portion.buffer), ranges_of(portion.bytes), version)
            else:
                self.carried[number, int(portion.buffer)] = version

    def _send_portion(self, op: Op, done: Clock, number: int, portion: Portion) -> int | Versions:
        """Check that the bytes of a portion are there to send, and return their version."""
        buffer, ranges = int(portion.buffer), ranges_of(portion.bytes)
        version: int | Versions = FIRST
        if self._has_place(op, buffer, ranges):
            self._finds_clear(op, done, buffer)
            space = self.spaces[op.device]
            index = space.index(buffer, ranges)
            ordered = self._ordered(op, done, buffer, index, writes=False)
            held = space.versions(buffer, index)
            lost = held == POISON_VERSION
            if ordered and lost.any():
                self.findings.add(
                    "TSR4006",
                    f"transfer {number} sends bytes {self._where(op, buffer, index, lost)} of "
                    f"{self.names.buffer(buffer)} that `{op.device}` does not have",
                    self.names.op(op),
                    self._what_is_there(op, buffer, index, int(np.flatnonzero(lost)[0])),
                )
            self.waste[op.device].use(index)
            space.read(index, op)
            version = space.by_atom(buffer, index, held)
        return version

    def _receive(self, op: Op, done: Clock, number: int) -> None:
        transfer = self.shape.transfers[number]
        self._check_apart(op, transfer)
        for portion in transfer.portions:
            buffer = int(portion.buffer)
            version = FIRST if transfer.source == HOST else self.carried.pop((number, buffer))
            self._write(op, done, buffer, ranges_of(portion.bytes), version)

    def _check_apart(self, op: Op, transfer: Transfer) -> None:
        """Check that the buffers of a transfer share no bytes, so that their order is free."""
        buffers = [int(portion.buffer) for portion in transfer.portions]
        placed = [buffer for buffer in buffers if buffer in self.spaces[op.device].start]
        self.tenants.check_apart(op, placed)

    def _write(
        self, op: Op, done: Clock, buffer: int, ranges: Array, version: int | Versions
    ) -> None:
        """A fill or a receive."""
        if not self._has_place(op, buffer, ranges):
            return
        space = self.spaces[op.device]
        index = space.index(buffer, ranges)
        wanted = expand(space, self.expected, buffer, ranges, index, version)
        is_clear = self._finds_clear(op, done, buffer)
        if not is_clear and self._ordered(op, done, buffer, index, writes=True):
            self._check_newer(op, buffer, index, wanted)
        lost = np.asarray(wanted) == POISON_VERSION
        tags = np.where(lost, POISON_TAG, space.tag(buffer, 0) + np.asarray(wanted))
        if isinstance(op.operation, Receive | AwaitPut):
            self.waste[op.device].receive(index, op, space.tags[index] == tags)
        else:
            self.waste[op.device].overwrite(index, op)
        space.write(index, op, tags)

    # --- rules -----------------------------------------------------------------------------

    def _finds_clear(self, op: Op, done: Clock, buffer: int) -> bool:
        """Whether a buffer moves in now and all use of its place is over: no part needs a check."""
        space = self.spaces[op.device]
        span = slice(*space.span(buffer))
        if not self.tenants.move_in(op, buffer):
            self.tenants.check_moved_in(op, done, buffer)
            return False
        is_clear = self._ordered(op, done, buffer, span, writes=True)
        if is_clear:
            self.tenants.note_earlier(op, buffer, space.reads[:, span], space.writes[:, span])
        return is_clear

    def _has_place(self, op: Op, buffer: int, *touched: Array) -> bool:
        """Whether bytes of a buffer are on the device and not freed yet; report it if not."""
        if self.tenants.is_freed(op, buffer):
            return False
        space = self.spaces[op.device]
        if buffer in space.start:
            for ranges in touched:
                if not space.holds(buffer, ranges):
                    self._not_held(op, buffer, ranges, space.held[buffer])
                    return False
            return True
        if self.shape.graph.buffers[buffer].bytes == 0:
            return False
        self._no_place(op, buffer)
        return False

    def _no_place(self, op: Op, buffer: int) -> None:
        self.findings.add(
            "TSR4009",
            f"{self.names.buffer(buffer)} has no place on `{op.device}`, where it is used",
            self.names.op(op),
        )

    def _not_held(self, op: Op, buffer: int, ranges: Array, held: tuple[int, int]) -> None:
        lost = text(minus(ranges, ranges_of([held])))
        self.findings.add(
            "TSR4009",
            f"the place of {self.names.buffer(buffer)} on `{op.device}` lacks bytes {lost}, which "
            "are used there",
            self.names.op(op),
            f"it holds bytes {held[0]}:{held[1]}",
        )

    def _ordered(self, op: Op, done: Clock, buffer: int, index: Index, *, writes: bool) -> bool:
        """Whether all conflicting operations are over when one begins; report the pair if not."""
        space = self.spaces[op.device]
        for table in (space.writes, space.reads) if writes else (space.writes,):
            last = table[:, index]
            if last.shape[1] == 0:
                continue
            self.work += last.shape[1]
            late = last >= done[:, None]
            if not late.any():
                continue
            row = int(np.flatnonzero(late.any(axis=1))[0])
            queue = tuple(Queue)[row]
            other = self.shape.queues[op.device, queue][int(last[row].max())]
            where = self._where(op, buffer, index, last[row] >= done[row])
            self.findings.add(
                "TSR4005",
                f"two operations on bytes {where} of {self.names.buffer(buffer)} on `{op.device}` "
                "are not ordered",
                self.names.op(other),
                self.names.op(op),
                "one of them writes, and nothing makes the second wait for the first",
            )
            return False
        return True

    def _check_newer(self, op: Op, buffer: int, index: Index, version: int | Array) -> None:
        """Check that a write puts no older version of a buffer's bytes over a newer one."""
        space = self.spaces[op.device]
        base = space.tag(buffer, 0)
        tags = space.tags[index]
        newer = (tags > base + np.asarray(version)) & (tags < space.tag(buffer + 1, FIRST))
        if not newer.any():
            return
        first = int(np.flatnonzero(newer)[0])
        self.findings.add(
            "TSR4006",
            f"bytes {self._where(op, buffer, index, newer)} of {self.names.buffer(buffer)} on "
            f"`{op.device}` are overwritten by an older version",
            self.names.op(op),
            self._what_is_there(op, buffer, index, first),
        )

    # --- words -----------------------------------------------------------------------------

    def _where(self, op: Op, buffer: int, index: Index, mask: npt.NDArray[np.bool_]) -> str:
        """The byte ranges in words, as offsets in the buffer."""
        space = self.spaces[op.device]
        return text(marked(space.bounds, index, mask) - space.start[buffer])

    def _what_is_there(self, op: Op, buffer: int, index: Index, at: int) -> str:
        space = self.spaces[op.device]
        owner, version = space.owner(int(space.tags[index][at]))
        last = space.writes[:, index][:, at]
        writers = [
            self.shape.queues[op.device, queue][int(position)]
            for queue, position in zip(Queue, last, strict=True)
            if position >= 0
        ]
        by = f", by {self.names.op(max(writers, key=lambda w: w.number))}" if writers else ""
        if owner is None:
            return f"there is nothing{by}"
        whose = "" if owner == buffer else f"{self.names.buffer(owner)}: "
        return f"there is {whose}{self.names.version(version)}{by}"

    # --- the end ---------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that the host has all outputs, and that persistent bytes are at home."""
        self.host.finish()
        for home in self.claims.homes:
            self._check_home(home)
        if self.findings.count > self.before:
            return  # earlier faults would show here again, with less useful messages
        for waste in self.waste.values():
            waste.finish(self.findings)

    def _check_home(self, home: Home) -> None:
        space, buffer = self.spaces[home.device], int(home.buffer)
        ranges = ranges_of(home.bytes)
        index = space.index(buffer, ranges)
        self.waste[home.device].use(index)
        final = self.expected.final[buffer][places(self.expected.bounds[buffer], ranges)]
        wanted = expand(space, self.expected, buffer, ranges, index, final)
        wrong = space.tags[index] != space.tag(buffer, 0) + wanted
        if not wrong.any():
            return
        where = text(marked(space.bounds, index, wrong) - space.start[buffer])
        need = wanted if isinstance(wanted, int) else int(wanted[int(np.flatnonzero(wrong)[0])])
        self.findings.add(
            "TSR4007",
            f"bytes {where} of {self.names.buffer(buffer)} are not current at home on "
            f"`{home.device}` when a request ends",
            f"the next request needs {self.names.version(need)}",
        )


def _step(op: Op) -> int:
    assert isinstance(op.operation, Run)
    return int(op.operation.step)
