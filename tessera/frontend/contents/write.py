"""Writes buffers to a `.npz` or `.safetensors` file that `contents` reads back.

In: buffers with their bytes. Out: one array per buffer, by name. Types that NumPy has keep their
type and shape; others (`bf16`, `e4m3`, untyped) are flat bytes in `.npz`. Equal buffers give
byte-equal files. The file appears whole or not at all, and records its kind (`output`).
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from tessera.diagnostics import TesseraError
from tessera.frontend.contents import safetensors
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer
from tessera.output import Kind, mark, write_stream

Bytes = npt.NDArray[np.uint8]
Rows = Iterable[tuple[Buffer, Bytes | Sequence[Bytes]]]
"""Buffers with their bytes, whole or as consecutive parts."""

_NUMPY_TYPES = {
    DataType.U8: "u1",
    DataType.U16: "<u2",
    DataType.U32: "<u4",
    DataType.U64: "<u8",
    DataType.S8: "i1",
    DataType.S16: "<i2",
    DataType.S32: "<i4",
    DataType.S64: "<i8",
    DataType.F16: "<f2",
    DataType.F32: "<f4",
    DataType.F64: "<f8",
    DataType.BOOL: "?",
    DataType.C64: "<c8",
    DataType.C128: "<c16",
}
# Types without a numeric meaning are written as unsigned integers.
_BITS = {
    DataType.B8: DataType.U8,
    DataType.B16: DataType.U16,
    DataType.B32: DataType.U32,
    DataType.B64: DataType.U64,
}
_PIECE = 16 << 20
_LONGEST_NAME = 65535 - len(".npy")


def check_format(path: str | os.PathLike[str]) -> None:
    """Refuse a name whose suffix is not one of the formats."""
    _writer(Path(path))


def _writer(place: Path) -> Callable[[IO[bytes], Rows, Kind, str], None]:
    writers = {".npz": _write_npz, ".safetensors": _write_safetensors}
    writer = writers.get(place.suffix)
    if writer is None:
        raise TesseraError.of("TSR1181", f"`{place}` is not a `.npz` or `.safetensors` file")
    return writer


def write_contents(path: str | os.PathLike[str], buffers: Rows, kind: Kind = Kind.RESULTS) -> None:
    """Write buffers to a file, whose name decides the format.

    A `.safetensors` file that already has these bytes stays and gets the current time: writing
    gigabytes takes longer than comparing them.
    """
    writer, place = _writer(Path(path)), os.fspath(path)

    def write(stream: IO[bytes]) -> None:
        writer(stream, buffers, kind, place)

    with suppress(_AlreadyThereError):
        write_stream(place, write, kind)


class _AlreadyThereError(Exception):
    """The file already has the bytes to be written."""


def _is_there(path: str, parts: Sequence[memoryview]) -> bool:
    """Whether a plain file has exactly these bytes; if so, its time is set to the current time."""
    try:
        if not os.path.isfile(path) or os.path.getsize(path) != sum(part.nbytes for part in parts):
            return False
        piece = np.empty(_PIECE, np.uint8)
        with open(path, "rb", buffering=0) as file:
            for part in filter(len, parts):
                wanted = np.frombuffer(part, np.uint8)
                for start in range(0, part.nbytes, _PIECE):
                    new = wanted[start : start + _PIECE]
                    count = file.readinto(piece[: new.size].data)
                    if count != new.size or not np.array_equal(piece[:count], new):
                        return False
        os.utime(path)
    except OSError:
        return False
    return True


def has_type(path: str | os.PathLike[str], buffer: Buffer) -> bool:
    """Whether a file of that name keeps the type and shape of a buffer."""
    if Path(path).suffix == ".safetensors":
        return _written_type(buffer) in safetensors.NAMES
    return numpy_type(buffer) is not None


def numpy_type(buffer: Buffer) -> np.dtype[np.generic] | None:
    """NumPy's type for the elements of a buffer, if it has one."""
    written = _written_type(buffer)
    return np.dtype(_NUMPY_TYPES[written]) if written in _NUMPY_TYPES else None


def _written_type(buffer: Buffer) -> DataType | None:
    return None if buffer.dtype is None else _BITS.get(buffer.dtype, buffer.dtype)


def as_array(buffer: Buffer, content: Bytes) -> npt.NDArray[np.generic]:
    """The bytes of a buffer in its own type and shape, if NumPy has that type."""
    kind = numpy_type(buffer)
    if kind is None:
        return content
    array: npt.NDArray[np.generic] = content.view(kind)
    return array if buffer.shape is None else array.reshape(buffer.shape)


def _parts(content: Bytes | Sequence[Bytes]) -> Iterable[memoryview]:
    parts = (content,) if isinstance(content, np.ndarray) else content
    return (np.ascontiguousarray(part).data for part in parts)


def _npy_header(buffer: Buffer) -> dict[str, object]:
    kind = numpy_type(buffer)
    shape: tuple[int, ...] = (buffer.bytes // (1 if kind is None else kind.itemsize),)
    if kind is not None and buffer.shape is not None:
        shape = buffer.shape
    descr = npy.dtype_to_descr(np.dtype(np.uint8) if kind is None else kind)
    return {"descr": descr, "fortran_order": False, "shape": shape}


def _write_npz(stream: IO[bytes], buffers: Rows, kind: Kind, _: str) -> None:
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = mark(kind).encode()
        for buffer, content in buffers:
            if len(buffer.name.encode()) > _LONGEST_NAME:
                raise OSError(f"an .npz file has no room for a name of {len(buffer.name)} letters")
            # A fresh ZipInfo has the date 1980-01-01: no clock in the output.
            member = zipfile.ZipInfo(f"{buffer.name}.npy")
            member.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(member, "w", force_zip64=True) as data:
                npy.write_array_header_1_0(data, _npy_header(buffer))
                for part in _parts(content):
                    data.write(part)


def _write_safetensors(stream: IO[bytes], buffers: Rows, kind: Kind, place: str) -> None:
    entries: dict[str, object] = {"__metadata__": {"producer": mark(kind)}}
    contents, start = [], 0
    for buffer, content in buffers:
        dtype, shape = _safetensors_type(buffer)
        end = start + buffer.bytes
        entries[buffer.name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        contents.append(content)
        start = end
    header = json.dumps(entries, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    head = memoryview(len(header).to_bytes(8, "little") + header)
    parts = [head, *(part for content in contents for part in _parts(content))]
    if _is_there(place, parts):
        raise _AlreadyThereError
    for part in parts:
        stream.write(part)


def _safetensors_type(buffer: Buffer) -> tuple[str, list[int]]:
    kind = _written_type(buffer)
    if kind is None or kind not in safetensors.NAMES:
        return "U8", [buffer.bytes]
    return safetensors.NAMES[kind], list(buffer.shape or (buffer.bytes // kind.bytes,))
