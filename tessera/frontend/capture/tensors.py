"""Tensors: those inside of containers and objects, with names, and each as a trace has it.

In: things that a call is given, holds or returns. Out: the tensors in them, their types in a trace,
and `RawTensor`s. A tensor whose memory does not hold its values is refused (TSR6002). This module
is read where there is no PyTorch, and imports it when it is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.raw import RawTensor
from tessera.ir.program.data_type import DataType

if TYPE_CHECKING:
    import torch

_NAMES = {
    "float32": "f32",
    "float64": "f64",
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "s8",
    "uint8": "u8",
    "int16": "s16",
    "uint16": "u16",
    "int32": "s32",
    "uint32": "u32",
    "int64": "s64",
    "uint64": "u64",
    "bool": "bool",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "complex64": "c64",
    "complex128": "c128",
}
_PLAIN = (bool, int, float, complex, str, bytes)


def data_type(dtype: object) -> DataType | None:
    """The type of a tensor's elements in a trace, if it has one."""
    name = _NAMES.get(str(dtype).removeprefix("torch."))
    return None if name is None else DataType(name)


def torch_type(dtype: DataType) -> torch.dtype | None:
    """PyTorch's name for a type of a trace, if it has one."""
    import torch

    name = next((name for name, known in _NAMES.items() if known == dtype.value), None)
    kind: torch.dtype | None = None if name is None else getattr(torch, name, None)
    return kind


def tensors_in(thing: object) -> Iterator[torch.Tensor]:
    """The tensors in nested containers and objects, in order, each mention of one."""
    yield from (tensor for _, tensor in _tensors(thing, (), set()))


def named_tensors(name: str, thing: object) -> list[tuple[str, torch.Tensor]]:
    """The tensors in an object, each with a name: that of the object, and the path to the tensor if
    there are several: places in lists, keys, attributes."""
    parts = list(_tensors(thing, (), set()))
    return [(name if len(parts) == 1 else ".".join((name, *way)), part) for way, part in parts]


def _tensors(
    thing: object, way: tuple[str, ...], seen: set[int]
) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    import torch

    parts: Iterable[tuple[object, object]]
    if isinstance(thing, torch.Tensor):
        if not hasattr(thing, "__tensor_flatten__"):
            yield way, thing
            return
        # A tensor that stands for others, such as a quantized one.
        names = thing.__tensor_flatten__()[0]
        thing = {name: getattr(thing, name) for name in names}
    if (
        thing is None
        or isinstance(thing, (*_PLAIN, ModuleType))
        or callable(thing)
        or id(thing) in seen
    ):
        return
    seen.add(id(thing))
    if isinstance(thing, list | tuple | set | frozenset):
        parts = enumerate(thing)
    elif isinstance(thing, Mapping):
        parts = thing.items()
    else:
        # A dataclass, a cache of keys and values, an object of the model's own.
        slots = (name for kind in type(thing).__mro__ for name in _slots(kind))
        parts = [(name, getattr(thing, name, None)) for name in slots]
        parts += list(getattr(thing, "__dict__", {}).items())
    for name, part in parts:
        yield from _tensors(part, (*way, str(name)), seen)
    seen.discard(id(thing))


def _slots(kind: type) -> tuple[str, ...]:
    named = kind.__dict__.get("__slots__", ())
    return (named,) if isinstance(named, str) else tuple(named)


def check_plain(tensor: torch.Tensor, what: str) -> None:
    """Raise unless a tensor's memory holds its values, one beside the other."""
    import torch

    if tensor.layout is not torch.strided:
        raise _cannot_hold(what, f"of the layout {tensor.layout}", "`.to_dense()`")
    if tensor.is_conj():
        raise _cannot_hold(what, "conjugated when it is read", "`.conj_physical()`")
    if tensor.is_neg():
        raise _cannot_hold(what, "negated when it is read", "`-x` in its place")


def _cannot_hold(what: str, how: str, instead: str) -> TesseraError:
    return TesseraError.of(
        "TSR6002",
        f"{what} is {how}, which a trace cannot hold",
        hint=f"make it a plain tensor before ({instead}), or use `--route ptx`",
    )


def raw_tensor(
    tensor: torch.Tensor,
    address_of: Callable[[torch.Tensor], int] | None = None,
    what: str = "an operand of a library call",
) -> RawTensor:
    """A tensor of the call; by its own address, unless another way to find that is given."""
    check_plain(tensor, what)
    kind = data_type(tensor.dtype)
    if kind is None:
        raise _cannot_hold(what, f"of the type {tensor.dtype}", "`.to(torch.float16)`, say")
    return RawTensor(
        address=tensor.data_ptr() if address_of is None else address_of(tensor),
        dtype=kind,
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
    )
