"""Certificates of regions: the checker accepts what is true and refuses what is not."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.frontend.trace.read_trace import parse_trace
from tests.certificates import instructions, trial
from tests.certificates.checker import check
from tests.certificates.ptx_reader import Instruction, Launch, Refused, read_kernel

HERE = Path(__file__).parent
CHECKER = ("checker.py", "instructions.py", "ptx_reader.py")
QUICK = ("mlp.ptx", "recurrent_steps_prefill.ptx")
TRACES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in sorted(path.name for path in trial.TRACES.glob("*.ptx"))
]


def test_the_checker_is_small_and_shares_nothing() -> None:
    assert sum(len((HERE / name).read_text().splitlines()) for name in CHECKER) <= 800
    for name in CHECKER:
        for node in ast.walk(ast.parse((HERE / name).read_text())):
            if isinstance(node, ast.ImportFrom):
                assert node.module in {f"tests.certificates.{n[:-3]}" for n in CHECKER} | {
                    "__future__", "collections.abc", "dataclasses", "typing", "numpy.typing",
                }  # fmt: skip
            elif isinstance(node, ast.Import):
                assert {alias.name for alias in node.names} <= {"re", "numpy"}


@pytest.mark.parametrize("name", TRACES)
def test_all_launches_of_the_family_are_accepted(name: str) -> None:
    proofs = trial.prove(trial.TRACES / name)
    assert not proofs.refused
    assert len(proofs.made) + proofs.outside.total() == len(proofs.launches)
    assert proofs.made


@pytest.mark.parametrize(
    ("names", "count"),
    [(QUICK[:1], 60), pytest.param(None, 2000, marks=pytest.mark.slow)],
)
def test_corrupted_certificates_are_refused(names: tuple[str, ...] | None, count: int) -> None:
    paths = (
        sorted(trial.TRACES.glob("*.ptx")) if names is None else [trial.TRACES / n for n in names]
    )
    sources = [trial.trials(trial.prove(path), Random(path.name)) for path in paths]
    found: Counter[str] = Counter()
    for source in itertools.cycle(sources):
        tried = next(source)
        if not tried.is_true:
            assert tried.refused is not None, tried
            assert "not understood" not in tried.refused
            found[tried.kind] += 1
        if found.total() == count:
            break
    assert len(found) > 10


# --- rules of the checker ----------------------------------------------------------------------

NESTED = """
.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n)
{
    .reg .pred %p<4>;
    .reg .b32 %r<9>;
    .reg .b64 %d<9>;
    ld.param.u64 %d1, [x];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, 0;
    cvta.to.global.u64 %d2, %d1;
    mul.wide.u32 %d3, %r2, 4;
    add.s64 %d2, %d2, %d3;
OUTER:
    mov.u32 %r4, 0;
    mov.u64 %d4, %d2;
INNER:
    BODY
    add.s64 %d4, %d4, 64;
    add.s32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, %r1;
    @%p1 bra INNER;
    add.s64 %d2, %d2, 1024;
    add.s32 %r3, %r3, 1;
    setp.lt.u32 %p2, %r3, 2;
    @%p2 bra OUTER;
    ret;
}
"""


def _form(at: int, *terms: list[Any], buffer: str | None = None) -> dict[str, Any]:
    return {"at": at, "terms": list(terms), **({"buffer": buffer} if buffer else {})}


def _outer(name: str) -> list[Any]:
    return [1024 if name[1] == "d" else 1, "OUTER", 1, 64]


def _certificate() -> dict[str, Any]:
    thread, inner = [4, "tid.x", 1, 64], [64, "INNER", 1, 64]
    place = _form(0, thread, _outer("%d2"), buffer="x")
    return {
        "ranges": {"ctaid.x": 1, "ctaid.y": 1, "ctaid.z": 1, "tid.x": 4, "tid.y": 1, "tid.z": 1},
        "loops": {
            "OUTER": {
                "trips": _form(2),
                "registers": {"%r3": _form(0, _outer("%r3")), "%d2": place},
            },
            "INNER": {
                "trips": _form(3),
                "registers": {
                    "%r4": _form(0, [1, "INNER", 1, 64]),
                    "%d4": _form(0, thread, _outer("%d2"), inner, buffer="x"),
                },
            },
        },
        "accesses": [
            {"buffer": "x", "kind": "write", "must": True, "region": [[0, 16, 64, 3]]},
            {"buffer": "x", "kind": "write", "must": True, "region": [[1024, 16, 64, 3]]},
        ],
    }


def _check(body: str = "st.global.u32 [%d4], %r4;", **changed: Any) -> None:
    launch = Launch(NESTED.replace("BODY", body), "k", (1, 1, 1), (4, 1, 1), ("x+0", "u32:3"))
    check({"x": 4096}, launch, {**_certificate(), **changed})


def test_loops_in_loops_are_proved() -> None:
    _check()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("add.s64 %d4, %d4, 4;", "`%d4` in the next round"),
        ("ld.global.u64 %d5, [%d4]; st.global.u32 [%d5], 1;", "an address that is not known"),
        ("ld.shared.u32 %r5, [%r4]; setp.eq.u32 %p3, %r5, 0; @%p3 bra OUTER;", "a branch on what"),
        ("setp.eq.u32 %p3, %r8, 0; @%p3 st.global.u32 [%d4], 1;", "an access without a place"),
        ("setp.eq.u32 %p3, %r4, 1; @%p3 bra OUTER;", "a trip count"),
        ("st.global.u32 [%d4+4096], %r4;", "bytes outside of a buffer"),
        ("st.global.v2.u32 [%d4], {%r4, %r4};", "bytes written outside of the region"),
        ("ld.global.u8 %r5, [%d4]; st.global.u32 [%d4], %r4;", "bytes read outside of the region"),
        ("red.global.add.u32 [%d4], %r4;", "a must-write"),
        ("st.global.u16 [%d4], %r4;", "a must-write"),
        ("@%p3 add.s64 %d4, %d4, 0; st.global.u32 [%d4], %r4;", "an address that is not known"),
        ("st.u32 [%r4], %r4;", "an address in no buffer"),
        ("prefetch.global.L2 [%d4];", "`prefetch`"),
        ("call f;", "`call`"),
        ("trap;", "`trap`"),
    ],
)
def test_other_bodies_are_refused(body: str, why: str) -> None:
    with pytest.raises(Refused, match=why):
        _check(body)


def test_circles_with_several_entries_are_refused() -> None:
    text = NESTED.replace("BODY", "").replace("cvta.to", "@%p3 bra INNER; cvta.to")
    with pytest.raises(Refused, match="a circle with several entries"):
        read_kernel(text, "k")


def test_loops_need_claims() -> None:
    loops = _certificate()["loops"]
    with pytest.raises(Refused, match="a loop without a claim"):
        _check(loops={"OUTER": loops["OUTER"]})
    del loops["INNER"]["registers"]["%d4"]
    with pytest.raises(Refused, match="an address that is not known"):
        _check(loops=loops)


# --- instructions ------------------------------------------------------------------------------

FORMS = [
    *(f"{name}.{kind}{width}"
      for name in ("add", "sub", "mul.lo", "min", "max", "div", "rem", "shr")
      for kind in "us" for width in (16, 32, 64)),
    *(f"{name}.b{width}" for name in ("and", "or", "xor", "shl", "not") for width in (16, 32, 64)),
    *(f"mul.{part}.{kind}" for part in ("wide", "hi") for kind in ("u16", "s16", "u32", "s32")),
    *(f"neg.s{width}" for width in (16, 32, 64)),
    *(f"{name}.{kind}32" for name in ("bfe", "mad.lo", "mad.hi", "mad.wide") for kind in "us"),
    "bfe.u64", "bfe.s64", "mad.lo.s64", "mad.wide.u16",
    *(f"cvt.{to}.{of}" for to in ("u16", "s16", "u32", "s32", "u64", "s64")
      for of in ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64") if to != of),
    *(f"setp.{how}.{kind}" for how in ("eq", "lt", "ge") for kind in ("u16", "s32", "u64", "s64")),
]  # fmt: skip
EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64, 65, 2**15 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31,
         2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]  # fmt: skip


def _widths(form: str) -> tuple[int, list[int]]:
    """The width of the result and of the operands, in registers."""
    name, *parts = form.split(".")
    width = max(int(parts[-1][1:]), 16)
    if name == "setp":
        return 1, [width, width]
    if name == "cvt":
        return int(parts[0][1:]), [width]
    wide = 2 * width if "wide" in parts else width
    if name in ("not", "neg"):
        return width, [width]
    if name in ("shl", "shr"):
        return width, [width, 32]
    if name == "bfe":
        return width, [width, 32, 32]
    return wide, [width, width, wide] if name == "mad" else [width, width]


def _kernel(form: str) -> str:
    result, given = _widths(form)
    lines = []
    for place, width in enumerate(given):
        lines.append(f"ld.global.u64 %d{place}, [%a+{8 * place}];")
        lines.append(f"cvt.u{width}.u64 %w{place}, %d{place};" if width < 64
                     else f"mov.b64 %w{place}, %d{place};")  # fmt: skip
    operands = ", ".join(f"%w{place}" for place in range(len(given)))
    lines.append(f"{form} %out, {operands};")
    last = {1: "selp.b64 %d9, 1, 0, %out;", 64: "mov.b64 %d9, %out;"}
    lines.append(last.get(result, f"cvt.u64.u{result} %d9, %out;"))
    declared = "".join(f".reg .b{w} %w{i};" for i, w in enumerate(given))
    kind = ".pred" if result == 1 else f".b{result}"
    return f"""
