"""What happens while a call is captured: library calls, and the memory that comes and goes.

`Watcher` has a torch dispatch mode. For every operator that adds nodes to the graph it notes the
operator, its operands and which nodes those are. It keeps every tensor that is made during capture
alive, so that no address serves two tensors: each stays a buffer of its own. Operators of others
than PyTorch are looked into: what they call is noted too, and what they make on the way is kept.

torch.compile's own code makes its tensors without the dispatcher; `keep_compiled` stands in for
the function that it uses, and has to be in force before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.cuda_graph import count_nodes
from tessera.frontend.capture.host_copies import HostCopies
from tessera.frontend.capture.meta.stand_in import real_host
from tessera.frontend.capture.operator_mode import name_of, operator_mode
from tessera.frontend.capture.raw import RawOperator, RawTensor
from tessera.frontend.capture.replaced import replaced
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import AttributeValue

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
# What PyTorch itself comes with; operators of other namespaces are somebody's own.
_BUILT_IN = frozenset(
    {
        "aten",
        "prim",
        "prims",
        "inductor",
        "rngprims",
        "profiler",
        "quantized",
        "c10d",
        "_c10d_functional",
    }
)


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


class Keeper:
    """Tensors that must stay alive until the capture has been read."""

    def __init__(self) -> None:
        self.tensors: list[torch.Tensor] = []
        self.is_on = False

    def keep(self, thing: torch.Tensor) -> None:
        """Keep a tensor, if a capture is under way."""
        if self.is_on:
            self.tensors.append(thing)


@contextmanager
def keep_compiled(keeper: Keeper) -> Iterator[None]:
    """Have the allocations of compiled code pass through the keeper."""
    import torch

    guards = torch._C._dynamo.guards

    def stand_in(old: Callable[..., object]) -> Callable[..., object]:
        def make(*arguments: object) -> object:
            tensor = old(*arguments)
            keeper.keep(tensor)
            return tensor

        return make

    names = ("_empty_strided_cuda", "_empty_strided_cuda_pinned")
    plain, pinned = (replaced(guards, name, stand_in) for name in names)
    with plain, pinned:
        yield


class Watcher:
    """A dispatch mode (`mode`) whose `operators` are the calls that added nodes to the graph.

    Calls inside of others come before them. What the call copies from the host is in `copies`.
    """

    def __init__(self, keeper: Keeper, graph_of: Callable[[], object]) -> None:
        self.operators: list[RawOperator] = []
        self.copies = HostCopies()
        self.mode = operator_mode(self._call, compiled=True)
        self._keeper = keeper
        self._graph_of = graph_of

    def _call(
        self,
        mode: AbstractContextManager[object],
        func: torch._ops.OpOverload,
        args: tuple[object, ...],
        kwargs: dict[str, object],
    ) -> object:
        graph = self._graph_of()
        if graph is not None:
            constant = self.copies.made_by(func, args, kwargs)
            if constant is not None:
                return constant
            args = self.copies.given_to(func, args)
        first = count_nodes(graph) if graph is not None else 0
        result = _called_inside(mode, func, args, kwargs)
        for tensor in tensors_in(result):
            self._keeper.keep(tensor)
        last = count_nodes(graph) if graph is not None else 0
        if last > first:
            self.operators.append(operator_of(func, args, kwargs, result, (first, last)))
        return result


def _called_inside(
    mode: AbstractContextManager[object],
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> object:
    """Call an operator; one of somebody's own with the mode in force inside it."""
    import torch

    tensors = () if func.namespace in _BUILT_IN else tuple(tensors_in((args, kwargs)))
    if not tensors:
        return func(*args, **kwargs)
    keys = torch._C._dispatch_keys(tensors[0])
    for tensor in tensors[1:]:
        keys = keys | torch._C._dispatch_keys(tensor)
    with mode:
        return func.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)


def tensors_in(thing: object) -> Iterator[torch.Tensor]:
    """The tensors in nested containers and objects, in order, each mention of one."""
    yield from (tensor for _, tensor in _tensors(thing, (), set()))


def named_tensors(name: str, thing: object) -> list[tuple[str, torch.Tensor]]:
    """The tensors in a thing, each with a name: that of the thing, and the way to it if there are
    several: places in lists, keys, attributes."""
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


def operator_of(
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    result: object,
    nodes: tuple[int, int],
    address_of: Callable[[torch.Tensor], int] | None = None,
) -> RawOperator:
    """A call of an operator, in place of nodes; `address_of` is for tensors without memory.

    Of an operator of somebody's own what is inside counts, and its name if that is not enough; on
    tensors without memory nothing of it runs, and its operands are all that is known.
    """
    schema = func._schema
    reads: list[RawTensor] = []
    writes: list[RawTensor] = []
    attributes: list[tuple[str, AttributeValue]] = []

    def raw(tensor: torch.Tensor) -> RawTensor:
        return raw_tensor(tensor, address_of)

    if func.namespace not in _BUILT_IN and address_of is None:
        args, kwargs, result = (), {}, None
    given = dict(zip((a.name for a in schema.arguments), args, strict=False)) | kwargs
    for argument in schema.arguments:
        if argument.name not in given:
            continue
        value = _number_of(given[argument.name])
        tensors = [t for t in tensors_in(value) if t.is_cuda]
        is_written = argument.alias_info is not None and argument.alias_info.is_write
        if tensors:
            (writes if is_written else reads).extend(map(raw, tensors))
            if is_written and not argument.is_out:
                reads.extend(map(raw, tensors))
            if isinstance(value, list | tuple) and any(item is None for item in value):
                # An index per dimension, with gaps: where those that are there belong.
                places = tuple(at for at, item in enumerate(value) if item is not None)
                attributes.append((f"{argument.name}_at", places))
        elif (plain := _attribute(value)) is not ...:
            attributes.append((argument.name, plain))
    seen = {tensor.address for tensor in writes}
    made = [raw(t) for t in tensors_in(_results(func, result, reads)) if t.is_cuda]
    writes += [tensor for tensor in made if tensor.address not in seen]
    return RawOperator(
        operator=name_of(func),
        reads=tuple(reads),
        writes=tuple(writes),
        attributes=tuple(attributes),
        first=nodes[0],
        last=nodes[1],
    )


def _results(func: torch._ops.OpOverload, result: object, reads: list[RawTensor]) -> object:
    """What an operator returns, without what attention keeps for a backward pass.

    That is seeds, offsets and counts, which nothing writes without dropout, and a logarithm of sums
    that is missing, empty or padded where it was not asked for: then it holds nothing.
    """
    if not func._schema.name.startswith("aten::_scaled_dot_product") or not reads:
        return result
    out, *rest = tensors_in(result)
    sums = [tensor for tensor in rest[:1] if tuple(tensor.shape) == reads[0].shape[:-1]]
    return (out, *sums)


def _number_of(value: object) -> object:
    """A number that the host holds as a tensor without dimensions, as the number."""
    import torch

    if isinstance(value, torch.Tensor) and not value.is_cuda and value.dim() == 0:
        with real_host():
            number: object = value.item()
        return number
    return value


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


def _attribute(value: Any) -> Any:
    """A JSON scalar or a tuple of them; `...` for what an operator's record does not hold."""
    import torch

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        kind = data_type(value)
        return kind.value if kind else str(value)
    if isinstance(value, list | tuple):
        parts = tuple(_attribute(part) for part in value)
        return ... if ... in parts else parts
    return ...
