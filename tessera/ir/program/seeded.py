"""Contents for buffers that have none: the same bytes on every machine for a seed and a name.

Floats are uniform in [-1, 1), truncated toward zero to the precision of their type, so that narrow
types keep small values and never reach 1. Integers and untyped bytes are zero: a random index or
counter would make a kernel run out of bounds. The generator is PCG64, seeded by a digest of
seed and buffer name. NumPy guarantees the stream of raw words of a bit generator, and the
conversion to floats is done here. `Seeded` holds contents that are not generated yet: a backend
may generate the same bytes on its device (`backend/cuda/helpers.cu`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer

Bytes = npt.NDArray[np.uint8]

WORD_BYTES = 16
"""The bytes of floats of any type that begin with a new word of the generator."""

_FLOATS = frozenset(
    (
        DataType.F32,
        DataType.F64,
        DataType.BF16,
        DataType.F16,
        DataType.E5M2,
        DataType.E4M3,
        DataType.C64,
        DataType.C128,
    )
)


@dataclass(frozen=True, slots=True)
class Seeded:
    """The contents of a buffer that follow from a seed, not generated yet."""

    buffer: Buffer
    seed: int

    def read(self) -> Bytes:
        """The bytes."""
        return seeded_bytes(self.buffer, self.seed)

    @property
    def is_zero(self) -> bool:
        """Whether all bytes are zero, because of the type."""
        return self.buffer.dtype not in _FLOATS

    def generator(self, start: int = 0) -> tuple[int, int]:
        """State and increment of the generator, 128 bits each, before the step that makes byte
        `start`, a multiple of `WORD_BYTES`."""
        # A word of 64 bits makes two narrow floats, or a wide one.
        narrow = min(2 * self.buffer.dtype.bytes, 8) if self.buffer.dtype else 8
        state = _generator(self.buffer, self.seed).advance(start // narrow).state["state"]
        return int(state["state"]), int(state["inc"])


Source = Bytes | Seeded


class LazyContents(Mapping[str, Bytes]):
    """Contents by name. Contents from a seed are generated on the first read, and then kept."""

    def __init__(self, sources: Mapping[str, Source]) -> None:
        self._sources = dict(sources)
        self._made: dict[str, Bytes] = {}

    def source(self, name: str) -> Source:
        """The bytes of a name, or the seed that they come from."""
        return self._sources[name]

    def __getitem__(self, name: str) -> Bytes:
        source = self._sources[name]
        if not isinstance(source, Seeded):
            return source
        if name not in self._made:
            self._made[name] = source.read()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def source_of(contents: Mapping[str, Bytes], name: str) -> Source:
    """The source of the bytes of a name: the bytes themselves, or a seed."""
    return contents.source(name) if isinstance(contents, LazyContents) else contents[name]


def seeded_bytes(buffer: Buffer, seed: int) -> Bytes:
    """The `buffer.bytes` bytes of a buffer without contents."""
    count = buffer.bytes // buffer.dtype.bytes if buffer.dtype is not None else 0
    match buffer.dtype:
        case DataType.F32:
            values: npt.NDArray[np.generic] = _uniform_f32(buffer, seed, count)
        case DataType.C64:
            values = _uniform_f32(buffer, seed, 2 * count)
        case DataType.F64:
            values = _uniform_f64(buffer, seed, count)
        case DataType.C128:
            values = _uniform_f64(buffer, seed, 2 * count)
        case DataType.BF16:
            values = (_uniform_f32(buffer, seed, count).view(np.uint32) >> 16).astype(np.uint16)
        case DataType.F16:
            values = _to_f16(_uniform_f32(buffer, seed, count))
        case DataType.E5M2:
            # E5M2 is the upper half of binary16.
            values = (_to_f16(_uniform_f32(buffer, seed, count)) >> 8).astype(np.uint8)
        case DataType.E4M3:
            values = _to_e4m3(_uniform_f32(buffer, seed, count))
        case _:
            return np.zeros(buffer.bytes, np.uint8)
    return np.ascontiguousarray(values).view(np.uint8)


def _raw_words(buffer: Buffer, seed: int, count: int) -> npt.NDArray[np.uint64]:
    return _generator(buffer, seed).random_raw(count)


def _generator(buffer: Buffer, seed: int) -> np.random.PCG64:
    digest = hashlib.sha256(f"{seed}:{buffer.name}".encode()).digest()
    return np.random.PCG64(int.from_bytes(digest, "little"))


def _uniform_f64(buffer: Buffer, seed: int, count: int) -> npt.NDArray[np.float64]:
    words = _raw_words(buffer, seed, count) >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-52 - 1.0


def _uniform_f32(buffer: Buffer, seed: int, count: int) -> npt.NDArray[np.float32]:
    words = _raw_words(buffer, seed, (count + 1) // 2).astype("<u8").view("<u4")[:count]
    steps = (words >> np.uint32(8)).astype(np.float32)
    return steps * np.float32(2.0**-23) - np.float32(1.0)


def _to_f16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Binary16 bits, truncated toward zero."""
    nearest = values.astype(np.float16)
    too_large = np.abs(nearest.astype(np.float32)) > np.abs(values)
    return nearest.view(np.uint16) - too_large.astype(np.uint16)


def _to_e4m3(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """E4M3 bits, truncated toward zero: patterns 0x00 to 0x38 are 0 to 1 in ascending order."""
    patterns = np.arange(0x39)
    exponent, fraction = patterns >> 3, patterns & 7
    normal = (8 + fraction) * 2.0 ** (exponent - 10.0)
    magnitudes = np.where(exponent == 0, fraction * 2.0**-9, normal)
    codes = np.searchsorted(magnitudes, np.abs(values), side="right") - 1
    return (codes | np.where(np.signbit(values), 0x80, 0)).astype(np.uint8)
