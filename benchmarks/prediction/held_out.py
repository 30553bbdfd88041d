"""Work that is left out of the tables of a GPU, predicted from the tables of the nearest other one.

    python -m benchmarks.prediction.held_out [--rows N] [--library NAME] [-o FILE]

It needs the extra `tables`.

For each family of operators and each GPU: rows that a library has for both GPUs are predicted by
`planning.prices.carried`, with all rows of that family on the GPU left out. `within_30` is the
share that is off by at most 30%, `held` how often the bar holds if the library is known: its rows
on the other GPU are compared with its rows here. `model` has both for the guess without any rows.
`inverted` are pairs of predictions in which a GPU that is better in bandwidth and arithmetic is
slower, and was measured to be faster; a family misses if less than nine in ten are within 30%, or
bars hold in other than 88 to 92%.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations
from math import exp, log, log1p

from benchmarks.common import arguments, write
from benchmarks.prediction.libraries import PACKAGE, Key, number, version
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.tables import has_tables, read_tables
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import LIBRARIES, Fixed, TableKind, TableRows
from tessera.planning.prices.carried import carried, kinship, model_ns, nearest
from tessera.planning.prices.estimate_costs import error_of
from tessera.planning.prices.libraries import LibraryTables
from tessera.planning.prices.table_lookup import (
    TableIndex,
    from_memory_ns,
    operations_and_bytes,
)

FAMILIES = (
    (TableKind.GEMM, "bfloat16"),
    (TableKind.GEMM, "fp8"),
    (TableKind.CONTEXT, "bfloat16"),
    (TableKind.GENERATION, "bfloat16"),
    (TableKind.MOE, "bfloat16"),
)
SEED, WITHIN = 17, 0.3


@dataclass
class Family:
    """Rows of a family on all GPUs: times by library, at least those of the bytes from memory."""

    kind: TableKind
    tables: dict[str, dict[tuple[str, Fixed], TableRows]]
    places: dict[tuple[str, str, Fixed], dict[tuple[int, ...], int]] = field(default_factory=dict)

    def positions(self, gpu: Gpu, library: str, fixed: Fixed) -> dict[tuple[int, ...], int]:
        """Where the rows of a table are, by their sizes; none without a table."""
        key = gpu.key, library, fixed
        if key not in self.places:
            rows = self.tables[gpu.key].get((library, fixed))
            sizes = () if rows is None else rows.sizes
            self.places[key] = {own: at for at, own in enumerate(sizes)}
        return self.places[key]

    def times(self, gpu: Gpu, key: Key) -> dict[str, float]:
        least = from_memory_ns(gpu, operations_and_bytes(self.kind, *key)[1])
        fixed, sizes = key
        found = {}
        for library in LIBRARIES:
            at = self.positions(gpu, library, fixed).get(sizes)
            if at is not None:
                found[library] = max(least, self.tables[gpu.key][library, fixed].ns[at])
        return found

    def keys(self, gpu: Gpu) -> set[Key]:
        """The rows that a library has."""
        own = self.tables[gpu.key].items()
        return {(fixed, sizes) for (_, fixed), rows in own for sizes in rows.sizes}


def read_family(kind: TableKind, dtype: str, gpus: list[Gpu], library: str) -> Family:
    """The newest version of a library, with sixteen-bit caches and no window."""
    tables: dict[str, dict[tuple[str, Fixed], TableRows]] = {gpu.key: {} for gpu in gpus}
    for gpu in gpus:
        read = read_tables(gpu.key, kind, dtype, library)
        for rows in sorted(read, key=lambda table: number(table.version)):
            attends = kind in (TableKind.CONTEXT, TableKind.GENERATION)
            if not attends or (rows.fixed[1] == dtype and not rows.fixed[3]):
                tables[gpu.key][library, rows.fixed] = rows
    read_tables.cache_clear()
    return Family(kind, tables)


@dataclass(frozen=True)
class Guess:
    """A prediction of a row on a GPU, beside its measured times by library."""

    ns: float
    bars: dict[str, bool]
    times: dict[str, float]

    @property
    def off(self) -> float:
        """The logarithm of the prediction over the mean of the libraries."""
        return log(self.ns) - sum(map(log, self.times.values())) / len(self.times)


def predicted(family: Family, gpu: Gpu, source: Gpu, key: Key) -> Guess | None:
    """The mean of what each library's rows of the other GPU say, each with its own bar."""
    fixed, sizes = key
    times, said, held = family.times(gpu, key), [], {}
    for library in list(times):
        if sizes not in family.positions(source, library, fixed):
            continue
        rows = family.tables[source.key][library, fixed]
        tables = LibraryTables((TableIndex(rows, source),), known=True)
        answer = carried(family.kind, fixed, sizes, gpu, tables)
        assert answer is not None
        said.append(log(answer.ns))
        held[library] = abs(log(answer.ns / times[library])) <= log1p(answer.error)
    if not said:
        return None
    own = {library: times[library] for library in held}
    return Guess(exp(sum(said) / len(said)), held, own)


