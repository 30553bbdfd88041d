"""The state of a launch, and of a chunk: CTAs that run together, with their memories.

Shared memory is one row of bytes per CTA, local memory one row per lane (it grows with the
call stack). Rows are padded to 16 bytes so that they can be viewed as words of any width.
Fresh shared and local memory is poisoned like device memory.

Time is virtual: the clock counts executed instructions, `nanosleep` moves it forward, and
`%globaltimer` is derived from it, so a launch gives the same bytes every time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.memory.access_log import AccessLog
from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import POISON, UNSIGNED, WORDS, AddressSpace, Array
from tessera.backend.ptx_executor.memory.watch import LaunchWatch
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.backend.ptx_executor.simt.fragments import Fragments

# Bytes of local memory that calls may take per thread beyond what the functions declare.
STACK_LIMIT = 64 << 10


DEFAULT_STEPS = 1 << 25


@dataclass(slots=True, kw_only=True)
class LaunchState:
    """A launch in progress, as its chunks and instructions see it; see `device` for the checks."""

    program: KernelProgram
    space: AddressSpace
    log: AccessLog
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared: int
    workspace: int
    parameter_bytes: Array
    symbols: list[Array]
    number: int
    start_ns: int
    max_steps: int
    watch: LaunchWatch | None
    has_read_only: bool
    output: list[str] = field(default_factory=list)
    parameters: dict[tuple[int, int], Array] = field(default_factory=dict)

    @property
    def reserved_start(self) -> int:
        """The end of the shared memory that the kernel requested, in bytes."""
        asked = self.program.shared_static + self.dynamic_shared
        return asked if not self.program.reserved_shared else -(-asked // 16) * 16

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a CTA in bytes: static, dynamic, and the system's part if it is used."""
        return self.reserved_start + self.program.reserved_shared

    @property
    def cluster_size(self) -> int:
        """The number of CTAs in a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    def parameter(self, offset: int, width: int) -> Array:
        """A parameter word as a value that all lanes share."""
        word = self.parameters.get((offset, width))
        if word is None:
            raw = self.parameter_bytes[offset : offset + width]
            word = raw.copy().view(UNSIGNED[width]).reshape(1, 1)
            self.parameters[offset, width] = word
        return word


class RowMemory:
    """Bytes in rows, with views as words of every width; `words[w]` is flat."""

    __slots__ = ("bytes", "row_bytes", "rows", "words")

    def __init__(self, rows: int, row_bytes: int) -> None:
        self.rows = rows
        self.row_bytes = -(-row_bytes // 16) * 16
        self.bytes: Array = np.full((rows, self.row_bytes), POISON, dtype=np.uint8)
        flat = self.bytes.reshape(-1)
        self.words: dict[int, Array] = {w: flat.view(t) for w, t in WORDS.items()}

    def grow(self, row_bytes: int) -> None:
        """Widen the rows, and keep their contents."""
        old = self.bytes
        self.__init__(self.rows, row_bytes)  # type: ignore[misc]
        self.bytes[:, : old.shape[1]] = old


class Chunk:
    """C CTAs of T threads, given by their linear numbers; clusters are complete and contiguous."""

    def __init__(self, launch: LaunchState, cta_ids: Array) -> None:
        self.launch = launch
        self.cta_ids = cta_ids
        self.ctas = ctas = len(cta_ids)
        self.threads = launch.block[0] * launch.block[1] * launch.block[2]
        self.shared = RowMemory(ctas, launch.shared_bytes)
        self.local = RowMemory(ctas * self.threads, launch.program.local_bytes)
        self.registers: list[Array] = list(launch.program.initial_registers)
        self.everyone = LaneSet(self, None)
        self.ticks = 0
        self.slept_ns = 0
        self._special: dict[str, Array] = {}
        self.epochs: Array = np.zeros(ctas, dtype=np.int64)
        self._shared_flags: Array | None = None
        self.shared_history: Any = None
        self.fragments = Fragments()

    def release(self) -> None:
        """Free the memory of a chunk that has ended, without waiting for garbage collection."""
        self.registers.clear()
        self.fragments.clear()
        self._special.clear()
        self.shared = self.local = RowMemory(0, 0)
        self._shared_flags = self.shared_history = None

    def shared_flags(self) -> Array:
        """Flags of the written bytes of shared memory; kept only if a check needs them."""
        if self._shared_flags is None:
            self._shared_flags = np.zeros(self.shared.bytes.size, dtype=np.bool_)
        return self._shared_flags

    def need_local(self, size: int, site: int) -> None:
        """Grow local memory to at least `size` bytes per lane."""
        if size <= self.local.row_bytes:
            return
        limit = STACK_LIMIT + self.launch.program.local_bytes
        if size > limit:
            raise Fault(
                "TSR5023",
                f"call stack overflow: more than {limit} bytes of local memory per thread",
                site,
            )
        self.local.grow(min(max(size, 2 * self.local.row_bytes), limit))

    def special(self, name: str) -> Array:
        """A special register over the chunk's lanes."""
        if name in _CLOCKS:
            kind = np.uint64 if SPECIAL_WIDTHS[name] == 8 else np.uint32
            return np.array([[_CLOCKS[name](self)]], dtype=kind)
        value = self._special.get(name)
        if value is None:
            value = self._special[name] = _SPECIAL[name](self)
        return value

    def cta_coordinates(self, row: int) -> tuple[int, int, int]:
        """The `%ctaid` of a CTA of the chunk."""
        linear = int(self.cta_ids[row])
        width, height, _ = self.launch.grid
        return linear % width, linear // width % height, linear // (width * height)

    def thread_coordinates(self, col: int) -> tuple[int, int, int]:
        """The `%tid` of a thread of a CTA."""
        width, height, _ = self.launch.block
        return col % width, col // width % height, col // (width * height)


