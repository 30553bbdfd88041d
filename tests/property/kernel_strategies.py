"""Random kernels whose accesses stay inside their buffers, for tests of the analysis.

A kernel has three buffers: `out` and `data` of 256 words, and `wide` of 64 words of 8 bytes.
Indices are random integer expressions over thread indices, parameters, loop counters, loaded
words and earlier expressions, masked to the size of the buffer; control flow is structured and
always ends. The body comes from a seeded generator, since kernels must be long to be of use;
hypothesis draws the seed, the length and the launch.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import strategies as st

from tests.property import shared_strategies as shared

WORDS = 256
OPERATIONS = (
    "add.s32",
    "sub.s32",
    "mul.lo.s32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "min.s32",
    "max.s32",
    "min.u32",
    "max.u32",
    "mul.hi.u32",
    "mul.hi.s32",
    "div.u32",
    "rem.u32",
    "div.s32",
    "rem.s32",
    "shl.b32",
    "shr.u32",
    "shr.s32",
)
COMPARISONS = ("eq.s32", "ne.s32", "lt.s32", "le.s32", "gt.u32", "ge.u32", "lt.u32", "ge.s32")


@dataclass
class Writer:
    """The text of a kernel as it grows, and the registers that hold something."""

    lines: list[str] = field(default_factory=list)
    integers: list[str] = field(default_factory=list)
    predicates: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    count: int = 4
    size: int = 8
    linear: str = ""
    leaves: bool = False

    def fresh(self, kind: str) -> str:
        self.count += 1
        return f"%{kind}{self.count}"

    def emit(self, line: str) -> None:
        self.lines.append(f"    {line}")


@dataclass(frozen=True)
class Kernel:
    """A kernel and one launch of it."""

    text: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    scalars: tuple[int, int]
    offset: int


def kernel_text(rng: random.Random, size: int, *, through_shared: bool = False) -> str:
    """A kernel `k(out, data, wide, a, b)`; addresses may go through shared memory."""
    writer = Writer()
    for name in ("%tid.x", "%tid.y", "%ctaid.x", "%ctaid.y", "%ntid.x", "%laneid"):
        register = writer.fresh("r")
        writer.emit(f"mov.u32 {register}, {name};")
        writer.integers.append(register)
    for name in ("a", "b"):
        register = writer.fresh("r")
        writer.emit(f"ld.param.u32 {register}, [{name}];")
        writer.integers.append(register)
    for name, register in (("out", "%rd1"), ("data", "%rd2"), ("wide", "%rd3")):
        writer.emit(f"ld.param.u64 {register}, [{name}];")
    writer.emit("mov.u64 %rd4, stack;")
    for place in range(0, 32, 4):
        writer.emit(f"st.local.u32 [stack+{place}], {place};")
    for start in (0, 5):
        variable = writer.fresh("r")
        writer.emit(f"mov.u32 {variable}, {start};")
        writer.variables.append(variable)
    writer.integers += writer.variables
    writer.size = size
    if through_shared:
        shared.begin(rng, writer)
    _block(rng, writer, depth=0)
    _store(rng, writer, 0)
    body = "\n".join(writer.lines)
    return (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide,"
        " .param .u32 a, .param .u32 b)\n{\n"
        f"    .reg .pred %p<{writer.count + 1}>;\n    .reg .b32 %r<{writer.count + 1}>;\n"
        f"    .reg .b32 %v<{writer.count + 1}>;\n    .reg .b64 %rd<{writer.count + 5}>;\n"
        "    .local .align 8 .b8 stack[32];\n"
        f"{shared.DECLARATIONS if through_shared else ''}"
        f"{body}\n    ret;\n}}\n"
    )


@st.composite
def kernels(draw: st.DrawFn, through_shared: bool = False) -> Kernel:
    """Such a kernel with a launch."""
    rng = random.Random(draw(st.integers(0, 2**32)))
    text = kernel_text(rng, draw(st.integers(2, 20)), through_shared=through_shared)
    extents = st.sampled_from([(1, 1, 1), (2, 1, 1), (3, 2, 1)])
    blocks = st.sampled_from([(1, 1, 1), (32, 1, 1), (33, 1, 1), (16, 4, 1), (40, 1, 2)])
    scalars = st.one_of(st.integers(0, 40), st.sampled_from([2**31, 2**32 - 1, 255, 256]))
    return Kernel(
        text,
        draw(extents),
        draw(blocks),
        (draw(scalars), draw(scalars)),
        draw(st.sampled_from([0, 4, 256])),
    )


def _block(rng: random.Random, writer: Writer, depth: int) -> None:
    most = writer.size if depth == 0 else max(2, writer.size // 4)
    for _ in range(rng.randint(1, most)):
        kind = rng.choice(_KINDS if depth < 3 else _KINDS[:7])
        if writer.linear and rng.random() < 0.3:
            kind = rng.choice(shared.KINDS)
        kind(rng, writer, depth)


def _pick(rng: random.Random, names: list[str]) -> str:
    """Mostly one of the latest, so that long chains of operations reach an address."""
    return rng.choice(names[-5:] if rng.random() < 0.7 else names)


def _integer(rng: random.Random, writer: Writer) -> str:
    if rng.randint(0, 3) == 0:
        return str(rng.choice([0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 33, 127, -1, -4]))
    return _pick(rng, writer.integers)


def _arithmetic(rng: random.Random, writer: Writer, depth: int) -> None:
    result = writer.fresh("r")
    shape = rng.randint(0, 9)
    a, b = _pick(rng, writer.integers), _integer(rng, writer)
    if shape == 0:
        c = _integer(rng, writer)
        writer.emit(f"mad.lo.s32 {result}, {a}, {b}, {c};")
    elif shape == 1:
        start, length = rng.randint(0, 35), rng.randint(0, 35)
        sign = rng.choice("us")
        writer.emit(f"bfe.{sign}32 {result}, {a}, {start}, {length};")
    elif shape == 2 and writer.predicates:
        p = _pick(rng, writer.predicates)
        writer.emit(f"selp.b32 {result}, {a}, {b}, {p};")
    elif shape == 3:
        c = _integer(rng, writer)
        side, mode = rng.choice("lr"), rng.choice(["wrap", "clamp"])
        writer.emit(f"shf.{side}.{mode}.b32 {result}, {a}, {b}, {c};")
    elif shape == 4:
        table = rng.randint(0, 255)
        writer.emit(f"lop3.b32 {result}, {a}, {b}, {_integer(rng, writer)}, {table};")
    elif shape == 5:
        writer.emit(f"prmt.b32 {result}, {a}, {b}, {rng.randint(0, 0xFFFF)};")
    elif shape == 6:
        start, length = rng.randint(0, 35), rng.randint(0, 35)
        writer.emit(f"bfi.b32 {result}, {a}, {b}, {start}, {length};")
    else:
        operation = rng.choice(OPERATIONS)
        if operation.startswith(("div", "rem")):
            b = str(rng.choice([1, 2, 3, 5, 8, 31]))
        writer.emit(f"{operation} {result}, {a}, {b};")
    writer.integers.append(result)


def _compare(rng: random.Random, writer: Writer, depth: int) -> None:
    if rng.random() < 0.5:
        _load(rng, writer, depth)  # so that data decides
        a, b = writer.integers[-1], _integer(rng, writer)
    else:
        a, b = _pick(rng, writer.integers), _integer(rng, writer)
    result = writer.fresh("p")
    writer.emit(f"setp.{rng.choice(COMPARISONS)} {result}, {a}, {b};")
    writer.predicates.append(result)


def _address(
    rng: random.Random, writer: Writer, base: str, words: int, width: int, index_of: str = ""
) -> str:
    index, wide, address = writer.fresh("r"), writer.fresh("rd"), writer.fresh("rd")
    chosen = index_of or _pick(rng, writer.integers)
    writer.emit(f"and.b32 {index}, {chosen}, {words - 1};")
    writer.emit(f"mul.wide.u32 {wide}, {index}, {width};")
    first, second = (base, wide) if rng.random() < 0.5 else (wide, base)
    writer.emit(f"add.s64 {address}, {first}, {second};")
    return address


def _guard(rng: random.Random, writer: Writer) -> str:
    if not writer.predicates or rng.random() < 0.5:
        return ""
    negated = rng.choice(["", "!"])
    return f"@{negated}{_pick(rng, writer.predicates)} "


def _load(rng: random.Random, writer: Writer, depth: int) -> None:
    address = _address(rng, writer, rng.choice(["%rd1", "%rd2"]), WORDS, 4)
    result = writer.fresh("r")
    writer.emit(f"mov.u32 {result}, 0;")
    writer.emit(
        f"{_guard(rng, writer) if rng.random() < 0.3 else ''}ld.global.u32 {result}, [{address}];"
    )
    writer.integers.append(result)


def _store(rng: random.Random, writer: Writer, depth: int) -> None:
    value = _pick(rng, writer.integers)
    if rng.randint(0, 3) == 0:
        address = _address(rng, writer, "%rd3", 64, 8)
        writer.emit(f"{_guard(rng, writer)}st.global.v2.u32 [{address}], {{{value}, {value}}};")
        return
    address = _address(rng, writer, "%rd1", WORDS, 4)
    writer.emit(f"{_guard(rng, writer)}st.global.u32 [{address}], {value};")


def _atomic(rng: random.Random, writer: Writer, depth: int) -> None:
    address = _address(rng, writer, "%rd1", WORDS, 4)
    value = _pick(rng, writer.integers)
    writer.emit(f"{_guard(rng, writer)}red.global.add.u32 [{address}], {value};")


def _if(rng: random.Random, writer: Writer, depth: int) -> None:
    if not writer.predicates or rng.random() < 0.6:
        _compare(rng, writer, depth)
    p = _pick(rng, writer.predicates)
    end = f"L{writer.fresh('l')[2:]}"
    known = len(writer.integers), len(writer.predicates)
    writer.emit(f"@{p} bra {end};")
    _block(rng, writer, depth + 1)
    del writer.integers[known[0] :], writer.predicates[known[1] :]
    if rng.random() < 0.5:
        middle, other = end, f"L{writer.fresh('l')[2:]}"
        writer.emit(f"bra {other};")
        writer.lines.append(f"{middle}:")
        _block(rng, writer, depth + 1)
        del writer.integers[known[0] :], writer.predicates[known[1] :]
        end = other
    writer.lines.append(f"{end}:")


def _loop(rng: random.Random, writer: Writer, depth: int) -> None:
    """`do { ... } while (++i < bound)` with a bound of at most 7, known or not."""
    counter, bound, test = writer.fresh("r"), writer.fresh("r"), writer.fresh("p")
    variable = writer.fresh("r")
    start = f"L{writer.fresh('l')[2:]}"
    if rng.random() < 0.4:
        _load(rng, writer, depth)
    writer.emit(f"and.b32 {bound}, {_pick(rng, writer.integers)}, 7;")
    writer.emit(f"mov.u32 {counter}, 0;")
    writer.emit(f"mov.u32 {variable}, {_integer(rng, writer)};")
    writer.lines.append(f"{start}:")
    known = len(writer.integers), len(writer.predicates)
    writer.integers += [counter, variable]
    _block(rng, writer, depth + 1)
    writer.emit(f"add.s32 {variable}, {variable}, {_integer(rng, writer)};")
    del writer.integers[known[0] :], writer.predicates[known[1] :]
    writer.emit(f"add.s32 {counter}, {counter}, 1;")
    writer.emit(f"setp.lt.u32 {test}, {counter}, {bound};")
    writer.emit(f"@{test} bra {start};")
    writer.integers.append(variable)


def _reassign(rng: random.Random, writer: Writer, depth: int) -> None:
    """Write a register that has a value already, so that ways have something to join."""
    variable = rng.choice(writer.variables)
    value = _integer(rng, writer)
    operation = rng.choice(["mov.u32", "add.s32", "xor.b32"])
    sources = value if operation == "mov.u32" else f"{variable}, {value}"
    writer.emit(f"{_guard(rng, writer)}{operation} {variable}, {sources};")
    if rng.random() < 0.5:
        address = _address(rng, writer, "%rd1", WORDS, 4, variable)
        writer.emit(f"st.global.u32 [{address}], {variable};")


def _local(rng: random.Random, writer: Writer, depth: int) -> None:
    """Words of local memory: stored by some threads, at known places or not, and loaded again."""
    place = rng.randrange(0, 32, 4)
    value = _pick(rng, writer.integers)
    if rng.random() < 0.6:
        writer.emit(f"{_guard(rng, writer)}st.local.u32 [stack+{place}], {value};")
    else:
        address = _address(rng, writer, "%rd4", 8, 4)
        writer.emit(f"{_guard(rng, writer)}st.local.u32 [{address}], {value};")
    if rng.random() < 0.3:
        half = writer.fresh("r")
        writer.emit(f"ld.local.u16 {half}, [stack+{rng.randrange(0, 32, 2)}];")
        writer.integers.append(half)
    result = writer.fresh("r")
    if rng.random() < 0.7:
        writer.emit(f"ld.local.u32 {result}, [stack+{rng.choice([place, 0, 4])}];")
    else:
        writer.emit(f"ld.local.u32 {result}, [{_address(rng, writer, '%rd4', 8, 4)}];")
    writer.integers.append(result)
    if rng.random() < 0.5:
        address = _address(rng, writer, "%rd1", WORDS, 4, result)
        writer.emit(f"{_guard(rng, writer)}st.global.u32 [{address}], {value};")


def _wide(rng: random.Random, writer: Writer, depth: int) -> None:
    """An index in 64 bits, and a store to it."""
    index = writer.fresh("rd")
    writer.emit(f"cvt.{rng.choice(['s64.s32', 'u64.u32'])} {index}, {_pick(rng, writer.integers)};")
    for _ in range(rng.randint(1, 3)):
        result = writer.fresh("rd")
        operation = rng.choice(
            [
                "add.s64",
                "sub.s64",
                "mul.lo.s64",
                "xor.b64",
                "shl.b64",
                "shr.s64",
                "shr.u64",
                "or.b64",
                "min.s64",
                "max.u64",
            ]
        )
        writer.emit(f"{operation} {result}, {index}, {rng.choice([1, 3, 5, 8, 33, 40])};")
        index = result
    masked, scaled, address = (writer.fresh("rd") for _ in range(3))
    writer.emit(f"and.b64 {masked}, {index}, {WORDS - 1};")
    writer.emit(f"shl.b64 {scaled}, {masked}, 2;")
    writer.emit(f"add.s64 {address}, {scaled}, %rd1;")
    value = _pick(rng, writer.integers)
    writer.emit(f"{_guard(rng, writer)}st.global.u32 [{address}], {value};")


def _either_way(rng: random.Random, writer: Writer, depth: int) -> None:
    """Stores at the same or at near addresses on both sides of a branch, or of a predicate."""
    if not writer.predicates or rng.random() < 0.7:
        _compare(rng, writer, depth)
    p = _pick(rng, writer.predicates)
    address = _address(rng, writer, "%rd3", 64, 8)
    value = _pick(rng, writer.integers)
    pair = f"st.global.v2.u32 [{address}], {{{value}, {value}}};"
    words = [f"st.global.u32 [{address}{shift}], {value};" for shift in ("", "+4")]
    sides = [[pair], words, words[:1], words[1:], []]
    first, second = rng.choice(sides), rng.choice(sides)
    if rng.random() < 0.4:
        guarded = [f"@{p} {line}" for line in first] + [f"@!{p} {line}" for line in second]
        rng.shuffle(guarded)
        for line in guarded:
            writer.emit(line)
            if rng.random() < 0.2:
                _block(rng, writer, depth=3)
            if rng.random() < 0.1:
                writer.emit(f"not.pred {p}, {p};")
        return
    other, end = (f"L{writer.fresh('l')[2:]}" for _ in range(2))
    writer.emit(f"@{p} bra {other};")
    for lines, last in ((first, f"bra {end};"), (second, "")):
        known = len(writer.integers), len(writer.predicates)
        for line in lines:
            writer.emit(line)
        if depth < 2 and rng.random() < 0.4:
            _block(rng, writer, depth + 1)
        del writer.integers[known[0] :], writer.predicates[known[1] :]
        if last:
            writer.emit(last)
            writer.lines.append(f"{other}:")
    writer.lines.append(f"{end}:")


def _leave(rng: random.Random, writer: Writer, depth: int) -> None:
    if writer.predicates:
        writer.emit(f"@{_pick(rng, writer.predicates)} ret;")
        writer.leaves = True


_KINDS = (
    _arithmetic,
    _arithmetic,
    _reassign,
    _compare,
    _load,
    _store,
    _atomic,
    _if,
    _if,
    _loop,
    _loop,
    _either_way,
    _either_way,
    _local,
    _local,
    _wide,
    _store,
    _leave,
)
