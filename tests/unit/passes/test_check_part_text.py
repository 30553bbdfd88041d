"""The judge of kernels of parts, on a few lines of PTX: what may differ, and what may not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.text.readfile import source_of_text
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.checker.part_text import (
    Values,
    _FunctionComparison,
    _values,
    check_part_kernels,
    cluster_of,
    mentioned_names,
)
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.divided_plans import launch, program_of
from tests.helpers.traces import trace
from tests.unit.passes.test_check_parts import BYTES, HALVES, STEPS

HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n"
OTHERS = """
.func row() { mov.u32 %a, %ctaid.y; ret; }
.func all() { call row, (); ret; }
.func same() { mov.u32 %a, %tid.x; ret; }
.func alike() { call same, (); ret; }
.func any() { call %f, (), proto; ret; }
.func more() { call any, (); ret; }
.func any();
.extern .func elsewhere();
.func outside() { call elsewhere, (); ret; }
.alias other_row, row;
.alias other_same, same;
"""
CALLED = (
    OTHERS
    + """
.func row__of() { .reg .v4 .u32 %tessera_ctaid; mov.v4.u32 %tessera_ctaid, %ctaid;
    add.u32 %tessera_ctaid.x, %tessera_ctaid.x, 2; mov.u32 %a, %tessera_ctaid.y; ret; }
