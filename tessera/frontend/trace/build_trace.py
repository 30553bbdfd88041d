"""Trace records to a `Program`, record by record, in file order.

In: the parts of a trace (`trace_split`). Out: program records; faults go to `TraceFindings`, and
the record at hand is then left out. Names must be declared above their use. A launch stays open
until a record other than `variant` follows, because its variants decide how it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod

from tessera.diagnostics import Label, Span
from tessera.frontend.trace.fields import Fields, read_fields
from tessera.frontend.trace.findings import RecordAbandoned, TraceFindings, did_you_mean
from tessera.frontend.trace.launches import Launches
from tessera.frontend.trace.modules import (
    ModuleRecord,
    Modules,
    OpenModule,
    ParsePtx,
    variable_buffers,
)
from tessera.frontend.trace.parse_record import parse_record
from tessera.frontend.trace.split import MARK, RECORD_KINDS, Indented, Line, Part, Segment
from tessera.frontend.trace.steps import TraceSteps
from tessera.frontend.trace.syntax import SyntaxFault, Token
from tessera.frontend.trace.values import MAX_BYTES, Values
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import VERSION
from tessera.ir.program.program import (
    POINTER_BYTES,
    Buffer,
    BufferId,
    PointerTable,
    PointerWord,
    Program,
    ProgramModule,
    Role,
)

_ROLES = {role.value: role for role in Role if role is not Role.VARIABLE}
_PLAIN_FILE = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$.+-]*\.(?:npz|safetensors)")
_ARCH = re.compile(r"sm_[0-9]+[a-z]?")
_UNDECODED = re.compile("[\udc80-\udcff]")


class StopReading(Exception):
    """Nothing after this record can be trusted to mean what it seems to."""


class ProgramBuilder:
    """Takes the parts of one trace in file order; `program` is what they say."""

    def __init__(self, findings: TraceFindings, parse_ptx: ParsePtx, declared: int) -> None:
        """`declared` is the number of `buffer` records: variables get the ids after them."""
        self.findings = findings
        self.values = Values(findings)
        self.modules = Modules(findings, parse_ptx)
        self.steps = TraceSteps(findings, self.values)
        self.launches = Launches(self.values, self.modules, self.steps)
        self._declared = declared
        self._buffers: list[Buffer] = []
        self._variables: list[Buffer] = []
        self._tables: dict[BufferId, PointerTable] = {}
        self._table_words: dict[tuple[BufferId, int], Span] = {}
        self._resident: str | None = None
        self._resident_span: Span | None = None
        self._pending_module: ModuleRecord | None = None
        self._has_version = False
        self._readers: dict[str, Callable[[Fields, Sequence[Token]], None]] = {
            "buffer": self._buffer,
            "resident": self._read_resident,
            "module": self._module,
            "launch": self.launches.launch,
            "variant": self.launches.variant,
            "memset": self.steps.memset,
            "memcpy": self.steps.memcpy,
            "op": self.steps.library_call,
            "event": self.steps.event,
            "wait": self.steps.wait,
        }

    def program(self) -> Program:
        """The whole, once every part was added and nothing was wrong."""
        modules = self.modules.by_name.values()
        return Program(
            buffers=(*self._buffers, *self._variables),
            modules=tuple(ProgramModule(m.id, m.name, tuple(m.variants)) for m in modules),
            pointer_tables=tuple(self._tables.values()),
            steps=tuple(self.steps.steps),
            resident=self._resident,
            source=self.findings.source,
        )

    def add(self, part: Part) -> None:
        """Take the next part; what is wrong with it is reported."""
        if isinstance(part, Line):
            try:
                self._record(part)
            except RecordAbandoned:
                return
        elif isinstance(part, Segment):
            self._segment(part)
        elif isinstance(part, Indented):
            self.findings.error(
                "TSR1107",
                "a record does not start its line, so it would be a comment",
                (part.start, part.end),
                hint="remove the spaces in front of `//!`",
            )
        else:
            self._stray((part.start, part.end))

    def finish(self) -> None:
        """Close what is still open at the end of the file."""
        self.launches.close()

    # --- records ---------------------------------------------------------------------------

    def _record(self, line: Line) -> None:
        if line.kind != "variant":
            self.launches.close()
        base = line.start + len(MARK)
        text = self.findings.source.text[base : line.end]
        self._check_text(line, text, base)
        try:
            names, given = parse_record(text)
        except SyntaxFault as fault:
            self._forgive_module(line, text)
            place = (base + fault.start, base + fault.end)
            self.findings.fail("TSR1103", fault.message, place, fault.label)
        if line.kind == "tessera.trace":
            self._version(line, base, names[0])
            return
        self._check_version(line)
        if line.kind == "pointers":
            self._pointers(line, base, names)
            return
        try:
            fields = read_fields(line, base, names, given, self.findings)
        except RecordAbandoned:
            self._forgive_module(line, text)
            raise
        self._readers[line.kind](fields, names)

    def _check_text(self, line: Line, text: str, base: int) -> None:
        if undecoded := _UNDECODED.search(text):
            self.findings.fail(
                "TSR1115",
                "a record holds a byte that is not UTF-8",
                (base + undecoded.start(), base + undecoded.end()),
                f"byte 0x{ord(undecoded[0]) - 0xDC00:02x}",
                hint="save the trace as UTF-8",
            )
        if line.kind in RECORD_KINDS:
            return
        start = base + len(text) - len(text.lstrip())
        self.findings.fail(
            "TSR1102",
            f"unknown record `{line.kind[:40]}`" if line.kind else "a record has no kind",
            (start, start + len(line.kind)),
            notes=("records: " + ", ".join(RECORD_KINDS),),
            hint=did_you_mean(line.kind, RECORD_KINDS) or "a comment starts with `//` and no `!`",
        )

    def _forgive_module(self, line: Line, text: str) -> None:
        """Let launches of a module whose record is wrong pass: its fault is reported already."""
        match = re.match(r"\s*module\s+([A-Za-z0-9_$.]+)", text)
        if line.kind == "module" and match:
            self.modules.mark_broken(match[1])

    def _version(self, line: Line, base: int, token: Token) -> None:
        place = (base + (token.start_pos or 0), base + (token.end_pos or 0))
        if self._has_version:
            self.findings.fail(
                "TSR1109", "the version of the trace is given twice", (line.start, line.end)
            )
        self._has_version = True
        if token != str(VERSION):
            self.findings.error(
                "TSR1101",
                f"unknown trace version: {token[:20]}",
                place,
                hint=f"this release of Tessera reads version {VERSION}",
            )
            raise StopReading

    def _check_version(self, line: Line) -> None:
        if self._has_version:
            return
        self._has_version = True
        self.findings.error(
            "TSR1100",
            "the trace does not start with its version",
            (line.start, line.end),
            "the first record",
            hint=f"put `//! tessera.trace {VERSION}` before it",
        )

    # --- buffers ---------------------------------------------------------------------------

    def _buffer(self, fields: Fields, names: Sequence[Token]) -> None:
        name, place = self._name(fields, names)
        if known := self.values.buffers.get(name):
            self._duplicate_buffer(known, place)
        size = self.values.integer(*fields.value("bytes"), "`bytes`", 1, MAX_BYTES)
        role = self._role(*fields.value("role"))
        dtype = self.values.data_type(*fields.value("dtype")) if "dtype" in fields else None
        shape = self.values.shape(*fields.value("shape")) if "shape" in fields else None
        self._check_size(fields, size, dtype, shape)
        buffer = Buffer(
            id=BufferId(len(self._buffers)),
            name=name,
            bytes=size,
            role=role,
            dtype=dtype,
            shape=shape,
            span=self._span(fields),
        )
        self._buffers.append(buffer)
        self.values.declare(buffer)

    def _duplicate_buffer(self, known: Buffer, place: tuple[int, int]) -> None:
        what = "a variable of its module" if known.role is Role.VARIABLE else "first declared here"
        self.findings.fail(
            "TSR1110",
            f"buffer `{known.name}` is declared twice",
            place,
            secondary=(Label(known.span, what),) if known.span else (),
        )

    def _role(self, text: str, at: int) -> Role:
        role = _ROLES.get(text)
        if role is None:
            self.findings.fail(
                "TSR1123",
                f"unknown role `{text[:40]}`",
                (at, at + len(text)),
                notes=("roles: " + ", ".join(_ROLES),),
                hint=did_you_mean(text, _ROLES),
            )
        return role

    def _check_size(
        self, fields: Fields, size: int, dtype: DataType | None, shape: tuple[int, ...] | None
    ) -> None:
        if dtype is not None and shape is not None and prod(shape) * dtype.bytes != size:
            self.findings.fail(
                "TSR1121",
                f"{'x'.join(map(str, shape))} elements of `{dtype.value}` are "
                f"{prod(shape) * dtype.bytes} bytes, not {size}",
                fields.place("shape"),
            )
        if dtype is not None and size % dtype.bytes:
            self.findings.fail(
                "TSR1121",
                f"{size} bytes are no whole number of elements of `{dtype.value}`",
                fields.place("dtype"),
                f"{dtype.bytes} bytes each",
            )
        if shape is not None and dtype is None:
            self.findings.fail(
                "TSR1121",
                "a buffer with a shape needs a type",
                fields.place("shape"),
                hint="add `dtype=`",
            )

    def _pointers(self, line: Line, base: int, names: Sequence[Token]) -> None:
        name, text = names
        at = base + (text.start_pos or 0)
        buffer = self.values.buffer(str(name), base + (name.start_pos or 0))
        words = self.values.pointer_words(str(text), at)
        for word, place in words:
            self._check_word(buffer, word, (place, place + len(str(word.offset))))
        span = self.findings.span(line.start, line.end)
        known = self._tables.setdefault(buffer.id, PointerTable(buffer.id, (), span))
        every = [*known.words, *(word for word, _ in words)]
        every.sort(key=lambda word: word.offset)
        self._tables[buffer.id] = replace(known, words=tuple(every))

    def _check_word(self, buffer: Buffer, word: PointerWord, place: tuple[int, int]) -> None:
        if word.offset % POINTER_BYTES:
            message = f"pointer at byte {word.offset} is not aligned to {POINTER_BYTES} bytes"
            self.findings.fail("TSR1141", message, place)
        if word.offset + POINTER_BYTES > buffer.bytes:
            self.findings.fail(
                "TSR1140",
                f"pointer at byte {word.offset} is outside `{buffer.name}`",
                place,
                f"`{buffer.name}` has {buffer.bytes} bytes",
            )
        known = self._table_words.setdefault(
            (buffer.id, word.offset), span := self.findings.span(*place)
        )
        if known is not span:
            self.findings.fail(
                "TSR1142",
                f"the pointer at byte {word.offset} of `{buffer.name}` is given twice",
                place,
                secondary=(Label(known, "first given here"),),
            )

    def _read_resident(self, fields: Fields, names: Sequence[Token]) -> None:
        text, at = fields.value("data")
        if self._resident_span is not None:
            self.findings.fail(
                "TSR1110",
                "the file of contents is given twice",
                (at, at + len(text)),
                secondary=(Label(self._resident_span, "first given here"),),
            )
        if not _PLAIN_FILE.fullmatch(text):
            self.findings.fail(
                "TSR1180",
                f"`{text[:80]}` is not a plain file name ending in `.npz` or `.safetensors`",
                (at, at + len(text)),
                "contents stand in the trace's own folder",
            )
        self._resident, self._resident_span = text, self.findings.span(at, at + len(text))

    # --- modules ---------------------------------------------------------------------------

    def _module(self, fields: Fields, names: Sequence[Token]) -> None:
        name, place = self._name(fields, names)
        arch = fields.value("arch")[0] if "arch" in fields else None
        if arch is not None and not _ARCH.fullmatch(arch):
            self.modules.mark_broken(name)
            self.findings.fail(
                "TSR1154",
                f"`{arch[:40]}` is not an architecture",
                fields.place("arch"),
                hint="write it as PTX does: `sm_80`, `sm_90a`",
            )
        span = self._span(fields)
        self._pending_module = ModuleRecord(name, place, arch, fields.place("arch"), span)

    def _segment(self, segment: Segment) -> None:
        record, self._pending_module = self._pending_module, None
        if record is None:  # the module's record has a fault
            return
        module = self.modules.add(record, segment)
        if len(module.variants) == 1 and not module.broken:
            self._declare_variables(module, record)

    def _declare_variables(self, module: OpenModule, record: ModuleRecord) -> None:
        for buffer in variable_buffers(module, self._declared + len(self._variables)):
            if known := self.values.buffers.get(buffer.name):
                self.findings.error(
                    "TSR1110",
                    f"buffer `{known.name}` has the name of a module variable",
                    (known.span.start, known.span.end) if known.span else record.name_place,
                )
                continue
            self._variables.append(buffer)
            self.values.declare(buffer)

    def _stray(self, place: tuple[int, int]) -> None:
        steps = self.steps.steps or self.modules.by_name
        self.findings.error(
            "TSR1108",
            "this text belongs to no module",
            (place[0], min(place[1], place[0] + 80)),
            hint="PTX goes right after its `//! module NAME` record, before the first step"
            if steps
            else "start the module with `//! module NAME`",
        )

    # --- parts -----------------------------------------------------------------------------

    def _name(self, fields: Fields, names: Sequence[Token]) -> tuple[str, tuple[int, int]]:
        start = fields.base + (names[0].start_pos or 0)
        return str(names[0]), (start, start + len(names[0]))

    def _span(self, fields: Fields) -> Span:
        return self.findings.span(fields.line.start, fields.line.end)
