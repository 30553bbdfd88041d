"""Random kernels whose accesses stay inside their buffers, for tests of the analysis.

A kernel has three buffers: `out` and `data` of 256 words, and `wide` of 64 words of 8 bytes.
Indices are random integer expressions over thread indices, parameters, loop counters, loaded
words and earlier expressions, masked to the size of the buffer; control flow is structured and
always ends.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

WORDS = 256
OPERATIONS = (
    "add.s32", "sub.s32", "mul.lo.s32", "and.b32", "or.b32", "xor.b32", "min.s32", "max.s32",
    "min.u32", "max.u32", "mul.hi.u32", "mul.hi.s32", "div.u32", "rem.u32", "div.s32", "rem.s32",
    "shl.b32", "shr.u32", "shr.s32",
)  # fmt: skip
COMPARISONS = ("eq.s32", "ne.s32", "lt.s32", "le.s32", "gt.u32", "ge.u32", "lt.u32", "ge.s32")


@dataclass
class Writer:
    """The text of a kernel as it grows, and the registers that hold something."""

    lines: list[str] = field(default_factory=list)
    integers: list[str] = field(default_factory=list)
    predicates: list[str] = field(default_factory=list)
    count: int = 0

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


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """A kernel `k(out, data, wide, a, b)` with a launch."""
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
    _block(draw, writer, depth=0)
    body = "\n".join(writer.lines)
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        ".visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide,"
        " .param .u32 a, .param .u32 b)\n{\n"
        f"    .reg .pred %p<{writer.count + 1}>;\n    .reg .b32 %r<{writer.count + 1}>;\n"
        f"    .reg .b32 %v<{writer.count + 1}>;\n    .reg .b64 %rd<{writer.count + 4}>;\n"
        f"{body}\n    ret;\n}}\n"
    )
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


def _block(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    for _ in range(draw(st.integers(1, 4 if depth else 6))):
        kind = draw(st.sampled_from(_KINDS if depth < 2 else _KINDS[:6]))
        kind(draw, writer, depth)


def _integer(draw: st.DrawFn, writer: Writer) -> str:
    if draw(st.integers(0, 3)) == 0:
        return str(draw(st.sampled_from([0, 1, 2, 3, 4, 5, 7, 8, 16, 31, 33, 127, -1, -4])))
    return draw(st.sampled_from(writer.integers))


def _arithmetic(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    result = writer.fresh("r")
    shape = draw(st.integers(0, 9))
    a, b = draw(st.sampled_from(writer.integers)), _integer(draw, writer)
    if shape == 0:
        c = _integer(draw, writer)
        writer.emit(f"mad.lo.s32 {result}, {a}, {b}, {c};")
    elif shape == 1:
        start, length = draw(st.integers(0, 35)), draw(st.integers(0, 35))
        sign = draw(st.sampled_from("us"))
        writer.emit(f"bfe.{sign}32 {result}, {a}, {start}, {length};")
    elif shape == 2 and writer.predicates:
        p = draw(st.sampled_from(writer.predicates))
        writer.emit(f"selp.b32 {result}, {a}, {b}, {p};")
    elif shape == 3:
        c = _integer(draw, writer)
        side, mode = draw(st.sampled_from("lr")), draw(st.sampled_from(["wrap", "clamp"]))
        writer.emit(f"shf.{side}.{mode}.b32 {result}, {a}, {b}, {c};")
    elif shape == 4:
        table = draw(st.integers(0, 255))
        writer.emit(f"lop3.b32 {result}, {a}, {b}, {_integer(draw, writer)}, {table};")
    elif shape == 5:
        writer.emit(f"prmt.b32 {result}, {a}, {b}, {draw(st.integers(0, 0xFFFF))};")
    elif shape == 6:
        start, length = draw(st.integers(0, 35)), draw(st.integers(0, 35))
        writer.emit(f"bfi.b32 {result}, {a}, {b}, {start}, {length};")
    else:
        operation = draw(st.sampled_from(OPERATIONS))
        if operation.startswith(("div", "rem")):
            b = str(draw(st.sampled_from([1, 2, 3, 5, 8, 31])))
        writer.emit(f"{operation} {result}, {a}, {b};")
    writer.integers.append(result)


def _compare(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    result = writer.fresh("p")
    a, b = draw(st.sampled_from(writer.integers)), _integer(draw, writer)
    writer.emit(f"setp.{draw(st.sampled_from(COMPARISONS))} {result}, {a}, {b};")
    writer.predicates.append(result)


def _address(draw: st.DrawFn, writer: Writer, base: str, words: int, width: int) -> str:
    index, wide, address = writer.fresh("r"), writer.fresh("rd"), writer.fresh("rd")
    writer.emit(f"and.b32 {index}, {draw(st.sampled_from(writer.integers))}, {words - 1};")
    writer.emit(f"mul.wide.u32 {wide}, {index}, {width};")
    first, second = (base, wide) if draw(st.booleans()) else (wide, base)
    writer.emit(f"add.s64 {address}, {first}, {second};")
    return address


def _guard(draw: st.DrawFn, writer: Writer) -> str:
    if not writer.predicates or draw(st.booleans()):
        return ""
    negated = draw(st.sampled_from(["", "!"]))
    return f"@{negated}{draw(st.sampled_from(writer.predicates))} "


def _load(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    address = _address(draw, writer, draw(st.sampled_from(["%rd1", "%rd2"])), WORDS, 4)
    result = writer.fresh("r")
    writer.emit(f"mov.u32 {result}, 0;")
    writer.emit(f"{_guard(draw, writer)}ld.global.u32 {result}, [{address}];")
    writer.integers.append(result)


def _store(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    value = draw(st.sampled_from(writer.integers))
    if draw(st.integers(0, 3)) == 0:
        address = _address(draw, writer, "%rd3", 64, 8)
        writer.emit(f"{_guard(draw, writer)}st.global.v2.u32 [{address}], {{{value}, {value}}};")
        return
    address = _address(draw, writer, "%rd1", WORDS, 4)
    writer.emit(f"{_guard(draw, writer)}st.global.u32 [{address}], {value};")


def _atomic(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    address = _address(draw, writer, "%rd1", WORDS, 4)
    value = draw(st.sampled_from(writer.integers))
    writer.emit(f"{_guard(draw, writer)}red.global.add.u32 [{address}], {value};")


def _if(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    if not writer.predicates:
        _compare(draw, writer, depth)
    p = draw(st.sampled_from(writer.predicates))
    end = f"L{writer.fresh('l')[2:]}"
    known = len(writer.integers), len(writer.predicates)
    writer.emit(f"@{p} bra {end};")
    _block(draw, writer, depth + 1)
    del writer.integers[known[0] :], writer.predicates[known[1] :]
    if draw(st.booleans()):
        middle, other = end, f"L{writer.fresh('l')[2:]}"
        writer.emit(f"bra {other};")
        writer.lines.append(f"{middle}:")
        _block(draw, writer, depth + 1)
        del writer.integers[known[0] :], writer.predicates[known[1] :]
        end = other
    writer.lines.append(f"{end}:")


def _loop(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    """`do { ... } while (++i < bound)` with a bound of at most 7, known or not."""
    counter, bound, test = writer.fresh("r"), writer.fresh("r"), writer.fresh("p")
    variable = writer.fresh("r")
    start = f"L{writer.fresh('l')[2:]}"
    writer.emit(f"and.b32 {bound}, {draw(st.sampled_from(writer.integers))}, 7;")
    writer.emit(f"mov.u32 {counter}, 0;")
    writer.emit(f"mov.u32 {variable}, {_integer(draw, writer)};")
    writer.lines.append(f"{start}:")
    known = len(writer.integers), len(writer.predicates)
    writer.integers += [counter, variable]
    _block(draw, writer, depth + 1)
    writer.emit(f"add.s32 {variable}, {variable}, {_integer(draw, writer)};")
    del writer.integers[known[0] :], writer.predicates[known[1] :]
    writer.emit(f"add.s32 {counter}, {counter}, 1;")
    writer.emit(f"setp.lt.u32 {test}, {counter}, {bound};")
    writer.emit(f"@{test} bra {start};")
    writer.integers.append(variable)


def _leave(draw: st.DrawFn, writer: Writer, depth: int) -> None:
    if writer.predicates:
        writer.emit(f"@{draw(st.sampled_from(writer.predicates))} ret;")


_KINDS = (_arithmetic, _arithmetic, _compare, _load, _store, _atomic, _if, _loop, _store, _leave)
