"""Costs from tables: a step's own row, or a measurement carried over by the ratio of two rows.

In: estimated `Costs`, the steps' shapes, tables, profiles. Out: `Costs`. Tables are of whole cards.
A library call is what tables measured; a launch is other code for the same work, so its bar is
wider. Where the step was measured on another GPU, its time is carried over by the two GPUs' rows:
that keeps what is special about the code. The one with the narrower bar counts, or the table if
they are equal. Tables were often measured with the bytes in L2, which does not hold for a request,
so a row counts as at least the time of the step's weights and state from memory. Rows of some work
include what engines do around it (`carried.bare_part`), which other code does not do.

GPUs are compared by rows of one version of a library (`find_tables`): the newest version that every
GPU with rows has. If there is none, each GPU uses its newest version, and bars are wider. If the
library that will run is not given, those that all these GPUs have count together (`libraries`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from re import findall

from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
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
from tessera.ir.plan.tables import LIBRARIES, Fixed, TableKind, WorkShape
from tessera.ir.program.program import Buffer, Program
from tessera.planning.prices.carried import bare_part, carried, sources_of
from tessera.planning.prices.libraries import LibraryTables
from tessera.planning.prices.step_bytes import PERSISTENT, distinct_bytes
from tessera.planning.prices.table_lookup import (
    UNITS,
    TableIndex,
    from_memory_ns,
    operations_and_bytes,
)
from tessera.planning.prices.work_shapes import StepShape, step_shape


def find_tables(
    shapes: Iterable[StepShape],
    machine: Machine,
    profiles: Iterable[Profile],
    library: str | None = None,
) -> dict[WorkShape, KnownTables]:
    """The tables for every shape for which some GPU has rows; of one library if it is known."""
    gpus = {card.gpu.key for card in machine.cards if not card.gpu.like}
    measured = {row.gpu for profile in profiles for row in profile.rows}
    known: dict[tuple[TableKind, Fixed], KnownTables] = {}
    found: dict[WorkShape, KnownTables] = {}
    for step in shapes:
        if step.shape is None or step.shape in found:
            continue
        key = step.shape.kind, step.shape.fixed
        if key not in known:
            known[key] = _known(frozenset(gpus), frozenset(measured - gpus), *key, library)
        if known[key].by_gpu or known[key].near:
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


def table_ns(shape: WorkShape, gpu: Gpu, library: str | None = None) -> float | None:
    """The newest tables' time for a shape on a kind of GPU; None if there is none."""
    if gpu.like:
        return None
    known = _known(frozenset((gpu.key,)), frozenset(), shape.kind, shape.fixed, library)
    tables = known.by_gpu.get(gpu.key)
    answer = None if tables is None else tables.find(shape.sizes)
    return None if answer is None else answer.ns


@lru_cache(maxsize=256)
def _known(
    gpus: frozenset[str],
    measured: frozenset[str],
    kind: TableKind,
    fixed: Fixed,
    library: str | None,
) -> KnownTables:
    """The tables of the library, or of those that all GPUs with rows have."""
    chosen = [
        tables
        for name in ((library,) if library else LIBRARIES)
        if (tables := _of_library(gpus, measured, kind, fixed, name))
    ]
    with_rows = {gpu for tables in chosen for gpu in tables if gpu in gpus}
    chosen = [tables for tables in chosen if with_rows <= set(tables)] or chosen
    by_gpu: dict[str, list[TableIndex]] = {}
    versions: dict[str, set[str]] = {}
    for tables in chosen:
        for gpu, index in tables.items():
            by_gpu.setdefault(gpu, []).append(index)
            if gpu in gpus:
                versions.setdefault(index.rows.library, set()).add(index.rows.version)
    return KnownTables(
        {gpu: LibraryTables(tuple(own), library is not None) for gpu, own in by_gpu.items()},
        mixed=any(len(own) > 1 for own in versions.values()),
        near={
            gpu: other
            for gpu in sorted(gpus - by_gpu.keys())
            if (other := _near(gpu, kind, fixed, library))
        },
    )


@lru_cache(maxsize=256)
def _near(
    gpu: str, kind: TableKind, fixed: Fixed, library: str | None
) -> tuple[LibraryTables, ...]:
    """The tables of GPUs that stand for one without rows (`sources_of`)."""
    here, names = find_gpu(gpu), (library,) if library else LIBRARIES
    if not here.flops(UNITS[str(fixed[0])]):
        return ()

    def tables_of(other: Gpu) -> LibraryTables | None:
        rows = [_versions(other.key, kind, fixed, name) for name in names]
        newest = tuple(own[max(own, key=_version_number)] for own in rows if own)
        return LibraryTables(newest, library is not None) if newest else None

    others = [other for key, other in gpu_table().items() if has_tables(key)]
    chosen = sources_of(here, others, lambda other: tables_of(other) is not None)
    return tuple(tables for other in chosen if (tables := tables_of(other)) is not None)


