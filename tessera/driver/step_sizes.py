"""Steps of a language model at several sizes: how many sequences and tokens a trace takes.

In: traces; words of a command such as `decode-b8.ptx,decode-b64.ptx:256`. Out: their sizes, checked
to be one step (`check_family`); traces whose states have the rows of another (`with_states`). The
input of tokens of a trace gives its numbers of sequences and tokens.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import TesseraError
from tessera.driver.traces import loaded_program, read_share
from tessera.ir.program.program import Buffer, Role
from tessera.planning.given.setting import LoadedTrace

_TOKENS = ("tokens", "input_ids")
_INTEGERS = ("s64", "s32", "u64", "u32")


@dataclass(frozen=True, slots=True)
class SizedName:
    """The traces of one step at several sizes, as typed, and the number behind them."""

    paths: tuple[str, ...]
    share: float


def read_sizes(name: str) -> SizedName:
    """Parse `decode-b8.ptx,decode-b64.ptx:256`; a comma in the name of a file does not split it."""
    path, share = read_share(name)
    if os.path.exists(path):
        return SizedName((path,), share)
    words = path.split(",")
    paths = []
    while words:
        count = next(
            (n for n in range(len(words), 0, -1) if os.path.isfile(",".join(words[:n]))), 1
        )
        paths.append(",".join(words[:count]))
        words = words[count:]
    return SizedName(tuple(paths), share)


def tokens_of(trace: LoadedTrace) -> tuple[int, int]:
    """Rows and tokens per row, from the shape of the input of tokens."""
    inputs = [b for b in trace.program.buffers if b.role is Role.INPUT]
    whole = [b for b in inputs if b.dtype is not None and b.dtype.value in _INTEGERS]
    shaped = [b for b in whole if b.shape is not None and 1 <= len(b.shape) <= 2]
    chosen = next((b for name in _TOKENS for b in shaped if b.name == name), None)
    if chosen is None:
        raise wrong_sizes(
            f"`{trace.planned.name}` is no step of a language model: it has no input "
            f"`{_TOKENS[0]}` or `{_TOKENS[1]}` of whole numbers",
            "fleets, and steps of several sizes, are for requests for text; `tessc plan` takes "
            "any trace by itself",
        )
    shape = chosen.shape or (1,)
    return shape[0], shape[1] if len(shape) == 2 else 1


def check_family(traces: Sequence[LoadedTrace]) -> None:
    """Check that traces are one step at several sizes."""
    first = traces[0]
    for other in traces[1:]:
        mine, theirs = ([node.name for node in t.graph.nodes] for t in (first, other))
        names = f"`{first.planned.name}` and `{other.planned.name}`"
        if mine != theirs:
            raise wrong_sizes(
                f"{names} are not one model at two sizes: they have "
                f"{len(mine)} and {len(theirs)} steps"
                + ("" if len(mine) != len(theirs) else " of other names"),
                "capture all traces of a phase from one model, in one way",
            )
        sizes = [rows * tokens for rows, tokens in map(tokens_of, (first, other))]
        if sizes[0] == sizes[1]:
            raise wrong_sizes(f"{names} are of one size", "give one of them")


def states_of(trace: LoadedTrace) -> dict[str, Buffer]:
    """The states of a trace by name."""
    return {b.name: b for b in trace.program.buffers if b.role is Role.STATE}


def with_states(
    trace: LoadedTrace, states: Mapping[str, Buffer], given: str, data_root: str | None
) -> LoadedTrace:
    """The trace with as many rows in its states as those of the trace `given` have.

    A row is the first axis, so nothing else of the trace changes; it is analysed again.
    """
    rows = tokens_of(trace)[0]
    changed: dict[str, Buffer] = {}
    for name, own in states_of(trace).items():
        other = states.get(name)
        if other is None or (other.shape, other.dtype, other.bytes) == (
            own.shape,
            own.dtype,
            own.bytes,
        ):
            continue
        if not own.shape or not other.shape or own.shape[1:] != other.shape[1:]:
            raise _differs(trace, given, own, other)
        if own.dtype is not other.dtype or other.shape[0] < rows:
            raise _differs(trace, given, own, other)
        changed[name] = other
    if not changed:
        return trace
    program = trace.program
    buffers = tuple(
        replace(b, bytes=changed[b.name].bytes, shape=changed[b.name].shape)
        if b.name in changed and b.role is Role.STATE
        else b
        for b in program.buffers
    )
    planned = trace.planned
    path = os.path.join(trace.folder, f"{planned.name}.ptx")
    return loaded_program(
        replace(program, buffers=buffers), planned.name, planned.share, path, data_root
    )


def _differs(trace: LoadedTrace, given: str, own: Buffer, other: Buffer) -> TesseraError:
    def shown(buffer: Buffer) -> str:
        shape = "x".join(map(str, buffer.shape or ())) or f"{buffer.bytes} bytes"
        return f"{shape} of {buffer.dtype.value}" if buffer.dtype else shape

    return TesseraError.of(
        "TSR3009",
        f"the traces do not fit together: the state `{own.name}` differs in more than size",
        notes=(f"{shown(own)} in `{trace.planned.name}`", f"{shown(other)} in `{given}`"),
        hint="states of one step at several sizes may differ in their first axis, the sequences; "
        "capture all of them with the same context and types, and with a row for each sequence "
        "of a step at least",
    )


def wrong_sizes(message: str, hint: str) -> TesseraError:
    """An error about steps that are no steps of one model."""
    return TesseraError.of("TSR3026", message, hint=hint)
