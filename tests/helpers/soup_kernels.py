"""Kernels that nobody would write: any instructions in any order, on a few registers.

In: a seed. Out: the text of a module with a kernel `kernel` and two functions. They are made of the
examples of opcodes (`tests/data/opcodes`) and of `tests/data/soup.txt`, on the same few registers,
so that anything flows anywhere: through parameters, arguments of calls, memory, loops, branches.
Nothing of it can run; it is for what is said of code (`tests/helpers/said.py`).
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tessera.ir.opcodes import SPECIAL_REGISTERS

T = TypeVar("T")

DATA = Path(__file__).parents[1] / "data"
HEAD = """.version 8.8
.target sm_90a
.address_size 64
.global .align 128 .b8 g[1024];
.global .align 8 .u64 table[4] = {g, generic(g)+4, 0, g};
.global .align 8 .u8 bytes[16] = {0xFF(g), 0xFF00(g), 0xFF0000(g), 0xFF000000(g),
  0xFF00000000(g), 0xFF0000000000(g), 0xFF000000000000(g), 0xFF00000000000000(g), 1};
.const .align 16 .b8 c[64];
.global .align 1 .b8 text[5] = {120, 61, 37, 100, 0};
.global .align 1 .b8 string[4] = {37, 115, 10, 0};
.extern .shared .align 16 .b8 dynamic[];
.extern .func (.param .b64 r) unknown(.param .b64 x, .param .b64 y);
.extern .func (.param .b64 r) vprintf(.param .b64 x, .param .b64 y);
.func (.param .b64 out) two(.param .b64 x, .param .b64 y);
"""
KERNEL = """.visible .entry kernel(
  .param .u64 x, .param .u64 y, .param .align 8 .b8 map[128], .param .u32 n, .param .f32 z)
