"""Proves which keys each token sees from the mask of a captured graph.

In: the node of a boolean mask in a graph of torch functions (before autograd). Out: a `KeyRange`,
if the mask is a conjunction of comparisons of indices: causal, a window, an offset that is a number
or the value of a one-element tensor. For any other mask the result is None, and the mask stays a
tensor.

Every value on the way is an affine form of the indices of its own dimensions (`IndexLine`):
`arange` is one, and so are sums and differences of them, with dimensions added by indexing or
expanding. A comparison of two is a half-plane. Values of tensors with one element are unknowns
(`HeldValue`), each with the node that used it, because memory may change after that. A value that
the graph changes in place after it was made has no form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch.fx import Node

from tessera.frontend.capture.attention.index_lines import (
    HeldValue,
    IndexLine,
    difference,
    flat,
    moved_line,
    wide,
)
from tessera.frontend.capture.graphs.graph_nodes import call_of, is_changed, shape_of, value_of


@dataclass(frozen=True, slots=True)
class HalfPlane:
    """The indices where a line is at least 0. A mask is a tuple of half-planes, which must all
    hold."""

    line: IndexLine


_ALWAYS = HalfPlane(IndexLine(()))


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Token m sees the keys up to m + offset (+ position), and `window` of them if it is not 0."""

    offset: int
    window: int = 0
    position: HeldValue | None = None

    def is_never_empty(self, tokens: int, keys: int) -> bool:
        """Whether every token sees a key; a token that is in the cache sees itself."""
        if self.position is not None:
            return True
        last = tokens - 1 + self.offset
        return self.offset >= 0 and (not self.window or last - self.window < keys - 1)


def read_mask(
    mask: Node, tokens: int, keys: int, changed: frozenset[int] | None
) -> KeyRange | None:
    """The keys that a boolean mask over (.., tokens, keys) shows; None if that is not proved.

    `changed` is the memory that the graph changes in place (`changed_memory`).
    """
    halves = _MaskTerms(changed).mask(mask)
    shape = shape_of(mask)
    if halves is None or shape is None or len(shape) > 4:
        return None
    sizes = ((1,) * 4 + shape)[-4:]
    causal: list[IndexLine] = []
    windows: list[IndexLine] = []
    for half in halves:
        line = half.line
        slopes = [s if n > 1 else 0 for s, n in zip(wide(line.slopes, 4), sizes, strict=True)]
        if tokens == 1 and slopes[2] == 0:
            slopes[2] = -slopes[3]  # there is only token 0
        line = replace(line, slopes=tuple(slopes))
        if _holds(line, (*sizes[:2], tokens, keys)):
            continue
        if slopes == [0, 0, 1, -1]:
            causal.append(line)
        elif slopes == [0, 0, -1, 1]:
            windows.append(line)
        else:
            return None
    return _range(causal, windows)


def _range(causal: list[IndexLine], windows: list[IndexLine]) -> KeyRange | None:
    if len(causal) != 1 or len(windows) > 1:
        return None
    (line,) = causal
    if len(line.terms) > 1 or any(term.factor != 1 for term in line.terms):
        return None
    position = line.terms[0] if line.terms else None
    window = 0
    for other in windows:
        back = tuple(replace(term, factor=-term.factor) for term in other.terms)
        if [(t.value, t.used, t.factor) for t in back] != [
            (t.value, t.used, t.factor) for t in line.terms
        ]:
            return None
        window = line.constant + other.constant + 1
        if window < 1:
            return None
    return KeyRange(offset=line.constant, window=window, position=position)


def _holds(line: IndexLine, sizes: Sequence[int]) -> bool:
    """Whether a line without unknowns is at least 0 for all indices."""
    least = sum(min(0, slope * (size - 1)) for slope, size in zip(line.slopes, sizes, strict=True))
    return not line.terms and line.constant + least >= 0


