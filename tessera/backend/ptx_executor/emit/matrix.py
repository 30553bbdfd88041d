"""Matrix instructions as source: mma, ldmatrix, stmatrix, movmatrix, wmma, wgmma."""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.data import space_of
from tessera.backend.ptx_executor.emit.integer import Handler, call
from tessera.backend.ptx_executor.emit.kinds import TYPES, Unsupported, ValueKind, kind_of
from tessera.backend.ptx_executor.simt.matrix_ops import (
    check_mma,
    check_sparse,
    check_wgmma,
    check_wmma,
)
from tessera.ir.ptx import syntax as ptx

_FORMATS = TYPES | {"tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1", "b1", "u4", "s4"}


def registers(operand: ptx.Operand) -> tuple[ptx.Operand, ...]:
    """The registers of a fragment."""
    return operand.elements if isinstance(operand, ptx.Vector) else (operand,)


def fragment(e: Emitter, operand: ptx.Operand) -> str:
    """A fragment as a list of register values."""
    parts = []
    for element in registers(operand):
        if isinstance(element, ptx.Name) and element.name in e.layout.registers:
            width = e.register(element.name)[1].width
        else:
            width = 4
        parts.append(e.value(element, f"b{8 * width}"))
    return f"[{', '.join(parts)}]"


def kinds(e: Emitter, operand: ptx.Operand) -> tuple[str, ...]:
    """The NumPy types of the registers of a fragment."""
    types: list[str] = []
    for element in registers(operand):
        known = isinstance(element, ptx.Name) and element.name in e.layout.registers
        width = e.register(element.name)[1].width if known else 4  # type: ignore[union-attr]
        types.append(f"u{width}")
    return tuple(types)


def write_fragment(e: Emitter, operand: ptx.Operand, results: str) -> None:
    """Set the registers of a fragment."""
    for number, element in enumerate(registers(operand)):
        if isinstance(element, ptx.Sink):
            continue
        if not isinstance(element, ptx.Name):
            raise Unsupported("fragment with something that is not a register")
        width = e.register(element.name)[1].width
        e.write(element, f"b{8 * width}", f"{results}[{number}]")


def shape_of(i: ptx.Instruction) -> str:
    """The modifier like m16n8k16."""
    shape = next((m for m in i.opcode.modifiers if m[0] == "m" and m[1:2].isdigit()), None)
    if shape is None:
        raise Unsupported("no shape among the modifiers")
    return shape


def formats_of(i: ptx.Instruction) -> list[str]:
    """The element types among the modifiers, in order."""
    return [m for m in i.opcode.modifiers if m in _FORMATS]


def _emit_mma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if "sp" in modifiers or "sp::ordered_metadata" in modifiers:
        _emit_mma_sparse(e, i)
        return
    if any(m.startswith(("kind", "block_scale", "scale_vec")) for m in modifiers):
        raise Unsupported("mma with block scaling")
    types = formats_of(i)
    layouts = [m for m in modifiers if m in ("row", "col")] or ["row", "col"]
    op = "xor" if "xor" in modifiers else "and" if "and" in modifiers else None
    satfinite = "satfinite" in modifiers
    static = (shape_of(i), *types)
    check_mma(static, tuple(kinds(e, o) for o in i.operands[1:4]), tuple(layouts), satfinite, op)
    a, b, c = (fragment(e, o) for o in i.operands[1:4])
    settings = f"{tuple(layouts)!r}, {satfinite}, {op!r}"
    made = e.temporary(f"mma(cx, {static!r}, {a}, {b}, {c}, {settings})")
    write_fragment(e, i.operands[0], made)


