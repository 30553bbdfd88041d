"""Which tables of measured kernel times count for a machine.

In: what steps compute, and the GPUs. Out: `KnownTables` by shape. GPUs are compared by rows of one
version of a framework: the newest that all of them have which have any. If there is none, each has
its newest, and bars are wider.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.tables import (
    EXTRA,
    INSTALL,
    extra_is_missing,
    has_tables,
    read_tables,
)
from tessera.ir.plan.costs import Profile
from tessera.ir.plan.machine import Gpu, Machine
from tessera.ir.plan.tables import Fixed, TableKind, WorkShape
from tessera.planning.prices.merge_tables import KnownTables
from tessera.planning.prices.table_lookup import TableIndex
from tessera.planning.prices.work_shapes import StepShape


def find_tables(
    shapes: Iterable[StepShape], machine: Machine, profiles: Iterable[Profile]
) -> dict[WorkShape, KnownTables]:
    """The tables for every shape that some GPU has rows of."""
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
    """What to install for tables of the GPUs of a machine; empty if there is nothing to gain."""
    if not extra_is_missing():
        return ""
    kinds = dict.fromkeys(card.gpu.key for card in machine.cards if not card.gpu.like)
    names = [key for key in kinds if has_tables(key) and not read_tables(key, TableKind.GEMM)]
    if not names:
        return ""
    return f"the extra `{EXTRA}` has measured kernel times of {', '.join(names)}: {INSTALL}"


def table_ns(shape: WorkShape, gpu: Gpu) -> float | None:
    """The newest table's time for a shape on a kind of GPU; None where there is none."""
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
