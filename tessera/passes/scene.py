"""What a launch gives to a kernel's address arithmetic, as numbers.

In: sizes, the bytes of the parameters with made-up addresses in them (`zones`), the zones of
module variables, and the `pointers` tables that still hold. Out: the values of special
registers, parameters and symbols as `Lanes`, for some CTAs or for all of them at once.

With `ctas` None, one row stands for every CTA: `%ctaid` is then an interval.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tessera.passes import lanes
from tessera.passes.lanes import U64, Array, Lanes
from tessera.passes.zones import Zones

Triple = tuple[int, int, int]
WARP = 32
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Table:
    """Words of an object that are addresses: offsets, sorted, and the made-up targets."""

    offsets: Array
    targets: Array
    zone: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One launch as its kernel sees it."""

    zones: Zones
    grid: Triple
    block: Triple
    cluster: Triple | None
    dynamic_shared: int
    parameters: bytes
    parameter_offsets: dict[str, int]
    symbols: dict[str, int]
    tables: dict[int, Table] = field(default_factory=dict)

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cta_count(self) -> int:
        """CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def _split(linear: Array, extent: Triple) -> tuple[Array, Array, Array]:
    x, y = extent[0], extent[1]
    return linear % x, linear // x % y, linear // (x * y)


def _row(values: Array) -> Lanes:
    return Lanes(values.astype(U64).reshape(1, -1))


def _column(values: Array) -> Lanes:
    return Lanes(values.astype(U64).reshape(-1, 1))


def special_values(scene: Scene, ctas: Array | None) -> dict[str, Lanes]:
    """Special registers by name with component; those missing can hold anything."""
    linear = np.arange(scene.threads, dtype=np.int64)
    lane = linear % WARP
    found = {
        "%laneid": _row(lane),
        "%lanemask_eq": _row(1 << lane),
        "%lanemask_lt": _row((1 << lane) - 1),
        "%lanemask_le": _row((2 << lane) - 1),
        "%lanemask_gt": _row(0xFFFFFFFF & ~((2 << lane) - 1)),
        "%lanemask_ge": _row(0xFFFFFFFF & ~((1 << lane) - 1)),
        "%dynamic_smem_size": lanes.scalar(scene.dynamic_shared),
        "WARP_SZ": lanes.scalar(WARP),
        "%tid.w": lanes.scalar(0),
        "%ctaid.w": lanes.scalar(0),
        "%ntid.w": lanes.scalar(1),
        "%nctaid.w": lanes.scalar(1),
    }
    for axis, values in zip(_AXES, _split(linear, scene.block), strict=True):
        found[f"%tid.{axis}"] = _row(values)
    for axis, threads, count in zip(_AXES, scene.block, scene.grid, strict=True):
        found[f"%ntid.{axis}"] = lanes.scalar(threads)
        found[f"%nctaid.{axis}"] = lanes.scalar(count)
    found.update(_cta_values(scene, ctas))
    return {name: _shrink(value) for name, value in found.items()}


def _shrink(value: Lanes) -> Lanes:
    """An axis along which nothing changes has length 1."""
    lo = value.lo
    if lo.shape[0] > 1 and (lo == lo[:1]).all():
        lo = lo[:1]
    if lo.shape[1] > 1 and (lo == lo[:, :1]).all():
        lo = lo[:, :1]
    return Lanes(lo, value.span, value.why)


def _cta_values(scene: Scene, ctas: Array | None) -> dict[str, Lanes]:
    found: dict[str, Lanes] = {}
    if ctas is None:
        for axis, count in zip(_AXES, scene.grid, strict=True):
            found[f"%ctaid.{axis}"] = lanes.between(0, count - 1, 32, 0)
        return found
    places = _split(ctas, scene.grid)
    for axis, values in zip(_AXES, places, strict=True):
        found[f"%ctaid.{axis}"] = _column(values)
    if scene.cluster is None:
        return found
    rank = np.zeros_like(ctas)
    step = 1
    for axis, values, size, count in zip(_AXES, places, scene.cluster, scene.grid, strict=True):
        found[f"%cluster_ctaid.{axis}"] = _column(values % size)
        found[f"%clusterid.{axis}"] = _column(values // size)
        found[f"%cluster_nctaid.{axis}"] = lanes.scalar(size)
        found[f"%nclusterid.{axis}"] = lanes.scalar(count // size)
        rank = rank + values % size * step
        step *= size
    found["%cluster_ctarank"] = _column(rank)
    found["%cluster_nctarank"] = lanes.scalar(step)
    return found


def parameter_bytes(scene: Scene, offsets: Array, width: int) -> Array | None:
    """The numbers of `width` bytes at offsets of the parameters; None outside them."""
    if offsets.size and (offsets.min() < 0 or offsets.max() + width > len(scene.parameters)):
        return None
    image = np.frombuffer(scene.parameters, dtype=np.uint8)
    found = np.zeros(offsets.shape, dtype=U64)
    for place in range(width):
        found |= image[offsets + place].astype(U64) << U64(8 * place)
    return found