# --- special registers ---------------------------------------------------------------------


def _scalar(value: int) -> Array:
    return np.array([[value & 0xFFFFFFFF]], dtype=np.uint32)


def _place(linear: Array, size: tuple[int, int, int], axis: int) -> Array:
    """One coordinate of linear numbers."""
    width, height = np.uint32(size[0]), np.uint32(size[1])
    return (linear % width, linear // width % height, linear // (width * height))[axis]


def _cta(chunk: Chunk, axis: int) -> Array:
    return _place(chunk.cta_ids, chunk.launch.grid, axis)[:, None]


def _in_cluster(chunk: Chunk, axis: int) -> Array:
    return _cta(chunk, axis) % np.uint32(chunk.launch.cluster[axis])


def _cluster_rank(chunk: Chunk) -> Array:
    x, y, z = (_in_cluster(chunk, axis) for axis in range(3))
    width, height, _ = chunk.launch.cluster
    result: Array = x + np.uint32(width) * (y + np.uint32(height) * z)
    return result


def _threads(chunk: Chunk) -> Array:
    return np.arange(chunk.threads, dtype=np.uint32)


def _lane_mask(of_bit: Callable[[Array], Array]) -> Callable[[Chunk], Array]:
    """A mask of 32 bits from the bit of each lane, in 64 bits."""
    return lambda chunk: of_bit(_ONE << (_threads(chunk) % WARP).astype(np.uint64))[None, :].astype(
        np.uint32
    )


def _on_axis(value: Callable[[Chunk, int], Array], axis: int) -> Callable[[Chunk], Array]:
    return lambda chunk: value(chunk, axis)


_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFF)

