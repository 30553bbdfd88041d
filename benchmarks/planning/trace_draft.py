"""A trace of `op` records as it grows: tensors in buffers, views of them, calls.

`Draft` declares buffers and adds calls; `View` is a tensor in a buffer. Used by `real_traces.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

WIDTHS = {"bf16": 2, "f16": 2, "s64": 8, "bool": 1, "u8": 1, "e4m3": 1}


@dataclass(frozen=True, slots=True)
class View:
    """A tensor in a buffer: where it begins (in elements), shape and strides."""

    buffer: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    start: int = 0

    def text(self) -> str:
        """As `op` records have it."""
        offset = f"+{self.start * WIDTHS[self.dtype]}" if self.start else ""
        sizes = ",".join(map(str, self.shape))
        packed = "" if self.strides == row_major(self.shape) else f"{{{_joined(self.strides)}}}"
        return f"{self.buffer}{offset}:{self.dtype}[{sizes}]{packed}"

    def part(self, axis: int, first: int, count: int) -> View:
        """A range of an axis."""
        shape = (*self.shape[:axis], count, *self.shape[axis + 1 :])
        return replace(self, shape=shape, start=self.start + first * self.strides[axis])

    def split(self, axis: int, *sizes: int) -> View:
        """An axis as several."""
        inner = [prod(sizes[at + 1 :]) * self.strides[axis] for at in range(len(sizes))]
        return replace(
            self,
            shape=(*self.shape[:axis], *sizes, *self.shape[axis + 1 :]),
            strides=(*self.strides[:axis], *inner, *self.strides[axis + 1 :]),
        )

    def turned(self, *order: int) -> View:
        """The axes in another order."""
        return replace(
            self,
            shape=tuple(self.shape[axis] for axis in order),
            strides=tuple(self.strides[axis] for axis in order),
        )


def _joined(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(slots=True)
class Draft:
    """A trace as it grows."""

    dtype: str
    buffers: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    temps: int = 0

    def buffer(self, name: str, role: str, *shape: int, dtype: str = "") -> View:
        """A declared buffer, as one tensor."""
        dtype = dtype or self.dtype
        size = prod(shape) * WIDTHS[dtype]
        extents = "x".join(map(str, shape))
        self.buffers.append(
            f"//! buffer {name} bytes={size} role={role} dtype={dtype} shape={extents}"
        )
        return View(name, dtype, shape, row_major(shape))

    def temp(self, *shape: int, dtype: str = "") -> View:
        """A value between two calls."""
        self.temps += 1
        return self.buffer(f"t{self.temps}", "temp", *shape, dtype=dtype)

    def call(
        self, operator: str, reads: Sequence[View], *writes: View, **attributes: object
    ) -> View:
        """A call; the first thing it writes comes back."""
        listed = (", ".join(view.text() for view in views) for views in (reads, writes))
        read, written = listed
        attrs = f" attrs={json.dumps(attributes)}" if attributes else ""
        self.calls.append(f"//! op aten::{operator} reads=[{read}] writes=[{written}]{attrs}")
        return writes[0]

    def same(self, operator: str, *reads: View, **attributes: object) -> View:
        """A call whose result is as large as what it reads first."""
        return self.call(operator, reads, self.temp(*reads[0].shape), **attributes)

    def linear(self, x: View, name: str, out: int, *, bias: bool = False) -> View:
        """A product with a weight."""
        reads = [x, self.buffer(f"{name}.weight", "weight", out, x.shape[-1])]
        if bias:
            reads.append(self.buffer(f"{name}.bias", "weight", out))
        return self.call("linear", reads, self.temp(*x.shape[:-1], out))

    def rms_norm(self, x: View, name: str) -> View:
        """Over the last axis."""
        weight = self.buffer(f"{name}.weight", "weight", x.shape[-1])
        return self.same("rms_norm", x, weight, normalized_shape=[x.shape[-1]], eps=1e-5)

    def text(self) -> str:
        """The whole trace."""
        return "\n".join(["//! tessera.trace 1", *self.buffers, *self.calls, ""])
