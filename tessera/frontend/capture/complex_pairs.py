"""Replaces the complex numbers of a recorded graph with pairs of real numbers.

In: a graph of operators (for Inductor's `post_grad_custom_pre_pass`). Out: the same graph, which
computes with real and imaginary parts. Triton has no complex numbers: torch.compile leaves all
operators on them to PyTorch, one by one, though most are rotary embeddings. A pair becomes a
complex tensor again where an operator that is not known here needs it, and the result of such an
operator is split by `view_as_real`, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch.fx import Graph, Node, map_arg
from torch.fx.node import Argument

from tessera.frontend.capture.graphs.graph_nodes import value_of

# Operators that move elements are applied to both parts. Their first operand is a tensor.
_MOVES = frozenset(
    {
        "alias",
        "clone",
        "detach",
        "expand",
        "flip",
        "index_select",
        "permute",
        "repeat",
        "reshape",
        "select",
        "slice",
        "squeeze",
        "t",
        "transpose",
        "unsqueeze",
        "view",
        "_unsafe_view",
    }
)
_SAME = frozenset({"resolve_conj", "lift_fresh_copy"})


class _ComplexPair(NamedTuple):
    """A real and an imaginary part; None stands for an imaginary part of zero."""

    real: Argument
    imaginary: Argument | None


def replace_complex(graph: Graph) -> None:
    """Compute with pairs if the graph has complex numbers."""
    if any(_is_complex(node) for node in graph.nodes):
        _PairedGraph(graph).replace()
        graph.eliminate_dead_code()
        graph.lint()


class _PairedGraph:
    """A graph that is being rewritten: the parts of its complex nodes so far."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.pairs: dict[Node, _ComplexPair] = {}
        self.whole: dict[Node, Node] = {}

    def replace(self) -> None:
        for node in list(self.graph.nodes):
            if not any(map(_is_complex, (node, *node.all_input_nodes))):
                continue
            if node.op == "output":
                with self.graph.inserting_before(node):
                    node.args = map_arg(node.args, self._made_whole)
                continue
            with self.graph.inserting_before(node.next if node.op == "placeholder" else node):
                made = None if node.op == "placeholder" else self._computed(node)
                if made is None:
                    self._left_alone(node)
                elif isinstance(made, _ComplexPair):
                    self.pairs[node] = made
                else:
                    node.replace_all_uses_with(made)

    def _left_alone(self, node: Node) -> None:
        """Keep an operator that is not known here, with complex tensors as operands and result."""
        node.args = map_arg(node.args, self._made_whole)
        node.kwargs = map_arg(node.kwargs, self._made_whole)
        if _is_complex(node):
            self.whole[node] = node

    def _made_whole(self, node: Node) -> Node:
        if not _is_complex(node) or self.whole.get(node) is node:
            return node
        if node not in self.whole:
            aten = torch.ops.aten
            # Laid out as the compiler expects it: it has no kernel that copies complex numbers.
            strides = node.meta["val"].stride()
            order = sorted(range(len(strides)), key=lambda dim: -strides[dim])
            whole = self._call(aten.view_as_complex.default, self._stacked(node, order))
            back = sorted(range(len(order)), key=order.__getitem__)
            is_same = order == back == sorted(order)
            self.whole[node] = whole if is_same else self._call(aten.permute.default, whole, back)
        return self.whole[node]

    def _parts(self, thing: Argument) -> _ComplexPair | None:
        """The parts of an operand; None if it is neither a tensor nor a number."""
        if isinstance(thing, complex):
            return _ComplexPair(thing.real, thing.imag)
        if not isinstance(thing, Node):
            return _ComplexPair(thing, None) if isinstance(thing, bool | int | float) else None
        if not _is_complex(thing):
            return _ComplexPair(thing, None)
        if thing not in self.pairs:
            aten = torch.ops.aten
            both = self._call(aten.view_as_real.default, thing)
            parts = (self._call(aten.select.int, both, -1, number) for number in range(2))
            self.pairs[thing] = _ComplexPair(*parts)
        return self.pairs[thing]

    def _stacked(self, node: Node, order: Sequence[int] | None = None) -> Node:
        """Both parts side by side in a last dimension, as memory holds complex numbers, and with
        the other dimensions in an order."""
        aten = torch.ops.aten
        pair = self._parts(node)
        assert pair is not None
        parts = list(self._filled(pair))
        if order is not None and list(order) != sorted(order):
            parts = [self._call(aten.permute.default, part, order) for part in parts]
        parts = [self._call(aten.unsqueeze.default, part, -1) for part in parts]
        return self._call(aten.cat.default, parts, -1)

    def _filled(self, pair: _ComplexPair) -> tuple[Argument, Argument]:
        """Both parts, with zeros for a missing part."""
        if pair.imaginary is not None:
            return pair.real, pair.imaginary
        return pair.real, self._call(torch.ops.aten.full_like.default, pair.real, 0)

    def _computed(self, node: Node) -> _ComplexPair | Node | None:
        """The result of a node: a pair, a real node, or None if the operator is not known."""
        if node.op != "call_function" or not isinstance(node.target, torch._ops.OpOverload):
            return None
        aten = torch.ops.aten
        name = node.target._schema.name.partition("::")[2]
        first = node.args[0] if node.args else None
        if name in ("polar", "complex", "view_as_complex"):
            return self._begun(name, node.args)
        if node.target is aten.view.dtype:
            return self._seen_as(node)
        if name in _MOVES and not node.kwargs:
            # The parts may not be contiguous even if the complex tensor was.
            target = aten.reshape.default if name in ("view", "_unsafe_view") else node.target
            pair = self._parts(first)
            return None if pair is None else self._of_each(pair, target, node.args[1:])
        if name == "clone":  # the memory layout does not apply to the parts
            pair = self._parts(first)
            return None if pair is None else self._of_each(pair, aten.clone.default, ())
        if name == "cat" and isinstance(first, list | tuple):
            return self._joined(first, node.args[1:])
        if name == "view_as_real":
            return self._stacked(first) if _is_complex(first) else None
        pair = self._parts(first)
        if pair is None:
            return None
        if name in _SAME:
            return pair
        if name in ("real", "imag"):
            real, imaginary = self._filled(pair)
            return _node(real if name == "real" else imaginary)
        if name in ("_conj", "_conj_physical", "conj_physical"):
            return _ComplexPair(pair.real, self._negated(pair.imaginary))
        if name == "neg":
            return _ComplexPair(self._negated(pair.real), self._negated(pair.imaginary))
        other = self._parts(node.args[1]) if len(node.args) == 2 and not node.kwargs else None
        return None if other is None else self._arithmetic(name, pair, other)

    def _begun(self, name: str, arguments: tuple[Argument, ...]) -> _ComplexPair | None:
        """The pair that real numbers become."""
        aten = torch.ops.aten
        if name == "view_as_complex":
            real, imaginary = (
                self._call(aten.select.int, arguments[0], -1, number) for number in range(2)
            )
            return _ComplexPair(real, imaginary)
        if len(arguments) != 2:
            return None
        if name == "complex":
            return _ComplexPair(*arguments)
        size, angle = arguments
        parts = (self._call(f, angle) for f in (aten.cos.default, aten.sin.default))
        return _ComplexPair(*(self._call(aten.mul.Tensor, size, part) for part in parts))

    def _seen_as(self, node: Node) -> _ComplexPair | Node | None:
        """The same bytes in another type: pairs as real numbers side by side, or the reverse."""
        aten = torch.ops.aten
        old, new = node.args[0], node.meta["val"]
        if not isinstance(old, torch.fx.Node) or not new.dim():
            return None
        value = old.meta["val"]
        if _is_complex(node) and not _is_complex(old) and value.dtype == new.real.dtype:
            both = self._call(aten.reshape.default, old, [*new.shape, 2])
            return self._begun("view_as_complex", (both,))
        if _is_complex(old) and new.dtype == value.real.dtype:
            return self._call(aten.reshape.default, self._stacked(old), list(new.shape))
        return None

    def _of_each(
        self, pair: _ComplexPair, target: torch._ops.OpOverload, rest: tuple[Argument, ...]
    ) -> _ComplexPair:
        both = self._filled(pair)
        return _ComplexPair(*(self._call(target, part, *rest) for part in both))

    def _joined(
        self, pieces: list[Argument] | tuple[Argument, ...], rest: object
    ) -> _ComplexPair | None:
        pairs = [self._parts(piece) for piece in pieces]
        if any(pair is None for pair in pairs):
            return None
        filled = [self._filled(pair) for pair in pairs if pair is not None]
        more = rest if isinstance(rest, tuple) else ()
        cat = torch.ops.aten.cat.default
        return _ComplexPair(
            *(self._call(cat, list(parts), *more) for parts in zip(*filled, strict=True))
        )

    def _negated(self, part: Argument | None) -> Argument | None:
        return None if part is None else self._call(torch.ops.aten.neg.default, part)

    def _arithmetic(
        self, name: str, left: _ComplexPair, right: _ComplexPair
    ) -> _ComplexPair | None:
        aten = torch.ops.aten
        add, sub, mul = aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor

        def of(target: torch._ops.OpOverload, a: Argument, b: Argument) -> Argument:
            """Call an operator whose first operand has to be a tensor; numbers come second."""
            if not isinstance(a, Node) and isinstance(b, Node):
                if target is sub:
                    return self._call(add, self._call(aten.neg.default, b), a)
                a, b = b, a
            return self._call(target, a, b)

        a, b, c, d = *left, *right
        if name in ("add", "sub"):
            target = add if name == "add" else sub
            if b is None or d is None:
                alone = self._negated(d) if name == "sub" and b is None else d if b is None else b
                return None if alone is None else _ComplexPair(of(target, a, c), alone)
            return _ComplexPair(of(target, a, c), of(target, b, d))
        if name == "mul":
            if d is None:
                return None if b is None else _ComplexPair(of(mul, a, c), of(mul, b, c))
            if b is None:
                return _ComplexPair(of(mul, a, c), of(mul, a, d))
            return _ComplexPair(
                of(sub, of(mul, a, c), of(mul, b, d)), of(add, of(mul, a, d), of(mul, b, c))
            )
        if name == "div" and d is None and b is not None:
            return _ComplexPair(*(self._call(aten.div.Tensor, part, c) for part in (a, b)))
        return None

    def _call(self, target: torch._ops.OpOverload, *arguments: Argument) -> Node:
        """A new node with its value on fake tensors."""
        node = self.graph.call_function(target, arguments)
        node.meta["val"] = target(*map_arg(arguments, lambda operand: operand.meta["val"]))
        return node


def _is_complex(thing: object) -> bool:
    tensor = value_of(thing)
    return tensor is not None and tensor.is_complex()


def _node(thing: Argument) -> Node | None:
    return thing if isinstance(thing, Node) else None