_BY_AXIS: dict[str, Callable[[Chunk, int], Array]] = {
    "%tid": lambda chunk, axis: _place(_threads(chunk), chunk.launch.block, axis)[None, :],
    "%ctaid": _cta,
    "%ntid": lambda chunk, axis: _scalar(chunk.launch.block[axis]),
    "%nctaid": lambda chunk, axis: _scalar(chunk.launch.grid[axis]),
    "%cluster_ctaid": _in_cluster,
    "%cluster_nctaid": lambda chunk, axis: _scalar(chunk.launch.cluster[axis]),
    "%clusterid": lambda chunk, axis: _cta(chunk, axis) // np.uint32(chunk.launch.cluster[axis]),
    "%nclusterid": lambda chunk, axis: _scalar(
        -(-chunk.launch.grid[axis] // chunk.launch.cluster[axis])
    ),
}
_SPECIAL: dict[str, Callable[[Chunk], Array]] = {
    "%laneid": lambda chunk: (_threads(chunk) % np.uint32(WARP))[None, :],
    "%warpid": lambda chunk: (_threads(chunk) // np.uint32(WARP))[None, :],
    "%nwarpid": lambda chunk: _scalar(-(-chunk.threads // WARP)),
    "%smid": lambda chunk: _scalar(0),
    "%nsmid": lambda chunk: _scalar(1),
    "%locality_domain_id": lambda chunk: _scalar(0),
    "%locality_domain_supplemental_sm": lambda chunk: _scalar(0),
    "%gridid": lambda chunk: np.array([[chunk.launch.number]], dtype=np.uint64),
    "%is_explicit_cluster": lambda chunk: np.array([[chunk.launch.cluster_size != 1]]),
    "%cluster_ctarank": _cluster_rank,
    "%cluster_nctarank": lambda chunk: _scalar(chunk.launch.cluster_size),
    "%lanemask_eq": _lane_mask(lambda bit: bit),
    "%lanemask_lt": _lane_mask(lambda bit: bit - _ONE),
    "%lanemask_le": _lane_mask(lambda bit: (bit << _ONE) - _ONE),
    "%lanemask_ge": _lane_mask(lambda bit: _ALL & ~(bit - _ONE)),
    "%lanemask_gt": _lane_mask(lambda bit: _ALL & ~((bit << _ONE) - _ONE)),
    "%dynamic_smem_size": lambda chunk: _scalar(chunk.launch.dynamic_shared),
    "%total_smem_size": lambda chunk: _scalar(chunk.launch.reserved_start),
    "%aggr_smem_size": lambda chunk: _scalar(chunk.launch.shared_bytes),
    "%reserved_smem_offset_begin": lambda chunk: _scalar(chunk.launch.reserved_start),
    "%reserved_smem_offset_0": lambda chunk: _scalar(chunk.launch.reserved_start),
    "%reserved_smem_offset_1": lambda chunk: _scalar(chunk.launch.reserved_start + 512),
    "%reserved_smem_offset_end": lambda chunk: _scalar(chunk.launch.shared_bytes),
    "%reserved_smem_offset_cap": lambda chunk: _scalar(chunk.launch.shared_bytes),
    "%current_graph_exec": lambda chunk: np.zeros((1, 1), dtype=np.uint64),
    "%envreg1": lambda chunk: _scalar(chunk.launch.workspace >> 32),
    "%envreg2": lambda chunk: _scalar(chunk.launch.workspace),
    **{
        f"{name}.{letter}": _on_axis(value, axis)
        for axis, letter in enumerate("xyz")
        for name, value in _BY_AXIS.items()
    },
}


def _now_ns(chunk: Chunk) -> int:
    chunk.ticks += 1
    return chunk.launch.start_ns + chunk.ticks + chunk.slept_ns


_CLOCKS: dict[str, Callable[[Chunk], int]] = {
    "%clock": lambda chunk: _now_ns(chunk) & 0xFFFFFFFF,
    "%clock_hi": lambda chunk: _now_ns(chunk) >> 32,
    "%clock64": _now_ns,
    "%globaltimer": _now_ns,
    "%globaltimer_lo": lambda chunk: _now_ns(chunk) & 0xFFFFFFFF,
    "%globaltimer_hi": lambda chunk: _now_ns(chunk) >> 32,
}

SPECIAL_WIDTHS: dict[str, int] = {
    **dict.fromkeys((*_SPECIAL, *_CLOCKS), 4),
    "%gridid": 8,
    "%clock64": 8,
    "%globaltimer": 8,
    "%current_graph_exec": 8,
    "%is_explicit_cluster": 0,
}
