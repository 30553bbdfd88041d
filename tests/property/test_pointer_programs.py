"""Random kernels that compute addresses from pointers, and loops over several pointers."""

from __future__ import annotations

from itertools import islice
from random import Random

from tests.helpers.pointer_cases import analysed, checked, kernel, trace
from tests.helpers.pointer_loops import pointer_loops
from tests.helpers.pointer_programs import SIZE, THREADS, random_kernel
from tests.helpers.share import least, share

BUFFERS = "\n".join(
    [f"//! buffer b{i} bytes={SIZE} role=state" for i in range(4)]
    + ["//! buffer flag bytes=4 role=input"]
)


def _launch(name: str, arguments: str, threads: int = THREADS) -> str:
    return f"//! launch m.{name} grid=1,1,1 block={threads},1,1 args=[{arguments}]"


def test_random_pointer_arithmetic_stays_in_the_regions() -> None:
    for seed in share(range(150)):
        text, arguments = random_kernel(Random(seed), "k", hides=seed % 4 == 3)
        checked(trace(BUFFERS, text, [_launch("k", arguments)]))


def test_most_random_pointer_arithmetic_is_followed() -> None:
    # What is pinned multiplies the distance of two buffers with a number from memory.
    made = [random_kernel(Random(seed), f"k{seed}") for seed in share(range(60))]
    text = trace(
        BUFFERS,
        "".join(text for text, _ in made),
        [_launch(f"k{seed}", arguments) for seed, (_, arguments) in enumerate(made)],
    )
    found = checked(text)
    assert sum(bool(one.pins) for one in found) <= len(found) / 10


def test_no_loop_over_pointers_is_pinned() -> None:
    loops = list(pointer_loops())
    assert len(loops) == 144
    some = loops[:: least(1, 4)]
    found = {loop.name: checked(loop.text, fills=(0, 2))[0] for loop in some}
    assert [name for name, one in found.items() if one.pins] == []
    # Of words in shared memory it is known which objects they point into.
    fixed = [name for name in found if "data" not in name and "shared" not in name]
    assert [name for name in fixed if not found[name].is_exact] == []


def test_messages_show_no_made_up_addresses() -> None:
    """Whatever is said of a launch, every number in it is smaller than any made-up address."""
    texts = [loop.text for loop in islice(pointer_loops(), 0, None, 5)]
    texts += [
        trace(BUFFERS, kernel("k", 3, body), [_launch("k", "b0, b1, b2", 8)])
        for body in (
            "  add.s64 %d0, %p0, %p1;\n  st.global.u32 [%d0], %t;",
            "  sub.s64 %d0, %p0, %p1;\n  st.global.u32 [%d0], %t;",
            "  ld.global.u64 %d0, [%p0];\n  sub.s64 %d1, %p1, %p2;\n  mul.lo.s64 %d0, %d0, %d1;\n"
            "  add.s64 %d0, %d0, %p2;\n  st.global.u32 [%d0], %t;",
            "  add.s64 %d0, %p0, 1048576;\n  st.global.u32 [%d0], %t;",
        )
    ]
    for text in texts:
        for step in analysed(text):
            said = [str(pin.reason) for pin in step.pins]
            said += [str(part) for d in step.diagnostics for part in (str(d.headline), *d.notes)]
            for word in " ".join(said).replace(",", " ").split():
                digits = word.strip("`.:()")
                assert not digits.isdigit() or int(digits) < 1 << 32, said


def test_launches_that_alias_share_nothing_with_those_that_do_not() -> None:
    """The same kernel, with arguments in one buffer, in two, and at other offsets."""
    body = (
        "  sub.s64 %d0, %p2, %p1;\n  add.s64 %d1, %p0, %d0;\n  add.s64 %d1, %d1, %o;\n"
        "  st.global.u32 [%d1], %t;"
    )
    given = [
        "b0+64, b0, b1",
        "b0+64, b0, b0",
        "b0+128, b0, b1",
        "b1+64, b0, b0+32",
        "b0+64, b1, b1+16",
        "b2+64, b2, b3",
        "b3+64, b3, b2",
        "b0+64, b0+32, b1",
    ]
    text = trace(BUFFERS, kernel("k", 3, body), [_launch("k", one, 8) for one in given])
    assert all(one.is_exact for one in checked(text, fills=(0,)))


def test_plain_launches_with_other_buffers_and_offsets_share_a_pattern() -> None:
    body = "  add.s64 %d1, %p0, %o;\n  add.s64 %d2, %p1, %o;\n  st.global.u32 [%d1], %t;\n"
    body += "  st.global.u32 [%d2], %t;"
    given = ["b0, b1", "b1+64, b2", "b2, b2+128", "b0+4, b0+4"]
    text = trace(BUFFERS, kernel("k", 2, body), [_launch("k", one, 8) for one in given])
    assert all(one.is_exact for one in checked(text, fills=(0,)))
