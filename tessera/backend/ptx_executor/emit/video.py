"""Source for video instructions: parts of registers, SIMD halves and bytes.

Source: PTX ISA 9.0, section 9.7.18.
"""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.integer import Handler, call, types_of
from tessera.ir.ptx import syntax as ptx

_SECOND = ("add", "min", "max")
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def _source(e: Emitter, operand: ptx.Operand) -> tuple[str, str | None, bool]:
    """A register, its selected part, and whether the operand is negated."""
    negative = isinstance(operand, ptx.Negated)
    inner = operand.operand if isinstance(operand, ptx.Negated) else operand
    if isinstance(inner, ptx.Name) and inner.component is not None:
        return e.value(ptx.Name(inner.name), "b32"), inner.component, negative
    return e.value(inner, "b32"), None, negative


def _target(operand: ptx.Operand) -> tuple[ptx.Operand, str | None]:
    if isinstance(operand, ptx.Name) and operand.component is not None:
        return ptx.Name(operand.name), operand.component
    return operand, None


def _second_stage(e: Emitter, i: ptx.Instruction, place: int) -> tuple[str, ptx.Operand]:
    """Arguments for the optional operation with a third source, and the destination."""
    target, part = _target(i.operands[0])
    text = f", dsel={part!r}" if part is not None else ""
    if len(i.operands) > place:
        text += f", c={e.value(i.operands[place], 'b32')}"
        if part is None:
            op2 = next((m for m in reversed(i.opcode.modifiers) if m in _SECOND), None)
            text += f", op2={op2!r}"
    return text, target


def _operation(i: ptx.Instruction) -> tuple[str, ...]:
    """The operation and its types; for `vset`, its comparison and type u32."""
    name = i.opcode.name.rstrip("24")
    if name != "vset":
        return (name, *types_of(i))
    return (next(m for m in i.opcode.modifiers if m in _COMPARISONS), "u32", *types_of(i))


def _emit_scalar(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    a, asel, _ = _source(e, i.operands[1])
    b, bsel, _ = _source(e, i.operands[2])
    mode = next((m for m in ("clamp", "wrap") if m in modifiers), None)
    tail, target = _second_stage(e, i, 3)
    settings = f"asel={asel!r}, bsel={bsel!r}, sat={'sat' in modifiers}, mode={mode!r}"
    head = ", ".join(map(repr, _operation(i)))
    e.write(target, "b32", f"video.scalar({head}, {a}, {b}, {settings}{tail})")


def _emit_vmad(e: Emitter, i: ptx.Instruction) -> None:
    dt, at, bt = types_of(i)
    a, asel, minus_a = _source(e, i.operands[1])
    b, bsel, minus_b = _source(e, i.operands[2])
    c, _, minus_c = _source(e, i.operands[3])
    negate = "a" if minus_a else "b" if minus_b else "c" if minus_c else None
    scale = next((m for m in ("shr7", "shr15") if m in i.opcode.modifiers), None)
    settings = (
        f"asel={asel!r}, bsel={bsel!r}, negate={negate!r}, "
        f"plus_one={'po' in i.opcode.modifiers}, sat={'sat' in i.opcode.modifiers}, "
        f"scale={scale!r}"
    )
    call(e, i, f"video.vmad({dt!r}, {at!r}, {bt!r}, {a}, {b}, {c}, {settings})", "b32")


def _emit_simd(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    a, asel, _ = _source(e, i.operands[1])
    b, bsel, _ = _source(e, i.operands[2])
    c = e.value(i.operands[3], "b32")
    target, mask = _target(i.operands[0])
    settings = (
        f"lanes={i.opcode.name[-1]}, mask={mask!r}, asel={asel!r}, bsel={bsel!r}, "
        f"sat={'sat' in modifiers}, add={'add' in modifiers}"
    )
    head = ", ".join(map(repr, _operation(i)))
    e.write(target, "b32", f"video.simd({head}, {a}, {b}, {c}, {settings})")


HANDLERS: dict[str, Handler] = {
    **dict.fromkeys(
        ("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset"), _emit_scalar
    ),
    "vmad": _emit_vmad,
    **{
        f"{name}{lanes}": _emit_simd
        for name in ("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax", "vset")
        for lanes in (2, 4)
    },
}