"""
FUNCTION = ".func (.param .b64 out) NAME(.param .b64 x, .param .b64 y)\n"
PLACES = """{
  .reg .pred %p<3>; .reg .b8 %b<2>; .reg .b16 %h<2>; .reg .b32 %r<5>; .reg .f32 %f<3>;
  .reg .b64 %rd<5>; .reg .f64 %fd<2>; .reg .b128 %q<2>;
  .reg .f32 %u<8>, %v<8>; .reg .b32 %i<8>, %j<8>;
  .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar; .local .align 16 .b8 l[64];
"""
_ELEMENT = re.compile(r"(?<![%.\w])([uvij])\b")
POOLS = {"p": 3, "b": 2, "h": 2, "r": 5, "f": 3, "rd": 5, "fd": 2, "q": 2}
_REGISTER = re.compile(r"%(p|b|h|r|f|rd|fd|q)\d+\b")
# Not what names labels, functions or objects that are not there.
_OTHERS = re.compile(
    r"^(bra|brx|call|ret|exit|trap|tex|tld4|su|txq|istypep)|\b(a0|r0|k|callee|next|plain)\b"
)
_OF_KERNEL = re.compile(r"\b(map(\+\d+)?|n|z)\b")
_ONE_LINE = re.compile(r"(@\S+ )?[a-z][\w.:]*( [^;]*)?;$")
FIRST = (
    "ld.param.u64 %rd0, [x];",
    "ld.param.u64 %rd1, [y];",
    "ld.param.u32 %r0, [n];",
    "mov.u32 %r1, %tid.x;",
)
_TYPED = {"u32": "u32 %r0", "b32": "b32 %r0", "u64": "u64 %rd0", "pred": "pred %p0"}
SPECIAL = [
    f"mov.{_TYPED[one.type]}, {name}{'.' * bool(part)}{part};"
    for name, one in SPECIAL_REGISTERS.items()
    for part in one.components or [""]
]
LINES = {
    part.partition("]")[0]: part.partition("]")[2].strip().splitlines()
    for part in (DATA / "soup.txt").read_text("utf-8").split("\n[")[1:]
}
MATRICES = LINES.pop("fragments")
_REGISTERS = {"u8": "%h0", "u16": "%h0", "u32": "%r0", "f32": "%f0", "u64": "%rd0", "f64": "%fd0"}
_VARIABLES = {"": "g", ".global": "g", ".shared": "s", ".local": "l", ".const": "c"}
ACCESSES = [
    line
    for space, variable in _VARIABLES.items()
    for type, register in _REGISTERS.items()
    for at in (variable, f"{variable}+#", "%rd0", "%rd0+#", "#")
    for many, held in (("", register), (".v2", f"{{{register}, {register}}}"))
    for line in (
        f"ld{space}{many}.{type} {held}, [{at}];",
        *[f"st{space}{many}.{type} [{at}], {held};"] * (space != ".const"),
    )
]
ACCESSES += [
    f"{line}{space}.{do}.{type} {result}[{at}], {register};"
    for space in ("", ".global", ".shared")
    for type, register in (("u32", "%r0"), ("u64", "%rd0"))
    for at in (_VARIABLES[space], "%rd0", "%rd0+#")
    for do in ("add", "max")
    for line, result in (("atom", f"{register}, "), ("red", ""))
]
_TYPES = {"16": "%h0", "32": "%r0", "64": "%rd0"}
INTEGERS = [
    f"{name}.{sign}{bits} {register}, {register}, {other};"
    for name in ("add", "sub", "mul.lo", "mul.hi", "min", "max", "div", "rem")
    for sign in "us"
    for bits, register in _TYPES.items()
    for other in (register, "#", "~")
]
INTEGERS += [
    f"{name}.b{bits} {register}, {register}, {other};"
    for name in ("and", "or", "xor", "shl")
    for bits, register in _TYPES.items()
    for other in ("%r0" if name == "shl" else register, "#", *["~"] * (name != "shl"))
]
INTEGERS += [
    f"cvt.{sign}{to}.{other}{given} {_TYPES[to]}, {_TYPES[given]};"
    for sign in "us"
    for other in "us"
    for to in _TYPES
    for given in _TYPES
]
WIDE = (-1, -4, 3, 31, 63, 127, 255, 32767, 2**31 - 1, 2**31)


@functools.cache
def examples() -> tuple[str, ...]:
    """The examples of opcodes that need nothing but registers, parameters and variables."""
    return tuple(
        line.strip().replace("[pointer", "[x")
        for path in sorted((DATA / "opcodes").glob("sm_90*.ptx"))
        for line in path.read_text("utf-8").splitlines()
        if _ONE_LINE.match(line.strip()) and not _OTHERS.search(line.strip())
    )


def soup_kernel(seed: int, *, loops: bool = True, runs: bool = False) -> str:
    """The text of a module; with loops, some never end. `runs`: the CPU backend has all of it."""
    return _Soup(seed, loops, runs).module()


class _Soup:
    """A module of a few kinds of lines, and a few lines of each: then one odd line is alone."""

    def __init__(self, seed: int, loops: bool, runs: bool) -> None:
        self.draw = random.Random(f"soup {seed}")
        self.ways = ("past", "past", "end", *["loop", "count"] * loops)
        few = self.draw.choice((0.15, 0.4, 1))
        kinds = [given for name, given in LINES.items() if not runs or name != "calls"]
        kinds += [ACCESSES, INTEGERS, *([] if runs else [examples(), SPECIAL])]
        lines = [self.some(given, few) for given in kinds]
        self.lines = self.some(lines, self.draw.choice((0.4, 0.7, 1)))
        self.matrices = self.some(MATRICES, self.draw.choice((0.4, 1)))
        self.pools = {name: self.draw.choice((2, count)) for name, count in POOLS.items()}
        self.labels = 0

    def some(self, given: Sequence[T], share: float) -> Sequence[T]:
        """About that share of what is given, at least one."""
        return [one for one in given if self.draw.random() < share] or [self.draw.choice(given)]

    def module(self) -> str:
        """The text."""
        parts = [HEAD]
        for name in ("one", "two"):
            body = _OF_KERNEL.sub("x", self.body(self.draw.choice((0, 1, 3, 5)), 0))
            end = f"st.param.b64 [out], {self.filled('%rd0')};\n  ret;\n}}"
            parts += [FUNCTION.replace("NAME", name), body.replace("ret;\n}", end)]
        matrices = self.draw.choice((0, 0, 0, 0.7))
        parts += [KERNEL, self.body(self.draw.choice((3, 6, 12, 20)), matrices)]
        return "".join(parts)

    def body(self, count: int, matrices: float) -> str:
        """Some lines, and branches across them."""
        lines = [line for line in FIRST if self.draw.random() < 0.8]
        for _ in range(count):
            lines += self.more(matrices)
        for _ in range(self.draw.choice((0, 0, 1, 2, 4))):
            self.branch(lines)
        return "".join([PLACES, *(f"  {line}\n" for line in lines), "  ret;\n}\n"])

    def more(self, matrices: float) -> list[str]:
        """A line, or one for each register of a fragment."""
        if self.draw.random() >= matrices:
            line = self.filled(self.draw.choice(self.draw.choice(self.lines)))
            return [line if self.draw.random() < 0.85 or line[0] in "@{" else self.guard() + line]
        line = self.draw.choice(self.matrices)
        for letter in "UVIJ":
            every = ", ".join(f"%{letter.lower()}{n}" for n in range(8))
            line = re.sub(rf"\b{letter}\b", f"{{{every}}}", line)
        numbers = range(8) if self.draw.random() < 0.7 else [self.draw.randrange(8)]
        if not _ELEMENT.search(line):
            numbers = range(1)
        line = self.filled(line)
        return [_ELEMENT.sub(rf"%\g<1>{n}", line).replace("$", str(4 * n)) for n in numbers]

    def guard(self) -> str:
        """A guard."""
        return f"@{self.draw.choice(('', '!'))}%p{self.draw.randrange(self.pools['p'])} "

    def branch(self, lines: list[str]) -> None:
        """A way past some lines, a loop around them, one that counts, or an end in the middle."""
        self.labels += 1
        label, draw = f"L{self.labels}", self.draw
        first, last = sorted(draw.randrange(len(lines) + 1) for _ in range(2))
        guard = self.guard() if draw.random() < 0.9 else ""
        match draw.choice(self.ways):
            case "past":
                new = ([f"{guard}bra {label};"], [f"{label}:"])
            case "loop":
                new = ([f"{label}:"], [f"{guard}bra {label};"])
            case "count":
                compare = (
                    f"setp.{draw.choice(('lt', 'ne'))}.u32 %p0, %r0, {draw.choice(('%r1', 9))};"
                )
                new = (
                    ["mov.u32 %r0, 0;", f"{label}:"],
                    [f"add.u32 %r0, %r0, {draw.choice((1, 3))};", compare, f"@%p0 bra {label};"],
                )
            case _:
                new = ([], [guard + draw.choice(("exit;", "trap;", "ret;"))])
        lines[last:last] = new[1]
        lines[first:first] = new[0]

    def filled(self, line: str) -> str:
        """A line with registers, numbers and addresses of its own."""
        draw = self.draw
        number = draw.choice((0, 0, 0, 1, 4, 8, 12, 16))
        base = draw.choice(("%rd0", "%rd0", "%rd0", "g"))
        line = line if line[0] == "@" else line.replace("@", f"{base}+{number}")
        self.labels += 1
        line = line.replace("~", str(draw.choice(WIDE)))
        line = re.sub(r"\bproto\b", f"proto{self.labels}", line.replace("#", str(number)))
        return _REGISTER.sub(lambda m: f"%{m[1]}{draw.randrange(self.pools[m[1]])}", line)


def soup_trace(seed: int) -> str:
    """The text of a trace: the module, launched after a copy and before a fill."""
    draw = random.Random(f"launch {seed}")
    grid, block = (
        draw.choice(("1,1,1", "3,2,1", "4,1,1")),
        draw.choice(("32,1,1", "33,2,1", "8,2,2")),
    )
    cluster = " cluster=2,1,1" if grid[0] == "4" and draw.random() < 0.5 else ""
    map_bytes = bytes(draw.choice((0, 1, 8)) for _ in range(128)).hex()
    pointers = draw.choice(("", "@{8:x+16}", "@{0:y,16:x}"))
    given = f"y+{draw.choice((0, 8))}, b8[128]:{map_bytes}{pointers}, u32:{draw.choice((0, 5, 40))}"
    role = ("state", "temp", "output")
    buffers = "".join(
        f"//! buffer {name} bytes={draw.choice((64, 4096))} role={draw.choice(role)}\n"
        for name in "xy"
    )
    return (
        f"//! tessera.trace 1\n{buffers}//! module m\n{soup_kernel(seed, loops=False)}"
        f"//! memset y bytes=64 value=1\n//! launch m.kernel grid={grid} block={block}{cluster} "
        f"args=[x, {given}, f32:1.0]\n//! memcpy x y bytes=64\n"
    )
