"""The meaning of an instruction: the records that `opcodes.meaning` returns.

This file does not mention any opcode. A `Meaning` gives the role of each operand, the memory that
the instruction touches, the control flow, the threads that must take part, and the class of the
instruction in an instruction mix.

Source: PTX ISA 9.0, chapters 6 (operands), 8 (memory consistency), 9 (instruction set).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class OperandRole(enum.Enum):
    """The role of an operand."""

    # Members are unique objects; the hash of `Enum`, by name, costs a call each time.
    __hash__ = object.__hash__

    DESTINATION = "destination"
    DESTINATION_SOURCE = "destination that is read first"
    SOURCE = "source"
    PREDICATE = "predicate source"
    PREDICATE_DESTINATION = "predicate destination"
    IMMEDIATE = "constant"
    SIZE = "size in bytes"
    SOURCE_SIZE = "bytes to read, or a predicate that says to read none"
    ADDRESS = "address"
    MBARRIER = "mbarrier address"
    TENSOR_MAP = "tensor map and coordinates"
    TENSOR_MEMORY = "tensor memory address"
    REMOTE = "endpoint and offset on another GPU"
    TEXTURE = "texture, sampler and coordinates"
    SURFACE = "surface and coordinates"
    OPAQUE = "texture, sampler or surface to ask about"
    DESCRIPTOR = "matrix or instruction descriptor"
    CACHE_POLICY = "cache policy"
    BARRIER = "barrier number"
    THREADS = "number of threads"
    LABEL = "label"
    TARGETS = "list of targets"
    FUNCTION = "function, or a register that holds its address"
    RESULTS = "results of a call"
    ARGUMENTS = "arguments of a call"
    PROTOTYPE = "prototype or target list of an indirect call"
    UNKNOWN = "unknown"


READ_ROLES = frozenset(OperandRole) - {
    OperandRole.DESTINATION,
    OperandRole.PREDICATE_DESTINATION,
    OperandRole.RESULTS,
}
WRITTEN_ROLES = frozenset(
    {
        OperandRole.DESTINATION,
        OperandRole.DESTINATION_SOURCE,
        OperandRole.PREDICATE_DESTINATION,
        OperandRole.RESULTS,
        OperandRole.UNKNOWN,
    }
)


class MemoryAction(enum.Enum):
    """What happens to the bytes behind an address.

    WRITE replaces every byte of the extent; UPDATE may leave some unchanged. MBARRIER changes an
    mbarrier object, MBARRIER_TEST only reads it.
    """

    __hash__ = object.__hash__

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"
    REDUCE = "reduce"
    UPDATE = "update"
    PREFETCH = "prefetch"
    ASYNC_READ = "async_read"
    ASYNC_WRITE = "async_write"
    ASYNC_REDUCE = "async_reduce"
    ASYNC_UPDATE = "async_update"
    MBARRIER = "mbarrier"
    MBARRIER_TEST = "mbarrier_test"
    MAY_READ_WRITE = "may_read_write"

    @property
    def reads(self) -> bool:
        """Whether the action depends on the contents of memory."""
        return self not in {MemoryAction.WRITE, MemoryAction.ASYNC_WRITE, MemoryAction.PREFETCH}

    @property
    def writes(self) -> bool:
        """Whether memory can differ afterwards."""
        return self not in {
            MemoryAction.READ,
            MemoryAction.ASYNC_READ,
            MemoryAction.PREFETCH,
            MemoryAction.MBARRIER_TEST,
        }

    @property
    def is_async(self) -> bool:
        """Whether the action happens at some time after the instruction."""
        return self.value.startswith("async_")


@dataclass(frozen=True, slots=True)
class Bytes:
    """`count` bytes from the address, in each lane."""

    count: int


@dataclass(frozen=True, slots=True)
class SizeOperand:
    """The number of bytes in operand `index`, a constant or a register."""

    index: int


@dataclass(frozen=True, slots=True)
class Rows:
    """`count` bytes from the address of each of the first `lanes` lanes (ldmatrix)."""

    count: int
    lanes: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix at one address for the whole warp (wmma).

    `rows` rows (columns, in column-major layout) of `row_bits` bits, `stride * element_bits` bits
    apart, where operand `stride_operand` gives the stride in elements. Without that operand the
    rows follow each other.
    """

    rows: int
    row_bits: int
    element_bits: int
    stride_operand: int | None


