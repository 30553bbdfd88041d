"""Steps of a trace that is built: in terms of its buffers, and with operators that it can hold.

In: a step of a draft. Out: the step of the program, or TSR6002 for an operator that is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.raw import RawOther
from tessera.ir.operators.table import OperatorMismatch, bind
from tessera.ir.program import program as ir


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
    """A trace holds operators of the table only; `odd` are nodes that may be why it does not."""
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
