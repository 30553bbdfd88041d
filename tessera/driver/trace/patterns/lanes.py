"""Lanes of a group of calls: dimensions along which all of them can be cut at once.

In: calls, by their place in a `ValueFlow`, with the names of their dimensions
(`ir.operators.cuts`). Out: `KernelLanes`. A block of one kernel can compute a range of a lane for
all calls of the group, and needs nothing of the other blocks. Two calls share a lane if one writes
a value along it that the other reads by the same elements in the same order. Dimensions of a value
are compared by their strides, in digits: 640 elements are 8 by 80 where the other call has these.
A call that is not cut along a lane is computed by every block; then only the group may see it, and
that must not be more work than the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from math import gcd, prod

from tessera.driver.trace.patterns.flow import ValueFlow
from tessera.ir.operators.cut_rules import dims_of
from tessera.ir.operators.cuts import WHOLE, Names
from tessera.ir.operators.records import Bound
from tessera.ir.program.program import Operand

_ROUNDS = 4
Axis = tuple[int, str]  # the place of a call, and the name of some of its dimensions
Digit = tuple[int, str, int]  # the same, and the elements of all lower digits


@dataclass(frozen=True, slots=True)
class CallDims:
    """The names of the dimensions of a call's operands, and those that are not cut."""

    reads: tuple[Names, ...]
    writes: tuple[Names, ...]
    kept: frozenset[str]

    @staticmethod
    def of(bound: Bound) -> CallDims:
        """The names by the rule of the operator; results of which parts have only the first are
        not cut."""
        dims = dims_of(bound)
        kept = frozenset(axis for axis, _ in dims.kept)
        return CallDims(dims.reads, dims.writes, kept if not dims.once else frozenset({WHOLE}))


@dataclass(frozen=True, slots=True)
class _InnerValue:
    """A value that one call of a group writes and another one reads."""

    writer: int
    written: Operand
    made: Names
    reader: int
    read: Operand
    taken: Names


