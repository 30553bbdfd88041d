"""Address arithmetic that the generated code calls: which space, which CTA of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.backend.ptx_executor.memory.lanes import LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.memory.spaces import (
    LOCAL_BASE,
    PARAM_BASE,
    RANK_SHIFT,
    SHARED_BASE,
    WINDOW,
    WINDOWS_END,
)

_BASES = {"shared": SHARED_BASE, "local": LOCAL_BASE, "param": PARAM_BASE}


def is_in_space(cx: LaneSet, space: str, address: Array, own: bool) -> Array:
    """isspacep: whether generic addresses fall into the window of a space."""
    if space == "const":
        starts = [a for a in cx.chunk.launch.space.table if a.read_only]
        inside = np.zeros(address.shape, dtype=np.bool_)
        for a in starts:
            inside |= (address >= np.uint64(a.address)) & (address < np.uint64(a.address + a.size))
        return inside
    if space == "global":
        return address >= np.uint64(WINDOWS_END)
    base = _BASES[space]
    size = 1 << RANK_SHIFT if space == "shared" and own else WINDOW
    return (address >= np.uint64(base)) & (address < np.uint64(base + size))


def map_to_rank(address: Array, rank: Array, width: int, generic: bool) -> Array:
    """mapa: the address of the same shared variable in the CTA of that rank."""
    kind: Any = np.uint64 if width == 8 else np.uint32
    base = kind(SHARED_BASE) if generic else kind(0)
    offset = (address - base) & kind((1 << RANK_SHIFT) - 1)
    result: Array = base + ((rank.astype(kind) + kind(1)) << kind(RANK_SHIFT)) + offset
    return result


def rank_of(cx: LaneSet, address: Array, generic: bool) -> Array:
    """getctarank: the rank of the CTA whose shared memory an address is in."""
    if generic:
        address = address - np.uint64(SHARED_BASE)
    code = (address >> address.dtype.type(RANK_SHIFT)).astype(np.uint32)
    own = cx.take(cx.chunk.special("%cluster_ctarank"))
    return np.where(code == 0, own, code - np.uint32(1)).astype(np.uint32)
