"""From what a capture found to a program.

In: a `RawCapture`. Out: a `Program` and findings. Nothing here needs a GPU.

Roles: what nothing writes and lives on is a weight (inputs stay inputs), what a step may write and
lives on is state, what the call returns is output, the rest is temporary. Which words of arguments
are pointers is decided by how the kernel uses them (`passes.base_words`), not by value alone.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator
from dataclasses import replace

from tessera.diagnostics import Diagnostic, TesseraError, error, warning
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawNode,
    RawOperator,
    RawTensor,
    RawVariant,
)
from tessera.frontend.ptx import parse_module
from tessera.frontend.trace import parse_trace
from tessera.ir import program as ir
from tessera.ir import ptx
from tessera.ir.data_type import DataType
from tessera.ir.layout import size_bytes
from tessera.ir.operators import OperatorMismatch, bind
from tessera.ir.region import Unknown
from tessera.ir.trace_text import print_program
from tessera.passes.access_regions import AccessRegions
from tessera.passes.base import AnalysisManager
from tessera.passes.base_words import base_words

_SCALARS = frozenset(kind.value for kind in DataType)


def build_program(
    raw: RawCapture, changed: Collection[str] = ()
) -> tuple[ir.Program, tuple[Diagnostic, ...]]:
    """The program of a capture, with the roles that its own writes give its buffers.

    `changed` names buffers that were seen to change.
    """
    builder = _Builder(raw)
    program = _reread(_with_roles(_reread(builder.build()), raw, changed))
    return program, tuple(builder.findings)


def _reread(program: ir.Program) -> ir.Program:
    """The program as a reader of its text sees it, module variables included."""
    return parse_trace(print_program(program), "<captured>")


def _with_roles(program: ir.Program, raw: RawCapture, changed: Collection[str]) -> ir.Program:
    """Lasting memory that no step may write gets back the role that it was found in.

    A step of which nothing is known (it is pinned) may write anything; there, what was seen
    decides.
    """
    found = {buffer.name: buffer.role for buffer in raw.buffers}
    written = {
        int(access.buffer)
        for step in AnalysisManager(program).get(AccessRegions).steps
        for access in step.accesses
        if access.kind.writes and not isinstance(access.region, Unknown)
    }
    roles = tuple(
        buffer
        if int(buffer.id) in written or buffer.name in changed
        else replace(buffer, role=found[buffer.name])
        for buffer in program.declared_buffers()
    )
    return replace(program, buffers=roles)


class _Builder:
    """One capture on its way to a program."""

    def __init__(self, raw: RawCapture) -> None:
        self.raw = raw
        self.findings: list[Diagnostic] = []
        self.known = sorted(raw.buffers, key=lambda buffer: buffer.address)
        self.starts = [buffer.address for buffer in self.known]
        self.modules: list[ir.Module] = []
        self.module_of: dict[int, ir.Module] = {}
        self.bases: dict[tuple[int, str], dict[str, frozenset[int] | None]] = {}
        self.used: dict[str, None] = {}

    def build(self) -> ir.Program:
        """The program, with everything that lasts as state."""
        self._read_codes()
        steps = [step for work in self._work() for step in self._steps(work)]
        kept = [b for b in self.raw.buffers if b.name in self.used or self._is_given(b)]
        ids = {buffer.name: ir.BufferId(number) for number, buffer in enumerate(kept)}
        numbers = {self._number(name): ids[name] for name in ids}
        buffers = tuple(
            ir.Buffer(id=ids[b.name], name=b.name, bytes=b.bytes, dtype=b.dtype, shape=b.shape,
                      role=ir.Role.STATE if b.lasting else b.role)
            for b in kept
        )  # fmt: skip
        work = tuple(
            replace(_moved(step, numbers), id=ir.LaunchId(number))
            for number, step in enumerate(steps)
        )
        return ir.Program(buffers=buffers, modules=tuple(self.modules), steps=work)

    def _is_given(self, buffer: RawBuffer) -> bool:
        return buffer.role in (ir.Role.INPUT, ir.Role.OUTPUT)

    def _number(self, name: str) -> int:
        return next(n for n, buffer in enumerate(self.known) if buffer.name == name)

    def _read_codes(self) -> None:
        by_text: dict[tuple[tuple[str, str], ...], ir.Module] = {}
        for code in self.raw.codes:
            key = tuple((variant.arch, variant.text) for variant in code.variants)
            if key not in by_text:
                name = f"m{len(by_text)}"
                variants = tuple(
                    ir.ModuleVariant(arch=v.arch, text=v.text, ptx=parse_module(v.text, name))
                    for v in code.variants
                )
                by_text[key] = ir.Module(ir.ModuleId(len(by_text)), name, _agreeing(variants))
                self.modules.append(by_text[key])
            self.module_of[code.function] = by_text[key]

    def _work(self) -> Iterator[RawNode | RawOperator]:
        """Nodes in order; those of a library call as the call, unless all have code."""
        calls = {
            operator.first: operator
            for operator in self.raw.operators
            if any(not self._has_code(n) for n in self.raw.nodes[operator.first : operator.last])
        }
        at = 0
        while at < len(self.raw.nodes):
            operator = calls.get(at)
            if operator is not None:
                yield operator
                at = operator.last
            else:
                yield self.raw.nodes[at]
                at += 1

    def _has_code(self, node: RawNode) -> bool:
        return not isinstance(node, RawLaunch) or node.function in self.module_of

    def _steps(self, work: RawNode | RawOperator) -> Iterator[ir.Work]:
        match work:
            case RawLaunch():
                yield self._launch(work)
            case RawMemset():
                for row in range(work.rows):
                    yield ir.Memset(
                        id=ir.LaunchId(0), target=self._pointer(work.address + row * work.pitch),
                        bytes=work.bytes, value=work.value, element_bytes=work.element_bytes,
                    )  # fmt: skip
            case RawMemcpy():
                for row in range(work.rows):
                    yield ir.Memcpy(
                        id=ir.LaunchId(0),
                        target=self._pointer(work.target + row * work.target_pitch),
                        source=self._pointer(work.source + row * work.source_pitch),
                        bytes=work.bytes,
                    )
            case RawOperator():
                call = ir.LibraryCall(
                    id=ir.LaunchId(0), operator=work.operator, attributes=work.attributes,
                    reads=tuple(map(self._operand, work.reads)),
                    writes=tuple(map(self._operand, work.writes)),
                )  # fmt: skip
                _check_operator(call)
                yield call

    def _launch(self, node: RawLaunch) -> ir.Launch:
        module = self.module_of.get(node.function)
        if module is None:
            raise TesseraError(
                error("TSR6004", f"the kernel `{node.name}` has no PTX and belongs to no operator",
                      hint="use the route that compiles everything to PTX, or launch the kernel"
                           " from a torch operator")
            )  # fmt: skip
        code = next(c for c in self.raw.codes if c.function == node.function)
        first = module.variants[0]
        kernel = next((k for k in first.ptx.kernels() if k.name == node.name), None)
        if kernel is None:
            raise TesseraError(error("TSR6004", f"the PTX of `{node.name}` does not define it"))
        return ir.Launch(
            id=ir.LaunchId(0), module=module.id, kernel=node.name, grid=node.grid,
            block=node.block, cluster=node.cluster, cooperative=node.cooperative,
            shared_bytes=node.shared_bytes,
            arguments=tuple(self._arguments(module, kernel, node)),
            variants=tuple(_overrides(module, code.variants, node)),
        )  # fmt: skip

    def _arguments(
        self, module: ir.Module, kernel: ptx.Function, node: RawLaunch
    ) -> Iterator[ir.Argument]:
        key = (int(module.id), kernel.name)
        if key not in self.bases:
            self.bases[key] = base_words(module.variants[0].ptx, kernel)
        if len(node.arguments) != len(kernel.parameters):
            raise TesseraError(
                error("TSR6004", f"`{node.name}` was launched with {len(node.arguments)} arguments"
                                 f" and has {len(kernel.parameters)} parameters")
            )  # fmt: skip
        for parameter, content in zip(kernel.parameters, node.arguments, strict=True):
            words = self.bases[key][parameter.name]
            yield self._argument(parameter, content, words, node.name)

    def _argument(
        self, parameter: ptx.Variable, content: bytes, words: frozenset[int] | None, kernel: str
    ) -> ir.Argument:
        offsets = range(0, len(content) - 7, 8) if words is None else sorted(words)
        found = {
            at: pointer
            for at in offsets
            if at + 8 <= len(content)
            and (pointer := self._find(int.from_bytes(content[at : at + 8], "little"))) is not None
        }
        if not parameter.dimensions and parameter.type in _SCALARS:
            bits = int.from_bytes(content, "little")
            declared = parameter.pointer_space is not None
            if 0 in found:
                return found[0]
            if declared and (pointer := self._find(bits)) is not None:
                return pointer
            if bits and words and declared:
                self.findings.append(
                    warning("TSR6005", f"`{parameter.name}` of `{kernel}` is an address of no"
                                       " known tensor")
                )  # fmt: skip
            return ir.Scalar(DataType(parameter.type), bits)
        cleared = bytearray(content)
        for at in found:
            cleared[at : at + 8] = bytes(8)
        return ir.ByValue(bytes(cleared), tuple(ir.PointerWord(at, p) for at, p in found.items()))

    def _operand(self, tensor: RawTensor) -> ir.Operand:
        empty = 0 in tensor.shape
        pointer = self._find(tensor.address) if empty else self._pointer(tensor.address)
        operand = ir.Operand(
            pointer=pointer or ir.Pointer(ir.BufferId(0)), dtype=tensor.dtype, shape=tensor.shape
        )
        if operand.element_strides() == tensor.strides:
            return operand
        return replace(operand, strides=tensor.strides)

    def _pointer(self, address: int) -> ir.Pointer:
        found = self._find(address)
        if found is None:
            raise TesseraError(
                error("TSR6005", f"the address {address:#x} belongs to no known tensor",
                      hint="keep the tensor alive until the trace is made, or pass it as an input")
            )  # fmt: skip
        return found

    def _find(self, address: int) -> ir.Pointer | None:
        """The place of an address, in terms of the buffers by address."""
        place = bisect_right(self.starts, address) - 1
        if place < 0 or address >= self.starts[place] + self.known[place].bytes:
            return None
        self.used[self.known[place].name] = None
        return ir.Pointer(ir.BufferId(place), address - self.starts[place])


def _agreeing(variants: tuple[ir.ModuleVariant, ...]) -> tuple[ir.ModuleVariant, ...]:
    """The variants with the parameters and the variables of the first."""

    def shape(variant: ir.ModuleVariant) -> object:
        kernels = [(k.name, [size_bytes(p) for p in k.parameters]) for k in variant.ptx.kernels()]
        kept = [v for v in variant.ptx.variables() if v.space in ("global", "const")]
        return kernels, sorted((v.name, size_bytes(v)) for v in kept)

    return tuple(v for v in variants if shape(v) == shape(variants[0]))


def _overrides(
    module: ir.Module, variants: tuple[RawVariant, ...], node: RawLaunch
) -> Iterator[ir.LaunchVariant]:
    """What differs when another variant is launched."""
    kept = {variant.arch for variant in module.variants}
    for variant in variants[1:]:
        block = (variant.threads, 1, 1)
        shared = variant.shared_bytes
        if variant.arch in kept and (block != node.block or shared != node.shared_bytes):
            yield ir.LaunchVariant(
                arch=variant.arch,
                block=block if block != node.block else None,
                shared_bytes=shared if shared != node.shared_bytes else None,
            )


def _moved(step: ir.Work, numbers: dict[int, ir.BufferId]) -> ir.Work:
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


def _check_operator(call: ir.LibraryCall) -> None:
    """A trace holds operators of the table only."""
    try:
        bind(call)
    except OperatorMismatch as reason:
        raise TesseraError(
            error("TSR6002", f"the model calls `{call.operator}`, which a trace cannot hold",
                  notes=(str(reason),),
                  hint="use the route that compiles everything to PTX, or a listed operator:"
                       " `docs/reference/operators.md`")
        ) from None  # fmt: skip
