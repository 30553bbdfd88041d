"""The model of experts against measured times: PyTorch and Triton on an H200, vLLM on six GPUs.

    python -m benchmarks.prediction.experts [--fit] [-o FILE]

PyTorch: products by `torch._grouped_mm`, as `h200_experts` measured them; models in its `HELD_OUT`
are for judging alone. Triton: the same products by the kernel that captures have, whose loops come
from routing. vLLM: all that experts do, rows of one GPU from the tables (`tables`, the
extra); loads of experts follow a power law there, and are rounded. Every other model of the rows of
the H200, by size, was used to fit; all other models and GPUs are for judging. Which experts a few
tokens had in these tables is not known well, so `expert_loads` is fitted to rows of one or two
tokens with equal loads (`balanced`), which the tables have, too. `--fit` descends from the
constants as they are. `bar_holds` is the part of rows inside the error bar of the planner,
which knows no routing: it takes the middle of uniform and skewed choices.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from math import exp, log
from statistics import median
from typing import Any

from benchmarks.common import RESULTS, arguments, write
from benchmarks.prediction.fit_durations import bounded, descend
from tessera.frontend.capture.experts.launch import ProductSize, candidates
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.tables import UNEVEN_LOADS, read_tables
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.routing import Routing
from tessera.planning.prices.device_model import Traffic, launch_ns
from tessera.planning.prices.estimate_costs import model_duration
from tessera.planning.prices.expert_routing import UNEVEN, UNIFORM
from tessera.planning.prices.library_calls import Experts, Grouped, routed
from tessera.planning.prices.library_launches import USUAL, Habits, call_ns
from tessera.planning.prices.routed_launches import (
    FITTED_VISITS,
    ProductBlocks,
    VisitCosts,
    visiting_work,
)

KEPT = RESULTS / "h200_experts.json.xz"
TABLES = ("h200", "h100-sxm", "a100-80g-sxm", "l40s", "b200", "rtx-pro-6000-blackwell-server")
SKEWED = Routing(skew=1.0)  # of `h200_experts`
SKEW = 1.2  # of the tables that `read_tables` reads
TOKENS = ((64, "up to 64 tokens"), (1024, "up to 1024"), (1 << 30, "more"))
FITTED_TO = {"grouped_loads": "torch", "grouped_memory": "torch", "grouped_matrix": "torch"}
FITTED_TO |= {"expert_loads": "balanced", "expert_matrix": "vllm"}
FEW = 2  # tokens of the rows that `expert_loads` is fitted to


@dataclass(frozen=True)
class Timed:
    """A measured call."""

    source: str
    gpu: Gpu
    model: str
    tokens: int
    is_held_out: bool
    shape: Grouped | Experts
    ns: float
    blocks: ProductBlocks | None = None

    def traffic(self, shape: Grouped | Experts) -> Traffic:
        first = shape.up if isinstance(shape, Experts) else shape
        own = 0 if isinstance(shape, Experts) else first.rows * (first.n + first.k) * first.width
        return Traffic(cold=shape.moved, warm=float(own))

    def said(
        self, routing: Routing, habits: Habits = USUAL, visits: VisitCosts = FITTED_VISITS
    ) -> float:
        """The predicted time."""
        shape = routed(self.shape, routing)
        assert isinstance(shape, Grouped | Experts)
        traffic = self.traffic(shape)
        if self.blocks is None or isinstance(shape, Experts):
            return call_ns(shape, traffic, self.gpu, self.gpu.sms, habits=habits)
        work = visiting_work(shape, self.blocks, routing, visits)
        return launch_ns(work, traffic, self.gpu, self.gpu.sms)

    def off(self, habits: Habits, visits: VisitCosts = FITTED_VISITS) -> float:
        """The logarithm of the predicted over the measured time, with the routing as measured."""
        first = self.shape.up if isinstance(self.shape, Experts) else self.shape
        return log(self.said(first.routing, habits, visits) / self.ns)

    def is_in_bar(self) -> bool:
        """Whether the bar of the planner, which does not know the routing, holds."""
        times = [self.said(routing) for routing in (UNIFORM, UNEVEN)]
        said = model_duration(times, self.gpu, sure=True)
        return abs(log(said.ns / self.ns)) <= log(1.0 + said.error)


def products_of(sizes: dict[str, int], routing: Routing, wide: int = 2) -> tuple[Grouped, Grouped]:
    """The products into the experts and out of them."""
    tokens, chosen, experts = (sizes[name] for name in ("tokens", "chosen", "experts"))
    hidden, inner = sizes["hidden"], sizes["inner"]
    up = Grouped(
        tokens=tokens, chosen=chosen, experts=experts, n=wide * inner, k=hidden, routing=routing
    )
    return up, replace(up, n=hidden, k=inner)


def of_h200() -> Iterator[Timed]:
    """Products on an H200; routing is drawn by the same laws as the model's."""
    gpu = find_gpu("h200")
    for row in json.loads(lzma.decompress(KEPT.read_bytes()))["rows"]:
        if row["what"] == "block":
            continue
        routing = UNIFORM if row["routing"] == "uniform" else SKEWED
        shape = products_of(row, routing)[row["what"] == "down"]
        about = (row["model"], row["tokens"], row["held_out"])
        if row["way"] == "torch._grouped_mm":
            yield Timed("torch", gpu, *about, shape, row["ns"])
        else:
            yield Timed("triton", gpu, *about, shape, row["ns"], blocks_of(shape))


