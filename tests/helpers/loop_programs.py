"""Random kernels of loops: every kind of counter, of test and of what a round changes.

In: a seed. Out: a `Kernel` whose loops end. Counters have 16, 32 or 64 bits, start at the thread,
the CTA, data, or near an end of their type, go up or down, and are compared with or without sign.
How often a loop runs is a number, or is said by the thread, the CTA, a parameter or data. Its test
is at its head, its end, or in between; threads may leave it early, or end in it. Rounds move
pointers and indices, hand registers on to the next round, choose by data or by the round, and may
have a loop inside.
"""

from __future__ import annotations

import random

from tests.property.kernel_strategies import WORDS, Kernel

MOST_ROUNDS = 40
BLOCK, GRID = 32, 3
SCALARS = (5, 2)
TYPES = {"s32": "b32", "u32": "b32", "s64": "b64", "u64": "b64", "s16": "b16", "u16": "b16"}
HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p<60>;
    .reg .b16 %h<90>;
    .reg .b32 %r<90>;
    .reg .b64 %rd<90>;
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [data];
    ld.param.u32 %r5, [a];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r3, %r2, 5, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r4, [%rd4];
    and.b32 %r4, %r4, 7;
    ld.global.u32 %r6, [%rd2+512];
    and.b32 %r6, %r6, 7;
    add.s64 %rd10, %rd1, %rd3;
    add.s64 %rd11, %rd10, 600;
