"""Float arithmetic and approximations to compare with a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.backend.ptx_executor.numerics import approx, convert, floats
from tests.helpers.numerics_case import MODES, Case, simple_case, widths


def single_precision() -> Iterator[Case]:
    """f32 arithmetic."""
    for ftz in (False, True):
        z = ".ftz" if ftz else ""
        for op in ("add", "sub", "mul"):
            for mode in MODES:
                for sat in (False, True):
                    s = ".sat" if sat else ""
                    yield simple_case(
                        f"{op}.{mode}{z}{s}.f32",
                        "f32",
                        2,
                        lambda a, b, o=op, m=mode, f=ftz, s=sat: getattr(floats, o)(
                            "f32", a, b, rounding=m, ftz=f, sat=s
                        ),
                    )
        for mode in MODES:
            for sat in (False, True):
                s = ".sat" if sat else ""
                yield simple_case(
                    f"fma.{mode}{z}{s}.f32",
                    "f32",
                    3,
                    lambda a, b, c, m=mode, f=ftz, s=sat: floats.fma(
                        "f32", a, b, c, rounding=m, ftz=f, sat=s
                    ),
                )
            yield simple_case(
                f"div.{mode}{z}.f32",
                "f32",
                2,
                lambda a, b, m=mode, f=ftz: floats.div("f32", a, b, rounding=m, ftz=f),
            )
            for op in ("rcp", "sqrt"):
                yield simple_case(
                    f"{op}.{mode}{z}.f32",
                    "f32",
                    1,
                    lambda a, o=op, m=mode, f=ftz: getattr(floats, o)("f32", a, rounding=m, ftz=f),
                )
        for op in ("min", "max"):
            for nan in (False, True):
                for xor in (False, True):
                    n, x = ".NaN" if nan else "", ".xorsign.abs" if xor else ""
                    yield simple_case(
                        f"{op}{z}{n}{x}.f32",
                        "f32",
                        2,
                        lambda a, b, o=op, f=ftz, n=nan, x=xor: getattr(floats, o)(
                            "f32", a, b, ftz=f, nan=n, xorsign_abs=x
                        ),
                    )
        for op in ("abs", "neg"):
            yield simple_case(
                f"{op}{z}.f32", "f32", 1, lambda a, o=op, f=ftz: getattr(floats, o)("f32", a, ftz=f)
            )


def approximations() -> Iterator[Case]:
    """The approximate functions, with the ISA's relative error (absolute for sin and cos)."""
    bounds = {
        "rcp": 2.0**-23,
        "sqrt": 2.0**-22,
        "rsqrt": 2.0**-22,
        "ex2": 2.0**-21,
        "lg2": 2.0**-21,
    }
    for ftz in (False, True):
        z = ".ftz" if ftz else ""
        for op in ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos"):
            kind = "angle" if op in ("sin", "cos") else "f32"
            yield Case(
                f"{op}.approx{z}.f32",
                f"{op}.approx{z}.f32 %d, %a;",
                (kind,),
                32,
                lambda a, o=op, f=ftz: getattr(approx, o)("f32", a, ftz=f),
                bound=bounds.get(op, 2.0**-20),
                result="f32",
            )
        yield Case(
            f"div.approx{z}.f32",
            f"div.approx{z}.f32 %d, %a, %b;",
            ("f32", "f32"),
            32,
            lambda a, b, f=ftz: approx.div("f32", a, b, ftz=f),
            bound=2.0**-21,
            result="f32",
        )
        yield Case(
            f"div.full{z}.f32",
            f"div.full{z}.f32 %d, %a, %b;",
            ("f32", "f32"),
            32,
            lambda a, b, f=ftz: approx.div_full(a, b, ftz=f),
            bound=2.0**-21,
            result="f32",
        )
    yield Case(
        "tanh.approx.f32",
        "tanh.approx.f32 %d, %a;",
        ("f32",),
        32,
        lambda a: approx.tanh("f32", a),
        bound=2.0**-10.5,
        result="f32",
    )
    for t, ex2 in (("f16", "ex2.approx.f16"), ("bf16", "ex2.approx.ftz.bf16")):
        ftz = t == "bf16"
        bound = 2.0**-9 if t == "f16" else 2.0**-6.5
        yield Case(
            ex2,
            f"{ex2} %d, %a;",
            (t,),
            16,
            lambda a, t=t, f=ftz: approx.ex2(t, a, ftz=f),
            bound=bound,
            result=t,
        )
        yield Case(
            f"tanh.approx.{t}",
            f"tanh.approx.{t} %d, %a;",
            (t,),
            16,
            lambda a, t=t: approx.tanh(t, a),
            bound=2.0**-9 if t == "f16" else 2.0**-6.5,
            result=t,
        )
    for op in ("rcp.approx.ftz", "rsqrt.approx.ftz", "rsqrt.approx"):
        name, ftz = op.split(".")[0], op.endswith("ftz")
        yield Case(
            f"{op}.f64",
            f"{op}.f64 %d, %a;",
            ("f64",),
            64,
            lambda a, o=name, f=ftz: getattr(approx, o)("f64", a, ftz=f),
            bound=2.0**-19,
            result="f64",
        )


