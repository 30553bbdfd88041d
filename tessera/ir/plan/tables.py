"""Tables of measured kernel times, and the shapes that they are looked up by.

In: nothing. Out: frozen records that `frontend.machine.tables` fills and `planning.prices` reads.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

LIBRARIES = ("vllm", "trtllm", "sglang")
"""The libraries whose kernels were measured; the tables in this package are of the first."""


class TableKind(enum.Enum):
    """What was measured. The sizes of a row, in order, are in `SIZES`."""

    GEMM = "gemm"
    CONTEXT = "context"
    GENERATION = "generation"
    MOE = "moe"


# The sizes of a row, and the fields that must match exactly, in order.
SIZES = {
    TableKind.GEMM: ("m", "n", "k"),
    TableKind.CONTEXT: ("batch", "length", "heads", "kv_heads"),
    TableKind.GENERATION: ("batch", "context", "heads", "kv_heads"),
    TableKind.MOE: ("tokens", "tensor_parts", "expert_parts"),
}
FIXED = {
    TableKind.GEMM: ("dtype",),
    TableKind.CONTEXT: ("dtype", "cache_dtype", "head_size", "window"),
    TableKind.GENERATION: ("dtype", "cache_dtype", "head_size", "window"),
    TableKind.MOE: ("dtype", "hidden", "inter", "topk", "experts"),
}
Sizes = tuple[int, ...]
Fixed = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class WorkShape:
    """A piece of work that a table may contain: `sizes` are interpolated, `fixed` must match."""

    kind: TableKind
    fixed: Fixed
    sizes: Sizes

    def text(self) -> str:
        """The text in reports: `gemm m=8 n=4096 k=4096 bfloat16`."""
        sizes = " ".join(
            f"{name}={size}" for name, size in zip(SIZES[self.kind], self.sizes, strict=True)
        )
        return f"{self.kind.value} {sizes} {self.fixed[0]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """Times of one kind of work on one kind of GPU, by one version of a library.

    All rows have the same `fixed`; their sizes are distinct.
    """

    gpu: str
    library: str
    version: str
    kind: TableKind
    fixed: Fixed
    sizes: tuple[Sizes, ...]
    ns: tuple[float, ...]

    def origin(self) -> str:
        """The library that was measured: `vllm 0.14.0`."""
        return f"{self.library} {self.version}"
