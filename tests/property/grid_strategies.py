"""Random kernels whose addresses are sums over the parts of a CTA's number.

As compilers write them: flat and grouped tiles (quotients and remainders, by instructions and by
multiplication), tails, splits, causal loops, minima, choices, offsets put in by `or`, and indices
from memory. With `inside`, indices are taken modulo the size of the buffer: such kernels can run.
"""

from __future__ import annotations

import random

from hypothesis import strategies as st

from tests.property.kernel_strategies import WORDS, Kernel

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 31, 32, 48, 64, 100)


class GridWriter:
    """The text of a kernel as it grows; `values` are registers of 32 bits."""

    def __init__(self, rng: random.Random, *, inside: bool, by_number: float = 0.4) -> None:
        self.rng = rng
        self.inside = inside
        self.by_number = by_number  # how many loops have as many rounds as a number of the CTA
        self.lines: list[str] = []
        self.values: list[str] = []
        self.count = 8

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"%{kind}{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append(f"    {line}")

    def compute(self, opcode: str, *sources: object) -> str:
        result = self.fresh("r")
        self.emit(f"{opcode} {result}, {', '.join(map(str, sources))};")
        self.values.append(result)
        return result

    def pick(self) -> str:
        recent = self.values[-4:] if self.rng.random() < 0.7 else self.values
        return self.rng.choice(recent)

    def size(self) -> int:
        return self.rng.choice(SIZES)

    # --- what indices are made of ------------------------------------------------------------

    def sum(self) -> None:
        self.compute("mad.lo.s32", self.pick(), self.size(), self.pick())

    def difference(self) -> None:
        self.compute("sub.s32", self.pick(), self.pick())

    def scaled(self) -> None:
        if self.rng.random() < 0.5:
            self.compute("shl.b32", self.pick(), self.rng.randint(0, 5))
        else:
            self.compute("mul.lo.s32", self.pick(), self.rng.choice([*SIZES, -1, -3]))

    def quotient(self) -> None:
        value, by = self.pick(), self.size()
        kind = self.rng.choice(["u32", "s32"])
        self.compute(f"div.{kind}", value, by)
        self.compute(f"rem.{kind}", value, by)

    def by_bits(self) -> None:
        value, bits = self.pick(), self.rng.randint(0, 5)
        self.compute(self.rng.choice(["shr.u32", "shr.s32"]), value, bits)
        mask = (1 << bits) - 1
        self.compute("and.b32", value, mask if self.rng.random() < 0.6 else -1 - mask)

    def by_field(self) -> None:
        """Some bits side by side: a field, and what a mask leaves where they are."""
        value, first, count = self.pick(), self.rng.randint(0, 6), self.rng.randint(1, 6)
        self.compute(self.rng.choice(["bfe.u32", "bfe.s32"]), value, first, count)
        self.compute("and.b32", value, ((1 << count) - 1) << first)

    def signed_quotient(self) -> None:
        """By a power of two, rounded to zero, and the rest: Triton's `//` and `%`."""
        value, bits = self.pick(), self.rng.randint(1, 6)
        wide = self.compute("shl.b32", value, 4)
        if self.rng.random() < 0.5:
            sign = self.compute("bfe.s32", value, 27, 1)
        else:
            sign = self.compute("shr.s32", wide, 31)
        moved = self.compute("add.s32", wide, self.compute("shr.u32", sign, 32 - bits))
        self.compute("shr.s32", moved, bits)
        top = self.rng.choice([(1 << 31) - 1, (1 << 20) - 1, (1 << 32) - 1])
        self.compute("sub.s32", wide, self.compute("and.b32", moved, top & -(1 << bits)))

    def by_multiplying(self) -> None:
        """x / d for x below 2**31, as compilers write it."""
        value, by = self.pick(), self.rng.choice([3, 5, 6, 7, 12, 24, 48, 100])
        if self.rng.random() < 0.5:
            wide, moved = self.fresh("rd"), self.fresh("rd")
            self.emit(f"mul.wide.u32 {wide}, {value}, {-(-(1 << 35) // by) & 0xFFFFFFFF};")
            self.emit(f"shr.u64 {moved}, {wide}, 35;")
            result = self.fresh("r")
            self.emit(f"cvt.u32.u64 {result}, {moved};")
            self.values.append(result)
            return
        moved = self.rng.choice([0, 0, 1, 2, 5])
        high = self.fresh("r")  # often nobody else reads it
        opcode = self.rng.choice(["mul.hi.s32", "mul.hi.u32"])
        self.emit(f"{opcode} {high}, {value}, {-(-(1 << (32 + moved)) // by) & 0xFFFFFFFF};")
        if self.rng.random() < 0.3:
            self.values.append(high)
        sign = self.compute("shr.u32", high, 31)
        if moved:
            high = self.compute(self.rng.choice(["shr.s32", "shr.u32"]), high, moved)
        self.compute("add.s32", high, sign)

    def grouped(self) -> None:
        """Triton's tiles in groups."""
        tile, wide, deep, most = self.pick(), self.size(), self.size(), self.size()
        in_group = wide * deep
        group = self.compute("div.s32", tile, in_group)
        first = self.compute("mul.lo.s32", group, deep)
        left = self.compute("sub.s32", most, first)
        depth = self.compute("min.s32", left, deep)
        depth = self.compute("max.s32", depth, 1)
        rest = self.compute("rem.s32", tile, in_group)
        row = self.compute("rem.s32", rest, depth)
        self.compute("add.s32", first, row)
        self.compute("div.s32", rest, depth)

    def bounded(self) -> None:
        self.compute(self.rng.choice(["min.s32", "max.s32", "min.u32"]), self.pick(), self.size())

    def offset(self) -> None:
        high = self.compute("shl.b32", self.pick(), 3)
        self.compute(self.rng.choice(["or.b32", "xor.b32"]), high, self.rng.randint(0, 9))

    def choice(self) -> None:
        self.compute("selp.b32", self.pick(), self.pick(), self.test())

    def test(self) -> str:
        result = self.fresh("p")
        comparison = self.rng.choice(["lt.s32", "ge.s32", "le.u32", "gt.u32", "eq.s32", "ne.s32"])
        other = self.pick() if self.rng.random() < 0.3 else self.size() * self.size()
        self.emit(f"setp.{comparison} {result}, {self.pick()}, {other};")
        return result

    # --- accesses and control ----------------------------------------------------------------

    def address(self, base: str, index: str) -> str:
        if self.inside:
            index = self.compute("and.b32", index, WORDS - 1)
        wide, address = self.fresh("rd"), self.fresh("rd")
        self.emit(f"mul.wide.{self.rng.choice('us')}32 {wide}, {index}, 4;")
        self.emit(f"add.s64 {address}, {base}, {wide};")
        return address

    def store(self) -> None:
        address = self.address("%rd1", self.pick())
        guard = f"@{self.rng.choice(['', '!'])}{self.test()} " if self.rng.random() < 0.6 else ""
        self.emit(f"{guard}st.global.u32 [{address}], {self.pick()};")

    def gather(self) -> None:
        loaded = self.fresh("r")
        self.emit(f"ld.global.u32 {loaded}, [{self.address('%rd2', self.pick())}];")
        limited = self.compute("and.b32", loaded, self.rng.choice([7, 63]))
        if self.rng.random() < 0.3:  # an index from memory beside one of the CTA, moved
            sum = self.compute("mad.lo.s32", self.pick(), self.rng.choice([64, 128, 96]), limited)
            limited = self.compute(self.rng.choice(["shr.u32", "shr.s32"]), sum, 3)
        if self.rng.random() < 0.5:
            self.values.append(limited)
        else:
            address = self.address("%rd1", self.compute("add.s32", limited, self.pick()))
            self.emit(f"st.global.u32 [{address}], {loaded};")

    def either(self) -> None:
        """The same place written on both ways of a branch that data decides."""
        loaded, test = self.fresh("r"), self.fresh("p")
        self.emit(f"ld.global.u32 {loaded}, [{self.address('%rd2', self.pick())}];")
        address = self.address("%rd1", self.pick())
        self.emit(f"setp.lt.u32 {test}, {loaded}, 5;")
        self.emit(f"@{test} st.global.u32 [{address}], {loaded};")
        self.emit(f"@!{test} st.global.u32 [{address}], 1;")

    def skip(self) -> None:
        """An `if` that the number of the CTA decides, or data."""
        label, known = f"L{self.count}", len(self.values)
        self.count += 1
        self.emit(f"@{self.test()} bra {label};")
        self.store()
        self.step(_INDICES)
        self.store()
        self.lines.append(f"{label}:")
        del self.values[known:]

    def loop(self) -> None:
        """A loop whose end depends on the number of the CTA: some rounds of moving addresses."""
        label, test, counter = f"L{self.count}", self.fresh("p"), self.fresh("r")
        self.count += 1
        bound, start = self.pick(), self.pick()
        if self.rng.random() < self.by_number:
            # As many rounds as one number of the CTA says, at addresses of it and of another.
            bound, other = self.rng.sample(self.values[1:4], 2)
            start = self.compute("mad.lo.s32", bound, self.size(), other)
        bound = self.compute("min.u32", bound, self.rng.choice([3, 9, 20, 60]))
        moving = self.compute("mov.u32", start)
        step = self.size()
        self.emit(f"mov.u32 {counter}, {self.rng.choice([0, 0, 1, 2])};")
        known = len(self.values)
        self.lines.append(f"{label}:")
        self.values += [counter, moving]
        self.store()
        if self.rng.random() < 0.5:
            self.step(_INDICES)
        if self.rng.random() < 0.5:
            self.store()
        del self.values[known:]
        self.emit(f"add.s32 {moving}, {moving}, {step};")
        self.emit(f"add.s32 {counter}, {counter}, {self.rng.choice([1, 1, 2])};")
        self.emit(f"setp.lt.u32 {test}, {counter}, {bound};")
        self.emit(f"@{test} bra {label};")
        self.values.append(counter)

    def begin(self) -> None:
        """The numbers of the thread and of the CTA, and the buffers."""
        for name in ("%tid.x", "%ctaid.y", "%ctaid.z", "%ctaid.x"):
            self.compute("mov.u32", name)
        self.emit("ld.param.u64 %rd1, [out];")
        self.emit("ld.param.u64 %rd2, [data];")

    def kernel(self, grid: tuple[int, int, int], block: tuple[int, int, int]) -> Kernel:
        """What was written, and a last store, with a launch."""
        self.store()
        body = "\n".join(self.lines)
        text = (
            ".version 8.0\n.target sm_80\n.address_size 64\n"
            ".visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide,"
            " .param .u32 a, .param .u32 b)\n{\n"
            f"    .reg .pred %p<{self.count + 1}>;\n    .reg .b32 %r<{self.count + 1}>;\n"
            f"    .reg .b64 %rd<{self.count + 1}>;\n{body}\n    ret;\n}}\n"
        )
        return Kernel(text, grid, block, (0, 0), 0)

    def step(self, kinds: tuple[str, ...]) -> None:
        getattr(self, self.rng.choice(kinds))()