def _of_library(
    gpus: frozenset[str], measured: frozenset[str], kind: TableKind, fixed: Fixed, library: str
) -> dict[str, TableIndex]:
    """A library's table of each GPU: the newest version that all of them have, or each its own."""
    by_version = {gpu: _versions(gpu, kind, fixed, library) for gpu in sorted(gpus | measured)}
    with_rows = [set(by_version[gpu]) for gpu in gpus if by_version[gpu]]
    if not with_rows:
        return {}
    common = max(set.intersection(*with_rows), key=_version_number, default=None)
    return {
        gpu: versions[common if common in versions else max(versions, key=_version_number)]
        for gpu, versions in by_version.items()
        if versions
    }


@lru_cache(maxsize=256)
def _versions(gpu: str, kind: TableKind, fixed: Fixed, library: str) -> dict[str, TableIndex]:
    known = find_gpu(gpu)
    return {
        rows.version: TableIndex(rows, known)
        for rows in read_tables(gpu, kind, str(fixed[0]), library)
        if rows.fixed == fixed
    }


def _version_number(version: str) -> tuple[int, ...]:
    return tuple(map(int, findall("[0-9]+", version)))


_OTHER_CODE = 0.3  # added to the bar if the step runs other code than the measured one
_OTHER_VERSION = 0.15  # added if the rows of the two GPUs are of different library versions


@dataclass(frozen=True, slots=True)
class KnownTables:
    """Tables by GPU and by the fixed properties of their rows; `mixed` if versions differ.

    `near` has, for a GPU without rows, those of the GPUs that stand for it.
    """

    by_gpu: Mapping[str, LibraryTables]
    mixed: bool = False
    near: Mapping[str, tuple[LibraryTables, ...]] = field(default_factory=dict)


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
        tables = self.known.by_gpu.get(gpu.key)
        if isinstance(cost, Barred) or device.sms != gpu.sms or gpu.like:
            return cost
        if tables is None:
            return self._near(gpu, cost)
        least = self._from_memory_ns(gpu)
        answers = [self._row(tables, least), *(self._carried(row, tables) for row in self.rows)]
        known = [answer for answer in answers if answer is not None]
        if not known:
            return cost
        return min(known, key=lambda answer: answer.error)

    def _near(self, gpu: Gpu, cost: Duration) -> Duration:
        """A time by the rows of other GPUs, if its bar is narrower than that of the model."""
        tables = self.known.near.get(gpu.key)
        if not tables or not self.own:
            return cost
        shape = self.shape
        answer = carried(shape.kind, shape.fixed, shape.sizes, gpu, tables)
        if answer is None or answer.error >= cost.error:
            return cost
        names = " and ".join(f"{own.origin()} on {own.gpu.key}" for own in tables)
        origin = f"{names}, {shape.text()}, times what the model says"
        return Duration(ns=answer.ns, source=CostSource.NEAR, error=answer.error, origin=origin)

    def _row(self, tables: LibraryTables, least: float) -> Duration | None:
        found = tables.find(self.shape.sizes, least)
        if found is None:
            return None
        part, error = 1.0, found.error
        if not self.own:
            part = bare_part(self.shape.kind, self.shape.fixed, self.shape.sizes, tables.gpu)
            error += _OTHER_CODE
        origin = f"{tables.origin()}, {self.shape.text()}"
        if self.known.mixed:
            error += _OTHER_VERSION
            origin += "; the other GPUs' rows are of other versions"
        if found.beyond:
            origin += "; beyond its rows"
        return Duration(
            ns=max(found.ns * part, least),
            source=CostSource.TABLE,
            error=error,
            origin=origin,
            shared=tables.shared(found.between),
        )

    def _carried(self, row: Measured, tables: LibraryTables) -> Duration | None:
        """A measurement on another whole GPU, times the ratio of the two GPUs' rows."""
        source = self.known.by_gpu.get(row.gpu)
        if source is None or source is tables or row.sms != source.gpu.sms:
            return None
        found = tables.over(source, self.shape.sizes)
        if found is None:
            return None
        error = (found.error**2 + row.error**2) ** 0.5
        error += _OTHER_VERSION if source.versions() != tables.versions() else 0.0
        origin = f"{row.gpu} times {found.ns:.3g} by {tables.origin()}, {self.shape.text()}"
        return Duration(ns=row.ns * found.ns, source=CostSource.RATIO, error=error, origin=origin)

    def _from_memory_ns(self, gpu: Gpu) -> float:
        """The time of its weights and state from memory; 0 if a cache holds all of them."""
        if self.persistent <= gpu.l2_bytes / 2:
            return 0.0
        _, moved = operations_and_bytes(self.shape.kind, self.shape.fixed, self.shape.sizes)
        return from_memory_ns(gpu, min(self.cold, moved))
