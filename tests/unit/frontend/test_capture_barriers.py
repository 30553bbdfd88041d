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


def test_in_the_same_loop_it_stands_before_the_load() -> None:
    source = (
        "def kernel(in_out_ptr0):\n"
        "    for r in tl.range(0, n, B):\n"
        "        tl.atomic_add(in_out_ptr0 + r, a)\n"
        "        b = tl.load(in_out_ptr0 + r)\n"
    )
    assert barriers_of(source) == ["b = tl.load(in_out_ptr0 + r)"]


def test_a_barrier_that_is_there_is_enough_and_functions_are_apart() -> None:
    once = with_barriers(TWO_LOOPS)
    assert with_barriers(once) == once
    assert barriers_of("def a(out_ptr0):\n    tl.store(out_ptr0, 1)\ndef b(out_ptr0):\n"
                       "    tl.load(out_ptr0)\n") == []  # fmt: skip
