"""Random oracle kernels: seeded programs over pointers that alias, meet, part and come back.

In: a seed. Out: a source. A program is a few statements that make pointers (`q0`, `q1`, ...) by
every means that C has, and statements that load and store through them. The generator keeps track
of where each pointer should point, only so that most programs are cases; the host is the judge,
and refuses the others (they race, or leave a buffer).
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass

from tests.oracle.subset import Argument, At, Buffer, Source, Struct, Value, Word

PRELUDE = """struct pack { u32 *row[4]; u32 number[4]; };
struct bits { u32 a : 5; u32 b : 11; u32 c : 16; };
union word { u32 *p; u64 n; struct { u32 lo, hi; } h; };
NOINLINE u32 *pick(u32 *a, u32 *b, u32 c) { return c ? a : b; }
NOINLINE u64 gap(u64 a, u64 b) { return b - a; }
NOINLINE u32 mix(u32 a, u32 b) { a ^= b << 7; a *= 2654435761u; return a ^ (a >> 15); }
"""
SIZE = 1024
STEP = 128  # bytes that one use of a pointer by all threads takes at least


@dataclass(frozen=True, slots=True)
class Known:
    """A C expression of type `u32 *`, and the byte that it should point at."""

    text: str
    buffer: int
    offset: int


class Program:
    """One random program as it grows."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"oracle {seed}")
        self.lines: list[str] = []
        self.known: list[Known] = []
        self.numbers = ["n", "T"]
        self.count = 0
        self.block = self.random.choice([(32, 1, 1), (32, 1, 1), (8, 4, 1), (20, 1, 1), (1, 1, 1)])
        self.may_wait = True  # until some threads have left

    def name(self, start: str) -> str:
        """A new name."""
        self.count += 1
        return f"{start}{self.count}"

    def choose(self, values: list[Known]) -> Known:
        return self.random.choice(values)

    def number(self) -> str:
        """An expression of type u32."""
        r = self.random
        kind = r.randrange(10)
        one = r.choice(self.numbers)
        if kind < 4:
            return one
        if kind == 4:
            return str(r.randrange(1 << r.choice([3, 8, 31])))
        other = r.choice(self.numbers)
        if kind == 5:
            return f"mix({one}, {other})"
        if kind == 6:
            width = r.choice(["u8", "i8", "u16", "i16", "u64", "i64", "i32"])
            return f"(u32)(({width}){one} {r.choice('+-*^')} ({width}){other})"
        if kind == 7:
            return f"({one} >> ({other} & 31))"
        return f"({one} {r.choice(['+', '-', '*', '^', '&', '|'])} {other})"

    def condition(self) -> str:
        """By the launch, by the thread, or by data."""
        r = self.random
        return r.choice(
            [
                f"n > {r.randrange(8)}",
                f"(T & {r.choice([1, 2, 4, 16])})",
                f"(s[{r.randrange(8)}] & 1)",
                "(s[T] & 1)",
                f"({self.number()} & 1)",
                f"{self.number()} < {self.number()}",
                f"T < {r.randrange(33)}",
            ]
        )

    def shift(self) -> int:
        """A move in bytes, by whole steps of the threads' own bytes."""
        return self.random.choice([-2, -1, 0, 1, 2, 3]) * STEP

    def fresh(self, text: str, like: Known, moved: int = 0) -> None:
        """Name a pointer that was made."""
        name = self.name("q")
        self.lines.append(f"u32 *{name} = {text};")
        self.known.append(Known(name, like.buffer, like.offset + moved))

    def make_pointer(self) -> None:
        """One more pointer, by any means."""
        makers = [
            self.move,
            self.difference,
            self.difference,
            self.choice,
            self.number_and_back,
            self.halves,
            self.union,
            self.array,
            self.multiple,
            self.xor,
            self.from_table,
            self.from_struct,
            self.call,
            self.walk,
            self.pingpong,
            self.staged,
            self.switch,
            self.kept,
        ]
        if not self.may_wait:
            makers = [m for m in makers if m not in (self.staged, self.kept)]
        self.random.choice(makers)()

    def move(self) -> None:
        p, by = self.choose(self.known), self.shift()
        form = self.random.choice(["{p} + {w}", "(u32 *)((char *){p} + {b})", "&{p}[{w}]"])
        self.fresh(form.format(p=p.text, w=by // 4, b=by), p, by)

    def difference(self) -> None:
        """`p + (q - r)` with `r` in the buffer of `p` or of `q`."""
        p, q = self.choose(self.known), self.choose(self.known)
        r = self.choose([k for k in self.known if k.buffer in (p.buffer, q.buffer)])
        rest = q if r.buffer == p.buffer else p
        other = p if rest is q else q
        form = self.random.choice(
            [
                "{p} + ({q} - {r})",
                "(u32 *)((u64){p} + (u64){q} - (u64){r})",
                "(u32 *)((u64){p} - ((u64){r} - (u64){q}))",
                "(u32 *)((u64){p} + gap((u64){r}, (u64){q}))",
                "(u32 *)((char *){p} + ((char *){q} - (char *){r}))",
            ]
        )
        text = form.format(p=p.text, q=q.text, r=r.text)
        self.fresh(text, Known("", rest.buffer, rest.offset + other.offset - r.offset))

    def choice(self) -> None:
        """A condition decides; what follows holds for both only if they point alike."""
        p = self.choose(self.known)
        q = self.choose([k for k in self.known if k.text != p.text])
        c = self.condition()
        form = self.random.choice(
            [
                "{c} ? {p} : {q}",
                "{p} + ({c} ? {q} - {p} : 0)",
                "(u32 *)((u64){p} + (u64)({c} ? 1 : 0) * ((u64){q} - (u64){p}))",
                "(u32 *)((u64){p} ^ (((u64){p} ^ (u64){q}) & (0 - (u64)({c} ? 1 : 0))))",
                "pick({q}, {p}, {c} ? 1 : 0)",
            ]
        )
        self.fresh(form.format(p=p.text, q=q.text, c=c), p)

    def number_and_back(self) -> None:
        p, by = self.choose(self.known), self.shift()
        name = self.name("x")
        self.lines.append(f"u64 {name} = (u64){p.text};")
        self.lines.append(f"{name} = {name} * 2 - {name} + {by};")
        self.fresh(f"(u32 *){name}", p, by)

    def halves(self) -> None:
        p = self.choose(self.known)
        lo, hi = self.name("l"), self.name("h")
        self.lines.append(f"u32 {lo} = (u32)(u64){p.text}, {hi} = (u32)((u64){p.text} >> 32);")
        self.fresh(f"(u32 *)(((u64){hi} << 32) {self.random.choice('|+^')} {lo})", p)

    def union(self) -> None:
        p = self.choose(self.known)
        name = self.name("both")
        self.lines.append(f"union word {name}; {name}.p = {p.text};")
        read = self.random.choice(
            [f"{name}.n", f"((u64){name}.h.hi << 32 | {name}.h.lo)", f"{name}.p"]
        )
        self.fresh(f"(u32 *){read}", p)

    def array(self) -> None:
        rows = [self.choose(self.known) for _ in range(4)]
        name = self.name("r")
        self.lines.append(f"u32 *{name}[4] = {{{', '.join(k.text for k in rows)}}};")
        index = self.random.choice(["n & 3", "T & 3", f"s[{self.random.randrange(4)}] & 3", "2"])
        self.fresh(f"{name}[{index}]", rows[2])

    def multiple(self) -> None:
        p = self.choose(self.known)
        q = self.choose([k for k in self.known if k.buffer == p.buffer])
        times = self.random.randrange(2, 5)
        text = f"(u32 *)((u64){p.text} * {times} - (u64){q.text} * {times - 1})"
        self.fresh(text, Known("", p.buffer, p.offset * times - q.offset * (times - 1)))

    def xor(self) -> None:
        p, q = self.choose(self.known), self.choose(self.known)
        name = self.name("x")
        self.lines.append(f"u64 {name} = (u64){p.text} ^ (u64){q.text};")
        self.fresh(f"(u32 *)({name} ^ (u64){q.text})", p)

    def from_table(self) -> None:
        r = self.random
        row = r.randrange(4)
        form = r.choice(
            [
                "t[{i}]",
                "(u32 *)((u64 *)t)[{i}]",
                "*(t + ({i}))",
                "(u32 *)(((u64)((u32 *)t)[2 * ({i}) + 1] << 32) | ((u32 *)t)[2 * ({i})])",
            ]
        )
        if r.random() < 0.3:
            self.fresh(form.format(i=r.choice(["T & 3", "s[0] & 3", "n & 3"])), self.rows[row])
        else:
            self.fresh(form.format(i=row), self.rows[row])

    def from_struct(self) -> None:
        row = self.random.randrange(4)
        index = self.random.choice([str(row), str(row), "BX & 3", "T & 3", "z.number[0] & 3"])
        self.fresh(f"z.row[{index}]", self.fields[row])

    def call(self) -> None:
        p, q = self.choose(self.known), self.choose(self.known)
        self.fresh(f"pick({p.text}, {q.text}, {self.random.choice(['1', 'n', 'T & 1', '0'])})", p)

    def walk(self) -> None:
        """A pointer that a loop moves; the trip count is fixed, an argument or data."""
        p, name = self.choose(self.known), self.name("w")
        trips = self.random.choice(["2", "n & 3", "(s[1] & 3)", "(T & 1)"])
        self.lines.append(
            f"u32 *{name} = {p.text}; for (u32 i = 0; i < {trips}; i++) {name} += {STEP // 4};"
        )
        self.known.append(Known(name, p.buffer, p.offset))

    def pingpong(self) -> None:
        p, q = self.choose(self.known), self.choose(self.known)
        one, two = self.name("g"), self.name("g")
        trips = self.random.choice(["2", "3", "n", "(s[2] & 3)"])
        self.lines.append(
            f"u32 *{one} = {p.text}, *{two} = {q.text}; for (u32 i = 0; i < {trips}; i++) "
            f"{{ u32 *x = {one}; {one} = {two}; {two} = x; }}"
        )
        self.known.append(Known(one, p.buffer, p.offset))
        self.known.append(Known(two, q.buffer, q.offset))

    def staged(self) -> None:
        """Through shared memory: the thread's own slot, or one that the first thread fills."""
        p, name = self.choose(self.known), self.name("h")
        own = self.random.random() < 0.5
        slot = "T" if own else "0"
        store = f"{name}[{slot}] = {p.text};"
        self.lines.append(f"SHARED u32 *{name}[32];")
        self.lines.append(store if own else f"if (T == 0) {store}")
        self.lines.append("SYNC();")
        self.fresh(f"{name}[{slot}]", p)

    def kept(self) -> None:
        """Through a word of the table in memory, which this launch overwrites."""
        p = self.choose(self.known)
        word = self.random.randrange(8)
        self.lines.append(f"SYNC(); if (T == 0) t[{word}] = {p.text}; SYNC();")
        if word < 4:
            self.rows[word] = Known("", p.buffer, p.offset)
        self.fresh(f"t[{word}]", p)

    def leave(self) -> None:
        """Some threads end here."""
        self.lines.append(f"if ({self.condition()}) return;")
        self.may_wait = False

    def switch(self) -> None:
        ways = [self.choose(self.known) for _ in range(3)]
        name = self.name("v")
        what = self.random.choice(["n & 3", "T & 3", "s[3] & 3"])
        self.lines.append(
            f"u32 *{name}; switch ({what}) {{ case 0: {name} = {ways[0].text}; break; case 1: "
            f"{name} = {ways[1].text}; break; default: {name} = {ways[2].text}; }}"
        )
        self.known.append(Known(name, ways[2].buffer, ways[2].offset))

    def use(self) -> None:
        """Load or store through a pointer that points inside."""
        inside = [k for k in self.known if 0 <= k.offset <= SIZE - 2 * STEP]
        if not inside:
            return
        p, r = self.choose(inside[-3:] if self.random.random() < 0.7 else inside), self.random
        kind = r.choice([0, 0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 12, 12, 12, 12, 12])
        line = {
            0: f"{p.text}[T] = {self.number()};",
            1: f"{p.text}[T] += {self.number()} | 1;",
            2: f"if ({self.condition()}) {p.text}[T] = {self.number()};",
            3: f"((u8 *){p.text})[4 * T + {r.randrange(4)}] = (u8){self.number()};",
            4: f"((i16 *){p.text})[2 * T + {r.randrange(2)}] = (i16){self.number()};",
            5: f"if (!(T & 1)) *(struct pair *)({p.text} + T) = *(struct pair *)(s + T);",
            6: f"for (u32 i = 0; i < (s[{r.randrange(8)}] & 3); i++) {p.text}[T] = i;",
            7: f"if (T < {r.randrange(33)}) {p.text}[T] = {self.number()};",
            8: f"if (!(T & 3)) *(struct quad *)({p.text} + T) = *(struct quad *)(s + T);",
            9: f"((struct bits *){p.text})[T].{r.choice('abc')} = {self.number()};",
            10: f"ATOMIC_{r.choice(['ADD', 'XOR', 'MAX', 'OR'])}"
            f"({p.text} + {r.choice(['T', '0'])}, {self.number()});",
            11: f"for (u32 i = 0; i < 3; i++) for (u32 j = 0; j < ((s[i] >> j) & 3); j++) "
            f"{p.text}[T] = i * 4 + j;",
        }.get(kind)
        if line is not None:
            self.lines.append(line)
            return
        name = self.name("d")
        own = [
            f"{p.text}[T]",
            f"((u8 *){p.text})[4 * T + {r.randrange(4)}]",
            f"(u32)((i16 *){p.text})[2 * T + {r.randrange(2)}]",
            f"s[{self.number()} & 31]",
        ]
        # Bytes of other threads: a race if one of them writes there.
        shared = [
            f"{p.text}[{r.randrange(8)}]",
            f"{p.text}[{self.number()} & 15]",
            f"(u32)(((u64 *){p.text})[T >> 1] >> 9)",
        ]
        load = r.choice(own if r.random() < 0.85 else shared)
        if self.block == (32, 1, 1) and self.may_wait and r.random() < 0.2:
            load = f"SHFL_XOR({self.number()}, {r.choice([1, 4, 16])})"
        self.lines.append(f"u32 {name} = {load};")
        self.numbers.append(name)

    def source(self, name: str) -> Source:
        """The whole of it."""
        r = self.random
        count = r.randrange(2, 5)
        buffers = [Buffer(f"b{i}", SIZE) for i in range(count)]
        places = [
            At(r.randrange(count), STEP * r.randrange(1, 5)) for _ in range(r.randrange(3, 6))
        ]
        self.rows = [Known("", p.buffer, p.offset) for p in (r.choice(places) for _ in range(4))]
        self.fields = [Known("", p.buffer, p.offset) for p in (r.choice(places) for _ in range(4))]
        self.known = [Known(f"p{i}", at.buffer, at.offset) for i, at in enumerate(places)]
        for _ in range(r.randrange(2, 7)):
            self.make_pointer()
            if r.random() < 0.5:
                self.use()
            if r.random() < 0.05:
                self.leave()
        for _ in range(r.randrange(2, 5)):
            self.use()
        # What was loaded is kept, or else a compiler leaves the loads out.
        for number in self.numbers[2:]:
            self.lines.append(f"o[T] = mix(o[T], {number});")
        table, reads = count, count + 1
        buffers += [Buffer("t", 64), Buffer("s", 256), Buffer("o", 128)]
        struct_words = tuple(Word(8 * i, At(k.buffer, k.offset)) for i, k in enumerate(self.fields))
        args: list[Argument] = [
            *places,
            At(table),
            At(reads),
            At(reads + 1),
            Struct(bytes(32) + struct.pack("<4I", 1, 2, 3, 5), struct_words),
            Value("u32", r.randrange(6)),
        ]
        params = [
            *(("u32 *", f"p{i}") for i in range(len(places))),
            ("u32 **", "t"),
            ("u32 *", "s"),
            ("u32 *", "o"),
            ("struct pack", "z"),
            ("u32", "n"),
        ]
        return Source(
            name=name,
            family="random",
            params=tuple(params),
            args=tuple(args),
            body="u32 T = TY * BDX + TX;\n" + "\n".join(self.lines),
            block=self.block,
            prelude=PRELUDE,
            buffers=tuple(buffers),
            tables=tuple(
                (table, Word(8 * i, At(k.buffer, k.offset))) for i, k in enumerate(self.rows)
            ),
        )


def source(seed: int) -> Source:
    """The program of a seed."""
    return Program(seed).source(f"random_{seed}")


def sources(count: int = 200, start: int = 0) -> list[Source]:
    """Programs of consecutive seeds."""
    return [source(seed) for seed in range(start, start + count)]
