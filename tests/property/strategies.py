"""Generated programs: every record of a trace, in any number, always valid.

`programs()` draws modules with kernels of random parameters for one to three architectures, then
buffers, then steps whose arguments fit the parameters. PTX strategies are in `ptx_strategies`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import nan, prod

from hypothesis import strategies as st

from tessera.diagnostics import Source
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    HINT_SIZES,
    Argument,
    AttributeValue,
    Buffer,
    BufferId,
    ByValue,
    Event,
    EventId,
    Launch,
    LaunchId,
    LaunchVariant,
    LibraryCall,
    Memcpy,
    Memset,
    ModuleId,
    ModuleVariant,
    Operand,
    Pointer,
    PointerTable,
    PointerWord,
    Program,
    ProgramModule,
    Role,
    Scalar,
    Step,
    Triple,
    Wait,
    WorkHint,
)
from tessera.ir.program.routing import Routing

ARCHS = ("sm_70", "sm_80", "sm_90a", "sm_100f")
SCALARS = [kind for kind in DataType if kind.name not in ("BOOL", "C64", "C128")]
ARGUMENT_TYPES = [kind for kind in SCALARS if kind.name not in ("E4M3", "E5M2", "F16", "BF16")]
ROUTINGS = (Routing(), Routing(skew=0.125), Routing(rows=(0, 7, 12)))
ROLES = [role for role in Role if role is not Role.VARIABLE]

names = st.from_regex(r"[A-Za-z_$][A-Za-z0-9_$.]{0,6}", fullmatch=True)
identifiers = st.from_regex(r"[A-Za-z][A-Za-z0-9_$]{0,6}", fullmatch=True)
streams = st.one_of(st.just("0"), st.from_regex(r"[A-Za-z0-9_$.]{1,4}", fullmatch=True))
operators = st.sampled_from(["aten::clone", "aten::clone.out", "aten::contiguous"])
# Attributes that operators do not look at, so that any value will do.
attribute_names = st.sampled_from(["device", "layout", "memory_format", "pin_memory"])
scalars = st.sampled_from(SCALARS).flatmap(
    lambda kind: st.integers(0, (1 << (8 * kind.bytes)) - 1).map(lambda b: Scalar(kind, b))
)
json_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(allow_nan=False),
    st.just(nan),
    st.text(max_size=8),
)


def _json_values(depth: int) -> st.SearchStrategy[AttributeValue]:
    if depth == 0:
        return json_scalars
    return st.one_of(json_scalars, st.lists(_json_values(depth - 1), max_size=3).map(tuple))


attributes = st.dictionaries(attribute_names, _json_values(3), max_size=3).map(
    lambda found: tuple(found.items())
)


@dataclass(frozen=True, slots=True)
class KernelShape:
    """A generated kernel: its name and, per parameter, a type or the size of a struct."""

    name: str
    parameters: tuple[DataType | int, ...]


kernels = st.builds(
    KernelShape,
    identifiers,
    st.lists(st.one_of(st.sampled_from(ARGUMENT_TYPES), st.integers(1, 40)), max_size=5).map(tuple),
)


def module_text(arch: str, shapes: list[KernelShape], variables: list[tuple[str, int]]) -> str:
    """PTX with these kernels and module variables."""
    lines = [".version 8.8", f".target {arch}", ".address_size 64"]
    lines += [f".global .align 8 .b8 {name}[{size}];" for name, size in variables]
    for shape in shapes:
        declared = [_parameter(kind, f"p{i}") for i, kind in enumerate(shape.parameters)]
        lines += [f".visible .entry {shape.name}({', '.join(declared)})", "{", "    ret;", "}"]
    return "\n".join(lines) + "\n"


def _parameter(kind: DataType | int, name: str) -> str:
    if isinstance(kind, int):
        return f".param .align 8 .b8 {name}[{kind}]"
    return f".param .{kind.value} {name}"


def triples(high: Triple, total: int) -> st.SearchStrategy[Triple]:
    """Three extents within limits, whose product is at most `total`."""
    return st.tuples(*(st.integers(1, limit) for limit in high)).filter(lambda t: prod(t) <= total)  # type: ignore[arg-type]


grids = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 65535), st.integers(1, 65535))
blocks = st.one_of(triples((1024, 1, 1), 1024), triples((8, 8, 16), 1024))
work_hints = st.one_of(
    st.builds(
        WorkHint,
        st.just(kind),
        st.tuples(*(st.integers(1, 10**12 - 1) for _ in names)),
        st.sampled_from(list(DataType)),
    )
    for kind, names in HINT_SIZES.items()
)


@st.composite
def buffers(draw: st.DrawFn, index: int, name: str) -> Buffer:
    """A declared buffer, with or without type and shape."""
    role = draw(st.sampled_from(ROLES))
    dtype = draw(st.one_of(st.none(), st.sampled_from(list(DataType))))
    shape = None
    size = draw(st.integers(1, 1 << 40))
    if dtype is not None:
        shape = draw(st.lists(st.integers(1, 64), min_size=1, max_size=4).map(tuple))
        size = prod(shape) * dtype.bytes
        shape = draw(st.sampled_from([shape, None]))
    return Buffer(id=BufferId(index), name=name, bytes=size, role=role, dtype=dtype, shape=shape)


def pointers(declared: list[Buffer]) -> st.SearchStrategy[Pointer]:
    """An address in any buffer, one past its end included."""
    return st.sampled_from(declared).flatmap(
        lambda b: (
            st.sampled_from([0, b.bytes])
            .flatmap(lambda edge: st.one_of(st.just(edge), st.integers(0, b.bytes)))
            .map(lambda offset: Pointer(b.id, offset))
        )
    )


@st.composite
def pointer_words(
    draw: st.DrawFn, size: int, declared: list[Buffer], align: int
) -> tuple[PointerWord, ...]:
    """Words inside `size` bytes, apart from each other, in rising order."""
    words, start = [], 0
    for _ in range(draw(st.integers(0, 3))):
        low = -(-start // align)
        high = (size - 8) // align
        if high < low:
            break
        offset = align * draw(st.integers(low, high))
        words.append(PointerWord(offset, draw(pointers(declared))))
        start = offset + 8
    return tuple(words)


@st.composite
def structs(draw: st.DrawFn, size: int, declared: list[Buffer]) -> ByValue:
    """A struct by value, pointer words zero."""
    content = bytearray(draw(st.binary(min_size=size, max_size=size)))
    words = draw(pointer_words(size, declared, 1)) if declared else ()
    for word in words:
        content[word.offset : word.offset + 8] = bytes(8)
    return ByValue(bytes(content), words)


@st.composite
def arguments_for(draw: st.DrawFn, kind: DataType | int, declared: list[Buffer]) -> Argument:
    """Anything that may be passed for a parameter."""
    if isinstance(kind, int):
        return draw(structs(kind, declared))
    choices: list[st.SearchStrategy[Argument]] = [structs(kind.bytes, declared)]
    same = [
        other
        for other in SCALARS
        if other.bytes == kind.bytes
        and (other.is_bits or kind.is_bits or other.is_float == kind.is_float)
    ]
    choices.append(
        st.sampled_from(same).flatmap(
            lambda t: st.integers(0, (1 << (8 * t.bytes)) - 1).map(lambda b: Scalar(t, b))
        )
    )
    if kind.bytes == 8 and not kind.is_float and declared:
        choices.append(pointers(declared))
    return draw(st.one_of(choices))


@st.composite
def launches(
    draw: st.DrawFn, index: int, module: ProgramModule, shape: KernelShape, declared: list[Buffer]
) -> Launch:
    """A launch of a kernel, with variants for some of the module's architectures."""

    def arguments() -> tuple[Argument, ...]:
        return tuple(draw(arguments_for(kind, declared)) for kind in shape.parameters)

    variants = []
    for code in module.variants:
        if draw(st.booleans()):
            variants.append(
                LaunchVariant(
                    arch=code.arch,
                    grid=draw(st.none() | grids),
                    block=draw(st.none() | blocks),
                    shared_bytes=draw(st.none() | st.integers(0, 2**31 - 1)),
                    arguments=arguments() if draw(st.booleans()) else None,
                )
            )
    return Launch(
        id=LaunchId(index),
        module=module.id,
        kernel=shape.name,
        grid=draw(grids),
        block=draw(blocks),
        arguments=arguments(),
        shared_bytes=draw(st.integers(0, 2**31 - 1)),
        cooperative=draw(st.booleans()),
        stream=draw(streams),
        work=draw(st.none() | work_hints),
        variants=tuple(variants),
    )


