"""The steps of a trace, and the special rules of the records that make them.

In: records as they are read (`build_trace`). Out: steps in file order, with `LaunchId` and
`EventId` counted up. `readers` are for values with rules beyond their type: ranges lie inside their
buffers, copies do not overlap themselves, weights are never written. `takers` put a record among
the steps. A launch is checked against its kernel when the first record that is not one of its
variants arrives, because the variants decide how it is checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from tessera.diagnostics import Label
from tessera.frontend.trace.check import OpenLaunch, check_block, check_launch
from tessera.frontend.trace.findings import RecordAbandoned, did_you_mean
from tessera.frontend.trace.modules import Modules, OpenModule, code_for
from tessera.frontend.trace.records import RECORDS, OpenRecord
from tessera.frontend.trace.values import Values
from tessera.ir.program.program import (
    HINT_SIZES,
    Event,
    EventId,
    LaunchId,
    LibraryCall,
    Operand,
    Pointer,
    Role,
    Step,
    Triple,
    WorkHint,
)

_STREAM = re.compile(r"[A-Za-z0-9_$.]+")
_SIZE = re.compile(r"[1-9][0-9]{0,11}")

# Reads a value of a record from its text and the offset of the text.
ReadSpecial = Callable[[OpenRecord, str, int], object]
Take = Callable[[OpenRecord], None]


class TraceSteps:
    """The steps so far."""

    def __init__(self, values: Values, modules: Modules) -> None:
        self.values = values
        self.findings = values.findings
        self.modules = modules
        self.steps: list[Step] = []
        self._work = 0
        self._event_count = 0
        self._events: dict[str, Event] = {}
        self._module: OpenModule | None = None  # of the launch that is being read
        self._open: OpenLaunch | None = None
        # The variants of a launch with a fault are skipped without a report.
        self._skip_variants = False
        self.readers: dict[tuple[str, str], ReadSpecial] = {
            ("launch", "kernel"): self._kernel,
            ("launch", "block"): self._block,
            ("launch", "work"): self._work_hint,
            ("variant", "arch"): self._arch,
            ("variant", "block"): self._block,
            ("memset", "bytes"): self._memset_bytes,
            ("memset", "element_bytes"): self._element_bytes,
            ("memset", "value"): self._memset_value,
            ("memcpy", "bytes"): self._memcpy_bytes,
            ("op", "writes"): self._writes,
            ("wait", "event"): self._event_above,
            **{(word, "stream"): self._stream for word in RECORDS},
        }
        self.takers: dict[str, Take] = {
            "launch": self._take_launch,
            "variant": self._take_variant,
            "memset": self._take_work,
            "memcpy": self._take_work,
            "op": self._take_call,
            "event": self._take_event,
            "wait": self._take_wait,
        }

    def close(self) -> None:
        """Check the open launch and add it to the steps."""
        opened, self._open = self._open, None
        self._skip_variants = False
        if opened is None:
            return
        if not opened.module.broken:
            check_launch(opened, self.findings)
        launch = opened.launch
        if opened.variants:
            launch = replace(launch, variants=tuple(variant for variant, _ in opened.variants))
        self.steps.append(launch)

    # --- whole records ---------------------------------------------------------------------

    def _next_id(self) -> LaunchId:
        """The id of the next launch, memset, memcpy or library call."""
        self._work += 1
        return LaunchId(self._work - 1)

    def _take_launch(self, record: OpenRecord) -> None:
        assert self._module is not None
        launch = record.make(self.findings, module=self._module.id, id=self._next_id())
        self._open = OpenLaunch(launch, record, self._module)

    def _take_variant(self, record: OpenRecord) -> None:
        assert self._open is not None
        self._open.variants.append((record.make(self.findings), record))

    def _take_work(self, record: OpenRecord) -> None:
        self.steps.append(record.make(self.findings, id=self._next_id()))

    def _take_call(self, record: OpenRecord) -> None:
        call = record.make(self.findings, id=self._next_id())
        self._check_operator(call, record.place("operator"))
        self.steps.append(call)

    def _take_event(self, record: OpenRecord) -> None:
        event = record.make(self.findings, id=EventId(self._event_count))
        self._event_count += 1
        self._events[event.name] = event
        self.steps.append(event)

    def _take_wait(self, record: OpenRecord) -> None:
        self.steps.append(record.make(self.findings))

    # --- launches --------------------------------------------------------------------------

    def _kernel(self, record: OpenRecord, text: str, at: int) -> str:
        """`MODULE.KERNEL`."""
        self._skip_variants = True
        name, dot, kernel = text.rpartition(".")
        if not dot or not name or not kernel:
            message = f"expected `MODULE.KERNEL`, found `{text}`"
            self.findings.fail("TSR1103", message, (at, at + len(text)))
        module = self.modules.by_name.get(name)
        if module is None:
            self._unknown_module(name, (at, at + len(name)))
        if not module.broken:
            self._check_kernel(module, kernel, at + len(name) + 1)
        module.launched = True
        self._module = module
        return kernel

    def _unknown_module(self, name: str, place: tuple[int, int]) -> NoReturn:
        if later := self.modules.declared_later(name, place[0]):
            self.findings.fail(
                "TSR1111",
                f"module `{name}` is launched before it is declared",
                place,
                secondary=(Label(later, "declared here"),),
                hint="move the module up",
            )
        hint = did_you_mean(name, self.modules.by_name)
        self.findings.fail("TSR1111", f"unknown module `{name}`", place, hint=hint)

    def _check_kernel(self, module: OpenModule, kernel: str, at: int) -> None:
        first = module.variants[0]
        kernels = module.kernels[first.arch]
        if kernel in kernels:
            return
        device = any(f.name == kernel for f in first.ptx.functions())
        self.findings.fail(
            "TSR1111",
            f"`{kernel}` is a function without `.entry` or body, not a kernel"
            if device
            else f"module `{module.name}` has no kernel `{kernel}`",
            (at, at + len(kernel)),
            notes=("kernels: " + (", ".join(list(kernels)[:10]) or "none"),),
            hint=did_you_mean(kernel, kernels),
        )

    def _block(self, record: OpenRecord, text: str, at: int) -> Triple:
        block = self.values.triple(text, at, "block")
        check_block(block, record, self.findings)
        return block

    def _work_hint(self, record: OpenRecord, text: str, at: int) -> WorkHint:
        """`gemm:M,N,K,TYPE` and similar hints."""
        kind, _, listed = text.partition(":")
        *sizes, dtype = listed.split(",")
        place = (at, at + len(text))
        names = HINT_SIZES.get(kind)
        if names is None or len(sizes) != len(names):
            forms = (f"`{kind}:{','.join(names)},TYPE`" for kind, names in HINT_SIZES.items())
            message = f"expected the work of a launch, found `{text[:60]}`"
            self.findings.fail("TSR1103", message, place, hint=f"write {' or '.join(forms)}")
        if not all(_SIZE.fullmatch(size) for size in sizes):
            self.findings.fail("TSR1116", f"a size in `{text[:60]}` is out of range", place)
        type_at = at + len(text) - len(dtype)
        return WorkHint(kind, tuple(map(int, sizes)), self.values.data_type(dtype, type_at))

    def _arch(self, record: OpenRecord, arch: str, at: int) -> str:
        """The architecture of a variant, which must follow a launch or another variant of it."""
        if self._open is None:
            if self._skip_variants:
                raise RecordAbandoned
            self.findings.fail(
                "TSR1109",
                "`variant` does not follow a launch",
                (record.start, record.end),
                hint="put it on the line after the launch whose settings it changes",
            )
        module, place = self._open.module, (at, at + len(arch))
        known = [code.arch for code in module.variants]
        if code_for(module, arch) is None and not module.broken:
            self.findings.fail(
                "TSR1152",
                f"module `{module.name}` has no code for `{arch}`",
                place,
                notes=("it has: " + ", ".join(known),),
                hint=did_you_mean(arch, known),
            )
        if any(variant.arch == arch for variant, _ in self._open.variants):
            self.findings.fail("TSR1152", f"the launch has two variants for `{arch}`", place)
        return arch

    # --- memsets, copies, library calls ----------------------------------------------------

    def _memset_bytes(self, record: OpenRecord, text: str, at: int) -> int:
        size = self._range(record, "target", text, at)
        self._check_written(record.row["target"], record.place("target"), "memset")
        return size

    def _element_bytes(self, record: OpenRecord, text: str, at: int) -> int:
        width = self.values.integer(text, at, "element_bytes")
        if width == 3 or record.row["bytes"] % width:
            message = "`element_bytes` must be 1, 2 or 4, and divide `bytes`"
            self.findings.fail("TSR1116", message, (at, at + len(text)))
        return width

    def _memset_value(self, record: OpenRecord, text: str, at: int) -> int:
        width = record.row.get("element_bytes", 1)
        return self.values.integer(text, at, "value", (1 << (8 * width)) - 1)

    def _memcpy_bytes(self, record: OpenRecord, text: str, at: int) -> int:
        size = self._range(record, "target", text, at)
        self._range(record, "source", text, at)
        target, source = record.row["target"], record.row["source"]
        self._check_written(target, record.place("target"), "memcpy")
        if target.buffer == source.buffer and abs(target.offset - source.offset) < size:
            self.findings.fail(
                "TSR1139",
                "source and target of a copy overlap",
                record.place("source"),
                secondary=(Label(self.findings.span(*record.place("target")), "the target"),),
                hint="the result would depend on the order in which bytes are copied",
            )
        return size

    def _range(self, record: OpenRecord, end: str, text: str, at: int) -> int:
        """The bytes that are written to or read from one end of a step, checked against its
        buffer."""
        size = self.values.integer(text, at, "bytes")
        pointer = record.row[end]
        buffer = self.values.by_id(pointer.buffer)
        if pointer.offset + size > buffer.bytes:
            self.findings.fail(
                "TSR1136",
                f"{size} bytes from `{buffer.name}+{pointer.offset}` reach outside the buffer",
                record.place(end),
                f"`{buffer.name}` has {buffer.bytes} bytes",
            )
        return size

    def _writes(self, record: OpenRecord, text: str, at: int) -> tuple[Operand, ...]:
        operands = self.values.operands(text, at, "writes")
        for operand in operands:
            self._check_written(operand.pointer, record.place("writes"), "op")
        return operands

    def _check_written(self, target: Pointer, place: tuple[int, int], word: str) -> None:
        buffer = self.values.by_id(target.buffer)
        if buffer.role is not Role.WEIGHT:
            return
        self.findings.fail(
            "TSR2003",
            f"`{word}` writes the weight `{buffer.name}`",
            place,
            secondary=(Label(buffer.span, "declared here"),) if buffer.span else (),
            hint="a weight is shared by all requests; make it a `state` if it changes",
        )

    def _check_operator(self, call: LibraryCall, place: tuple[int, int]) -> None:
        # Imported here because few traces call a library, and the table is large.
        from tessera.ir.operators import table as operators

        if call.operator not in operators.table():
            near = " or ".join(f"`{name}`" for name in operators.near_names(call.operator))
            self.findings.fail(
                "TSR1164",
                f"no operator `{call.operator}` is known",
                place,
                hint=f"did you mean {near}?" if near else None,
            )
        try:
            operators.bind(call)
        except operators.OperatorMismatch as reason:
            self.findings.fail("TSR1164", f"this is no call of `{call.operator}`: {reason}", place)

    # --- streams ---------------------------------------------------------------------------

    def _stream(self, record: OpenRecord, text: str, at: int) -> str:
        if not _STREAM.fullmatch(text):
            self.findings.fail(
                "TSR1103",
                f"`{text[:40]}` is not the name of a stream",
                (at, at + len(text)),
                "letters, digits, `_`, `$` and `.`",
            )
        return text

    def _event_above(self, record: OpenRecord, name: str, at: int) -> EventId:
        """The last `event` of a name."""
        event = self._events.get(name)
        if event is None:
            self.findings.fail(
                "TSR1111",
                f"event `{name}` is waited for, but no record above records it",
                (at, at + len(name)),
                hint=did_you_mean(name, self._events)
                or f"put `//! event {name} stream=S` after the work to wait for",
            )
        return event.id
