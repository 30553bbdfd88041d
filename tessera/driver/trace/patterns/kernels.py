"""Groups of calls that one kernel computes, found by the flow of data alone.

In: a `ValueFlow`. Out: groups of calls, each with the call that stands for it (`tessera::fused`
and its kin). Any calls may go together but products with weights, attention and experts: element-
wise ones, copies, norms, choices of experts, and products of two computed values. A call joins
those that made its operands if the blocks of one kernel can compute all of them without one another
(`lanes`), and if enough blocks are left. Then groups that are independent of each other join if
they read the same value, or if both are tiny.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from string import ascii_lowercase

from tessera.driver.trace.patterns.flow import OUTSIDE, ValueFlow
from tessera.driver.trace.patterns.lanes import CallDims, KernelLanes
from tessera.ir.operators import shapes
from tessera.ir.operators.cuts import Names
from tessera.ir.operators.fused import MOST_WRITES
from tessera.ir.operators.records import Bound, OperatorMismatch, Reach, Unit
from tessera.ir.operators.table import bind, reaches
from tessera.ir.program import program as ir

_FARTHEST = 96  # calls between the first and the last of a group
_MOST = 128  # calls of a group
_ENOUGH = 512  # blocks that occupy any GPU
_TINY = 2048  # elements that one block computes as fast as several
_LOOKED_UP = 1 << 20  # bytes of a table that may as well be read whole
_ALONE = ("other", "cache_write")
_ALONG = (shapes.reduced, shapes.chosen, shapes.along, shapes.topk, shapes.normalised)
_PLAIN = ("clone", "copy", "copy_")


class Kernels:
    """The search in one program."""

    def __init__(self, flow: ValueFlow) -> None:
        self.flow = flow
        self._bound: dict[int, Bound] = {}
        self._groups: dict[int, list[int]] = {}
        self._group_of: dict[int, int] = {}
        self._named = cache(lambda at: CallDims.of(self._bound[at]))
        for at in range(len(flow.calls)):
            self._bind(at)

    def find(self) -> Iterator[tuple[list[int], ir.LibraryCall, int]]:
        """Groups of two calls and more, the calls that stand for them, and their places."""
        for at in sorted(self._bound):
            self._join_makers(at)
        self._join_neighbours()
        for group in self._groups.values():
            target = self._target(group)
            if len(group) > 1 and target is not None:
                yield group, self._call(group), target

    def _bind(self, at: int) -> None:
        call = self.flow.calls[at]
        try:
            bound = bind(call)
        except OperatorMismatch:
            return
        if bound.operator.function in _ALONE or not call.writes:
            return
        if bound.operator.work(bound).unit is Unit.MATRIX and not self._is_inner_product(at, bound):
            return
        used, _ = reaches(call)
        looked_up = [o for o, reach in zip(call.reads, used, strict=True) if reach is Reach.INDEXED]
        if all(o.extent_bytes() <= _LOOKED_UP for o in looked_up):
            self._bound[at] = bound

    def _is_inner_product(self, at: int, bound: Bound) -> bool:
        """Whether a product is of computed values alone, or a convolution of single channels."""
        if bound.operator.function == "convolution":
            return bound.integer("groups") == bound.shape("weight")[0] and not bound.flag(
                "transposed"
            )
        return bound.operator.function in ("bmm", "baddbmm") and all(
            writer != OUTSIDE for _, writer in self.flow.reads[at]
        )

    # --- groups ---------------------------------------------------------------------------

    def _join_makers(self, at: int) -> None:
        """A group of a call alone, with the groups that made its operands if they go together."""
        own = [at]
        makers = [self._group_of[w] for _, w in self.flow.reads[at] if w in self._group_of]
        for maker in sorted(set(makers), reverse=True):
            joined = sorted([*self._groups[maker], *own])
            if self._is_kernel(joined, self._groups[maker], own):
                del self._groups[maker]
                own = joined
        self._keep(own)

    def _keep(self, group: list[int]) -> None:
        self._groups[group[-1]] = group
        for member in group:
            self._group_of[member] = group[-1]

    def _join_neighbours(self) -> None:
        """Groups that nothing of each other's need."""
        before: list[int] = []
        for last in sorted(self._groups):
            group = self._groups[last]
            for other in reversed(before):
                if last - other > _FARTHEST:
                    break
                earlier = self._groups[other]
                if self._are_neighbours(earlier, group):
                    joined = sorted([*earlier, *group])
                    if self._is_possible(joined):
                        del self._groups[other], self._groups[last]
                        before.remove(other)
                        self._keep(joined)
                        break
            before.append(self._group_of[last])

    def _are_neighbours(self, group: list[int], other: list[int]) -> bool:
        both = {*group, *other}
        inputs = self._inputs(group) | self._inputs(other)
        if any(writer in both for _, writer in inputs):
            return False
        if max(self._elements(group), self._elements(other)) <= _TINY:
            return all(at in self._bound for at in range(group[-1], other[0]))
        shared = self._inputs(group) & self._inputs(other)
        return any(self.flow.buffers[buffer].role is not ir.Role.WEIGHT for buffer, _ in shared)

    def _inputs(self, group: list[int]) -> set[tuple[int, int]]:
        own = set(group)
        return {v for at in group for v in self.flow.reads[at] if v[1] not in own}

    def _is_kernel(self, joined: list[int], *parts: list[int]) -> bool:
        if not self._is_possible(joined):
            return False
        large = [part for part in parts if self._elements(part) > _TINY]
        need = min([_ENOUGH, *(self._lanes(part).extent for part in large)])
        return self._lanes(joined).extent >= (need if large else 1)

    def _is_possible(self, group: list[int]) -> bool:
        if len(group) > _MOST or group[-1] - group[0] > _FARTHEST:
            return False
        return self._target(group) is not None and len(self._results(group)) <= MOST_WRITES

    def _target(self, group: list[int]) -> int | None:
        """A place where the whole group can run."""
        places = (group[-1], group[0])
        return next((place for place in places if self.flow.is_movable(group, place)), None)

    def _lanes(self, group: Sequence[int]) -> KernelLanes:
        return KernelLanes(self.flow, self._named, group)

    def _elements(self, group: list[int]) -> int:
        calls = [self.flow.calls[at] for at in group]
        return max(prod(o.shape) for call in calls for o in (*call.reads, *call.writes))

    # --- the call -------------------------------------------------------------------------

    def _results(self, group: list[int]) -> list[tuple[int, ir.Operand, Names]]:
        """What the group leaves behind: results that others read, with all parts of them."""
        own = set(group)
        values = [value for at in group for value in self.flow.written(at)]
        kept = {value[0] for value in values if not self.flow.is_private(value, own)}
        made: dict[ir.Operand, tuple[int, ir.Operand, Names]] = {}
        for at in group:
            for operand, names in zip(
                self.flow.calls[at].writes, self._named(at).writes, strict=True
            ):
                if int(operand.pointer.buffer) in kept:
                    made[operand] = at, operand, names
        return sorted(made.values(), key=lambda own: -prod(own[1].shape))

    def _call(self, group: list[int]) -> ir.LibraryCall:
        own, letters = set(group), self._letters(group)
        reads: dict[tuple[ir.Operand, str], None] = {}
        for at in group:
            call = self.flow.calls[at]
            used, _ = reaches(call)
            parts = zip(call.reads, self.flow.reads[at], self._named(at).reads, used, strict=True)
            for operand, value, names, reach in parts:
                if value[1] not in own and reach is not Reach.NONE:
                    reads.setdefault((operand, letters(at, names)))
        writes = [(operand, letters(at, names)) for at, operand, names in self._results(group)]
        bounds = [self._bound[at] for at in group]
        works = [bound.operator.work(bound) for bound in bounds]
        kinds = dict.fromkeys(bound.operator.function for bound in bounds)
        return ir.LibraryCall(
            id=ir.LaunchId(0),
            operator=f"tessera::{self._operator(group, {work.unit for work in works})}",
            reads=tuple(operand for operand, _ in reads),
            writes=tuple(operand for operand, _ in writes),
            attributes=(
                ("dims", "->".join(",".join(text for _, text in some) for some in (reads, writes))),
                ("operations", sum(work.operations for work in works)),
                ("of", " ".join(kind for kind in kinds if kind not in _PLAIN)),
            ),
        )

    def _letters(self, group: list[int]) -> Callable[[int, Names], str]:
        """Letters for the lanes of a group. What is independent of each other is cut in the same
        proportion, the first lane of one part with the first of the other."""
        parts = [(part, self._lanes(part)) for part in self._apart(group)]
        known: dict[int, tuple[KernelLanes, dict[int, str]]] = {}
        cut = [[lane for lane in lanes.found if lanes.is_top(lane)] for _, lanes in parts]
        count = min(map(len, cut))
        for (part, lanes), own in zip(parts, cut, strict=True):
            letters = {id(lane): ascii_lowercase[n] for n, lane in enumerate(own[:count])}
            known |= dict.fromkeys(part, (lanes, letters))

        def text(at: int, names: Names) -> str:
            lanes, letters = known[at]
            return "".join(letters.get(id(lane), "_") for lane in lanes.names(at, names))

        return text

    def _apart(self, group: list[int]) -> list[list[int]]:
        """The parts of a group between which no value goes."""
        parts: list[list[int]] = []
        for at in group:
            writers = {writer for _, writer in self.flow.reads[at]}
            joined = [part for part in parts if writers & set(part)]
            parts = [part for part in parts if part not in joined]
            parts.append(sorted([at, *(member for part in joined for member in part)]))
        return parts

    def _operator(self, group: list[int], units: set[Unit]) -> str:
        if Unit.MATRIX in units:
            return "fused_products"
        along = any(self._bound[at].operator.shapes in _ALONG for at in group)
        return "fused_rows" if along else "fused"
