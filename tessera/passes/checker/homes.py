"""The devices that hold persistent bytes between two requests.

In: a lowered replica, the programs of its traces and the bytes that their steps may write. Out:
`Claims` per trace: the bytes that are in place when its request begins, and must be in place again
when it ends.

A state is one buffer for all traces that have its name; a module variable belongs to its trace.
Bytes that some step of the replica may write are at the devices that `Home` records name, the same
in every trace, so that any trace may follow any other. Bytes without a home are on every device
where a place holds them; bytes with a home are there and nowhere else, written or not. Requests
of all sequences share variables: if a variable may be written, requests run one at a time. Requests
also run one at a time if a word of a `pointers` record in a state may be written: the word is put
there once and carried on, and afterwards it may or may not hold an address of its request. Only one
trace may have a state with such a word: another trace would take the word for a pointer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import Home, LoweredReplica
from tessera.ir.program.program import Buffer, Program, Role
from tessera.passes.checker.bytes import NOTHING, Array, common, join, minus, ranges_of, text
from tessera.passes.checker.expected import Effects, pointer_words
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.memory import Memory
from tessera.passes.checker.shape import LASTING, bytes_fault

Key = tuple[int, str]
"""The owner of bytes: a trace (-1: all traces with a buffer of that name) and a buffer name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """The claims about one trace: the homes of its bytes, and the bytes that need no home."""

    homes: tuple[Home, ...]
    constant: dict[int, Array]


def check_homes(
    replica: LoweredReplica,
    programs: Sequence[Program],
    effects: Mapping[int, tuple[Effects, ...]],
    memory: Memory,
    findings: Findings,
) -> dict[int, Claims] | None:
    """The claims of each trace, or None if the records are unusable."""
    before = findings.count
    named = {home.trace for home in replica.homes} & {*range(len(programs))}
    served = sorted({trace.trace for trace in replica.traces} | named)
    homes: dict[int, dict[int, list[Home]]] = {trace: {} for trace in served}
    for home in replica.homes:
        fault = _home_fault(home, homes, programs, memory)
        if fault is not None:
            what = f"a home on `{home.device}` for trace {home.trace} {fault}"
            findings.add("TSR4001", what, at=home)
            continue
        homes[home.trace].setdefault(int(home.buffer), []).append(home)
    if findings.count > before:
        return None
    written = _written(programs, effects)
    _check_agreement(homes, programs, written, findings)
    if replica.slots != 1:
        _check_alone(replica, written, findings)
    _check_words(replica, {trace: programs[trace] for trace in served}, written, findings)
    return {
        trace: Claims(
            homes=tuple(home for own in homes[trace].values() for home in own),
            constant=_constant(programs[trace], homes[trace]),
        )
        for trace in served
    }


def _home_fault(
    home: Home,
    homes: Mapping[int, Mapping[int, Sequence[Home]]],
    programs: Sequence[Program],
    memory: Memory,
) -> str | None:
    if home.trace not in homes:
        return "is of a trace that is not there"
    buffers = programs[home.trace].buffers
    if not 0 <= home.buffer < len(buffers):
        return f"names buffer {home.buffer}, which is not there"
    held = buffers[home.buffer]
    if held.role not in LASTING:
        return f"is of `{held.name}`, which does not outlive a request"
    place = memory.place(home.trace, home.device, int(home.buffer))
    if place is None:
        return f"is of `{held.name}`, which has no place there"
    if any(other.device == home.device for other in homes[home.trace].get(int(home.buffer), ())):
        return f"is of `{held.name}`, which has another there"
    fault = bytes_fault(home.bytes, held.bytes, held.name)
    first, end = place.held(held.bytes)
    if fault is None and not first <= home.bytes[0][0] < home.bytes[-1][1] <= end:
        fault = f"is of bytes of `{held.name}` outside {first}:{end}, which is all that is there"
    return fault


