"""Costs from tables: a step's own row, or a measurement carried over by the ratio of two rows.

In: estimated `Costs`, the steps' shapes, tables, profiles. Out: `Costs`. Tables are of whole cards.
A library call is what tables measured; a launch is other code for the same work, so its bar is
wider. Where the step was measured on another GPU, its time is carried over by the two GPUs' rows:
that keeps what is special about the code. The one with the narrower bar counts, or the table if
they are equal. Tables were often measured with the bytes in L2, which does not hold for a request,
so no time is below that of reading the step's weights and state from memory.

GPUs are compared by rows of one version of a framework (`find_tables`): the newest version that
every GPU with rows has. If there is none, each GPU uses its newest version, and bars are wider.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.tables import (
    EXTRA,
    INSTALL,
    extra_is_missing,
    has_tables,
    read_tables,
)
from tessera.ir.graph.access import AccessKind
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.plan.costs import (
    Barred,
    Cost,
    Costs,
    CostSource,
    Duration,
    Measured,
    Profile,
    StepCosts,
)
from tessera.ir.plan.machine import Device, Gpu, Machine
from tessera.ir.plan.tables import Fixed, TableKind, WorkShape
from tessera.ir.program.program import Buffer, Program
from tessera.planning.prices.estimate_costs import PERSISTENT, distinct_bytes
from tessera.planning.prices.table_lookup import TableIndex, operations_and_bytes, ratio
from tessera.planning.prices.work_shapes import StepShape, step_shape


def find_tables(
    shapes: Iterable[StepShape], machine: Machine, profiles: Iterable[Profile]
) -> dict[WorkShape, KnownTables]:
    """The tables for every shape for which some GPU has rows."""
    gpus = {card.gpu.key for card in machine.cards if not card.gpu.like}
    measured = {row.gpu for profile in profiles for row in profile.rows}
    known: dict[tuple[TableKind, Fixed], KnownTables] = {}
    found: dict[WorkShape, KnownTables] = {}
    for step in shapes:
        if step.shape is None or step.shape in found:
            continue
        key = step.shape.kind, step.shape.fixed
        if key not in known:
            known[key] = _known(frozenset(gpus), frozenset(measured - gpus), *key)
        if known[key].by_gpu:
            found[step.shape] = known[key]
    return found


def missing_tables(machine: Machine) -> str:
    """The package to install for tables of a machine's GPUs; empty if there is nothing to gain."""
    if not extra_is_missing():
        return ""
    kinds = dict.fromkeys(card.gpu.key for card in machine.cards if not card.gpu.like)
    names = [key for key in kinds if has_tables(key) and not read_tables(key, TableKind.GEMM)]
    if not names:
        return ""
    return f"the extra `{EXTRA}` has measured kernel times of {', '.join(names)}: {INSTALL}"


def table_ns(shape: WorkShape, gpu: Gpu) -> float | None:
    """The newest table's time for a shape on a kind of GPU; None if there is none."""
    if gpu.like:
        return None
    tables = _known(frozenset((gpu.key,)), frozenset(), shape.kind, shape.fixed).by_gpu
    index = tables.get(gpu.key)
    answer = None if index is None else index.find(shape.sizes)
    return None if answer is None else answer.ns


@lru_cache(maxsize=256)
def _known(
    gpus: frozenset[str], measured: frozenset[str], kind: TableKind, fixed: Fixed
) -> KnownTables:
    by_version = {gpu: _versions(gpu, kind, fixed) for gpu in sorted(gpus | measured)}
    with_rows = [gpu for gpu in sorted(gpus) if by_version[gpu]]
    if not with_rows:
        return KnownTables({})
    common = set.intersection(*(set(by_version[gpu]) for gpu in with_rows))
    version = max(common, key=_version_number) if common else None
    chosen = {}
    for gpu, versions in by_version.items():
        if versions:
            newest = max(versions, key=_version_number)
            chosen[gpu] = versions[version if version in versions and version else newest]
    return KnownTables(chosen, mixed=version is None)


@lru_cache(maxsize=256)
def _versions(gpu: str, kind: TableKind, fixed: Fixed) -> dict[str, TableIndex]:
    found = find_gpu(gpu)
    return {
        rows.version: TableIndex(rows, found)
        for rows in read_tables(gpu, kind, str(fixed[0]))
        if rows.fixed == fixed
    }


def _version_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split("."))


_OTHER_CODE = 0.3  # added to the bar if the step runs other code than the measured one
_OTHER_VERSION = 0.15  # added if the rows of the two GPUs are of different framework versions
_FROM_MEMORY = 0.15  # the bar of a time that memory decides
_MEMORY_PART = 0.89  # fraction of a data sheet's bandwidth


@dataclass(frozen=True, slots=True)
class KnownTables:
    """Tables by GPU and by the fixed properties of their rows; `mixed` if versions differ."""

    by_gpu: Mapping[str, TableIndex]
    mixed: bool = False


