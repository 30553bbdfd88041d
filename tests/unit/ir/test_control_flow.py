"""Blocks, dominators, loops and the order of blocks, also against brute force."""

from __future__ import annotations

import random

import pytest

from tessera.ir.ptx.control_flow import EXIT, ControlFlow, build_control_flow
from tessera.ir.ptx.flatten import flatten
from tessera.ir.ptx.syntax import (
    Function,
    Guard,
    Instruction,
    LabelStatement,
    Name,
    Opcode,
    TargetList,
)
from tests.helpers.share import share


def build(text: str, leaders: tuple[int, ...] = ()) -> ControlFlow:
    """`L: ... ` labels, `x` an instruction, `?L` a guarded branch, `!L` a plain one, `r` ret."""
    statements = []
    for word in text.split():
        if word.endswith(":"):
            statements.append(LabelStatement(word[:-1]))
        elif word[0] in "?!":
            guard = Guard("%p") if word[0] == "?" else None
            statements.append(Instruction(guard, Opcode("bra"), (Name(word[1:]),)))
        elif word[0] == "*":
            statements.append(TargetList("t", "branchtargets", tuple(word[1:].split(","))))
            operands = (Name("%r"), Name("t"))
            statements.append(Instruction(None, Opcode("brx", ("idx",)), operands))
        else:
            guard = Guard("%p") if word == "?r" else None
            statements.append(Instruction(guard, Opcode("ret" if word == "r" else "add"), ()))
    return build_control_flow(
        flatten(Function(is_entry=True, name="k", body=tuple(statements))), leaders
    )


def test_diamond():
    flow = build("x ?E x !J E: x J: x r")
    assert [b.successors for b in flow.blocks] == [(2, 1), (3,), (3,), ()]
    assert flow.dominators == (None, 0, 0, 0)
    assert flow.post_dominators == (3, 3, 3, EXIT)
    assert not flow.tangled
    assert flow.loops == ()


def test_loop_blocks_come_before_what_follows():
    flow = build("x H: ?B x ?X !L B: x L: x !H X: x r")
    loop = flow.loops[0]
    places = {block: i for i, block in enumerate(flow.order)}
    last_inside = max(places[b] for b in loop.blocks)
    assert all(places[target] > last_inside for _, target in loop.exits)


def test_nested_loops_have_parents():
    flow = build("A: x B: x ?B x ?A r")
    assert [loop.parent for loop in flow.loops] == [None, 0]
    assert flow.loops[0].header == 0
    assert flow.loops[1].latches == (1,)


def test_irreducible():
    assert build("?B A: x ?X B: x !A X: r").tangled == {1, 2}
    # A loop inside of it is part of it; what it leads to is not.
    assert build("?B A: x ?A ?X B: x !A X: x Y: x ?Y r").tangled == {1, 2, 3}


def test_what_follows_a_circle_comes_after_all_of_it():
    flow = build("x ?T S: x ?X U: x ?X x ?T x ?X x !S T: x ?X !U X: x r")
    places = {block: i for i, block in enumerate(flow.order)}
    (last,) = (block.index for block in flow.blocks if not block.successors)
    assert len(flow.tangled) > 4
    assert all(places[last] > places[block] for block in flow.tangled)


def test_endless_loop_has_no_post_dominator():
    flow = build("x A: x !A")
    assert flow.post_dominators == (None, None)


def test_unreachable_block_is_kept_out_of_the_order():
    flow = build("x r x r")
    assert flow.order == (0,)
    assert [b.reachable for b in flow.blocks] == [True, False]


def test_table_branch_and_label_at_end():
    flow = build("x *A,B,A,E A: x B: x E:")
    assert flow.blocks[0].successors == (1, 2)
    assert flow.post_dominators[0] == EXIT


def test_empty_function_and_extra_leaders():
    assert len(build("").blocks) == 1
    assert [b.start for b in build("x x x r", (2,)).blocks] == [0, 2]


def random_flow(seed: int) -> ControlFlow:
    random_source = random.Random(seed)
    count = random_source.randint(2, 8)
    words = []
    for i in range(count):
        words.append(f"L{i}:")
        words.append("x")
        kind = random_source.random()
        if kind < 0.7:
            words.append(("?" if kind < 0.5 else "!") + f"L{random_source.randrange(count)}")
        elif kind < 0.8:
            words.append("r")
    return build(" ".join([*words, "r"]))


def reaches(flow: ControlFlow, without: int, start: int = 0) -> set[int]:
    seen, pending = set(), [start]
    while pending:
        node = pending.pop()
        if node in seen or node == without:
            continue
        seen.add(node)
        pending.extend(flow.blocks[node].successors)
    return seen


@pytest.mark.parametrize("seed", share(range(200)))
def test_dominators_against_brute_force(seed: int):
    flow = random_flow(seed)
    reachable = reaches(flow, -2)
    assert set(flow.order) == reachable
    for above in reachable:
        cut = reaches(flow, above)
        for below in reachable:
            assert flow.dominates(above, below) == (below not in cut)


def check_circles(flow: ControlFlow) -> None:
    """That what follows a circle with several entries comes after all of its blocks."""
    places = {block: i for i, block in enumerate(flow.order)}
    after = {block: reaches(flow, -2, block) for block in flow.order}
    for block in flow.tangled:
        circle = [other for other in after[block] if block in after[other]]
        last = max(places[other] for other in circle)
        assert all(places[other] > last for other in after[block].difference(circle))


@pytest.mark.parametrize("seed", share(range(200)))
def test_order_respects_edges_and_loops(seed: int):
    flow = random_flow(seed)
    if flow.tangled:
        check_circles(flow)
        return
    places = {block: i for i, block in enumerate(flow.order)}
    for block in flow.order:
        for target in flow.blocks[block].successors:
            assert places[target] > places[block] or flow.dominates(target, block)
    for loop in flow.loops:
        last = max(places[b] for b in loop.blocks)
        ways_on = [t for _, t in loop.exits if t != EXIT and not flow.dominates(t, loop.header)]
        assert all(places[t] > last for t in ways_on)
