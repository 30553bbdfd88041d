"""The inputs of a kernel's address arithmetic in one launch, as numbers.

In: sizes, the bytes of the parameters with made-up addresses in them (`zones`), the zones of
module variables, and the `pointers` tables that still hold. Out: the values of special
registers, parameters and symbols as `Lanes`, for some CTAs or for all of them at once.

Without a piece, one row stands for every CTA: `%ctaid` is then an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tessera.ir.architecture import WARP
from tessera.ir.arrays import Bytes, Offsets, Ranges, Signed, Words
from tessera.ir.program.program import CtaRange
from tessera.passes.footprint.pieces import GridPiece
from tessera.passes.footprint.zones import WORKSPACE, Zones
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import U64, Lanes, sloped

Triple = tuple[int, int, int]
_AXES = "xyz"


@dataclass(frozen=True, slots=True)
class Table:
    """Words of an object that are addresses: offsets, sorted, and the made-up targets.

    `written` are the bytes of the object that may hold something else by now, an address too.
    """

    offsets: Offsets
    targets: Words
    zone: int
    written: Ranges = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """One launch as its kernel sees it.

    `holders` are the objects in which addresses were put before the request; `tables` are those
    that are still there. `alone` are the zones that no other zone shares a buffer with. `ctas` is
    set in a part of a launch: `grid` is then that of the part, and the kernel sees its CTAs as if
    all were launched.
    """

    zones: Zones
    grid: Triple
    block: Triple
    cluster: Triple | None
    dynamic_shared: int
    parameters: bytes
    parameter_offsets: dict[str, int]
    symbols: dict[str, int]
    tables: dict[int, Table] = field(default_factory=dict)
    cooperative: bool = False
    contents: dict[int, Bytes] = field(default_factory=dict)
    pointer_words: tuple[int, ...] = ()
    holders: frozenset[int] = frozenset()
    alone: frozenset[int] = frozenset()
    ctas: CtaRange | None = None

    @property
    def threads(self) -> int:
        """Threads of a CTA."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cta_count(self) -> int:
        """CTAs of the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def first(self) -> Triple:
        """The number of the first CTA along each axis: not 0 in a part of a launch."""
        return _with(self.ctas, (0, 0, 0), 0 if self.ctas is None else self.ctas.first)

    @property
    def extent(self) -> Triple:
        """CTAs of the whole launch along each axis."""
        return _with(self.ctas, self.grid, 0 if self.ctas is None else self.ctas.extent)


def _with(ctas: CtaRange | None, values: Triple, changed: int) -> Triple:
    x, y, z = (
        changed if ctas is not None and axis == ctas.axis else value
        for axis, value in enumerate(values)
    )
    return x, y, z


def _split(linear: Offsets, extent: Triple) -> tuple[Signed, Signed, Signed]:
    x, y = extent[0], extent[1]
    return linear % x, linear // x % y, linear // (x * y)


def _row(values: Signed) -> Lanes:
    return Lanes(values.astype(U64).reshape(1, -1))


def _along(values: Signed, axis: int) -> Lanes:
    """Values along x (0), y (1) or z (2) of the CTA; threads are the last axis."""
    return Lanes(values.astype(U64).reshape(-1, *([1] * (axis + 1))))


def special_values(scene: Scene, piece: GridPiece | None) -> dict[str, Lanes]:
    """Special registers by name with component; those missing can hold anything."""
    linear = np.arange(scene.threads, dtype=np.int64)
    lane = linear % WARP
    specials = {
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
        specials[f"%tid.{axis}"] = _row(values)
    for axis, threads, count in zip(_AXES, scene.block, scene.extent, strict=True):
        specials[f"%ntid.{axis}"] = lanes.scalar(threads)
        specials[f"%nctaid.{axis}"] = lanes.scalar(count)
    if scene.cooperative:
        # Two halves of the address of the driver's memory for barriers over the grid.
        workspace = scene.zones.address(WORKSPACE)
        specials["%envreg1"] = lanes.scalar(workspace >> 32)
        specials["%envreg2"] = lanes.scalar(workspace & 0xFFFFFFFF)
    specials.update(_cta_values(scene, piece))
    return {name: _shrink(value) for name, value in specials.items()}


def _shrink(value: Lanes) -> Lanes:
    """An axis along which nothing changes has length 1."""
    if value.slopes:
        return value
    lo = value.low()
    for axis in range(lo.ndim):
        if lo.shape[axis] > 1:
            first = lo.take([0], axis=axis)
            lo = first if (lo == first).all() else lo
    return Lanes(lo, value.span, value.why)


def _cta_values(scene: Scene, piece: GridPiece | None) -> dict[str, Lanes]:
    specials: dict[str, Lanes] = {}
    if piece is None:
        for name, first, count in zip(_AXES, scene.first, scene.grid, strict=True):
            specials[f"%ctaid.{name}"] = lanes.between(first, first + count - 1, 32, 0)
        return specials
    places = [axis.places() for axis in piece.axes]
    for axis, name in enumerate(_AXES):
        number = _shrink(_along(places[axis], axis))
        slopes = {d: np.array([[d.stride]], dtype=U64) for d in piece.axes[axis].digits}
        specials[f"%ctaid.{name}"] = sloped(number, slopes, 32)
    if scene.cluster is None:
        return specials
    rank = lanes.scalar(0)
    step = 1
    for axis, (name, size) in enumerate(zip(_AXES, scene.cluster, strict=True)):
        inside = _along(places[axis] % size, axis)
        specials[f"%cluster_ctaid.{name}"] = inside
        alone = specials[f"%ctaid.{name}"]
        specials[f"%clusterid.{name}"] = alone if size == 1 else _along(places[axis] // size, axis)
        specials[f"%cluster_nctaid.{name}"] = lanes.scalar(size)
        specials[f"%nclusterid.{name}"] = lanes.scalar(scene.extent[axis] // size)
        rank = lanes.add(rank, lanes.mul(inside, lanes.scalar(step), 32), 32)
        step *= size
    specials["%cluster_ctarank"] = rank
    specials["%cluster_nctarank"] = lanes.scalar(step)
    return specials


def parameter_bytes(scene: Scene, offsets: Offsets, width: int) -> Words | None:
    """The numbers of `width` bytes at offsets of the parameters; None outside them."""
    if offsets.size and (offsets.min() < 0 or offsets.max() + width > len(scene.parameters)):
        return None
    image = np.frombuffer(scene.parameters, dtype=np.uint8)
    numbers = np.zeros(offsets.shape, dtype=U64)
    for place in range(width):
        numbers |= image[offsets + place].astype(U64) << U64(8 * place)
    return numbers
