"""Cut a recorded graph into sections, so that many of them are equal.

In: a graph of torch functions in the order in which they run. Out: `GraphSection`s, one after the
other, which together are all of it. Two sections of one key are the same graph: the same calls
with the same constants on tensors of the same sizes, types and strides, joined in the same way,
with memory shared in the same way; only which tensors they are given differs. Nothing is assumed of
layers: sections are cut wherever some product comes again, and compared call by call.

Cuts are made before products alone, where a compiler begins a new kernel anyway, and where only
tensors are handed on, none of which share memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch.fx import Graph, Node

from tessera.frontend.capture.graphs.graph_nodes import call_of, storage_of, value_of

# Cuts that leave more than this share of the calls to compile are not worth it.
_WORTH = 0.75
# And cuts that spare fewer calls than this: a compiler that sees the whole graph computes small
# things (masks, say) again where they are used, as on a GPU, and sections are handed them.
LEAST_SPARED = 200
# Of ways to cut that leave about as much to compile, the one with the fewest sections is taken.
_ABOUT = 1.25
_PRODUCTS = frozenset(("linear", "matmul", "mm", "bmm", "addmm", "baddbmm"))
# By how many calls two places are told apart.
_WINDOWS = (1, 4, 16)
_ALIGNED = 16
_NO_CALLS = ("placeholder", "get_attr", "output")


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSection:
    """Calls that come one after the other, what they take from before and what is used later."""

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    key: Hashable


def sections_of(graph: Graph) -> list[GraphSection]:
    """The sections in order; none if too few of them are equal."""
    calls = _GraphCalls(graph)
    ways = [calls.cut(cuts) for cuts in calls.ways_to_cut()]
    least = min(map(_to_compile, ways), default=len(calls.nodes))
    if least > min(_WORTH * len(calls.nodes), len(calls.nodes) - LEAST_SPARED):
        return []
    return min((way for way in ways if _to_compile(way) <= _ABOUT * least), key=len)


def _to_compile(sections: Sequence[GraphSection]) -> int:
    """The number of calls in distinct sections."""
    return sum({section.key: len(section.nodes) for section in sections}.values())


class _GraphCalls:
    """The calls of a graph, each with a number that says what it is, apart from its operands."""

    def __init__(self, graph: Graph) -> None:
        self.nodes = [node for node in graph.nodes if node.op not in _NO_CALLS]
        self._place = {node: place for place, node in enumerate(self.nodes)}
        self._operands: list[tuple[Node, ...]] = []
        self._kinds: list[int] = []
        self._last: dict[Node, int] = {}
        kinds: dict[Hashable, int] = {}
        for place, node in enumerate(self.nodes):
            operands: list[Node] = []
            given = _form((node.args, node.kwargs), operands)
            signs = tuple(_sign(operand) for operand in operands)
            kind = (node.op, node.target, given, signs, _sign(node))
            self._operands.append(tuple(operands))
            self._kinds.append(kinds.setdefault(kind, len(kinds)))
            self._last.update(dict.fromkeys(operands, place))
        (output,) = (node for node in graph.nodes if node.op == "output")
        self._last.update(dict.fromkeys(output.all_input_nodes, len(self.nodes)))
        self._returns_held = any(node.op == "get_attr" for node in output.all_input_nodes)

    def ways_to_cut(self) -> Iterator[list[int]]:
        """Places to cut at, in several ways: wherever the same calls begin with a product."""
        if self._returns_held or any(_changes_mode(node) for node in self.nodes):
            return
        allowed = list(self._allowed())
        seen = set()
        for window in _WINDOWS:
            begun = [tuple(self._kinds[place : place + window]) for place in allowed]
            for kind, count in Counter(begun).items():
                cuts = [place for place, other in zip(allowed, begun, strict=True) if other == kind]
                if count > 1 and tuple(cuts) not in seen:
                    seen.add(tuple(cuts))
                    yield cuts

    def _allowed(self) -> Iterator[int]:
        """Products before which the graph can be cut."""
        live: set[Node] = set()
        ends: dict[int, list[Node]] = {}
        for node, place in self._last.items():
            ends.setdefault(place, []).append(node)
        depth = 0  # of functions over functions (`vmap`), which hand on tensors of their own kind
        for place, node in enumerate(self.nodes):
            depth += _nesting(node)
            if not depth and call_of(node)[0] in _PRODUCTS and _can_be_handed_on(live):
                yield place
            live.difference_update(ends.get(place, ()))
            if self._last.get(node, -1) > place:
                live.add(node)

    def cut(self, cuts: Sequence[int]) -> list[GraphSection]:
        """The sections between cuts."""
        bounds = sorted({0, *cuts, len(self.nodes)})
        return [self._section(begin, end) for begin, end in pairwise(bounds)]

    def _section(self, begin: int, end: int) -> GraphSection:
        inputs: dict[Node, int] = {}
        joined: list[Hashable] = []
        for place in range(begin, end):
            uses = []
            for operand in self._operands[place]:
                made = self._place.get(operand, -1)
                if made >= begin:
                    uses.append(made - begin)
                else:
                    uses.append(-1 - inputs.setdefault(operand, len(inputs)))
            joined.append((self._kinds[place], *uses))
        inside = self.nodes[begin:end]
        places = [at for at, node in enumerate(inside) if self._last.get(node, -1) >= end]
        return GraphSection(
            nodes=tuple(inside),
            inputs=tuple(inputs),
            outputs=tuple(inside[at] for at in places),
            key=(tuple(joined), tuple(places), _memory(inputs)),
        )


def _form(value: object, operands: list[Node]) -> Hashable:
    """Arguments as something that is equal for equal ones; operands are listed apart."""
    match value:
        case Node(op="get_attr"):
            return ("held", value.target)
        case Node():
            operands.append(value)
            return "operand"
        case tuple() | list():
            return (type(value), *(_form(item, operands) for item in value))
        case dict():
            items = [(key, _form(item, operands)) for key, item in value.items()]
            return (dict, *items)
        case slice():
            ends = (value.start, value.stop, value.step)
            return (slice, *(_form(item, operands) for item in ends))
        case float() | complex():
            return (type(value), repr(value))
    try:
        hash(value)
    except TypeError:
        return (id(value),)
    return (type(value), value)


def _sign(node: Node) -> Hashable:
    """The properties of a tensor that the compiler uses; the kind of any other value."""
    value = value_of(node)
    if value is None:
        return str(node.meta.get("example_value"))
    bits = (value.is_conj(), value.is_neg())
    return (value.shape, value.stride(), value.dtype, value.device, value.layout, bits, type(value))


def _memory(inputs: Sequence[Node] | dict[Node, int]) -> Hashable:
    """Which inputs share memory, and how they lie in it."""
    values = [value_of(node) for node in inputs]
    storages = [None if value is None else storage_of(value) for value in values]
    shared = Counter(storages)
    numbers: dict[object, int] = {}
    signs: list[Hashable] = []
    for value, storage in zip(values, storages, strict=True):
        if value is None:
            signs.append(None)
            continue
        offset = value.storage_offset() * value.element_size()
        number = numbers.setdefault(storage, len(numbers))
        signs.append((number, offset if shared[storage] > 1 else offset % _ALIGNED))
    return tuple(signs)


def _can_be_handed_on(live: set[Node]) -> bool:
    """Whether values are tensors that the next section can take: no numbers, lists or complex ones,
    and no two of them in the same memory."""
    values = [value_of(node) for node in live]
    tensors = [value for value in values if value is not None and not value.is_complex()]
    return len({storage_of(value) for value in tensors}) == len(live)


def _changes_mode(node: Node) -> bool:
    """Whether a call changes how later ones work, so that sections cannot be compiled apart."""
    return getattr(node.target, "__name__", "") == "_set_grad_enabled" and node.args != (False,)


def _nesting(node: Node) -> int:
    """Whether a function over functions begins here (1) or ends (-1), in the words of functorch."""
    name = str(getattr(node.target, "__name__", ""))
    return name.endswith("_increment_nesting") - name.endswith("_decrement_nesting")
