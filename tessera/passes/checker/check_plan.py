"""The plan checker: proves that launch programs do what the trace says, or names the faults.

In: a plan (or a lowered replica) and the programs and graphs of its traces, freshly analysed. Out:
diagnostics; an empty result is the proof.

The proof covers every request, at any speed of the devices:
- every step runs once, on its device, which can run it, and finds every byte it may depend on as
  the sequential program would have left it; outputs reach the host, and state is at home for the
  next request;
- no two operations that touch the same memory run at the same time if one of them writes;
- the programs terminate, also if a send ends only with its receive;
- memory has room for everything, and nothing is used after it was freed.

The stages: `division` (parts and twins do what their steps do), `shape` (everything exists, and is
done once), `memory` (places, modules), `layouts` (memory that policies share), `landings` (memory
into which another host puts bytes), `tenants` (the buffer that holds a place, and for how long),
`order` (the order of operations), `expected` (what one device would do), `versions` (the walk),
`waste` (the bytes that transfers carry), `homes` (bytes that persist between requests), `pins` and
`tables` (pointers), `fits` (what devices can run). No code is shared with planning, division or
lowering. `part_text` judges the kernels of parts.

Source: decision records 0005 and 0007.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tessera.diagnostics import Diagnostic
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.launch_program import LoweredReplica
from tessera.ir.plan.plan import PlacedTrace, Plan, Replica
from tessera.ir.program.program import Launch, Program, Role
from tessera.passes.checker.division import check_division
from tessera.passes.checker.expected import find_effects, find_expected
from tessera.passes.checker.findings import Findings, Locate, nowhere
from tessera.passes.checker.fits import check_fits
from tessera.passes.checker.homes import check_homes, writes_variables
from tessera.passes.checker.landings import check_landings, find_landings
from tessera.passes.checker.layouts import check_layouts, shared_areas
from tessera.passes.checker.memory import (
    Arches,
    check_capacity,
    check_memory,
    check_modules,
)
from tessera.passes.checker.order import find_order
from tessera.passes.checker.pins import check_pins, check_words
from tessera.passes.checker.shape import find_shape
from tessera.passes.checker.versions import check_versions


def check_plan(
    plan: Plan,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    *,
    locate: Locate | None = None,
) -> tuple[Diagnostic, ...]:
    """The faults of a plan for these traces; empty if the plan is proved right.

    `locate` gives the position of a record in the text of the plan.
    """
    findings = Findings(locate or nowhere)
    if not len(programs) == len(graphs) == len(plan.traces):
        findings.add(
            "TSR4013", f"the plan is for {len(plan.traces)} traces and {len(programs)} are given"
        )
        return findings.result()
    cards = {card.name: card.capacity_bytes for card in plan.cards}
    card_of = {device.name: device.card for device in plan.devices}
    for device in sorted(set(card_of.values()) - set(cards)):
        findings.add("TSR4013", f"a device of the plan is of card `{device}`, which is not there")
    for number, replica in enumerate(plan.replicas):
        _check_header(number, replica, card_of, programs, graphs, findings)
        check_fits(replica, plan, programs, graphs, findings)
    for trace, program, graph in zip(plan.traces, programs, graphs, strict=True):
        check_division(program, graph, trace.division, findings)
    if findings.count:
        return findings.result()
    for replica in plan.replicas:
        placements = {
            placed.trace: [step.device for step in placed.steps] for placed in replica.traces
        }
        arches = {placed.trace: [step.arch for step in placed.steps] for placed in replica.traces}
        _check_replica(replica.lowered, programs, graphs, placements, findings, arches)
    check_layouts(plan.replicas, programs, findings)
    used = check_capacity(shared_areas(plan.replicas), card_of, cards, findings)
    for card in plan.cards:
        if card.used_bytes != used[card.name]:
            findings.add(
                "TSR4013",
                f"the plan says that it takes {card.used_bytes} bytes of `{card.name}`, and takes "
                f"{used[card.name]}",
                at=card,
            )
    if len(plan.replicas) > 1 and any(map(writes_variables, programs, graphs)):
        findings.add(
            "TSR4013",
            f"a step may write a module variable, and the plan has {len(plan.replicas)} replicas",
            "a module variable is there once for all requests",
        )
    return findings.result()


def check_replica(
    lowered: LoweredReplica,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    placements: Sequence[Sequence[str]],
    *,
    capacities: Mapping[str, int] | None = None,
) -> tuple[Diagnostic, ...]:
    """The faults of the programs of one replica, given the device of each step of each trace.

    `capacities` bounds the memory of devices that are whole cards.
    """
    findings = Findings()
    _check_replica(lowered, programs, graphs, dict(enumerate(placements)), findings)
    own = dict(capacities or {})
    check_capacity(lowered.areas, {device: device for device in own}, own, findings)
    return findings.result()


def _check_replica(
    lowered: LoweredReplica,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    placements: Mapping[int, Sequence[str]],
    findings: Findings,
    arches: Arches = MappingProxyType({}),
) -> None:
    before = findings.count
    _check_traces(lowered, graphs, placements, findings)
    if findings.count > before:
        return
    memory = check_memory(lowered, programs, findings)
    check_modules(lowered, programs, placements, arches, findings)
    if memory is None or findings.count > before:
        return
    served = [trace.trace for trace in lowered.traces]
    effects = {trace: find_effects(programs[trace], graphs[trace]) for trace in served}
    claims = check_homes(lowered, programs, effects, memory, findings)
    if claims is None:
        return
    landings = find_landings(lowered.landings, lowered.devices, findings)
    walked = {}
    for trace in lowered.traces:
        number = trace.trace
        shape = find_shape(
            trace,
            programs[number],
            graphs[number],
            lowered.devices,
            placements[number],
            landings,
            findings,
        )
        if shape is None or not check_landings(shape, findings):
            continue
        order = find_order(shape, findings)
        expected = find_expected(shape, effects[number], claims[number].homes)
        check_words(shape, expected, findings)
        if order is not None:
            check_versions(shape, order, expected, memory, claims[number], findings)
        walked[number] = (shape, expected)
    if len(walked) == len(lowered.traces):
        check_pins(walked, lowered.devices, findings)


def _check_traces(
    lowered: LoweredReplica,
    graphs: Sequence[KernelGraph],
    placements: Mapping[int, Sequence[str]],
    findings: Findings,
) -> None:
    served = [trace.trace for trace in lowered.traces]
    if sorted(served) != sorted(placements):
        findings.add(
            "TSR4013", f"there are programs for traces {served}, and steps for {list(placements)}"
        )
        return
    for trace in served:
        if not 0 <= trace < len(graphs):
            findings.add("TSR4013", f"there are programs for trace {trace}, which is not there")
        elif len(placements[trace]) != len(graphs[trace].nodes):
            findings.add(
                "TSR4013",
                f"trace {trace} has {len(graphs[trace].nodes)} steps, and "
                f"{len(placements[trace])} are placed",
            )


# --- what a plan says about its replicas -----------------------------------------------------


def _check_header(
    number: int,
    replica: Replica,
    card_of: Mapping[str, str],
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    findings: Findings,
) -> None:
    """Check that a replica and its launch programs agree on slots, devices and steps."""
    lowered = replica.lowered
    if (replica.slots, replica.lanes) != (lowered.slots, lowered.lanes):
        findings.add(
            "TSR4013",
            f"replica {number} has {replica.slots} slots and {replica.lanes} sequences, and "
            f"programs for {lowered.slots} and {lowered.lanes}",
            at=replica,
        )
    for device in lowered.devices:
        if device not in card_of:
            findings.add("TSR4013", f"replica {number} is on `{device}`, which is no device")
    for placed in replica.traces:
        if not 0 <= placed.trace < len(programs):
            findings.add("TSR4013", f"replica {number} is for trace {placed.trace}: there is none")
        else:
            trace = placed.trace
            _check_steps(number, placed, programs[trace], graphs[trace], findings)
    traces = [placed.trace for placed in replica.traces]
    if len(set(traces)) < len(traces):
        findings.add("TSR4013", f"replica {number} has one trace twice")


def _check_steps(
    number: int, placed: PlacedTrace, program: Program, graph: KernelGraph, findings: Findings
) -> None:
    """Check that every step is placed once, in order, by its name, with code of its module."""
    if [step.step for step in placed.steps] != list(range(len(placed.steps))):
        findings.add(
            "TSR4013", f"replica {number} does not place the steps of trace {placed.trace} in order"
        )
        return
    for step, node in zip(placed.steps, graph.nodes, strict=False):
        if step.name != node.name:
            findings.add(
                "TSR4013",
                f"step {step.step} of replica {number} is called `{step.name}`, and `{node.name}` "
                "in its trace",
                at=step,
            )
    code_of: dict[tuple[str, int], str] = {}
    for step, work in zip(placed.steps, program.work(), strict=False):
        known = {""}
        if isinstance(work, Launch):
            module = program.modules[work.module]
            known = {variant.arch for variant in module.variants}
            code = code_of.setdefault((step.device, int(work.module)), step.arch)
            if code != step.arch and _has_variables(program, module.name):
                findings.add(
                    "TSR4013",
                    f"`{step.device}` is to run module `{module.name}` as `{code}` and as "
                    f"`{step.arch}`, and its variables are there once",
                    at=step,
                )
        if step.arch not in known:
            findings.add(
                "TSR4013",
                f"step `#{step.step} {step.name}` of replica {number} is to run code for "
                f"`{step.arch}`, which its module does not have",
                at=step,
            )


def _has_variables(program: Program, module: str) -> bool:
    """Whether a module has variables; a device holds one copy of them."""
    names = (buffer.name for buffer in program.buffers if buffer.role is Role.VARIABLE)
    return any(name.startswith(f"{module}.") for name in names)
