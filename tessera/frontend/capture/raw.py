"""What a capture finds: the nodes of a CUDA graph, the memory they name, and the kernels' PTX.

In: nothing. Out: plain records, with device addresses as numbers. They can be made without a GPU,
so all that is concluded from them is tested without one.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import AttributeValue, Role, Triple


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBuffer:
    """Memory that something owns. `role` is a guess: what a launch writes is not known here.

    `lasting`: it lives between calls of what was captured.
    """

    name: str
    address: int
    bytes: int
    role: Role
    lasting: bool
    dtype: DataType | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawLaunch:
    """A kernel node: arguments as the bytes of each parameter. `function` is the driver's handle.

    `name` is the symbol of the kernel.
    """

    name: str
    function: int
    grid: Triple
    block: Triple
    shared_bytes: int
    arguments: tuple[bytes, ...]
    cluster: Triple | None = None
    cooperative: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMemset:
    """A memset node: `rows` rows of `bytes` bytes, `pitch` bytes apart."""

    address: int
    bytes: int
    value: int
    element_bytes: int
    rows: int = 1
    pitch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawMemcpy:
    """A memcpy node between device addresses, row by row."""

    target: int
    source: int
    bytes: int
    rows: int = 1
    target_pitch: int = 0
    source_pitch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTensor:
    """An operand of a library call."""

    address: int
    dtype: DataType
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOperator:
    """A library call in place of the nodes `first` to `last` (exclusive)."""

    operator: str
    reads: tuple[RawTensor, ...]
    writes: tuple[RawTensor, ...]
    attributes: tuple[tuple[str, AttributeValue], ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOther:
    """A node that a trace can hold only as a part of a library call; `what` the model does there,
    and what to do about it."""

    what: str
    hint: str


RawNode = RawLaunch | RawMemset | RawMemcpy | RawOther


@dataclass(frozen=True, slots=True, kw_only=True)
class RawVariant:
    """The code of a kernel for one architecture, and how it wants to be launched."""

    arch: str
    text: str
    shared_bytes: int
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCode:
    """The PTX of a kernel; the first variant is the one that ran.

    `variables` are variables of its module, with what they hold when the call begins.
    """

    function: int
    variants: tuple[RawVariant, ...]
    variables: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawRandom:
    """The state of the GPU's generator of random numbers when the call begins."""

    seed: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCapture:
    """One call of a model.

    `after` says of each node which earlier ones it has to wait for; None: one after the other.
    `unowned` are addresses of memory that was freed. `skipped` counts the nodes
    of the graph that do nothing and are not in `nodes`. `constants` are the buffers that the call
    has copied from the host.
    """

    buffers: tuple[RawBuffer, ...]
    nodes: tuple[RawNode, ...]
    operators: tuple[RawOperator, ...]
    codes: tuple[RawCode, ...]
    after: tuple[tuple[int, ...], ...] | None = None
    random: RawRandom | None = None
    unowned: frozenset[int] = frozenset()
    skipped: int = 0
    constants: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """The best times of a product by itself; what is fused to it was measured after that.

    `operands` are types and shapes. None: that way does not compute it, or was not tried.
    """

    name: str
    operands: tuple[str, ...]
    library_ns: float | None
    triton_ns: float | None
