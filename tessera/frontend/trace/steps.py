"""The steps of a trace that launch no kernel: memsets, copies, library calls, events, waits.

In: the fields of a record. Out: steps in file order, with `LaunchId` and `EventId` counted up.
Ranges lie inside their buffers, copies do not overlap themselves, weights are never written.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.diagnostics import Label, Span
from tessera.frontend.trace.fields import Fields, read_stream
from tessera.frontend.trace.findings import TraceFindings, did_you_mean
from tessera.frontend.trace.syntax import Token
from tessera.frontend.trace.values import MAX_BYTES, Values
from tessera.ir.program.program import (
    Buffer,
    Event,
    EventId,
    LaunchId,
    LibraryCall,
    Memcpy,
    Memset,
    Pointer,
    Role,
    Step,
    Wait,
)

Place = tuple[int, int]


class TraceSteps:
    """The steps so far."""

    def __init__(self, findings: TraceFindings, values: Values) -> None:
        self.findings = findings
        self.values = values
        self.steps: list[Step] = []
        self._work = 0
        self._events: dict[str, Event] = {}
        self._event_count = 0

    def next_id(self) -> LaunchId:
        """The id of the next launch, memset, memcpy or library call."""
        self._work += 1
        return LaunchId(self._work - 1)

    def memset(self, fields: Fields, names: Sequence[Token]) -> None:
        """`memset y+0 bytes=4096 value=0x00`."""
        target, place = self._address(fields, names[0])
        size = self._range(fields, target, place)
        self._check_written(target, place, "memset")
        width = 1
        if "element_bytes" in fields:
            text, at = fields.value("element_bytes")
            width = self.values.integer(text, at, "`element_bytes`", 1, 4)
            if width == 3 or size % width:
                message = "`element_bytes` must be 1, 2 or 4, and divide `bytes`"
                self.findings.fail("TSR1138", message, fields.place("element_bytes"))
        high = (1 << (8 * width)) - 1
        value = self.values.integer(*fields.value("value"), "`value`", 0, high)
        self.steps.append(
            Memset(
                id=self.next_id(),
                target=target,
                bytes=size,
                value=value,
                element_bytes=width,
                stream=read_stream(fields, self.findings),
                span=self._span(fields),
            )
        )

    def memcpy(self, fields: Fields, names: Sequence[Token]) -> None:
        """`memcpy y+0 x+0 bytes=4096`: target, then source."""
        target, place = self._address(fields, names[0])
        source, source_place = self._address(fields, names[1])
        size = self._range(fields, target, place)
        self._range(fields, source, source_place)
        self._check_written(target, place, "memcpy")
        if target.buffer == source.buffer and abs(target.offset - source.offset) < size:
            self.findings.fail(
                "TSR1139",
                "source and target of a copy overlap",
                source_place,
                secondary=(Label(self.findings.span(*place), "the target"),),
                hint="the result would depend on the order in which bytes are copied",
            )
        self.steps.append(
            Memcpy(
                id=self.next_id(),
                target=target,
                source=source,
                bytes=size,
                stream=read_stream(fields, self.findings),
                span=self._span(fields),
            )
        )

    def library_call(self, fields: Fields, names: Sequence[Token]) -> None:
        """`op aten::mm.out reads=[...] writes=[...] attrs={...}`."""
        reads = self.values.operands(*fields.value("reads"))
        writes = self.values.operands(*fields.value("writes"))
        for operand in writes:
            self._check_written(operand.pointer, fields.place("writes"), "op")
        attributes = self.values.attributes(*fields.value("attrs")) if "attrs" in fields else ()
        call = LibraryCall(
            id=self.next_id(),
            operator=str(names[0]),
            reads=reads,
            writes=writes,
            attributes=attributes,
            stream=read_stream(fields, self.findings),
            span=self._span(fields),
        )
        self._check_operator(call, fields.base + (names[0].start_pos or 0))
        self.steps.append(call)

    def event(self, fields: Fields, names: Sequence[Token]) -> None:
        """`event done stream=1`."""
        stream = read_stream(fields, self.findings)
        event = Event(EventId(self._event_count), str(names[0]), stream, self._span(fields))
        self._event_count += 1
        self._events[event.name] = event
        self.steps.append(event)

    def wait(self, fields: Fields, names: Sequence[Token]) -> None:
        """`wait done stream=2`: for the last `event done` above."""
        name = str(names[0])
        event = self._events.get(name)
        if event is None:
            start = fields.base + (names[0].start_pos or 0)
            self.findings.fail(
                "TSR1170",
                f"event `{name}` is waited for, but no record above records it",
                (start, start + len(name)),
                hint=did_you_mean(name, self._events)
                or f"put `//! event {name} stream=S` after the work to wait for",
            )
        stream = read_stream(fields, self.findings)
        self.steps.append(Wait(event.id, stream, self._span(fields)))

    # --- parts -----------------------------------------------------------------------------

    def _check_operator(self, call: LibraryCall, start: int) -> None:
        # Imported here because few traces call a library, and the table is large.
        from tessera.ir.operators import table as operators

        place = (start, start + len(call.operator))
        if call.operator not in operators.table():
            near = " or ".join(f"`{name}`" for name in operators.near_names(call.operator))
            self.findings.fail(
                "TSR1163",
                f"no operator `{call.operator}` is known",
                place,
                hint=f"did you mean {near}?" if near else None,
            )
        try:
            operators.bind(call)
        except operators.OperatorMismatch as reason:
            self.findings.fail("TSR1164", f"this is no call of `{call.operator}`: {reason}", place)

    def _address(self, fields: Fields, token: Token) -> tuple[Pointer, Place]:
        start = fields.base + (token.start_pos or 0)
        return self.values.address(str(token), start), (start, start + len(token))

    def _range(self, fields: Fields, pointer: Pointer, place: Place) -> int:
        size = self.values.integer(*fields.value("bytes"), "`bytes`", 1, MAX_BYTES)
        buffer = self._buffer(pointer)
        if pointer.offset + size > buffer.bytes:
            self.findings.fail(
                "TSR1137",
                f"{size} bytes from `{buffer.name}+{pointer.offset}` reach outside the buffer",
                place,
                f"`{buffer.name}` has {buffer.bytes} bytes",
            )
        return size

    def _check_written(self, target: Pointer, place: Place, kind: str) -> None:
        buffer = self._buffer(target)
        if buffer.role is not Role.WEIGHT:
            return
        self.findings.fail(
            "TSR1143",
            f"`{kind}` writes the weight `{buffer.name}`",
            place,
            secondary=(Label(buffer.span, "declared here"),) if buffer.span else (),
            hint="a weight is shared by all requests; make it a `state` if it changes",
        )

    def _buffer(self, pointer: Pointer) -> Buffer:
        return self.values.by_id(pointer.buffer)

    def _span(self, fields: Fields) -> Span:
        return self.findings.span(fields.line.start, fields.line.end)
