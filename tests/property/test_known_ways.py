"""Branches of which some threads know the way, whatever the data, and others do not.

Both sides move addresses, store, and part again. What is followed for the threads that do not know
the way says nothing of the others: their registers are not those of either side. Held against the
log of the CPU backend, with certain writes.
"""

from __future__ import annotations

import random

import pytest

from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions
from tests.helpers.share import share
from tests.property.kernel_strategies import Kernel
from tests.property.test_grid_pieces import HEAD, in_pieces
from tests.property.test_soundness_generated import check_log, log_of, program_of

BEGIN = """
    .reg .b32 %x<4>;
    .reg .b64 %at, %own;
    mul.wide.u32 %own, %r4, 4;
    add.s64 %rd7, %rd2, %own;
    ld.global.u32 %r5, [%rd7];
    and.b32 %r5, %r5, 31;
    add.s64 %at, %rd1, %own;
    mov.u32 %x0, 7;
"""


class KnownWays:
    """A kernel of branches on a number from memory, below 32, against one of the thread's."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"known ways {seed}")
        self.labels = 0
        self.lines = list[str]()

    def kernel(self) -> Kernel:
        """The kernel; it stays inside `out`."""
        self.part(2)
        self.lines.append("st.global.u32 [%at], %x0;\n ret;\n}\n")
        return Kernel(HEAD + BEGIN + "\n".join(self.lines), (1, 1, 1), (32, 1, 1), (0, 0), 0)

    def part(self, depth: int) -> None:
        """A branch, and what both sides do."""
        pick, self.labels = self.random.choice, self.labels + 1
        mine, label = "%r4", f"{self.labels}"
        if pick((True, False)):
            self.lines.append(f"xor.b32 %x1, %r4, {pick((1, 7, 31))};")
            mine = "%x1"
        elif pick((True, False)):
            self.lines.append(f"sub.s32 %x1, %r4, {pick((1, 9))};")
            mine = "%x1"
        self.lines += [
            f"setp.{pick(('lt', 'le', 'gt', 'ge'))}.{pick('us')}32 %p1, %r5, {mine};",
            f"@{pick(('', '!'))}%p1 bra SIDE{label};",
        ]
        forward = self.random.randrange(1, 4) * 64
        self.side(depth, forward)
        self.lines += [f"bra.uni MEET{label};", f"SIDE{label}:"]
        self.side(depth, forward if pick((True, True, False)) else 0)
        self.lines.append(f"MEET{label}:")

    def side(self, depth: int, forward: int) -> None:
        """Moves the address, stores there, and may part again; in any order."""
        todo = [
            f"add.s64 %at, %at, {forward};",
            "st.global.u32 [%at], %x0;",
            "add.u32 %x0, %x0, 1;",
        ]
        if self.random.random() < 0.4:
            self.random.shuffle(todo)
        self.lines += todo
        if depth and self.random.random() < 0.4:
            self.part(depth - 1)


def check(seed: int) -> None:
    kernel = KnownWays(seed).kernel()
    program = program_of(kernel)
    steps = [in_pieces(program), *AnalysisManager(program).get(AccessRegions).steps]
    for contents in ("zeros", "ones", "random", "small"):
        log = log_of(program, kernel, contents)
        for step in steps:
            assert not step.pins
            check_log(program, step, log, f"seed {seed}, {contents}\n{kernel.text}")


def test_threads_that_know_the_way() -> None:
    for seed in share(range(60)):
        check(seed)


@pytest.mark.slow
def test_many_threads_that_know_the_way() -> None:
    for seed in range(60, 500):
        check(seed)
