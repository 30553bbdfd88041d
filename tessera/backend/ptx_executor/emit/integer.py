"""Source for integer, bit and comparison instructions.

Common instructions become NumPy operators on raw bits: arithmetic modulo 2^n is the same for
signed and unsigned, and NumPy's shifts by the width or more give zero (or the sign), as PTX
requires. The others call `numerics`.

Source: PTX ISA 9.0, sections 9.7.1, 9.7.2, 9.7.6 to 9.7.8.
"""

from __future__ import annotations

from collections.abc import Callable

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind, kind_of
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.types import is_type

Handler = Callable[[Emitter, ptx.Instruction], None]

INTEGERS = frozenset(
    {letter + digits for letter in "usb" for digits in ("8", "16", "32", "64")} | {"u16x2", "s16x2"}
)
_OPERATORS = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}


def types_of(instruction: ptx.Instruction) -> list[str]:
    """The types among the modifiers, in order."""
    return [m for m in instruction.opcode.modifiers if is_type(m)]


def last_type(instruction: ptx.Instruction) -> str:
    """The type of the operation: the last type among the modifiers."""
    types = types_of(instruction)
    if not types:
        raise Unsupported("no type among the modifiers")
    return types[-1]


def bits(type_name: str) -> str:
    """The untyped PTX type of the same width: b32 for s32."""
    return kind_of(type_name).bits


def call(e: Emitter, instruction: ptx.Instruction, text: str, result: str) -> None:
    """Set the first operand to an expression."""
    e.write(instruction.operands[0], result, text)


def raw(e: Emitter, instruction: ptx.Instruction, *types: str) -> list[str]:
    """The sources of an instruction as raw bits of the given types."""
    sources = instruction.operands[1 : 1 + len(types)]
    return [e.value(o, bits(t)) for o, t in zip(sources, types, strict=True)]


ROUNDING = ("rn", "rz", "rm", "rp")


def options(i: ptx.Instruction, *allowed: str) -> str:
    """Keyword arguments for `numerics` from the modifiers that a function takes."""
    modifiers = i.opcode.modifiers
    parts: list[str] = []
    if "rounding" in allowed:
        rounding = next((m for m in ROUNDING if m in modifiers), None)
        if rounding is not None and rounding != "rn":
            parts.append(f"rounding={rounding!r}")
    parts.extend(f"{flag}=True" for flag in allowed if flag != "rounding" and flag in modifiers)
    return "".join(f", {part}" for part in parts)


def emit_call(text: str, types: str, result: str = "T", *allowed: str) -> Handler:
    """A handler that sets the destination to a call of `numerics`.

    In `types` and `result`, `T` is the type of the instruction. `text` has the fields {name} (the
    opcode), {t} (its type), {sources} (operands as raw bits of `types`), {mode} (wrap or clamp),
    {half} (hi or lo) and {options} (keywords for the `allowed` modifiers of the instruction).
    """

    def emit(e: Emitter, i: ptx.Instruction) -> None:
        t, modifiers = last_type(i), i.opcode.modifiers
        sources = raw(e, i, *(t if word == "T" else word for word in types.split()))
        made = text.format(
            name=i.opcode.name,
            t=repr(t),
            sources=", ".join(sources),
            mode=repr("wrap" if "wrap" in modifiers else "clamp"),
            half=repr("hi" if "hi" in modifiers else "lo"),
            options=options(i, *allowed),
        )
        call(e, i, made, bits(t) if result == "T" else result)

    return emit


# --- arithmetic ----------------------------------------------------------------------------