def _emit_mma_sparse(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if any(m.startswith(("kind", "block_scale", "scale_vec")) for m in modifiers):
        raise Unsupported("sparse mma with block scaling")
    static = (shape_of(i), *formats_of(i))
    a, b, c = (fragment(e, o) for o in i.operands[1:4])
    metadata = e.value(i.operands[4], "b32")
    selector = e.integer(i.operands[5])
    check_sparse(static, tuple(kinds(e, o) for o in i.operands[1:4]), selector)
    ordered = "sp::ordered_metadata" in modifiers
    settings = f"{metadata}, {selector}, {ordered}, {'satfinite' in modifiers}"
    made = e.temporary(f"mma_sparse(cx, {static!r}, {a}, {b}, {c}, {settings})")
    write_fragment(e, i.operands[0], made)


def _matrix_count(i: ptx.Instruction) -> int:
    return next((int(m[1]) for m in i.opcode.modifiers if m in ("x1", "x2", "x4")), 1)


def _emit_ldmatrix(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    shape = shape_of(i)
    if shape != "m8n8":
        raise Unsupported(f"ldmatrix.{shape}")
    address, space = e.address(i.operands[1], space_of(i))
    count, trans = _matrix_count(i), "trans" in modifiers
    text = f"ldmatrix(cx, gather_{space}, {e.site}, {address}, {count}, {trans})"
    write_fragment(e, i.operands[0], e.temporary(text))


def _emit_stmatrix(e: Emitter, i: ptx.Instruction) -> None:
    if shape_of(i) != "m8n8":
        raise Unsupported(f"stmatrix.{shape_of(i)}")
    address, space = e.address(i.operands[0], space_of(i))
    values = fragment(e, i.operands[1])
    trans = "trans" in i.opcode.modifiers
    e.line(f"stmatrix(cx, scatter_{space}, {e.site}, {address}, {values}, {trans})")


def _emit_movmatrix(e: Emitter, i: ptx.Instruction) -> None:
    call(e, i, f"movmatrix(cx, {e.value(i.operands[1], 'b32')})", "b32")


# --- wmma ----------------------------------------------------------------------------------


def _emit_wmma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if modifiers[0] == "mma":
        _emit_wmma_mma(e, i)
        return
    which = modifiers[1]
    layout = next(m for m in modifiers if m in ("row", "col"))
    t = formats_of(i)[-1]
    static = f"{which!r}, {shape_of(i)!r}, {t!r}, {layout!r}"
    if modifiers[0] == "load":
        target, memory = i.operands[0], i.operands[1]
        stride = _stride(e, i, 2, which, layout)
        address, space = e.address(memory, space_of(i))
        text = f"wmma_load(cx, gather_{space}, {e.site}, {address}, {stride}, {static})"
        write_fragment(e, target, e.temporary(text))
        return
    address, space = e.address(i.operands[0], space_of(i))
    values = fragment(e, i.operands[1])
    stride = _stride(e, i, 2, which, layout)
    e.line(f"wmma_store(cx, scatter_{space}, {e.site}, {address}, {stride}, {values}, {static})")


def _stride(e: Emitter, i: ptx.Instruction, place: int, which: str, layout: str) -> str:
    if len(i.operands) > place:
        return e.value(i.operands[place], "u32")
    m, n, k = _sizes(shape_of(i))
    rows, cols = {"a": (m, k), "b": (k, n)}.get(which, (m, n))
    return e.program.constant(cols if layout == "row" else rows, ValueKind("u", 4))


def _sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def _emit_wmma_mma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    types = formats_of(i)
    if len(types) == 2:  # d and c of f16 wmma; a and b are f16
        types = [types[0], "f16", "f16", types[1]]
    op = "xor" if "xor" in modifiers else "and" if "and" in modifiers else None
    layouts = tuple(m for m in modifiers if m in ("row", "col"))
    a, b, c = (fragment(e, o) for o in i.operands[1:4])
    static = (shape_of(i), *types)
    satfinite = "satfinite" in modifiers
    check_wmma(static, tuple(kinds(e, o) for o in i.operands[1:4]), satfinite, op)
    settings = f"{layouts!r}, {satfinite}, {op!r}"
    made = e.temporary(f"wmma_mma(cx, {static!r}, {a}, {b}, {c}, {settings})")
    write_fragment(e, i.operands[0], made)


# --- wgmma ---------------------------------------------------------------------------------


def _emit_wgmma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if modifiers[0] in ("fence", "commit_group", "wait_group"):
        return
    if "sp" in modifiers:
        raise Unsupported("sparse wgmma")
    types = formats_of(i)
    d, a, b = i.operands[:3]
    rest = list(i.operands[3:])
    scale_d = e.value(rest.pop(0), "pred") if rest else "True"
    numbers = [e.integer(o) for o in rest]
    scales = [*numbers, 1, 1][:2] if types[1] not in ("b1", "u8", "s8") else [1, 1]
    transposes = [*numbers[2:], 0, 0][:2]
    if not isinstance(a, ptx.Vector):
        a_text = e.value(a, "b64")
    else:
        a_text = fragment(e, a)
        transposes = [0, [*numbers[2:], 0][0]]
    static = (shape_of(i), *types)
    op = "and" if "and" in modifiers else None
    satfinite = "satfinite" in modifiers
    a_count = len(registers(a)) if isinstance(a, ptx.Vector) else None
    check_wgmma(static, len(registers(d)), a_count, satfinite)
    settings = f"{scale_d}, {tuple(scales)!r}, {tuple(transposes)!r}, {satfinite}, {op!r}"
    operands = f"{fragment(e, d)}, {a_text}, {e.value(b, 'b64')}"
    made = e.temporary(f"wgmma_mma(cx, {e.site}, {static!r}, {operands}, {settings})")
    write_fragment(e, d, made)


HANDLERS: dict[str, Handler] = {
    "mma": _emit_mma,
    "ldmatrix": _emit_ldmatrix,
    "stmatrix": _emit_stmatrix,
    "movmatrix": _emit_movmatrix,
    "wmma": _emit_wmma,
    "wgmma": _emit_wgmma,
}

__all__ = ["HANDLERS", "kind_of"]
