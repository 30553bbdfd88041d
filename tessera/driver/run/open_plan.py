"""A plan file, opened: read, its traces parsed and analysed again, and the whole proved.

In: a path or a `Plan`. Out: an `OpenPlan`, which is safe to run. The file is not trusted in
anything that decides whether a run is correct: accesses come from the analysis of the embedded
traces, and `passes.checker.check_plan` judges the programs. For other numbers of slots and
sequences than planned, the programs are lowered again and judged again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice

from tessera.backend.service import ServedTrace, served_traces
from tessera.diagnostics import Diagnostic, TesseraError, error
from tessera.driver.analyses import analysis_manager
from tessera.driver.hosts.assign import assign_hosts, unused_hosts
from tessera.driver.run.data_files import Data, Sources, data_files, opened_checkpoint
from tessera.driver.run.join_policies import can_join, joined_plan
from tessera.driver.traces import proved_kernels, read_planned
from tessera.frontend.plan.tsp import check_kind, read_plan
from tessera.frontend.plan.tsp_machine import machine_flaws
from tessera.frontend.text.plain_files import file_digest
from tessera.frontend.text.readfile import read_source
from tessera.ir.choices import ADAPTIVE
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.plan.hosts import HostTable
from tessera.ir.plan.launch_program import HOST, LoweredReplica, Put, Send
from tessera.ir.plan.plan import Plan, Replica, hosts_of, memory_on
from tessera.ir.plan.policies import ServedReplicas, policies_of, served_by
from tessera.ir.plan.print_plan import FORMAT
from tessera.ir.plan.verify_plan import Flaw, verify_plan
from tessera.ir.plan.verify_predictions import verify_predictions
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, StageProgress
from tessera.passes.checker.check_plan import check_plan
from tessera.passes.checker.findings import Locate, nowhere
from tessera.passes.dependences.dependences import Dependences
from tessera.passes.dependences.stored_addresses import stored_addresses
from tessera.planning.lower.lower_plan import lower_replica

MOST_SLOTS = 256  # as many as plans are made with (`planning.promise.trial`)
MOST_SEQUENCES = 4096
_MOST_FLAWS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPlan:
    """A plan with its traces. `folders` are searched for the files of contents of each trace.
    `runnable` are the programs with kernels for parts.

    `replicas` are those to run: of a plan with several policies, those of the chosen policy, of the
    last one, or (`adaptive`) of all. `policies` are those that each replica serves. If two policies
    place states alike, one replica has every trace twice: `ways` gives the offset to add to the
    number of a trace to run it by a policy.
    """

    name: str
    folders: tuple[str, ...]
    plan: Plan
    programs: tuple[Program, ...]
    runnable: tuple[Program, ...]
    graphs: tuple[KernelGraph, ...]
    replicas: tuple[Replica, ...]
    policies: tuple[tuple[str, ...], ...]
    ways: Mapping[str, int]
    diagnostics: tuple[Diagnostic, ...]

    def stored_addresses(self) -> list[Diagnostic]:
        """Warnings of addresses that steps store as data and that may get into results."""
        pairs = zip(self.programs, self.graphs, strict=True)
        return [finding for program, graph in pairs for finding in stored_addresses(program, graph)]

    def served(self, replica: Replica) -> tuple[ServedTrace, ...]:
        """The traces with the variants that a replica runs."""
        return served_traces(self.plan, replica, self.runnable, self.graphs)


def is_plan(path: str | os.PathLike[str]) -> bool:
    """Whether a file begins like a plan; False also if it cannot be read.

    A pipe is not read: its bytes can be read only once.
    """
    if not os.path.isfile(path):
        return False
    try:
        with open(path, "rb") as stream:
            return stream.read(len(FORMAT) + 3).lstrip(b"\xef\xbb\xbf").startswith(FORMAT.encode())
    except (OSError, ValueError):
        return False


def open_plan(
    given: Plan | str | os.PathLike[str],
    *,
    slots: int | None = None,
    sequences: int | None = None,
    policy: str | None = None,
    data: Data | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    hosts: HostTable | None = None,
    on_progress: OnProgress | None = None,
) -> OpenPlan:
    """Read, analyse and check a plan; raises `TesseraError` if it cannot be run.

    Contents of weights count in the analysis, as when the plan was made. They come from the
    checkpoint in the folder `weights`, from the files that `data` names, or from those beside the
    plan (of a plan that was never a file: beside its traces), which must not have changed. Links
    are followed below `data_root`. On other hosts than planned, the programs are made again: the
    nodes of the result are `hosts`.
    """
    plan, name, folders, locate = _read(given)
    _check_numbers(plan, slots, sequences)
    programs, findings = _programs(plan, name)
    files = data_files(data, [trace.name for trace in plan.traces])
    if not files:
        _check_contents(plan, programs, folders, data_root)
    with opened_checkpoint(weights, data_root) as checkpoint:
        sources = Sources(
            programs=programs, folders=folders, files=files, checkpoint=checkpoint, root=data_root
        )
        graphs = tuple(_graphs(sources, on_progress))
    if on_progress is not None:
        steps = sum(len(graph.nodes) for graph in graphs)
        on_progress(StageProgress("proving", note=f"{steps} steps"))
    if slots is not None or sequences is not None:
        plan = _made_anew(plan, programs, graphs, (slots, sequences), only_other=True)
    ways: dict[str, int] = {}
    if policy == ADAPTIVE and not files and can_join(plan, programs):
        names = policies_of(plan)
        ways[names[-1]] = len(plan.traces)
        plan = joined_plan(plan, programs, graphs)
        programs, graphs, folders = (*programs, *programs), (*graphs, *graphs), (*folders, *folders)
    wrong = check_plan(plan, programs, graphs, locate=locate)
    if not wrong and hosts is not None:
        findings = (*findings, *unused_hosts(hosts, plan))
        plan = _on_hosts(plan, hosts, programs, graphs)
        wrong = check_plan(plan, programs, graphs)
    if wrong:
        raise TesseraError(wrong)
    replicas, policies = _chosen(plan, policy, name)
    if ways:
        policies = (tuple(names),)
    return OpenPlan(
        name=name,
        folders=folders,
        plan=plan,
        programs=programs,
        runnable=tuple(proved_kernels(program) for program in programs),
        graphs=graphs,
        replicas=replicas,
        policies=policies,
        ways=ways,
        diagnostics=findings,
    )


def _read(
    given: Plan | str | os.PathLike[str],
) -> tuple[Plan, str, tuple[str, ...], Locate]:
    """A consistent plan, its name, the folders of its traces, and the places of its records."""
    locate: Locate = nowhere
    if isinstance(given, Plan):
        plan, name = given, "<plan>"
        folders = tuple(trace.folder or "." for trace in given.traces)
        _check_flaws(verify_plan(plan), locate)  # reading a file does this already
    else:
        source = read_source(given)
        check_kind(source)
        read = read_plan(source)
        plan, name, locate = read.plan, source.name, read.span
        folders = (os.path.dirname(os.path.abspath(source.name)),) * len(plan.traces)
    _check_flaws(chain(verify_predictions(plan), machine_flaws(plan)), locate)
    return plan, name, folders, locate


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOptions:
    """The files of contents that decide accesses, for `tessc check`."""

    data: Data | None = None
    data_root: str | None = None


def check_plan_file(
    path: str | os.PathLike[str], options: CheckOptions, on_progress: OnProgress | None = None
) -> OpenPlan:
    """`tessc check`: the proved plan; raises `TesseraError` with the flaw that breaks it."""
    data, root = options.data, options.data_root
    return open_plan(path, data=data, data_root=root, on_progress=on_progress)


def _check_flaws(flaws: Iterator[Flaw], locate: Locate) -> None:
    """Refuse a plan with inconsistent names, numbers, times, prices or GPUs."""
    errors = [
        error(
            "TSR4013",
            flaw.message,
            locate(flaw.record),
            hint="the plan was edited or damaged: plan again with `tessc plan`",
        )
        for flaw in islice(flaws, _MOST_FLAWS)
    ]
    if errors:
        raise TesseraError(errors)


def _check_numbers(plan: Plan, slots: int | None, sequences: int | None) -> None:
    """Limit slots and sequences: each costs memory of the host, whatever the devices have."""
    for replica in plan.replicas:
        for number, most, what in (
            (slots or replica.slots, MOST_SLOTS, "slots"),
            (sequences or replica.lanes, MOST_SEQUENCES, "sequences"),
        ):
            if number > most:
                raise TesseraError.of(
                    "TSR5053",
                    f"a run has at most {most} {what} per replica, not {number}",
                    hint=f"run with `--{what} {most}` or fewer",
                )


def _graphs(sources: Sources, on_progress: OnProgress | None) -> Iterator[KernelGraph]:
    is_given = bool(sources.files) or sources.checkpoint is not None
    for index, (program, folder) in enumerate(zip(sources.programs, sources.folders, strict=True)):
        opener = partial(sources.open, index) if is_given else None
        manager = analysis_manager(program, folder, sources.root, opener, on_progress)
        yield manager.get(Dependences).graph


def _check_contents(
    plan: Plan, programs: Sequence[Program], folders: Sequence[str], root: str | None
) -> None:
    """Check that the files of contents beside the plan are those that it was made with."""
    for trace, program, folder in zip(plan.traces, programs, folders, strict=True):
        name = program.resident
        if name is None or not trace.contents_digest or os.path.basename(name) != name:
            continue
        path = os.path.join(folder, name)
        digest = file_digest(path, root)
        if digest is None or digest == trace.contents_digest:
            continue
        raise TesseraError.of(
            "TSR5057",
            f"`{path}` is not the file that the plan was made with",
            notes=(
                f"trace `{trace.name}` was planned with contents of sha256 "
                f"{trace.contents_digest[:16]}, this file has {digest[:16]}",
            ),
            hint="bring the file back, plan again with `tessc plan`, or name it with "
            "`--data`: the plan is then proved for it",
        )


def _programs(plan: Plan, name: str) -> tuple[tuple[Program, ...], tuple[Diagnostic, ...]]:
    programs: list[Program] = []
    findings: list[Diagnostic] = []
    for trace in plan.traces:
        program, warnings = read_planned(trace, name)
        programs.append(program)
        findings += warnings
    return tuple(programs), tuple(findings)


def _made_anew(
    plan: Plan,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    counts: tuple[int | None, int | None],
    *,
    only_other: bool,
) -> Plan:
    """The programs made again for other counts of slots and sequences.

    `only_other`: only if the counts differ. If the memory of a card is too small, buffers share
    bytes wherever they can.
    """
    roomy = frozenset(device.name for device in plan.devices)
    while True:
        made = _lowered_anew(plan, programs, graphs, counts, roomy, only_other=only_other)
        over = {card.name for card in made.cards if card.used_bytes > card.capacity_bytes}
        small = {device.name for device in plan.devices if device.card in over}
        if not small & roomy:
            return made
        roomy -= small


def _lowered_anew(
    plan: Plan,
    programs: Sequence[Program],
    graphs: Sequence[KernelGraph],
    counts: tuple[int | None, int | None],
    roomy: frozenset[str],
    *,
    only_other: bool,
) -> Plan:
    slots, sequences = counts
    replicas = []
    for replica in plan.replicas:
        wanted = (slots or replica.slots, sequences or replica.lanes)
        if only_other and wanted == (replica.slots, replica.lanes):
            replicas.append(replica)
            continue
        lowered = lower_replica(
            programs,
            graphs,
            replica.placements(len(programs)),
            slots=wanted[0],
            lanes=wanted[1],
            roomy=roomy,
            hosts=hosts_of(plan),
        )
        lowered = _with_gates(lowered, replica.lowered)
        replicas.append(replace(replica, slots=lowered.slots, lanes=lowered.lanes, lowered=lowered))
    card_of = {device.name: device.card for device in plan.devices}
    used = dict.fromkeys((card.name for card in plan.cards), 0)
    for device, card in card_of.items():
        if card in used:
            used[card] += memory_on(replicas, device)
    cards = tuple(replace(card, used_bytes=used[card.name]) for card in plan.cards)
    return replace(plan, replicas=tuple(replicas), cards=cards)


def _on_hosts(
    plan: Plan, table: HostTable, programs: Sequence[Program], graphs: Sequence[KernelGraph]
) -> Plan:
    """The plan with the hosts of a run as its nodes, and with puts between them."""
    assigned = assign_hosts(table, plan)
    of_card = {d.card: assigned[d.name].name for d in plan.devices if d.name in assigned}
    cards = tuple(replace(card, node=of_card.get(card.name, card.node)) for card in plan.cards)
    plan = replace(plan, cards=cards)
    hosts = hosts_of(plan)
    if all(_has_puts_between(replica.lowered, hosts) for replica in plan.replicas):
        return plan
    return _made_anew(plan, programs, graphs, (None, None), only_other=False)


def _has_puts_between(lowered: LoweredReplica, hosts: Mapping[str, str]) -> bool:
    """Whether bytes are put wherever they leave a host, and nowhere else."""
    for trace in lowered.traces:
        ends = {transfer.id: (transfer.source, transfer.target) for transfer in trace.transfers}
        operations = (queued.operation for own in trace.programs for queued in own.operations)
        for operation in operations:
            if isinstance(operation, Send | Put):
                source, target = ends[operation.transfer]
                leaves = target != HOST and hosts[source] != hosts[target]
                if leaves != isinstance(operation, Put):
                    return False
    return True


def _with_gates(lowered: LoweredReplica, planned: LoweredReplica) -> LoweredReplica:
    """The lowered programs with the planned gates: steps keep their places, so gates do too."""
    gates = {trace.trace: trace.gate for trace in planned.traces}
    traces = tuple(replace(trace, gate=gates.get(trace.trace)) for trace in lowered.traces)
    return replace(lowered, traces=traces)


def _chosen(plan: Plan, policy: str | None, name: str) -> ServedReplicas:
    chosen = served_by(plan, policy)  # the same choice as in a simulation
    if chosen is None:
        named = ", ".join(f"`{known}`" for known in policies_of(plan) if known)
        hint = f"choose one of: {named}" if named else "it has none to choose from"
        raise TesseraError.of("TSR5053", f"`{name}` has no policy `{policy}`", hint=hint)
    return chosen
