"""What happens while a call is captured: library calls, and the memory that comes and goes.

`Watcher` has a torch dispatch mode. For every operator that adds nodes to the graph it notes the
operator, its operands and which nodes those are. It keeps every tensor that is made during capture
alive, so that no address serves two tensors: each stays a buffer of its own. Operators of others
than PyTorch are looked into: what they call is noted too, and what they make on the way is kept.

torch.compile's own code makes its tensors without the dispatcher; `keep_compiled` stands in for
the function that it uses, and has to be in force before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from tessera.frontend.capture.cuda_graph import count_nodes
from tessera.frontend.capture.host_copies import HostCopies
from tessera.frontend.capture.operator_mode import name_of, operator_mode
from tessera.frontend.capture.raw import RawOperator, RawTensor
from tessera.frontend.capture.replaced import replaced
from tessera.frontend.capture.stand_in import real_host
from tessera.frontend.capture.tensors import data_type, raw_tensor, tensors_in
from tessera.ir.program.program import AttributeValue

# What PyTorch itself comes with; operators of other namespaces belong to libraries or to the model.
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
    """Pass the allocations of compiled code through the keeper."""
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
    """Call an operator; one that is not PyTorch's runs with the mode in force inside it."""
    tensors = () if func.namespace in _BUILT_IN else tuple(tensors_in((args, kwargs)))
    if not tensors:
        return func(*args, **kwargs)
    keys = torch._C._dispatch_keys(tensors[0])
    for tensor in tensors[1:]:
        keys = keys | torch._C._dispatch_keys(tensor)
    with mode:
        return func.redispatch(keys & torch._C._after_ADInplaceOrView_keyset, *args, **kwargs)


def operator_of(
    func: torch._ops.OpOverload,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    result: object,
    nodes: tuple[int, int],
    address_of: Callable[[torch.Tensor], int] | None = None,
) -> RawOperator:
    """A call of an operator, in place of nodes; `address_of` is for tensors without memory.

    For an operator that is not PyTorch's the calls inside count, and its name if they are not
    enough; on tensors without memory nothing of it runs, and its operands are all that is known.
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
    """The result of an operator, without what attention keeps for a backward pass.

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
    if isinstance(value, torch.Tensor) and not value.is_cuda and value.dim() == 0:
        with real_host():
            number: object = value.item()
        return number
    return value


def _attribute(value: Any) -> Any:
    """A JSON scalar or a tuple of them; `...` for what an operator's record does not hold."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        kind = data_type(value)
        return kind.value if kind else str(value)
    if isinstance(value, list | tuple):
        parts = tuple(_attribute(part) for part in value)
        return ... if ... in parts else parts
    return ...