_INDICES = (
    *("sum", "sum", "difference", "scaled", "quotient", "by_bits", "by_multiplying", "grouped"),
    *("bounded", "offset", "choice", "by_field", "signed_quotient"),
)
ALL = (*_INDICES, *_INDICES, "store", "store", "gather", "either", "skip", "loop", "loop")
GRIDS = [(40, 1, 1), (17, 5, 2), (7, 3, 4), (96, 2, 1), (5, 64, 1), (1, 1, 33), (61, 1, 3)]


@st.composite
def grid_kernels(draw: st.DrawFn, *, inside: bool = False) -> Kernel:
    """A kernel `k(out, data, wide, a, b)` with a launch of many CTAs."""
    writer = GridWriter(random.Random(draw(st.integers(0, 2**32))), inside=inside)
    writer.begin()
    for _ in range(draw(st.integers(2, 12))):
        writer.step(ALL)
    grid = draw(st.sampled_from(GRIDS))
    return writer.kernel(grid, draw(st.sampled_from([(1, 1, 1), (8, 1, 1), (33, 1, 1)])))


def loop_kernel(seed: int) -> Kernel:
    """A kernel of one loop, with as many rounds as a number of the CTA says."""
    rng = random.Random(f"rounds {seed}")
    writer = GridWriter(rng, inside=False, by_number=1)
    writer.begin()
    writer.loop()
    return writer.kernel(rng.choice([(5, 9, 2), (2, 40, 3), (40, 3, 1), (1, 7, 9)]), (1, 1, 1))
