"""Random kernels of what compilers seldom write: tangled ways, calls, places of variables.

In: a seed. Out: a `Kernel` whose accesses stay inside its buffers, whatever way its threads take.
Its code is a few blocks that lead anywhere, also into the middle of loops, until a counter ends
them; registers that are written on some ways only; functions that end threads, or are given one
variable as argument and result; and indices made of bits of addresses of variables. All of it is
small, so that one odd thing decides what is stored.
"""

from __future__ import annotations

import random

from tests.property.kernel_strategies import Kernel

HEAD = """.version 8.0
.target sm_80
.address_size 64
FUNCTIONS
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<16>;
    .local .align 4 .b8 first[4];
    .local .align ALIGN .b8 held[16];
    ld.param.u64 %rd1, [out];
    ld.param.u64 %rd2, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.s32 %r3, %r2, 5, %r1;
    and.b32 %r3, %r3, 63;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd2, %rd3;
    ld.global.u32 %r4, [%rd4];
    mov.u32 %r9, 0;
"""
# Threads end here if data says so, some calls deep; or in the caller's place.
LEAVES = """.func leaves(.param .b32 n, .param .b32 d)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [d];
    setp.eq.u32 %p1, %r2, 0;
    @%p1 exit;
    setp.eq.u32 %p2, %r1, 0;
    @%p2 ret;
    sub.u32 %r1, %r1, 1;
    { .param .b32 x; .param .b32 y; st.param.b32 [x], %r1; st.param.b32 [y], %r2;
      call.uni leaves, (x, y); }
    ret;
}
"""
# The result is written before the arguments are read for the last time.
MIXES = """.func (.param .b32 r) mixes(.param .b32 n, .param .b32 d)
{
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [n];
    add.u32 %r2, %r1, 3;
    st.param.b32 [r], %r2;
    ld.param.u32 %r1, [n];
    ld.param.u32 %r3, [d];
    xor.b32 %r2, %r1, %r3;
    st.param.b32 [r], %r2;
    ld.param.u32 %r1, [n];
    add.u32 %r2, %r2, %r1;
    st.param.b32 [r], %r2;
    ret;
}
"""
VARIABLES = ("%r10", "%r11", "%r12", "%r13")
COMPARISONS = ("eq.s32", "ne.s32", "lt.s32", "ge.s32", "lt.u32", "gt.u32")


