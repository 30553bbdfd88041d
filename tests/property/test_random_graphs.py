"""Kernels with random branches, circles with several entries among them, against the log."""

from __future__ import annotations

import random

import pytest

from tests.helpers.share import share
from tests.property.test_rule_conditions import DATA, Broken, faults

PLACE = "and.b32 %r11, {}, 63; mul.wide.u32 %d8, %r11, 4; add.u64 %d9, {}, %d8;"


def statement(rng: random.Random) -> str:
    target, source = rng.choice("567"), rng.choice("567")
    guard = rng.choice(("", "", "", "@%p1 ", "@!%p1 ", "@%p2 "))
    place = PLACE.format(f"%r{source}", rng.choice(("%d2", "%d3")))
    tested = rng.choice(("%r10", "%r2", f"%r{source}"))
    results = rng.choice(("%p1", "_|%p1", "%p2|%p1"))
    return rng.choice(
        (
            f"{guard}add.u32 %r{target}, %r{source}, {rng.randint(1, 9)};",
            f"{guard}mov.u32 %r{target}, {rng.randint(0, 60)};",
            f"{guard}add.u32 %r{target}, %r{source}, %r10;",
            f"setp.lt.u32 {results}, {tested}, {rng.randint(0, 12)};",
            f"{place} {guard}st.global.u32 [%d9], %r8;",
            f"{place} {guard}ld.global.u32 %r12, [%d9];",
        )
    )


def branch(rng: random.Random, blocks: int) -> str:
    target = rng.randrange(blocks)
    return rng.choice(
        (
            "",
            f"setp.lt.u32 %p3, %r10, {rng.randint(0, 8)}; @%p3 bra B{target};",
            f"setp.lt.u32 %p3, %r2, {rng.randint(0, 32)}; @%p3 bra B{target};",
            f"@{rng.choice(('', '!'))}%p1 bra B{target};",
            f"bra B{target};",
            f"setp.lt.u32 %p3, %r10, {rng.randint(0, 4)}; @%p3 exit;",
        )
    )


def body(rng: random.Random) -> str:
    """Blocks that go anywhere; a thread ends after some of them."""
    lines = [DATA, "and.b32 %r10, %r4, 7; mov.u32 %r8, 0; setp.lt.u32 %p2, %r2, 9;"]
    lines += [f"mov.u32 %r{n}, {n};" for n in (5, 6, 7) if rng.random() < 0.9]
    blocks = rng.randint(3, 8)
    for number in range(blocks):
        lines.append(f"B{number}: add.u32 %r8, %r8, 1; setp.gt.u32 %p7, %r8, {rng.randint(3, 10)};")
        lines.append("@%p7 bra END;")
        lines += [statement(rng) for _ in range(rng.randint(0, 3))]
        lines.append(branch(rng, blocks))
    return "\n".join((*lines, "END:"))


@pytest.mark.parametrize("seed", share(range(40)))
def test_whatever_way_threads_take(seed: int) -> None:
    rng = random.Random(seed)
    case = Broken(rule="", body=body(rng), without=("", str), block=rng.choice((1, 8, 32)))
    assert list(faults(case)) == []
