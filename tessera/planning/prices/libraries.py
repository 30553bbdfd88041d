"""Times by the tables of several libraries, and how far another library may be from them.

In: the tables of a GPU, one for each library. Out: an `Estimate` for sizes. If the library that
will run is known, its table is the only one. If not, the time is the geometric mean of all tables,
and the bar also covers a library that is none of them. Half of its width, as a logarithm, is a
quadratic form of what the work is like (`features`), for each GPU and family of operators. Nine in
ten times of a third library are within it of the mean of two others; for means of one or three it
is scaled as for independent errors. `benchmarks/prediction/libraries.py` fits and judges it, after
raising times to that of the bytes from memory: some rows were measured with them in L2.

Libraries run the same kernels on GPUs of one architecture, so there their errors are largely the
same, and cancel in a ratio (`shared_part`). Between other GPUs nothing is assumed to cancel.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, expm1, hypot, log, log1p, sqrt

from tessera.frontend.machine.tables import bar_constants
from tessera.ir.architecture import arch_number
from tessera.ir.plan.costs import SharedError
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import Fixed, Sizes, TableKind
from tessera.planning.prices.table_lookup import (
    Estimate,
    TableIndex,
    arithmetic_and_memory_ns,
    ratio,
    roofline_ns,
)

_TYPES = {TableKind.GEMM: 1, TableKind.CONTEXT: 2, TableKind.GENERATION: 2, TableKind.MOE: 1}
_PER_KNOWN = 1.5  # variance of a third library about the mean of two, in variances of one
# Part of the variance that is common to GPUs of one architecture: less than in any such pair of
# `benchmarks/results/libraries.json`, so that bars of their ratio hold.
_SHARED = {"gemm bfloat16": 0.2, "gemm": 0.85, "context": 0.9, "generation": 0.75, "moe": 0.85}
_FIRST_ALIKE = 90


def family(kind: TableKind, fixed: Fixed) -> str:
    """Work that libraries treat alike: `gemm fp8`, `generation bfloat16 fp8`."""
    return " ".join((kind.value, *map(str, fixed[: _TYPES[kind]])))


def features(gpu: Gpu, kind: TableKind, fixed: Fixed, sizes: Sizes) -> tuple[float, ...]:
    """What a bar depends on: how long, bound by what, and the two sizes that differ most."""
    arithmetic, memory = arithmetic_and_memory_ns(gpu, kind, fixed, sizes)
    long = log(roofline_ns(gpu, kind, fixed, sizes) / 2e4) / 2
    values = (
        min(2.0, max(-2.0, long)),
        min(2.0, max(-2.0, log(memory / arithmetic) / 2)),
        log(sizes[0]) / 3 - 1.0,
        log(sizes[1]) / 3 - 2.5,
    )
    return (1.0, *(power for value in values for power in (value, value * value)))


def library_bar(gpu: Gpu, kind: TableKind, fixed: Fixed, sizes: Sizes, known: int) -> float:
    """Half the width of the bar of a library about the mean of `known` others, as a logarithm."""
    bars = bar_constants("library_bars")
    name = family(kind, fixed)
    constants = bars.get(f"{gpu.key} {name}") or bars.get(name) or bars[kind.value]
    *factors, least, most = constants
    value = sum(f * x for f, x in zip(factors, features(gpu, kind, fixed, sizes), strict=False))
    return min(most, max(least, exp(value))) * sqrt((1 + 1 / known) / _PER_KNOWN)


def shared_part(kind: TableKind, fixed: Fixed, first: Gpu, second: Gpu) -> float:
    """The part of the variance between libraries that two GPUs share."""
    own = _architecture(first)
    if own != _architecture(second) or own < _FIRST_ALIKE:
        return 0.0
    return _SHARED.get(family(kind, fixed), _SHARED[kind.value])


def _architecture(gpu: Gpu) -> int:
    return arch_number(gpu.arch) // 10 * 10


@dataclass(frozen=True, slots=True)
class LibraryTables:
    """The tables of one GPU by library; `known` if there is one, of the library that will run."""

    indexes: tuple[TableIndex, ...]
    known: bool

    @property
    def gpu(self) -> Gpu:
        """The GPU of the tables."""
        return self.indexes[0].gpu

    def origin(self) -> str:
        """The libraries: `vllm 0.24.0, sglang 0.5.14`."""
        return " and ".join(index.rows.origin() for index in self.indexes)

    def versions(self) -> frozenset[tuple[str, str]]:
        """The libraries and their versions."""
        return frozenset((index.rows.library, index.rows.version) for index in self.indexes)

    def find(self, sizes: Sizes, least_ns: float = 0.0) -> Estimate | None:
        """The time for sizes by the tables that have them; None far from all rows.

        A library's time below `least_ns` counts as that.
        """
        answers = [answer for index in self.indexes if (answer := index.find(sizes)) is not None]
        answers = [answer for answer in answers if not answer.beyond] or answers
        if not answers:
            return None
        mean = _mean([replace(answer, ns=max(answer.ns, least_ns)) for answer in answers])
        if self.known:
            return mean
        rows = self.indexes[0].rows
        other = library_bar(self.gpu, rows.kind, rows.fixed, sizes, len(answers))
        whole = hypot(log1p(mean.error), other)
        return Estimate(mean.ns, expm1(whole), mean.beyond, (other / whole) ** 2)

    def shared(self, between: float) -> SharedError | None:
        """The part of an error that the GPUs of the architecture share."""
        rows = self.indexes[0].rows
        part = between * shared_part(rows.kind, rows.fixed, self.gpu, self.gpu)
        return SharedError(part, _architecture(self.gpu)) if part else None

    def over(self, source: LibraryTables, sizes: Sizes) -> Estimate | None:
        """The ratio of the time to that on another GPU, by the libraries that both have."""
        theirs = {index.rows.library: index for index in source.indexes}
        ratios = [
            answer
            for index in self.indexes
            if (other := theirs.get(index.rows.library)) is not None
            and (answer := ratio(other, index, sizes)) is not None
        ]
        if not ratios:
            return None
        mean = _mean(ratios)
        if self.known:
            return mean
        rows = self.indexes[0].rows
        bars = [
            library_bar(gpu, rows.kind, rows.fixed, sizes, len(ratios))
            for gpu in (self.gpu, source.gpu)
        ]
        shared = shared_part(rows.kind, rows.fixed, self.gpu, source.gpu)
        apart = bars[0] ** 2 + bars[1] ** 2 - 2 * shared * bars[0] * bars[1]
        return Estimate(mean.ns, expm1(sqrt(log1p(mean.error) ** 2 + apart)), mean.beyond)


def _mean(answers: list[Estimate]) -> Estimate:
    """The geometric mean; interpolations may all be off in the same way."""
    count = len(answers)
    return Estimate(
        exp(sum(log(answer.ns) for answer in answers) / count),
        expm1(sum(log1p(answer.error) for answer in answers) / count),
        max(answer.beyond for answer in answers),
    )