class RareProgram:
    """One kernel as it grows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"rare {seed}")
        self.lines: list[str] = []
        self.functions = ""
        self.predicates = ["%p1"]

    def kernel(self) -> Kernel:
        """The whole of it, with a launch."""
        choose = self.random.choice
        for name in VARIABLES:
            if self.random.random() < 0.6:
                self.emit(f"mov.u32 {name}, {choose(('%r1', '%r4', '%r2', '3', '0'))};")
        self.compare("%p1")
        for _ in range(choose((0, 1, 1))):
            choose((self.place, self.leave, self.mix, self.halfway))()
        match choose(("tangle", "circle", "circle", "loop", "none", "none")):
            case "tangle":
                self.tangle(choose((2, 3, 3, 4, 5)))
            case "circle":
                self.circle()
            case "loop":
                self.wide_loop()
            case _:
                self.statements(choose((0, 1, 2, 4)))
        self.store()
        self.end()
        text = HEAD.replace("FUNCTIONS", self.functions).replace("ALIGN", choose(("4", "8")))
        text += "\n".join(self.lines) + "\n}\n"
        return Kernel(text, (choose((1, 2, 3)), 1, 1), (32, 1, 1), (0, 5), 0)

    def emit(self, *lines: str) -> None:
        """Write instructions."""
        self.lines += [f"    {line}" for line in lines]

    def guard(self, often: float = 0.3) -> str:
        """A guard, or none."""
        choose = self.random.choice
        named = f"@{choose(('', '!'))}{choose(self.predicates)} "
        return named if self.random.random() < often else ""

    def number(self) -> str:
        """An operand of 32 bits."""
        choose = self.random.choice
        return choose((*VARIABLES, "%r1", "%r4", str(choose((0, 1, 2, 5, 16, 31)))))

    def compare(self, result: str) -> None:
        """By data, by the thread, or by what was computed."""
        choose = self.random.choice
        left = choose(("%r4", "%r1", *VARIABLES))
        self.emit(f"{self.guard(0.1)}setp.{choose(COMPARISONS)} {result}, {left}, {self.number()};")

    def statements(self, count: int) -> None:
        """Some code without branches."""
        choose = self.random.choice
        for _ in range(count):
            variable = choose(VARIABLES)
            match choose(("compute", "compute", "set", "compare", "store", "load")):
                case "compute":
                    op = choose(("add.s32", "xor.b32", "sub.s32", "max.s32", "and.b32"))
                    self.emit(f"{self.guard()}{op} {variable}, {variable}, {self.number()};")
                case "set":
                    self.emit(f"{self.guard()}mov.u32 {variable}, {self.number()};")
                case "compare":
                    self.predicates.append(choose(("%p1", "%p2", "%p3")))
                    self.compare(self.predicates[-1])
                case "store":
                    self.store()
                case _:
                    self.address("%rd2")
                    self.emit(f"{self.guard()}ld.global.u32 {variable}, [%rd6];")

    def address(self, base: str, index: str = "") -> None:
        """A word of a buffer, by a variable or by the thread."""
        index = index or self.random.choice((*VARIABLES, *VARIABLES, "%r1"))
        self.emit(f"and.b32 %r20, {index}, 63;", "mul.wide.u32 %rd5, %r20, 4;")
        self.emit(f"add.s64 %rd6, {base}, %rd5;")

    def store(self, index: str = "") -> None:
        """A store to `out`."""
        self.address("%rd1", index)
        self.emit(f"{self.guard()}st.global.u32 [%rd6+{4 * self.random.randrange(9)}], %r1;")

    def tangle(self, count: int) -> None:
        """Blocks that lead to any of them, until the counter ends it."""
        choose = self.random.choice
        for block in range(count):
            self.lines.append(f"B{block}:")
            self.emit("add.s32 %r9, %r9, 1;", f"setp.gt.s32 %p7, %r9, {choose((3, 5, 8))};")
            self.emit("@%p7 bra OUT;")
            self.statements(choose((0, 1, 1, 2)))
            target = choose([*(f"B{n}" for n in range(count)), "OUT"])
            self.emit(f"{self.guard(0.85)}bra {target};")
        self.lines.append("OUT:")

    def circle(self) -> None:
        """A circle with two entries and three blocks, in which threads part more than once."""
        choose = self.random.choice
        names = ["%p1", "%p2", "%p3"]
        self.emit("and.b32 %r21, %r4, 1;", "setp.eq.u32 %p1, %r21, 0;")
        for name in names[1:]:
            self.emit(f"setp.lt.u32 {name}, %r1, {choose((0, 7, 16, 20, 31))};")
        self.predicates = names
        self.emit(f"{self.guard(0.9)}bra B;")
        self.lines.append("A:")
        self.emit("add.u32 %r9, %r9, 1;", f"setp.gt.u32 %p7, %r9, {choose((2, 3, 5))};")
        self.emit("@%p7 bra OUT;")
        for label, away in (("B", "C"), ("", "A"), ("C", "A")):
            self.lines.append(f"{label}:" if label else "")
            if label == "B":
                self.emit("add.u32 %r9, %r9, 1;")
            self.emit(f"@{choose(('', '!'))}{choose(names)} bra {away};")
            if label != "B":
                self.store("%r1") if choose((0, 1, 1)) else self.statements(1)
                self.emit("bra A;")
        self.lines.append("OUT:")

    def wide_loop(self) -> None:
        """A loop of many rounds, which a circle leads into and out of; then what it moves."""
        choose = self.random.choice
        most = choose((100, 150, 200))
        self.emit("ld.param.u32 %r16, [a];", "ld.param.u32 %r17, [b];", "mov.u32 %r10, 0;")
        self.emit(f"setp.ne.u32 %p1, {choose(('%r1', '%r16', '%r16', '%r17'))}, 0;")
        self.emit("mov.u32 %r11, 0;", f"@{choose(('', '!'))}%p1 bra B;")
        self.lines.append("A:")
        self.emit("add.u32 %r10, %r10, 1;", f"setp.lt.u32 %p2, %r10, {most};")
        self.emit(*choose((["@!%p2 bra B;", "bra A;"], ["@%p2 bra A;"])))
        self.lines.append("B:")
        self.emit(f"setp.ge.u32 %p3, %r10, {most // choose((1, 2))};")
        self.predicates = ["%p3"]
        self.store(choose(("%r10", "%r11")))
        self.emit(
            f"mov.u32 %r11, {choose((9, 40))};", f"setp.ge.u32 %p4, %r17, {choose((0, 3, 9))};"
        )
        self.emit("add.u32 %r9, %r9, 1;", "setp.gt.u32 %p5, %r9, 3;")
        if choose((0, 1)):
            self.emit("or.pred %p4, %p4, %p5;")
        else:
            self.emit("@%p5 bra OUT;")
        self.emit("@!%p4 bra A;")
        self.lines.append("OUT:")
        self.store("%r11")

    def end(self) -> None:
        """The end: some threads may leave before, or be about to trap, which none does."""
        choose = self.random.choice
        if choose((0, 1)):
            self.emit("ret;")
            return
        self.emit(f"{self.guard(0.9)}bra LAST;")
        self.store()
        self.emit("ret;")
        self.lines.append("LAST:")
        self.emit("and.b32 %r21, %r4, 3;", "setp.eq.u32 %p6, %r21, 7;")
        self.store()
        self.emit(choose(("@%p6 trap;", "ret;")))

    # --- odd values ------------------------------------------------------------------------

    def place(self) -> None:
        """Bits of where a variable lies."""
        choose = self.random.choice
        result = choose(VARIABLES)
        self.emit("mov.u64 %rd7, held;")
        by = choose(
            ("and.b64 %rd8, %rd7, 28;", "rem.u64 %rd8, %rd7, 32;", "shl.b64 %rd8, %rd7, 59;")
        )
        self.emit(by, "shr.u64 %rd9, %rd8, 2;" if "shl" not in by else "shr.u64 %rd9, %rd8, 59;")
        self.emit(f"cvt.u32.u64 {result}, %rd9;")
        self.store(result)

    def leave(self) -> None:
        """A call in which threads may end."""
        self.functions += "" if LEAVES in self.functions else LEAVES
        self.emit("{ .param .b32 x; .param .b32 y;")
        self.emit(f"st.param.b32 [x], {self.random.randrange(3)};", "st.param.b32 [y], %r4;")
        self.emit("call.uni leaves, (x, y); }")

    def mix(self) -> None:
        """A call whose result may take the place of an argument."""
        self.functions += "" if MIXES in self.functions else MIXES
        given, result = self.random.choice(VARIABLES), self.random.choice(VARIABLES)
        into = self.random.choice("xyz")
        self.emit("{ .param .b32 x; .param .b32 y; .param .b32 z;")
        self.emit(f"st.param.b32 [x], {given};", "st.param.b32 [y], %r1;")
        self.emit(f"call.uni ({into}), mixes, (x, y);", f"ld.param.b32 {result}, [{into}]; }}")
        self.store(result)

    def halfway(self) -> None:
        """A register that some threads do not write before it is read."""
        choose = self.random.choice
        self.emit(f"setp.eq.u32 %p2, {choose(('%r1', '%r4'))}, {choose((0, 3))};")
        number = choose((5, 40))
        if choose((0, 1)):
            self.emit(f"@%p2 mov.u32 %r14, {number};")
        else:
            self.emit("@%p2 bra OVER;", f"mov.u32 %r14, {number};")
            self.lines.append("OVER:")
        self.store("%r14")