def step_shapes(program: Program, graph: KernelGraph, costs: Costs) -> list[StepShape]:
    """The shape of each step, as far as tables could contain it."""
    found = []
    for work, node, step in zip(program.work(), graph.nodes, costs.steps, strict=True):
        read, written = used_buffers(program, node)
        touched = float(distinct_bytes(graph, node))
        found.append(step_shape(work, step.work, touched, read, written))
    return found


def used_buffers(program: Program, node: Node) -> tuple[list[Buffer], list[Buffer]]:
    """The buffers that a step may read, and those that it may write."""
    used = dict.fromkeys((access.buffer, access.kind) for access in node.accesses)
    read = [program.buffers[b] for b, kind in used if kind is AccessKind.READ]
    written = [program.buffers[b] for b, kind in used if kind is AccessKind.WRITE]
    return read, written


def merge_tables(
    costs: Costs,
    machine: Machine,
    graph: KernelGraph,
    shapes: Iterable[StepShape],
    tables: Mapping[WorkShape, KnownTables],
    profiles: Iterable[Profile],
) -> Costs:
    """The costs with times from tables in place of estimates. `tables` are given by shape."""
    persistent = sum(b.bytes for b in graph.buffers if b.role in PERSISTENT)
    measured: dict[int, list[Measured]] = {}
    for profile in profiles:
        for row in profile.rows:
            measured.setdefault(row.step, []).append(row)
    steps = []
    for step, found, node in zip(costs.steps, shapes, graph.nodes, strict=True):
        step = replace(step, refused_hint=found.refused)
        known = None if found.shape is None else tables.get(found.shape)
        if found.shape is None or known is None:
            steps.append(step)
            continue
        cold = float(distinct_bytes(graph, node, persistent=True))
        rows = [row for row in measured.get(int(step.step), ()) if row.name == step.name]
        priced = _Priced(found.shape, found.own, known, rows, cold, persistent)
        steps.append(priced.step(step, machine))
    return Costs(tuple(steps))


@dataclass(frozen=True, slots=True)
class _Priced:
    """One step: its shape, the tables that may contain it, and its measurements."""

    shape: WorkShape
    own: bool
    known: KnownTables
    rows: list[Measured]
    cold: float
    persistent: int

    def step(self, step: StepCosts, machine: Machine) -> StepCosts:
        """Its costs on all devices."""
        return replace(
            step,
            on_device=tuple(
                self._cost(machine.gpu_of(device), device, cost)
                for device, cost in zip(machine.devices, step.on_device, strict=True)
            ),
        )

    def _cost(self, gpu: Gpu, device: Device, cost: Cost) -> Cost:
        index = self.known.by_gpu.get(gpu.key)
        if index is None or isinstance(cost, Barred) or device.sms != gpu.sms or gpu.like:
            return cost
        answers = [self._row(index), *(self._carried(row, index) for row in self.rows)]
        known = [answer for answer in answers if answer is not None]
        if not known:
            return cost
        return self._from_memory(min(known, key=lambda answer: answer.error), gpu)

    def _row(self, index: TableIndex) -> Duration | None:
        found = index.find(self.shape.sizes)
        if found is None:
            return None
        error = found.error + (0.0 if self.own else _OTHER_CODE)
        origin = f"{index.rows.origin()}, {self.shape.text()}"
        if self.known.mixed:
            error += _OTHER_VERSION
            origin += "; the other GPUs' rows are of other versions"
        if found.beyond:
            origin += "; beyond its rows"
        return Duration(ns=found.ns, source=CostSource.TABLE, error=error, origin=origin)

    def _carried(self, row: Measured, index: TableIndex) -> Duration | None:
        """A measurement on another whole GPU, times the ratio of the two GPUs' rows."""
        source = self.known.by_gpu.get(row.gpu)
        if source is None or source is index or row.sms != source.gpu.sms:
            return None
        found = ratio(source, index, self.shape.sizes)
        if found is None:
            return None
        error = (found.error**2 + row.error**2) ** 0.5
        error += _OTHER_VERSION if source.rows.version != index.rows.version else 0.0
        origin = f"{row.gpu} times {found.ns:.3g} by {index.rows.origin()}, {self.shape.text()}"
        return Duration(ns=row.ns * found.ns, source=CostSource.RATIO, error=error, origin=origin)

    def _from_memory(self, cost: Duration, gpu: Gpu) -> Duration:
        """At least the time of its weights and state from memory, unless a cache holds all of
        them."""
        if self.persistent <= gpu.l2_bytes / 2:
            return cost
        _, moved = operations_and_bytes(self.shape.kind, self.shape.fixed, self.shape.sizes)
        least = min(self.cold, moved) / (gpu.memory_bandwidth * _MEMORY_PART) * 1e9
        if cost.ns >= least:
            return cost
        origin = f"{cost.origin}; raised to the time of its bytes from memory"
        return replace(cost, ns=least, error=max(cost.error, _FROM_MEMORY), origin=origin)
