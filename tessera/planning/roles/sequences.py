"""Which traces of a mix begin sequences, which go on with them, and what a hand-over moves.

In: the traces of a mix. Out: `Sequences`, or the reason why they are not known.

Traces that share a state, one of which writes it, are steps of the same sequences. A step with an
input `tokens` of several tokens for each sequence begins sequences, one with a single token goes on
(`docs/guides/serve.md`). Without such inputs, a step begins sequences if nothing that it reads of
these states is left from the request before.

A hand-over moves one sequence: a row of each state, the first axis of which counts sequences, or
the blocks in its row of a table. If the second axis counts tokens, as many as the step has read.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessera.ir.graph.access import AccessKind
from tessera.ir.program.program import Buffer, Role
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.problem.role_parts import Sequences

_ROWS_AND_TOKENS = 2


def find_sequences(traces: Sequence[LoadedTrace]) -> Sequences | str:
    """How sequences go through a mix, or why that is not known."""
    shared = _shared_states(traces)
    members = [n for n, trace in enumerate(traces) if shared & _states(trace).keys()]
    nothing = (0.0,) * len(traces)
    if not members:
        return Sequences(begun=nothing, carried=nothing)
    sizes = {n: _tokens(traces[n]) for n in members}
    known = {n: size for n, size in sizes.items() if size is not None}
    if len(known) == len(members):
        begins = {n for n, (_, tokens) in known.items() if tokens > 1}
    else:
        begins = {n for n in members if not _reads_before(traces[n], shared)}
    names = ", ".join(f"`{traces[n].planned.name}`" for n in members)
    if not begins:
        return f"no trace begins sequences: {names} all go on with states that they share"
    if len(begins) == len(members):
        return f"no trace goes on with sequences: {names} all begin them, and share states"
    going_on = [n for n in members if n not in begins]
    touched = [shared & _states(traces[n]).keys() for n in going_on]
    handed = touched[0]
    for others in touched:
        if others != handed:
            state = min(others ^ handed)
            return f"not every trace that goes on with sequences touches the state `{state}`"
    rows = {n: float(size[0]) for n, size in known.items()}
    first = min(begins)
    return Sequences(
        begun=tuple(rows.get(n, 1.0) if n in begins else 0.0 for n in range(len(traces))),
        carried=tuple(rows.get(n, 1.0) if n in going_on else 0.0 for n in range(len(traces))),
        states=tuple((name, _bytes_of_one(traces, name, first)) for name in sorted(handed)),
    )


def _states(trace: LoadedTrace) -> dict[str, Buffer]:
    """The states that a trace touches, by name."""
    touched = {int(access.buffer) for node in trace.graph.nodes for access in node.accesses}
    buffers = (b for b in trace.program.buffers if b.role is Role.STATE and int(b.id) in touched)
    return {buffer.name: buffer for buffer in buffers}


def _shared_states(traces: Sequence[LoadedTrace]) -> set[str]:
    """States that several traces touch, and one of them writes."""
    counts: dict[str, int] = {}
    written: set[str] = set()
    for trace in traces:
        for name in _states(trace):
            counts[name] = counts.get(name, 0) + 1
        for node in trace.graph.nodes:
            for access in node.accesses:
                if access.kind is not AccessKind.READ:
                    written.add(trace.program.buffers[access.buffer].name)
    return {name for name, count in counts.items() if count > 1 and name in written}


def _tokens(trace: LoadedTrace) -> tuple[int, int] | None:
    """Rows, and tokens of each, of a step that states them."""
    for buffer in trace.program.buffers:
        if buffer.role is Role.INPUT and buffer.name == "tokens" and buffer.shape:
            rows, *tokens = buffer.shape
            return (rows, tokens[0] if tokens else 1) if len(tokens) < _ROWS_AND_TOKENS else None
    return None


def _reads_before(trace: LoadedTrace, shared: set[str]) -> bool:
    """Whether a step reads what the request before left in a shared state."""
    return any(
        edge.carried and edge.moves_bytes and trace.graph.buffers[edge.buffer].name in shared
        for edge in trace.graph.edges
    )


def _bytes_of_one(traces: Sequence[LoadedTrace], name: str, first: int) -> float:
    """Bytes of a state that one sequence has when trace `first` has begun it."""
    state = next(states[name] for trace in traces if name in (states := _states(trace)))
    size = _tokens(traces[first])
    if size is None or not state.shape or not state.shape[0]:
        return float(state.bytes)
    row = state.bytes / state.shape[0]
    tables = [b for b in traces[first].program.buffers if b.name == "blocks" and b.shape]
    second = state.shape[1] if len(state.shape) > 1 else 0
    if tables:
        listed = float((tables[0].shape or (1,))[-1])
        return row * (min(listed, -(-size[1] // second)) if second else listed)
    counts_tokens = any(b.name == "positions" for b in traces[first].program.buffers)
    return row * (min(1.0, size[1] / second) if second and counts_tokens else 1.0)
