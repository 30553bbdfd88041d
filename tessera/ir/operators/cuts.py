"""By which dimensions a call of an operator can be cut into calls of the same operator.

In: a bound call. Out: `NamedDims`: a name for each dimension of each operand, where dimensions with
one name are cut together. A part of the call along a name takes a range of every dimension that has
the name and the whole of all others. Each element of its results is then computed from the same
elements, by the same operations in the same order, as in the whole call.

Names: `rows`, `columns` and `batch` of products, `sequences`, `heads` and `queries` of attention,
`batch` and `channels` of convolutions and their norms; otherwise `d0`, `d1` ... count the
dimensions of the first result. `cut_rules` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tessera.ir.operators.records import Bound, Shape
from tessera.wording import Wording

Names = tuple[str, ...]
"""A name per dimension; `""` for a dimension that every part has whole."""
WHOLE = ""
ALONG = "each element depends on others along it"
WINDOWS = "windows along it overlap"


@dataclass(frozen=True, slots=True)
class Resized:
    """An attribute that counts what is cut along `axis`: an integer, or number `at` of a list."""

    attribute: str
    axis: str
    at: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDims:
    """The names of the dimensions of a call.

    `reads` and `writes` are in the order of the call. `once` counts the writes at the end that only
    the first part has: they do not depend on the operands. `units` are the numbers of equal pieces
    that must stay whole, for axes that have fewer pieces than elements. `kept` says why an axis
    cannot be cut.
    """

    reads: tuple[Names, ...]
    writes: tuple[Names, ...]
    once: int = 0
    units: tuple[tuple[str, int], ...] = ()
    resized: tuple[Resized, ...] = ()
    kept: tuple[tuple[str, Wording], ...] = ()


Namer = Callable[[Bound], NamedDims]


@dataclass(frozen=True, slots=True)
class CutRule:
    """What can be cut, for readers of the table, and the names for a call."""

    says: str
    names: Namer


# --- the notation of rules -----------------------------------------------------------------


def numbered(shape: Shape) -> Names:
    """`d0`, `d1` ... for the dimensions of a shape."""
    return tuple(f"d{axis}" for axis in range(len(shape)))


def spread(shape: Shape, names: Names, whole: Shape) -> Names:
    """The names of an operand that broadcasts to `whole`; what is repeated is not cut."""
    ahead = len(names) - len(shape)
    pairs = zip(shape, names[ahead:], whole[ahead:], strict=True)
    return tuple(name if size == full else WHOLE for size, name, full in pairs)


def named(
    bound: Bound,
    reads: Mapping[str, Names],
    writes: Mapping[str, Names],
    *,
    once: Iterable[str] = (),
    units: Mapping[str, int] | None = None,
    resized: tuple[Resized, ...] = (),
    kept: Mapping[str, str] | None = None,
) -> NamedDims:
    """Names by the names of operands; an operand without names is whole in every part."""
    later = set(once)
    made = [(spec.name, operand) for spec, operand in bound.writes]
    count = next((n for n, (name, _) in enumerate(reversed(made)) if name not in later), len(made))
    return NamedDims(
        reads=tuple(
            reads.get(spec.name, (WHOLE,) * len(operand.shape))
            for spec, operands in bound.reads
            for operand in operands
        ),
        writes=tuple(writes.get(name, (WHOLE,) * len(operand.shape)) for name, operand in made),
        once=count,
        units=tuple((units or {}).items()),
        resized=resized,
        kept=tuple((axis, Wording(reason)) for axis, reason in (kept or {}).items()),
    )


def uncut(why: str) -> Namer:
    """No dimension can be cut."""

    def names(bound: Bound) -> NamedDims:
        writes = {spec.name: numbered(operand.shape) for spec, operand in bound.writes}
        longest = max(writes.values(), key=len, default=())
        return named(bound, {}, writes, kept=dict.fromkeys(longest, why))

    return names


def result_shape(bound: Bound) -> Shape:
    """The shape of the first result."""
    return bound.writes[0][1].shape


def written(bound: Bound, names: Names) -> dict[str, Names]:
    """The same names for all results."""
    return {spec.name: names for spec, _ in bound.writes}


def broadcast_names(bound: Bound) -> NamedDims:
    """All operands broadcast to the shape of the result."""
    whole = result_shape(bound)
    names = numbered(whole)
    reads = {
        spec.name: spread(operand.shape, names, whole)
        for spec, operands in bound.reads
        for operand in operands
    }
    return named(bound, reads, written(bound, names))
