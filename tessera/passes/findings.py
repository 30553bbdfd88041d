"""The diagnostics of the analysis.

Each function words one finding. The primary label is the place in the PTX; the second label is the
launch for which it was found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tessera.diagnostics import Diagnostic, Label, Span, error, note, warning
from tessera.ir.graph.access import Access, Need, NeedKind, Pin
from tessera.ir.graph.graph import ContentsDigest, Edge, KernelGraph
from tessera.ir.program import program as ir

PINNED = "TSR2001"


def _launch_label(span: Span | None) -> tuple[Label, ...]:
    return () if span is None else (Label(span, "in this launch"),)


def pinned(name: str, pin: Pin, launch: Span | None, bounded: bool = False) -> Diagnostic:
    """A launch that may touch anything, or anything that it was given."""
    what = "any buffer that it is given" if bounded else "any buffer"
    taken = "all of them" if bounded else "every buffer"
    return warning(
        PINNED,
        f"`{name}` may touch {what}: {pin.reason}",
        pin.span or launch,
        "its bytes cannot be known from here on",
        secondary=_launch_label(launch) if pin.span is not None else (),
        notes=(f"it is taken to read {taken} and to write every one but weights",),
    )


_NEEDS = {
    NeedKind.MACHINE: (
        "TSR2009",
        "has results that the machine decides",
        "its value differs from GPU to GPU and from run to run",
    ),
    NeedKind.WAIT: (
        "TSR2010",
        "waits for other threads",
        "the threads that it waits for must run at the same time",
    ),
    NeedKind.GRID: ("TSR2011", "needs all of its CTAs to run together", "in one wave"),
    NeedKind.CLUSTER: ("TSR2011", "needs CTAs to run together in clusters", "on sm_90 and up"),
    NeedKind.OUTPUT: ("TSR2012", "prints", "the order of the lines is not fixed"),
}


def needs(name: str, asked: Iterable[Need], launch: Span | None) -> Iterator[Diagnostic]:
    """The requirements of a launch on the machine, one diagnostic for each kind."""
    seen: set[NeedKind] = set()
    for need in asked:
        if need.kind in seen:
            continue
        seen.add(need.kind)
        code, what, label = _NEEDS[need.kind]
        make = warning if need.kind in {NeedKind.MACHINE, NeedKind.WAIT} else note
        yield make(
            code,
            f"`{name}` {what}: {need.reason}",
            need.span or launch,
            label,
            secondary=_launch_label(launch) if need.span not in (None, launch) else (),
        )


def overwritten_pointers(pins: Iterable[Pin], name: str) -> Iterator[Diagnostic]:
    """A launch that may write words that a `pointers` record declares."""
    for pin in pins:
        yield warning(
            "TSR2002",
            f"`{name}` is pinned: {pin.reason}",
            pin.span,
            "the words that this may write are no longer known to be pointers",
        )


def written_weights(
    program: ir.Program, name: str, accesses: Iterable[Access]
) -> Iterator[Diagnostic]:
    """Writes to buffers that no launch may write."""
    seen: set[tuple[int, Span | None]] = set()
    for access in accesses:
        buffer = program.buffers[access.buffer]
        if buffer.role is not ir.Role.WEIGHT or not access.kind.writes:
            continue
        if (buffer.id, access.span) in seen:
            continue
        seen.add((buffer.id, access.span))
        yield error(
            "TSR2003",
            f"`{name}` may write the weight `{buffer.name}`",
            access.span,
            "this writes it",
            notes=("weights are shared by all requests, so nothing may write them",),
            hint=f"declare `{buffer.name}` with `role=state` or `role=temp` if it is written",
        )


def outside(
    name: str,
    buffer: ir.Buffer,
    reach: tuple[int, int],
    certain: bool,
    span: Span | None,
    launch: Span | None,
) -> Diagnostic:
    """An address past a buffer on the arguments of the launch."""
    verb = "reaches" if certain else "may reach"
    where = f"bytes {reach[0]} to {reach[1]} of {buffer.bytes}"
    return warning(
        "TSR2004",
        f"`{name}` {verb} outside `{buffer.name}`: {where}",
        span or launch,
        "this goes past the buffer",
        secondary=_launch_label(launch) if span is not None else (),
        notes=("only the bytes inside the buffer are counted",),
    )


def null_access(name: str, span: Span | None, launch: Span | None) -> Diagnostic:
    """An access through a pointer that is null in this launch."""
    return warning(
        "TSR2005",
        f"`{name}` accesses memory through a null pointer",
        span or launch,
        "the address is near zero",
        secondary=_launch_label(launch) if span is not None else (),
    )


def over_budget(name: str, launch: Span | None) -> Diagnostic:
    """A launch with too many differing threads or loop rounds to follow one by one."""
    return warning(
        "TSR2006",
        f"`{name}` has too many threads or loop rounds that differ to follow each",
        launch,
        "regions of this launch are wider than what it touches",
    )


def looked_up(program: ir.Program, contents: Iterable[ContentsDigest]) -> Iterator[Diagnostic]:
    """Weights whose contents decided which bytes steps touch."""
    for known in contents:
        buffer = program.buffers[known.buffer]
        yield note(
            "TSR2013",
            f"the contents of the weight `{buffer.name}` decide which bytes are touched",
            buffer.span,
            "the result holds for these contents only",
            notes=(f"sha256: {known.sha256}",),
        )


_OWN_WRITES = (
    "the launch writes these bytes itself: that is right if it does so first, with a barrier before"
    " threads read what others have written"
)


def never_written(
    name: str, buffer: ir.Buffer, access: Access, launch: Span | None, *, is_own: bool
) -> Diagnostic:
    """A read of temporary bytes that nothing wrote, or that only the launch wrote (`is_own`)."""
    return warning(
        "TSR2007",
        f"`{name}` may read bytes of the temp `{buffer.name}` that nothing has written",
        access.span or launch,
        "this reads them",
        secondary=_launch_label(launch) if access.span is not None else (),
        notes=(_OWN_WRITES,) if is_own else (),
    )


def race(graph: KernelGraph, edge: Edge) -> Diagnostic:
    """Two steps on streams that nothing orders touch the same bytes."""
    first, second = graph.nodes[edge.source], graph.nodes[edge.target]
    buffer = graph.buffers[edge.buffer].name
    return warning(
        "TSR2008",
        f"`{first.name}` and `{second.name}` race on `{buffer}`",
        second.span,
        f"{edge.bytes} bytes, {edge.kind.value.upper()}",
        secondary=() if first.span is None else (Label(first.span, "unordered with this"),),
        notes=("the order of the file is used",),
        hint="record an event after the first and wait for it before the second",
    )
