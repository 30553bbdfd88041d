"""Experts of a mixture: two grouped products, and the calls that sort tokens and sum results.

In: a `ValueFlow`. Out: groups of calls, each with the call that stands for it. A group begins with
two products over the same experts, of which the second reads the result of the first. It includes
the calls between them, then calls before them whose results go nowhere else, then calls after them
that have a row for each token and each of its experts, up to the sum for each token. Other
products, choices of experts (topk, softmax) and the sum with the residual stay outside.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tessera.driver.trace.patterns.flow import OUTSIDE, Value, ValueFlow, between
from tessera.ir.operators.fused import MOST_WRITES
from tessera.ir.operators.records import Unit
from tessera.ir.operators.table import work_of
from tessera.ir.program import program as ir

_GROUPED = ("aten::_grouped_mm",)
_CHOICES = ("aten::topk", "aten::_softmax", "aten::sigmoid")
_FARTHEST = 48  # the most calls between the parts of a group


def find_experts(flow: ValueFlow) -> Iterator[tuple[list[int], ir.LibraryCall]]:
    """Groups, in the order of the program."""
    for first, call in enumerate(flow.calls):
        if call.operator in _GROUPED:
            second = _second(flow, first)
            if second is not None:
                group = _with_ends(flow, between(flow, first, second), second)
                made = _call(flow, sorted(group), first, second)
                if made is not None:
                    yield sorted(group), made


def _second(flow: ValueFlow, first: int) -> int | None:
    """The product that reads the result of the first, through plain calls."""
    reached = {first}
    experts = _experts(flow.calls[first])
    for at in range(first + 1, min(len(flow.calls), first + _FARTHEST)):
        if not any(writer in reached for _, writer in flow.reads[at]):
            continue
        call = flow.calls[at]
        if call.operator in _GROUPED:
            # Gate and up may be two products; then the third product is the second one of the
            # group.
            return at if _experts(call) == experts else None
        if not _is_product(call):
            reached.add(at)
    return None


def _experts(call: ir.LibraryCall) -> int:
    return call.reads[1].shape[0] if len(call.reads) > 1 and call.reads[1].shape else 0


def _is_product(call: ir.LibraryCall) -> bool:
    work = work_of(call)
    return work is not None and work.unit is Unit.MATRIX


def _with_ends(flow: ValueFlow, group: set[int], second: int) -> set[int]:
    """The group with the calls before it that serve only the group, and those that finish its
    work."""
    routed = prod(flow.calls[second].writes[0].shape)
    for _ in range(2):  # finishing calls may have serving calls of their own
        _add_servants(flow, group)
        _add_finish(flow, group, routed)
    return group


def _add_servants(flow: ValueFlow, group: set[int]) -> None:
    for at in range(max(group), max(0, min(group) - _FARTHEST) - 1, -1):
        call = flow.calls[at]
        if at in group or _is_product(call) or call.operator in _CHOICES:
            continue
        values = flow.written(at)
        is_read = any(flow.readers.get(value) for value in values)
        if is_read and all(flow.is_private(value, group) for value in values):
            group.add(at)


def _add_finish(flow: ValueFlow, group: set[int], routed: int) -> None:
    """Calls that read a result of all routed tokens, and nothing else as large that is not made of
    weights."""
    for at in range(min(group), min(len(flow.calls), max(group) + _FARTHEST)):
        call = flow.calls[at]
        if at in group or _is_product(call):
            continue
        large = [
            value
            for operand, value in zip(call.reads, flow.reads[at], strict=True)
            if prod(operand.shape) == routed
        ]
        own = [value for value in large if value[1] in group]
        roles = {flow.buffers[operand.pointer.buffer].role for operand in call.writes}
        if own and roles <= {ir.Role.TEMP, ir.Role.OUTPUT}:
            others = [value for value in large if value not in own]
            if all(_is_of_weights(flow, value) for value in others):
                group.add(at)


def _is_of_weights(flow: ValueFlow, value: Value) -> bool:
    """Whether a value is rows of a weight."""
    if value[1] == OUTSIDE:
        return flow.buffers[value[0]].role is ir.Role.WEIGHT
    call = flow.calls[value[1]]
    return all(
        not operand.dtype.is_float or flow.buffers[operand.pointer.buffer].role is ir.Role.WEIGHT
        for operand in call.reads
    )


def _call(flow: ValueFlow, group: list[int], first: int, second: int) -> ir.LibraryCall | None:
    """The call that stands for a group."""
    up, down = flow.calls[first].reads[1], flow.calls[second].reads[1]
    rows = flow.calls[first].reads[0].shape
    if len(up.shape) != 3 or len(down.shape) != 3 or len(rows) != 2:
        return None
    experts, hidden, inner = up.shape[0], rows[1], flow.calls[second].reads[0].shape[-1]
    own = set(group)
    reads: dict[ir.Operand, None] = {}
    writes: dict[ir.Operand, None] = {}
    for at in group:
        for operand, value in zip(flow.calls[at].reads, flow.reads[at], strict=True):
            if value[1] not in own:
                reads.setdefault(operand)
        for operand, value in zip(flow.calls[at].writes, flow.written(at), strict=True):
            if not flow.is_private(value, own):
                writes.setdefault(operand)
    if not writes or len(writes) > MOST_WRITES:
        return None
    tokens = max(1, prod(next(iter(writes)).shape[:-1]))
    chosen = max(1, round(rows[0] / tokens))
    return ir.LibraryCall(
        id=ir.LaunchId(0),
        operator="tessera::experts",
        reads=tuple(reads),
        writes=tuple(writes),
        attributes=(
            ("tokens", max(1, rows[0] // chosen)),
            ("hidden", hidden),
            ("inner", inner),
            ("chosen", chosen),
            ("experts", experts),
        ),
    )
