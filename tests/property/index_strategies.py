"""Random kernels that compute indices from memory, bound them in every way, or nearly so, and use
them.

In: a random generator. Out: the text of `k(out, data)`; `out` points into the middle of its buffer,
which holds every index that the kernel may compute.
"""

from __future__ import annotations

from random import Random

HALF = 1 << 16
"""Bytes of `out` on either side of the pointer."""
WORDS = 256
_LOADS = {"u8": 1, "s8": 1, "u16": 2, "s16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8}
_TESTS = ("lt", "le", "gt", "ge", "eq", "ne")


class IndexWriter:
    """Lines of a kernel, and the registers of 32 and of 64 bits that hold numbers from data."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.lines: list[str] = []
        self.values: list[tuple[str, int]] = []
        self.predicates: list[str] = []
        self.count = 0

    def emit(self, *lines: str) -> None:
        self.lines += lines

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"%{kind}{self.count}"

    def constant(self) -> int:
        near = self.random.choice((0, 1, 7, 31, 32, 63, 100, 1 << 31, (1 << 32) - 4))
        return (near + self.random.randint(-2, 2)) & 0xFFFFFFFF

    def small(self) -> int:
        return self.random.choice((0, 1, 5, 31, 40, 64, 100)) + self.random.randint(0, 2)

    def load(self) -> None:
        """An index from memory: the same for all threads, one for each, or one for some."""
        kind = self.random.choice(list(_LOADS))
        bits = 64 if _LOADS[kind] == 8 else 32
        place = self.random.choice(("%same", "%own", "%some"))
        value = self.fresh("w" if bits == 64 else "r")
        self.emit(f"ld.global.{kind} {value}, [{place}+{8 * self.random.randint(0, 2)}];")
        self.values.append((value, bits))

    def value(self, bits: int) -> str:
        known = [name for name, width in self.values if width == bits]
        if known and self.random.random() < 0.9:
            # The newest are bounded most.
            return self.random.choice(known[-3:])
        name, width = self.random.choice(self.values)
        if width == bits:
            return name
        made = self.fresh("w" if bits == 64 else "r")
        if bits == 64:
            self.emit(f"cvt.{self.random.choice(('s64.s32', 'u64.u32'))} {made}, {name};")
        else:
            self.emit(f"cvt.u32.u64 {made}, {name};")
        self.values.append((made, bits))
        return made

    def compute(self) -> None:
        """One more number."""
        pick = self.random.choice
        bits = pick((32, 32, 64))
        first = self.value(bits)
        other = pick((self.value(bits), "%tid32" if bits == 32 else "%tid64"))
        sign = pick("su")
        made = self.fresh("w" if bits == 64 else "r")
        limit = self.small()
        self.emit(
            pick(
                (
                    f"min.{sign}{bits} {made}, {first}, {limit};",
                    f"max.{sign}{bits} {made}, {first}, {pick((0, limit))};",
                    f"and.b{bits} {made}, {first}, {pick((31, 63, 127, 0x7FFFFFE0, 2048))};",
                    f"add.s{bits} {made}, {first}, {pick((limit, -limit))};",
                    f"add.s{bits} {made}, {first}, {other};",
                    f"sub.s{bits} {made}, {first}, {other};",
                    f"mul.lo.s{bits} {made}, {first}, {pick((2, 3, 4, -1))};",
                    f"shl.b{bits} {made}, {first}, {pick((1, 3, 5))};",
                    f"shr.{sign}{bits} {made}, {first}, {pick((1, 5, bits - 12, bits - 1))};",
                    f"or.b{bits} {made}, {first}, {other};",
                    f"rem.u{bits} {made}, {first}, {limit + 1};",
                    f"div.{sign}{bits} {made}, {first}, {limit + 1};",
                    f"selp.b{bits} {made}, {first}, {pick((other, limit))}, {self.predicate()};",
                    f"selp.b{bits} {made}, {first}, {other}, {self.predicate()};",
                    f"min.s{bits} {made}, {first}, {other};",
                )
            )
        )
        self.values.append((made, bits))

    def compare(self) -> None:
        """One more predicate."""
        pick = self.random.choice
        bits = pick((32, 32, 64))
        first = self.value(bits)
        kind = f"{pick('su')}{bits}"
        against = pick((str(self.small()), str(self.small()), self.value(bits), "0"))
        made = self.fresh("p")
        test = pick(_TESTS[:4] * 3 + _TESTS)
        if self.predicates and self.random.random() < 0.3:
            joined = f"{pick(('and', 'or', 'xor'))}.{kind}"
            self.emit(f"setp.{test}.{joined} {made}, {first}, {against}, {self.predicate()};")
        else:
            self.emit(f"setp.{test}.{kind} {made}, {first}, {against};")
        self.predicates.append(made)

    def predicate(self) -> str:
        if not self.predicates or self.random.random() < 0.5:
            self.compare()
        name = self.random.choice(self.predicates[-3:])
        how = self.random.random()
        if how < 0.25 and len(self.predicates) > 1:
            made, other = self.fresh("p"), self.random.choice(self.predicates)
            self.emit(f"{self.random.choice(('and', 'or'))}.pred {made}, {name}, {other};")
            self.predicates.append(made)
            return made
        if how < 0.4:
            made = self.fresh("p")
            self.emit(f"not.pred {made}, {name};")
            self.predicates.append(made)
            return made
        return name

    def use(self, guard: str = "", moved: str = "") -> None:
        """An access of `out` at a number, which is made small if it may not be."""
        bits = self.random.choice((32, 64))
        index = self.value(bits)
        kept = self.fresh("w" if bits == 64 else "r")
        at, scaled = self.fresh("w"), self.fresh("w")
        # Numbers that wrap to within +-8191: they are themselves where they are bounded.
        self.emit(
            f"shl.b{bits} {kept}, {index}, {bits - 14};"
            if self.random.random() < 0.3
            else f"mov.b{bits} {kept}, {index};"
        )
        if "shl" in self.lines[-1]:
            self.emit(f"shr.s{bits} {kept}, {kept}, {bits - 14};")
        else:
            # Where the number itself is used, what is not small is not used at all.
            near, far = self.fresh("p"), self.fresh(kept[1])
            self.emit(
                f"add.s{bits} {far}, {kept}, 8000;",
                f"setp.lt.u{bits} {near}, {far}, 16000;",
            )
            if guard:
                self.emit(f"and.pred {near}, {near}, {guard.strip('@!')};")
            guard = f"@{near}"
        self.emit(
            f"mul.wide.s32 {scaled}, {kept}, 4;" if bits == 32 else f"shl.b64 {scaled}, {kept}, 2;",
            f"add.s64 {at}, %out, {scaled};",
        )
        if moved:
            self.emit(f"add.s64 {at}, {at}, {moved};")
        store = self.random.random() < 0.5
        data = self.fresh("r")
        self.emit(
            f"{guard} st.global.u32 [{at}], 7;"
            if store
            else f"{guard} ld.global.u32 {data}, [{at}];"
        )

    def block(self, depth: int) -> None:
        for _ in range(self.random.randint(1, 4)):
            how = self.random.random()
            known = len(self.values), len(self.predicates)
            if how < 0.15:
                self.load()
            elif how < 0.45:
                self.compute()
            elif how < 0.6:
                guard = self.predicate()
                self.use(f"@{self.random.choice(('', '!'))}{guard}")
            elif how < 0.75 and depth:
                label, guard = self.fresh("L")[1:], self.predicate()
                self.emit(f"@{self.random.choice(('', '!'))}{guard} bra {label};")
                self.block(depth - 1)
                del self.values[known[0] :], self.predicates[known[1] :]
                self.emit(f"{label}:")
            elif how < 0.85:
                guard = self.random.choice(("", "!")) + self.predicate()
                if self.random.random() < 0.7:
                    self.emit(f"@{guard} bra TRAP;")
                else:
                    self.use()
            elif depth:
                self.loop(depth)
            else:
                self.use()

    def loop(self, depth: int) -> None:
        """From a number or 0 up to another one, of which few bits count, by a step."""
        pick, emit = self.random.choice, self.emit
        bits = pick((32, 64))
        kind = "w" if bits == 64 else "r"
        at, end, moved, go = (self.fresh(k) for k in (kind, kind, "w", "p"))
        # An unsigned test of an end that may be negative would take forever.
        test = pick(("lt.s", "lt.s", "lt.u", "le.s"))
        masked = f"and.b{bits} {end}, {self.value(bits)}, 63;"
        clamped = f"min.{test[-1]}{bits} {end}, {self.value(bits)}, 40;"
        emit(pick((masked, clamped)))
        emit(pick((f"mov.b{bits} {at}, 0;", f"and.b{bits} {at}, {self.value(bits)}, 31;")))
        emit(f"mov.b64 {moved}, 0;")
        label = self.fresh("L")[1:]
        step = pick((1, 4, 8, 32))
        known = len(self.values), len(self.predicates)
        emit(f"{label}:")
        self.values.append((at, bits))
        self.use(moved=moved if self.random.random() < 0.5 else "")
        if self.random.random() < 0.3:
            self.block(depth - 1)
        change = self.random.random()
        if change < 0.1 and test[-1] == "s":
            emit(f"add.s{bits} {end}, {end}, -1;")
        elif change < 0.2:
            emit(f"and.b{bits} {end}, {self.value(bits)}, 63;")
        emit(f"add.s{bits} {at}, {at}, {step};", f"add.s64 {moved}, {moved}, {pick((4, 64))};")
        if self.random.random() < 0.2:
            emit(f"add.s{bits} {at}, {at}, {pick((1, step))};")
        emit(f"setp.{test}{bits} {go}, {at}, {end};", f"@{go} bra {label};")
        del self.values[known[0] :], self.predicates[known[1] :]
        self.values.append((at, bits))


def index_kernel(seed: int) -> str:
    """The text of a kernel."""
    writer = IndexWriter(Random(seed))
    for _ in range(writer.random.randint(1, 3)):
        writer.load()
    for _ in range(writer.random.randint(1, 4)):
        writer.block(2)
    writer.use()
    body = "\n    ".join(writer.lines)
    registers = "\n    ".join(
        f".reg .{kind} %{letter}<{writer.count + 1}>;"
        for letter, kind in (("r", "b32"), ("w", "b64"), ("p", "pred"))
    )
    return f""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 data)
{{
    {registers}
    .reg .b32 %tid32, %cta;
    .reg .b64 %out, %same, %own, %some, %tid64;
    ld.param.u64 %out, [out];
    ld.param.u64 %same, [data];
    mov.u32 %tid32, %tid.x;
    mov.u32 %cta, %ctaid.x;
    cvt.u64.u32 %tid64, %tid32;
    mad.wide.u32 %own, %tid32, 8, %same;
    mad.wide.u32 %some, %cta, 8, %same;
    {body}
    ret;
TRAP:
    trap;
}}
"""
