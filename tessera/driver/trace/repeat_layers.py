"""Traces of models with equal layers: from traces of a few layers to one of all of them.

In: traces of the same step with two and with three layers, and the number of layers to add. Out:
the trace with all layers, or None if a layer differs from the previous one by more than numbers.
The additional steps of the longer trace are one layer. Each of them is compared with its step in
the previous layer: the same operator, shapes and attributes, and names of buffers that differ only
in numbers. This determines the next layers and the steps after the last layer. The caller compares
a third trace with the result for the first two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tessera.driver.trace.meta_trace import FakeTrace
from tessera.ir.program import program as ir

_Deltas = dict[str, tuple[int, ...]]


def with_more_layers(short: FakeTrace, longer: FakeTrace, more: int) -> FakeTrace | None:
    """The trace with `more` layers added to `short`; `longer` has one layer more than `short`."""
    program = _repeated(short.trace.program, longer.trace.program, more)
    if program is None:
        return None
    nodes = [made.trace.nodes.others for made in (short, longer)]
    count = nodes[0] + more * (nodes[1] - nodes[0])
    trace = replace(
        longer.trace,
        program=program,
        nodes=replace(longer.trace.nodes, others=count, in_calls=count),
    )
    patterns = {
        name: short.patterns.get(name, 0) + more * (number - short.patterns.get(name, 0))
        for name, number in longer.patterns.items()
    }
    return FakeTrace(trace=trace, patterns=patterns)


def is_same(first: FakeTrace, second: FakeTrace) -> bool:
    """Whether two traces are the same, whatever the order of their buffers."""
    left, right = first.trace.program, second.trace.program
    return (
        _calls(left) == _calls(right)
        and set(map(_shape, left.buffers)) == set(map(_shape, right.buffers))
        and first.patterns == second.patterns
        and first.trace.nodes == second.trace.nodes
        and first.trace.diagnostics == second.trace.diagnostics
    )


class _NamedCall:
    """A call, separate from the names of its buffers."""

    def __init__(self, program: ir.Program, call: ir.LibraryCall) -> None:
        self.call = call
        operands = (*call.reads, *call.writes)
        self.names = [program.buffers[operand.pointer.buffer].name for operand in operands]
        nowhere = [_moved(operand, ir.BufferId(0)) for operand in operands]
        self.rest = (call.operator, len(call.reads), nowhere, call.attributes, call.stream)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NamedCall) and (self.rest, self.names) == (
            other.rest,
            other.names,
        )

    __hash__ = None  # type: ignore[assignment]


def _calls(program: ir.Program) -> list[_NamedCall]:
    return [_NamedCall(program, step) for step in program.steps if isinstance(step, ir.LibraryCall)]


def _shape(buffer: ir.Buffer) -> tuple[object, ...]:
    return (buffer.name, buffer.bytes, buffer.role, buffer.dtype, buffer.shape)


def _moved(operand: ir.Operand, buffer: ir.BufferId) -> ir.Operand:
    return replace(operand, pointer=ir.Pointer(buffer, operand.pointer.offset))


def _repeated(short: ir.Program, longer: ir.Program, more: int) -> ir.Program | None:
    """The program of `short` with `more` layers added."""
    first, second = _calls(short), _calls(longer)
    layer = len(second) - len(first)
    if layer < 1 or len(first) != len(short.steps) or len(second) != len(longer.steps):
        return None
    pairs = zip(first, second, strict=False)
    end = next((n for n, (a, b) in enumerate(pairs) if a != b), len(first))
    begin = end - layer
    if begin < 0:
        return None
    deltas: _Deltas = {}
    after: _Deltas = {}
    if not (
        _align(first[begin:end], second[end : end + layer], deltas)
        and _align(first[end:], second[end + layer :], after)
    ):
        return None
    known = {name for call in first[:begin] for name in call.names}
    own = {name for name, delta in deltas.items() if any(delta) and name not in known}
    made = _buffers(short, own, deltas, after, more)
    if made is None:
        return None
    buffers, ids = made
    steps: list[ir.LibraryCall] = []
    for call, names in _renamed(first, begin, end, deltas, after, more):
        places = [ids.get(name) for name in names]
        if None in places:
            return None
        operands = [
            _moved(operand, place)
            for operand, place in zip((*call.reads, *call.writes), places, strict=True)
            if place is not None
        ]
        steps.append(
            replace(
                call,
                id=ir.LaunchId(len(steps)),
                reads=tuple(operands[: len(call.reads)]),
                writes=tuple(operands[len(call.reads) :]),
            )
        )
    return replace(short, buffers=buffers, steps=tuple(steps), source=None)


def _renamed(
    calls: Sequence[_NamedCall], begin: int, end: int, deltas: _Deltas, after: _Deltas, more: int
) -> Iterator[tuple[ir.LibraryCall, list[str]]]:
    """All calls with the names of their buffers: the existing calls, the new layers, the calls
    after."""
    for call in calls[:end]:
        yield call.call, call.names
    for number in range(1, more + 1):
        for call in calls[begin:end]:
            yield call.call, [_shifted(name, deltas[name], number) for name in call.names]
    for call in calls[end:]:
        yield call.call, [_shifted(name, after[name], more) for name in call.names]


def _buffers(
    short: ir.Program, own: set[str], deltas: _Deltas, after: _Deltas, more: int
) -> tuple[tuple[ir.Buffer, ...], dict[str, ir.BufferId]] | None:
    """The buffers of all layers: each run of a layer's own buffers is followed by those of the new
    layers."""
    made: list[ir.Buffer] = []
    run: list[ir.Buffer] = []

    def end_run() -> None:
        for number in range(1, more + 1):
            made.extend(
                replace(buffer, name=_shifted(buffer.name, deltas[buffer.name], number))
                for buffer in run
            )
        run.clear()

    for buffer in short.buffers:
        if buffer.name in own:
            run.append(buffer)
            made.append(buffer)
            continue
        end_run()
        # Buffers that only the end of the step names are renamed along with it.
        delta = after.get(buffer.name, ()) if buffer.name not in deltas else ()
        name = _shifted(buffer.name, delta, more) if delta else buffer.name
        made.append(replace(buffer, name=name))
    end_run()
    numbered = tuple(replace(buffer, id=ir.BufferId(n)) for n, buffer in enumerate(made))
    ids = {buffer.name: buffer.id for buffer in numbered}
    return (numbered, ids) if len(ids) == len(numbered) else None


def _align(calls: Sequence[_NamedCall], others: Sequence[_NamedCall], deltas: _Deltas) -> bool:
    """Whether calls are equal up to numbers in names; `deltas` gets the differences of the
    numbers."""
    if len(calls) != len(others):
        return False
    for call, other in zip(calls, others, strict=True):
        if call.rest != other.rest:
            return False
        for name, renamed in zip(call.names, other.names, strict=True):
            delta = _delta(name, renamed)
            if delta is None or deltas.setdefault(name, delta) != delta:
                return False
    return True


def _parts(name: str) -> list[str]:
    return re.split(r"(\d+)", name)


def _delta(name: str, other: str) -> tuple[int, ...] | None:
    """The differences of the numbers in two names; None if the names differ in anything else."""
    first, second = _parts(name), _parts(other)
    if len(first) != len(second) or first[::2] != second[::2]:
        return None
    return tuple(int(b) - int(a) for a, b in zip(first[1::2], second[1::2], strict=True))


def _shifted(name: str, delta: tuple[int, ...], times: int) -> str:
    parts = _parts(name)
    parts[1::2] = [str(int(n) + times * d) for n, d in zip(parts[1::2], delta, strict=True)]
    return "".join(parts)
