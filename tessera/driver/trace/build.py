"""Builds a program from the records of a capture.

In: a `RawCapture`. Out: a `Program` and findings. Nothing here needs a GPU.

Roles: lasting memory that no step writes is a weight (inputs stay inputs), lasting memory that a
step may write is state, memory that the call returns is output, and the rest is temporary. The
words of arguments and of buffers that are pointers are found by how kernels use them (`arguments`,
`tables`), not by value alone. Streams and events keep exactly the order of the graph (`streams`).

Longer than 400 lines because a program is built by one walk over the nodes of a capture, whose
steps share the addresses, codes and arguments found so far.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.driver.analyses import remembering
from tessera.driver.trace.addresses import Addresses
from tessera.driver.trace.arguments import Arguments, is_from_number
from tessera.driver.trace.codes import Codes
from tessera.driver.trace.random_draws import MODULE as RANDOM_MODULE
from tessera.driver.trace.random_draws import draw_launch, draws_seeds, seeds_module, state_buffer
from tessera.driver.trace.streams import find_lines
from tessera.driver.trace.tables import Bytes, Holdings, find_words
from tessera.frontend.capture.problems import changed_constant, keeps_nothing
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawNode,
    RawOperator,
    RawOther,
    RawTensor,
)
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.graph.region import Unknown
from tessera.ir.operators.table import OperatorMismatch, bind, table
from tessera.ir.program import program as ir
from tessera.ir.program.print_trace import print_program
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A program before it is known which memory the call changes: all lasting memory is state.

    `analyses` are those of the program, `written` the buffers that a step may write. `random` is
    the buffer of the generator's state, `draws` counts its draws. `in_calls` counts the nodes that
    library calls and draws stand for; every other node is a step of its own.
    """

    program: ir.Program
    analyses: AnalysisManager
    findings: tuple[Diagnostic, ...]
    written: frozenset[str]
    random: str | None
    draws: int
    in_calls: int


def build_program(
    raw: RawCapture, read: Callable[[str], Bytes] | None = None
) -> tuple[ir.Program, tuple[Diagnostic, ...]]:
    """The program of a capture, with the roles that its own writes give its buffers.

    `read` gives the bytes of a lasting buffer.
    """
    draft = draft_program(raw, read)
    return settle_roles(draft, raw, ()), draft.findings


def draft_program(raw: RawCapture, read: Callable[[str], Bytes] | None = None) -> Draft:
    """The program of a capture, with its tables of pointers."""
    builder = _TraceBuilder(raw)
    while True:
        program = builder.build()
        if program.modules:  # without modules, a reader of the text sees the program as built
            program = reread(program)
        analyses = remembering(program)
        steps = analyses.get(AccessRegions).steps
        is_new = builder.add_pointers(steps)
        if read is not None:
            is_new |= builder.add_words(program, steps, read)
        if not is_new:
            break
    findings = (*builder.codes.findings, *builder.arguments.all_findings(steps))
    written = frozenset(
        program.buffers[access.buffer].name
        for step in steps
        for access in step.accesses
        if access.kind.writes and not isinstance(access.region, Unknown)
    )
    kept = any(b.role is ir.Role.OUTPUT or (b.lasting and b.name in written) for b in raw.buffers)
    if not kept and not any(isinstance(a.region, Unknown) for step in steps for a in step.accesses):
        findings = (*findings, keeps_nothing())
    return Draft(
        program=program,
        analyses=analyses,
        written=written,
        findings=tuple(dict.fromkeys(findings)),
        random=None if builder.random is None else builder.random.name,
        draws=builder.draws,
        in_calls=builder.in_calls,
    )


def settle_roles(draft: Draft, raw: RawCapture, changed: Collection[str] = ()) -> ir.Program:
    """Give lasting memory that no step may write its original role.

    A step whose accesses are unknown (it is pinned) may write anything; then the observed changes
    decide. A constant that a step may write is refused.
    """
    if written := sorted((draft.written | {*changed}) & raw.constants):
        raise changed_constant(written[0])
    role_found = {buffer.name: buffer.role for buffer in raw.buffers}
    roles = tuple(
        buffer
        if buffer.name in draft.written or buffer.name in changed
        else replace(buffer, role=role_found.get(buffer.name, buffer.role))
        for buffer in draft.program.buffers
    )
    return replace(draft.program, buffers=roles)


