"""Random kernels that compute addresses from pointers, in every way that gives one in the end.

In: a source of random numbers. Out: the text of a kernel, and the arguments of its launch. Each
value is followed as a sum of buffers and an offset, so that the last steps can make an address
inside a buffer of any of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from tests.helpers.pointer_cases import kernel

SIZE = 4096
THREADS = 32


@dataclass(frozen=True, slots=True)
class Value:
    """A register: how often each buffer's address is in it, and the rest."""

    register: str
    counts: tuple[int, ...]
    offset: int


@dataclass(slots=True)
class PointerProgram:
    """A kernel as it is written."""

    random: Random
    arguments: tuple[tuple[int, int], ...]
    buffers: int
    lines: list[str] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    registers: int = 0
    words: int = 0

    def start(self) -> None:
        """The pointers that the kernel gets."""
        for place, (buffer, offset) in enumerate(self.arguments):
            counts = tuple(int(b == buffer) for b in range(self.buffers))
            self.values.append(Value(f"%p{place}", counts, offset))

    def new(self) -> str:
        """A 64-bit register."""
        self.registers += 1
        return f"%x{self.registers}"

    def word(self) -> str:
        """A 32-bit register."""
        self.words += 1
        return f"%w{self.words}"

    def emit(self, *lines: str) -> None:
        """Write instructions."""
        self.lines.extend(f"  {line}" for line in lines)

    # --- sums ------------------------------------------------------------------------------

    def combine(self, a: Value, b: Value, factor: int) -> Value:
        """a + factor * b."""
        register = self.new()
        if factor == 1:
            self.emit(f"add.s64 {register}, {a.register}, {b.register};")
        elif factor == -1:
            self.emit(f"sub.s64 {register}, {a.register}, {b.register};")
        elif factor == 2 and self.random.random() < 0.5:
            twice = self.new()
            self.emit(f"shl.b64 {twice}, {b.register}, 1;")
            self.emit(f"add.s64 {register}, {a.register}, {twice};")
        else:
            self.emit(f"mad.lo.s64 {register}, {b.register}, {factor}, {a.register};")
        counts = tuple(x + factor * y for x, y in zip(a.counts, b.counts, strict=True))
        return Value(register, counts, a.offset + factor * b.offset)

    def move(self, a: Value, distance: int) -> Value:
        """a plus a number."""
        register = self.new()
        self.emit(f"add.s64 {register}, {a.register}, {distance};")
        return Value(register, a.counts, a.offset + distance)

    # --- the same value, another way -------------------------------------------------------

    def carry(self, a: Value) -> Value:
        """The same value after a detour."""
        detours = (self.halves, self.shifts, self.swap_bits, self.permute, self.local, self.shuffle)
        return Value(self.random.choice(detours)(a), a.counts, a.offset)

    def hide(self, a: Value) -> Value:
        """The same value after a way on which the analysis follows no values."""
        ways = (self.carries, self.floats, self.reduction)
        return Value(self.random.choice(ways)(a), a.counts, a.offset)

    def halves(self, a: Value) -> str:
        """Cut in two and put together."""
        low, high, register = self.word(), self.word(), self.new()
        self.emit(f"mov.b64 {{{low}, {high}}}, {a.register};")
        self.emit(f"mov.b64 {register}, {{{low}, {high}}};")
        return register

    def shifts(self, a: Value) -> str:
        """The same by shifts."""
        high, low, register = self.new(), self.new(), self.new()
        self.emit(f"shr.u64 {high}, {a.register}, 32;", f"shl.b64 {high}, {high}, 32;")
        self.emit(f"and.b64 {low}, {a.register}, 0xFFFFFFFF;")
        self.emit(f"or.b64 {register}, {high}, {low};")
        return register

    def swap_bits(self, a: Value) -> str:
        """Exclusive or with another value, twice."""
        other = self.random.choice(self.values)
        between, register = self.new(), self.new()
        self.emit(f"xor.b64 {between}, {a.register}, {other.register};")
        self.emit(f"xor.b64 {register}, {between}, {other.register};")
        return register

    def permute(self, a: Value) -> str:
        """Bytes picked one by one."""
        low, high, one, two, register = *(self.word() for _ in range(4)), self.new()
        self.emit(f"mov.b64 {{{low}, {high}}}, {a.register};")
        self.emit(f"prmt.b32 {one}, {low}, {high}, 0x3210;")
        self.emit(f"prmt.b32 {two}, {low}, {high}, 0x7654;")
        self.emit(f"mov.b64 {register}, {{{one}, {two}}};")
        return register

    def local(self, a: Value) -> str:
        """Through local memory."""
        register, place = self.new(), 8 * self.random.randrange(4)
        self.emit(f"st.local.u64 [depot+{place}], {a.register};")
        self.emit(f"ld.local.u64 {register}, [depot+{place}];")
        return register

    def shuffle(self, a: Value) -> str:
        """From another thread, half by half; all have the same."""
        low, high, one, two, register = *(self.word() for _ in range(4)), self.new()
        if self.random.random() < 0.5:
            self.emit(f"mov.b64 {{{low}, {high}}}, {a.register};")
        else:
            self.emit(f"mov.b64 {{_, {high}}}, {a.register};", f"cvt.u32.u64 {low}, {a.register};")
        self.emit(f"shfl.sync.idx.b32 {one}, {low}, 3, 31, -1;")
        self.emit(f"shfl.sync.idx.b32 {two}, {high}, 3, 31, -1;")
        if self.random.random() < 0.5:
            self.emit(f"mov.b64 {register}, {{{one}, {two}}};")
        else:
            first, second = self.new(), self.new()
            self.emit(f"cvt.u64.u32 {first}, {one};", f"cvt.u64.u32 {second}, {two};")
            self.emit(f"shl.b64 {second}, {second}, 32;", f"or.b64 {register}, {first}, {second};")
        return register

    # --- ways that are not followed --------------------------------------------------------

    def carries(self, a: Value) -> str:
        """A sum of two halves with a carry."""
        low, high, one, two, register = *(self.word() for _ in range(4)), self.new()
        self.emit(f"mov.b64 {{{low}, {high}}}, {a.register};", f"add.cc.u32 {one}, {low}, 0;")
        self.emit(f"addc.u32 {two}, {high}, 0;", f"mov.b64 {register}, {{{one}, {two}}};")
        return register

    def floats(self, a: Value) -> str:
        """A float with enough digits, and back."""
        register = self.new()
        self.emit(f"cvt.rn.f64.s64 %float, {a.register};", f"cvt.rzi.s64.f64 {register}, %float;")
        return register

    def reduction(self, a: Value) -> str:
        """What all threads have, combined."""
        low, high, one, two, register = *(self.word() for _ in range(4)), self.new()
        self.emit(f"mov.b64 {{{low}, {high}}}, {a.register};")
        self.emit(f"redux.sync.or.b32 {one}, {low}, -1;", f"redux.sync.or.b32 {two}, {high}, -1;")
        self.emit(f"mov.b64 {register}, {{{one}, {two}}};")
        return register

    # --- ends ------------------------------------------------------------------------------

    def address(self, a: Value) -> Value:
        """An address inside a buffer, from any value."""
        target = self.random.randrange(self.buffers)
        if not any(buffer == target for buffer, _ in self.arguments):
            target = self.arguments[0][0]
        for place, (buffer, _) in enumerate(self.arguments):
            wanted = int(buffer == target)
            extra = wanted - a.counts[buffer]
            if extra:
                a = self.combine(a, Value(f"%p{place}", *self._argument(place)), extra)
        return self.move(a, 4 * self.random.randrange(SIZE // 8) - a.offset)

    def _argument(self, place: int) -> tuple[tuple[int, ...], int]:
        buffer, offset = self.arguments[place]
        return tuple(int(b == buffer) for b in range(self.buffers)), offset

    def choose(self, a: Value, b: Value) -> str:
        """One of two addresses, as data says: picked, or by their distance."""
        register = self.new()
        way = self.random.randrange(3)
        if way == 0:
            self.emit(f"selp.b64 {register}, {a.register}, {b.register}, %flag;")
            return register
        distance = self.combine(a, b, -1)
        picked = self.new()
        if way == 1:
            self.emit(f"selp.b64 {picked}, {distance.register}, 0, %flag;")
        else:
            self.emit(f"mul.lo.s64 {picked}, {distance.register}, %one;")
        self.emit(f"add.s64 {register}, {b.register}, {picked};")
        return register


def random_kernel(random: Random, name: str, *, hides: bool = False) -> tuple[str, str]:
    """A kernel and the arguments of its launch; buffers are `b0` and so on, the last a flag. If
    it hides, a distance between buffers goes a way on which the analysis follows no values."""
    buffers = random.randint(2, 4)
    arguments = tuple(
        (random.randrange(buffers), 4 * random.randrange(64)) for _ in range(random.randint(2, 4))
    )
    program = PointerProgram(random, arguments, buffers)
    program.start()
    for _ in range(random.randint(1, 6)):
        a, b = (random.choice(program.values) for _ in range(2))
        made = program.combine(a, b, random.choice((1, -1, -1, 2, -2, 3)))
        program.values.append(program.carry(made) if random.random() < 0.5 else made)
    if hides:
        a, b = (random.choice(program.values[: len(arguments)]) for _ in range(2))
        program.values = [program.hide(program.combine(a, b, -1))]
    ends = [program.address(random.choice(program.values)) for _ in range(2)]
    ends = [program.carry(end) if random.random() < 0.4 else end for end in ends]
    register = program.choose(*ends) if random.random() < 0.4 else ends[0].register
    place = len(arguments)
    registers = (
        f"  .reg .b64 %x<{program.registers + 1}>; .reg .b32 %w<{program.words + 1}>;\n"
        "  .reg .pred %flag; .reg .b64 %one; .reg .b64 %end; .reg .b32 %f;\n  .reg .f64 %float;\n"
        "  .local .align 8 .b8 depot[32];\n"
        f"  ld.global.u32 %f, [%p{place}];\n  setp.ne.u32 %flag, %f, 0;\n"
        "  selp.b64 %one, 1, 0, %flag;\n"
    )
    body = registers + "\n".join(program.lines)
    body += f"\n  add.s64 %end, {register}, %o;\n  st.global.u32 [%end], %t;"
    given = [f"b{buffer}+{offset}" for buffer, offset in arguments]
    return kernel(name, place + 1, body), ", ".join([*given, "flag"])
