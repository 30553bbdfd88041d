"""Random kernels that take pointers apart, and move, choose and join their halves.

In: a source of random numbers. Out: the text of a trace. Both halves of a pair are always treated
alike, so every address that is used is one of a buffer, whatever branches and loops do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.helpers.pointer_cases import kernel, trace

PAIRS = 3
POINTERS = ("%d40", "%d41", "%d42")
BUFFERS = "\n".join(f"//! buffer b{i} bytes=16384 role=state" for i in range(4))
LAUNCH = "//! launch m.k grid=2,1,1 block=32,1,1 args=[b0, b1, b2, b3]"


def halves_program(seed: int) -> str:
    """A trace with one launch; pointers have an index from memory in them."""
    made = HalfProgram(Random(seed))
    made.emit("ld.global.u32 %r0, [%p3+12];", "mul.wide.u32 %d30, %r0, 128;")
    for number, pointer in enumerate(POINTERS):
        moved = f"add.s64 {pointer}, %p{number}, %d30;"
        made.emit(moved if made.random.random() < 0.8 else f"mov.b64 {pointer}, %p{number};")
        made.emit(f"add.s64 {pointer}, {pointer}, %o;")
        low, high = made.pair(number)
        made.emit(f"mov.b64 {{{low}, {high}}}, {pointer};")
    made.block(0)
    made.store()
    return trace(BUFFERS, kernel("k", 4, "\n".join(made.lines)), [LAUNCH])


@dataclass(slots=True)
class HalfProgram:
    """A kernel as it is written."""

    random: Random
    lines: list[str] = field(default_factory=list)
    labels: int = 0

    def emit(self, *lines: str) -> None:
        """Write instructions."""
        self.lines.extend(f"  {line}" for line in lines)

    def pair(self, number: int | None = None) -> tuple[str, str]:
        """The registers of two halves."""
        at = 20 + 2 * (self.random.randrange(PAIRS) if number is None else number)
        return f"%r{at}", f"%r{at + 1}"

    def assign(self, low: str, high: str) -> None:
        """Two halves become a pair."""
        first, second = self.pair()
        self.emit(f"mov.b32 {first}, {low};", f"mov.b32 {second}, {high};")

    def condition(self, predicate: str) -> None:
        """By the thread, or by data."""
        if self.random.random() < 0.5:
            self.emit(f"setp.lt.u32 {predicate}, %t, {self.random.randrange(33)};")
        else:
            limit = self.random.randrange(4)
            self.emit("ld.global.u32 %r9, [%p3+8];", f"setp.lt.u32 {predicate}, %r9, {limit};")

    # --- what is done ----------------------------------------------------------------------

    def split(self) -> None:
        (low, high), pointer = self.pair(), self.random.choice(POINTERS)
        forms = (
            (f"mov.b64 {{{low}, {high}}}, {pointer};",),
            (f"mov.b64 {{_, {high}}}, {pointer};", f"cvt.u32.u64 {low}, {pointer};"),
            (
                f"cvt.u32.u64 {low}, {pointer};",
                f"shr.u64 %d50, {pointer}, 32;",
                f"cvt.u32.u64 {high}, %d50;",
            ),
        )
        self.emit(*self.random.choice(forms))

    def copy(self) -> None:
        self.assign(*self.pair())

    def shuffle(self) -> None:
        mode = self.random.choice(("bfly", "idx", "up", "down"))
        clamp = 0 if mode == "up" else 31
        number = self.random.randrange(32)
        lane = self.random.choice((str(number), "%r9"))
        if lane == "%r9":
            forms = ("ld.global.u32 %r9, [%p3+16];", f"xor.b32 %r9, %t, {number};")
            self.emit(self.random.choice(forms))
        for target, half in zip(("%r10", "%r11"), self.pair(), strict=True):
            self.emit(f"shfl.sync.{mode}.b32 {target}, {half}, {lane}, {clamp}, -1;")
        self.assign("%r10", "%r11")

    def select(self) -> None:
        self.condition("%c1")
        halves = zip(("%r12", "%r13"), self.pair(), self.pair(), strict=True)
        self.emit(*(f"selp.b32 {to}, {a}, {b}, %c1;" for to, a, b in halves))
        self.assign("%r12", "%r13")

    def guarded(self) -> None:
        self.condition("%c2")
        halves = zip(self.pair(), self.pair(), strict=True)
        self.emit(*(f"@%c2 mov.b32 {to}, {half};" for to, half in halves))

    def repoint(self) -> None:
        target, source = self.random.sample(POINTERS, 2)
        moved = f"add.s64 {target}, {source}, {4 * self.random.randrange(8)};"
        self.emit(self.random.choice((moved, f"mov.b64 {target}, {source};")))

    def store(self) -> None:
        low, high = self.pair()
        if self.random.random() < 0.5:
            self.emit(f"mov.b64 %d51, {{{low}, {high}}};")
        else:
            self.emit(f"cvt.u64.u32 %d52, {low};", f"cvt.u64.u32 %d53, {high};")
            self.emit("shl.b64 %d53, %d53, 32;", "or.b64 %d51, %d52, %d53;")
        self.emit(self.random.choice(("st.global.u32 [%d51], %t;", "ld.global.u32 %r14, [%d51];")))

    # --- control ---------------------------------------------------------------------------

    def block(self, depth: int) -> None:
        """Some of all that; threads only go apart below the first level."""
        usual = [self.split, self.split, self.copy, self.select, self.guarded, self.repoint]
        usual += [self.store, self.store] + ([self.shuffle] * 2 if depth == 0 else [])
        for _ in range(self.random.randrange(2, 7)):
            if depth < 2 and self.random.random() < 0.15:
                self.random.choice((self.branch, self.loop))(depth + 1)
            else:
                self.random.choice(usual)()

    def branch(self, depth: int) -> None:
        self.labels += 1
        label = f"L{self.labels}"
        self.condition("%c3")
        self.emit(f"@%c3 bra {label};")
        self.block(depth)
        self.lines.append(f"{label}:")

    def loop(self, depth: int) -> None:
        self.labels += 1
        label, counter = f"L{self.labels}", f"%r{30 + depth}"
        self.emit(f"mov.u32 {counter}, 0;")
        self.lines.append(f"{label}:")
        self.block(depth)
        limit = self.random.choice(("1", "3", "%r15"))
        if limit == "%r15":
            self.emit("ld.global.u32 %r9, [%p3];", "and.b32 %r15, %r9, 3;")
        self.emit(f"add.u32 {counter}, {counter}, 1;", f"setp.lt.u32 %c4, {counter}, {limit};")
        self.emit(f"@%c4 bra {label};")