class KernelLanes:
    """The lanes of one group of calls."""

    def __init__(
        self, flow: ValueFlow, named: Callable[[int], CallDims], group: Sequence[int]
    ) -> None:
        self._flow, self._named, self._group = flow, named, group
        self._edges = list(self._inner_edges())
        self._splits: dict[Axis, set[int]] = {}
        self._sizes: dict[Axis, int] = {}
        self._parents: dict[Digit, Digit] = {}
        self._broken: set[Digit] = set()
        for at in group:
            for operand, names in self._operands(at):
                for size, name in zip(operand.shape, names, strict=True):
                    axis = at, name
                    self._sizes[axis] = gcd(self._sizes.get(axis, 0), size)
        self._split()
        for edge in self._edges:
            self._match(edge)

    @property
    def extent(self) -> int:
        """How many blocks can work on the group, each for itself."""
        return prod(lane.size for lane in self.found)

    @cached_property
    def found(self) -> tuple[Lane, ...]:
        """The lanes, outermost dimensions of the first call first."""
        classes: dict[Digit, list[Digit]] = {}
        for axis in self._sizes:
            for digit, size, _ in self._digits(axis, 1):
                if size > 1:
                    classes.setdefault(self._root(digit), []).append(digit)
        broken = {self._root(digit) for digit in self._broken}
        seen = {at for at in self._group if not self._is_inner(at)}
        lanes = []
        for root, digits in classes.items():
            cut = {at for at, _, _ in digits}
            kept = any(name == WHOLE or name in self._named(at).kept for at, name, _ in digits)
            if root not in broken and not kept and len(cut) == len(digits) and seen <= cut:
                lane = Lane({digit: self._size_of(digit) for digit in digits})
                again = max(map(self._elements, set(self._group) - cut), default=0)
                if again * lane.size <= max(map(self._elements, cut)):
                    lanes.append(lane)
        return tuple(lanes)

    def _elements(self, at: int) -> int:
        return max(prod(operand.shape) for operand, _ in self._operands(at))

    def names(self, at: int, names: Names) -> tuple[Lane | None, ...]:
        """The lane of each dimension of an operand: that of its highest digit."""
        made = []
        for name in names:
            digits = list(self._digits((at, name), 1))
            top = digits[-1][0] if digits and name != WHOLE else None
            made.append(next((lane for lane in self.found if top in lane.sizes), None))
        return tuple(made)

    def is_top(self, lane: Lane) -> bool:
        """Whether a lane is ranges of dimensions, and nowhere one of every so many elements."""
        return all(list(self._digits(digit[:2], 1))[-1][0] == digit for digit in lane.sizes)

    def _operands(self, at: int) -> Iterator[tuple[Operand, Names]]:
        call, named = self._flow.calls[at], self._named(at)
        yield from zip(call.reads, named.reads, strict=True)
        yield from zip(call.writes, named.writes, strict=True)

    def _inner_edges(self) -> Iterator[_InnerValue]:
        own = set(self._group)
        for at in self._group:
            call, named = self._flow.calls[at], self._named(at)
            for value, read, taken in zip(
                self._flow.reads[at], call.reads, named.reads, strict=True
            ):
                if value[1] not in own:
                    continue
                before, made = self._flow.calls[value[1]], self._named(value[1]).writes
                for written, names in zip(before.writes, made, strict=True):
                    if int(written.pointer.buffer) == value[0]:
                        yield _InnerValue(value[1], written, names, at, read, taken)

    def _is_inner(self, at: int) -> bool:
        own = set(self._group)
        return all(self._flow.is_private(value, own) for value in self._flow.written(at))

    # --- digits ---------------------------------------------------------------------------

    def _split(self) -> None:
        """Divide dimensions into digits until those of all values fit each other."""
        for _ in range(_ROUNDS):
            before = sum(map(len, self._splits.values()))
            for edge in self._edges:
                if edge.written.dtype.bytes == edge.read.dtype.bytes:
                    self._split_like(edge.writer, edge.written, edge.made, edge.read)
                    self._split_like(edge.reader, edge.read, edge.taken, edge.written)
            if sum(map(len, self._splits.values())) == before:
                return

    def _split_like(self, at: int, operand: Operand, names: Names, other: Operand) -> None:
        pairs = list(zip(other.shape, other.element_strides(), strict=True))
        levels = sorted({level for n, step in pairs for level in (step, n * step)})
        for size, step, name in zip(operand.shape, operand.element_strides(), names, strict=True):
            if step == 0 or name == WHOLE or self._sizes[at, name] != size:
                continue
            for level in levels:
                ratio = level // step
                if level % step == 0 and 1 < ratio < size:
                    chain = sorted({1, ratio, size, *self._splits.get((at, name), ())})
                    if all(b % a == 0 for a, b in pairwise(chain)):
                        self._splits.setdefault((at, name), set()).add(ratio)

    def _digits(self, axis: Axis, step: int) -> Iterator[tuple[Digit, int, int]]:
        """The digits of a dimension, lowest first, with their sizes and strides."""
        chain = sorted({1, self._sizes[axis], *self._splits.get(axis, ())})
        if len(chain) == 1:
            chain = [1, 1]
        for low, high in pairwise(chain):
            yield (*axis, low), high // low, step * low

    def _size_of(self, digit: Digit) -> int:
        return next(s for known, s, _ in self._digits(digit[:2], 1) if known == digit)

    def _match(self, edge: _InnerValue) -> None:
        """Join the digits of a value that its writer and its reader have in common."""
        made = list(self._all_digits(edge.writer, edge.written, edge.made))
        taken = list(self._all_digits(edge.reader, edge.read, edge.taken))
        if edge.written.dtype.bytes != edge.read.dtype.bytes:
            taken = []
        places = {(size, step): digit for digit, size, step in taken if step}
        for digit, size, step in made:
            other = places.get((size, step))
            if size > 1 and other is None:
                self._broken.add(digit)
            elif size > 1 and other is not None:
                self._parents[self._root(other)] = self._root(digit)

    def _all_digits(
        self, at: int, operand: Operand, names: Names
    ) -> Iterator[tuple[Digit, int, int]]:
        for size, step, name in zip(operand.shape, operand.element_strides(), names, strict=True):
            if self._sizes[at, name] == size:
                yield from self._digits((at, name), step)
            else:  # one of several dimensions that are cut in the same proportion
                yield (at, name, 1), size, step

    def _root(self, digit: Digit) -> Digit:
        while self._parents.get(digit, digit) != digit:
            digit = self._parents[digit]
        return digit


@dataclass(frozen=True, eq=False)
class Lane:
    """A lane: its digits in each call that is cut along it, with their sizes."""

    sizes: dict[Digit, int] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """The number of ranges that it can be cut into."""
        return gcd(*self.sizes.values())