@dataclass(frozen=True, slots=True)
class TensorBox:
    """The box that the tensor map and the coordinates describe, clipped to the tensor."""


@dataclass(frozen=True, slots=True)
class UnknownExtent:
    """Any bytes of the object that the address points into."""


Extent = Bytes | SizeOperand | Rows | Matrix | TensorBox | UnknownExtent


@dataclass(frozen=True, slots=True)
class MemoryEffect:
    """What happens behind the address in operand `operand`.

    `space` is a state space of the ISA, spelled as there ("shared::cluster" stays), or "generic",
    "tmem" (tensor memory), "tex", "surf". Descriptors count as addresses of unknown extent.
    """

    operand: int
    access: MemoryAction
    space: str
    extent: Extent

    @property
    def width(self) -> int | None:
        """Bytes per lane if the opcode alone determines them, else None."""
        return self.extent.count if isinstance(self.extent, Bytes | Rows) else None


class Flow(enum.Enum):
    """Where control goes next."""

    __hash__ = object.__hash__

    NEXT = "next"
    BRANCH = "branch"
    INDEXED_BRANCH = "indexed branch"
    CALL = "call"
    RETURN = "return"
    EXIT = "exit"
    TRAP = "trap"


class ThreadScope(enum.Enum):
    """The group of threads that an instruction concerns, ordered from few to many."""

    THREAD = "thread"
    WARP = "warp"
    WARPGROUP = "warpgroup"
    CTA = "cta"
    CLUSTER = "cluster"
    GRID = "grid"


class InstructionKind(enum.Enum):
    """The class of an instruction in an instruction mix."""

    INTEGER = "integer"
    FLOAT = "float"
    SPECIAL_FUNCTION = "special function"
    COMPARE = "compare"
    LOGIC = "logic"
    CONVERT = "convert"
    MOVE = "move"
    SHUFFLE = "shuffle"
    VIDEO = "video"
    GLOBAL = "memory global"
    SHARED = "memory shared"
    LOCAL = "memory local"
    PARAM = "memory param"
    CONST = "memory const"
    GENERIC = "memory generic"
    CACHE = "cache control"
    ATOMIC = "atomic"
    ASYNC_COPY = "async copy"
    TEXTURE = "texture"
    SURFACE = "surface"
    TENSOR = "tensor"
    TENSOR_MEMORY = "tensor memory"
    BARRIER = "barrier"
    FENCE = "fence"
    VOTE = "vote"
    CONTROL = "control"
    STACK = "stack"
    OTHER = "other"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What one form of an opcode does; `roles` has one entry per operand present.

    `fits` is False when the table has the opcode but no form with this many operands: then the
    roles are UNKNOWN and `effects` is empty, and a consumer that carries on must use
    `widened_meaning`. `side_effects`: it does something besides writing its destinations, so it
    must not be dropped when they are dead. `reads_state`: it reads state of the machine that is
    neither an operand nor memory. `aligned`: every thread of the warp must execute it together.
    `words` are the table's words for operands ("" for vectors and lists).
    """

    opcode: str
    roles: tuple[OperandRole, ...]
    words: tuple[str, ...] = ()
    effects: tuple[MemoryEffect, ...] = ()
    kind: InstructionKind = InstructionKind.OTHER
    flow: Flow = Flow.NEXT
    scope: ThreadScope = ThreadScope.THREAD
    side_effects: bool = False
    reads_state: bool = False
    aligned: bool = False
    fits: bool = True

    @property
    def is_collective(self) -> bool:
        """Whether several threads take part together, so that it must not move across branches."""
        return self.scope is not ThreadScope.THREAD