def double_precision() -> Iterator[Case]:
    """f64 arithmetic."""
    for mode in MODES:
        for op, arity in (
            ("add", 2),
            ("sub", 2),
            ("mul", 2),
            ("fma", 3),
            ("div", 2),
            ("rcp", 1),
            ("sqrt", 1),
        ):
            yield simple_case(
                f"{op}.{mode}.f64",
                "f64",
                arity,
                lambda *xs, o=op, m=mode: getattr(floats, o)("f64", *xs, rounding=m),
            )
    for op in ("min", "max"):
        yield simple_case(f"{op}.f64", "f64", 2, lambda a, b, o=op: getattr(floats, o)("f64", a, b))
    for op in ("abs", "neg"):
        yield simple_case(f"{op}.f64", "f64", 1, lambda a, o=op: getattr(floats, o)("f64", a))


def half_precision() -> Iterator[Case]:
    """f16 and bf16 arithmetic, also packed."""
    for t in ("f16", "f16x2", "bf16", "bf16x2"):
        is_f16 = t.startswith("f16")
        for z in ("", ".ftz") if is_f16 else ("",):
            for s in ("", ".sat") if is_f16 else ("",):
                for op, arity in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
                    rn = ".rn" if op == "fma" or not is_f16 else ""
                    yield simple_case(
                        f"{op}{rn}{z}{s}.{t}",
                        t,
                        arity,
                        lambda *xs, o=op, t=t, f=z != "", s=s != "": getattr(floats, o)(
                            t, *xs, ftz=f, sat=s
                        ),
                    )
            yield simple_case(
                f"fma.rn{z}.relu.{t}",
                t,
                3,
                lambda *xs, t=t, f=z != "": floats.fma(t, *xs, ftz=f, relu=True),
            )
            for op in ("min", "max"):
                for n in ("", ".NaN"):
                    for x in ("", ".xorsign.abs"):
                        yield simple_case(
                            f"{op}{z}{n}{x}.{t}",
                            t,
                            2,
                            lambda a, b, o=op, t=t, f=z != "", n=n != "", x=x != "": getattr(
                                floats, o
                            )(t, a, b, ftz=f, nan=n, xorsign_abs=x),
                        )
        for op in ("abs", "neg"):
            yield simple_case(f"{op}.{t}", t, 1, lambda a, o=op, t=t: getattr(floats, o)(t, a))


def payloads() -> Iterator[Case]:
    """What becomes of NaN payloads and of invalid operations."""
    for op, arity in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3), ("div", 2), ("sqrt", 1)):
        yield Case(
            f"{op}.rn.f64:nan",
            f"{op}.rn.f64 %d, {', '.join('%' + n for n in 'abc'[:arity])};",
            ("nan64",) * arity,
            64,
            lambda *xs, o=op: getattr(floats, o)("f64", *xs),
        )
    for op in ("min", "max"):
        yield Case(
            f"{op}.f64:nan",
            f"{op}.f64 %d, %a, %b;",
            ("nan64", "nan64"),
            64,
            lambda a, b, o=op: getattr(floats, o)("f64", a, b),
        )
    for dt, st in (("f32", "f64"), ("f16", "f64"), ("bf16", "f64")):
        yield Case(
            f"cvt.rn.{dt}.{st}:nan",
            f"cvt.rn.{dt}.{st} %d, %a;",
            ("nan64",),
            widths(dt),
            lambda a, d=dt: convert.cvt(d, "f64", a, rounding="rn"),
        )
    for mode in ("rna", "rn", "rz"):
        yield Case(
            f"cvt.{mode}.tf32.f32:nan",
            f"cvt.{mode}.tf32.f32 %d, %a;",
            ("nan32",),
            32,
            lambda a, m=mode: convert.cvt("tf32", "f32", a, rounding=m),
        )
    yield Case(
        "cvt.f64.f32:nan",
        "cvt.f64.f32 %d, %a;",
        ("nan32",),
        64,
        lambda a: convert.cvt("f64", "f32", a),
    )
    for op in ("sin", "cos", "ex2", "lg2"):
        yield Case(
            f"{op}.approx.f32:nan",
            f"{op}.approx.f32 %d, %a;",
            ("nan32",),
            32,
            lambda a, o=op: getattr(approx, o)("f32", a),
            bound=1.0,
            result="f32",
        )
    yield Case(
        "div.approx.f32:huge",
        "div.approx.f32 %d, %a, %b;",
        ("huge32", "huge32"),
        32,
        lambda a, b: approx.div("f32", a, b),
        bound=2.0**-21,
        result="f32",
    )
    yield Case(
        "div.full.f32:huge",
        "div.full.f32 %d, %a, %b;",
        ("huge32", "huge32"),
        32,
        lambda a, b: approx.div_full(a, b),
        bound=2.0**-21,
        result="f32",
    )