def share(values: list[bool]) -> float:
    return round(sum(values) / max(1, len(values)), 3)


def judged(guesses: dict[Key, Guess], family: Family, gpu: Gpu, source: Gpu) -> dict[str, object]:
    offs = sorted(abs(guess.off) for guess in guesses.values())
    modelled = []
    for key, guess in guesses.items():
        ns = model_ns(family.kind, *key, gpu)
        for own in guess.times.values():
            off = abs(log(ns / own))
            modelled.append((off <= log(1 + WITHIN), off <= log1p(error_of(ns, gpu))))
    within = share([off <= log(1 + WITHIN) for off in offs])
    held = share([ok for guess in guesses.values() for ok in guess.bars.values()])
    return {
        "from": source.key,
        "kinship": kinship(gpu, source).name.lower(),
        "rows": len(offs),
        "median": round(exp(offs[len(offs) // 2]) - 1, 3),
        "p90": round(exp(offs[int(0.9 * len(offs))]) - 1, 3),
        "within_30": within,
        "held": held,
        "model": {
            "within_30": share([near for near, _ in modelled]),
            "held": share([ok for _, ok in modelled]),
        },
        "misses": within < 0.9 or not 0.88 <= held <= 0.92,
    }


def inversions(guesses: dict[str, dict[Key, Guess]]) -> Iterator[str]:
    """Pairs in which a better GPU is predicted slower by 5% or more, and was not."""
    for first, second in permutations(guesses, 2):
        better, other = find_gpu(first), find_gpu(second)
        rates = [(g.memory_bandwidth, g.flops("bf16") or 0.0) for g in (better, other)]
        if not all(a > b for a, b in zip(*rates, strict=True)):
            continue
        for key, guess in guesses[first].items():
            rival = guesses[second].get(key)
            if rival is None or guess.ns <= 1.05 * rival.ns:
                continue
            both = guess.times.keys() & rival.times.keys()
            if all(guess.times[name] <= 1.05 * rival.times[name] for name in both):
                yield f"{first} {second} {key[1]}"


def main() -> None:
    parser = arguments(__doc__, "held_out.json")
    parser.add_argument("--rows", type=int, default=300, help="of a family on a GPU, at most")
    parser.add_argument("--library", choices=LIBRARIES, default=LIBRARIES[0])
    given = parser.parse_args()
    gpus = [gpu for key, gpu in gpu_table().items() if has_tables(key)]
    families: dict[str, object] = {}
    document: dict[str, object] = {
        "from": f"{PACKAGE} {version(PACKAGE)}",
        "library": given.library,
        "families": families,
    }
    for kind, dtype in FAMILIES:
        family = read_family(kind, dtype, gpus, given.library)
        every: dict[str, dict[Key, Guess]] = {}
        sample = random.Random(SEED)
        common = set[Key].intersection(*(family.keys(g) for g in gpus if family.tables[g.key]))
        chosen = sample.sample(sorted(common, key=str), min(given.rows, len(common)))
        for gpu in gpus:
            if not family.tables[gpu.key]:
                continue
            source = next(o for o in nearest(gpu, gpus) if family.tables[o.key])
            found = {key: predicted(family, gpu, source, key) for key in chosen}
            every[gpu.key] = {key: guess for key, guess in found.items() if guess is not None}
            figures = judged(every[gpu.key], family, gpu, source)
            print(kind.value, dtype, gpu.key, json.dumps(figures), flush=True)
            families[f"{kind.value} {dtype} {gpu.key}"] = figures
        inverted = list(inversions(every))
        print(kind.value, dtype, "inverted", len(inverted), inverted[:3], flush=True)
        document[f"inverted {kind.value} {dtype}"] = {"pairs": len(inverted), "some": inverted[:8]}
    write(document, given.output)


if __name__ == "__main__":
    main()
