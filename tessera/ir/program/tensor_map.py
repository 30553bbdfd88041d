"""Tensor maps: the 128-byte descriptions of tensors that bulk tensor copies use.

The layout is the one that the CUDA driver writes for tiled maps (found by encoding many maps
with driver 13.0 for an H200 and comparing words):

    words 0-1   address                       words 8-12  size of each axis, minus 1
    word 2      4-6 rank - 1, 7-10 type,      word 13     0-14 element strides - 1 (3 bits each),
                11-12 interleave,                         24-31 box of axis 0, minus 1
                13-14 swizzle, 15 fill NaN,   word 14     box of axes 1 to 4, minus 1, a byte each
                16 tf32, 17-18 L2             word 16     bytes of a box, steps rounded down
    words 3-6   stride / 16 of axes 1 to 4,   word 18     how a box is aligned in shared memory
                low 32 bits
    word 7      four high bits of each stride; nothing here reads words 16 and 18

Bit 0 of word 2 is set in im2col maps. CuTe DSL encodes maps itself: it sets bit 1, which the driver
does not, in both kinds, and leaves the upper 64 bytes as they were.

Source: PTX ISA 9.0, section 5.5 (tensors), 9.7.9.28 (tensormap.replace).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

SIZE = 128

# Element sizes by type code, as in `tensormap.replace.elemtype` and the driver's maps.
_ELEMENT_BYTES = (1, 2, 4, 4, 8, 8, 2, 4, 4, 8, 2, 4, 4)
# CU_TENSOR_MAP_DATA_TYPE_* to the code in the map and the tf32 bit.
_DRIVER_TYPES = (
    (0, 0),
    (1, 0),
    (2, 0),
    (3, 0),
    (4, 0),
    (5, 0),
    (6, 0),
    (7, 0),
    (9, 0),
    (10, 0),
    (8, 0),
    (7, 1),
    (8, 1),
)


class BadTensorMap(Exception):
    """A map that cannot be used, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """A tiled tensor map. Axis 0 is the fastest; `strides` are in bytes, for axes 1 and up."""

    address: int
    element_bytes: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    fill_nan: bool = False
    type_code: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The number of elements of a box along each axis."""
        pairs = zip(self.box, self.element_strides, strict=True)
        return tuple(-(-box // step) for box, step in pairs)


def decode(content: bytes) -> TensorMap:
    """Read a map."""
    words = struct.unpack("<32I", content[:SIZE])
    head = words[2]
    rank = (head >> 4 & 7) + 1
    code = head >> 7 & 15
    if head & 13 or rank > 5 or code >= len(_ELEMENT_BYTES):
        raise BadTensorMap("the 128 bytes are no tiled tensor map")
    strides = tuple((words[3 + i] | (words[7] >> 4 * i & 15) << 32) * 16 for i in range(rank - 1))
    boxes = (words[13] >> 24, *(words[14] >> 8 * i & 255 for i in range(4)))
    return TensorMap(
        address=words[0] | words[1] << 32,
        element_bytes=_ELEMENT_BYTES[code],
        dims=tuple(words[8 + i] + 1 for i in range(rank)),
        strides=strides,
        box=tuple(box + 1 for box in boxes[:rank]),
        element_strides=tuple((words[13] >> 3 * i & 7) + 1 for i in range(rank)),
        interleave=head >> 11 & 3,
        swizzle=head >> 13 & 3,
        fill_nan=bool(head >> 15 & 1),
        type_code=code,
    )


def encode_tiled(
    *,
    data_type: int,
    address: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    element_strides: Sequence[int] | None = None,
    interleave: int = 0,
    swizzle: int = 0,
    l2_promotion: int = 0,
    fill_nan: bool = False,
) -> bytes:
    """A map as `cuTensorMapEncodeTiled` would make it.

    `data_type`, `interleave`, `swizzle` and `l2_promotion` are the driver's enumerations.
    """
    rank = len(dims)
    steps = tuple(element_strides or (1,) * rank)
    if not 1 <= rank <= 5 or len(strides) != rank - 1 or len(box) != rank:
        raise ValueError("a tensor map has 1 to 5 axes, and a stride for each but the first")
    if address % 16 or any(s % 16 for s in strides):
        raise ValueError("address and strides must be multiples of 16")
    code, tf32 = _DRIVER_TYPES[data_type]
    words = [0] * 32
    words[0], words[1] = address & 0xFFFFFFFF, address >> 32
    words[2] = (
        rank - 1 << 4
        | code << 7
        | interleave << 11
        | swizzle << 13
        | int(fill_nan) << 15
        | tf32 << 16
        | l2_promotion << 17
    )
    for i, stride in enumerate(strides):
        words[3 + i] = stride // 16 & 0xFFFFFFFF
        words[7] |= (stride // 16 >> 32 & 15) << 4 * i
    for i in range(rank):
        words[8 + i] = dims[i] - 1
        words[13] |= steps[i] - 1 << 3 * i
    words[13] |= box[0] - 1 << 24
    for i in range(1, rank):
        words[14] |= box[i] - 1 << 8 * (i - 1)
    kept = (size // step for size, step in zip(box, steps, strict=True))
    words[16] = prod(kept) * _ELEMENT_BYTES[code]
    words[18] = 128 << swizzle if swizzle else 16
    return struct.pack("<32I", *words)


def replace_field(content: bytes, field: str, ordinal: int, value: int) -> bytes:
    """The map with one field changed, as `tensormap.replace` does."""
    words = list(struct.unpack("<32I", content[:SIZE]))
    if field == "global_address":
        words[0], words[1] = value & 0xFFFFFFFF, value >> 32
    elif field == "rank":
        words[2] = _insert(words[2], 4, 3, value)
    elif field == "elemtype":
        code, tf32 = (value - 4, 1) if value in (11, 12) else (value, 0)
        words[2] = _insert(_insert(words[2], 7, 4, code), 16, 1, tf32)
    elif field == "interleave_layout":
        words[2] = _insert(words[2], 11, 2, value)
    elif field == "swizzle_mode":
        words[2] = _insert(words[2], 13, 2, value)
    elif field == "fill_mode":
        words[2] = _insert(words[2], 15, 1, value)
    elif field == "global_dim":
        words[8 + ordinal] = value - 1 & 0xFFFFFFFF
    elif field == "global_stride":
        words[3 + ordinal] = value // 16 & 0xFFFFFFFF
        words[7] = _insert(words[7], 4 * ordinal, 4, value // 16 >> 32)
    elif field == "element_stride":
        words[13] = _insert(words[13], 3 * ordinal, 3, value - 1)
    elif field == "box_dim":
        if ordinal == 0:
            words[13] = _insert(words[13], 24, 8, value - 1)
        else:
            words[14] = _insert(words[14], 8 * (ordinal - 1), 8, value - 1)
    else:
        raise BadTensorMap(f"no field `{field}`")
    return struct.pack("<32I", *words)


FIELDS = frozenset(
    {
        "global_address",
        "rank",
        "elemtype",
        "interleave_layout",
        "swizzle_mode",
        "fill_mode",
        "global_dim",
        "global_stride",
        "element_stride",
        "box_dim",
    }
)


def _insert(word: int, low: int, width: int, value: int) -> int:
    mask = (1 << width) - 1
    return word & ~(mask << low) | (value & mask) << low