def _key(trace: int, buffer: Buffer) -> Key:
    return (trace if buffer.role is Role.VARIABLE else -1, buffer.name)


def _written(
    programs: Sequence[Program], effects: Mapping[int, tuple[Effects, ...]]
) -> dict[Key, Array]:
    """The bytes of each persistent buffer that some step may write."""
    parts: dict[Key, dict[int, Array]] = {}
    for trace, steps in effects.items():
        for step in steps:
            for buffer, touched in step.touched:
                held = programs[trace].buffers[buffer]
                if len(touched.written) and held.role in LASTING:
                    parts.setdefault(_key(trace, held), {})[id(touched.written)] = touched.written
    return {key: join(list(pieces.values())) for key, pieces in parts.items()}


def _constant(program: Program, homes: Mapping[int, Sequence[Home]]) -> dict[int, Array]:
    """The bytes of each persistent buffer that have no home: nothing writes them."""
    return {
        int(held.id): minus(
            ranges_of([(0, held.bytes)]),
            join([ranges_of(home.bytes) for home in homes.get(int(held.id), ())]),
        )
        for held in program.buffers
        if held.role in LASTING and held.bytes
    }


def _check_agreement(
    homes: Mapping[int, Mapping[int, Sequence[Home]]],
    programs: Sequence[Program],
    written: Mapping[Key, Array],
    findings: Findings,
) -> None:
    """Check that all traces name the same homes, and that every written byte has a home."""
    agreed: dict[Key, tuple[int, dict[str, object]]] = {}
    for trace, own in homes.items():
        for held in programs[trace].buffers:
            if held.role not in LASTING:
                continue
            here = own.get(int(held.id), [])
            first, known = agreed.setdefault(
                _key(trace, held), (trace, {home.device: home.bytes for home in here})
            )
            if known != {home.device: home.bytes for home in here}:
                findings.add(
                    "TSR4013",
                    f"traces {first} and {trace} say different things about the homes of "
                    f"`{held.name}`",
                )
            at_home = join([ranges_of(home.bytes) for home in here])
            lost = minus(written.get(_key(trace, held), NOTHING), at_home)
            if len(lost):
                findings.add(
                    "TSR4007",
                    f"bytes {text(lost)} of `{held.name}` have no home after a request of trace "
                    f"{trace}",
                    "a step may write them, and the next request finds them nowhere",
                )


def _check_alone(replica: LoweredReplica, written: Mapping[Key, Array], findings: Findings) -> None:
    for (trace, name), ranges in written.items():
        if trace >= 0 and len(ranges):
            findings.add(
                "TSR4013",
                f"`{name}` may be written and there are {replica.slots} slots",
                "a module variable is there once for all requests: only one may run at a time",
            )


def _check_words(
    replica: LoweredReplica,
    programs: Mapping[int, Program],
    written: Mapping[Key, Array],
    findings: Findings,
) -> None:
    """Check that addresses in states that steps may overwrite stay right for later requests."""
    for trace, program in programs.items():
        for buffer, words in pointer_words(program).items():
            held = program.buffers[buffer]
            lost = common(words, written.get((-1, held.name), NOTHING))
            if held.role is not Role.STATE or not len(lost):
                continue
            what = f"a step may overwrite addresses in the state `{held.name}`, bytes {text(lost)}"
            why = "what it leaves there is carried to the next request"
            if replica.slots != 1:
                findings.add("TSR4011", f"{what}, and there are {replica.slots} slots", why)
            others = [
                other
                for other, its in programs.items()
                if other > trace and any(b.name == held.name for b in its.buffers)
            ]
            if others:
                findings.add("TSR4011", f"{what}, and trace {others[0]} has it too", why)


def writes_variables(program: Program, graph: KernelGraph) -> bool:
    """Whether a step may write a variable of a module."""
    return any(
        access.kind.writes and program.buffers[access.buffer].role is Role.VARIABLE
        for node in graph.nodes
        for access in node.accesses
    )