def reread(program: ir.Program) -> ir.Program:
    """The program as a reader of its text sees it, module variables included."""
    return parse_trace(print_program(program), "<captured>")


class _TraceBuilder:
    """The builder of one capture's program."""

    def __init__(self, raw: RawCapture) -> None:
        self.raw = raw
        self.buffers = list(raw.buffers)
        self.random: RawBuffer | None = None
        if raw.random is not None and any(map(draws_seeds, raw.operators)):
            self.random = state_buffer({buffer.name for buffer in raw.buffers})
            self.buffers.append(self.random)
        self.draws = 0
        self.addresses = Addresses(self.buffers)
        self.codes = Codes(raw)
        self.codes.check_variables()
        self.arguments = Arguments(self.addresses, raw.unowned)
        self.tables: dict[str, dict[int, int]] = {}
        work = list(self._work())
        self.work = [piece for _, piece in work]
        self.in_calls = sum(
            piece.last - piece.first for piece in self.work if isinstance(piece, RawOperator)
        )
        self.steps = [list(self._steps(piece)) for piece in self.work]
        self.lines = find_lines(self._order(work))

    def add_pointers(self, steps: tuple[StepAccesses, ...]) -> bool:
        """Treat every possible pointer as a pointer in launches that compute addresses from
        numbers; whether that changes any."""
        places = [piece for piece, some in enumerate(self.steps) for _ in some]
        is_new = False
        for piece, step in zip(places, steps, strict=True):
            node = self.work[piece]
            if isinstance(node, RawLaunch) and is_from_number(step):
                wider: list[ir.Work] = [self._launch(node, any_word=True)]
                is_new |= wider != self.steps[piece]
                self.steps[piece] = wider
        return is_new

    def add_words(
        self, program: ir.Program, steps: tuple[StepAccesses, ...], read: Callable[[str], Bytes]
    ) -> bool:
        """Note words that steps use as addresses; whether any are new."""
        lasting = {buffer.name for buffer in self.raw.buffers if buffer.lasting}
        contents: dict[str, Bytes] = {}

        def content(buffer: ir.Buffer) -> Bytes | None:
            if buffer.name not in lasting:
                return None
            if buffer.name not in contents:
                contents[buffer.name] = read(buffer.name)
            return contents[buffer.name]

        words = find_words(program, steps, Holdings(content, self.addresses.points))
        new = [w for w in words if w.offset not in self.tables.get(w.buffer, {})]
        for word in new:
            self.tables.setdefault(word.buffer, {})[word.offset] = word.value
            self.addresses.pointer(word.value)
        return bool(new)

    def build(self) -> ir.Program:
        """The program, with all lasting memory as state."""
        kept = [b for b in self.buffers if b.name in self.addresses.used or self._is_given(b)]
        ids = {buffer.name: ir.BufferId(number) for number, buffer in enumerate(kept)}
        numbers = {self.addresses.numbers[name]: ids[name] for name in ids}
        buffers = tuple(
            ir.Buffer(
                id=ids[b.name],
                name=b.name,
                bytes=b.bytes,
                dtype=b.dtype,
                shape=b.shape,
                role=ir.Role.STATE if b.lasting else b.role,
            )
            for b in kept
        )
        tables = tuple(
            ir.PointerTable(ids[name], tuple(self._word(o, v, numbers) for o, v in words.items()))
            for name, words in self.tables.items()
        )
        return ir.Program(
            buffers=buffers,
            modules=tuple(self.codes.modules),
            pointer_tables=tables,
            steps=tuple(self._in_lines(numbers)),
        )

    def _word(self, offset: int, value: int, numbers: dict[int, ir.BufferId]) -> ir.PointerWord:
        target = self.addresses.pointer(value)
        return ir.PointerWord(offset, ir.Pointer(numbers[target.buffer], target.offset))

    def _in_lines(self, numbers: dict[int, ir.BufferId]) -> Iterator[ir.Step]:
        """The steps on their streams, with events where others wait for them."""
        awaited = {piece_awaited for waits in self.lines.waits for piece_awaited in waits}
        events = {
            piece_awaited: ir.EventId(number)
            for number, piece_awaited in enumerate(sorted(awaited))
        }
        count = 0
        for piece, (steps, stream) in enumerate(zip(self.steps, self.lines.streams, strict=True)):
            name = str(stream)
            for awaited_piece in self.lines.waits[piece]:
                yield ir.Wait(events[awaited_piece], name)
            for step in steps:
                yield replace(with_buffers(step, numbers), id=ir.LaunchId(count), stream=name)
                count += 1
            if piece in events:
                yield ir.Event(events[piece], f"e{events[piece]}", name)

    def _order(self, work: list[tuple[int, RawNode | RawOperator]]) -> list[list[int]]:
        """The earlier pieces of work that each piece has to wait for."""
        if self.raw.after is None:
            return [[piece - 1] if piece else [] for piece in range(len(work))]
        starts = [first for first, _ in work]
        waits: list[list[int]] = []
        last_draw: int | None = None
        for piece, (first, node_or_call) in enumerate(work):
            end = starts[piece + 1] if piece + 1 < len(work) else len(self.raw.nodes)
            nodes = {node for at in range(first, end) for node in self.raw.after[at]}
            before = {bisect_right(starts, node) - 1 for node in nodes} - {piece}
            # Draws are serial: each reads the generator's state that the previous one left.
            if (
                self.random is not None
                and isinstance(node_or_call, RawOperator)
                and draws_seeds(node_or_call)
            ):
                before |= set() if last_draw is None else {last_draw}
                last_draw = piece
            waits.append(sorted(before))
        return waits

    def _is_given(self, buffer: RawBuffer) -> bool:
        return buffer.role in (ir.Role.INPUT, ir.Role.OUTPUT)

    def _work(self) -> Iterator[tuple[int, RawNode | RawOperator]]:
        """Nodes in order, each with its number; the nodes of a library call appear as the call,
        unless all have code."""
        calls = self._calls()
        at = 0
        while at < len(self.raw.nodes):
            operator = calls.get(at)
            if operator is not None:
                yield at, operator
                at = operator.last
            else:
                yield at, self.raw.nodes[at]
                at += 1

    def _calls(self) -> dict[int, RawOperator]:
        """The library calls to take, by their first nodes.

        A call that a trace cannot hold is replaced by the calls inside it, which precede it, if
        these cover all of its nodes without code.
        """
        calls: dict[int, RawOperator] = {}
        for operator in self.raw.operators:
            nodes = range(operator.first, operator.last)
            bare = {at for at in nodes if not self._has_code(self.raw.nodes[at])}
            inside = [calls[at] for at in nodes if at in calls]
            if operator.operator not in table():
                bare -= {at for call in inside for at in range(call.first, call.last)}
            if bare:
                calls[operator.first] = operator
        return calls

    def _has_code(self, node: RawNode) -> bool:
        if isinstance(node, RawLaunch):
            return self.codes.has(node)
        return not isinstance(node, RawOther)

    def _steps(self, work: RawNode | RawOperator) -> Iterator[ir.Work]:
        match work:
            case RawLaunch():
                yield self._launch(work)
            case RawMemset():
                rows, size = _rows(work.rows, work.bytes, (work.pitch,))
                for row in range(rows):
                    target = self.addresses.pointer(work.address + row * work.pitch)
                    yield ir.Memset(
                        id=ir.LaunchId(0),
                        target=target,
                        bytes=size,
                        value=work.value,
                        element_bytes=work.element_bytes,
                    )
            case RawMemcpy():
                rows, size = _rows(work.rows, work.bytes, (work.target_pitch, work.source_pitch))
                for row in range(rows):
                    yield ir.Memcpy(
                        id=ir.LaunchId(0),
                        target=self.addresses.pointer(work.target + row * work.target_pitch),
                        source=self.addresses.pointer(work.source + row * work.source_pitch),
                        bytes=size,
                    )
            case RawOther():
                raise TesseraError.of(
                    "TSR6002", f"the model {work.what}, which a trace cannot hold", hint=work.hint
                )
            case RawOperator() if work.writes and all(0 in tensor.shape for tensor in work.writes):
                return  # its results are empty, and there may be no memory to name
            case RawOperator() if self.random is not None and draws_seeds(work):
                yield self._draw(work, self.random)
            case RawOperator():
                call = ir.LibraryCall(
                    id=ir.LaunchId(0),
                    operator=work.operator,
                    attributes=work.attributes,
                    reads=tuple(map(self._operand, work.reads)),
                    writes=tuple(map(self._operand, work.writes)),
                )
                inside = self.raw.nodes[work.first : work.last]
                check_operator(call, [node for node in inside if isinstance(node, RawOther)])
                yield call

    def _draw(self, work: RawOperator, random: RawBuffer) -> ir.Launch:
        module = next((m for m in self.codes.modules if m.name == RANDOM_MODULE), None)
        if module is None:
            module = seeds_module(len(self.codes.modules))
            self.codes.modules.append(module)
        self.draws += 1
        target = self.addresses.pointer(work.writes[0].address)
        return draw_launch(work, module, self.addresses.pointer(random.address), target)

    def _launch(self, node: RawLaunch, *, any_word: bool = False) -> ir.Launch:
        module, kernel = self.codes.find(node)
        return ir.Launch(
            id=ir.LaunchId(0),
            module=module.id,
            kernel=node.name,
            grid=node.grid,
            block=node.block,
            cluster=node.cluster,
            cooperative=node.cooperative,
            shared_bytes=node.shared_bytes,
            arguments=tuple(self.arguments.of_launch(module, kernel, node, any_word=any_word)),
            variants=tuple(self.codes.overrides(node)),
        )

    def _operand(self, tensor: RawTensor) -> ir.Operand:
        if 0 in tensor.shape and self.addresses.find(tensor.address) is None:
            # It has no bytes, so any address will do.
            pointer = self.addresses.pointer(self.addresses.known[0].address)
        else:
            pointer = self.addresses.pointer(tensor.address)
        operand = ir.Operand(pointer=pointer, dtype=tensor.dtype, shape=tensor.shape)
        if operand.element_strides() == tensor.strides:
            return operand
        return replace(operand, strides=tensor.strides)


