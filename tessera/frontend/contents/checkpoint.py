"""Weights from a checkpoint folder as model libraries write it: safetensors files by name.

In: a folder with one `.safetensors` file, or with several and an index (`*.safetensors.index.json`,
as `save_pretrained` writes them). Out: a `Checkpoint`, whose tensors are mapped into memory, and
the tensor of each weight of a program. Nothing in the folder is trusted, and no code in it is run.

A tensor belongs to the buffer of its name. If a model was captured inside another module, or saved
without its outer module, all names differ by one prefix, which is detected. Tensors that a model
shares are saved once: `__metadata__` may say under which name, and with `tie_word_embeddings` in
`config.json` the shared tensor is the only one with a row per word.

Source: the safetensors format; the layout of folders that the transformers library writes.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import dataclass
from math import prod

from tessera.diagnostics import Diagnostic, TesseraError, error
from tessera.frontend.contents.files import Bytes
from tessera.frontend.contents.safetensors import SafetensorsFile, TensorType
from tessera.frontend.text.plain_files import open_plain
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, Program, Role

_INDEX = ".safetensors.index.json"
_MOST_INDEX_BYTES = 100_000_000
_MOST_NAMED = 20
_LONGEST_NAME = 4096


class Checkpoint:
    """The tensors of a folder, by name."""

    def __init__(self, folder: str, files: Mapping[str, SafetensorsFile], rows: int | None) -> None:
        self.folder = folder
        self.types: dict[str, TensorType] = {}
        self._file_of: dict[str, SafetensorsFile] = {}
        shared: dict[str, str] = {}
        for file in files.values():
            self.types |= file.tensor_types
            self._file_of |= dict.fromkeys(file.tensor_types, file)
            shared |= file.metadata
        self._shared = {gone: kept for gone, kept in shared.items() if kept in self.types}
        # The number of rows of the embeddings, if input and output embeddings are one tensor.
        self._tied_rows = rows

    def read(self, tensor: str) -> Bytes:
        """The bytes of a tensor, mapped."""
        return self._file_of[tensor].read(tensor)

    def close(self) -> None:
        """Close the files; tensors that were read stay mapped."""
        for file in self._file_of.values():
            file.close()

    def find(self, name: str, buffer: Buffer) -> str | None:
        """The tensor of a name: the tensor of that name, or the one that it shares."""
        if name in self.types:
            return name
        if name in self._shared:
            return self._shared[name]
        if self._tied_rows is None or buffer.shape is None or buffer.shape[0] != self._tied_rows:
            return None
        alike = [n for n, tensor in self.types.items() if tensor.shape == buffer.shape]
        return alike[0] if len(alike) == 1 else None


def open_checkpoint(folder: str | os.PathLike[str], root: str | None = None) -> Checkpoint:
    """Open a folder of safetensors files and check their headers. Links must lead below `root`."""
    path = os.fspath(folder)
    try:
        names = sorted(os.listdir(path))
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise _no_checkpoint(path, f"it cannot be listed: {reason}") from None
    indices = [name for name in names if name.endswith(_INDEX)]
    shards = [name for name in names if name.endswith(".safetensors")]
    if len(indices) > 1 or (not indices and len(shards) != 1):
        raise _no_checkpoint(path, _what_is_there(names, indices, shards))
    wanted = _weight_map(os.path.join(path, indices[0]), root) if indices else None
    files = dict.fromkeys(wanted.values()) if wanted is not None else dict.fromkeys(shards)
    with ExitStack() as stack:
        opened = {}
        for name in files:
            place = os.path.join(path, name)
            stream = os.fdopen(open_plain(place, _INCOMPLETE, root), "rb")
            stack.callback(stream.close)
            opened[name] = SafetensorsFile(stream, place)
        if wanted is not None:
            _check_index(path, wanted, opened)
        rows = _tied_rows(path, names, root)
        checkpoint = Checkpoint(path, opened, rows)
        stack.pop_all()
    return checkpoint


_INCOMPLETE = "the checkpoint is not complete: copy all files that its index names"


def _no_checkpoint(folder: str, why: str) -> TesseraError:
    return TesseraError.of(
        "TSR1187",
        f"`{folder}` is no checkpoint: {why}",
        hint="a checkpoint has `model.safetensors`, or several such files and "
        "`model.safetensors.index.json`",
    )


def _what_is_there(names: Sequence[str], indices: Sequence[str], shards: Sequence[str]) -> str:
    if len(indices) > 1:
        return f"it has {len(indices)} indices: {', '.join(indices[:4])}"
    if shards:
        return f"it has {len(shards)} safetensors files and no index"
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    if pickled:
        return f"`{pickled[0]}` is pickled, which is not read: save it as safetensors"
    return "it has no safetensors file"


def _json(place: str, root: str | None) -> object:
    with os.fdopen(open_plain(place, root=root), "rb") as stream:
        content = stream.read(_MOST_INDEX_BYTES + 1)
    try:
        if len(content) > _MOST_INDEX_BYTES:
            raise ValueError("too long")
        return json.loads(content)
    except (ValueError, RecursionError):
        raise _damaged(place, "it is not JSON") from None


def _damaged(place: str, why: str) -> TesseraError:
    return TesseraError.of("TSR1187", f"`{place}` cannot be read: {why}")


def _weight_map(place: str, root: str | None) -> dict[str, str]:
    """The file of each tensor."""
    index = _json(place, root)
    table = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(table, dict) or not table:
        raise _damaged(place, "it has no `weight_map`")
    for tensor, file in table.items():
        plain = isinstance(file, str) and file.endswith(".safetensors")
        if not plain or os.path.basename(file) != file or "\\" in file:
            raise _damaged(place, f"the file of `{tensor[:80]}` is no plain name")
    return table


def _check_index(
    folder: str, wanted: Mapping[str, str], opened: Mapping[str, SafetensorsFile]
) -> None:
    """Check that the files have the tensors of the index, and none twice."""
    wrong = [
        f"`{tensor}` is not in `{file}`"
        for tensor, file in wanted.items()
        if tensor not in opened[file].tensor_types
    ]
    places: dict[str, str] = {}
    for file, arrays in opened.items():
        for tensor in arrays.tensor_types:
            if tensor in places:
                wrong.append(f"`{tensor}` is in `{places[tensor]}` and in `{file}`")
            places[tensor] = file
    if wrong:
        raise TesseraError.of(
            "TSR1187",
            f"the index of `{folder}` and its files do not agree",
            notes=_listed(wrong),
            hint="copy or save the checkpoint again",
        )


def _tied_rows(folder: str, names: Sequence[str], root: str | None) -> int | None:
    """The size of the vocabulary, if the configuration says that embeddings are shared."""
    if "config.json" not in names:
        return None
    config = _json(os.path.join(folder, "config.json"), root)
    parts = [config, config.get("text_config")] if isinstance(config, dict) else []
    tables = [part for part in parts if isinstance(part, dict)]
    is_tied = any(table.get("tie_word_embeddings") is True for table in tables)
    rows = [table["vocab_size"] for table in tables if type(table.get("vocab_size")) is int]
    return rows[-1] if is_tied and rows else None


# --- the weights of a program -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """The tensors of a checkpoint that a program takes, by the names of its buffers."""

    checkpoint: Checkpoint
    tensor_of: Mapping[str, str]

    def read(self, name: str) -> Bytes:
        """The bytes of a buffer."""
        return self.checkpoint.read(self.tensor_of[name])


def weights_of(
    program: Program, checkpoint: Checkpoint, given: Iterable[str] = (), *, strict: bool = True
) -> CheckpointWeights:
    """The tensor of each weight; raises TSR1187 for those that are missing or do not fit.

    `given` are buffers that have contents without the checkpoint, so they need not be in it. If
    these are the contents of a whole model and `strict` is set, its weights do not replace
    parameters that the checkpoint lacks (`_lacks`).
    """
    lasting = [b for b in program.declared_buffers() if b.role in (Role.WEIGHT, Role.STATE)]
    prefix = _prefix([buffer.name for buffer in lasting], checkpoint.types)
    others = set(given)
    tensor_of: dict[str, str] = {}
    missing, wrong = [], []
    tensors = {b.name: checkpoint.find(prefix.tensor(b.name), b) for b in lasting}
    is_whole = strict and any(
        tensor is not None and name in others for name, tensor in tensors.items()
    )
    modules = {_module(tensor) for tensor in checkpoint.types} if is_whole else set()
    for buffer in lasting:
        tensor = tensors[buffer.name]
        if tensor is None:
            lacks = is_whole and _lacks(buffer, prefix.tensor(buffer.name), modules)
            if buffer.role is Role.WEIGHT and (lacks or buffer.name not in others):
                missing.append(f"missing: `{buffer.name}`, {_kind(buffer)}")
            continue
        reason = _misfit(buffer, checkpoint.types[tensor])
        if reason is None:
            tensor_of[buffer.name] = tensor
        else:
            wrong.append(f"`{tensor}` {reason}")
    if missing or wrong:
        raise TesseraError(_misfits(checkpoint, missing, wrong, len(tensor_of)))
    return CheckpointWeights(checkpoint, tensor_of)


def _module(tensor: str) -> str:
    """The module that a tensor belongs to."""
    return tensor.rpartition(".")[0]


def _lacks(buffer: Buffer, tensor: str, modules: Set[str]) -> bool:
    """Whether a buffer seems to be a missing parameter: it holds floats, and other tensors of its
    module were saved. Values that a model computes when it is created (tables of frequencies,
    masks) are not saved."""
    is_float = buffer.dtype is not None and buffer.dtype.is_float
    return is_float and _module(tensor) in modules and bool(_module(tensor))


def fitting(program: Program, checkpoint: Checkpoint) -> frozenset[str]:
    """The weights that a checkpoint has, as they are in the program."""
    every = [buffer.name for buffer in program.declared_buffers()]
    return frozenset(weights_of(program, checkpoint, every, strict=False).tensor_of)


def check_used(programs: Sequence[Program], checkpoint: Checkpoint) -> None:
    """Raise TSR1187 for a checkpoint that has none of the weights: it is of another model, and the
    contents of a capture must not replace it silently."""
    roles = {buffer.role for program in programs for buffer in program.declared_buffers()}
    if Role.WEIGHT in roles and not any(fitting(program, checkpoint) for program in programs):
        raise TesseraError.of(
            "TSR1187",
            f"`{checkpoint.folder}` has none of the weights",
            hint="name the checkpoint that the model was loaded from",
        )


def _misfits(
    checkpoint: Checkpoint, missing: Sequence[str], wrong: Sequence[str], fitted: int
) -> Diagnostic:
    counts = [f"{len(missing)} of its weights are missing"] if missing else []
    counts += [f"{len(wrong)} tensors do not fit"] if wrong else []
    return error(
        "TSR1187",
        f"`{checkpoint.folder}` is no checkpoint of this trace: {', '.join(counts)}",
        notes=(*_listed([*wrong, *missing]), f"{fitted} weights are there and fit"),
        hint="name the checkpoint that the model was loaded from, in the type that it was captured "
        "in; weights that no checkpoint has come from the capture: `tessc trace --weights FOLDER`",
    )


def _listed(texts: Sequence[str]) -> tuple[str, ...]:
    more = len(texts) - _MOST_NAMED
    return (*texts[:_MOST_NAMED], *([f"... and {more} more"] if more > 0 else ()))


def _kind(buffer: Buffer) -> str:
    kind = "bytes" if buffer.dtype is None else buffer.dtype.value
    shape = "" if buffer.shape is None else f" of shape {list(buffer.shape)}"
    return f"{kind}{shape}, {buffer.bytes} bytes"


def _misfit(buffer: Buffer, tensor: TensorType) -> str | None:
    """The reason why a tensor does not fit a buffer; None if it fits."""
    is_kind = tensor.dtype is buffer.dtype or (
        buffer.dtype is not None and buffer.dtype.is_bits and buffer.dtype.bytes == tensor.width
    )
    # Steps take floats of 8 bits as bytes.
    is_kind |= buffer.dtype is DataType.U8 and tensor.name.startswith("F8_")
    if not is_kind:
        wanted = "bytes" if buffer.dtype is None else buffer.dtype.value
        return f"is {tensor.name} in the checkpoint, and {wanted} in the trace"
    if buffer.shape is not None and tuple(tensor.shape) != buffer.shape:
        there, here = list(tensor.shape), list(buffer.shape)
        return f"has the shape {there} in the checkpoint, and {here} in the trace"
    size = prod(tensor.shape) * tensor.width
    if size != buffer.bytes:
        return f"has {size} bytes in the checkpoint, and {buffer.bytes} in the trace"
    if buffer.shape is None and sum(extent != 1 for extent in tensor.shape) > 1:
        return "was not contiguous when it was captured: the trace does not say how its rows lie"
    return None


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The prefix that is removed from (`off`) or put before (`on`) the name of a buffer for its
    tensor."""

    off: str = ""
    on: str = ""

    def tensor(self, name: str) -> str:
        """The name of the tensor."""
        return self.on + (name.removeprefix(self.off) if self.off else name)


def _prefix(names: Sequence[str], tensors: Mapping[str, object]) -> _Prefix:
    """The prefix with which most names agree; no prefix if that is equally good."""
    votes: Counter[_Prefix] = Counter()
    buffers = set(names)
    for name in names:
        votes.update(_Prefix(off=name[: -len(end)]) for end in _ends(name) if end in tensors)
    for tensor in tensors:
        votes.update(_Prefix(on=tensor[: -len(end)]) for end in _ends(tensor) if end in buffers)
    plain = sum(name in tensors for name in names)
    best = max(
        votes, key=lambda prefix: (votes[prefix], -len(prefix.off + prefix.on)), default=None
    )
    return best if best is not None and votes[best] > plain else _Prefix()


def _ends(name: str) -> Iterator[str]:
    """The proper suffixes of a dotted name; none if it is longer than any name of a module."""
    at = name.find(".") if len(name) <= _LONGEST_NAME else -1
    while at >= 0:
        yield name[at + 1 :]
        at = name.find(".", at + 1)
