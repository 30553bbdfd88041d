"""Calls that are replaced by the body of their callee, and calls that stay."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import FlatFunction
from tessera.ir.ptx.print_ptx import print_operand
from tessera.passes.kernel_facts import inline_calls as module_of_calls
from tessera.passes.kernel_facts.inline_calls import call_parts, inline_calls, rename_operand

MODULE = """.version 9.9
.target sm_90a
.address_size 64
.extern .func gone(.param .b32 a);
.func two(.reg .b32 v, .reg .b32 unused) { .reg .b32 %t; add.u32 %t, v, 1; ret; }
.func (.reg .b32 back) twice(.reg .b32 v) {
    .reg .pred %p; setp.eq.u32 %p, v, 0; @%p ret; L: add.u32 back, v, v; @!%p bra L; ret; }
.func (.param .b32 out) held(.param .b32 in) {
    .reg .b32 %t; ld.param.u32 %t, [in]; st.param.b32 [out], %t; }
.func loop() { call loop; }
.func table(.reg .u32 i) {
    P: .callprototype _ (); T: .branchtargets A, B; brx.idx i, T; A: ret; B: trap; }
.func own() { .local .b32 m; .global .b32 g; st.local.u32 [m], 1; st.global.u32 [g], 1; }
.func (.param .b32 out) many(.param .b32 in, .param .b8 more[]) { bar.sync 0; }
.visible .entry k(.param .u64 y)
{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .b64 %d<9>;
    .param .b32 a, b;
    BODY
}
"""


def inlined(body: str, text: str = MODULE) -> FlatFunction:
    module = parse_module(text.replace("BODY", body), "k.ptx")
    return inline_calls(module, module.definitions()["k"])


def lines(flat: FlatFunction) -> list[str]:
    """The instructions, with the labels that stand before them."""
    labels: dict[int, list[str]] = {}
    for label in flat.labels:
        labels.setdefault(label.index, []).append(f"{label.name}:")
    shown = []
    for index, instruction in enumerate(flat.instructions):
        guard = instruction.guard
        head = "" if guard is None else f"@{'!' * guard.negated}{guard.register} "
        operands = ", ".join(map(print_operand, instruction.operands))
        shown += [*labels.get(index, ()), f"{head}{instruction.opcode} {operands}".strip()]
    return shown + labels.get(len(flat.instructions), [])


TWICE = ["setp.eq.u32 %p@1, v@1, 0", "@%p@1 bra @leave@1", "L@1:", "add.u32 back@1, v@1, v@1",
         "@!%p@1 bra L@1", "bra @leave@1"]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "shown"),
    [
        ("call two, (%r1, %r2);",
         ["mov.b32 v@1, %r1", "mov.b32 unused@1, %r2", "add.u32 %t@1, v@1, 1", "bra @leave@1",
          "@leave@1:"]),
        ("call (%r1), twice, (%r2);",
         ["mov.b32 v@1, %r2", *TWICE, "@leave@1:", "mov.b32 %r1, back@1"]),
        ("@%p1 call (%r1), twice, (5);",
         ["@!%p1 bra @leave@1", "@%p1 mov.b32 v@1, 5", *TWICE, "@leave@1:",
          "@%p1 mov.b32 %r1, back@1"]),
        ("@!%p1 call (_), twice, (5);",
         ["@%p1 bra @leave@1", "@!%p1 mov.b32 v@1, 5", *TWICE, "@leave@1:"]),
        ("call (b), held, (a);", ["ld.param.u32 %t@1, [a]", "st.param.b32 [b], %t@1", "@leave@1:"]),
        ("call (%r1), held, (a);",
         ["ld.param.u32 %t@1, [a]", "st.param.b32 [out@1], %t@1", "@leave@1:",
          "ld.param.b32 %r1, [out@1]"]),
        ("@%p1 call (%r1), held, (7);",
         ["@!%p1 bra @leave@1", "st.param.b32 [in@1], 7", "ld.param.u32 %t@1, [in@1]",
          "st.param.b32 [out@1], %t@1", "@leave@1:", "@%p1 ld.param.b32 %r1, [out@1]"]),
        ("call (_), held, (%r2);",
         ["st.param.b32 [in@1], %r2", "ld.param.u32 %t@1, [in@1]", "st.param.b32 [out@1], %t@1",
          "@leave@1:"]),
        ("call own; call own;",
         ["st.local.u32 [m@1], 1", "st.global.u32 [g], 1", "@leave@1:", "st.local.u32 [m@2], 1",
          "st.global.u32 [g], 1", "@leave@2:"]),
        ("call table, (%r1);",
         ["mov.u32 i@1, %r1", "brx.idx i@1, T@1", "A@1:", "bra @leave@1", "B@1:", "trap",
          "@leave@1:"]),
        # Calls that stay: recursive, without a body, of other numbers of arguments or results, or
        # with a variable in two roles.
        ("call loop;", ["call loop", "@leave@1:"]),
        ("call gone, (a);", ["call gone, (a)"]),
        ("call (a), held, (a);", ["call (a), held, (a)"]),
        ("call (b), many, (a);", ["call (b), many, (a)"]),
        ("call many, (a, b);", ["call many, (a, b)"]),
        ("call many, (a);", ["call many, (a)"]),
        (".param .b32 c; call (c), many, (a, b);", ["bar.sync 0", "@leave@1:"]),
        ("call.odd two, (%r1, %r2);", ["call.odd two, (%r1, %r2)"]),
    ],
)  # fmt: skip
def test_a_call_and_what_stands_for_it(call: str, shown: list[str]) -> None:
    assert lines(inlined(call)) == shown


def test_what_an_inlined_body_declares_is_declared() -> None:
    flat = inlined("call (%r1), held, (7); call table, (%r1); call two, (1, 2); call own;")
    assert {"v@3", "unused@3", "%t@3", "i@2", "%r1"} <= {r.name for r in flat.registers}
    names = {variable.name: variable.space for variable in flat.variables}
    spaces = {"in@1": "param", "out@1": "param", "m@4": "local", "g": "global"}
    assert names == spaces | {"a": "param", "b": "param"}
    assert [(t.name, t.targets) for t in flat.targets] == [("T@2", ("A@2", "B@2"))]
    assert [p.name for p in flat.prototypes] == ["P@2"]


@pytest.mark.parametrize(("most", "is_inlined"), [(5, True), (4, False)])
def test_a_body_past_the_limit_stays(
    most: int, is_inlined: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_of_calls, "_MOST_INSTRUCTIONS", most)
    flat = inlined("bar.sync 0; bar.sync 0; bar.sync 0; call own;")
    assert (flat.instructions[3].opcode.name == "st") is is_inlined


def test_calls_more_than_24_deep_stay() -> None:
    chain = "".join(f".func f{n}() {{ call f{n + 1}; }}\n" for n in range(25, -1, -1))
    last = ".func f26() { trap; }\n" + chain
    text = MODULE.replace(".visible", last + ".visible")
    assert lines(inlined("call f3;", text))[0] == "trap"
    assert lines(inlined("call f2;", text))[0] == "call f26"


def test_a_call_of_a_later_version_has_no_parts() -> None:
    call = ptx.Instruction(None, ptx.Opcode("call", ("odd",)), (ptx.Name("f"),), 0)
    assert call_parts(call) == (None, (), ())


A, B = ptx.Name("a"), ptx.Name("b")
ONE = ptx.Integer("1", 1)


@pytest.mark.parametrize(
    ("operand", "renamed"),
    [
        (A, B),
        (ptx.Name("a", "x"), ptx.Name("b", "x")),
        (ptx.Name("c"), ptx.Name("c")),
        (ptx.Not(A), ptx.Not(B)),
        (ptx.Pair(A, ptx.Sink()), ptx.Pair(B, ptx.Sink())),
        (ptx.Vector((A, ONE)), ptx.Vector((B, ONE))),
        (ptx.Group((A, ONE)), ptx.Group((B, ONE))),
        (ptx.Address((A, ptx.Offset(A, ONE))), ptx.Address((B, ptx.Offset(B, ONE)))),
        (ptx.Subscript("a", ONE), ptx.Subscript("b", ONE)),
        (ptx.Subscript("c", A), ptx.Subscript("c", B)),
        (ptx.Subscript("a", ptx.Offset(A, ONE)), ptx.Subscript("b", ptx.Offset(B, ONE))),
        (ptx.Binary("+", A, ONE), ptx.Binary("+", B, ONE)),
        (ptx.Unary("-", A), ptx.Unary("-", B)),
        (ONE, ONE),
    ],
)
def test_names_in_an_operand(operand: ptx.Operand, renamed: ptx.Operand) -> None:
    assert rename_operand(operand, {"a": "b"}) == renamed
    assert rename_operand(operand, {}) == operand
