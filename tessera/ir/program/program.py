"""The program: buffers, kernels and the steps of one request, as a trace states them.

In: nothing. Out: frozen records that `frontend.trace.read_trace` builds, `ir.program.print_trace`
prints, and every later stage reads. The records state what the trace states and conclude nothing:
passes determine the bytes that a launch touches, the order of streams, and what fits where.

Ids are dense and count in file order. `BufferId` indexes `Program.buffers`, where the declared
buffers come first and the module variables (`MODULE.symbol`) follow. `ModuleId` indexes
`Program.modules`. `LaunchId` numbers the work of a request (launches, memsets, memcpys, library
calls; events and waits are not work). `EventId` numbers the `event` records, so that a wait names
one record even where an event's name is recorded again. Rules across records are checked by
`frontend.trace.check`.

Source: decision record 0001; PTX ISA 9.0, section 5 (types). Longer than 400 lines because the
records of one format are read together.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import prod
from typing import NewType

from tessera.diagnostics import Source, Span
from tessera.ir.program.data_type import DataType
from tessera.ir.program.routing import Routing
from tessera.ir.ptx.syntax import Module as PtxModule

BufferId = NewType("BufferId", int)
ModuleId = NewType("ModuleId", int)
LaunchId = NewType("LaunchId", int)
EventId = NewType("EventId", int)

Triple = tuple[int, int, int]
# The keys that another producer gave a record, `PRODUCER:KEY`, each with its text. They mean
# nothing here: they are kept and printed, and two records that differ in them alone are equal.
Notes = tuple[tuple[str, str], ...]

DEFAULT_STREAM = "0"
POINTER_BYTES = 8

# --- buffers -------------------------------------------------------------------------------


class Role(enum.Enum):
    """The owner of a buffer. It does not say how the buffer is used.

    WEIGHT: shared by all requests, never written. INPUT, OUTPUT, TEMP: private to a request.
    STATE: persists to the next request of the same lane. VARIABLE: a module variable; persists,
    shared by all lanes, its first value is the initialiser's.
    """

    INPUT = "input"
    OUTPUT = "output"
    WEIGHT = "weight"
    TEMP = "temp"
    STATE = "state"
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Buffer:
    """An allocation. `shape` counts elements of `dtype`; their product is then `bytes`."""

    id: BufferId
    name: str
    bytes: int
    role: Role
    dtype: DataType | None = None
    shape: tuple[int, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A device address: `offset` bytes into a buffer. `offset == bytes` (one past) is legal."""

    buffer: BufferId
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PointerWord:
    """An 8-byte word, `offset` bytes into a struct or a buffer, that holds a device address."""

    offset: int
    target: Pointer


