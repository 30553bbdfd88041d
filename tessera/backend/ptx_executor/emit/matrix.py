"""Source for matrix instructions: mma, ldmatrix, stmatrix, movmatrix, wmma, wgmma."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.data import space_of
from tessera.backend.ptx_executor.emit.integer import ROUNDING, Handler, call, types_of
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind
from tessera.backend.ptx_executor.memory.lanes import WARP
from tessera.backend.ptx_executor.numerics import quiet
from tessera.backend.ptx_executor.numerics.matrix import wgmma, wmma
from tessera.backend.ptx_executor.numerics.matrix.elements import element_bits
from tessera.backend.ptx_executor.numerics.matrix.mma import parse_shape
from tessera.backend.ptx_executor.simt.matrix_ops import PRODUCTS
from tessera.ir.ptx import syntax as ptx

# The NumPy types of the registers of each operand; a single register is a string.
Kinds = tuple[str | tuple[str, ...], ...]


# --- fragments -----------------------------------------------------------------------------


def _registers(e: Emitter, operand: ptx.Operand) -> list[tuple[ptx.Operand, int]]:
    """The registers of a fragment and their widths in bytes."""
    elements = operand.elements if isinstance(operand, ptx.Vector) else (operand,)
    return [
        (
            element,
            e.register(element.name)[1].width
            if isinstance(element, ptx.Name) and element.name in e.layout.registers
            else 4,
        )
        for element in elements
    ]


def fragment(e: Emitter, operand: ptx.Operand) -> str:
    """A fragment as a list of register values."""
    parts = (e.value(element, f"b{8 * width}") for element, width in _registers(e, operand))
    return f"[{', '.join(parts)}]"


def kinds(e: Emitter, operand: ptx.Operand) -> tuple[str, ...]:
    """The NumPy types of the registers of a fragment."""
    return tuple(f"u{width}" for _, width in _registers(e, operand))


def write_fragment(e: Emitter, operand: ptx.Operand, made: str) -> None:
    """Set the registers of a fragment to the elements of an expression."""
    results = e.temporary(made)
    for number, (element, width) in enumerate(_registers(e, operand)):
        if not isinstance(element, ptx.Name | ptx.Sink):
            raise Unsupported("fragment with something that is not a register")
        e.write(element, f"b{8 * width}", f"{results}[{number}]")


def shape_of(i: ptx.Instruction) -> str:
    """The modifier like m16n8k16."""
    shape = next((m for m in i.opcode.modifiers if m[0] == "m" and m[1:2].isdigit()), None)
    if shape is None:
        raise Unsupported("no shape among the modifiers")
    return shape


# --- forms that `numerics` supports --------------------------------------------------------


def _try(function: Callable[..., object], *operands: object, **settings: object) -> None:
    """Refuse a form that `numerics` does not support, before anything runs."""
    try:
        with quiet():
            function(*operands, **settings)
    except NotImplementedError as reason:
        raise Unsupported(str(reason)) from None
    except (ValueError, IndexError, KeyError, TypeError) as reason:
        raise Unsupported(f"operands that do not fit the shape ({reason})") from None


@functools.cache
def _try_product(name: str, static: tuple[str, ...], parts: Kinds, **settings: object) -> None:
    def zeros(part: str | tuple[str, ...]) -> object:
        if isinstance(part, tuple):
            return [zeros(kind) for kind in part]
        return np.zeros((1, WARP), dtype=part)

    _try(PRODUCTS[name], *static, *map(zeros, parts), **settings)


@functools.cache
def _try_wgmma(
    static: tuple[str, ...], registers: int, a_registers: int | None, **settings: object
) -> None:
    """Refuse an unsupported `wgmma`; `a_registers` is None if A is in shared memory."""
    shape, dt, at, bt = static

    def multiply_zeros() -> None:
        _, n, k = parse_shape(shape)
        lane = np.zeros((4, WARP), dtype=np.uint32)
        size, depth = (32, k // 32) if at == "b1" else (element_bits(at), k)
        rows = np.zeros((1, 64, depth), dtype=f"u{size // 8}")
        left: object = rows if a_registers is None else [lane] * a_registers
        right = np.zeros((1, n, depth), dtype=rows.dtype)
        product: Callable[..., object] = wgmma.mma
        product(shape, dt, at, bt, [lane] * registers, left, right, **settings)

    _try(multiply_zeros)


# --- products of fragments -----------------------------------------------------------------


def _multiply(
    e: Emitter, i: ptx.Instruction, name: str, static: tuple[str, ...], **settings: object
) -> None:
    """D = A * B + C; a fifth source of `mma.sp` is its metadata."""
    sources = i.operands[1:4]
    parts: Kinds = tuple(kinds(e, o) for o in sources)
    operands = ", ".join(fragment(e, o) for o in sources)
    if name == "mma.sp":
        parts = (*parts, "u4")
        operands += f", {e.value(i.operands[4], 'b32')}"
    _try_product(name, static, parts, **settings)
    write_fragment(
        e, i.operands[0], f"multiply(cx, {name!r}, {static!r}, {operands}, **{settings})"
    )


def _settings(i: ptx.Instruction) -> dict[str, object]:
    """Keyword arguments: integer saturation, the bit operation, the rounding of f64."""
    modifiers = i.opcode.modifiers
    return {
        "satfinite": "satfinite" in modifiers,
        "op": next((m for m in ("xor", "and") if m in modifiers), None),
        "rounding": next((m for m in ROUNDING if m in modifiers), "rn"),
    }


def _emit_mma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if any(m.startswith(("kind", "block_scale", "scale_vec")) for m in modifiers):
        raise Unsupported("mma with block scaling")
    static = (shape_of(i), *types_of(i))
    # `.sp::ordered_metadata` promises ascending indices, which changes no result.
    if "sp" in modifiers or "sp::ordered_metadata" in modifiers:
        selector, satfinite = e.integer(i.operands[5]), "satfinite" in modifiers
        _multiply(e, i, "mma.sp", static, selector=selector, satfinite=satfinite)
        return
    alayout, blayout = [m for m in modifiers if m in ("row", "col")] or ["row", "col"]
    layouts = {"alayout": alayout, "blayout": blayout}
    _multiply(e, i, "mma", static, **layouts, **_settings(i))


def _emit_wmma_mma(e: Emitter, i: ptx.Instruction) -> None:
    """Emit wmma.mma. The layout modifiers matter only where fragments are loaded."""
    types = types_of(i)
    if len(types) == 2:  # d and c of f16 wmma; a and b are f16
        types = [types[0], "f16", "f16", types[1]]
    _multiply(e, i, "wmma", (shape_of(i), *types), **_settings(i))


# --- rows in memory ------------------------------------------------------------------------


def _emit_ldmatrix(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if shape_of(i) != "m8n8":
        raise Unsupported(f"ldmatrix.{shape_of(i)}")
    address, space = e.address(i.operands[1], space_of(i))
    count = next((int(m[1]) for m in modifiers if m in ("x1", "x2", "x4")), 1)
    places = f"gather_{space}, {e.site}, {address}, {count}, {'trans' in modifiers}"
    write_fragment(e, i.operands[0], f"ldmatrix(cx, {places})")


def _emit_stmatrix(e: Emitter, i: ptx.Instruction) -> None:
    if shape_of(i) != "m8n8":
        raise Unsupported(f"stmatrix.{shape_of(i)}")
    address, space = e.address(i.operands[0], space_of(i))
    values = fragment(e, i.operands[1])
    trans = "trans" in i.opcode.modifiers
    e.line(f"stmatrix(cx, scatter_{space}, {e.site}, {address}, {values}, {trans})")


def _emit_movmatrix(e: Emitter, i: ptx.Instruction) -> None:
    call(e, i, f"movmatrix(cx, {e.value(i.operands[1], 'b32')})", "b32")


def _emit_wmma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if modifiers[0] == "mma":
        _emit_wmma_mma(e, i)
        return
    which = modifiers[1]
    layout = next(m for m in modifiers if m in ("row", "col"))
    form = f"{which!r}, {shape_of(i)!r}, {types_of(i)[-1]!r}, {layout!r}"
    loads = modifiers[0] == "load"
    address, space = e.address(i.operands[1 if loads else 0], space_of(i))
    stride = _stride(e, i, which, layout)
    if loads:
        places = f"gather_{space}, {e.site}, {address}, {stride}"
        write_fragment(e, i.operands[0], f"wmma_load(cx, {places}, {form})")
        return
    values = fragment(e, i.operands[1])
    e.line(f"wmma_store(cx, scatter_{space}, {e.site}, {address}, {stride}, {values}, {form})")


def _stride(e: Emitter, i: ptx.Instruction, which: str, layout: str) -> str:
    if len(i.operands) > 2:
        return e.value(i.operands[2], "u32")
    rows, columns = wmma.extent(which, shape_of(i))
    return e.program.constant(columns if layout == "row" else rows, ValueKind("u", 4))


# --- wgmma ---------------------------------------------------------------------------------


def _emit_wgmma(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if modifiers[0] in ("fence", "commit_group", "wait_group"):
        return
    if "sp" in modifiers:
        raise Unsupported("sparse wgmma")
    static = (shape_of(i), *types_of(i))
    d, a, b = i.operands[:3]
    rest = list(i.operands[3:])
    scale_d = e.value(rest.pop(0), "pred") if rest else "True"
    numbers = [e.integer(o) for o in rest]
    has_scales = static[2] not in ("b1", "u8", "s8")
    scale_a, scale_b = [*numbers, 1, 1][:2] if has_scales else (1, 1)
    # A in registers cannot be transposed: the one transpose operand belongs to B.
    in_memory = not isinstance(a, ptx.Vector)
    flags = [*numbers[2:], 0, 0]
    transposes = (flags[0], flags[1]) if in_memory else (0, flags[0])
    satfinite = "satfinite" in modifiers
    a_count = None if in_memory else len(_registers(e, a))
    _try_wgmma(static, len(_registers(e, d)), a_count, satfinite=satfinite)
    left = e.value(a, "b64") if in_memory else fragment(e, a)
    operands = f"{fragment(e, d)}, {left}, {e.value(b, 'b64')}, {scale_d}, {transposes}"
    settings = {"scale_a": scale_a, "scale_b": scale_b, "satfinite": satfinite}
    write_fragment(e, d, f"wgmma_mma(cx, {e.site}, {static!r}, {operands}, **{settings})")


HANDLERS: dict[str, Handler] = {
    "mma": _emit_mma,
    "ldmatrix": _emit_ldmatrix,
    "stmatrix": _emit_stmatrix,
    "movmatrix": _emit_movmatrix,
    "wmma": _emit_wmma,
    "wgmma": _emit_wgmma,
}
