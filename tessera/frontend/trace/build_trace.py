"""Trace records to a `Program`, record by record, in file order.

In: the parts of a trace (`split`). Out: program records; faults go to `TraceFindings`, and a record
with a fault is left out. Names must be declared above their use. Every record is read the same way:
its names and keys as the table `RECORDS` has them, each value by the type of its field. Values with
further rules have a reader of their own, here or in `steps`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod
from typing import NoReturn

from tessera.diagnostics import Label, Span
from tessera.frontend.trace.findings import RecordAbandoned, TraceFindings, did_you_mean
from tessera.frontend.trace.modules import Modules, OpenModule, ParsePtx, variable_buffers
from tessera.frontend.trace.parse_record import parse_record
from tessera.frontend.trace.records import RECORDS, ModuleRecord, OpenRecord, RecordKey, open_record
from tessera.frontend.trace.split import MARK, Indented, Line, Part, Segment
from tessera.frontend.trace.steps import ReadSpecial, Take, TraceSteps
from tessera.frontend.trace.syntax import SyntaxFault
from tessera.frontend.trace.values import ReadValue, Values
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import VERSIONS
from tessera.ir.program.program import (
    POINTER_BYTES,
    Buffer,
    BufferId,
    Notes,
    PointerTable,
    PointerWord,
    Program,
    ProgramModule,
    Role,
)
from tessera.ir.program.routing import LAWS, Routing, parse_routing

_PLAIN_FILE = re.compile(r"[A-Za-z0-9_$][A-Za-z0-9_$.+-]*\.(?:npz|safetensors)")
_ARCH = re.compile(r"sm_[0-9]+[a-z]?")
_TUNED = re.compile(r"sm_[0-9]+[a-z]?:[1-9][0-9]{0,3}sm")
_UNDECODED = re.compile("[\udc80-\udcff]")


class StopReading(Exception):
    """Raised when the meaning of all further records is in doubt."""


class ProgramBuilder:
    """Takes the parts of one trace in file order; `program` is the result."""

    def __init__(self, findings: TraceFindings, parse_ptx: ParsePtx, declared: int) -> None:
        """`declared` is the number of `buffer` records: variables get the ids after them."""
        self.findings = findings
        self.values = Values(findings)
        self.modules = Modules(findings, parse_ptx)
        self.steps = TraceSteps(self.values, self.modules)
        self._declared = declared
        self._buffers: list[Buffer] = []
        self._variables: list[Buffer] = []
        self._tables: dict[BufferId, PointerTable] = {}
        self._table_words: dict[tuple[BufferId, int], Span] = {}
        self._notes: Notes = ()
        self._resident: str | None = None
        self._resident_span: Span | None = None
        self._routing: Routing | None = None
        self._pending_module: ModuleRecord | None = None
        self._has_version = False
        self._version_given = ""
        readers: dict[tuple[str, str], ReadSpecial] = {
            ("tessera.trace", "version"): self._version,
            ("buffer", "name"): self._buffer_name,
            ("resident", "data"): self._contents,
            ("routing", "law"): self._law,
            ("module", "arch"): self._arch,
            ("pointers", "words"): self._words,
            **self.steps.readers,
        }
        self._readers = {word: self._readers_of(word, readers) for word in RECORDS}
        self._takers: dict[str, Take] = {
            "tessera.trace": self._take_version,
            "buffer": self._take_buffer,
            "resident": self._take_resident,
            "routing": self._take_routing,
            "module": self._take_module,
            "pointers": self._take_pointers,
            **self.steps.takers,
        }

    def _readers_of(
        self, word: str, special: dict[tuple[str, str], ReadSpecial]
    ) -> list[tuple[RecordKey, ReadSpecial | None, ReadValue]]:
        """The readers of the names and keys of a kind, in order: its special reader, or the reader
        of its type."""
        kind = RECORDS[word]
        return [
            (key, special.get((word, key.name)), self.values.by_type.get(key.type, _unreadable))
            for key in (*kind.names, *kind.keys)
        ]

    def program(self) -> Program:
        """The whole program, once every part was added without a fault."""
        modules = self.modules.by_name.values()
        return Program(
            buffers=(*self._buffers, *self._variables),
            modules=tuple(ProgramModule(m.id, m.name, tuple(m.variants)) for m in modules),
            pointer_tables=tuple(self._tables.values()),
            steps=tuple(self.steps.steps),
            resident=self._resident,
            routing=self._routing,
            notes=self._notes,
            source=self.findings.source,
        )

    def add(self, part: Part) -> None:
        """Take the next part and report its faults."""
        if isinstance(part, Line):
            try:
                self._record(part)
            except RecordAbandoned:
                return
        elif isinstance(part, Segment):
            self._segment(part)
        elif isinstance(part, Indented):
            self.findings.error(
                "TSR1103",
                "a record does not start its line, so it would be a comment",
                (part.start, part.end),
                hint="remove the spaces in front of `//!`",
            )
        else:
            self._stray((part.start, part.end))

    def finish(self) -> None:
        """Close what is still open at the end of the file."""
        self.steps.close()

    # --- records ---------------------------------------------------------------------------

    def _record(self, line: Line) -> None:
        if line.kind != "variant":
            self.steps.close()
        base = line.start + len(MARK)
        text = self.findings.source.text[base : line.end]
        self._check_text(line, text, base)
        try:
            syntax = parse_record(text)
        except SyntaxFault as fault:
            self._forgive_module(line, text)
            place = (base + fault.start, base + fault.end)
            self.findings.fail("TSR1103", fault.message, place, fault.label)
        if line.kind != "tessera.trace":
            self._check_version(line)
        try:
            record = open_record(line.kind, (line.start, line.end), base, syntax, self.findings)
        except RecordAbandoned:
            self._forgive_module(line, text)
            raise
        given, row = record.given, record.row
        for key, special, by_type in self._readers[line.kind]:
            value = given.get(key.name)
            if value is None:
                continue
            row[key.field] = special(record, *value) if special else by_type(*value, key.name)
        self._takers[line.kind](record)

    def _check_text(self, line: Line, text: str, base: int) -> None:
        if undecoded := _UNDECODED.search(text):
            self.findings.fail(
                "TSR1103",
                "a record holds a byte that is not UTF-8",
                (base + undecoded.start(), base + undecoded.end()),
                f"byte 0x{ord(undecoded[0]) - 0xDC00:02x}",
                hint="save the trace as UTF-8",
            )
        if line.kind in RECORDS:
            return
        start = base + len(text) - len(text.lstrip())
        self.findings.fail(
            "TSR1103",
            f"unknown record `{line.kind[:40]}`" if line.kind else "a record has no kind",
            (start, start + len(line.kind)),
            notes=("records: " + ", ".join(RECORDS),),
            hint=did_you_mean(line.kind, RECORDS) or "a comment starts with `//` and no `!`",
        )

    def _forgive_module(self, line: Line, text: str) -> None:
        """Accept launches of a module whose record is wrong: its fault is already reported."""
        match = re.match(r"\s*module\s+([A-Za-z0-9_$.]+)", text)
        if line.kind == "module" and match:
            self.modules.mark_broken(match[1])

    def _version(self, record: OpenRecord, text: str, at: int) -> str:
        if self._has_version:
            message = "the version of the trace is given twice"
            self.findings.fail("TSR1109", message, (record.start, record.end))
        self._has_version = True
        self._version_given = text
        if text not in VERSIONS:
            self.findings.error(
                "TSR1100",
                f"unknown trace version: {text[:20]}",
                (at, at + len(text)),
                hint=f"this release of Tessera reads versions 1 to {VERSIONS[-1]}",
            )
            raise StopReading
        return text

    def _take_version(self, record: OpenRecord) -> None:
        self._notes = record.make(self.findings).notes

    def _check_version(self, line: Line) -> None:
        if self._has_version:
            return
        self._has_version = True
        self.findings.error(
            "TSR1100",
            "the trace does not start with its version",
            (line.start, line.end),
            "the first record",
            hint=f"put `//! tessera.trace {VERSIONS[0]}` before it",
        )

    # --- buffers ---------------------------------------------------------------------------

    def _buffer_name(self, record: OpenRecord, name: str, at: int) -> str:
        if known := self.values.buffers.get(name):
            variable = known.role is Role.VARIABLE
            what = "a variable of its module" if variable else "first declared here"
            self.findings.fail(
                "TSR1110",
                f"buffer `{name}` is declared twice",
                (at, at + len(name)),
                secondary=(Label(known.span, what),) if known.span else (),
            )
        return name

    def _take_buffer(self, record: OpenRecord) -> None:
        buffer = record.make(self.findings, id=BufferId(len(self._buffers)))
        self._check_size(record, buffer.bytes, buffer.dtype, buffer.shape)
        self._buffers.append(buffer)
        self.values.declare(buffer)

    def _check_size(
        self, record: OpenRecord, size: int, dtype: DataType | None, shape: tuple[int, ...] | None
    ) -> None:
        if dtype is not None and shape is not None and prod(shape) * dtype.bytes != size:
            self.findings.fail(
                "TSR1121",
                f"{'x'.join(map(str, shape))} elements of `{dtype.value}` are "
                f"{prod(shape) * dtype.bytes} bytes, not {size}",
                record.place("shape"),
            )
        if dtype is not None and size % dtype.bytes:
            self.findings.fail(
                "TSR1121",
                f"{size} bytes are no whole number of elements of `{dtype.value}`",
                record.place("dtype"),
                f"{dtype.bytes} bytes each",
            )
        if shape is not None and dtype is None:
            self.findings.fail(
                "TSR1121",
                "a buffer with a shape needs a type",
                record.place("shape"),
                hint="add `dtype=`",
            )

    def _words(self, record: OpenRecord, text: str, at: int) -> tuple[PointerWord, ...]:
        buffer = self.values.by_id(record.row["buffer"])
        words = self.values.pointer_words(text, at)
        for word, place in words:
            self._check_word(buffer, word, (place, place + len(str(word.offset))))
        return tuple(word for word, _ in words)

    def _take_pointers(self, record: OpenRecord) -> None:
        table: PointerTable = record.make(self.findings)
        known = self._tables.get(table.buffer, replace(table, words=()))
        every = sorted([*known.words, *table.words], key=lambda word: word.offset)
        self._tables[table.buffer] = replace(known, words=tuple(every))

    def _check_word(self, buffer: Buffer, word: PointerWord, place: tuple[int, int]) -> None:
        if word.offset % POINTER_BYTES:
            message = f"pointer at byte {word.offset} is not aligned to {POINTER_BYTES} bytes"
            self.findings.fail("TSR1140", message, place)
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
                "TSR1140",
                f"the pointer at byte {word.offset} of `{buffer.name}` is given twice",
                place,
                secondary=(Label(known, "first given here"),),
            )

    def _contents(self, record: OpenRecord, text: str, at: int) -> str:
        place = (at, at + len(text))
        if self._resident_span is not None:
            self.findings.fail(
                "TSR1110",
                "the file of contents is given twice",
                place,
                secondary=(Label(self._resident_span, "first given here"),),
            )
        if not _PLAIN_FILE.fullmatch(text):
            self.findings.fail(
                "TSR1181",
                f"`{text[:80]}` is not a plain file name ending in `.npz` or `.safetensors`",
                place,
                "contents stand in the trace's own folder",
            )
        return text

    def _take_resident(self, record: OpenRecord) -> None:
        self._resident = record.row["data"]
        self._resident_span = self.findings.span(*record.place("data"))

    def _law(self, record: OpenRecord, text: str, at: int) -> Routing:
        place = (at, at + len(text))
        if self._routing is not None:
            self.findings.fail("TSR1110", "the routing of tokens is given twice", place)
        routing = parse_routing(text)
        if self._version_given != VERSIONS[2]:
            hint = f"put `//! tessera.trace {VERSIONS[2]}` first"
            self.findings.fail("TSR1100", "`routing` is new in version 3", place, hint=hint)
        if routing is None:
            message = f"`{text[:80]}` is no law by which tokens choose experts"
            self.findings.fail("TSR1116", message, place, hint=f"one of {LAWS}")
        return routing

    def _take_routing(self, record: OpenRecord) -> None:
        self._routing = record.row["law"]

    # --- modules ---------------------------------------------------------------------------

    def _arch(self, record: OpenRecord, arch: str, at: int) -> str:
        is_tuned = _TUNED.fullmatch(arch) is not None
        if not _ARCH.fullmatch(arch) and not (is_tuned and self._version_given in VERSIONS[1:]):
            self.modules.mark_broken(record.row["name"])
            hint = "write it as PTX does: `sm_80`, `sm_90a`"
            self.findings.fail(
                "TSR1153",
                f"`{arch[:40]}` is not an architecture",
                (at, at + len(arch)),
                hint="code for a number of SMs needs `tessera.trace 2`" if is_tuned else hint,
            )
        return arch

    def _take_module(self, record: OpenRecord) -> None:
        self._pending_module = record.make(
            self.findings, name_place=record.place("name"), arch_place=record.place("arch")
        )

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
            "TSR1109",
            "this text belongs to no module",
            (place[0], min(place[1], place[0] + 80)),
            hint="PTX goes right after its `//! module NAME` record, before the first step"
            if steps
            else "start the module with `//! module NAME`",
        )


def _unreadable(text: str, at: int, key: str) -> NoReturn:
    raise AssertionError(f"nothing reads the key {key}")
