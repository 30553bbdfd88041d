"""The instructions that the probes try: for each group, operand kinds and instruction texts.

A text has `{d}` for its destination and `{a}`, `{b}`, `{c}` for its inputs. Texts are candidates:
`make_probes.py` drops those that ptxas refuses, so that the lists below may be plain products
of modifiers. In a text, `[x|y|]` stands for one text per choice, the empty one included.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
FLOATS = ("f16", "bf16", "f32", "f64")
ROUND = "[rn|rz|rm|rp]"
COMPARE = "[eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu|num|nan]"


@dataclass(frozen=True, slots=True)
class Group:
    """Instructions over the same inputs; each text comes with the kind of its result."""

    name: str
    inputs: tuple[str, ...]
    texts: tuple[tuple[str, str], ...]
    count: int = 0


def expand(text: str) -> Iterator[str]:
    """All choices of the `[x|y]` parts of a text."""
    parts = re.split(r"\[([A-Za-z0-9_.:]*(?:\|[A-Za-z0-9_.:]*)+)\]", text)
    choices = [part.split("|") if i % 2 else [part] for i, part in enumerate(parts)]
    for choice in itertools.product(*choices):
        yield "".join(choice)


def group(name: str, inputs: str, *texts: tuple[str, str], count: int = 0) -> Group:
    """A group with its texts expanded; each is (kind of result, text)."""
    wide = [(kind, one) for kind, text in texts for one in expand(text)]
    return Group(name, tuple(inputs.split()), tuple(wide), count)


def conversions() -> Iterator[Group]:
    """`cvt` between all scalar types, then to and from packed and narrow formats."""
    for source in INTEGERS + FLOATS:
        texts = []
        for target in INTEGERS + FLOATS:
            rounding = "[|.rn|.rz|.rm|.rp|.rni|.rzi|.rmi|.rpi]"
            texts.append((target, f"cvt{rounding}[|.ftz][|.sat].{target}.{source} {{d}}, {{a}};"))
        yield group(f"cvt_from_{source}", source, *texts)
    yield group(
        "cvt_packed_f32",
        "f32 f32",
        ("f16x2", "cvt.[rn|rz][|.relu][|.satfinite].f16x2.f32 {d}, {a}, {b};"),
        ("bf16x2", "cvt.[rn|rz][|.relu][|.satfinite].bf16x2.f32 {d}, {a}, {b};"),
        ("b16", "cvt.rn.satfinite[|.relu].[e4m3x2|e5m2x2].f32 {d}, {a}, {b};"),
    )
    yield group(
        "cvt_narrow_f32",
        "f32",
        ("tf32", "cvt.[rna|rn|rz][|.relu][|.satfinite].tf32.f32 {d}, {a};"),
        ("f16", "cvt.[rn|rz][|.relu][|.satfinite].f16.f32 {d}, {a};"),
        ("bf16", "cvt.[rn|rz][|.relu][|.satfinite].bf16.f32 {d}, {a};"),
    )
    yield group(
        "cvt_fp8_f16x2",
        "f16x2",
        ("b16", "cvt.rn.satfinite[|.relu].[e4m3x2|e5m2x2].f16x2 {d}, {a};"),
    )
    yield group(
        "cvt_f16x2_fp8", "fp8x2", ("f16x2", "cvt.rn[|.relu].f16x2.[e4m3x2|e5m2x2] {d}, {a};")
    )
    yield group(
        "cvt_pack",
        "s32 s32 b32",
        ("b32", "cvt.pack.sat.[u16|s16].s32 {d}, {a}, {b};"),
        ("b32", "cvt.pack.sat.[u8|s8|u4|s4|u2|s2].s32.b32 {d}, {a}, {b}, {c};"),
    )


def float_arithmetic() -> Iterator[Group]:
    """Exactly rounded arithmetic, comparisons, and minimum and maximum."""
    for kind in ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2"):
        # The ISA gives narrow formats .rn only; ptxas takes others for fma.bf16 and makes nonsense.
        rounding = ROUND if kind in ("f32", "f64") else "rn"
        yield group(
            f"arith_{kind}",
            f"{kind} {kind}",
            (kind, f"[add|sub|mul].{ROUND}[|.ftz][|.sat].{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[min|max][|.ftz][|.NaN][|.xorsign.abs].{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[neg|abs][|.ftz].{kind} {{d}}, {{a}};"),
            (kind, f"copysign.{kind} {{d}}, {{a}}, {{b}};"),
        )
        yield group(
            f"muladd_{kind}",
            f"{kind} {kind} {kind}",
            (kind, f"fma.{rounding}[|.ftz][|.sat|.relu].{kind} {{d}}, {{a}}, {{b}}, {{c}};"),
        )
        if "x2" not in kind:
            yield group(
                f"compare_{kind}",
                f"{kind} {kind}",
                ("b32", f"set.{COMPARE}[|.ftz].u32.{kind} {{d}}, {{a}}, {{b}};"),
            )
    for kind in ("f32", "f64"):
        yield group(
            f"divide_{kind}",
            f"{kind} {kind}",
            (kind, f"div.{ROUND}[|.ftz].{kind} {{d}}, {{a}}, {{b}};"),
        )
        yield group(
            f"root_{kind}",
            kind,
            (kind, f"[sqrt|rcp].{ROUND}[|.ftz].{kind} {{d}}, {{a}};"),
        )
        tests = "[finite|infinite|number|notanumber|normal|subnormal]"
        text = f"{{{{ .reg .pred q; testp.{tests}.{kind} q, {{a}}; selp.b32 {{d}}, 1, 0, q; }}}}"
        yield group(f"testp_{kind}", kind, ("b32", text))
    yield group("slct", "b32 b32 f32", ("b32", "slct[|.ftz].u32.f32 {d}, {a}, {b}, {c};"))


def approximations() -> Iterator[Group]:
    """Functions whose results the ISA only bounds."""
    yield group(
        "approx_f32",
        "f32",
        ("f32", "[ex2|lg2|sin|cos|rcp|rsqrt|sqrt|tanh].approx[|.ftz].f32 {d}, {a};"),
        count=1536,
    )
    yield group("approx_f64", "f64", ("f64", "[rcp|rsqrt].approx[|.ftz].f64 {d}, {a};"), count=768)
    yield group("approx_f16", "f16", ("f16", "[ex2|tanh].approx[|.ftz].f16 {d}, {a};"), count=768)
    yield group(
        "approx_bf16", "bf16", ("bf16", "[ex2|tanh].approx[|.ftz].bf16 {d}, {a};"), count=768
    )
    yield group(
        "approx_x2",
        "f16x2",
        ("f16x2", "[ex2|tanh].approx[|.ftz].f16x2 {d}, {a};"),
        ("bf16x2", "[ex2|tanh].approx[|.ftz].bf16x2 {d}, {a};"),
    )
    yield group(
        "approx_divide",
        "f32 f32",
        ("f32", "div.[approx|full][|.ftz].f32 {d}, {a}, {b};"),
        count=1024,
    )


def integers() -> Iterator[Group]:
    """Integer arithmetic of every width and signedness."""
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        texts = [
            (kind, f"[add|sub|mul.lo|mul.hi|min|max|div|rem].{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[add|sub].sat.{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[min|max].relu.{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[abs|neg].{kind} {{d}}, {{a}};"),
            ("b32", f"set.[eq|ne|lt|le|gt|ge|lo|ls|hi|hs].u32.{kind} {{d}}, {{a}}, {{b}};"),
            ("b32", f"set.[eq|lt].f32.{kind} {{d}}, {{a}}, {{b}};"),
        ]
        if "64" not in kind:
            double = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}[kind]
            texts.append((double, f"mul.wide.{kind} {{d}}, {{a}}, {{b}};"))
        yield group(f"int_{kind}", f"{kind} {kind}", *texts)
        yield group(
            f"mad_{kind}",
            f"{kind} {kind} {kind}",
            (kind, f"mad.[lo|hi|hi.sat].{kind} {{d}}, {{a}}, {{b}}, {{c}};"),
            (kind, f"sad.{kind} {{d}}, {{a}}, {{b}}, {{c}};"),
            (kind, f"[mul24.lo|mul24.hi].{kind} {{d}}, {{a}}, {{b}};"),
            (kind, f"[mad24.lo|mad24.hi|mad24.hi.sat].{kind} {{d}}, {{a}}, {{b}}, {{c}};"),
        )
    yield group("wide_u32", "u32 u32 u64", ("u64", "mad.wide.u32 {d}, {a}, {b}, {c};"))
    yield group("wide_s32", "s32 s32 s64", ("s64", "mad.wide.s32 {d}, {a}, {b}, {c};"))
    for kind in ("u16x2", "s16x2"):
        yield group(
            f"int_{kind}",
            "b32 b32",
            ("b32", f"[add|min|max|min.relu|max.relu].{kind} {{d}}, {{a}}, {{b}};"),
        )
    yield from carries()


def carries() -> Iterator[Group]:
    """Chains through the condition code; the carry comes back as a second number."""
    for kind in ("u32", "u64"):
        texts = [
            "add.cc.T {d}, {a}, {b}; addc.T {d}, {c}, 0;",
            "sub.cc.T {d}, {a}, {b}; subc.T {d}, {c}, 0;",
            "add.cc.T {d}, {a}, {b}; addc.cc.T {d}, {a}, {c}; addc.T {d}, {d}, 0;",
            "mad.lo.cc.T {d}, {a}, {b}, {c}; madc.hi.T {d}, {a}, {b}, {c};",
            "mad.hi.cc.T {d}, {a}, {b}, {c}; madc.lo.T {d}, {a}, {c}, {b};",
        ]
        typed = [(kind, text.replace("T", kind)) for text in texts]
        yield group(f"carry_{kind}", f"{kind} {kind} {kind}", *typed)


def bits() -> Iterator[Group]:
    """Bit fields, shifts, permutes, logic, dot products."""
    for width in ("32", "64"):
        kind = f"b{width}"
        yield group(
            f"bits_{kind}",
            kind,
            ("b32", f"[popc|clz].b{width} {{d}}, {{a}};"),
            (kind, f"[brev|not|cnot].b{width} {{d}}, {{a}};"),
            ("b32", f"bfind[|.shiftamt].[u|s]{width} {{d}}, {{a}};"),
        )
        yield group(
            f"bfe_{kind}",
            f"{kind} shift shift",
            (kind, f"bfe.[u|s]{width} {{d}}, {{a}}, {{b}}, {{c}};"),
        )
        yield group(
            f"shift_{kind}",
            f"{kind} shift",
            (kind, f"shl.b{width} {{d}}, {{a}}, {{b}};"),
            (kind, f"shr.[u|s|b]{width} {{d}}, {{a}}, {{b}};"),
        )
        yield group(
            f"logic_{kind}", f"{kind} {kind}", (kind, f"[and|or|xor].b{width} {{d}}, {{a}}, {{b}};")
        )
    yield group("shift_b16", "b16 shift", ("b16", "[shl.b16|shr.u16|shr.s16] {d}, {a}, {b};"))
    yield group(
        "logic_b16",
        "b16 b16",
        ("b16", "[and|or|xor].b16 {d}, {a}, {b};"),
        ("b16", "[not|cnot].b16 {d}, {a};"),
    )
    for width in ("32", "64"):
        kind = f"b{width}"
        insert = f"bfi.b{width} {{d}}, {{a}}, {{b}}, {{c}}, k;"
        text = f"{{{{ .reg .b32 k; and.b32 k, {{c}}, 63; {insert} }}}}"
        yield group(f"bfi_{kind}", f"{kind} {kind} shift", (kind, text))
    luts = "|".join(
        str(lut) for lut in (0x00, 0x17, 0x1B, 0x3C, 0x78, 0x80, 0x96, 0xCA, 0xE8, 0xFE)
    )
    yield group("lop3", "b32 b32 b32", ("b32", f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, [{luts}];"))
    yield group("shf", "b32 b32 shift", ("b32", "shf.[l|r].[wrap|clamp].b32 {d}, {a}, {b}, {c};"))
    yield group(
        "prmt",
        "b32 b32 selector",
        ("b32", "prmt.b32[|.f4e|.b4e|.rc8|.ecl|.ecr|.rc16] {d}, {a}, {b}, {c};"),
    )
    yield group(
        "dots",
        "b32 b32 b32",
        ("b32", "dp4a.[u32|s32].[u32|s32] {d}, {a}, {b}, {c};"),
        ("b32", "dp2a.[lo|hi].[u32|s32].[u32|s32] {d}, {a}, {b}, {c};"),
    )
    yield group("bmsk", "shift shift", ("b32", "bmsk.[clamp|wrap].b32 {d}, {a}, {b};"))
    yield group("szext", "b32 shift", ("b32", "szext.[clamp|wrap].[u32|s32] {d}, {a}, {b};"))
    yield group("fns", "b32 lane offset", ("b32", "fns.b32 {d}, {a}, {b}, {c};"))


def video() -> Iterator[Group]:
    """Scalar and SIMD video instructions."""
    texts = []
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        for types, selectors in (
            ("s32.s32.s32", ("", "")),
            ("s32.u32.s32", (".b1", ".h1")),
            ("u32.s32.u32", (".h0", ".b3")),
        ):
            text = f"{name}.{types}[|.sat] {{d}}, {{a}}{selectors[0]}, {{b}}{selectors[1]};"
            texts.append(("b32", text))
        texts += [
            ("b32", f"{name}.s32.s32.u32.{op} {{d}}, {{a}}.b0, {{b}}.h1, {{c}};")
            for op in ("add", "min", "max")
        ]
    for name in ("vshl", "vshr"):
        texts.append(("b32", f"{name}.u32.u32.u32.[clamp|wrap] {{d}}, {{a}}, {{b}}.b0;"))
        texts.append(("b32", f"{name}.s32.s32.u32.sat.clamp {{d}}, {{a}}.h1, {{b}}.b2;"))
    texts.append(
        (
            "b32",
            "vmad.[u32|s32].[u32|s32].[u32|s32][|.sat][|.shr7|.shr15] {d}, {a}.h0, {b}.b1, {c};",
        )
    )
    texts.append(("b32", "vset.[u32|s32].[u32|s32].[eq|ne|lt|le|gt|ge] {d}, {a}.h0, {b}.h1;"))
    yield group("video_scalar", "b32 b32 b32", *texts, count=256)
    names = "[vadd|vsub|vavrg|vabsdiff|vmin|vmax]"
    types = "[s32|u32].[s32|u32].[s32|u32]"
    simd = [
        ("b32", f"{names}[2|4].{types}[|.sat] {{d}}, {{a}}, {{b}}, {{c}};"),
        ("b32", "[vadd4|vabsdiff2].u32.u32.u32.add {d}, {a}, {b}, {c};"),
        ("b32", "[vset2|vset4].[u32.u32|s32.s32].[eq|ne|lt|le|gt|ge] {d}, {a}, {b}, {c};"),
    ]
    yield group("video_simd", "b32 b32 b32", *simd, count=128)


def warps() -> Iterator[Group]:
    """Operations between the lanes of full warps."""
    shuffle = "shfl.sync.[up|down|bfly|idx].b32"
    yield group(
        "shuffle",
        "b32 lane clamp",
        ("b32", f"{shuffle} {{d}}, {{a}}, {{b}}, {{c}}, 0xffffffff;"),
        ("b32", pick(f"{shuffle} {{d}}|q, {{a}}, {{b}}, {{c}}, 0xffffffff;")),
    )
    flag = ".reg .pred r; setp.ne.u32 r, {a}, 0;"
    yield group(
        "vote",
        "flag",
        ("b32", pick(flag + " vote.sync.[all|any|uni].pred q, r, 0xffffffff;")),
        ("b32", f"{{{{ {flag} vote.sync.ballot.b32 {{d}}, r, 0xffffffff; }}}}"),
        ("b32", "activemask.b32 {d};"),
        ("b32", "elect.sync {d}|_, 0xffffffff;"),
        ("b32", pick("elect.sync _|q, 0xffffffff;")),
    )
    yield group(
        "match32",
        "flag",
        ("b32", "match.any.sync.b32 {d}, {a}, 0xffffffff;"),
        ("b32", "match.all.sync.b32 {d}, {a}, 0xffffffff;"),
        ("b32", pick("match.all.sync.b32 {d}|q, {a}, 0xffffffff;")),
    )
    yield group("match64", "s64", ("b32", "match.[any|all].sync.b64 {d}, {a}, 0xffffffff;"))
    yield group(
        "redux_sync",
        "b32",
        ("b32", "redux.sync.[add|min|max].[u32|s32] {d}, {a}, 0xffffffff;"),
        ("b32", "redux.sync.[and|or|xor].b32 {d}, {a}, 0xffffffff;"),
    )


def pick(text: str) -> str:
    """A text that sets the predicate `q`, with `q` as its result."""
    return f"{{{{ .reg .pred q; {text} selp.b32 {{d}}, 1, 0, q; }}}}"


FAMILIES = {
    "probe_cvt": conversions,
    "probe_float": float_arithmetic,
    "probe_approx": approximations,
    "probe_integer": integers,
    "probe_bits": bits,
    "probe_video": video,
    "probe_warp": warps,
}
