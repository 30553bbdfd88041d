"""Integer, bit and video instructions to compare with a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.backend.ptx_executor.numerics import bitwise, compare, integer, video
from tests.helpers.numerics_case import Case, simple_case, widths


def integers() -> Iterator[Case]:
    """Integer arithmetic and bits."""
    for t in ("s16", "u16", "s32", "u32", "s64", "u64"):
        yield simple_case(f"div.{t}", t, 2, lambda a, b, t=t: integer.div(t, a, b))
        yield simple_case(f"rem.{t}", t, 2, lambda a, b, t=t: integer.rem(t, a, b))
        yield simple_case(f"mul.hi.{t}", t, 2, lambda a, b, t=t: integer.mul(t, a, b, "hi"))
        yield simple_case(f"sad.{t}", t, 3, lambda a, b, c, t=t: integer.sad(t, a, b, c))
        yield simple_case(f"min.{t}", t, 2, lambda a, b, t=t: integer.min(t, a, b))
        yield Case(
            f"shr.{t}",
            f"shr.{t} %d, %a, %b;",
            (t, "shift"),
            widths(t),
            lambda a, b, t=t: bitwise.shr(t, a, b),
        )
    for t in ("s16", "s32", "s64"):
        yield simple_case(f"abs.{t}", t, 1, lambda a, t=t: integer.abs(t, a))
    for t in ("s32", "u32"):
        yield simple_case(f"mul24.hi.{t}", t, 2, lambda a, b, t=t: integer.mul24(t, a, b, "hi"))
        yield simple_case(f"mul24.lo.{t}", t, 2, lambda a, b, t=t: integer.mul24(t, a, b, "lo"))
        for bt in ("s32", "u32"):
            op = f"dp4a.{t}.{bt}"
            yield Case(
                op,
                f"{op} %d, %a, %b, %c;",
                ("u32",) * 3,
                32,
                lambda a, b, c, t=t, u=bt: integer.dp4a(t, u, a, b, c),
            )
            for half in ("lo", "hi"):
                op = f"dp2a.{half}.{t}.{bt}"
                yield Case(
                    op,
                    f"{op} %d, %a, %b, %c;",
                    ("u32",) * 3,
                    32,
                    lambda a, b, c, t=t, u=bt, h=half: integer.dp2a(t, u, h, a, b, c),
                )
        for mode in ("clamp", "wrap"):
            op = f"szext.{mode}.{t}"
            yield Case(
                op,
                f"{op} %d, %a, %b;",
                ("u32", "shift"),
                32,
                lambda a, b, t=t, m=mode: bitwise.szext(t, m, a, b),
            )
    yield simple_case(
        "mad.hi.sat.s32", "s32", 3, lambda a, b, c: integer.mad("s32", a, b, c, "hi", sat=True)
    )
    yield simple_case("add.sat.s32", "s32", 2, lambda a, b: integer.add("s32", a, b, sat=True))
    yield simple_case("sub.sat.s32", "s32", 2, lambda a, b: integer.sub("s32", a, b, sat=True))
    for t in ("u16x2", "s16x2"):
        yield simple_case(f"add.{t}", t, 2, lambda a, b, t=t: integer.add(t, a, b))
        yield simple_case(f"min.{t}", t, 2, lambda a, b, t=t: integer.min(t, a, b))
    yield simple_case(
        "max.relu.s16x2", "s16x2", 2, lambda a, b: integer.max("s16x2", a, b, relu=True)
    )
    for t in ("u32", "s32", "u64", "s64"):
        yield Case(
            f"bfe.{t}",
            f"bfe.{t} %d, %a, %b, %c;",
            (t, "field", "field"),
            widths(t),
            lambda a, b, c, t=t: bitwise.bfe(t, a, b, c),
        )
        for s in ("", ".shiftamt"):
            yield Case(
                f"bfind{s}.{t}",
                f"bfind{s}.{t} %d, %a;",
                (t,),
                32,
                lambda a, t=t, s=s: bitwise.bfind(t, a, shiftamt=s != ""),
            )
    yield Case(
        "bfi.b32",
        "bfi.b32 %d, %a, %c, %b, 5;",
        ("u32", "field", "u32"),
        32,
        lambda a, b, c: bitwise.bfi("b32", a, c, b, 5),
    )
    for mode in ("clamp", "wrap"):
        yield Case(
            f"bmsk.{mode}.b32",
            f"bmsk.{mode}.b32 %d, %a, %b;",
            ("shift", "shift"),
            32,
            lambda a, b, m=mode: bitwise.bmsk(m, a, b),
        )
        for way in ("l", "r"):
            op = f"shf.{way}.{mode}.b32"
            yield Case(
                op,
                f"{op} %d, %a, %b, %c;",
                ("u32", "u32", "shift"),
                32,
                lambda a, b, c, w=way, m=mode: bitwise.shf(w, m, a, b, c),
            )
    yield Case("fns.b32", "fns.b32 %d, %a, %b, %c;", ("u32", "lane", "offset"), 32, bitwise.fns)
    for mode in (None, "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"):
        op = "prmt.b32" + (f".{mode}" if mode else "")
        yield Case(
            op,
            f"{op} %d, %a, %b, %c;",
            ("u32",) * 3,
            32,
            lambda a, b, c, m=mode: bitwise.prmt(a, b, c, m),
        )
    yield Case(
        "slct.u32.f32",
        "slct.u32.f32 %d, %a, %b, %c;",
        ("u32", "u32", "f32"),
        32,
        lambda a, b, c: compare.slct("u32", "f32", a, b, c),
    )
    yield Case(
        "set.gtu.f32.f32",
        "set.gtu.f32.f32 %d, %a, %b;",
        ("f32", "f32"),
        32,
        lambda a, b: compare.set_result("f32", compare.compare("gtu", "f32", a, b)),
    )


def video_instructions() -> Iterator[Case]:
    """A sample of the video instructions."""
    for op in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        text = f"{op}.s32.u32.s32.sat %d, %a.b1, %b.h1;"
        yield Case(
            f"{op}.s32.u32.s32.sat",
            text,
            ("u32", "u32"),
            32,
            lambda a, b, o=op: video.scalar(
                o, "s32", "u32", "s32", a, b, asel="b1", bsel="h1", sat=True
            ),
        )
        text = f"{op}.s32.s32.u32.sat %d.b2, %a.b1, %b.h1, %c;"
        yield Case(
            f"{op}.merge",
            text,
            ("u32",) * 3,
            32,
            lambda a, b, c, o=op: video.scalar(
                o, "s32", "s32", "u32", a, b, asel="b1", bsel="h1", sat=True, dsel="b2", c=c
            ),
        )
        text = f"{op}.u32.u32.u32.max %d, %a, %b, %c;"
        yield Case(
            f"{op}.max",
            text,
            ("u32",) * 3,
            32,
            lambda a, b, c, o=op: video.scalar(o, "u32", "u32", "u32", a, b, op2="max", c=c),
        )
        for lanes, mask in ((2, ""), (4, "")):
            for dt in ("s32", "u32"):
                text = f"{op}{lanes}.{dt}.{dt}.{dt}.sat %d{mask}, %a, %b, %c;"
                yield Case(
                    f"{op}{lanes}.{dt}.sat",
                    text,
                    ("u32",) * 3,
                    32,
                    lambda a, b, c, o=op, n=lanes, d=dt: video.simd(
                        o, d, d, d, a, b, c, lanes=n, sat=True
                    ),
                )
                text = f"{op}{lanes}.{dt}.{dt}.{dt}.add %d, %a, %b, %c;"
                yield Case(
                    f"{op}{lanes}.{dt}.add",
                    text,
                    ("u32",) * 3,
                    32,
                    lambda a, b, c, o=op, n=lanes, d=dt: video.simd(
                        o, d, d, d, a, b, c, lanes=n, add=True
                    ),
                )
    for lanes in (2, 4):
        for dt in ("s32", "u32"):
            yield Case(
                f"vavrg{lanes}.{dt}",
                f"vavrg{lanes}.{dt}.{dt}.{dt} %d, %a, %b, %c;",
                ("u32",) * 3,
                32,
                lambda a, b, c, n=lanes, d=dt: video.simd("vavrg", d, d, d, a, b, c, lanes=n),
            )
            yield Case(
                f"vset{lanes}.{dt}",
                f"vset{lanes}.{dt}.{dt}.lt %d, %a, %b, %c;",
                ("u32",) * 3,
                32,
                lambda a, b, c, n=lanes, d=dt: video.simd("lt", "u32", d, d, a, b, c, lanes=n),
            )
    for way in ("vshl", "vshr"):
        for mode in ("clamp", "wrap"):
            for at in ("u32", "s32"):
                text = f"{way}.{at}.{at}.u32.{mode} %d, %a, %b;"
                yield Case(
                    f"{way}.{at}.{mode}",
                    text,
                    ("u32", "shift"),
                    32,
                    lambda a, b, w=way, m=mode, t=at: video.scalar(w, t, t, "u32", a, b, mode=m),
                )
    for scale in (None, "shr7", "shr15"):
        for sat in (False, True):
            s = (".sat" if sat else "") + (f".{scale}" if scale else "")
            yield Case(
                f"vmad.s32.s32.u32{s}",
                f"vmad.s32.s32.u32{s} %d, %a.h0, %b.h1, %c;",
                ("u32",) * 3,
                32,
                lambda a, b, c, k=scale, s=sat: video.vmad(
                    "s32", "s32", "u32", a, b, c, asel="h0", bsel="h1", scale=k, sat=s
                ),
            )
    yield Case(
        "vset.s32.u32.lt",
        "vset.s32.u32.lt %d, %a.b0, %b.b3;",
        ("u32", "u32"),
        32,
        lambda a, b: video.scalar("lt", "u32", "s32", "u32", a, b, asel="b0", bsel="b3"),
    )
