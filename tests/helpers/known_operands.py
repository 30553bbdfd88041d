"""Kernels of scalar instructions whose operands a compiler knows: constants, ranges, and chains.

`tests/gpu/check_constants.py` runs them. A form reads `%a`, `%b`, `%c`, `%e` and writes `%d`.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from tests.helpers.numerics_cases import all_cases
from tests.helpers.ptx_cases import inputs, width_of

LANES, BLOCK = 256, 128
HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
INTEGERS = ("u16", "s16", "u32", "s32", "u64", "s64")
SMALL = ("u8", "s8", *INTEGERS)
NAMES = "abce"
FLOATS = {
    "f16": "0 8000 3c00 bc00 7c00 fc00 7e00 7fff 1 7bff",
    "f32": "0 80000000 3f800000 bf800000 7f800000 ff800000 7fc00000 7fffffff 1 4f000000 cf000000"
    " 4f800000 5f000000 7f7fffff",
    "f64": "0 8000000000000000 3ff0000000000000 bff0000000000000 7ff0000000000000"
    " fff0000000000000 7ff8000000000000 7fffffffffffffff 1 41e0000000000000 c1e0000000000000"
    " 43e0000000000000 43f0000000000000",
}
RANGES = (
    ("and", "and.b{w} %{n}, %{n}, {m};"),
    ("or", "or.b{w} %{n}, %{n}, 32;"),
    ("few", "shr.u{w} %{n}, %{n}, {s};"),
    ("many", "shr.s{w} %{n}, %{n}, 3;"),
    ("most", "min.u{w} %{n}, %{n}, 40;"),
    ("least", "max.s{w} %{n}, %{n}, -1;"),
)


class Form(NamedTuple):
    """An instruction that reads `%a`, `%b`, `%c`, `%e` and writes `%d`."""

    name: str
    body: str
    kinds: tuple[str, ...]
    width: int


def bits(kind: str) -> int:
    return max(int(kind[1:]), 16)


def plain(op: str, kinds: Sequence[str], width: int = 0, tail: str = "") -> Form:
    names = ", ".join(f"%{name}" for name in NAMES[: len(kinds)])
    return Form(op, f"{op} %d, {names}{tail};", tuple(kinds), width or bits(kinds[0]))


def forms() -> Iterator[Form]:
    """Instructions on integers, comparisons and conversions, and the cases of `numerics`."""
    for t in INTEGERS:
        for op in ("add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"):
            yield plain(f"{op}.{t}", (t, t))
        for op in ("mad.lo", "mad.hi", "sad"):
            yield plain(f"{op}.{t}", (t, t, t))
        for op in ("abs", "neg") if t[0] == "s" else ():
            yield plain(f"{op}.{t}", (t,))
        for op in ("shl", "shr"):
            kind = t.replace("s", "b").replace("u", "b") if op == "shl" else t
            yield plain(f"{op}.{kind}", (t, "u32"))
        for op in ("and", "or", "xor"):
            yield plain(f"{op}.b{t[1:]}", (t, t))
        for op in ("not", "cnot"):
            yield plain(f"{op}.b{t[1:]}", (t,))
        yield plain(f"slct.{t}.s32", (t, t, "s32"))
        for test in ("eq", "ne", "lt", "le", "gt", "ge"):
            body = f".reg .pred %q; setp.{test}.{t} %q, %a, %b; selp.b32 %d, %a0, 7, %q;"
            yield Form(f"setp.{test}.{t}", body.replace("%a0", "5"), (t, t), 32)
            yield plain(f"set.{test}.u32.{t}", (t, t), 32)
            body = (
                f".reg .pred %q, %r, %s; setp.ne.u32 %s, %c, 3; setp.{test}.xor.{t} %q|%r,"
                " %a, %b, %s; selp.b32 %d, 1, 0, %q; @%r add.u32 %d, %d, 2;"
            )
            yield Form(f"setp.{test}.xor.{t}", body, (t, t, "u32"), 32)
        if t[1:] != "64":
            yield plain(f"mul.wide.{t}", (t, t), 2 * bits(t))
            yield plain(f"mad.wide.{t}", (t, t, f"{t[0]}{2 * bits(t)}"), 2 * bits(t))
        if t[1:] != "16":
            w = t[1:]
            pairs = (("add.cc", "addc", ""), ("sub.cc", "subc", ""))
            for first, second, _ in pairs:
                body = f".reg .b{w} %t; {first}.{t} %t, %a, %b; {second}.{t} %d, %c, %t;"
                yield Form(f"{first} {second}.{t}", body, (t, t, t), int(w))
            body = f".reg .b{w} %t; mad.lo.cc.{t} %t, %a, %b, %c; madc.hi.{t} %d, %a, %b, %t;"
            yield Form(f"mad.lo.cc madc.hi.{t}", body, (t, t, t), int(w))
            yield plain(f"bfe.{t}", (t, "u32", "u32"), int(w))
            body = f"bfi.b{w} %d, %a, %b, %c, %e;"
            yield Form(f"bfi.{t}", body, (t, t, "u32", "u32"), int(w))
            for op in ("popc", "clz"):
                yield plain(f"{op}.b{w}", (t,), 32)
            yield plain(f"brev.b{w}", (t,))
    for way, mode in itertools.product("lr", ("clamp", "wrap")):
        yield plain(f"shf.{way}.{mode}.b32", ("u32",) * 3)
    for table in (0x1, 0x17, 0x80, 0x96, 0xCA, 0xE8, 0xFE, 0x3C):
        yield plain(f"lop3.b32 {table}", ("u32",) * 3)._replace(
            body=f"lop3.b32 %d, %a, %b, %c, {table};"
        )
    for to, of in itertools.product(SMALL, SMALL):
        for sat in ("", ".sat"):
            yield plain(f"cvt{sat}.{to}.{of}", (of,), bits(to))
            if bits(of) < 64:  # of a register with more bits
                body = f".reg .b64 %w; cvt.u64.u{bits(of)} %w, %a; or.b64 %w, %w, -65536;"
                yield Form(
                    f"cvt{sat}.{to}.{of} wide",
                    f"{body} cvt{sat}.{to}.{of} %d, %w;",
                    (of,),
                    bits(to),
                )
    for of, to in itertools.product(FLOATS, SMALL):
        for mode, sat in itertools.product(("rni", "rzi", "rmi", "rpi"), ("", ".sat")):
            yield plain(f"cvt.{mode}{sat}.{to}.{of}", (of,), bits(to))
    seen = re.compile(r"(cvt|add|sub|mul|div|rem|min|max|sad|shr|bfe|abs)\.")
    for case in all_cases():
        is_seen = seen.match(case.name) is not None and case.operands[0][0] in "us"
        if case.bound is None and not is_seen and len(case.operands) <= 3:
            yield Form(case.name, case.body, case.operands, case.width)


def chain(rng: random.Random) -> str:
    """Instructions that use each other's results, and constants, for what ptxas makes of several.

    It leaves out what is known to differ (`docs/developer/soundness.md`), and division by zero.
    """
    has = {16: ["%e"], 32: ["%a", "%b"], 64: ["%c"]}
    lines = [".reg .pred %q; .reg .b32 %s; mov.u32 %s, %tid.x;"]

    def source(w: int, *, is_constant: float = 0.4) -> str:
        if rng.random() < is_constant:
            return hex(rng.choice(corners(f"u{w}")))
        return rng.choice(has[w])

    for number in range(rng.randint(2, 6)):
        w = rng.choice((16, 32, 32, 32, 64, 64))
        sign = rng.choice("su")
        t, to = f"{sign}{w}", w
        first = source(w, is_constant=0.1)
        three = rng.sample(sorted({*has[32], "%a", "%b", "%s"}), 3)
        start, choices = rng.randrange(32), rng.randrange(1 << 16) & 0x7777
        match rng.randrange(10):
            case 0 | 1:
                op = rng.choice(("add", "sub", "mul.lo", "mul.hi", "min", "max"))
                text = f"{op}.{t} %t, {first}, {source(w)};"
            case 2:
                second, third = source(w), source(w)
                if third in (first, second):
                    third = hex(rng.choice(corners(t)))
                text = f"mad.lo.{t} %t, {first}, {second}, {third};"
            case 3:
                op = rng.choice(("and", "or", "xor"))
                text = f"{op}.b{w} %t, {first}, {source(w)};"
            case 4:
                op = rng.choice((f"shl.b{w}", f"shr.{t}"))
                most = 63 if op == "shl.b64" else 0xFFFF
                amounts = [n for n in corners("u32") if n <= most]
                amount = hex(rng.choice(amounts)) if rng.random() < 0.7 else rng.choice(has[32])
                text = f"{op} %t, {first}, {amount};"
            case 5:
                to = rng.choice((16, 32, 64))
                kinds = f"{rng.choice('su')}{to}.{sign}{rng.choice((8, w))}"
                text = f"cvt.{'u64.u32' if kinds == 's64.u32' else kinds} %t, {first};"
            case 6:
                test = rng.choice(("eq", "ne", "lt", "le", "gt", "ge"))
                text = f"setp.{test}.{t} %q, {first}, {source(w)};"
                text += f" selp.b{w} %t, {source(w)}, {source(w)}, %q;"
            case 7:
                op = rng.choice(("div", "rem"))
                constant = rng.choice([n for n in corners(t) if n])
                text = f"{op}.{t} %t, {first}, {constant:#x};"
            case 8:
                op = rng.choice(("not.b", "not.b" if w == 16 else "neg.s", "sad.s", "sad.u"))
                more = f", {source(w)}, {source(w)}" if op[:3] == "sad" else ""
                text = f"{op}{w} %t, {first}{more};"
            case _ if w == 16:
                to = 32
                text = f"mul.wide.{t} %t, {first}, {source(w)};"
            case _ if w == 32:
                text, to = rng.choice(
                    (
                        (f"mul.wide.{t} %t, {first}, {source(w)};", 64),
                        (f"mad.wide.{t} %t, {first}, {source(w)}, {source(64)};", 64),
                        (f"bfe.u32 %t, {first}, {rng.randrange(40)}, {rng.randrange(40)};", 32),
                        (f"prmt.b32 %t, {first}, {source(w)}, {choices};", 32),
                        (f"lop3.b32 %t, {', '.join(three)}, {rng.randrange(256)};", 32),
                        (f"bfi.b32 %t, {first}, {source(w)}, {start}, {32 - start};", 32),
                        (f"mul24.lo.{t} %t, {first}, {source(w)};", 32),
                        (f"shf.l.clamp.b32 %t, {first}, {source(w)}, {source(w)};", 32),
                        (f"shf.r.wrap.b32 %t, {first}, {source(w)}, {source(w)};", 32),
                    )
                )
            case _:
                text, to = f"popc.b64 %t, {first};", 32
        name = f"%t{number}"
        lines.append(f".reg .b{to} {name}; " + text.replace("%t,", f"{name},"))
        has[to] += [name, name]
    last = {w: names[-1] for w, names in has.items()}
    lines.append(f".reg .b64 %u0, %u1; cvt.u64.u32 %u0, {last[32]}; cvt.u64.u16 %u1, {last[16]};")
    lines.append(f"shl.b64 %u1, %u1, 47; xor.b64 %u0, %u0, %u1; xor.b64 %d, %u0, {last[64]};")
    return " ".join(lines)


def corners(kind: str) -> list[int]:
    """Constants for an operand."""
    if kind in FLOATS:
        return [int(digits, 16) for digits in FLOATS[kind].split()]
    w = width_of(kind)
    if kind not in INTEGERS and kind not in SMALL:
        return sorted({int(value) for value in inputs(kind, 3, 24)})
    near = {0, 1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 127, 128, 255, 256}
    high = {(1 << w) - 1, (1 << w) - 2, (1 << w) - 32, 1 << (w - 1), (1 << (w - 1)) - 1}
    middle = {(1 << 15), (1 << 16) - 1} | ({1 << 16, 1 << 31, (1 << 32) - 1} if w > 16 else set())
    return sorted({value & ((1 << w) - 1) for value in near | high | middle})


def variants(form: Form, rng: random.Random) -> Iterator[str]:
    """What is known of the operands: assignments in front of the instruction."""
    names = NAMES[: len(form.kinds)]
    constants = dict(zip(names, map(corners, form.kinds), strict=True))
    widths = dict(zip(names, map(width_of, form.kinds), strict=True))

    def constant(name: str, value: int) -> str:
        return f"mov.b{widths[name]} %{name}, {value:#x};"

    def one_range(name: str) -> str:
        w = widths[name]
        return rng.choice(RANGES)[1].format(w=w, n=name, m=31 if w > 16 else 15, s=w - 6)

    yield ""
    for name in names:
        yield from (constant(name, value) for value in constants[name])
        for _, text in RANGES:
            w = widths[name]
            yield text.format(w=w, n=name, m=31 if w > 16 else 15, s=w - 6)
    for count in range(2, len(names) + 1):
        for chosen in itertools.combinations(names, count):
            for _ in range(24):
                yield " ".join(constant(n, rng.choice(constants[n])) for n in chosen)
            for _ in range(12):
                yield " ".join(
                    constant(n, rng.choice(constants[n])) if rng.random() < 0.5 else one_range(n)
                    for n in chosen
                )


def kernel(number: int, form: Form, known: Sequence[str]) -> str:
    """A kernel that stores the result of each variant, one array behind the other."""
    names = NAMES[: len(form.kinds)]
    widths = dict(zip(names, map(width_of, form.kinds), strict=True))
    parameters = ", ".join(f".param .u64 p{name}" for name in (*names, "d"))
    lines = [f".visible .entry k{number}({parameters}) {{", ".reg .b64 %p, %o;"]
    lines += [".reg .b32 %g, %u;", "mov.u32 %g, %ctaid.x;", "mov.u32 %u, %tid.x;"]
    lines += [f"mad.lo.u32 %g, %g, {BLOCK}, %u;"]
    for name, w in widths.items():
        lines += [f".reg .b{w} %{name}0;", f"ld.param.u64 %p, [p{name}];"]
        lines += [f"mad.wide.u32 %p, %g, {w // 8}, %p;", f"ld.global.b{w} %{name}0, [%p];"]
    size = form.width // 8
    lines += ["ld.param.u64 %p, [pd];", f"mad.wide.u32 %p, %g, {size}, %p;"]
    for place, text in enumerate(known):
        own = " ".join(f".reg .b{w} %{n}; mov.b{w} %{n}, %{n}0;" for n, w in widths.items())
        lines += [f"{{ .reg .b{form.width} %d; {own} {text} {form.body}"]
        lines += [f"st.global.b{form.width} [%p+{place * LANES * size}], %d; }}"]
    return "\n".join([*lines, "ret;", "}"])


def arrays(form: Form) -> list[np.ndarray]:
    return [inputs(kind, place, LANES) for place, kind in enumerate(form.kinds)]