@dataclass(frozen=True, slots=True)
class PointerTable:
    """`pointers`: the words of a buffer that are device addresses when the request starts.

    A program has one table for a buffer, with all its words in order.
    """

    buffer: BufferId
    words: tuple[PointerWord, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


# --- arguments -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Scalar:
    """`TYPE:VALUE`, as the `8 * type.bytes` bits that the kernel receives."""

    type: DataType
    bits: int

    def __post_init__(self) -> None:
        if not 0 <= self.bits < 1 << (8 * self.type.bytes):
            raise ValueError(f"{self.bits} is not a pattern of {8 * self.type.bytes} bits")


@dataclass(frozen=True, slots=True)
class ByValue:
    """`b8[N]:HEX@{8:x}`: a struct by value. The bytes of its pointer words are zero here."""

    content: bytes
    pointers: tuple[PointerWord, ...] = ()

    def __post_init__(self) -> None:
        end = 0
        for word in self.pointers:
            if word.offset < end or word.offset + POINTER_BYTES > len(self.content):
                raise ValueError("pointer words must be sorted, apart, and inside the struct")
            end = word.offset + POINTER_BYTES
            if any(self.content[word.offset : end]):
                raise ValueError("the bytes of a pointer word must be zero")


Argument = Pointer | Scalar | ByValue

NULL_POINTER = Scalar(DataType.U64, 0)

# --- modules -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleVariant:
    """The code of a module for one architecture: its text as it stands in the trace, and parsed."""

    arch: str
    text: str = field(repr=False)
    ptx: PtxModule = field(repr=False)
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class ProgramModule:
    """`module`: the same kernels, compiled for one or more architectures."""

    id: ModuleId
    name: str
    variants: tuple[ModuleVariant, ...]

    def variant(self, arch: str) -> ModuleVariant | None:
        """The code for exactly this architecture, or None."""
        return next((v for v in self.variants if v.arch == arch), None)


# --- steps ---------------------------------------------------------------------------------


# The work that a hint may state, by name, with the sizes that follow the name.
HINT_SIZES = {
    "gemm": ("M", "N", "K"),
    "context": ("BATCH", "LENGTH", "HEADS", "KV_HEADS", "HEAD_SIZE"),
    "generation": ("BATCH", "CONTEXT", "HEADS", "KV_HEADS", "HEAD_SIZE"),
    "moe": ("TOKENS", "HIDDEN", "INTER", "TOPK", "EXPERTS"),
}


@dataclass(frozen=True, slots=True)
class WorkHint:
    """`work=gemm:M,N,K,TYPE`: the work of a launch, as stated by the author of the trace.

    Only estimates of durations use it, and they check it against the counted work.
    """

    kind: str
    sizes: tuple[int, ...]
    dtype: DataType


@dataclass(frozen=True, slots=True)
class CtaRange:
    """Which CTAs of a whole launch a part runs: those from `first` on, of `extent` along `axis`.

    `axis` is 0, 1 or 2. The part's own grid says how many CTAs it has. The kernel sees its CTA
    as if all were launched: `%ctaid` counts from `first`, `%nctaid` is `extent`.
    """

    axis: int
    first: int
    extent: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchVariant:
    """`variant`: the differences of a launch of the code for `arch`; None: as in the launch."""

    arch: str
    grid: Triple | None = None
    ctas: CtaRange | None = None
    block: Triple | None = None
    cluster: Triple | None = None
    shared_bytes: int | None = None
    arguments: tuple[Argument, ...] | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """`launch`: one kernel. `shared_bytes` is the dynamic part; None means no cluster.

    `ctas` is set in a part of a launch (`passes.division`); `grid` is then that of the part.
    """

    id: LaunchId
    module: ModuleId
    kernel: str
    grid: Triple
    block: Triple
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: Triple | None = None
    cooperative: bool = False
    stream: str = DEFAULT_STREAM
    work: WorkHint | None = None
    variants: tuple[LaunchVariant, ...] = ()
    ctas: CtaRange | None = None
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memset:
    """`memset`: `value`, `element_bytes` wide and little-endian, repeated over `bytes` bytes."""

    id: LaunchId
    target: Pointer
    bytes: int
    value: int
    element_bytes: int = 1
    stream: str = DEFAULT_STREAM
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Memcpy:
    """`memcpy`: `bytes` bytes from `source` to `target`, which do not overlap."""

    id: LaunchId
    target: Pointer
    source: Pointer
    bytes: int
    stream: str = DEFAULT_STREAM
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """`BUF+OFF:dtype[shape]{strides}`: a tensor. Strides count elements; None is row-major."""

    pointer: Pointer
    dtype: DataType
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None

    def element_strides(self) -> tuple[int, ...]:
        """The stride of each dimension in elements, row-major if none are given."""
        if self.strides is not None:
            return self.strides
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))

    def extent_bytes(self) -> int:
        """Bytes from the start of the first to the end of the last element; 0 without elements."""
        if 0 in self.shape:
            return 0
        pairs = zip(self.shape, self.element_strides(), strict=True)
        return (1 + sum((count - 1) * stride for count, stride in pairs)) * self.dtype.bytes


