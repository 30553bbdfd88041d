"""Work that is left out of the tables of a GPU, predicted from the tables of other GPUs.

    python -m benchmarks.prediction.held_out [--rows N] [--library NAME] [-o FILE]

It needs the extra `tables`.

For each family of operators and each GPU: rows that a library has for all GPUs are predicted by
`planning.prices.carried`, with all rows of that family on the GPU left out. Rows of experts are
those that plans look up, of one GPU. `within_30` is the share that is off by at most 30%, `held`
how often the bar holds if the library is known. `beside` has both in a plan that has the other GPUs
with their rows, too: there `planning.prices.floors` keeps a guess from being slower than a GPU that
is worse in bandwidth and arithmetic. `model` has both for the guess without any rows. `inverted`
are predictions in a plan by which the GPU is 5% slower than a worse one, or 5% faster than a better
one, and was not; `before` is how many there are without the order of GPUs. Where measured times of
two others are in the wrong order, no guess agrees with both. `rankings`: pairs of GPUs, each left
out in turn, on which the bars of the two predictions support a statement which of them is faster,
and how many of these are wrong by more than 5%. A family misses if less than nine
in ten are within 30%, or bars hold in other than 88 to 92%; `cause` says why, as far as known.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from math import exp, hypot, log, log1p

from benchmarks.common import arguments, write
from benchmarks.prediction.libraries import PACKAGE, Key, number, version
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.tables import has_tables, read_tables
from tessera.ir.plan.costs import StepNeeds
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import LIBRARIES, Fixed, TableKind, TableRows
from tessera.planning.prices.call_shapes import operations_of
from tessera.planning.prices.carried import carried, kinship, model_ns, row_call, sources_of
from tessera.planning.prices.floors import between_measured, order_of
from tessera.planning.prices.libraries import LibraryTables
from tessera.planning.prices.model_bars import model_bar
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
CAUSES = {
    "architecture": "one bar for each family: Hopper is nearer than it, GB200 is not",
    "a100-80g-sxm": "not known; rows of vLLM 0.14 on an L40S, the version of its own, are no nearer"
    " but for experts",
    "gemm fp8": "in vLLM narrowing takes 7 to 8 ns for each row on any GPU, which goes with neither"
    " clock nor bandwidth",
}


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
        every = {(fixed, sizes) for (_, fixed), rows in own for sizes in rows.sizes}
        return {key for key in every if self.kind is not TableKind.MOE or key[1][2] == 1}


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
    """A prediction of a row on a GPU with its bar, beside the measured times by library."""

    ns: float
    bar: float
    times: dict[str, float]

    @property
    def off(self) -> float:
        """The logarithm of the prediction over the mean of the libraries."""
        return log(self.ns / self.measured)

    @property
    def measured(self) -> float:
        """The geometric mean of the libraries."""
        return exp(sum(map(log, self.times.values())) / len(self.times))

    @property
    def held(self) -> list[bool]:
        """Whether the bar holds for each library."""
        return [abs(log(self.ns / ns)) <= self.bar for ns in self.times.values()]


def predicted(family: Family, gpu: Gpu, sources: list[Gpu], key: Key) -> Guess | None:
    """The mean of what each library's rows of other GPUs say."""
    fixed, sizes = key
    said, bars, times = [], [], {}
    for library, ns in family.times(gpu, key).items():
        tables = [
            LibraryTables((TableIndex(family.tables[o.key][library, fixed], o),), known=True)
            for o in sources
            if sizes in family.positions(o, library, fixed)
        ]
        answer = carried(family.kind, fixed, sizes, gpu, tables) if tables else None
        if answer is not None:
            said.append(log(answer.ns))
            bars.append(log1p(answer.error))
            times[library] = ns
    if not said:
        return None
    return Guess(exp(sum(said) / len(said)), sum(bars) / len(bars), times)


def share(values: list[bool]) -> float:
    return round(sum(values) / max(1, len(values)), 3)


def nearness(guesses: dict[Key, Guess]) -> dict[str, float]:
    return {
        "within_30": share([abs(guess.off) <= log(1 + WITHIN) for guess in guesses.values()]),
        "held": share([ok for guess in guesses.values() for ok in guess.held]),
    }


