"""Steps that store addresses as data which reaches an output or a state.

In: a program and its graph. Out: warnings. An address differs between devices and between slots, so
a result that contains an address differs from run to run, and `--verify` reports it. The code of a
launch shows what it stores (`base_words`); a copy and a library call treat words of `pointers`
records as data. The stored bytes are followed along the graph, from step to step, but not through
steps that use loaded words as pointers: there the use of an address is legitimate. Words of
`pointers` records may hold addresses: they are compared by their targets.

`AddressHolders` has the buffers into which launches put addresses, or distances computed from
addresses. An unknown word loaded from such a buffer is not an index: it may be an address, or the
distance between two addresses, which leads into another buffer. A copy and a library call pass all
such words on. In a buffer that outlives requests the word is there from the first step on, so the
walk begins again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from tessera.diagnostics import Diagnostic, Label, Span, warning
from tessera.ir.arrays import Ranges
from tessera.ir.gather_findings import Finding, gather_findings
from tessera.ir.graph.access import Access, AddressClass
from tessera.ir.graph.graph import Edge, EdgeKind, KernelGraph, Node
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.syntax import Instruction
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.kernel_facts.base_words import Word, stored_words

_RESULTS = (ir.Role.OUTPUT, ir.Role.STATE)
Stored = list[tuple[Instruction, frozenset[Word]]]


def stored_addresses(program: ir.Program, graph: KernelGraph) -> tuple[Diagnostic, ...]:
    """A warning for each instruction that stores an address into a result, and one for copies."""
    return (*_by_launches(program, graph), *gather_findings(_by_copies(program, graph)))


def _by_copies(program: ir.Program, graph: KernelGraph) -> Iterator[Finding]:
    for step in program.work() if program.pointer_tables else ():
        node = graph.nodes[step.id]
        if isinstance(step, ir.Memcpy | ir.LibraryCall) and copies_words(program, node):
            result = _result(program, graph, node, None)
            if result is not None:
                told = _finding(node, node.span, result, "copies")
                yield Finding(told, (node.name,), node.span)


def copies_words(program: ir.Program, node: Node) -> bool:
    """Whether a step that is no launch reads words of `pointers` records."""
    return any(a.kind.reads and _has_words(program, a) for a in node.accesses)


def _by_launches(program: ir.Program, graph: KernelGraph) -> tuple[Diagnostic, ...]:
    known: dict[tuple[int, str], Stored] = {}
    told: dict[tuple[int, str, int], Diagnostic] = {}
    for step in program.launches():
        module = program.modules[step.module].variants[0].ptx
        key = (int(step.module), step.kernel)
        if key not in known:
            function = next(f for f in module.functions() if f.name == step.kernel)
            known[key] = stored_words(module, function)
        node = graph.nodes[step.id]
        for instruction, words in known[key]:
            if (*key, instruction.at) in told or not holds_address(module, step, words):
                continue
            if instruction.opcode.name == "call":  # nobody knows what it does with them
                continue
            result = _result(program, graph, node, module.span(instruction.at))
            if result is not None:
                span = module.span(instruction.at, len(str(instruction.opcode)))
                told[*key, instruction.at] = _finding(node, span, result, "stores")
    return tuple(told.values())


def holds_address(module: ptx.Module, step: ir.Launch, words: frozenset[Word]) -> bool:
    """Whether one of the words is an address in this launch."""
    function = next(f for f in module.functions() if f.name == step.kernel)
    places = {parameter.name: n for n, parameter in enumerate(function.parameters)}
    for name, offset in words:
        argument = step.arguments[places[name]] if places[name] < len(step.arguments) else None
        match argument:
            case ir.Pointer() if offset in (0, None):
                return True
            case ir.ByValue(_, pointers) if any(offset in (None, p.offset) for p in pointers):
                return True
            case _:
                pass
    return False


def _result(
    program: ir.Program, graph: KernelGraph, node: Node, span: Span | None
) -> ir.Buffer | None:
    """The first output or state that bytes stored by an instruction may reach."""
    stores = [
        number
        for number, access in enumerate(node.accesses)
        if access.kind.writes and access.address is not AddressClass.POINTER and is_at(access, span)
    ]
    readers: dict[int, list[Edge]] = {}
    for edge in graph.edges:
        if edge.kind is EdgeKind.RAW:
            readers.setdefault(int(edge.source), []).append(edge)
    pending = deque([(node, stores)])
    seen = {node.id}
    while pending:
        here, numbers = pending.popleft()
        for number in numbers:
            buffer = program.buffers[here.accesses[number].buffer]
            if buffer.role in _RESULTS and not _are_words(program, here.accesses[number]):
                return buffer
        for edge in readers.get(int(here.id), ()):
            reader = graph.nodes[edge.target]
            if edge.source_access in numbers and reader.id not in seen:
                seen.add(reader.id)
                words = _are_words(program, reader.accesses[edge.target_access])
                follows = any(a.address is AddressClass.POINTER for a in reader.accesses)
                if not words and not reader.pins and not follows:
                    writes = [n for n, a in enumerate(reader.accesses) if a.kind.writes]
                    pending.append((reader, writes))
    return None


def is_at(access: Access, span: Span | None) -> bool:
    """Whether an access may belong to the instruction at a position."""
    return access.span is None or span is None or access.span.start == span.start


def _are_words(program: ir.Program, access: Access) -> bool:
    """Whether an access stays within words of `pointers` records."""
    return not len(intervals.subtract(_touched(program, access), _words(program, access)))


def _has_words(program: ir.Program, access: Access) -> bool:
    """Whether an access touches words of `pointers` records."""
    return bool(len(intervals.intersect(_touched(program, access), _words(program, access))))


def _touched(program: ir.Program, access: Access) -> Ranges:
    return regions_bytes([access.region], program.buffers[access.buffer].bytes)


def _words(program: ir.Program, access: Access) -> Ranges:
    return intervals.from_pairs(
        (word.offset, word.offset + ir.POINTER_BYTES)
        for table in program.pointer_tables
        if table.buffer == access.buffer
        for word in table.words
    )


def _finding(node: Node, span: Span | None, result: ir.Buffer, how: str) -> Diagnostic:
    launch = () if node.span is None or span is node.span else (Label(node.span, "in this launch"),)
    return warning(
        "TSR2015",
        f"`{node.name}` {how} an address as data, which may get into {result.role.value} "
        f"`{result.name}`",
        span or node.span,
        "an address is another one on every device",
        secondary=launch,
        notes=("results that hold it differ from device to device, and from slot to slot",),
        hint="store an offset into the buffer, or declare the words with a `pointers` record",
    )


_LASTING = (ir.Role.STATE, ir.Role.VARIABLE)


class AddressHolders:
    """The buffers that may hold addresses, at the current step of a walk."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.buffers: frozenset[ir.BufferId] = frozenset()
        self._before = self.buffers
        self._stored: dict[tuple[int, str, str], Stored] = {}

    def note(self, step: ir.Work, accesses: tuple[Access, ...]) -> None:
        """Record the buffers into which a step puts addresses."""
        match step:
            case ir.Launch():
                new = self.buffers_of(step, accesses)
            case _ if any(a.kind.reads and a.buffer in self.buffers for a in accesses):
                new = {access.buffer for access in accesses if access.kind.writes}
            case _:
                return
        if not new <= self.buffers:
            self.buffers |= new

    def buffers_of(self, step: ir.Launch, accesses: tuple[Access, ...]) -> set[ir.BufferId]:
        """The buffers into which any variant of a launch puts addresses. With several variants,
        accesses name the lines of only one variant, so every write counts."""
        new: set[ir.BufferId] = set()
        variants = self.program.modules[step.module].variants
        for variant in variants:
            key = (int(step.module), variant.arch, step.kernel)
            if key not in self._stored:
                function = variant.ptx.definitions()[step.kernel]
                self._stored[key] = stored_words(variant.ptx, function)
            made = ir.for_arch(step, variant.arch)
            spans = [
                variant.ptx.span(instruction.at)
                for instruction, words in self._stored[key]
                if holds_address(variant.ptx, made, words)
            ]
            new.update(
                access.buffer
                for access in accesses
                if access.kind.writes
                and any(len(variants) > 1 or is_at(access, span) for span in spans)
            )
        return new

    def restart(self) -> bool:
        """Whether the next request finds such words in buffers that were unknown to this walk."""
        roles = {buffer.id: buffer.role for buffer in self.program.buffers}
        lasting = frozenset(b for b in self.buffers if roles[b] in _LASTING)
        grown, self._before, self.buffers = lasting != self._before, lasting, lasting
        return grown