def _rows(rows: int, size: int, pitches: tuple[int, ...]) -> tuple[int, int]:
    """Merge rows that follow each other without gaps into one row."""
    return (1, rows * size) if all(pitch == size for pitch in pitches) else (rows, size)


def with_buffers(step: ir.Work, numbers: dict[int, ir.BufferId]) -> ir.Work:
    """A step in terms of the program's buffers."""

    def pointer(old: ir.Pointer) -> ir.Pointer:
        return ir.Pointer(numbers[old.buffer], old.offset)

    def argument(old: ir.Argument) -> ir.Argument:
        match old:
            case ir.Pointer():
                return pointer(old)
            case ir.ByValue():
                words = tuple(ir.PointerWord(w.offset, pointer(w.target)) for w in old.pointers)
                return ir.ByValue(old.content, words)
            case _:
                return old

    def operand(old: ir.Operand) -> ir.Operand:
        return replace(old, pointer=pointer(old.pointer))

    match step:
        case ir.Launch():
            return replace(step, arguments=tuple(map(argument, step.arguments)))
        case ir.Memset():
            return replace(step, target=pointer(step.target))
        case ir.Memcpy():
            return replace(step, target=pointer(step.target), source=pointer(step.source))
        case ir.LibraryCall():
            reads, writes = (tuple(map(operand, some)) for some in (step.reads, step.writes))
            return replace(step, reads=reads, writes=writes)


def check_operator(call: ir.LibraryCall, odd: Sequence[RawOther]) -> None:
    """Refuse an operator that is not in the table; `odd` are nodes inside it that may be the
    reason."""
    try:
        bind(call)
    except OperatorMismatch as reason:
        if odd:
            raise TesseraError.of(
                "TSR6002",
                f"the model {odd[0].what}, which a trace cannot hold",
                notes=(f"in `{call.operator}`",),
                hint=odd[0].hint,
            ) from None
        raise TesseraError.of(
            "TSR6002",
            f"the model calls `{call.operator}`, which a trace cannot hold",
            notes=(str(reason),),
            hint="use the route that compiles everything to PTX, or a listed operator:"
            " `docs/reference/operators.md`",
        ) from None