def judged(
    guesses: dict[Key, Guess], family: Family, gpu: Gpu, sources: list[Gpu], name: str
) -> dict[str, object]:
    offs = sorted(abs(guess.off) for guess in guesses.values())
    modelled = []
    for key, guess in guesses.items():
        ns = model_ns(family.kind, *key, gpu)
        call, moved = row_call(family.kind, *key), operations_and_bytes(family.kind, *key)[1]
        bar = model_bar(call, moved, ns, gpu) or 0.0
        offs_of = [abs(log(ns / own)) for own in guess.times.values()]
        modelled += [(off <= log(1 + WITHIN), off <= bar) for off in offs_of]
    near = nearness(guesses)
    misses = near["within_30"] < 0.9 or not 0.88 <= near["held"] <= 0.92
    alike = kinship(gpu, sources[0]).name.lower()
    cause = CAUSES.get(alike) or CAUSES.get(gpu.key) or CAUSES.get(name, "not known")
    return {
        "from": [source.key for source in sources],
        "kinship": alike,
        "rows": len(offs),
        "median": round(exp(offs[len(offs) // 2]) - 1, 3),
        "p90": round(exp(offs[int(0.9 * len(offs))]) - 1, 3),
        **near,
        "model": {
            "within_30": share([is_near for is_near, _ in modelled]),
            "held": share([ok for _, ok in modelled]),
        },
        "misses": misses,
        **({"cause": cause} if misses else {}),
    }


Guesses = Mapping[str, dict[Key, Guess]]


def ordered(family: Family, guesses: Guesses) -> dict[str, dict[Key, Guess]]:
    """Predictions beside the measured times of the other GPUs, as in a plan with all of them."""
    made: dict[str, dict[Key, Guess]] = {gpu: {} for gpu in guesses}
    for key in {key for own in guesses.values() for key in own}:
        here = {gpu: own[key] for gpu, own in guesses.items() if key in own}
        moved = operations_and_bytes(family.kind, *key)[1]
        operations = operations_of(row_call(family.kind, *key))
        needs = StepNeeds(cold=moved, operations=operations, kept=1e18)
        rate = order_of(needs, [find_gpu(gpu) for gpu in here])
        known = {gpu: (find_gpu(gpu), guess.measured) for gpu, guess in here.items()}
        for gpu, guess in here.items():
            others = [pair for other, pair in known.items() if other != gpu]
            ns = between_measured(guess.ns, known[gpu][0], others, rate)
            made[gpu][key] = replace(guess, ns=ns, bar=guess.bar + abs(log(ns / guess.ns)))
    return made


def inversions(guesses: Guesses) -> Iterator[str]:
    """Pairs of a prediction and a measured time that are in the wrong order, and were not."""
    for first, second in permutations(guesses, 2):
        better, other = find_gpu(first), find_gpu(second)
        rates = [(g.memory_bandwidth, g.flops("bf16") or 0.0) for g in (better, other)]
        if not all(a > b for a, b in zip(*rates, strict=True)):
            continue
        for key in guesses[first].keys() & guesses[second].keys():
            own, rival = guesses[first][key], guesses[second][key]
            if own.measured > 1.05 * rival.measured:
                continue
            if own.ns > 1.05 * rival.measured or own.measured > 1.05 * rival.ns:
                yield f"{first} {second} {key[1]}"


def rankings(guesses: Guesses) -> Counter[str]:
    """Pairs of GPUs on which the bars of predictions support a statement, and wrong ones."""
    found: Counter[str] = Counter()
    for first, second in combinations(guesses, 2):
        for key in guesses[first].keys() & guesses[second].keys():
            own, rival = guesses[first][key], guesses[second][key]
            said, true = log(own.ns / rival.ns), log(own.measured / rival.measured)
            is_stated = abs(said) > hypot(own.bar, rival.bar)
            found["pairs"] += 1
            found["stated"] += is_stated
            found["wrong"] += is_stated and said * true < 0 and abs(true) > log(1.05)
    return found


def main() -> None:
    parser = arguments(__doc__, "held_out.json")
    parser.add_argument("--rows", type=int, default=300, help="of a family on a GPU, at most")
    parser.add_argument("--library", choices=LIBRARIES, default=LIBRARIES[0])
    given = parser.parse_args()
    gpus = [gpu for key, gpu in gpu_table().items() if has_tables(key)]
    families: dict[str, dict[str, object]] = {}
    document: dict[str, object] = {
        "from": f"{PACKAGE} {version(PACKAGE)}",
        "library": given.library,
        "families": families,
    }
    ranked: Counter[str] = Counter()
    for kind, dtype in FAMILIES:
        family = read_family(kind, dtype, gpus, given.library)
        every: dict[str, dict[Key, Guess]] = {}
        sample = random.Random(SEED)
        with_rows = [gpu for gpu in gpus if family.tables[gpu.key]]
        common = set[Key].intersection(*map(family.keys, with_rows))
        chosen = sample.sample(sorted(common, key=str), min(given.rows, len(common)))
        sources = {g.key: sources_of(g, with_rows, lambda _: True) for g in with_rows}
        for gpu in with_rows:
            found = {key: predicted(family, gpu, sources[gpu.key], key) for key in chosen}
            every[gpu.key] = {key: guess for key, guess in found.items() if guess is not None}
        plans = ordered(family, every)
        for gpu in with_rows:
            name = f"{kind.value} {dtype}"
            figures = judged(every[gpu.key], family, gpu, sources[gpu.key], name)
            figures["beside"] = nearness(plans[gpu.key])
            print(name, gpu.key, json.dumps(figures), flush=True)
            families[f"{name} {gpu.key}"] = figures
        ranked += rankings(plans)
        before, inverted = list(inversions(every)), list(inversions(plans))
        print(kind.value, dtype, "inverted", len(inverted), "before", len(before), flush=True)
        document[f"inverted {kind.value} {dtype}"] = {
            "pairs": len(inverted),
            "before": len(before),
            "some": inverted[:8],
        }
    document["rankings"] = dict(ranked)
    document["summary"] = {
        "families_on_gpus": len(families),
        "nine_in_ten_within_30": sum(float(str(f["within_30"])) >= 0.9 for f in families.values()),
        "held_88_to_92": sum(0.88 <= float(str(f["held"])) <= 0.92 for f in families.values()),
        "held_in_all": round(
            sum(float(str(f["held"])) for f in families.values()) / len(families), 3
        ),
    }
    print(json.dumps(document["summary"]))
    write(document, given.output)


if __name__ == "__main__":
    main()
