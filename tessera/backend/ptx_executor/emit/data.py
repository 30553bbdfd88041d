"""Source for data movement: mov, ld, st, address conversions, and hints that need no code.

Source: PTX ISA 9.0, section 9.7.9.
"""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.integer import Handler, bits, call, last_type
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind, kind_of
from tessera.backend.ptx_executor.memory.spaces import WINDOW_BASES
from tessera.backend.ptx_executor.simt.chunk import SPECIAL_WIDTHS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value

_SPACES = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "shared::cluster": "shared",
    "local": "local",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
    "const": "const",
}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_STRONG = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})
_ADDRESS = ValueKind("u", 8)


def space_of(i: ptx.Instruction) -> str:
    """The state space that the modifiers name, or generic."""
    for modifier in i.opcode.modifiers:
        space = _SPACES.get(modifier.split("[")[0])
        if space is not None:
            return space
    return "generic"


def vector_of(i: ptx.Instruction) -> int:
    """The number of elements that the instruction moves."""
    return next((_VECTORS[m] for m in i.opcode.modifiers if m in _VECTORS), 1)


def _emit_mov(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    target, source = i.operands[0], i.operands[1]
    whole = isinstance(source, ptx.Name) and f"{source.name}.x" in SPECIAL_WIDTHS
    if isinstance(target, ptx.Vector) and whole and isinstance(source, ptx.Name):
        for element, axis in zip(target.elements, "xyzw", strict=False):
            part = e.value(ptx.Name(source.name, axis), "b32") if axis != "w" else None
            e.write(element, "b32", part or e.program.constant(0, ValueKind("u", 4)))
    elif isinstance(target, ptx.Vector):
        unpack(e, target.elements, e.value(source, bits(t)), kind_of(t).width)
    else:
        e.write(target, bits(t), e.value(source, bits(t)))


def unpack(e: Emitter, targets: tuple[ptx.Operand, ...], value: str, width: int) -> None:
    """Spread a value over registers, lowest part first."""
    part = width // len(targets)
    parts = e.temporary(f"split_words({value}, {part}, {len(targets)})")
    for number, target in enumerate(targets):
        e.write(target, f"b{8 * part}", f"{parts}[{number}]")


def _address(e: Emitter, i: ptx.Instruction, operand: ptx.Operand) -> tuple[str, str]:
    """An address and its space. Parameters of a function lie in its frame."""
    address, space = e.address(operand, space_of(i))
    of_kernel = e.layout.is_entry or "param::entry" in i.opcode.modifiers
    return address, "local" if space == "param" and not of_kernel else space


def _emit_ld(e: Emitter, i: ptx.Instruction) -> None:
    if not _STRONG & set(i.opcode.modifiers):
        _emit_load(e, i)
        return
    e.polls = True
    e.line("strong(cx, True)")
    _emit_load(e, i)
    e.line("strong(cx, False)")


def _emit_load(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    kind = kind_of(t)
    if kind.form == "p":
        raise Unsupported("load of a predicate")
    count = vector_of(i)
    target = i.operands[0]
    fixed = parameter_offset(e, i.operands[1]) if count == 1 else None
    if fixed is not None and kind.width <= 8 and not isinstance(target, ptx.Vector):
        text = f"cx.chunk.launch.parameter({fixed}, {kind.width})"
        e.write(target, t, text if kind.form == "u" else f"{text}.view({kind.dtype})")
        return
    address, space = _address(e, i, i.operands[1])
    targets = target.elements if isinstance(target, ptx.Vector) else (target,)
    if len(targets) == 1:
        load_one(e, i, targets[0], address, space)
        return
    shape = f"{kind.width}, {len(targets)}, {e.guard}"
    text = f"load_vector(cx, gather_{space}, {e.site}, {address}, {shape}"
    olds = old_values(e, targets, kind)
    if olds is not None:
        parts = e.temporary(f"{text}, [{', '.join(olds)}])")
        e.guard = None
    else:
        parts = e.temporary(f"{text})")
    for number, element in enumerate(targets):
        text = f"{parts}[{number}]"
        if kind.form != "u":
            text += f".view({kind.dtype})"
        e.write(element, t, text)


def parameter_offset(e: Emitter, operand: ptx.Operand) -> int | None:
    """The offset of a kernel parameter that the operand names with a constant displacement."""
    inner = operand.parts[0] if isinstance(operand, ptx.Address) else operand
    name = inner.base if isinstance(inner, ptx.Offset) else inner
    if not isinstance(name, ptx.Name):
        return None
    place = e.layout.places.get(name.name)
    if place is None or place.space != "param":
        return None
    moved = integer_value(inner.displacement) if isinstance(inner, ptx.Offset) else 0
    return None if moved is None else place.offset + moved


def old_values(e: Emitter, targets: tuple[ptx.Operand, ...], kind: ValueKind) -> list[str] | None:
    """The present values of the targets of a guarded vector load, as raw bits."""
    if e.guard is None:
        return None
    values: list[str] = []
    for target in targets:
        if isinstance(target, ptx.Sink):
            values.append(e.program.constant(0, ValueKind("u", kind.width)))
            continue
        if not isinstance(target, ptx.Name):
            raise Unsupported("destination of a load")
        number, held = e.register(target.name)
        if held.width != kind.width:
            raise Unsupported("guarded vector load into registers of another width")
        values.append(e.read_number(number, ValueKind("u", kind.width)))
    return values


def load_one(e: Emitter, i: ptx.Instruction, target: ptx.Operand, address: str, space: str) -> None:
    """Load one word. In lanes where a guard is false, the load returns the old value."""
    t = last_type(i)
    kind = kind_of(t)
    if isinstance(target, ptx.Sink):
        e.line(f"load(cx, gather_{space}, {e.site}, {address}, {kind.width}, {e.guard})")
        return
    if not isinstance(target, ptx.Name):
        raise Unsupported("destination of a load")
    number, held = e.register(target.name)
    start = f"load(cx, gather_{space}, {e.site}, {address}, {kind.width}"
    if e.guard is not None and held.width == kind.width:
        old = e.read_number(number, ValueKind("u", kind.width))
        guard, e.guard = e.guard, None
        e.write(target, bits(t), f"{start}, {guard}, {old})")
        e.guard = guard
        return
    text = f"{start})" if e.guard is None else f"{start}, {e.guard})"
    if kind.form == "u" or held.width == kind.width:
        e.write(target, bits(t), text)
    else:
        e.write(target, t, f"{text}.view({kind.dtype})")


def _emit_st(e: Emitter, i: ptx.Instruction) -> None:
    t = bits(last_type(i))
    width = kind_of(t).width
    if t == "pred":
        raise Unsupported("store of a predicate")
    address, space = _address(e, i, i.operands[0])
    source = i.operands[1]
    elements = source.elements if isinstance(source, ptx.Vector) else (source,)
    values = ", ".join(e.value(element, t) for element in elements)
    line = f"store(cx, scatter_{space}, {e.site}, {address}, {width}, [{values}], {e.guard})"
    strong = bool(_STRONG & set(i.opcode.modifiers))
    for text in ("strong(cx, True)", line, "strong(cx, False)") if strong else (line,):
        e.line(text)


def _emit_cvta(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    if kind_of(t).width != 8:
        raise Unsupported("32-bit generic addresses")
    space = space_of(i)
    source = e.value(i.operands[1], "b64")
    if space in ("global", "const", "generic"):
        call(e, i, source, "b64")
        return
    if space == "param" and not e.layout.is_entry:
        space = "local"
    base = e.program.constant(WINDOW_BASES[space], _ADDRESS)
    sign = "-" if "to" in i.opcode.modifiers else "+"
    call(e, i, f"{source} {sign} {base}", "b64")


def _emit_isspacep(e: Emitter, i: ptx.Instruction) -> None:
    space = space_of(i)
    own = "shared::cta" in i.opcode.modifiers or "shared" in i.opcode.modifiers
    address = e.value(i.operands[1], "b64")
    if "param" in i.opcode.modifiers[0] and not e.layout.is_entry:
        space = "local"
    call(e, i, f"is_in_space(cx, {space!r}, {address}, {own})", "pred")


def emit_mapa(e: Emitter, i: ptx.Instruction) -> None:
    """The address of the same variable in another CTA of the cluster."""
    t = bits(last_type(i))
    width = kind_of(t).width
    generic = space_of(i) == "generic"
    address = e.value(i.operands[1], t)
    rank = e.value(i.operands[2], "u32")
    call(e, i, f"map_to_rank({address}, {rank}, {width}, {generic})", t)


def _emit_getctarank(e: Emitter, i: ptx.Instruction) -> None:
    t = bits(last_type(i))
    generic = space_of(i) == "generic"
    call(e, i, f"rank_of(cx, {e.value(i.operands[1], t)}, {generic})", "b32")


def emit_nothing(e: Emitter, i: ptx.Instruction) -> None:
    """Emit nothing: stores are visible at once, so hints and fences need no code."""


def emit_policy(e: Emitter, i: ptx.Instruction) -> None:
    """Emit a cache policy: an opaque value that no instruction inspects."""
    call(e, i, e.program.constant(0, _ADDRESS), "b64")


HANDLERS: dict[str, Handler] = {
    "mov": _emit_mov,
    "ld": _emit_ld,
    "ldu": _emit_ld,
    "st": _emit_st,
    "cvta": _emit_cvta,
    "isspacep": _emit_isspacep,
    "mapa": emit_mapa,
    "getctarank": _emit_getctarank,
    "createpolicy": emit_policy,
    **dict.fromkeys(
        (
            "prefetch",
            "prefetchu",
            "applypriority",
            "discard",
            "membar",
            "fence",
            "pmevent",
            "trace",
            "setmaxnreg",
            "griddepcontrol",
            "brkpt",
        ),
        emit_nothing,
    ),
}
