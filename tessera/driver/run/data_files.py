"""The files with contents of a plan's traces: beside the traces, or as the user names them.

In: the values of `--data`, each `PATH` or `TRACE=PATH`. Out: `Contents` per trace. A file for one
trace holds its buffers and no others. A file for all traces is read by each: an array goes to the
buffers of its name and size, and must match at least one buffer. Inputs of two traces may share a
name and differ in size; if two files have an array for the same buffer, the user has to say which
trace each file is for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from tessera.diagnostics import TesseraError
from tessera.frontend.contents.checkpoint import Checkpoint, check_used, open_checkpoint
from tessera.frontend.contents.files import ArrayType
from tessera.frontend.contents.open_contents import (
    ArrayFile,
    Bytes,
    Contents,
    open_arrays,
    open_contents,
)
from tessera.ir.program.program import Program

Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of contents, and the trace that it is for; None means all traces."""

    path: str
    trace: int | None


def data_files(data: Data | None, names: Sequence[str]) -> tuple[DataFile, ...]:
    """The files of contents that the user names, in order."""
    given = [data] if isinstance(data, str | os.PathLike) else data or ()
    return tuple(_data_file(os.fspath(path), names) for path in given)


def data_paths(data: Data | None) -> list[str]:
    """The possible paths, before the names of traces are known."""
    given = [data] if isinstance(data, str | os.PathLike) else data or ()
    texts = [os.fspath(path) for path in given]
    return [*texts, *(text.partition("=")[2] for text in texts if "=" in text)]


def _data_file(text: str, names: Sequence[str]) -> DataFile:
    """Parse `prefill=prefill.npz`, unless a file has exactly that name."""
    if not os.path.exists(text):
        for index, name in enumerate(names):
            if text.startswith(f"{name}="):
                return DataFile(text.removeprefix(f"{name}="), index)
        if "=" in text:
            raise TesseraError.of(
                "TSR5053",
                f"`--data {text}` names no trace of the plan",
                hint=f"write `TRACE=PATH`; the traces are: {', '.join(names)}",
            )
    return DataFile(text, None)


def open_data(
    programs: Sequence[Program],
    trace: int,
    files: Sequence[DataFile],
    *,
    seed: int = 0,
    root: str | None = None,
) -> Contents:
    """The contents of one trace from the files that are for it."""
    with ExitStack() as stack:
        array_of: dict[str, tuple[ArrayFile, str]] = {}
        opened: list[ArrayFile] = []
        for file in files:
            if file.trace not in (None, trace):
                continue
            arrays = open_arrays(file.path, root=root)
            stack.callback(arrays.close)
            opened.append(arrays)
            own = programs if file.trace is None else [programs[trace]]
            for name in _fitting(arrays, own, programs[trace], file.path):
                _, other = array_of.setdefault(name, (arrays, file.path))
                if other != file.path:
                    raise _twice(name, other, file.path)
        stack.pop_all()
    return Contents(_Arrays({name: arrays for name, (arrays, _) in array_of.items()}, opened), seed)


@contextmanager
def opened_checkpoint(weights: str | None, root: str | None = None) -> Iterator[Checkpoint | None]:
    """The checkpoint that `--weights` names, if any; the parts that were read stay mapped."""
    checkpoint = None if weights is None else open_checkpoint(weights, root)
    try:
        yield checkpoint
    finally:
        if checkpoint is not None:
            checkpoint.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where the contents of a plan's traces come from: first a checkpoint, then `files`, or the
    files in the `folders` of the traces. Links are followed below `root`."""

    programs: Sequence[Program]
    folders: Sequence[str]
    files: Sequence[DataFile]
    checkpoint: Checkpoint | None = None
    root: str | None = None
    seed: int = 0

    def open(self, trace: int) -> Contents:
        """The contents of one trace."""
        program = self.programs[trace]
        if self.files:
            contents = open_data(self.programs, trace, self.files, seed=self.seed, root=self.root)
        else:
            hint = "put it beside the plan, or name it with `--data FILE`"
            folder = self.folders[trace]
            contents = open_contents(program, folder, seed=self.seed, hint=hint, root=self.root)
        if self.checkpoint is not None:
            try:
                contents.take_weights(program, self.checkpoint)
                check_used(self.programs, self.checkpoint)
            except TesseraError:
                contents.close()
                raise
        return contents


def _fitting(
    arrays: ArrayFile, programs: Sequence[Program], program: Program, path: str
) -> list[str]:
    """The arrays of a file that fit a program's buffers; each must fit a buffer of some trace."""
    sizes: dict[str, set[int]] = {}
    for program_given in programs:
        for buffer in program_given.declared_buffers():
            sizes.setdefault(buffer.name, set()).add(buffer.bytes)
    for name, size in arrays.sizes.items():
        if name not in sizes:
            message = f"array `{name[:80]}` in `{path}` belongs to no buffer"
            raise TesseraError.of("TSR1185", message)
        if size not in sizes[name]:
            wanted = " or ".join(map(str, sorted(sizes[name])))
            message = f"array `{name}` in `{path}` has {size} bytes, but its buffer has {wanted}"
            raise TesseraError.of("TSR1185", message)
    mine = {buffer.name: buffer.bytes for buffer in program.declared_buffers()}
    return [name for name, size in arrays.sizes.items() if mine.get(name) == size]


def _twice(name: str, first: str, second: str) -> TesseraError:
    return TesseraError.of(
        "TSR5053",
        f"array `{name}` is in `{first}` and in `{second}`",
        hint="say which trace each file is of: `--data TRACE=PATH`",
    )


class _Arrays:
    """Arrays of several files."""

    def __init__(self, arrays: Mapping[str, ArrayFile], opened: Sequence[ArrayFile]) -> None:
        self._arrays = arrays
        self._opened = opened

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes of each array."""
        return {name: arrays.sizes[name] for name, arrays in self._arrays.items()}

    @property
    def types(self) -> Mapping[str, ArrayType]:
        """Types and shapes."""
        return {name: arrays.types[name] for name, arrays in self._arrays.items()}

    def read(self, name: str) -> Bytes:
        """The bytes of one array."""
        return self._arrays[name].read(name)

    def close(self) -> None:
        """Close the files."""
        for arrays in self._opened:
            arrays.close()