# --- values of nodes ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MaskTerms:
    """Half-planes of the masks of a graph that changes this memory in place (None: any memory)."""

    changed: frozenset[int] | None

    def mask(self, node: object) -> tuple[HalfPlane, ...] | None:
        """The half-planes whose conjunction is the boolean node."""
        if is_changed(node, self.changed):
            return None
        name, arguments = call_of(node)
        name = name.strip("_")  # PyTorch 2.11 records `==` as `__eq__`
        if name in ("and", "logical_and", "bitwise_and") and len(arguments) == 2:
            left, right = self.mask(arguments[0]), self.mask(arguments[1])
            return None if left is None or right is None else _joined(left, right)
        if name in _COMPARISONS and len(arguments) == 2:
            first, second = self._line(arguments[0], node), self._line(arguments[1], node)
            if first is None or second is None:
                return None
            return (HalfPlane(_COMPARISONS[name](first, second)),)
        if name in ("eq", "ne") and len(arguments) == 2:
            pair = self._line(arguments[0], node), self._line(arguments[1], node)
            return _equal(*pair, name == "eq")
        if name in ("new_ones", "ones") and is_bool_tensor(node):
            return ()
        inner = self.mask(arguments[0]) if arguments else None
        if inner is None or not is_bool_tensor(node):
            return None
        if name in ("tril", "triu"):
            return _triangle(node, inner)
        moved = [moved_line(node, half.line) for half in (_ALWAYS, *inner)]
        shape = shape_of(node) or ()
        lines = [HalfPlane(flat(line, shape)) for line in moved if line is not None]
        return tuple(lines[1:]) if len(lines) == len(moved) else None

    def _line(self, node: object, user: object) -> IndexLine | None:
        """The affine form of a node's value, as `user` sees it."""
        form = self._form(node)
        if form is None:
            return None
        return replace(
            form,
            terms=tuple(t if t.used is not None else replace(t, used=user) for t in form.terms),
        )

    def _form(self, node: object) -> IndexLine | None:
        """The affine form, flat along dimensions of size 1: they may be repeated later."""
        if isinstance(node, int) and not isinstance(node, bool):
            return IndexLine((), node)
        form, shape = self._computed(node), shape_of(node)
        if form is None or shape is None:
            return _unknown(node)
        return flat(form, shape)

    def _computed(self, node: object) -> IndexLine | None:
        """The affine form of a value computed from values with affine forms."""
        if is_changed(node, self.changed):
            return None
        name, arguments = call_of(node)
        if name == "arange":
            return _arange(node, arguments)
        if name in ("add", "sub") and len(arguments) == 2 and not getattr(node, "kwargs", {}):
            first, second = self._line(arguments[0], node), self._line(arguments[1], node)
            if first is None or second is None or not _is_whole(node):
                return None
            if name == "add":
                second = difference(IndexLine(()), second)
            return difference(first, second)
        if name == "diff":
            return self._steps_of(node, arguments)
        if name == "cumsum" and arguments:
            return _count(node, self.mask(arguments[0]))
        inner = self._form(arguments[0]) if arguments else None
        return moved_line(node, inner) if inner is not None and _is_whole(node) else None

    def _steps_of(self, node: object, arguments: tuple[object, ...]) -> IndexLine | None:
        """The difference of neighbours along the last dimension, if it is constant."""
        given = dict(getattr(node, "kwargs", {}))
        before, shape = given.pop("prepend", None), shape_of(node)
        if given.pop("dim", -1) != -1 or given or len(arguments) != 1 or not shape:
            return None
        line = self._line(arguments[0], node)
        if line is None or line.terms or any(line.slopes[:-1]):
            return None
        if before is not None:
            first = self._line(before, node)
            if first is None or first.terms or shape_of(before) != (*shape[:-1], 1):
                return None
            if any(first.slopes[:-1]) or line.constant - first.constant != line.slopes[-1]:
                return None
        return IndexLine((0,) * len(shape), line.slopes[-1])


# --- boolean values ---------------------------------------------------------------------------


def _equal(
    first: IndexLine | None, second: IndexLine | None, wanted: bool
) -> tuple[HalfPlane, ...] | None:
    """The half-planes of a comparison for (in)equality whose sides differ by a constant: all or
    none."""
    if first is None or second is None:
        return None
    line = difference(first, second)
    if line.terms or any(line.slopes):
        return None
    return () if (line.constant == 0) == wanted else (HalfPlane(IndexLine(line.slopes, -1)),)


def _triangle(node: object, inner: tuple[HalfPlane, ...]) -> tuple[HalfPlane, ...] | None:
    """A mask below a diagonal (`tril`) or above it."""
    name, arguments = call_of(node)
    given, shape = getattr(node, "kwargs", {}), shape_of(node)
    diagonal = arguments[1] if len(arguments) > 1 else given.get("diagonal", 0)
    if not isinstance(diagonal, int) or shape is None or len(shape) < 2:
        return None
    down = 1 if name == "tril" else -1
    line = flat(IndexLine((down, -down), down * diagonal), shape)
    return _joined(inner, (HalfPlane(line),))


def _joined(left: tuple[HalfPlane, ...], right: tuple[HalfPlane, ...]) -> tuple[HalfPlane, ...]:
    rank = max((len(half.line.slopes) for half in (*left, *right)), default=0)
    return tuple(
        HalfPlane(replace(half.line, slopes=wide(half.line.slopes, rank)))
        for half in (*left, *right)
    )


def _is_whole(node: object) -> bool:
    """Whether a node makes integers that are wide enough to count tokens."""
    value = value_of(node)
    return value is not None and value.dtype in (torch.int64, torch.int32)


def is_bool_tensor(node: object) -> bool:
    """Whether a node gives a tensor of truth values."""
    value = value_of(node)
    return value is not None and value.dtype == torch.bool


_COMPARISONS: dict[str, Callable[[IndexLine, IndexLine], IndexLine]] = {
    "le": lambda a, b: difference(b, a),
    "lt": lambda a, b: difference(b, a, 1),
    "ge": lambda a, b: difference(a, b),
    "gt": lambda a, b: difference(a, b, 1),
}


# --- integer values ---------------------------------------------------------------------------


def _count(node: object, mask: tuple[HalfPlane, ...] | None) -> IndexLine | None:
    """A running count of a mask's true elements: 0 if the mask is never true."""
    shape = shape_of(node)
    if mask is None or shape is None:
        return None
    never = any(
        not (half.line.terms or any(half.line.slopes)) and half.line.constant < 0 for half in mask
    )
    return IndexLine((0,) * len(shape)) if never else None


def _unknown(node: object) -> IndexLine | None:
    """The unknown value of an integer tensor with one element."""
    value, shape = value_of(node), shape_of(node)
    if value is None or shape is None or value.numel() != 1:
        return None
    if value.dtype.is_floating_point or is_bool_tensor(node):
        return None
    return IndexLine((0,) * len(shape), 0, (HeldValue(node, None, 1),))


def _arange(node: object, arguments: tuple[object, ...]) -> IndexLine | None:
    given = getattr(node, "kwargs", {})
    if given.keys() - {"device", "dtype", "layout", "requires_grad", "pin_memory"}:
        return None
    if not all(isinstance(argument, int) for argument in arguments) or len(arguments) > 3:
        return None
    numbers = [argument for argument in arguments if isinstance(argument, int)]
    start = numbers[0] if len(numbers) > 1 else 0
    step = numbers[2] if len(numbers) > 2 else 1
    return IndexLine((step,), start) if _is_whole(node) else None
