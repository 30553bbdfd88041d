"""Scopes, vectors and counted registers become unique names."""

from __future__ import annotations

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.flatten import LabelIndex, Register, flatten
from tessera.ir.ptx.syntax import (
    Block,
    Function,
    Guard,
    Instruction,
    LabelStatement,
    Name,
    Opcode,
    Variable,
)


def reg(name: str, kind: str = "b32", count: int | None = None, vector: int | None = None):
    return Variable(space="reg", type=kind, name=name, count=count, vector=vector)


def mov(*names: str, guard: str | None = None) -> Instruction:
    return Instruction(
        None if guard is None else Guard(guard),
        Opcode("mov", ("b32",)),
        tuple(Name(n) for n in names),
    )


def body(*statements: ptx.Statement) -> Function:
    return Function(is_entry=True, name="k", body=statements)


def test_nested_scopes_get_their_own_names():
    flat = flatten(
        body(
            reg("%r", count=4),
            mov("%r1", "%r2"),
            Block((reg("%r", "f32", count=2), mov("%r1", "%r3"))),
            Block((reg("%r1"), mov("%r1", "%r2"))),
        )
    )
    assert flat.instructions[1].operands == (Name("%r1#2"), Name("%r3"))
    names = [i.operands[0].name for i in flat.instructions]
    assert len(set(names)) == 3
    assert Register("%r1#2", "f32") in flat.registers


def test_plain_name_declared_before_a_counted_prefix_does_not_clash():
    flat = flatten(
        body(
            Block((reg("%a5"), mov("%a5", "%a5"))),
            Block((reg("%a", "b64", count=9), mov("%a5", "%a5"))),
        )
    )
    first, second = (i.operands[0].name for i in flat.instructions)
    assert first != second
    assert {r.type for r in flat.registers} == {"b32", "b64"}


def test_a_counted_name_beyond_its_count_is_not_declared():
    flat = flatten(body(reg("%r", count=4), mov("%r3", "%r4")))
    assert [r.name for r in flat.registers] == ["%r3"]


def test_leading_zeros_in_a_counted_name_mean_nothing():
    flat = flatten(body(reg("%r", count=4), mov("%r3", "%r1", guard="%r01")))
    assert sorted(r.name for r in flat.registers) == ["%r1", "%r3"]


def test_prefix_that_ends_in_digits():
    flat = flatten(body(reg("%r1", count=4), mov("%r10", "%r13"), mov("%r14", "%r1")))
    assert [r.name for r in flat.registers] == ["%r10", "%r13"]


def test_labels_are_scoped_and_stand_before_instructions():
    flat = flatten(
        body(
            LabelStatement("L"),
            mov("a", "b"),
            Block((mov("L", "L"), LabelStatement("L"))),
            LabelStatement("end"),
        )
    )
    assert flat.labels == (LabelIndex("L", 0), LabelIndex("L#2", 2), LabelIndex("end", 2))
    assert flat.instructions[1].operands == (Name("L#2"), Name("L#2"))


def test_vector_registers_become_their_elements():
    select = Instruction(None, Opcode("mov"), (Name("%v", "y"), Name("%v")))
    flat = flatten(body(reg("%v", "f32", vector=2), select))
    assert flat.instructions[0].operands == (
        Name("%v.y"),
        ptx.Vector((Name("%v.x"), Name("%v.y"))),
    )
    assert [r.name for r in flat.registers] == ["%v.x", "%v.y"]


def test_addresses_guards_and_groups_are_renamed():
    load = Instruction(
        Guard("p", negated=True),
        Opcode("ld"),
        (Name("%r1"), ptx.Address((ptx.Offset(Name("%r2"), ptx.Integer("4", 4)),))),
    )
    call = Instruction(None, Opcode("call"), (ptx.Group((Name("x"),)), Name("f")))
    flat = flatten(
        body(
            reg("%r", count=4),
            Block(
                (
                    reg("p", "pred"),
                    reg("%r", count=4),
                    Variable(space="param", type="b32", name="x"),
                    load,
                    call,
                )
            ),
            Block((Variable(space="param", type="b32", name="x"), call)),
        )
    )
    assert flat.instructions[0].operands[1] == ptx.Address(
        (ptx.Offset(Name("%r2#2"), ptx.Integer("4", 4)),)
    )
    assert [i.operands[0] for i in flat.instructions[1:]] == [
        ptx.Group((Name("x"),)),
        ptx.Group((Name("x#3"),)),
    ]
    assert [v.name for v in flat.variables] == ["x", "x#3"]
