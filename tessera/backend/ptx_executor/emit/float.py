"""Source for floating-point, comparison, selection and conversion instructions.

An operation that can round or see a NaN calls `numerics`, for the bits that PTX defines.

Source: PTX ISA 9.0, sections 9.7.3 to 9.7.6 and 9.7.9 (cvt).
"""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.integer import (
    INTEGER_FORMS,
    INTEGERS,
    Handler,
    bits,
    call,
    emit_call,
    last_type,
    options,
    raw,
    types_of,
)
from tessera.backend.ptx_executor.emit.kinds import Unsupported, kind_of
from tessera.ir.ptx import syntax as ptx

_ORDERED = {"eq": "==", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_COMPARISONS = frozenset(
    "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan".split()  # noqa: SIM905
)
_BOOLEAN = ("and", "or", "xor")


def by_type(name: str, floating: Handler) -> Handler:
    """A handler that takes the integer form for integer types, else the floating-point form."""
    integer_form = INTEGER_FORMS[name]

    def emit(e: Emitter, i: ptx.Instruction) -> None:
        (integer_form if last_type(i) in INTEGERS else floating)(e, i)

    return emit


def emit_arithmetic(count: int, *allowed: str) -> Handler:
    """add, sub, mul, fma of one type."""

    def emit(e: Emitter, i: ptx.Instruction) -> None:
        types = types_of(i)
        if len(types) > 1:
            emit_mixed(e, i, types)
            return
        t = last_type(i)
        sources = ", ".join(raw(e, i, *(t,) * count))
        name = "fma" if i.opcode.name == "mad" else i.opcode.name
        call(e, i, f"floats.{name}({t!r}, {sources}{options(i, *allowed)})", bits(t))

    return emit


def emit_mixed(e: Emitter, i: ptx.Instruction, types: list[str]) -> None:
    """add.f32.bf16 and the like: the narrow source is widened exactly first."""
    wide, narrow = types
    name = "fma" if i.opcode.name == "mad" else i.opcode.name
    narrow_count = 2 if name == "fma" else 1
    sources = []
    for place, operand in enumerate(i.operands[1:]):
        if place < narrow_count:
            value = e.value(operand, bits(narrow))
            sources.append(f"convert.cvt({wide!r}, {narrow!r}, {value})")
        else:
            sources.append(e.value(operand, bits(wide)))
    tail = options(i, "rounding", "ftz", "sat")
    call(e, i, f"floats.{name}({wide!r}, {', '.join(sources)}{tail})", bits(wide))


def _emit_div(e: Emitter, i: ptx.Instruction) -> None:
    if "full" in i.opcode.modifiers:
        emit_call("approx.div_full({sources}{options})", "T T", "T", "ftz")(e, i)
    else:
        emit_root(2)(e, i)


def _approximate(count: int) -> Handler:
    return emit_call("approx.{name}({t}, {sources}{options})", " ".join("T" * count), "T", "ftz")


def emit_root(count: int) -> Handler:
    """div, rcp, sqrt, rsqrt: approximate or correctly rounded."""
    sources = " ".join("T" * count)
    exact = emit_call("floats.{name}({t}, {sources}{options})", sources, "T", "rounding", "ftz")
    approximate = _approximate(count)

    def emit(e: Emitter, i: ptx.Instruction) -> None:
        (approximate if "approx" in i.opcode.modifiers else exact)(e, i)

    return emit


def _emit_min_max(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    modifiers = i.opcode.modifiers
    tail = options(i, "ftz")
    tail += ", nan=True" if "NaN" in modifiers else ""
    if len(i.operands) == 4:
        tail += ", abs=True" if "abs" in modifiers else ""
        a, b, c = raw(e, i, t, t, t)
        call(e, i, f"floats.{i.opcode.name}({t!r}, {a}, {b}, {c}{tail})", bits(t))
        return
    a, b = raw(e, i, t, t)
    tail += ", xorsign_abs=True" if "xorsign" in modifiers else ""
    call(e, i, f"floats.{i.opcode.name}({t!r}, {a}, {b}{tail})", bits(t))


def _emit_testp(e: Emitter, i: ptx.Instruction) -> None:
    emit_call(f"floats.testp({i.opcode.modifiers[0]!r}, {{t}}, {{sources}})", "T", "pred")(e, i)


# --- comparison and selection ----------------------------------------------------------------


def comparison(e: Emitter, i: ptx.Instruction, t: str) -> str:
    """The comparison of the first two sources, as a predicate."""
    op = next((m for m in i.opcode.modifiers if m in _COMPARISONS), None)
    if op is None:
        raise Unsupported("no comparison among the modifiers")
    ftz = "ftz" in i.opcode.modifiers
    kind = kind_of(t)
    if kind.form in "us" and t in INTEGERS:
        op = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(op, op)
        symbol = "!=" if op == "ne" else _ORDERED[op]
        a, b = (e.value(o, t) for o in i.operands[1:3])
        return f"({a} {symbol} {b})"
    if kind.form == "f" and not ftz and op in _ORDERED:
        a, b = (e.value(o, t) for o in i.operands[1:3])
        return f"({a} {_ORDERED[op]} {b})"
    a, b = raw(e, i, t, t)
    return f"compare.compare({op!r}, {t!r}, {a}, {b}, ftz={ftz})"


def combining(e: Emitter, i: ptx.Instruction, place: int) -> tuple[str, str] | None:
    """The boolean operator and the predicate that a comparison is combined with."""
    op = next((m for m in _BOOLEAN if m in i.opcode.modifiers), None)
    if op is None or len(i.operands) <= place:
        return None
    symbol = {"and": "&", "or": "|", "xor": "^"}[op]
    return symbol, e.value(i.operands[place], "pred")


def _emit_setp(e: Emitter, i: ptx.Instruction) -> None:
    t = last_type(i)
    if t in ("f16x2", "bf16x2"):
        _emit_setp_x2(e, i, t)
        return
    p = comparison(e, i, t)
    extra = combining(e, i, 3)
    target = i.operands[0]
    if not isinstance(target, ptx.Pair):
        e.write(target, "pred", p if extra is None else f"{p} {extra[0]} {extra[1]}")
        return
    p = e.temporary(p)
    first, second = p, f"~{p}"
    if extra is not None:
        first, second = f"{p} {extra[0]} {extra[1]}", f"~{p} {extra[0]} {extra[1]}"
    write_pair_of_predicates(e, target, first, second)


def write_pair_of_predicates(e: Emitter, target: ptx.Pair, first: str, second: str) -> None:
    """Set two predicates; both are computed before either is set."""
    left, right = e.temporary(first), e.temporary(second)
    e.write(target.first, "pred", left)
    e.write(target.second, "pred", right)


def _emit_setp_x2(e: Emitter, i: ptx.Instruction, t: str) -> None:
    op = next(m for m in i.opcode.modifiers if m in _COMPARISONS)
    a, b = raw(e, i, t, t)
    both = e.temporary(f"compare.compare_x2({op!r}, {t!r}, {a}, {b}{options(i, 'ftz')})")
    extra = combining(e, i, 3)
    tail = "" if extra is None else f" {extra[0]} {extra[1]}"
    target = i.operands[0]
    if isinstance(target, ptx.Pair):
        write_pair_of_predicates(e, target, f"{both}[0]{tail}", f"{both}[1]{tail}")
    else:
        e.write(target, "pred", f"{both}[0]{tail}")


def _emit_set(e: Emitter, i: ptx.Instruction) -> None:
    types = types_of(i)
    result, t = types[-2], types[-1]
    extra = combining(e, i, 3)
    tail = "" if extra is None else f" {extra[0]} {extra[1]}"
    if t in ("f16x2", "bf16x2"):
        op = next(m for m in i.opcode.modifiers if m in _COMPARISONS)
        a, b = raw(e, i, t, t)
        both = e.temporary(f"compare.compare_x2({op!r}, {t!r}, {a}, {b}{options(i, 'ftz')})")
        low, high = f"{both}[0]{tail}", f"{both}[1]{tail}"
        call(e, i, f"compare.set_result_x2({result!r}, {low}, {high})", bits(result))
        return
    p = comparison(e, i, t)
    call(e, i, f"compare.set_result({result!r}, {p}{tail})", bits(result))


def _emit_selp(e: Emitter, i: ptx.Instruction) -> None:
    t = bits(last_type(i))
    a, b = raw(e, i, t, t)
    call(e, i, f"sel({e.value(i.operands[3], 'pred')}, {a}, {b})", t)


def _emit_slct(e: Emitter, i: ptx.Instruction) -> None:
    t, by = types_of(i)
    a, b, c = raw(e, i, t, t, by)
    call(e, i, f"compare.slct({t!r}, {by!r}, {a}, {b}, {c}{options(i, 'ftz')})", bits(t))


# --- conversion ------------------------------------------------------------------------------

_PLAIN = frozenset({"u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"})
_CVT_ROUNDING = ("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna", "rs")


def _emit_cvt(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if "pack" in modifiers:
        _emit_cvt_pack(e, i)
        return
    types = types_of(i)
    to, source = types[0], types[1]
    if to in _PLAIN and source in _PLAIN and "sat" not in modifiers:
        emit_cvt_integer(e, i, to, source)
        return
    parts = []
    rounding = next((m for m in _CVT_ROUNDING if m in modifiers), None)
    if rounding is not None:
        parts.append(f"rounding={rounding!r}")
    parts.extend(f"{m}=True" for m in ("ftz", "sat", "satfinite", "relu") if m in modifiers)
    if len(i.operands) > 3 or rounding == "rs":
        raise Unsupported("conversion with random bits or of four values")
    if any(m.startswith("scaled") for m in modifiers):
        raise Unsupported("scaled conversion")
    source_kind = source if source != "tf32" else "b32"
    a = e.value(i.operands[1], bits(source_kind))
    if len(i.operands) == 3:
        parts.insert(0, f"b={e.value(i.operands[2], bits(source))}")
    tail = "".join(f", {part}" for part in parts)
    call_cvt(e, i, to, f"convert.cvt({to!r}, {source!r}, {a}{tail})")


def call_cvt(e: Emitter, i: ptx.Instruction, to: str, text: str) -> None:
    """Call `cvt`. `numerics` returns 8-bit results in 16 bits; wider registers are extended."""
    target = i.operands[0]
    in_bytes = to in ("u8", "s8", "e4m3", "e5m2", "e2m1x2")
    width = 2 if in_bytes else kind_of(to).width
    signed = to[0] == "s"
    if isinstance(target, ptx.Name):
        held = e.register(target.name)[1]
        if held.width != width:
            if signed and held.width > width:
                e.write(
                    target, f"s{8 * held.width}", f"{text}.view(i{width}).astype(i{held.width})"
                )
            else:
                e.write(target, f"b{8 * held.width}", f"{text}.astype(u{held.width})")
            return
    e.write(target, f"b{8 * width}", text)


def emit_cvt_integer(e: Emitter, i: ptx.Instruction, to: str, source: str) -> None:
    """Convert between integers: truncate, or extend by the signedness of the source."""
    a = e.value(i.operands[1], source)
    to_kind, from_kind = kind_of(to), kind_of(source)
    if to_kind.width != from_kind.width:
        text = f"{a}.astype({to_kind.dtype})"
    elif to_kind.form != from_kind.form:
        text = f"{a}.view({to_kind.dtype})"
    else:
        text = a
    call(e, i, text, to)


def _emit_cvt_pack(e: Emitter, i: ptx.Instruction) -> None:
    types = [m for m in i.opcode.modifiers if m not in ("pack", "sat")]
    to, source = types[0], types[1]
    sources = ", ".join(raw(e, i, *("b32",) * (len(i.operands) - 1)))
    call(e, i, f"convert.cvt_pack({to!r}, {source!r}, {sources})", "b32")


_SIGN = emit_call("floats.{name}({t}, {sources}{options})", "T", "T", "ftz")

HANDLERS: dict[str, Handler] = {
    "add": by_type("add", emit_arithmetic(2, "rounding", "ftz", "sat")),
    "sub": by_type("sub", emit_arithmetic(2, "rounding", "ftz", "sat")),
    "mul": by_type("mul", emit_arithmetic(2, "rounding", "ftz", "sat")),
    "mad": by_type("mad", emit_arithmetic(3, "rounding", "ftz", "sat")),
    "fma": emit_arithmetic(3, "rounding", "ftz", "sat", "relu"),
    "div": by_type("div", _emit_div),
    "rcp": emit_root(1),
    "sqrt": emit_root(1),
    "rsqrt": emit_root(1),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh"), _approximate(1)),
    "min": by_type("min", _emit_min_max),
    "max": by_type("max", _emit_min_max),
    "abs": by_type("abs", _SIGN),
    "neg": by_type("neg", _SIGN),
    "copysign": emit_call("floats.copysign({t}, {sources})", "T T"),
    "testp": _emit_testp,
    "setp": _emit_setp,
    "set": _emit_set,
    "selp": _emit_selp,
    "slct": _emit_slct,
    "cvt": _emit_cvt,
}