def blocks_of(shape: Grouped) -> ProductBlocks:
    """The first of the tiles from which captures choose, as `h200_experts` measured it."""
    sizes = {"rows": shape.rows, "experts": shape.experts, "inner": shape.k, "columns": shape.n}
    tiles = next(candidates(ProductSize(**sizes, bytes=2, turned=True, shared=232_448)))
    shared = 2 * (tiles.rows + tiles.columns) * tiles.inner * tiles.stages
    return ProductBlocks(
        high=tiles.rows, wide=tiles.columns, threads=32 * tiles.warps, shared=shared
    )


def of_vllm() -> Iterator[Timed]:
    """Experts in tables; some models have no gate, which tables do not say, and are left out."""
    for key, (loads, counts) in product(TABLES, LOADS.items()):
        gpu = find_gpu(key)
        tables = list(read_tables(key, TableKind.MOE, library="vllm", loads=loads))
        newest = max((rows.version for rows in tables), default="")
        tables = sorted((r for r in tables if r.version == newest), key=lambda r: r.fixed[1:])
        for place, rows in enumerate(tables):
            _, hidden, inner, chosen, experts = (
                int(part) if n else 0 for n, part in enumerate(rows.fixed)
            )
            if chosen in (6, 22):
                continue
            for (tokens, *parts), ns in zip(rows.sizes, rows.ns, strict=True):
                if parts != [1, 1]:
                    continue
                sizes = {"tokens": tokens, "chosen": chosen, "experts": experts}
                sizes |= {"hidden": hidden, "inner": inner}
                law = Routing(counts=counts(tokens, chosen, experts))
                is_held_out = key != "h200" or bool(place % 2)
                shape = Experts(*products_of(sizes, law))
                source = f"{'vllm' if loads == UNEVEN_LOADS else loads} {newest} {key}"
                model = f"{hidden} {inner} {chosen} {experts}"
                yield Timed(source, gpu, model, tokens, is_held_out, shape, ns)


def equal_loads(tokens: int, chosen: int, experts: int) -> tuple[int, ...]:
    """Rows of each expert, as equal as they can be."""
    each, more = divmod(tokens * chosen, experts)
    return tuple(each + (n < more) for n in range(experts))


def rounded_loads(tokens: int, chosen: int, experts: int) -> tuple[int, ...]:
    """Rows of each expert as aiconfigurator draws them: quantiles of a power law, rounded."""
    rows, power = tokens * chosen, 1.0 - SKEW
    low, high = (1.0, max(1.0, 0.8 * tokens)) if rows > experts else (0.01, 2.0)
    first, last = low**power, high**power
    drawn = [
        (first + (last - first) * (n + 0.5) / experts) ** (1.0 / power) for n in range(experts)
    ]
    factor = rows / sum(drawn)
    loads = sorted((min(tokens, int(x * factor + 0.5)) for x in drawn), reverse=True)
    place, rest = 0, rows - sum(loads)
    while rest:
        at, step = place % experts, 1 if rest > 0 else -1
        if 0 <= loads[at] + step <= tokens:
            loads[at] += step
            rest -= step
        place += 1
    return tuple(loads)


LOADS = {UNEVEN_LOADS: rounded_loads, "balanced": equal_loads}


def summary(rows: Sequence[Timed], habits: Habits) -> dict[str, Any]:
    """How far off, and how often the bar holds."""
    found = [row.off(habits) for row in rows]
    ordered = sorted(map(abs, found))
    return {
        "rows": len(rows),
        "median_ratio": round(exp(median(found)), 3),
        "median_factor": round(exp(median(ordered)), 3),
        "p90_factor": round(exp(ordered[int(0.9 * (len(ordered) - 1))]), 3),
        "bar_holds": round(sum(row.is_in_bar() for row in rows) / len(rows), 3),
    }


def fit(rows: Sequence[Timed]) -> Habits:
    """The habits of experts, fitted to the rows that are not held out."""
    habits = USUAL
    for source in dict.fromkeys(FITTED_TO.values()):
        own = [row for row in rows if row.source.startswith(source) and not row.is_held_out]
        if source == "balanced":
            own = [row for row in own if row.tokens <= FEW]

        def loss(trial: Habits, own: list[Timed] = own) -> float:
            return sum(bounded(row.off(trial)) for row in own)

        habits = descend(habits, [name for name, to in FITTED_TO.items() if to == source], loss)
    return habits


def judged(rows: Sequence[Timed], habits: Habits) -> dict[str, Any]:
    """Summaries by source: rows that were fitted, and those that were not, by tokens."""
    groups: dict[str, list[Timed]] = {}
    for row in rows:
        name = f"{row.source}, {'held out' if row.is_held_out else 'fitted'}"
        groups.setdefault(name, []).append(row)
        if row.is_held_out:
            few = next(words for most, words in TOKENS if row.tokens <= most)
            groups.setdefault(f"{name}, {few}", []).append(row)
    return {name: summary(some, habits) for name, some in groups.items()}


def main() -> None:
    parser = arguments(__doc__, "experts.json")
    parser.add_argument("--fit", action="store_true", help="fit, and print new constants")
    options = parser.parse_args()
    rows = [*of_h200(), *of_vllm()]
    habits = fit(rows) if options.fit else USUAL
    constants = {
        name: value
        for name, value in asdict(habits).items()
        if name.startswith(("grouped_", "expert_"))
    }
    document = {"schema": "tessera-experts/1", "constants": constants, **judged(rows, habits)}
    print(json.dumps(document, indent=1))
    write(document, options.output)


if __name__ == "__main__":
    main()
