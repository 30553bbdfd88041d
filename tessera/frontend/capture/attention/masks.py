"""What a mask of a captured graph says: which keys each token sees, where that can be proved.

In: the node of a boolean mask in a graph of torch functions (before autograd). Out: a `KeyRange`,
if the mask is a conjunction of comparisons of indices: causal, a window, an offset that is a number
or the value of a one-element tensor. Anything else is None, and the mask stays a tensor.

Every value on the way is an affine form of the indices of its own dimensions (`IndexLine`):
`arange` is one, and so are sums and differences of them, with dimensions added by indexing or
expanding. A comparison of two is a half-plane. Values of tensors with one element are unknowns
(`HeldValue`), each with the node at which it was used: memory may change after that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tessera.frontend.capture.graph_nodes import call_of, shape_of, value_of

if TYPE_CHECKING:
    from torch.fx import Node


@dataclass(frozen=True, slots=True)
class HeldValue:
    """The value of a tensor with one element, when `used` runs; None: not used yet."""

    value: Node
    used: Node | None
    factor: int


@dataclass(frozen=True, slots=True)
class IndexLine:
    """`constant` + the sum of `slopes` times indices (one per dimension) + unknowns."""

    slopes: tuple[int, ...]
    constant: int = 0
    terms: tuple[HeldValue, ...] = ()


@dataclass(frozen=True, slots=True)
class HalfPlane:
    """Where a line is at least 0. A mask is a tuple of these, all of which must hold."""

    line: IndexLine


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRange:
    """Token m sees the keys up to m + offset (+ position), and `window` of them if it is not 0."""

    offset: int
    window: int = 0
    position: HeldValue | None = None


def read_mask(mask: Node, tokens: int, keys: int) -> KeyRange | None:
    """What a boolean mask over (.., tokens, keys) says; None if that cannot be told."""
    halves = _mask(mask)
    shape = shape_of(mask)
    if halves is None or shape is None or len(shape) > 4:
        return None
    sizes = ((1,) * 4 + shape)[-4:]
    causal: list[IndexLine] = []
    windows: list[IndexLine] = []
    for half in halves:
        line = half.line
        slopes = [s if n > 1 else 0 for s, n in zip(_wide(line.slopes, 4), sizes, strict=True)]
        if tokens == 1 and slopes[2] == 0:
            slopes[2] = -slopes[3]  # there is one token, number 0
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


def _wide(slopes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    return ((0,) * rank + slopes)[-rank:] if rank else ()


# --- boolean values ---------------------------------------------------------------------------


def _mask(node: object) -> tuple[HalfPlane, ...] | None:
    """The half-planes that a boolean node is the conjunction of."""
    name, arguments = call_of(node)
    if name.strip("_") in ("and", "logical_and", "bitwise_and") and len(arguments) == 2:
        left, right = _mask(arguments[0]), _mask(arguments[1])
        return None if left is None or right is None else _joined(left, right)
    if name in _COMPARISONS and len(arguments) == 2:
        first, second = _line(arguments[0], node), _line(arguments[1], node)
        if first is None or second is None:
            return None
        return (HalfPlane(_COMPARISONS[name](first, second)),)
    if name in ("eq", "ne") and len(arguments) == 2:
        return _equal(_line(arguments[0], node), _line(arguments[1], node), name == "eq")
    if name in ("new_ones", "ones") and _is_bool(node):
        return ()
    if arguments and (inner := _mask(arguments[0])) is not None:
        moved = [_moved(node, half.line) for half in inner]
        lines = [HalfPlane(line) for line in moved if line is not None]
        return tuple(lines) if len(lines) == len(inner) else None
    return None


def _equal(
    first: IndexLine | None, second: IndexLine | None, wanted: bool
) -> tuple[HalfPlane, ...] | None:
    """What (un)equal numbers say, where they differ by the same everywhere: always, or never."""
    if first is None or second is None:
        return None
    line = _difference(first, second)
    if line.terms or any(line.slopes):
        return None
    return () if (line.constant == 0) == wanted else (HalfPlane(IndexLine(line.slopes, -1)),)


def _joined(left: tuple[HalfPlane, ...], right: tuple[HalfPlane, ...]) -> tuple[HalfPlane, ...]:
    rank = max((len(half.line.slopes) for half in (*left, *right)), default=0)
    return tuple(
        HalfPlane(replace(half.line, slopes=_wide(half.line.slopes, rank)))
        for half in (*left, *right)
    )


def _is_bool(node: object) -> bool:
    import torch

    value = value_of(node)
    return value is not None and value.dtype == torch.bool


def _difference(first: IndexLine, second: IndexLine, less: int = 0) -> IndexLine:
    """`first` - `second` - `less`."""
    rank = max(len(first.slopes), len(second.slopes))
    pairs = zip(_wide(first.slopes, rank), _wide(second.slopes, rank), strict=True)
    turned = tuple(replace(term, factor=-term.factor) for term in second.terms)
    return IndexLine(
        tuple(a - b for a, b in pairs),
        first.constant - second.constant - less,
        _sum_of_terms((*first.terms, *turned)),
    )


_COMPARISONS: dict[str, Callable[[IndexLine, IndexLine], IndexLine]] = {
    "le": lambda a, b: _difference(b, a),
    "lt": lambda a, b: _difference(b, a, 1),
    "ge": lambda a, b: _difference(a, b),
    "gt": lambda a, b: _difference(a, b, 1),
}


# --- integer values ---------------------------------------------------------------------------


def _line(node: object, user: object) -> IndexLine | None:
    """The affine form of a node's value, as `user` sees it."""
    form = _form(node)
    if form is None:
        return None
    return replace(
        form,
        terms=tuple(t if t.used is not None else replace(t, used=user) for t in form.terms),
    )


