"""Barriers between what a kernel of Inductor stores and what it loads of that again."""

from __future__ import annotations

import itertools

from tessera.frontend.capture.barriers import with_barriers

TWO_LOOPS = """\
def kernel(in_ptr0, out_ptr0, out_ptr1):
    x = tl.load(in_ptr0 + 1)
    for r in tl.range(0, n, B):
        a = tl.load(in_ptr0 + r)
        tl.store(out_ptr0 + r, a)
    s = tl.sum(a)
    for r in tl.range(0, n, B):
        b = tl.load(out_ptr0 + r)
        tl.store(out_ptr1 + r, b)
"""


def barriers_of(source: str) -> list[str]:
    """The line behind each barrier."""
    lines = with_barriers(source).split("\n")
    return [b.strip() for a, b in itertools.pairwise(lines) if "barrier" in a]


def test_one_before_the_loop_that_loads() -> None:
    made = with_barriers(TWO_LOOPS).split("\n")
    at = made.index("    tl.debug_barrier()")
    assert made[at + 1].startswith("    for r")
    assert made[at - 1] == "    s = tl.sum(a)"
    assert made[:at] + made[at + 1 :] == TWO_LOOPS.split("\n")


def test_none_where_nothing_is_loaded_again() -> None:
    assert with_barriers(TWO_LOOPS.replace("out_ptr0 + r)", "in_ptr0 + r)")) == (
        TWO_LOOPS.replace("out_ptr0 + r)", "in_ptr0 + r)")
    )


def test_one_barrier_serves_several_loads_and_a_later_store_asks_for_another() -> None:
    source = TWO_LOOPS + (
        "    for r in tl.range(0, n, B):\n"
        "        c = tl.load(out_ptr0 + r)\n"
        "        d = tl.load(out_ptr1 + r)\n"
    )
    assert barriers_of(source) == ["for r in tl.range(0, n, B):"] * 2


def test_in_the_same_loop_they_stand_before_the_load_and_before_the_next_turn() -> None:
    source = (
        "def kernel(in_out_ptr0):\n"
        "    for r in tl.range(0, n, B):\n"
        "        tl.atomic_add(in_out_ptr0 + r, a)\n"
        "        b = tl.load(in_out_ptr0 + r)\n"
    )
    assert barriers_of(source) == [
        "tl.atomic_add(in_out_ptr0 + r, a)",
        "b = tl.load(in_out_ptr0 + r)",
    ]


def test_what_one_parameter_loads_another_one_changes() -> None:
    """A value that all warps load, and one of them changes."""
    source = (
        "@jit(triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr1': '*fp32', 'n': 'i32'}})\n"
        "def Placeholder.KERNEL_NAME(in_ptr0, out_ptr1, n):\n"
        "    a = tl.load(in_ptr0 + (0))\n"
        "    b = a.to(tl.float32) + 1\n"
        "    tl.store(out_ptr1 + (0), b, x < n)\n"
    )
    assert barriers_of(source) == []
    made = with_barriers(source, {"in_ptr0": "out_ptr1"}).split("\n")
    assert made[made.index("    tl.debug_barrier()") + 1].startswith("    tl.store(out_ptr1")


def test_pointers_by_other_names_are_followed() -> None:
    source = (
        "def kernel(out_ptr0, ws_ptr):\n"
        "    block, other = tl.make_block_ptr(out_ptr0, [n], [1]), 0\n"
        "    view = ws_ptr + 4\n"
        "    tl.store(block, a)\n"
        "    tl.store(view, a)\n"
        "    for r in tl.range(0, n, B):\n"
        "        b = tl.load(out_ptr0 + r)\n"
        "    c = tl.load((ws_ptr + 8).to(tl.pointer_type(tl.float32)))\n"
        "    for r in tl.range(0, n, B):\n"
        "        tl.store(pointer=view + r, value=b)\n"
        "    helper(view)\n"
    )
    assert barriers_of(source) == [
        "for r in tl.range(0, n, B):",
        "for r in tl.range(0, n, B):",
        "helper(view)",
    ]


def test_numbers_are_no_memory_and_stores_of_a_loop_do_not_meet() -> None:
    source = (
        "@jit(triton_meta={'signature': {'out_ptr0': '*bf16', 'ks0': 'i64', 'n': 'i32'}})\n"
        "def kernel(out_ptr0, in_ptr0, ks0, n):\n"
        "    for r in tl.range(0, n, B):\n"
        "        a = tl.load(in_ptr0 + ks0 * r, r < n)\n"
        "        tl.store(out_ptr0 + ks0 * r, a, r < n)\n"
        "        tl.atomic_add(sem + ks0, a)\n"
    )
    assert barriers_of(source) == []


def test_the_sides_of_a_branch_do_not_meet_and_both_meet_what_follows() -> None:
    source = (
        "def kernel(p, q):\n"
        "    if pid < 4:\n"
        "        tl.store(p, a)\n"
        "        tl.debug_barrier()\n"
        "        tl.store(q, a)\n"
        "    else:\n"
        "        b = tl.load(p)\n"
        "        tl.store(p, a)\n"
        "    c = tl.load(p)\n"
        "    d = tl.load(q)\n"
    )
    made = with_barriers(source).split("\n")
    assert made.count("        tl.debug_barrier()") == 2
    assert barriers_of(source)[-1] == "c = tl.load(p)"


def test_a_barrier_that_is_there_is_enough_and_functions_are_apart() -> None:
    once = with_barriers(TWO_LOOPS)
    assert with_barriers(once) == once
    assert barriers_of("def a(out_ptr0):\n    tl.store(out_ptr0, 1)\ndef b(out_ptr0):\n"
                       "    tl.load(out_ptr0)\n") == []  # fmt: skip
