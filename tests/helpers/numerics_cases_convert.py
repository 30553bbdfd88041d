"""Conversions to compare with a GPU."""

from __future__ import annotations

from collections.abc import Iterator

from tessera.backend.ptx_executor.numerics import convert
from tests.helpers.numerics_case import MODES, Case, widths


def conversions() -> Iterator[Case]:
    """cvt between scalars and packs."""
    integers = ("s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64")
    for st in ("f16", "bf16", "f32", "f64"):
        # bf16 has no conversions with bytes.
        partners = integers[2:] if st == "bf16" else integers
        for dt in partners:
            for mode in ("rni", "rzi", "rmi", "rpi"):
                yield _convert(dt, st, mode)
        for mode in MODES:
            for it in partners:
                yield _convert(st, it, mode)
    for dt in integers:
        for st in integers:
            yield _convert(dt, st, None)
            if not _contains(dt, st):
                yield _convert(dt, st, None, sat=True)
    for dt, st in (
        ("f16", "f32"),
        ("bf16", "f32"),
        ("f32", "f64"),
        ("f16", "f64"),
        ("bf16", "f64"),
    ):
        for mode in MODES:
            yield _convert(dt, st, mode)
    for dt, st in (("f32", "f16"), ("f32", "bf16"), ("f64", "f16"), ("f64", "f32")):
        yield _convert(dt, st, None)
    for t in ("f16", "f32", "f64"):
        for mode in ("rni", "rzi", "rmi", "rpi"):
            yield _convert(t, t, mode)
    for dt, st, mode in (
        ("f32", "f32", "rni"),
        ("f16", "f32", "rn"),
        ("s32", "f32", "rzi"),
        ("f64", "f32", None),
    ):
        yield _convert(dt, st, mode, ftz=True)
    yield _convert("f32", "f16", None, sat=True)
    yield _convert("f16", "f32", "rn", sat=True)
    yield from _packs()


def _contains(dt: str, st: str) -> bool:
    """Whether every value of integer type `st` is one of `dt`; `.sat` is then not allowed."""
    wider = int(dt[1:]) - int(st[1:])
    return wider >= 0 if dt[0] == st[0] else dt[0] == "s" and wider > 0


def _convert(dt: str, st: str, mode: str | None, *, sat: bool = False, ftz: bool = False) -> Case:
    name = ".".join(x for x in ("cvt", mode, ftz and "ftz", sat and "sat", dt, st) if x)
    return Case(
        name,
        f"{name} %d, %a;",
        (st,),
        widths(dt),
        lambda a: convert.cvt(dt, st, a, rounding=mode, sat=sat, ftz=ftz),
    )


def _packs() -> Iterator[Case]:
    for dt in ("f16x2", "bf16x2"):
        for mode in ("rn", "rz"):
            for relu in (False, True):
                r = ".relu" if relu else ""
                yield Case(
                    f"cvt.{mode}{r}.{dt}.f32",
                    f"cvt.{mode}{r}.{dt}.f32 %d, %a, %b;",
                    ("f32", "f32"),
                    32,
                    lambda a, b, d=dt, m=mode, r=relu: convert.cvt(
                        d, "f32", a, b=b, rounding=m, relu=r
                    ),
                )
    for dt in ("e4m3x2", "e5m2x2"):
        for relu in (False, True):
            r = ".relu" if relu else ""
            op = f"cvt.rn.satfinite{r}.{dt}"
            yield Case(
                f"{op}.f32",
                f"{op}.f32 %d, %a, %b;",
                ("small", "small"),
                16,
                lambda a, b, d=dt, r=relu: convert.cvt(d, "f32", a, b=b, satfinite=True, relu=r),
            )
            yield Case(
                f"{op}.f16x2",
                f"{op}.f16x2 %d, %a;",
                ("f16x2",),
                16,
                lambda a, d=dt, r=relu: convert.cvt(d, "f16x2", a, satfinite=True, relu=r),
            )
            op = f"cvt.rn{r}.f16x2.{dt}"
            yield Case(
                op,
                f"{op} %d, %a;",
                ("u16",),
                32,
                lambda a, d=dt, r=relu: convert.cvt("f16x2", d, a, relu=r),
            )
    for mode in ("rna", "rn", "rz", "rn.relu", "rz.relu"):
        op = f"cvt.{mode}.tf32.f32"
        yield Case(
            op,
            f"{op} %d, %a;",
            ("f32",),
            32,
            lambda a, m=mode: convert.cvt(
                "tf32", "f32", a, rounding=m.split(".")[0], relu="relu" in m
            ),
        )
    for dt in ("u16", "s16"):
        yield Case(
            f"cvt.pack.sat.{dt}.s32",
            f"cvt.pack.sat.{dt}.s32 %d, %a, %b;",
            ("s32", "s32"),
            32,
            lambda a, b, d=dt: convert.cvt_pack(d, "s32", a, b),
        )
    for dt in ("u8", "s8", "u4", "s4", "u2", "s2"):
        op = f"cvt.pack.sat.{dt}.s32.b32"
        yield Case(
            op,
            f"{op} %d, %a, %b, %c;",
            ("tiny", "tiny", "s32"),
            32,
            lambda a, b, c, d=dt: convert.cvt_pack(d, "s32", a, b, c),
        )