def _emit_add_sub(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    a, b = raw(e, i, t, t)
    if "cc" in i.opcode.modifiers:
        emit_carry(e, i)
    elif t in ("u16x2", "s16x2") or "sat" in i.opcode.modifiers:
        sat = "sat" in i.opcode.modifiers
        call(e, i, f"integer.{i.opcode.name}({t!r}, {a}, {b}, sat={sat})", bits(t))
    else:
        call(e, i, f"{a} {_OPERATORS[i.opcode.name]} {b}", bits(t))


def emit_carry(e: Emitter, i: ptx.Instruction) -> None:
    """add.cc, addc, sub.cc, subc, mad.cc, madc: the carry is a register of its own."""
    t = last_type(i)
    carry = e.program.carry(e.layout)
    flag = ValueKind("p", 0)
    name = i.opcode.name
    takes = name in ("addc", "subc", "madc")
    old = e.read_number(carry, flag) if takes else "None"
    if name in ("mad", "madc"):
        half = "hi" if "hi" in i.opcode.modifiers else "lo"
        a, b, c = raw(e, i, t, t, t)
        made = f"integer.mad_carry({t!r}, {a}, {b}, {c}, {half!r}, {old})"
    else:
        a, b = raw(e, i, t, t)
        which = "add_carry" if name.startswith("add") else "sub_carry"
        made = f"integer.{which}({t!r}, {a}, {b}, {old})"
    both = e.temporary(made)
    call(e, i, f"{both}[0]", bits(t))
    if "cc" in i.opcode.modifiers:
        e.write_number(carry, flag, f"{both}[1]")


def _emit_mul_mad(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    name = i.opcode.name
    modifiers = i.opcode.modifiers
    half = next((m for m in ("lo", "hi", "wide") if m in modifiers), "lo")
    if "cc" in modifiers or name == "madc":
        emit_carry(e, i)
        return
    if "sat" in modifiers or (half == "hi" and kind_of(t).width == 8):
        operands = (t, t, t) if name == "mad" else (t, t)
        sources = ", ".join(raw(e, i, *operands))
        tail = f", {half!r}" + (", sat=True" if "sat" in modifiers else "")
        call(e, i, f"integer.{name}({t!r}, {sources}{tail})", bits(t))
        return
    product, result = product_of(e, i, t, half)
    if name == "mad":
        product = f"{product} + {e.value(i.operands[3], result)}"
    call(e, i, product, result)


def product_of(e: Emitter, i: ptx.Instruction, t: str, half: str) -> tuple[str, str]:
    """The product of the first two sources, and the untyped PTX type of its width."""
    width = kind_of(t).width
    if half == "lo":
        a, b = raw(e, i, t, t)
        return f"({a} * {b})", f"b{8 * width}"
    if width > 4:
        raise Unsupported(f"a wide product of .{t}")
    signed = t[0] == "s"
    wide = f"{'i' if signed else 'u'}{2 * width}"
    a, b = (e.value(o, t) for o in i.operands[1:3])
    product = f"({a}.astype({wide}) * {b}.astype({wide}))"
    if half == "wide":
        return f"{product}.view(u{2 * width})", f"b{16 * width}"
    shift = e.program.constant(8 * width, ValueKind("s" if signed else "u", 2 * width))
    return f"({product} >> {shift}).astype(u{width})", f"b{8 * width}"


def _emit_min_max(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    if t in ("u16x2", "s16x2") or "relu" in i.opcode.modifiers:
        a, b = raw(e, i, t, t)
        relu = "relu" in i.opcode.modifiers
        call(e, i, f"integer.{i.opcode.name}({t!r}, {a}, {b}, relu={relu})", bits(t))
        return
    a, b = (e.value(o, t) for o in i.operands[1:3])
    call(e, i, f"np.{i.opcode.name}imum({a}, {b})", t)


def _emit_dp(e: Emitter, i: ptx.Instruction) -> None:
    a_type, b_type = types_of(i)
    a, b, c = raw(e, i, "b32", "b32", "b32")
    if i.opcode.name == "dp4a":
        call(e, i, f"integer.dp4a({a_type!r}, {b_type!r}, {a}, {b}, {c})", "b32")
        return
    half = "hi" if "hi" in i.opcode.modifiers else "lo"
    call(e, i, f"integer.dp2a({a_type!r}, {b_type!r}, {half!r}, {a}, {b}, {c})", "b32")


# --- bits ----------------------------------------------------------------------------------


def _emit_logic(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    a, b = raw(e, i, t, t)
    call(e, i, f"{a} {_OPERATORS[i.opcode.name]} {b}", bits(t))


def _emit_shift(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    kind = kind_of(t)
    if kind.form not in "us":
        raise Unsupported(f"a shift of .{t}")
    if i.opcode.name == "shl":
        t, kind = bits(t), ValueKind("u", kind.width)
    a = e.value(i.operands[1], t)
    amount = integer_value(i.operands[2])
    if amount is not None:
        amount = min(amount & 0xFFFFFFFF, 8 * kind.width)
        n = e.program.constant(amount, kind)
    else:
        n = e.value(i.operands[2], "u32")
        if kind.width == 2:
            n = f"np.minimum({n}, {e.program.constant(16, ValueKind('u', 4))})"
        n = f"{n}.astype({kind.dtype})" if kind.width != 4 else n
        if kind.width == 4 and kind.form == "s":
            n = f"np.minimum({n}, {e.program.constant(32, ValueKind('u', 4))}).view(i4)"
    call(e, i, f"{a} {'<<' if i.opcode.name == 'shl' else '>>'} {n}", t)


def _emit_shf(e: Emitter, i: ptx.Instruction) -> None:
    direction = "l" if "l" in i.opcode.modifiers else "r"
    mode = "wrap" if "wrap" in i.opcode.modifiers else "clamp"
    a, b, c = raw(e, i, "b32", "b32", "b32")
    call(e, i, f"bitwise.shf({direction!r}, {mode!r}, {a}, {b}, {c})", "b32")


def _emit_prmt(e: Emitter, i: ptx.Instruction) -> None:
    mode = next((m for m in i.opcode.modifiers if not is_type(m)), None)
    a, b, c = raw(e, i, "b32", "b32", "b32")
    call(e, i, f"bitwise.prmt({a}, {b}, {c}, {mode!r})", "b32")


def _emit_lop3(e: Emitter, i: ptx.Instruction) -> None:
    combined = next((m for m in ("or", "and") if m in i.opcode.modifiers), None)
    a, b, c = raw(e, i, "b32", "b32", "b32")
    table = e.integer(i.operands[4])
    if combined is None:
        call(e, i, f"bitwise.lop3({a}, {b}, {c}, {table})", "b32")
        return
    q = e.value(i.operands[5], "pred")
    both = e.temporary(f"bitwise.lop3_bool({combined!r}, {a}, {b}, {c}, {table}, {q})")
    write_pair(e, i.operands[0], "b32", f"{both}[0]", f"{both}[1]")


def write_pair(e: Emitter, operand: ptx.Operand, t: str, first: str, second: str) -> None:
    """Write `d|p`, or `d` alone."""
    if isinstance(operand, ptx.Pair):
        e.write(operand.first, t, first)
        e.write(operand.second, "pred", second)
    else:
        e.write(operand, t, first)


_OF_TYPE = "integer.{name}({t}, {sources})"
_IN_24_BITS = "integer.{name}({t}, {sources}, {half}{options})"
_COUNT = emit_call("bitwise.{name}({t}, {sources}{options})", "T", "b32", "shiftamt")

HANDLERS: dict[str, Handler] = {
    "addc": emit_carry,
    "subc": emit_carry,
    "madc": emit_carry,
    "mul24": emit_call(_IN_24_BITS, "T T"),
    "mad24": emit_call(_IN_24_BITS, "T T T", "T", "sat"),
    "rem": emit_call(_OF_TYPE, "T T"),
    "sad": emit_call(_OF_TYPE, "T T T"),
    "dp4a": _emit_dp,
    "dp2a": _emit_dp,
    "and": _emit_logic,
    "or": _emit_logic,
    "xor": _emit_logic,
    "not": emit_call("~{sources}", "T"),
    "cnot": emit_call("bitwise.cnot({t}, {sources})", "T"),
    "brev": emit_call("bitwise.brev({t}, {sources})", "T"),
    "shl": _emit_shift,
    "shr": _emit_shift,
    "shf": _emit_shf,
    "popc": _COUNT,
    "clz": _COUNT,
    "bfind": _COUNT,
    "bfe": emit_call("bitwise.bfe({t}, {sources})", "T b32 b32"),
    "bfi": emit_call("bitwise.bfi({t}, {sources})", "T T b32 b32"),
    "prmt": _emit_prmt,
    "lop3": _emit_lop3,
    "bmsk": emit_call("bitwise.bmsk({mode}, {sources})", "b32 b32", "b32"),
    "szext": emit_call("bitwise.szext({t}, {mode}, {sources})", "b32 b32", "b32"),
    "fns": emit_call("bitwise.fns({sources})", "b32 b32 b32", "b32"),
}
INTEGER_FORMS: dict[str, Handler] = {
    "add": _emit_add_sub,
    "sub": _emit_add_sub,
    "mul": _emit_mul_mad,
    "mad": _emit_mul_mad,
    "min": _emit_min_max,
    "max": _emit_min_max,
    "abs": emit_call(_OF_TYPE, "T"),
    "neg": emit_call(_OF_TYPE, "T"),
    "div": emit_call(_OF_TYPE, "T T"),
}