.visible .entry {form.replace(".", "_")}(.param .u64 in, .param .u64 result)
{{
    .reg .b32 %t; .reg .b64 %a; .reg .b64 %b; .reg .b64 %d<10>; {declared} .reg {kind} %out;
    ld.param.u64 %a, [in];
    ld.param.u64 %b, [result];
    mov.u32 %t, %tid.x;
    mad.wide.u32 %a, %t, 24, %a;
    mad.wide.u32 %b, %t, 8, %b;
    {" ".join(lines)}
    st.global.u64 [%b], %d9;
    ret;
}}"""


def test_instructions_agree_with_the_executor() -> None:
    random = Random(44)
    count = 64
    drawn = np.array(
        [
            [random.choice(EDGES) if random.random() < 0.7 else random.getrandbits(64)]
            for _ in range(3 * count)
        ],
        np.uint64,
    ).reshape(count, 3)
    head = ".version 8.0\n.target sm_80\n.address_size 64\n"
    bodies = "".join(map(_kernel, FORMS))
    records = f"//! tessera.trace 1\n//! buffer in bytes={drawn.nbytes} role=input\n"
    for place in range(len(FORMS)):
        records += f"//! buffer r{place} bytes={8 * count} role=output\n"
    launches = "".join(
        f"//! launch m0.{form.replace('.', '_')} grid=1,1,1 block={count},1,1 args=[in, r{place}]\n"
        for place, form in enumerate(FORMS)
    )
    text = f"{records}//! module m0\n{head}{bodies}\n{launches}"
    given = {"in": np.frombuffer(drawn.tobytes(), np.uint8)}
    done = run_program(parse_trace(text, "k.ptx"), given).buffers
    for place, form in enumerate(FORMS):
        result, widths = _widths(form)
        code = [i for b in read_kernel(text, form.replace(".", "_")).blocks for i in b.code]
        (made,) = (i for i in code if i.operands[:1] == ("%out",))
        values = [
            instructions.Value(None, instructions.low(drawn[None, :, i], width))
            for i, width in enumerate(widths)
        ]
        wanted = np.frombuffer(np.asarray(done[f"r{place}"]).tobytes(), np.uint64)
        # Division by zero, and of or by the least number, have no value.
        lanes = np.array([_is_known(made, values, lane) for lane in range(count)])
        assert lanes.all() or form.startswith(("div", "rem")), form
        own = [instructions.Value(None, value.bits[:, lanes]) for value in values]
        found = instructions.computed(made, own, np.ones((1, 1), np.bool_))
        assert found is not None
        assert lanes.any()
        assert (instructions.low(found.bits, max(result, 16))[0] == wanted[lanes]).all(), form


def _is_known(made: Instruction, values: list[instructions.Value], lane: int) -> bool:
    if made.opcode not in ("div", "rem"):
        return True
    own = [instructions.Value(None, value.bits[:, lane : lane + 1]) for value in values]
    return instructions.computed(made, own, np.ones((1, 1), np.bool_)) is not None