@st.composite
def operands(draw: st.DrawFn, declared: list[Buffer]) -> Operand:
    """An operand inside its buffer, with or without strides."""
    buffer = draw(st.sampled_from(declared))
    dtype = draw(st.sampled_from(list(DataType)))
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    strides = draw(st.none() | st.tuples(*(st.integers(0, 30) for _ in shape)))
    operand = Operand(pointer=Pointer(buffer.id), dtype=dtype, shape=shape, strides=strides)
    if operand.extent_bytes() > buffer.bytes:
        return Operand(pointer=Pointer(buffer.id), dtype=dtype, shape=(0, *shape))
    offset = draw(st.integers(0, buffer.bytes - operand.extent_bytes()))
    return Operand(pointer=Pointer(buffer.id, offset), dtype=dtype, shape=shape, strides=strides)


@st.composite
def memory_steps(draw: st.DrawFn, index: int, declared: list[Buffer]) -> Step:
    """A memset, memcpy or library call that writes no weight."""
    writable = [b for b in declared if b.role is not Role.WEIGHT]
    target = draw(st.sampled_from(writable))
    kind = draw(st.sampled_from(["memset", "memcpy", "op"]))
    stream = draw(streams)
    if kind == "memset":
        width = draw(st.sampled_from([1, 2, 4]))
        if target.bytes < width:
            width = 1
        size = width * draw(st.integers(1, target.bytes // width))
        return Memset(
            id=LaunchId(index),
            target=Pointer(target.id, draw(st.integers(0, target.bytes - size))),
            bytes=size,
            value=draw(st.integers(0, (1 << (8 * width)) - 1)),
            element_bytes=width,
            stream=stream,
        )
    others = [b for b in declared if b is not target]
    if kind == "memcpy" and others:
        source = draw(st.sampled_from(others))
        size = draw(st.integers(1, min(source.bytes, target.bytes)))
        return Memcpy(
            id=LaunchId(index),
            target=Pointer(target.id, draw(st.integers(0, target.bytes - size))),
            source=Pointer(source.id, draw(st.integers(0, source.bytes - size))),
            bytes=size,
            stream=stream,
        )
    read = draw(operands(declared))
    written = replace(read, pointer=Pointer(target.id), strides=None)
    if written.extent_bytes() > target.bytes:
        read = written = replace(written, shape=(0, *read.shape))
    return LibraryCall(
        id=LaunchId(index),
        operator=draw(operators),
        reads=(read,),
        writes=(written,),
        attributes=draw(attributes),
        stream=stream,
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """A whole valid program, read from nowhere: it has no positions."""
    module_names = draw(st.lists(names, max_size=2, unique=True))
    modules, shapes_of, variables = [], [], []
    for index, name in enumerate(module_names):
        shapes = draw(st.lists(kernels, max_size=3, unique_by=lambda k: k.name))
        taken = {shape.name for shape in shapes}
        own = draw(
            st.lists(
                st.tuples(identifiers, st.integers(1, 99)), max_size=2, unique_by=lambda v: v[0]
            )
        )
        own = [(symbol, size) for symbol, size in own if symbol not in taken]
        archs = draw(st.lists(st.sampled_from(ARCHS), min_size=1, max_size=3, unique=True))
        found = []
        for arch in archs:
            text = module_text(arch, shapes, own)
            found.append(
                ModuleVariant(arch=arch, text=text, ptx=parse_source(Source("g.ptx", text)))
            )
        modules.append(ProgramModule(ModuleId(index), name, tuple(found)))
        shapes_of.append(shapes)
        variables += [(f"{name}.{symbol}", size) for symbol, size in own]
    taken_names = {name for name, _ in variables}
    buffer_names = draw(
        st.lists(names.filter(lambda n: n not in taken_names), max_size=5, unique=True)
    )
    declared = [draw(buffers(index, name)) for index, name in enumerate(buffer_names)]
    if len(taken_names) != len(variables):  # `a.b` + `c` and `a` + `b.c` are the same name
        modules, shapes_of, variables = [], [], []
    declared += [
        Buffer(id=BufferId(len(declared) + i), name=name, bytes=size, role=Role.VARIABLE)
        for i, (name, size) in enumerate(variables)
    ]
    return Program(
        buffers=tuple(declared),
        modules=tuple(modules),
        pointer_tables=_tables(draw, declared),
        steps=_steps(draw, modules, shapes_of, declared),
        resident=draw(st.sampled_from([None, "data.npz", "model.safetensors"])),
        routing=draw(st.sampled_from([None, *ROUTINGS])),
    )


def _tables(draw: st.DrawFn, declared: list[Buffer]) -> tuple[PointerTable, ...]:
    tables = []
    for buffer in declared:
        words = draw(pointer_words(buffer.bytes, declared, 8)) if draw(st.booleans()) else ()
        if words:
            tables.append(PointerTable(buffer.id, words))
    return tuple(tables)


def _steps(
    draw: st.DrawFn,
    modules: list[ProgramModule],
    shapes_of: list[list[KernelShape]],
    declared: list[Buffer],
) -> tuple[Step, ...]:
    steps: list[Step] = []
    work, events = 0, 0
    callable_kernels = [(m, k) for m, ks in zip(modules, shapes_of, strict=True) for k in ks]
    writable = any(b.role is not Role.WEIGHT for b in declared)
    for _ in range(draw(st.integers(0, 6))):
        kind = draw(st.sampled_from(["launch", "memory", "event", "wait"]))
        if kind == "launch" and callable_kernels:
            module, shape = draw(st.sampled_from(callable_kernels))
            steps.append(draw(launches(work, module, shape, declared)))
            work += 1
        elif kind == "memory" and writable:
            steps.append(draw(memory_steps(work, declared)))
            work += 1
        elif kind == "event":
            steps.append(Event(EventId(events), draw(st.sampled_from("abc")), draw(streams)))
            events += 1
        elif kind == "wait" and events:
            latest = {e.name: e.id for e in steps if isinstance(e, Event)}
            event = draw(st.sampled_from(sorted(latest.values())))
            steps.append(Wait(event, draw(streams)))
    return tuple(steps)