def _form(node: object) -> IndexLine | None:
    if isinstance(node, int) and not isinstance(node, bool):
        return IndexLine((), node)
    name, arguments = call_of(node)
    if name == "arange":
        return _arange(node, arguments)
    if name in ("add", "sub") and len(arguments) == 2:
        first, second = _line(arguments[0], node), _line(arguments[1], node)
        if first is not None and second is not None:
            if name == "add":
                second = _difference(IndexLine(()), second)
            return _difference(first, second)
    elif name == "diff":
        return _steps_of(node, arguments)
    elif name == "cumsum" and arguments:
        return _count(node, _mask(arguments[0]))
    elif arguments and (inner := _form(arguments[0])) is not None:
        moved = _moved(node, inner)
        if moved is not None:
            return moved
    return _unknown(node)


def _steps_of(node: object, arguments: tuple[object, ...]) -> IndexLine | None:
    """Differences of neighbours along the last dimension, where all are the same."""
    given = dict(getattr(node, "kwargs", {}))
    before, shape = given.pop("prepend", None), shape_of(node)
    if given.pop("dim", -1) != -1 or given or len(arguments) != 1 or not shape:
        return None
    line = _line(arguments[0], node)
    if line is None or line.terms or any(line.slopes[:-1]):
        return None
    if before is not None:
        first = _line(before, node)
        if first is None or first.terms or shape_of(before) != (*shape[:-1], 1):
            return None
        if any(first.slopes[:-1]) or line.constant - first.constant != line.slopes[-1]:
            return None
    return IndexLine((0,) * len(shape), line.slopes[-1])


def _count(node: object, mask: tuple[HalfPlane, ...] | None) -> IndexLine | None:
    """How often a mask was true so far: 0, if it is never true."""
    shape = shape_of(node)
    if mask is None or shape is None:
        return None
    never = any(
        not (half.line.terms or any(half.line.slopes)) and half.line.constant < 0 for half in mask
    )
    return IndexLine((0,) * len(shape)) if never else None


def _unknown(node: object) -> IndexLine | None:
    """A tensor with one element, of whole numbers."""
    value, shape = value_of(node), shape_of(node)
    if value is None or shape is None or value.numel() != 1:
        return None
    if value.dtype.is_floating_point or _is_bool(node):
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
    value = value_of(node)
    if value is None or value.dtype.is_floating_point:
        return None
    return IndexLine((step,), start)


def _sum_of_terms(terms: tuple[HeldValue, ...]) -> tuple[HeldValue, ...]:
    """Unknowns added up; those that cancel are gone."""
    totals: dict[tuple[object, object], HeldValue] = {}
    for term in terms:
        key = (term.value, term.used)
        before = totals[key].factor if key in totals else 0
        totals[key] = replace(term, factor=term.factor + before)
    return tuple(term for term in totals.values() if term.factor)


# --- dimensions -------------------------------------------------------------------------------


def _moved(node: object, line: IndexLine) -> IndexLine | None:
    """A line through a node that only adds, drops or repeats dimensions, or changes the type."""
    import torch

    name, arguments = call_of(node)
    shape, value = shape_of(node), value_of(node)
    if shape is None or value is None or value.dtype.is_floating_point:
        return None
    before = shape_of(arguments[0])
    if before is None:
        return None
    slopes = _wide(line.slopes, len(before))
    if name in ("to", "long", "int", "contiguous", "clone", "type"):
        kept = value.dtype in (torch.int64, torch.int32, torch.bool)
        return replace(line, slopes=slopes) if kept else None
    if name == "expand":
        return replace(line, slopes=_wide(slopes, len(shape)))
    if name in ("getitem", "unsqueeze", "view", "reshape", "squeeze"):
        if not (line.terms or any(slopes)):
            return IndexLine((0,) * len(shape), line.constant)  # the same wherever it is read
        starts = _starts(arguments[1], len(before)) if name == "getitem" else None
        if starts is not None:
            moved = sum(slope * start for slope, start in zip(slopes, starts, strict=True))
            return replace(line, slopes=slopes, constant=line.constant + moved)
        if name == "getitem" and not _is_plain(arguments[1]):
            return None
        return _with_ones(line, slopes, before, shape)
    return None


def _is_plain(index: object) -> bool:
    """Whether an index only adds dimensions."""
    parts = index if isinstance(index, tuple) else (index,)
    return all(part is None or part is ... or part == slice(None) for part in parts)


def _starts(index: object, rank: int) -> list[int] | None:
    """Where an index begins that takes a piece of every dimension, counted from the front."""
    if not isinstance(index, tuple) or len(index) != rank:
        return None
    starts = []
    for part in index:
        if not isinstance(part, slice) or part.step not in (None, 1):
            return None
        start = 0 if part.start is None else part.start
        if not isinstance(start, int) or start < 0:
            return None
        starts.append(start)
    return starts


def _with_ones(
    line: IndexLine, slopes: tuple[int, ...], before: tuple[int, ...], after: tuple[int, ...]
) -> IndexLine | None:
    """A line where dimensions of size 1 come or go, and no others."""
    rest = [(slope, size) for slope, size in zip(slopes, before, strict=True) if size != 1]
    if [size for size in after if size != 1] != [size for _, size in rest]:
        return None
    left = iter(rest)
    return replace(line, slopes=tuple(0 if size == 1 else next(left)[0] for size in after))
