"""The contents of a trace's buffers, from the file that its `resident` record names.

In: a `Program` and the folder of its trace. Out: `Contents`, which gives the bytes of any buffer:
from the file if it has an array of that name, otherwise seeded (`ir.program.seeded`). Weights may
come from a checkpoint instead. The file is not trusted. It is a plain `.npz` or `.safetensors` file
beside the trace, opened without following links, unless the user names a folder (`root`) and the
link stays below it (`plain_files`); nothing in it is unpickled; the size of every array is checked
from its header against its buffer before any data is decompressed, and no more bytes are read.
`.safetensors` data is mapped into memory, not read.

Source: NumPy's `.npy` format versions 1 and 2; the safetensors format (an 8-byte length, a JSON
header with byte ranges, data).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError, error
from tessera.frontend.contents.checkpoint import Checkpoint, CheckpointWeights, weights_of
from tessera.frontend.contents.files import ArrayType, NpzFile
from tessera.frontend.contents.safetensors import SafetensorsFile
from tessera.frontend.text.plain_files import open_plain
from tessera.frontend.trace.findings import did_you_mean
from tessera.ir.program.program import Buffer, Program
from tessera.ir.program.seeded import Seeded, Source, seeded_bytes

Bytes = npt.NDArray[np.uint8]


class ArrayFile(Protocol):
    """A file of named arrays."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each array, by name, as its header states."""

    @property
    def types(self) -> Mapping[str, ArrayType]:
        """The type and shape of each array, by name, as its header states."""

    def read(self, name: str) -> Bytes:
        """The bytes of one array."""

    def close(self) -> None:
        """Close the file."""


class Contents:
    """The contents of a program's buffers before a request starts: from a checkpoint, a file, or a
    seed, in this order."""

    def __init__(self, arrays: ArrayFile | None, seed: int) -> None:
        self._arrays = arrays
        self._seed = seed
        self._weights: CheckpointWeights | None = None

    def take_weights(self, program: Program, checkpoint: Checkpoint) -> None:
        """Take weights from a checkpoint; raises TSR1187 if it lacks any."""
        given = () if self._arrays is None else self._arrays.sizes
        self._weights = weights_of(program, checkpoint, given)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def is_given(self, buffer: Buffer) -> bool:
        """Whether a file holds this buffer; otherwise its bytes are seeded."""
        if self._weights is not None and buffer.name in self._weights.tensor_of:
            return True
        return self._arrays is not None and buffer.name in self._arrays.sizes

    def read(self, buffer: Buffer) -> Bytes:
        """The `buffer.bytes` bytes of a buffer. They may be read-only."""
        if self._weights is not None and buffer.name in self._weights.tensor_of:
            return self._weights.read(buffer.name)
        if self._arrays is not None and buffer.name in self._arrays.sizes:
            return self._arrays.read(buffer.name)
        return seeded_bytes(buffer, self._seed)

    def source(self, buffer: Buffer) -> Source:
        """The bytes from the file, or the seed that determines them."""
        return self.read(buffer) if self.is_given(buffer) else Seeded(buffer, self._seed)

    def close(self) -> None:
        """Close the file, not the checkpoint; arrays that were mapped stay valid."""
        if self._arrays is not None:
            self._arrays.close()


_BESIDE_TRACE = "put it beside the trace; without the `resident` record, contents are seeded"


def open_contents(
    program: Program,
    folder: str | os.PathLike[str],
    *,
    seed: int = 0,
    hint: str = _BESIDE_TRACE,
    root: str | None = None,
) -> Contents:
    """The contents of a program whose trace is in `folder`; headers are checked here.

    `hint` is the advice if the file does not exist; links are followed below `root`.
    """
    if program.resident is None:
        return Contents(None, seed)
    if os.path.basename(program.resident) != program.resident or "\\" in program.resident:
        message = f"`{program.resident}` is not a plain file name"
        raise TesseraError.of("TSR1181", message)
    name = os.fspath(Path(folder) / program.resident)
    return _checked(program, open_arrays(name, hint, root), name, seed)


def open_contents_file(
    program: Program, path: str | os.PathLike[str], *, seed: int = 0, root: str | None = None
) -> Contents:
    """The contents of a program from a file that the user names."""
    name = os.fspath(path)
    return _checked(program, open_arrays(name, root=root), name, seed)


def _checked(program: Program, arrays: ArrayFile, name: str, seed: int) -> Contents:
    try:
        _check_sizes(program, arrays, name)
    except TesseraError:
        arrays.close()
        raise
    return Contents(arrays, seed)


def open_arrays(name: str, hint: str | None = None, root: str | None = None) -> ArrayFile:
    """The arrays of a plain `.npz` or `.safetensors` file; sizes are not compared with buffers.

    `hint` is the advice if the file does not exist; links are followed below `root`.
    """
    if not name.endswith((".npz", ".safetensors")):
        raise TesseraError.of("TSR1181", f"`{name}` is not a `.npz` or `.safetensors` file")
    stream = os.fdopen(open_plain(name, hint, root), "rb")
    try:
        return NpzFile(stream, name) if name.endswith(".npz") else SafetensorsFile(stream, name)
    except TesseraError:
        stream.close()
        raise


def _check_sizes(program: Program, arrays: ArrayFile, name: str) -> None:
    """Check that every array belongs to a buffer and has its size."""
    sizes = {buffer.name: buffer.bytes for buffer in program.declared_buffers()}
    problems = []
    for array, size in arrays.sizes.items():
        if array not in sizes:
            problems.append(
                error(
                    "TSR1185",
                    f"array `{array[:80]}` in `{name}` belongs to no buffer",
                    hint=did_you_mean(array, sizes),
                )
            )
        elif size != sizes[array]:
            problems.append(
                error(
                    "TSR1185",
                    f"array `{array}` in `{name}` has {size} bytes, but its buffer has "
                    f"{sizes[array]}",
                )
            )
    if problems:
        raise TesseraError(problems[:20])
