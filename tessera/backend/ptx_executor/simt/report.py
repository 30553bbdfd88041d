"""Errors of a stopped launch: the location, its lanes, and what each lane waits for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tessera.backend.ptx_executor.memory.faults import Fault
from tessera.backend.ptx_executor.memory.lanes import WARP, LaneSet
from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.chunk import Chunk
from tessera.diagnostics import ExitCode, Span, TesseraError

if TYPE_CHECKING:
    from tessera.backend.ptx_executor.simt.compiled import CompiledBlock

# What lanes wait for, the lanes, and the instruction where each of them waits.
Waiters = list[tuple[str, Array, Array]]


def _stopped(
    code: str,
    headline: str,
    span: Span | None,
    label: str = "",
    notes: tuple[str, ...] = (),
    hint: str | None = None,
) -> TesseraError:
    """The error of a launch that failed while it ran."""
    fault = ExitCode.FAULT
    return TesseraError.of(code, headline, span, label, notes=notes, hint=hint, exit_code=fault)


def describe_place(chunk: Chunk, lane: int) -> str:
    """The CTA and thread of a lane of the chunk, for people."""
    row, col = divmod(lane, chunk.threads)
    return f"CTA {chunk.cta_coordinates(row)}, thread {chunk.thread_coordinates(col)}"


def explain(chunk: Chunk, fault: Fault, lanes: LaneSet) -> TesseraError:
    """The error for a fault, with the location of the fault."""
    program = chunk.launch.program
    notes = [f"in kernel `{program.kernel.name}`"]
    if fault.site >= 0 and program.sites[fault.site].function != program.kernel.name:
        notes[0] += f", function `{program.sites[fault.site].function}`"
    if fault.lane is not None:
        notes[0] += f", {describe_place(chunk, int(lanes.index.reshape(-1)[fault.lane]))}"
    return _stopped(
        fault.code,
        fault.headline,
        program.span(fault.site),
        notes=(*notes, *fault.notes),
        hint=fault.hint,
    )


def too_many_steps(chunk: Chunk, block: CompiledBlock, lanes: LaneSet) -> TesseraError:
    """The error for a launch that reached the limit of steps, with these lanes at a block."""
    program = chunk.launch.program
    lane = int(np.flatnonzero(lanes.flags())[0])
    return _stopped(
        "TSR5010",
        f"kernel `{program.kernel.name}` did not end within the limit of steps: "
        f"{chunk.launch.max_steps}",
        program.span(block.site),
        "lanes were here",
        notes=(f"first of them: {describe_place(chunk, lane)}", f"{lanes.count} lanes stood here"),
        hint="raise the limit with `max_steps` (`--max-steps`) if the kernel is only long",
    )


def endless(chunk: Chunk, block: CompiledBlock, flags: Array) -> TesseraError:
    """The error for lanes in a loop that they never leave."""
    program = chunk.launch.program
    lane = int(np.flatnonzero(flags)[0])
    return _stopped(
        "TSR5010",
        f"kernel `{program.kernel.name}` never ends: threads go round in a loop for ever",
        program.span(block.site),
        "the loop goes through here",
        notes=(
            f"first of them: {describe_place(chunk, lane)}",
            f"{int(np.count_nonzero(flags))} threads stood here",
            "no path leads out of the loop, or a round changes neither registers nor memory",
        ),
    )


def lacking(chunk: Chunk, block: CompiledBlock, reason: str) -> TesseraError:
    """The error for a case of an instruction that is not supported."""
    program = chunk.launch.program
    return _stopped(
        "TSR5001",
        f"the CPU backend cannot run an instruction of `{program.kernel.name}`: {reason}",
        program.span(block.site),
        "in the instructions from here",
    )


def standing(blocks: Sequence[CompiledBlock], what: str, places: Mapping[int, Array]) -> Waiters:
    """The lanes that wait for something at the start of blocks."""
    return [
        (what, flags, np.full(len(flags), blocks[number].site, dtype=np.int64))
        for number, flags in sorted(places.items())
    ]


def deadlock(chunk: Chunk, waiters: Waiters) -> TesseraError:
    """The error for a chunk in which no lane can continue."""
    program = chunk.launch.program
    notes: list[str] = []
    first_site = -1
    for what, flags, sites in waiters:
        for site in np.unique(sites[flags]):
            group = flags & (sites == site)
            first_site = int(site) if first_site < 0 else first_site
            notes.append(_describe_waiters(chunk, what, group, int(site)))
    return _stopped(
        "TSR5010",
        f"deadlock in kernel `{program.kernel.name}`: every remaining thread waits",
        program.span(first_site),
        "some wait here",
        notes=tuple(notes[:8]),
    )


def _describe_waiters(chunk: Chunk, what: str, flags: Array, site: int) -> str:
    lanes = np.flatnonzero(flags)
    row = int(lanes[0]) // chunk.threads
    cols = lanes[lanes // chunk.threads == row] % chunk.threads
    warps = np.unique(cols // WARP)
    shown = ", ".join(str(w) for w in warps[:8]) + (", ..." if len(warps) > 8 else "")
    span = chunk.launch.program.span(site)
    where = f" at {span}" if span is not None else ""
    ctas = len(np.unique(lanes // chunk.threads))
    more = f" (and in {ctas - 1} more CTAs)" if ctas > 1 else ""
    cta = chunk.cta_coordinates(row)
    return f"CTA {cta}: warps {shown} ({len(cols)} threads) wait for {what}{where}{more}"
