"""Files of named arrays in the safetensors format, mapped into memory.

In: an open binary file. Out: the size of each array from the header alone, and its bytes on demand.
The rules are those of the reference implementation: arrays follow each other without holes,
overlaps or remaining bytes, and each has the size of its type and shape; the header is one JSON
object that begins with `{`, in which every name appears once and every number is an integer;
metadata are strings. Types smaller than a byte are refused: no buffer has them.

Source: the format as its authors describe it (an 8-byte length, a JSON header, data).
"""

from __future__ import annotations

import json
import mmap
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import numpy as np

from tessera.frontend.contents.files import ArrayType, Bytes, unreadable
from tessera.ir.program.data_type import DataType

_MAX_HEADER = 100_000_000
_MOST = 1 << 64
_METADATA = "__metadata__"
_KEYS = {"dtype", "shape", "data_offsets"}
# The types of buffers that the format has a name for.
NAMES = {
    DataType.BOOL: "BOOL",
    DataType.U8: "U8",
    DataType.S8: "I8",
    DataType.E4M3: "F8_E4M3",
    DataType.E5M2: "F8_E5M2",
    DataType.U16: "U16",
    DataType.S16: "I16",
    DataType.F16: "F16",
    DataType.BF16: "BF16",
    DataType.U32: "U32",
    DataType.S32: "I32",
    DataType.F32: "F32",
    DataType.U64: "U64",
    DataType.S64: "I64",
    DataType.F64: "F64",
    DataType.C64: "C64",
}
_DATA_TYPES = {name: kind for kind, name in NAMES.items()}
# The bytes of an element. No trace has the last type, but a file may.
_WIDTHS = {name: kind.bytes for name, kind in _DATA_TYPES.items()} | {"F8_E8M0": 1}


@dataclass(frozen=True, slots=True)
class TensorType:
    """A tensor as described in the header; `dtype` is None for types that no trace has."""

    name: str
    dtype: DataType | None
    width: int
    shape: tuple[int, ...]


class SafetensorsFile:
    """A safetensors file, mapped into memory. `metadata` are the strings in its header."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._name = name
        self._stream = stream
        length = stream.seek(0, 2)
        stream.seek(0)
        header_bytes = int.from_bytes(stream.read(8), "little")
        if not length:
            unreadable(name, "it is empty")
        if length < 8 or header_bytes > min(length - 8, _MAX_HEADER):
            unreadable(name, "its header is longer than the file")
        self._data_start = 8 + header_bytes
        entries = self._entries(stream.read(header_bytes))
        self._ranges = {key: self._range(key, entry) for key, entry in entries.items()}
        self._check_order(length - self._data_start)
        self.sizes = {key: end - start for key, (start, end) in self._ranges.items()}
        self.types = {key: _type_of(entry) for key, entry in entries.items()}
        self.tensor_types = {
            key: TensorType(name, _DATA_TYPES.get(name), _WIDTHS[name], tuple(entry["shape"]))
            for key, entry in entries.items()
            for name in [entry["dtype"]]
        }
        self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)

    def read(self, name: str) -> Bytes:
        """The bytes of one array, read-only, straight from the file."""
        start, end = self._ranges[name]
        return np.frombuffer(self._map, np.uint8, end - start, self._data_start + start)

    def close(self) -> None:
        """Close the file; its pages stay mapped for arrays that were read."""
        self._stream.close()

    def _entries(self, header: bytes) -> dict[str, Any]:
        """The entry of each array in the header."""
        if not header.startswith(b"{"):
            unreadable(self._name, "its header does not begin with `{`")
        try:
            entries = json.loads(header.decode(), object_pairs_hook=_unique, parse_constant=_wrong)
        except RecursionError:
            unreadable(self._name, "its header is nested too deeply")
        except ValueError:
            unreadable(self._name, "its header is not JSON in which every name stands once")
        texts = entries.pop(_METADATA, None)
        texts = {} if texts is None else texts
        if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
            unreadable(self._name, f"its `{_METADATA}` is no table of texts")
        self.metadata: dict[str, str] = texts
        return dict(entries)

    def _range(self, key: str, entry: object) -> tuple[int, int]:
        """The byte range of an array, checked against its type and its shape."""
        if not isinstance(entry, dict) or not set(entry) >= _KEYS:
            unreadable(self._name, f"it lacks one of {', '.join(sorted(_KEYS))}", key)
        width = _WIDTHS.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        shape, offsets = entry["shape"], entry["data_offsets"]
        if width is None:
            unreadable(self._name, "its type is not known", key)
        if not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            unreadable(self._name, "its shape and byte range must be whole numbers", key)
        start, end = offsets
        if _product(shape, width) != end - start:
            unreadable(self._name, "its type, shape and byte range do not agree", key)
        return start, end

    def _check_order(self, data_bytes: int) -> None:
        """Check that the arrays fill the file, each right after the previous one."""
        before = 0
        for key, (start, end) in sorted(self._ranges.items(), key=lambda item: item[1]):
            if start != before:
                what = "overlaps the one before it" if start < before else "stands behind a hole"
                unreadable(self._name, f"it {what}", key)
            before = end
        if before > data_bytes:
            unreadable(self._name, f"it ends before its arrays do, {before - data_bytes} bytes")
        if before < data_bytes:
            unreadable(self._name, f"{data_bytes - before} bytes of it belong to no array")


def _are_sizes(values: object) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < _MOST for v in values)


def _product(shape: list[int], width: int) -> int | None:
    """Bytes of an array; None as soon as the number exceeds what a file could hold."""
    if 0 in shape:
        return 0
    for extent in shape:
        width *= extent
        if width >= _MOST:
            return None
    return width


def _type_of(entry: Any) -> ArrayType:
    """The type of a checked entry."""
    name = entry["dtype"]
    kind = {"B": "b", "U": "u", "I": "i", "C": "c"}.get(name[0], "f")
    kind = "f" if name == "BF16" else kind
    return ArrayType(kind, _WIDTHS[name], tuple(entry["shape"]))


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    by_key = dict(pairs)
    if len(by_key) != len(pairs):
        raise ValueError("a name is there twice")
    return by_key


def _wrong(constant: str) -> NoReturn:
    """Refuse NaN and infinity, which JSON does not have but Python reads."""
    raise ValueError(constant)