"""
# What a number may be: the register, and the values that it takes.
SOURCES = {
    "%r1": range(BLOCK),
    "%r2": range(GRID),
    "%r4": range(8),
    "%r5": SCALARS[:1],
    "%r6": range(8),
}
MOVING = ("%r10", "%r11", "%r12", "%r13")


class LoopProgram:
    """One kernel as it grows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"loop {seed}")
        self.lines: list[str] = []
        self.count = 0

    def kernel(self) -> Kernel:
        """The whole of it, with a launch."""
        for name in MOVING:
            start = self.random.choice((*SOURCES, "0", "3"))
            self.emit(f"mov.u32 {name}, {start};")
        for _ in range(self.random.choice((1, 1, 2))):
            self.loop(0)
            self.store()
        self.emit("st.global.u32 [%rd10], %r1;", "ret;")
        text = HEAD + "\n".join(self.lines) + "\n}\n"
        return Kernel(text, (GRID, 1, 1), (BLOCK, 1, 1), SCALARS, 0)

    def emit(self, *lines: str) -> None:
        """Write instructions."""
        self.lines += [f"    {line}" for line in lines]

    def fresh(self) -> int:
        """A number of which no register or label has been used."""
        self.count += 1
        return self.count

    # --- loops -------------------------------------------------------------------------------

    def loop(self, depth: int) -> None:
        """A loop that ends after at most `MOST_ROUNDS` rounds."""
        number = self.fresh()
        type, start, step, rounds, test, shape = self.header(depth)
        bits, kind = int(type[1:]), TYPES[type]
        prefix = {"b16": "%h", "b32": "%r", "b64": "%rd"}[kind]
        counter, limit = f"{prefix}{20 + 2 * number}", f"{prefix}{21 + 2 * number}"
        self.number(counter, start, bits)
        self.number(limit, rounds, bits)
        self.emit(f"mad.lo.{type} {limit}, {limit}, {step}, {counter};")
        again, out = f"%p{20 + number}", f"OUT{number}"
        comparison = f"setp.{test}.{type} {again}, {counter}, {limit};"
        advance = f"add.{type} {counter}, {counter}, {step};"
        if shape == "end" and self.random.random() < 0.5:
            self.emit(comparison, f"@!{again} bra {out};")
        self.lines.append(f"L{number}:")
        if shape == "head":
            self.emit(comparison, f"@!{again} bra {out};")
        self.body(depth, counter, bits, out)
        self.emit(advance)
        if shape == "middle":
            self.emit(comparison, f"@!{again} bra {out};")
            self.body(depth + 1, counter, bits, out)
        self.emit(*([comparison, f"@{again}"] if shape == "end" else []))
        self.lines[-1] += f" bra L{number};" if shape == "end" else ""
        if shape != "end":
            self.emit(f"bra L{number};")
        self.lines.append(f"{out}:")
        self.index(counter, bits)

    def header(self, depth: int) -> tuple[str, str, int, str, str, str]:
        """A counter's type, start and step, how many rounds are wanted, the test, and its place;
        such that the loop ends soon, whatever data says."""
        choose = self.random.choice
        while True:
            type = choose(("s32", "u32", "s32", "u32", "s64", "u64", "s16", "u16"))
            bits = int(type[1:])
            ends = [str((1 << bits - 1) - 2), str((1 << bits) - 3), str((1 << bits - 1) + 1)]
            start = choose(("0", "0", "1", "7", *SOURCES, *ends))
            step = choose((1, 1, 2, 3, 8, -1, -1, -2, -5))
            rounds = choose(("1", "2", "5", "9", "30", *SOURCES, "%r4", "%r6"))
            test = choose(("ne", *(("lt", "le") if step > 0 else ("gt", "ge"))))
            shape = choose(("end", "end", "head", "middle"))
            most = MOST_ROUNDS >> 2 * depth
            if all(
                self.ends(type, int(first), step, int(wanted), test, shape, most)
                for first in SOURCES.get(start, [start])
                for wanted in SOURCES.get(rounds, [rounds])
            ):
                return type, start, step, rounds, test, shape

    def ends(
        self, type: str, first: int, step: int, wanted: int, test: str, shape: str, most: int
    ) -> bool:
        bits = int(type[1:])
        counter, limit = first, first + wanted * step
        for round in range(most):
            if round or shape == "head":
                left, right = (self.read(value, type, bits) for value in (counter, limit))
                holds = {
                    "ne": left != right,
                    "lt": left < right,
                    "le": left <= right,
                    "gt": left > right,
                    "ge": left >= right,
                }[test]
                if not holds:
                    return True
            counter += step
        return False

    def read(self, value: int, type: str, bits: int) -> int:
        value &= (1 << bits) - 1
        return value - (1 << bits) if type[0] == "s" and value >> (bits - 1) else value

    def number(self, target: str, source: str, bits: int) -> None:
        """A number in a register of some width."""
        if bits == 32:
            self.emit(f"mov.u32 {target}, {source};")
        elif source in SOURCES:
            self.emit(f"cvt.u{bits}.u32 {target}, {source};")
        else:
            self.emit(f"mov.u{bits} {target}, {source};")

    def index(self, counter: str, bits: int) -> None:
        """The counter is where the next store goes."""
        form = {16: "cvt.u32.u16", 32: "mov.u32", 64: "cvt.u32.u64"}[bits]
        self.emit(f"{form} {self.random.choice(MOVING)}, {counter};")

    # --- rounds ------------------------------------------------------------------------------

    def body(self, depth: int, counter: str, bits: int, out: str) -> None:
        """What a round does."""
        choose = self.random.choice
        for _ in range(choose((1, 2, 2, 3, 4))):
            kinds = ["move", "move", "hand on", "choose", "store", "store", "toggle", "load"]
            kinds += ["leave", "end", "index"] + (["loop"] if depth == 0 else [])
            match choose(kinds):
                case "move":
                    self.move()
                case "hand on":
                    to, source = self.random.sample(MOVING, 2)
                    self.emit(f"{self.guard(0.2)}mov.u32 {to}, {source};")
                case "choose":
                    to, other = self.random.sample(MOVING, 2)
                    self.emit(f"selp.b32 {to}, {other}, {to}, {self.test()};")
                case "store":
                    self.store()
                case "toggle":
                    self.emit(f"xor.b32 {choose(MOVING)}, {choose(MOVING)}, {choose((1, 8))};")
                case "load":
                    self.load()
                case "leave":
                    self.emit(f"@{self.test()} bra {out};")
                case "end":
                    self.emit(f"@{self.test(rare=True)} {choose(('ret', 'exit'))};")
                case "index":
                    self.index(counter, bits)
                case _:
                    self.loop(depth + 1)

    def guard(self, often: float) -> str:
        """A guard, or none."""
        return f"@{self.test()} " if self.random.random() < often else ""

    def test(self, *, rare: bool = False) -> str:
        """A predicate of data, of the thread, or of what rounds have changed."""
        choose = self.random.choice
        name = f"%p{choose((1, 2, 3))}"
        comparison = choose(("eq", "ge", "gt") if rare else ("eq", "ne", "lt", "ge"))
        left = choose((*SOURCES, *MOVING, *MOVING))
        number = choose((5, 7, 20, 31)) if rare else choose((0, 1, 3, 5, 16))
        self.emit(f"setp.{comparison}.{choose('us')}32 {name}, {left}, {number};")
        return name

    def move(self) -> None:
        """An index or a pointer moves on."""
        choose = self.random.choice
        if choose((0, 1)):
            by = choose((1, 2, 5, -1, "%r1", "%r2", "%r4", "%r6"))
            to = choose(MOVING)
            self.emit(f"{self.guard(0.2)}add.s32 {to}, {to}, {by};")
        else:
            to = choose(("%rd10", "%rd11"))
            self.emit(f"{self.guard(0.2)}add.s64 {to}, {to}, {choose((4, 4, 8, -4, 12))};")

    def store(self) -> None:
        """A store through a pointer that moves, or at an index."""
        choose = self.random.choice
        if choose((0, 1)):
            self.emit(f"{self.guard(0.2)}st.global.u32 [{choose(('%rd10', '%rd11'))}], %r1;")
            return
        self.address("%rd1", choose((f"and.b32 %r20, X, {WORDS - 1};", "min.u32 %r20, X, 300;")))
        self.emit(f"{self.guard(0.2)}st.global.u32 [%rd6+{4 * choose((0, 3))}], %r1;")

    def load(self) -> None:
        """A word that decides what later rounds do."""
        self.address("%rd2", f"and.b32 %r20, X, {WORDS - 1};")
        self.emit("ld.global.u32 %r21, [%rd6];", "and.b32 %r21, %r21, 31;")
        self.emit(f"{self.guard(0.2)}mov.u32 {self.random.choice(MOVING)}, %r21;")

    def address(self, base: str, bounded: str) -> None:
        self.emit(bounded.replace("X", self.random.choice(MOVING)), "mul.wide.u32 %rd5, %r20, 4;")
        self.emit(f"add.s64 %rd6, {base}, %rd5;")
