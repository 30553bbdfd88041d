"""Replaces groups of operators that match patterns with single operators.

In: a program. Out: a program with fewer steps, and the number of matches of each pattern. A group
is replaced only if no other call reads its intermediate values, and if it can run at the place of
one of its calls without a conflict with a call in between. So the program computes the same,
whatever a pattern says; operands that flow in are read, those that flow out are written. An
attention whose mask is computed and proved causal loses the mask (`find_causal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tessera.driver.trace.patterns.attention import find_attention, find_copies
from tessera.driver.trace.patterns.experts import find_experts
from tessera.driver.trace.patterns.flow import OUTSIDE, Value, ValueFlow
from tessera.driver.trace.patterns.kernels import Kernels
from tessera.driver.trace.patterns.makers import ATTENTION
from tessera.driver.trace.patterns.match import find_match
from tessera.driver.trace.patterns.pattern_table import PATTERNS, TWINS, OperatorPattern, Twins
from tessera.driver.trace.patterns.products import find_latent, find_widened
from tessera.ir.operators.fused import MOST_WRITES
from tessera.ir.operators.records import Reach
from tessera.ir.operators.table import OperatorMismatch, bind, reaches
from tessera.ir.program import program as ir

Calls = list[ir.LibraryCall]


def fuse(program: ir.Program) -> tuple[ir.Program, dict[str, int]]:
    """The program with fused operators, and the count of each pattern; programs with steps other
    than library calls stay unchanged."""
    calls = [step for step in program.steps if isinstance(step, ir.LibraryCall)]
    if len(calls) != len(program.steps):
        return program, {}
    counts: dict[str, int] = {}
    calls = _without_unread(calls, program.buffers)
    for pattern in PATTERNS:
        calls, count = _apply(pattern, calls, program.buffers)
        counts[pattern.name] = counts.get(pattern.name, 0) + count
    calls, counts["attention written out"] = _apply_groups(find_attention, calls, program.buffers)
    calls, counts["latent attention"] = _apply_groups(find_latent, calls, program.buffers)
    calls, counts["widened product"] = _apply_groups(find_widened, calls, program.buffers)
    calls, counts["experts"] = _apply_groups(find_experts, calls, program.buffers)
    causal = find_causal(ValueFlow(calls, program.buffers))
    counts["causal mask"] = len(causal)
    calls = [causal.get(at, call) for at, call in enumerate(calls)]
    if causal:
        calls = _without_unread(calls, program.buffers)
    calls, counts["copy of a result"] = _apply_groups(find_copies, calls, program.buffers)
    for twins in TWINS:
        calls, counts[twins.name] = _join(twins, calls, program.buffers)
    calls, counts["one kernel"] = _apply_kernels(calls, program.buffers)
    steps = tuple(replace(call, id=ir.LaunchId(at)) for at, call in enumerate(calls))
    made = replace(program, steps=steps)
    return _without_unused(made), {name: count for name, count in counts.items() if count}


def _apply(
    pattern: OperatorPattern, calls: Calls, buffers: Sequence[ir.Buffer]
) -> tuple[Calls, int]:
    """Replace all matches of a pattern; of two that overlap, only the first."""
    flow = ValueFlow(calls, buffers)
    taken: set[int] = set()
    new: dict[int, ir.LibraryCall] = {}
    for root in range(len(calls)):
        matched = find_match(pattern.text, flow, root)
        if matched is None or taken & set(matched.group()):
            continue
        made = pattern.make(matched)
        if made is not None and _is_sound(flow, matched.group(), made, root):
            taken |= set(matched.group())
            new[root] = made
    return _replaced(calls, taken, new), len(new)


def _apply_groups(
    find: Callable[[ValueFlow], Iterator[tuple[list[int], ir.LibraryCall]]],
    calls: Calls,
    buffers: Sequence[ir.Buffer],
) -> tuple[Calls, int]:
    """Replace groups, each at the place of its last call."""
    flow = ValueFlow(calls, buffers)
    taken: set[int] = set()
    new: dict[int, ir.LibraryCall] = {}
    for group, made in find(flow):
        target = group[-1]
        if not taken & set(group) and _is_sound(flow, group, made, target):
            taken |= set(group)
            new[target] = made
    return _replaced(calls, taken, new), len(new)


def _apply_kernels(calls: Calls, buffers: Sequence[ir.Buffer]) -> tuple[Calls, int]:
    flow = ValueFlow(calls, buffers)
    taken: set[int] = set()
    new: dict[int, ir.LibraryCall] = {}
    for group, made, target in Kernels(flow).find():
        taken |= set(group)
        new[target] = made
    return _replaced(calls, taken, new), len(new)


def _join(twins: Twins, calls: Calls, buffers: Sequence[ir.Buffer]) -> tuple[Calls, int]:
    """Join calls that share an operand, at the place of the first."""
    flow = ValueFlow(calls, buffers)
    by_shared: dict[object, list[int]] = {}
    for at, call in enumerate(calls):
        if call.operator in twins.operators and len(call.reads) > max(twins.shared):
            shared = tuple((flow.reads[at][n], call.reads[n]) for n in twins.shared)
            by_shared.setdefault((call.operator, call.attributes, shared), []).append(at)
    taken: set[int] = set()
    new: dict[int, ir.LibraryCall] = {}
    for group in by_shared.values():
        for members in _clusters(flow, group, twins.most or MOST_WRITES):
            made = twins.make([calls[at] for at in members])
            if made is not None and _is_held(made):
                taken |= set(members)
                new[members[0]] = made
    return _replaced(calls, taken, new), len(new)


def _clusters(flow: ValueFlow, group: list[int], most: int) -> Iterator[list[int]]:
    """Runs of at least two calls that can all run at the place of the first."""
    members: list[int] = []
    for at in group:
        if members and len(members) < most and flow.is_movable([*members, at], members[0]):
            members.append(at)
            continue
        if len(members) > 1:
            yield members
        members = [at]
    if len(members) > 1:
        yield members


def _is_sound(flow: ValueFlow, group: list[int], made: ir.LibraryCall, target: int) -> bool:
    """Whether the call `made` may replace a group of calls at the place `target`."""
    kept = {int(operand.pointer.buffer) for operand in made.writes}
    read = {int(operand.pointer.buffer) for operand in made.reads}
    own = set(group)
    for at in group:
        for value in flow.written(at):
            if value[0] not in kept and not flow.is_private(value, own):
                return False
        used, _ = reaches(flow.calls[at])
        for value, reach in zip(flow.reads[at], used, strict=True):
            if value[1] not in own and value[0] not in read and reach is not Reach.NONE:
                return False
    return flow.is_movable(group, target) and _is_held(made)


def _is_held(made: ir.LibraryCall) -> bool:
    try:
        bind(made)
    except OperatorMismatch:
        return False
    return True


def _replaced(calls: Calls, taken: set[int], new: dict[int, ir.LibraryCall]) -> Calls:
    made = []
    for at, call in enumerate(calls):
        if at in new:
            made.append(new[at])
        elif at not in taken:
            made.append(call)
    return made


def _without_unread(calls: Calls, buffers: Sequence[ir.Buffer]) -> Calls:
    """Leave out calls whose results are temporary and never read, such as unneeded masks."""
    kept: Calls = []
    read: set[int] = set()
    for call in reversed(calls):
        written = {int(operand.pointer.buffer) for operand in call.writes}
        is_kept = any(buffers[at].role is not ir.Role.TEMP or at in read for at in written)
        if is_kept or not written:
            kept.append(call)
            read |= {int(operand.pointer.buffer) for operand in call.reads}
    return kept[::-1]


def _without_unused(program: ir.Program) -> ir.Program:
    """Leave out temporary buffers that no step names."""
    used = {
        int(operand.pointer.buffer)
        for step in program.steps
        if isinstance(step, ir.LibraryCall)
        for operand in (*step.reads, *step.writes)
    }
    kept = [b for b in program.buffers if b.role is not ir.Role.TEMP or int(b.id) in used]
    ids = {int(buffer.id): ir.BufferId(at) for at, buffer in enumerate(kept)}

    def operand(old: ir.Operand) -> ir.Operand:
        place = ir.Pointer(ids[int(old.pointer.buffer)], old.pointer.offset)
        return replace(old, pointer=place)

    steps = tuple(
        replace(
            step, reads=tuple(map(operand, step.reads)), writes=tuple(map(operand, step.writes))
        )
        if isinstance(step, ir.LibraryCall)
        else step
        for step in program.steps
    )
    buffers = tuple(replace(buffer, id=ids[int(buffer.id)]) for buffer in kept)
    return replace(program, buffers=buffers, steps=steps)


_AT_MOST = {"aten::le.Tensor": (0, 1), "aten::ge.Tensor": (1, 0)}  # which reads are keys, queries


def find_causal(flow: ValueFlow) -> dict[int, ir.LibraryCall]:
    """The calls that are causal attention with a mask, by place, without their masks."""
    causal = {}
    for at, call in enumerate(flow.calls):
        if call.operator not in (ATTENTION, "tessera::attention") or not _has_mask(call):
            continue
        length, context = call.reads[0].shape[-2:][0], call.reads[1].shape[-2:][0]
        if length == context > 1 and _is_triangle(flow, flow.reads[at][3], length):
            attributes = dict(call.attributes) | {"is_causal": True}
            if len(call.reads) > 4:
                attributes["attn_mask"] = None
            reads = (*call.reads[:3], *call.reads[4:])
            causal[at] = replace(call, reads=reads, attributes=tuple(attributes.items()))
    return causal


def _has_mask(call: ir.LibraryCall) -> bool:
    return len(call.reads) > 3 and dict(call.attributes).get("attn_mask", True) is not None


def _is_triangle(flow: ValueFlow, mask: Value, length: int) -> bool:
    """Whether a value is `place of the key <= place of the query`, for `length` keys and queries,
    or numbers to add that say the same."""
    writer = flow.calls[mask[1]] if mask[1] != OUTSIDE else None
    if writer is None:
        return False
    values = flow.reads[mask[1]]
    if writer.operator == "aten::where.self" and len(values) == 3:
        lowest = _constant(flow, values[2])
        is_added = _constant(flow, values[1]) == 0 and lowest is not None and lowest < -1e4
        return is_added and _is_triangle(flow, values[0], length)
    if writer.operator not in _AT_MOST or len(values) != 2:
        return False
    keys, queries = _AT_MOST[writer.operator]
    along_keys = writer.reads[keys].shape[-2:] == (1, length)
    along_queries = writer.reads[queries].shape[-2:] == (length, 1)
    return (
        along_keys
        and along_queries
        and _counts(flow, values[keys], length, moved=False)
        and _counts(flow, values[queries], length, moved=True)
    )


def _constant(flow: ValueFlow, value: Value) -> float | None:
    """The number that a value is filled with."""
    call = flow.calls[value[1]] if value[1] != OUTSIDE else None
    if call is None or call.reads:
        return None
    if call.operator == "aten::zeros":
        return 0.0
    number = dict(call.attributes).get(
        "s" if call.operator == "aten::scalar_tensor" else "fill_value"
    )
    return float(number) if isinstance(number, int | float) else None


def _counts(flow: ValueFlow, value: Value, length: int, *, moved: bool) -> bool:
    """Whether a value is 0, 1, 2 and so on; with `moved`, plus one common number."""
    if value[1] == OUTSIDE:
        return False
    call = flow.calls[value[1]]
    attributes = dict(call.attributes)
    if call.operator == "aten::arange":
        steps = (attributes.get("start", 0), attributes.get("step", 1))
        return not call.reads and steps == (0, 1) and attributes.get("end") == length
    if call.operator != "aten::add.Tensor" or attributes.get("alpha", 1) != 1:
        return False
    if len(call.reads) == 1:
        is_number = attributes.get("other") == 0 or moved
        return is_number and _counts(flow, flow.reads[value[1]][0], length, moved=moved)
    single = [n for n, operand in enumerate(call.reads) if operand.shape in ((), (1,))]
    if not moved or len(call.reads) != 2 or len(single) != 1:
        return False
    return _counts(flow, flow.reads[value[1]][1 - single[0]], length, moved=moved)