.func all__of() { call row__of, (); ret; }
.func all__wrong() { call row, (); ret; }
.func any__of() { call %f, (), proto; ret; }
"""
)
VALUES: Values = {"%ctaid": ("x", "add", 2), "%nctaid": ("x", "mov", 8)}
OWN = {
    "%ctaid": ".reg .v4 .u32 %tessera_ctaid; mov.v4.u32 %tessera_ctaid, %ctaid; "
    "add.u32 %tessera_ctaid.x, %tessera_ctaid.x, 2; ",
    "%nctaid": ".reg .v4 .u32 %tessera_nctaid; mov.v4.u32 %tessera_nctaid, %nctaid; "
    "mov.u32 %tessera_nctaid.x, 8; ",
}
CTAID = OWN["%ctaid"]


def module(kernel: str, others: str = "") -> ptx.Module:
    """Code that is read, and not verified: registers need not be declared."""
    return parse_source(source_of_text(f"{HEAD}{others}\n{kernel}", "k.ptx"))


def entry(body: str, name: str = "k", head: str = "") -> str:
    return f".visible .entry {name}({head})\n{{ {body} ret; }}"


def differs(old: str, new: str, values: Values = VALUES) -> str:
    """Why the body of a kernel is not another one; empty if it is."""
    first, second = module(entry(old), OTHERS), module(entry(new, "k2"), CALLED)
    return str(_FunctionComparison(first, second, values).functions("k", "k2"))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("mov.u32 %a, %b;", "mov.u32 %a, %b;", ""),
        ("mov.u32 %a, %b;", "mov.u32 %a, %c;", "`%c` instead of `%b`"),
        ("mov.u32 %a, %b.x;", "mov.u32 %a, %b.y;", "`%b` instead of `%b`"),
        ("mov.u32 %a, %b;", "mov.u32 %a, 1;", "another kind of statement"),
        ("mov.u32 %a, 1;", "mov.u32 %a, %b;", "another kind of statement"),
        ("mov.u32 %a, 1;", "mov.u32 %a, 2;", "instead of"),
        ("mov.f32 %a, 0f00000000;", "mov.f32 %a, 0f80000000;", "instead of"),
        ("mov.u32 %a, 1;", "mov.u32 %a, 1; mov.u32 %a, 1;", "more or fewer statements"),
        ("mov.u32 %a, 1; mov.u32 %b, 1;", "mov.u32 %a, 1;", "more or fewer statements"),
        ("mov.u32 %a, 1; ret;", "ret; mov.u32 %a, 1;", "`ret` instead of `mov.u32`"),
        ("add.u32 %a, %b, 1;", "sub.u32 %a, %b, 1;", "`sub.u32` instead of `add.u32`"),
        ("add.u32 %a, %b, 1;", "add.s32 %a, %b, 1;", "`add.s32` instead of `add.u32`"),
        ("@%p mov.u32 %a, 1;", "mov.u32 %a, 1;", "`mov.u32` instead of `mov.u32`"),
        ("@%p mov.u32 %a, 1;", "@!%p mov.u32 %a, 1;", "`mov.u32` instead of `mov.u32`"),
        ("@%p mov.u32 %a, 1;", "@%q mov.u32 %a, 1;", "`mov.u32` instead of `mov.u32`"),
        ("ld.u32 %a, [%b];", "ld.u32 %a, [%b+4];", "another kind of statement"),
        ("ld.u32 %a, [%b+8];", "ld.u32 %a, [%b+4];", "instead of"),
        ("ld.u32 %a, [%b];", "ld.u32 %a, [%c];", "`%c` instead of `%b`"),
        ("mov.v2.u32 {%a, %b}, %c;", "mov.v2.u32 {%a, _}, %c;", "another kind of statement"),
        ("mov.v2.u32 {%a, %b}, %c;", "mov.v2.u32 {%b, %a}, %c;", "`%b` instead of `%a`"),
        ("mov.u32 %a, %b;", "bar.sync 0;", "`bar.sync` instead of `mov.u32`"),
        ("A: mov.u32 %a, 1;", "B: mov.u32 %a, 1;", "`B` instead of `A`"),
        ("A: mov.u32 %a, 1;", "mov.u32 %a, 1; A:", "another kind of statement"),
        (".reg .u32 %a;", ".reg .s32 %a;", "instead of"),
        (".reg .u32 %a;", ".reg .u32 %b;", "instead of"),
        (".reg .u32 %a;", "mov.u32 %a, 1;", "another kind of statement"),
        ("{ mov.u32 %a, 1; }", "{ mov.u32 %a, 1; }", ""),
        ("{ mov.u32 %a, 1; }", "{ mov.u32 %a, %b; }", "another kind of statement"),
        ("{ mov.u32 %a, 1; }", "{ .loc 1 1 1 mov.u32 %a, 1; }", ""),
        (".loc 1 2 3 mov.u32 %a, 1;", "mov.u32 %a, 1;", ""),
        ("mov.u32 %a, 1;", ".loc 1 2 3 mov.u32 %a, 1;", ""),
        ('.pragma "nounroll";', '.pragma "nounroll";', ""),
        ('.pragma "nounroll";', '.pragma "other";', "`other` instead of `nounroll`"),
        # Lists of targets: their names, their number, and what each of them is.
        ("L: .branchtargets A, B;", "L: .branchtargets A, B;", ""),
        ("L: .branchtargets A, B;", "M: .branchtargets A, B;", "other targets"),
        ("L: .branchtargets A, B;", "L: .branchtargets A;", "other targets"),
        ("L: .branchtargets A;", "L: .branchtargets A, B;", "other targets"),
        ("L: .branchtargets A, B;", "L: .branchtargets B, A;", "other targets"),
        ("L: .branchtargets A, B;", "L: .calltargets A, B;", "other targets"),
        ("L: .calltargets same;", "L: .calltargets same;", ""),
        ("L: .calltargets all;", "L: .calltargets all;", "other targets"),
        ("L: .calltargets all;", "L: .calltargets all__of;", ""),
        ("L: .calltargets all;", "L: .calltargets all__wrong;", "`row` instead of `row` in"),
        ("L: .branchtargets A;", "mov.u32 %a, 1;", "another kind of statement"),
        # Numbers of CTAs: only through registers of their own, and then everywhere.
        ("mov.u32 %a, %ctaid.x;", "mov.u32 %a, %ctaid.x;", "`%ctaid` instead of `%ctaid`"),
        ("mov.u32 %a, %ctaid.y;", f"{CTAID}mov.u32 %a, %tessera_ctaid.y;", ""),
        ("mov.u32 %a, %ctaid.y;", f"{CTAID}mov.u32 %a, %tessera_ctaid.x;", "`%tessera_ctaid` ins"),
        ("mov.u32 %a, %ctaid.y;", f"{CTAID}mov.u32 %a, %ctaid.y;", "`%ctaid` instead of `%ctaid`"),
        ("mov.u32 %a, %nctaid.y;", f"{CTAID}mov.u32 %a, %tessera_ctaid.y;", "`%tessera_ctaid` in"),
        ("mov.u32 %a, %tid.y;", f"{CTAID}mov.u32 %a, %tessera_ctaid.y;", "`%tessera_ctaid` instea"),
        (
            "mov.u32 %a, %nctaid.x; mov.u32 %a, %ctaid.x;",
            f"{CTAID}{OWN['%nctaid']}mov.u32 %a, %tessera_nctaid.x; mov.u32 %a, %tessera_ctaid.x;",
            "",
        ),
        ("mov.u32 %a, %clusterid.x;", "mov.u32 %a, %clusterid.x;", "`%clusterid` instead of"),
        ("mov.u32 %a, %cluster_ctaid.x;", "mov.u32 %a, %cluster_ctaid.x;", ""),
        # Halves of them.
        ("mov.u16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", ""),
        ("mov.s16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", ""),
        ("mov.b16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", ""),
        ("mov.u16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.x;", "`%tessera_ctaid`"),
        ("not.b16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", "`cvt.u16.u32` ins"),
        ("mov.u32 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", "`cvt.u16.u32` ins"),
        ("mov.u16 %a, %ctaid.y;", f"{CTAID}cvt.s16.u32 %a, %tessera_ctaid.y;", "`cvt.s16.u32` ins"),
        ("mov.u16 %a, %ctaid.y;", f"{CTAID}cvt.u16.s32 %a, %tessera_ctaid.y;", "`cvt.u16.s32` ins"),
        ("mov.u16 %a, %b;", "cvt.u16.u32 %a, %b;", "`cvt.u16.u32` instead of `mov.u16`"),
        ("mov.u16 %a, 1;", "cvt.u16.u32 %a, 1;", "`cvt.u16.u32` instead of `mov.u16`"),
        ("mov.v2.u16 %a, %ctaid.y;", f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;", "`cvt.u16.u32`"),
        (
            "mov.u16.x %a, %ctaid.y;",
            f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y;",
            "`cvt.u16.u32` instead of `mov.u16.x`",
        ),
        ("mov.u16 %a, %b, %c;", "cvt.u16.u32 %a, %b, %c;", "`cvt.u16.u32` instead of `mov.u16`"),
        (
            "mov.u16 %a, %ctaid.y, %c;",
            f"{CTAID}cvt.u16.u32 %a, %tessera_ctaid.y, %c;",
            "`cvt.u16.u32` instead of `mov.u16`",
        ),
        ("@%p mov.u16 %a, %ctaid.y;", f"{CTAID}@%p cvt.u16.u32 %a, %tessera_ctaid.y;", ""),
        ("@%p mov.u16 %a, %ctaid.y;", f"{CTAID}@%q cvt.u16.u32 %a, %tessera_ctaid.y;", "`cvt"),
        # Functions that read them are copied, and what calls those; no others need be.
        ("call row, ();", "call row, ();", "`row` instead of `row`"),
        ("call row, ();", "call row__of, ();", ""),
        ("call all, ();", "call all, ();", "`all` instead of `all`"),
        ("call all, ();", "call all__of, ();", ""),
        ("call all, ();", "call all__wrong, ();", "`row` instead of `row` in `all__wrong`"),
        ("call all, ();", "call row__of, ();", "`mov.u32` instead of `call` in `row__of`"),
        ("call other_row, ();", "call other_row, ();", "a function that only a register or"),
        ("mov.u64 %a, other_row;", "mov.u64 %a, other_row;", "`other_row` instead of `other_row`"),
        ("mov.u64 %a, other_same;", "mov.u64 %a, other_same;", ""),
        ("mov.u64 %a, row;", "mov.u64 %a, row;", "`row` instead of `row`"),
        ("mov.u64 %a, row;", "mov.u64 %a, row__of;", ""),
        ("call same, ();", "call same, ();", ""),
        ("call alike, ();", "call alike, ();", ""),
        ("call same, ();", "call row, ();", "`%ctaid` instead"),
        ("call same, ();", "call alike, ();", "`call` instead of `mov.u32` in `alike`"),
        ("call same, ();", "call none, ();", "`none` instead of `same`"),
        ("call none, ();", "call none, ();", "a function that only a register or a variable"),
        ("mov.u64 %a, none;", "mov.u64 %a, same;", "`same` instead of `none`"),
        ("mov.u64 %a, same;", "mov.u64 %a, none;", "`none` instead of `same`"),
        # What is called through a register may be any function, and names may be hidden.
        ("call %f, (), proto;", "call %f, (), proto;", "a function that only a register or"),
        ("call (%a), %f, ();", "call (%a), %f, ();", "a function that only a register or"),
        (".global .u64 t = row;", ".global .u64 t = row__of;", "instead of"),
        ("call any, ();", "call any, ();", "`any` instead of `any`"),
        ("call outside, ();", "call outside, ();", ""),
        ("call more, ();", "call more, ();", "`more` instead of `more`"),
        ("call any, ();", "call any__of, ();", "a function that only a register or a variable"),
        (".reg .u32 row;", ".reg .u32 row;", "a function that only a register or"),
        ("row: ret;", "row: ret;", "a function that only a register or a variable"),
        ("{ .reg .u32 same; }", "{ .reg .u32 same; }", "a function that only a register or"),
        # Registers of parts are new.
        (".reg .u32 %tessera_a;", ".reg .u32 %tessera_a;", "registers of parts in the kernel"),
        ("mov.u32 %a, %tessera_a;", "mov.u32 %a, %tessera_a;", "registers of parts in the kernel"),
    ],
)
def test_bodies(old: str, new: str, reason: str) -> None:
    found = differs(old, new)
    assert found.startswith(reason) or (reason == "instead of" and reason in found)
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(
    "head",
    [
        CTAID.replace(", 2;", ", 3;"),
        CTAID.replace(", 2;", ", 0x2;"),
        CTAID.replace("add.u32 %tessera_ctaid.x", "add.u32 %tessera_ctaid.y"),
        CTAID.replace("%tessera_ctaid.x, 2", "%tessera_ctaid.y, 2"),
        CTAID.replace("add.u32", "add.s32"),
        CTAID.replace("add.u32", "@%p add.u32"),
        CTAID.replace("add.u32 %tessera_ctaid.x, ", "mov.u32 "),
        CTAID.replace(".v4 .u32", ".v4 .b32"),
        CTAID.replace(".v4 .u32", ".v2 .u32"),
        CTAID.replace(".v4 .u32", ".u32"),
        CTAID.replace("mov.v4.u32", "mov.v2.u32"),
        CTAID.replace("mov.v4.u32", "@%p mov.v4.u32"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_nctaid, %ctaid"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_ctaid.x, %ctaid"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_ctaid, %ctaid.x"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_ctaid, %nctaid"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_ctaid, %tid"),
        CTAID.replace("%tessera_ctaid, %ctaid", "%tessera_ctaid, 1"),
        CTAID.replace("tessera", "other"),
        CTAID + CTAID,
        CTAID + OWN["%nctaid"].replace("tessera_nctaid", "tessera_ctaid"),
        "mov.u32 %a, 1; " + CTAID,
        "mov.u32 %tessera_a, 1; " + CTAID,
        "bar.sync 0; bar.sync 0; ",
        CTAID + ".reg .u32 %tessera_more; ",
        CTAID + OWN["%nctaid"].replace(", 8;", ", 2;"),
        CTAID + OWN["%nctaid"].replace("mov.u32 ", "add.u32 %tessera_nctaid.x, "),
    ],
)
def test_beginnings_that_are_not_those_of_a_part(head: str) -> None:
    read = "mov.u32 %a, %ctaid.z;"
    name = "%other_ctaid" if "other" in head else "%tessera_ctaid"
    assert differs(read, f"{head}mov.u32 %a, {name}.z;")
    assert differs("", head)


def test_a_body_that_is_nothing_but_a_beginning() -> None:
    def compared(old: str, new: str) -> str:
        first, second = (module(f".visible .entry k() {{ {body} }}") for body in (old, new))
        return str(_FunctionComparison(first, second, VALUES).functions("k", "k"))

    assert compared("", CTAID) == ""
    assert compared("", CTAID + OWN["%nctaid"]) == ""
    assert compared("", CTAID.rpartition("add")[0]) == "more or fewer statements in `k`"
    assert compared("ret;", CTAID) == "more or fewer statements in `k`"


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("mov.u32 %a, %ctaid.x;", "mov.u32 %a, %ctaid.x;", ""),
        ("mov.u32 %a, %ctaid.x;", "mov.u32 %a, %nctaid.x;", "`%nctaid` instead of `%ctaid`"),
        ("mov.u32 %a, %ctaid.x;", f"{CTAID}mov.u32 %a, %tessera_ctaid.x;", "more or fewer"),
        ("call row, ();", "call row, ();", ""),
        ("call row, ();", "call all, ();", "`call` instead of `mov.u32` in `all`"),
    ],
)
def test_a_whole_launch_counts_its_ctas_itself(old: str, new: str, reason: str) -> None:
    assert differs(old, new, {}).startswith(reason)
    assert bool(differs(old, new, {})) == bool(reason)


def test_calls_through_registers_where_no_function_counts_ctas() -> None:
    plain = ".func same() { ret; }"
    first, second = (module(entry("call %f, (), p;", name), plain) for name in ("k", "k2"))
    assert _FunctionComparison(first, second, VALUES).functions("k", "k2") == ""


def test_the_only_alias_of_a_function_that_counts_ctas() -> None:
    others = ".func row() { mov.u32 %a, %ctaid.y; ret; }\n.alias other, row;"
    first, second = (module(entry("mov.u64 %a, other;", name), others) for name in ("k", "k2"))
    found = _FunctionComparison(first, second, VALUES).functions("k", "k2")
    assert str(found) == "`other` instead of `other` in `k2`"


def test_a_function_that_only_a_table_names_is_no_part_of_a_copy() -> None:
    """`g` calls `row` by a table, and no copy of it counts CTAs from those of its part."""
    text = """
    .func (.reg .u32 %o) row() { mov.u32 %o, ROW; ret; }
    .global .u64 table[1] = { row };
    .func (.reg .u32 %o) g()
    {
        .reg .u64 %f;
        P: .callprototype (.reg .u32 _) _ ();
        ld.global.u64 %f, [table];
        call (%o), %f, (), P;
        ret;
    }
    .visible .entry k(.param .u64 to)
    {
        .reg .b32 %at, %v;
        .reg .b64 %to, %b;
        ld.param.u64 %to, [to];
        mov.u32 %at, %ctaid.x;
        mul.wide.u32 %b, %at, 4;
        add.u64 %to, %to, %b;
        call (%v), g, ();
        st.global.u32 [%to], %v;
        ret;
    }
    """
    for read, wanted in (("%ctaid.x", "`g` instead of `g` in `k__x"), ("%tid.x", "")):
        program = trace(
            "buffer y bytes=32 role=output",
            text.strip().replace("ROW", read) + "\n",
            "launch m.k grid=8,1,1 block=1,1,1 args=[y]",
        )
        divided = divide(program, HALVES)
        found = said(with_part_kernels(divided), divided)
        assert len(found) == (2 if wanted else 0)
        assert all(wanted in one for one in found)


def test_functions_are_compared_with_their_heads() -> None:
    def compared(old: str, new: str) -> str:
        return str(_FunctionComparison(module(old), module(new), {}).functions("k", "k2"))

    own = entry("", "k", ".param .u32 n")
    assert compared(own, own.replace("k(", "k2(")) == ""
    for other in (
        own.replace("u32", "u64"),
        own.replace(".visible", ""),
        own.replace(".entry", ".func"),
        own.replace("n)", "n) .maxntid 32"),
        own.replace("n)", "m)"),
    ):
        assert compared(own, other.replace("k(", "k2(")) == "another head in `k2`"
    assert compared(own, own) == "no code in `k2`"
    assert compared(own.replace("k(", "q("), own.replace("k(", "k2(")) == "no code in `k2`"
    declared = ".visible .entry k2(.param .u32 n);"
    assert compared(own, declared) == "no code in `k2`"


def test_functions_that_call_each_other_are_compared_once() -> None:
    twice = ".func f() { call g, (); ret; }\n.func g() { call f, (); ret; }"
    again = twice.replace("f", "F").replace("g", "G").replace(".Func", ".func")
    first, second = module(entry("call f, ();"), twice), module(entry("call F, ();"), again)
    assert _FunctionComparison(first, second, {}).functions("k", "k") == ""


@pytest.mark.parametrize(
    ("kernel", "names"),
    [
        ("same", {"%a", "%tid", "mov", "ret"}),
        ("alike", {"%a", "%tid", "mov", "ret", "call", "same"}),
        ("all", {"%a", "%ctaid", "mov", "ret", "call", "row"}),
        ("other_row", {"%a", "%ctaid", "mov", "ret"}),
        ("none", set()),
    ],
)
def test_names_of_a_kernel_and_of_what_it_calls(kernel: str, names: set[str]) -> None:
    assert mentioned_names(module("", OTHERS), kernel) == names


def test_every_kind_of_name() -> None:
    body = "@%p ld.u32 %a, [%b+4]; L: .calltargets same; mov.v2.u32 {%c, _}, %d.x; { not %e, %f; }"
    found = mentioned_names(module(entry(body)), "k")
    assert found == {"%p", "%a", "%b", "%c", "%d", "%e", "%f", "same", "ld", "mov", "not", "ret"}
    round_about = ".func f() { call g, (); ret; }\n.func g() { call f, (); ret; }"
    assert mentioned_names(module("", round_about), "f") == {"f", "g", "call", "ret"}


# --- clusters and ranges ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("directive", "given", "size"),
    [
        ("", None, (1, 1, 1)),
        ("", (2, 3, 4), (2, 3, 4)),
        (".maxntid 32", None, (1, 1, 1)),
        (".reqnctapercluster 3", None, (3, 1, 1)),
        (".reqnctapercluster 3, 2", None, (3, 2, 1)),
        (".reqnctapercluster 3, 2, 4", None, (3, 2, 4)),
        (".reqnctapercluster 3, 2, 4", (1, 2, 1), (1, 2, 1)),
        (".reqnctapercluster 0, 2", None, (1, 2, 1)),
        (".reqnctapercluster WARP_SZ", None, None),
        (".reqnctapercluster 2, WARP_SZ", None, None),
        (".reqnctapercluster 2, 0, 0", None, (2, 1, 1)),
        (".explicitcluster", None, None),
        (".explicitcluster", (1, 2, 1), (1, 2, 1)),
        (".explicitcluster .reqnctapercluster 2", None, (2, 1, 1)),
    ],
)
def test_sizes_of_clusters(directive: str, given: ir.Triple | None, size: ir.Triple | None) -> None:
    code = module(f".visible .entry k() {directive} {{ ret; }}")
    (own,) = program_of(launch("plain", "y", "x")).work()
    assert isinstance(own, ir.Launch)
    assert cluster_of(replace(own, kernel="k", cluster=given), code) == size
    assert cluster_of(replace(own, kernel="none", cluster=given), code) == given


@pytest.mark.parametrize(
    ("axis", "first", "extent", "size", "ids"),
    [
        (0, 2, 8, None, (2, 8)),
        (0, 2, 8, (1, 1, 1), (2, 8)),
        (0, 2, 8, (2, 1, 1), (1, 4)),
        (0, 3, 8, (2, 1, 1), None),
        (0, 2, 7, (2, 1, 1), None),
        (0, 0, 6, (2, 1, 1), (0, 3)),
        (1, 2, 8, (4, 2, 1), (1, 4)),
        (2, 3, 8, (1, 2, 1), (3, 8)),
        (2, 2, 8, (1, 1, 4), None),
    ],
)
def test_values_of_special_registers(
    axis: int, first: int, extent: int, size: ir.Triple | None, ids: tuple[int, int] | None
) -> None:
    letter = "xyz"[axis]
    wanted = {"%ctaid": (letter, "add", first), "%nctaid": (letter, "mov", extent)}
    if ids is not None:
        wanted |= {"%clusterid": (letter, "add", ids[0]), "%nclusterid": (letter, "mov", ids[1])}
    assert _values(ir.CtaRange(axis, first, extent), size) == wanted
    assert _values(None, size) == {}


# --- programs --------------------------------------------------------------------------------

PROGRAM = program_of(*STEPS)
DIVIDED = divide(PROGRAM, HALVES)
MADE = with_part_kernels(DIVIDED)
(MODULE,) = MADE.modules
(VARIANT,) = MODULE.variants


def said(made: ir.Program, divided: ir.Program = DIVIDED) -> list[str]:
    return [f"{one.code} {one.headline}" for one in check_part_kernels(divided, made)]


def with_code(code: ptx.Module, **fields: object) -> ir.Program:
    variant = replace(VARIANT, ptx=code, **fields)  # type: ignore[arg-type]
    return replace(MADE, modules=(replace(MODULE, variants=(variant,)),))


def test_kernels_of_parts() -> None:
    assert said(MADE) == []
    whole = divide(PROGRAM, BYTES)
    assert said(with_part_kernels(whole), whole) == []
    assert said(replace(MADE, modules=(replace(MODULE),))) == []


CODE = VARIANT.ptx
ITEMS = CODE.items
NEW = ITEMS[-1]
assert isinstance(NEW, ptx.Function)
CHANGED = "TSR4018 module `m` has other code: "


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (replace(CODE, version=(8, 4)), "another target, or items are missing"),
        (replace(CODE, target=("sm_90",)), "another target, or items are missing"),
        (replace(CODE, address_size=32), "another target, or items are missing"),
        (replace(CODE, items=ITEMS[:3]), "another target, or items are missing"),
        (replace(CODE, items=(ITEMS[1], ITEMS[0], *ITEMS[2:])), "`plain` has changed"),
        (
            replace(CODE, items=(*ITEMS, ptx.Pragma(("x",)))),
            "it has more than new functions",
        ),
        (replace(CODE, items=(*ITEMS, NEW)), "two functions have one name"),
        (replace(CODE, items=(*ITEMS, replace(ITEMS[0]))), "two functions have one name"),
        (replace(CODE, items=(ptx.Pragma(("x",)), *ITEMS[1:])), "another kind of statement"),
        (
            replace(CODE, items=(replace(ITEMS[0], body=ITEMS[1].body), *ITEMS[1:])),
            "more or fewer statements",
        ),
        (replace(CODE, items=(replace(ITEMS[0], body=None), *ITEMS[1:])), "`plain` has changed"),
        (
            replace(CODE, items=(replace(ITEMS[0], linkage=None), *ITEMS[1:])),
            "`plain` has changed",
        ),
    ],
)
def test_modules_that_are_not_those_of_the_program(code: ptx.Module, reason: str) -> None:
    assert said(with_code(code)) == [CHANGED + reason]


def test_more_kernels_and_the_declaration_of_one_are_no_harm() -> None:
    more = replace(NEW, name="more"), replace(NEW, name="plain", body=None)
    assert said(with_code(replace(CODE, items=(*ITEMS, *more)))) == []


def test_debug_sections_are_left_out() -> None:
    (whole,) = DIVIDED.modules
    (variant,) = whole.variants
    code = replace(variant.ptx, items=(ptx.Section("text"), *variant.ptx.items))
    own = replace(whole, variants=(replace(variant, ptx=code),))
    divided = replace(DIVIDED, modules=(own,))
    assert said(MADE, divided) == []
    # As many items as before, one of them new, are too few.
    short = replace(CODE, items=ITEMS[: len(variant.ptx.items) - 1])
    assert said(with_code(short), divided) == [CHANGED + "another target, or items are missing"]


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        (lambda made: replace(made, buffers=()), "the program of kernels of parts has other"),
        (lambda made: replace(made, resident="x"), "the program of kernels of parts has other"),
        (
            lambda made: replace(made, steps=made.steps[:-1]),
            "the program of kernels of parts has other buffers or steps",
        ),
        (lambda made: replace(made, modules=made.modules * 2), "there are more modules, or fewer"),
        (lambda made: replace(made, modules=()), "there are more modules, or fewer"),
        (
            lambda made: replace(made, modules=(replace(MODULE, name="n"),)),
            "module `m` has other code: another name or other variants",
        ),
        (
            lambda made: replace(made, modules=(replace(MODULE, id=ir.ModuleId(1)),)),
            "module `m` has other code: another name or other variants",
        ),
        (
            lambda made: replace(made, modules=(replace(MODULE, variants=()),)),
            "module `m` has other code: another name or other variants",
        ),
        (lambda made: with_code(CODE, arch="sm_90"), "module `m` has other code: another target"),
    ],
)
def test_programs_that_are_others(change: Callable[[ir.Program], ir.Program], wanted: str) -> None:
    (found,) = said(change(MADE))
    assert found.startswith(f"TSR4018 {wanted}")


def stepped(number: int, **fields: object) -> ir.Program:
    steps = [
        replace(step, **fields) if at == number else step  # type: ignore[arg-type]
        for at, step in enumerate(MADE.steps)
    ]
    return replace(MADE, steps=tuple(steps))


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (stepped(0, stream="9"), "it is another step"),
        (stepped(4, bytes=512), "it is another step"),
        (stepped(1, kernel="plain"), "`plain` for `sm_80`: `%ctaid` instead of `%ctaid` in"),
        (stepped(2, kernel=MADE.steps[1].kernel), "for `sm_80`: "),  # type: ignore[union-attr]
        (stepped(6, kernel="before"), "`before` for `sm_80`: "),
        (stepped(6, grid=(4, 1, 1)), "`plain` is launched in another way than `plain`"),
        (stepped(1, grid=(4, 1, 1)), "is launched in another way than `plain`"),
        (stepped(1, id=ir.LaunchId(7)), "is launched in another way than `plain`"),
        (replace(MADE, steps=(MADE.steps[1], *MADE.steps[1:])), "it is another step"),
        (replace(MADE, steps=(*MADE.steps[:6], MADE.steps[0])), "it is another step"),
    ],
)
def test_steps_that_are_not_their_parts(made: ir.Program, reason: str) -> None:
    (found,) = said(made)
    assert found.startswith("TSR4018 a step is not the part that it stands for: ")
    assert reason in found
    assert said(stepped(0)) == []
    assert said(stepped(6)) == []


def test_a_part_that_is_still_one() -> None:
    """Backends do not know parts: a launch of three CTAs of eight would do the first three."""
    wanted = "a step is not the part that it stands for: `plain` is launched in another way"
    found = said(DIVIDED)
    assert len(found) == 2
    assert all(one.startswith(f"TSR4018 {wanted}") for one in found)


def test_what_is_the_very_same_is_not_compared() -> None:
    """It may have what no copy may: sections, and calls through registers."""
    (own,) = PROGRAM.modules
    (variant,) = own.variants
    called = module(entry("call %f, (), p;", "q"), OTHERS).items
    items = (ptx.Section("text"), *variant.ptx.items, *called)
    code = replace(variant, ptx=replace(variant.ptx, items=items))
    step = replace(PROGRAM.steps[1], kernel="q")  # type: ignore[call-arg]
    program = replace(PROGRAM, modules=(replace(own, variants=(code,)),), steps=(step,))
    assert said(program, program) == []
    other = replace(program, steps=(replace(step),))
    assert "a function that only a register" in said(other, program)[0]


def test_a_part_in_the_code_of_one_architecture() -> None:
    variant = ir.LaunchVariant(arch="sm_80", grid=(3, 1, 1), ctas=ir.CtaRange(0, 0, 8))
    step = replace(PROGRAM.steps[1], variants=(variant,))  # type: ignore[call-arg]
    program = replace(PROGRAM, steps=(step,))
    (found,) = said(program, program)
    assert "`plain` is launched in another way than `plain`" in found


def test_functions_of_the_module_call_what_they_called() -> None:
    """A launch that has no parts runs the kernel as it was, with all that this one calls."""
    (own,) = DIVIDED.modules
    (variant,) = own.variants
    functions = ".func f() { mov.u32 %a, 1; ret; }\n.func g() { mov.u32 %a, 2; ret; }\n"
    first, second = (
        module(f".visible .entry q() {{ call {name}, (); ret; }}", functions) for name in "fg"
    )

    def program(code: ptx.Module) -> ir.Program:
        changed = replace(own, variants=(replace(variant, ptx=code),))
        return replace(DIVIDED, modules=(changed,), steps=(DIVIDED.steps[0],))

    assert said(program(first), program(first)) == []
    assert said(program(second), program(first)) == [CHANGED + "`g` instead of `f`"]