AttributeValue = None | bool | int | float | str | tuple["AttributeValue", ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryCall:
    """`op`: a call of a library operator. Attributes are JSON scalars and lists (as tuples)."""

    id: LaunchId
    operator: str
    reads: tuple[Operand, ...]
    writes: tuple[Operand, ...]
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    stream: str = DEFAULT_STREAM
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Event:
    """`event`: all work submitted to `stream` so far."""

    id: EventId
    name: str
    stream: str = DEFAULT_STREAM
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Wait:
    """`wait`: work submitted to `stream` from here on runs after the event."""

    event: EventId
    stream: str = DEFAULT_STREAM
    span: Span | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)


Work = Launch | Memset | Memcpy | LibraryCall
Step = Work | Event | Wait

# --- the whole -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownContents:
    """The bytes of a weight, for analyses that may read them, and their SHA-256."""

    buffer: BufferId
    content: bytes = field(repr=False)
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One trace. A plain PTX file is a program with one module and no steps.

    `resident` is the name of the file with the buffers' contents, beside the trace. `routing` is
    how tokens choose experts, if the trace states it. `known` are
    the contents of weights that an analysis may look up; they are no part of the trace's text.
    `twins` are groups of steps that do the same work, each on a device of its own: whichever of
    them has run, its bytes are there. No trace has twins; `passes.division` makes them. `whole` is
    the program that was divided, None if none was.
    """

    buffers: tuple[Buffer, ...] = ()
    modules: tuple[ProgramModule, ...] = ()
    pointer_tables: tuple[PointerTable, ...] = ()
    steps: tuple[Step, ...] = ()
    resident: str | None = None
    routing: Routing | None = None
    known: tuple[KnownContents, ...] = ()
    twins: tuple[tuple[LaunchId, ...], ...] = ()
    whole: Program | None = field(default=None, compare=False, repr=False)
    notes: Notes = field(default=(), compare=False, repr=False)
    source: Source | None = field(default=None, compare=False, repr=False)

    def declared_buffers(self) -> Iterator[Buffer]:
        """The buffers of `buffer` records, in file order."""
        return (buffer for buffer in self.buffers if buffer.role is not Role.VARIABLE)

    def work(self) -> Iterator[Work]:
        """The steps that do something, in file order: `LaunchId` counts these."""
        return (step for step in self.steps if not isinstance(step, Event | Wait))

    def launches(self) -> Iterator[Launch]:
        """The kernel launches, in file order."""
        return (step for step in self.steps if isinstance(step, Launch))

    def events(self) -> Iterator[Event]:
        """The `event` records, in file order: `EventId` counts these."""
        return (step for step in self.steps if isinstance(step, Event))


def grouped(count: int, twins: tuple[tuple[LaunchId, ...], ...]) -> Iterator[tuple[LaunchId, ...]]:
    """The numbers of `count` steps in order: twins together, every other step by itself."""
    firsts = {group[0]: group for group in twins}
    others = {member for group in twins for member in group[1:]}
    for step in map(LaunchId, range(count)):
        if step not in others:
            yield firsts.get(step, (step,))


def for_arch(launch: Launch, arch: str) -> Launch:
    """The launch for the code of `arch`, with its variants applied and removed."""
    override = next((v for v in launch.variants if v.arch == arch), None)
    if override is None:
        return replace(launch, variants=())
    shared_bytes = launch.shared_bytes if override.shared_bytes is None else override.shared_bytes
    return replace(
        launch,
        grid=override.grid or launch.grid,
        ctas=override.ctas or launch.ctas,
        block=override.block or launch.block,
        cluster=override.cluster or launch.cluster,
        shared_bytes=shared_bytes,
        arguments=launch.arguments if override.arguments is None else override.arguments,
        variants=(),
        span=override.span,
    )
