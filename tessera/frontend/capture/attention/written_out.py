"""Attention that a model writes out: products, a scale, a cap, a mask, sinks, a softmax.

In: the last product of it in a recorded graph. Out: a `WrittenOut`, what goes into attention, if
every step on the way is one of these. Weights that a model also uses elsewhere are still made.

    softmax(cap(q @ k.transpose(-2, -1) * scale) + mask) @ v

with `cap(x) = c * tanh(x / c)`, and with sinks one more column before the softmax, which is dropped
after it. Scores may change their type on the way: ours are in fp32 throughout. A mask of 0 and the
least number of its type, made by `where`, is a boolean mask, and so is what `masked_fill` or
`where` fill with such a number; a token that sees no key at all gets the mean of all values then,
and no number if scores are minus infinity. Products may be written as `einsum`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.fx import Node

from tessera.frontend.capture.attention.launch import Nothing
from tessera.frontend.capture.graphs.graph_nodes import call_of, is_changed, shape_of, value_of

_PRODUCTS = ("matmul", "__matmul__", "bmm")
_SWAPS = ("transpose", "swapaxes", "swapdims")
_FILLED = -1e9  # scores are far above
_LEAST = -1e30  # every type of 16 bits but f16, whose least number is -65504
_LEAST_F16 = -65504.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenOut:
    """The operands of an attention; `first` is the first product.

    `hidden` is a boolean mask of the keys that are not seen, if there is one in place of `mask`.
    `nothing`: what a token gets that sees no key.
    """

    first: Node
    query: Node
    key: Node
    value: Node
    scale: float
    mask: Node | None
    hidden: Node | None
    soft_cap: float
    sinks: Node | None
    nothing: Nothing


def read_written_out(node: Node) -> WrittenOut | None:
    """Attention whose last product is this node."""
    pair = _product(node, turned=False)
    if pair is None:
        return None
    weights, value = pair
    inner = _before_dropout(weights)
    name, arguments = call_of(inner)
    has_sinks = name == "getitem" and arguments[1] == (..., slice(None, -1, None))
    scores = _under_softmax(_before_dropout(arguments[0]) if has_sinks else inner)
    sinks = None
    if has_sinks and scores is not None:
        scores, sinks = _with_sinks(scores)
    if scores is None:
        return None
    scores, filled = _without_filled(_uncast(scores))
    scores, mask = _without_mask(_uncast(scores))
    if mask is not None and filled is not None:
        return None
    scores, cap = _without_cap(_uncast(scores))
    scores, scale = _scaled(_uncast(scores))
    scores = _uncast(scores)
    pair = _product(scores, turned=True)
    if pair is None:
        return None
    query, key = pair
    if shape_of(query) is None or shape_of(key) is None or shape_of(value) is None:
        return None
    return WrittenOut(
        first=scores,
        query=query,
        key=key,
        value=value,
        scale=scale,
        mask=filled.seen if filled is not None else mask,
        hidden=filled.hidden if filled is not None else None,
        soft_cap=cap,
        sinks=sinks,
        nothing=filled.nothing if filled is not None else Nothing.NAN,
    )


def _product(node: object, *, turned: bool) -> tuple[Node, Node] | None:
    """Factors of a product of matrices; the second one as it was before its turn, if `turned`."""
    name, arguments = _plain_call(node)
    if name == "einsum" and len(arguments) == 3:
        wanted = "abcd,abed->abce" if turned else "abce,abed->abcd"
        return arguments[1:] if _letters(arguments[0]) == _letters(wanted) else None
    if name not in _PRODUCTS or len(arguments) != 2:
        return None
    return (arguments[0], _turned(arguments[1])) if turned else arguments


def _plain_call(node: object) -> tuple[str, tuple[object, ...]]:
    """The call of a node with positional arguments alone: others (`alpha`) change its meaning."""
    return call_of(node) if not getattr(node, "kwargs", {}) else ("", ())


def _letters(equation: object) -> str:
    """An equation of `einsum` with its letters by their first use."""
    if not isinstance(equation, str):
        return ""
    plain = equation.replace(" ", "")
    seen = dict.fromkeys(letter for letter in plain if letter.isalpha())
    return plain.translate({ord(letter): chr(97 + at) for at, letter in enumerate(seen)})


def _turned(node: object) -> object:
    """The operand of a transposition of keys; None without one."""
    name, arguments = call_of(node)
    if name in _SWAPS and sorted(_dimension(n) for n in arguments[1:]) == [2, 3]:
        return arguments[0]
    if name == "permute":
        order = arguments[1] if isinstance(arguments[1], list | tuple) else arguments[1:]
        return arguments[0] if [_dimension(n) for n in order] == [0, 1, 3, 2] else None
    return arguments[0] if name == "getattr" and arguments[1:] == ("mT",) else None


def _uncast(node: object) -> object:
    """Numbers before changes of their type that lose no more than 16 bits keep."""
    while _is_cast(node):
        node = call_of(node)[1][0]
    return node


def _is_cast(node: object) -> bool:
    """Whether a node changes numbers with a fraction to others, of 16 bits or more."""
    name, arguments = call_of(node)
    if name not in ("to", "float", "type_as", "type") or not arguments:
        return False
    values = value_of(node), value_of(arguments[0])
    return all(v is not None and v.dtype.is_floating_point and v.itemsize > 1 for v in values)


def _dimension(number: object) -> int:
    return number % 4 if isinstance(number, int) else -1


def _before_dropout(node: object) -> object:
    """Weights before a dropout that does nothing and changes of their type."""
    while True:
        name, arguments = call_of(node)
        given = getattr(node, "kwargs", {})
        if name == "dropout":
            rate = arguments[1] if len(arguments) > 1 else given.get("p", 0.5)
            training = arguments[2] if len(arguments) > 2 else given.get("training", True)
            if rate != 0 and training is not False:
                return node
        elif not _is_cast(node):
            return node
        node = arguments[0]


def _under_softmax(node: object) -> object | None:
    name, arguments = call_of(node)
    if name != "softmax":
        return None
    given = getattr(node, "kwargs", {})
    dimension = arguments[1] if len(arguments) > 1 else given.get("dim")
    return arguments[0] if dimension in (-1, 3) else None


def _with_sinks(node: object) -> tuple[Node | None, Node | None]:
    """Scores and sinks of `cat([scores, sinks])`, less its maximum where that is taken away."""
    name, arguments = _plain_call(node)
    if name == "sub" and len(arguments) == 2:
        less = shape_of(arguments[1])
        if less is None or less[-1:] != (1,):
            return None, None
        node = arguments[0]
        name, arguments = call_of(node)
    given = getattr(node, "kwargs", {})
    dimension = arguments[1] if len(arguments) > 1 else given.get("dim")
    if name != "cat" or dimension not in (-1, 3) or not arguments:
        return None, None
    pair = arguments[0]
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return None, None
    scores, wide = pair
    # sinks.reshape(1, heads, 1, 1).expand(batch, heads, tokens, 1)
    name, arguments = call_of(wide)
    shape = shape_of(wide)
    if name != "expand" or shape is None or len(shape) != 4 or shape[3] != 1:
        return None, None
    narrow = arguments[0]
    name, arguments = call_of(narrow)
    if shape_of(narrow) != (1, shape[1], 1, 1) or name not in ("reshape", "view"):
        return None, None
    source = arguments[0]
    return (scores, source) if shape_of(source) == (shape[1],) else (None, None)


def _without_mask(node: object) -> tuple[object, Node | None]:
    """Scores before a mask is added, and the mask."""
    name, arguments = _plain_call(node)
    if name != "add" or len(arguments) != 2 or shape_of(arguments[1]) is None:
        return node, None
    value = value_of(arguments[1])
    if value is None or not value.dtype.is_floating_point:
        return node, None  # numbers 0 and 1
    return arguments[0], arguments[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Filled:
    """A boolean mask of keys that are `seen`, or of those that are not (`hidden`)."""

    seen: Node | None = None
    hidden: Node | None = None
    nothing: Nothing


def _without_filled(node: object) -> tuple[object, _Filled | None]:
    """Scores before keys that are not seen are given the least of all numbers."""
    name, arguments = _plain_call(node)
    if name not in ("masked_fill", "where") or len(arguments) != 3:
        return node, None
    mask, least = arguments[1 if name == "masked_fill" else 0], arguments[2]
    if not isinstance(least, int | float) or not (least <= _FILLED or least == _LEAST_F16):
        return node, None
    value = value_of(mask)
    if value is None or value.dtype != torch.bool:
        return node, None
    nothing = Nothing.NAN if math.isinf(least) else Nothing.MEAN
    if name == "masked_fill":
        return arguments[0], _Filled(hidden=mask, nothing=nothing)
    return arguments[1], _Filled(seen=mask, nothing=nothing)


def _without_cap(node: object) -> tuple[object, float]:
    """The operand of `c * tanh(x / c)`, and c; 0 without a cap."""
    cap = _factor(node, "mul")
    name, arguments = call_of(call_of(node)[1][0]) if cap else ("", ())
    if name == "tanh" and _factor(arguments[0], "truediv", "div") == cap:
        return call_of(arguments[0])[1][0], cap
    return node, 0.0


def _scaled(node: object) -> tuple[object, float]:
    """A product and the number it is scaled by."""
    name, arguments = _plain_call(node)
    if name == "mul" and len(arguments) == 2 and isinstance(arguments[0], int | float):
        node, first = arguments[1], float(arguments[0])
        return (node, first) if first > 0 else (None, 0.0)
    if factor := _factor(node, "mul"):
        return arguments[0], factor
    if divisor := _factor(node, "truediv", "div"):
        return arguments[0], 1 / divisor
    return node, 1.0


def _factor(node: object, *names: str) -> float:
    """The number that a node multiplies with or divides by; 0 if it does not."""
    name, arguments = _plain_call(node)
    if name not in names or len(arguments) != 2:
        return 0.0
    number = arguments[1]
    return float(number) if isinstance(number, int | float) and number > 0 else 0.0


def boolean_of(mask: Node, changed: frozenset[int] | None) -> Node | None:
    """The boolean mask that an added mask of 0 and its least number is made of.

    `changed` is the memory that the graph changes in place.
    """
    if is_changed(mask, changed):
        return None
    name, arguments = _plain_call(mask)
    if name != "where" or len(arguments) != 3 or shape_of(arguments[0]) != shape_of(mask):
        return None
    kept, least = arguments[1], arguments[2]
    name, inner = call_of(kept)
    if name == "tensor" and inner:
        kept = inner[0]
    is_least = isinstance(least, float) and (least < _LEAST or least == _LEAST_F16)
    return arguments[0] if kept == 0 and is_least else None
