"""Source for atom and red; see `atomics`."""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.data import space_of, vector_of
from tessera.backend.ptx_executor.emit.integer import Handler, bits, last_type
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind, kind_of
from tessera.backend.ptx_executor.simt.atomics import Atomic
from tessera.ir.ptx import syntax as ptx

_OPERATIONS = ("add", "exch", "cas", "min", "max", "inc", "dec", "and", "or", "xor")


def _emit_atomic(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    op = next((m for m in _OPERATIONS if m in i.opcode.modifiers), None)
    if op is None:
        raise Unsupported("no operation among the modifiers")
    operands = list(i.operands)
    target = operands.pop(0) if i.opcode.name == "atom" else None
    if i.opcode.name == "atom":
        e.polls = True
    address, space = e.address(operands[0], space_of(i))
    width = kind_of(t).width
    count = vector_of(i)
    try:
        prepared = e.program.frozen(Atomic(space, op, t, width), "atomic")
    except NotImplementedError as reason:
        raise Unsupported(str(reason)) from None
    if count > 1 or isinstance(operands[1], ptx.Vector):
        emit_vector(e, i, prepared, address, target, operands[1])
        return
    sources = [e.value(o, bits(t)) for o in operands[1 : 3 if op == "cas" else 2]]
    arguments = ", ".join(sources + (["None"] if op != "cas" else []))
    text = f"{prepared}.run(cx, {e.site}, {address}, {arguments}, {e.guard})"
    if target is None or isinstance(target, ptx.Sink):
        e.line(text)
    else:
        e.write(target, bits(t), text)
    if "async" in i.opcode.modifiers:
        barrier, _ = e.address(operands[2], "shared")
        size = e.program.constant(width, ValueKind("u", 4))
        e.line(f"mbarrier.expect_bytes(cx, {e.site}, {barrier}, {size}, -1, {e.guard})")


def emit_vector(
    e: Emitter,
    i: ptx.Instruction,
    prepared: str,
    address: str,
    target: ptx.Operand | None,
    source: ptx.Operand,
) -> None:
    """Emit a vector atomic as one scalar atomic per element, in order."""
    t = last_type(i)
    if not isinstance(source, ptx.Vector):
        raise Unsupported("vector atomic without a vector")
    start = e.temporary(address)
    for number, element in enumerate(source.elements):
        step = e.program.constant(number * kind_of(t).width, ValueKind("u", 8))
        value = e.value(element, bits(t))
        text = f"{prepared}.run(cx, {e.site}, {start} + {step}, {value}, None, {e.guard})"
        if isinstance(target, ptx.Vector):
            e.write(target.elements[number], bits(t), text)
        else:
            e.line(text)


HANDLERS: dict[str, Handler] = {"atom": _emit_atomic, "red": _emit_atomic}
