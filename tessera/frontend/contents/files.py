"""Untrusted `.npz` files of named arrays (`safetensors` reads the other format).

In: an open binary file. Out: the size of each array from headers alone, and its bytes on demand.
A false header is an error, never an allocation: members are read up to the size that their
header states and must end there.
"""

from __future__ import annotations

import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from math import prod
from typing import IO, NoReturn

import numpy as np
import numpy.typing as npt
from numpy.lib import format as npy

from tessera.diagnostics import TesseraError

Bytes = npt.NDArray[np.uint8]

_MAX_NPY_HEADER = 10_000
_CHUNK = 1 << 20
_ZIP_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    NotImplementedError,
    RuntimeError,
    SyntaxError,
    TypeError,
    KeyError,
    OverflowError,
    MemoryError,
    tokenize.TokenError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class ArrayType:
    """The header of an array: the kind and bytes of an element, and the shape.

    Kinds are those of NumPy (`f`, `i`, `u`, `b`, `c`); types that NumPy lacks have the kind `f`.
    """

    kind: str
    bytes: int
    shape: tuple[int, ...]

    def text(self) -> str:
        """For people."""
        names = {"f": "float", "i": "int", "u": "uint", "b": "bool", "c": "complex"}
        width = "" if self.kind == "b" else str(8 * self.bytes)
        return f"{names.get(self.kind, 'bytes')}{width} of shape {self.shape}"


class NpzFile:
    """A zip file whose members are `NAME.npy`."""

    def __init__(self, stream: IO[bytes], name: str) -> None:
        self._name = name
        self._stream = stream
        try:
            self._zip = zipfile.ZipFile(stream)
            members = self._zip.infolist()
        except _ZIP_FAULTS as problem:
            unreadable(name, problem)
        self.sizes: dict[str, int] = {}
        self.types: dict[str, ArrayType] = {}
        for member in members:
            array = self._array_name(member)
            if array in self.sizes:
                unreadable(name, f"array `{array}` is there twice")
            try:
                with self._zip.open(member) as data:
                    size, dtype, shape, _ = self._header(data, array)
                    if member.file_size != data.tell() + size:
                        raise ValueError("its header and its length do not agree")
                    self.sizes[array] = size
                    self.types[array] = ArrayType(dtype.kind, dtype.itemsize, tuple(shape))
            except _ZIP_FAULTS as problem:
                unreadable(name, problem, array)

    def read(self, name: str) -> Bytes:
        """The bytes of one array, in C order."""
        try:
            with self._zip.open(f"{name}.npy") as data:
                size, dtype, shape, fortran = self._header(data, name)
                content = _read_exactly(data, size)
                if data.read(1):
                    unreadable(self._name, "more data than its header states", name)
        except _ZIP_FAULTS as problem:
            unreadable(self._name, problem, name)
        flat = np.frombuffer(content, np.uint8)
        if not fortran or len(shape) < 2:
            return flat
        transposed = flat.view(dtype).reshape(shape[::-1]).T
        return np.ascontiguousarray(transposed).reshape(-1).view(np.uint8)

    def close(self) -> None:
        """Close the file."""
        self._zip.close()
        self._stream.close()

    def _array_name(self, member: zipfile.ZipInfo) -> str:
        if not member.filename.endswith(".npy"):
            unreadable(self._name, f"`{member.filename[:80]}` in it is not a `.npy` file")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            unreadable(self._name, f"`{member.filename[:80]}` is compressed in a strange way")
        return member.filename.removesuffix(".npy")

    def _header(
        self, data: IO[bytes], array: str
    ) -> tuple[int, np.dtype[np.generic], tuple[int, ...], bool]:
        """Bytes, type, shape and order of an array; leaves the stream at its data."""
        version = npy.read_magic(data)
        readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
        if version not in readers:
            raise ValueError(f"`.npy` version {version} is not known")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers written by Python 2
            try:
                shape, fortran, dtype = readers[version](data, max_header_size=_MAX_NPY_HEADER)
            except (*_ZIP_FAULTS, RecursionError):
                # NumPy's message would quote the header, and the user did not name every file of
                # contents.
                raise ValueError("its header is damaged") from None
        if dtype.hasobject:
            unusable(self._name, array, "holds Python objects, which are never unpickled")
        if dtype.byteorder == ">" or dtype.subdtype is not None or dtype.itemsize == 0:
            unusable(self._name, array, f"has the type `{dtype}`, whose bytes are not a buffer's")
        if any(extent < 0 for extent in shape):
            raise ValueError("an extent is negative")
        return prod(shape) * dtype.itemsize, dtype, shape, fortran


def _read_exactly(data: IO[bytes], size: int) -> bytearray:
    """Read `size` bytes; memory grows with the bytes that exist, not with the size in a header."""
    content = bytearray()
    while len(content) < size:
        chunk = data.read(min(_CHUNK, size - len(content)))
        if not chunk:
            raise EOFError("the data ends before its header says")
        content += chunk
    return content


def unreadable(name: str, reason: Exception | str, array: str | None = None) -> NoReturn:
    """Refuse a file, or one of its arrays."""
    where = f"array `{array[:80]}` in `{name}`" if array is not None else f"`{name}`"
    detail = str(reason).strip().split("\n")[0][:200] or type(reason).__name__
    raise TesseraError.of(
        "TSR1183",
        f"{where} cannot be read as contents: {detail}",
        hint="save or copy it again"
        if name.endswith(".safetensors")
        else "write it with `numpy.savez(file, **arrays)`, one array per buffer",
    ) from None


def unusable(name: str, array: str, what: str) -> NoReturn:
    """Refuse an array whose bytes could not be those of a buffer."""
    raise TesseraError.of(
        "TSR1183",
        f"array `{array[:80]}` in `{name}` {what}",
        hint="store the bytes: `array.view(numpy.uint8)`",
    ) from None
