"""Sums and differences of pointers: every form, over arguments in the same and in other buffers."""

from __future__ import annotations

from itertools import product

import pytest

from tests.helpers.pointer_cases import analysed, checked, kernel, trace

BUFFERS = "\n".join(f"//! buffer {name} bytes=512 role=state" for name in "abcd")
# Offsets are such that every sum of two less a third stays inside a buffer.
LAYOUTS = {
    "apart": ("a+64", "b+64", "c+64", "d+64"),
    "one twice": ("a+64", "a+96", "b+64", "c+128"),
    "two twice": ("a+64", "a+128", "b+96", "b+64"),
    "one four times": ("a+64", "a+96", "a+128", "a+80"),
    "equal": ("a+64", "a+64", "b+64", "b+64"),
}
STORE = "  add.u64 %d9, %d1, %o;\n  st.global.u32 [%d9], %t;\n"


def _is_address(layout: tuple[str, ...], first: int, second: int, less: int) -> bool:
    """Whether one buffer is left of a sum of two less a third."""
    left = [layout[first][0], layout[second][0]]
    return layout[less][0] in left


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_sum_of_two_pointers_less_a_third(name: str) -> None:
    layout = LAYOUTS[name]
    forms = list(product(range(4), repeat=3))
    good = [form for form in forms if _is_address(layout, *form)]
    kernels = "".join(
        kernel(
            f"k{i}{j}{k}",
            4,
            f"  sub.u64 %d0, %p{j}, %p{k};\n  add.u64 %d1, %p{i}, %d0;\n{STORE}"
            if (i + j + k) % 2
            else f"  add.u64 %d0, %p{i}, %p{j};\n  sub.u64 %d1, %d0, %p{k};\n{STORE}",
        )
        for i, j, k in forms
    )
    arguments = ", ".join(layout)
    launches = [
        f"//! launch m.k{i}{j}{k} grid=1,1,1 block=8,1,1 args=[{arguments}]" for i, j, k in good
    ]
    found = checked(trace(BUFFERS, kernels, launches), fills=(0,))
    assert [one.name for one in found if not one.is_exact] == []


def test_what_leaves_no_one_buffer_is_pinned() -> None:
    layout = LAYOUTS["apart"]
    forms = [f for f in product(range(4), repeat=3) if not _is_address(layout, *f)]
    for i, j, k in forms:
        body = f"  sub.u64 %d0, %p{j}, %p{k};\n  add.u64 %d1, %p{i}, %d0;\n{STORE}"
        text = trace(
            BUFFERS,
            kernel("k", 4, body),
            [f"//! launch m.k grid=1,1,1 block=8,1,1 args=[{', '.join(layout)}]"],
        )
        assert analysed(text)[0].pins, (i, j, k)
