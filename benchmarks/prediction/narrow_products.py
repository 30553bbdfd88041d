"""Products with weights of 4 and 8 bits: the model against the rows of aiconfigurator.

    python -m benchmarks.prediction.narrow_products [-o FILE]    # needs the extra `tables`

The tables have such products of one library each on two GPUs: TRT-LLM on an A100 (weights of 4
bits, of 8 bits, and 8-bit inputs as well: `sq`), and an older SGLang on an H100 (weights of 8
bits). That is too few for `tessc plan` to look them up, so the model prices
`tessera::quantized_linear`: 1.5 times what its bytes and products would take (`widened_product`),
between kernels that widen at no cost and these rows of the A100, nine in ten of which the bar
covers. No rows of vLLM were at hand. `bar_holds` is the part of rows inside the planner's bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from math import exp, log
from pathlib import Path
from statistics import median

from benchmarks.common import Row, arguments, write
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.costs import Duration
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences
from tessera.planning.prices.estimate_costs import estimate_costs
from tessera.planning.prices.floors import keep_possible

FILES = {"a100": "a100_sxm/gemm/trtllm/1.0.0", "h100": "h100_sxm/gemm/sglang/0.5.6.post2"}
KINDS = {"int4_wo": ("bf16", 2, "u8"), "int8_wo": ("bf16", 1, "s8"), "sq": ("s8", 1, "s8")}
EVERY = 97  # of the rows
GROUP = 128
TRACE = """//! tessera.trace 1
//! buffer x bytes={x} role=input
//! buffer w bytes={w} role=weight
//! buffer s bytes={s} role=weight
//! buffer y bytes={y} role=output
//! buffer other bytes=1000000000 role=weight
//! op tessera::quantized_linear reads=[x:bf16[{m},{k}], w:{type}[{n},{stored}], \
s:f16[{n},{groups}]] writes=[y:bf16[{m},{n}]] attrs={{"arithmetic": "{arithmetic}"}}
"""


def rows() -> Iterator[tuple[str, str, tuple[int, int, int], float]]:
    """GPU, kind, sizes and nanoseconds."""
    import pyarrow.parquet

    spec = find_spec("aiconfigurator_core")
    assert spec is not None
    assert spec.submodule_search_locations
    base = Path(spec.submodule_search_locations[0], "systems", "data")
    for gpu, place in FILES.items():
        columns = pyarrow.parquet.read_table(base / place / "gemm_perf.parquet").to_pydict()
        names = ("gemm_dtype", "m", "n", "k", "latency")
        listed = zip(*(columns[name] for name in names), strict=True)
        narrow = [row for row in listed if row[0] in KINDS and not row[3] % GROUP]
        for kind, m, n, k, latency in sorted(narrow)[::EVERY]:
            yield gpu, kind, (m, n, k), 1e6 * latency


def said(gpu: str, kind: str, sizes: tuple[int, int, int]) -> Duration:
    """The model's time of such a product."""
    m, n, k = sizes
    arithmetic, packed, type_ = KINDS[kind]
    groups = k // GROUP if packed == 2 else 1
    text = TRACE.format(
        x=2 * m * k, w=n * k // packed, s=2 * n * groups, y=2 * m * n, m=m, n=n, k=k,
        stored=k // packed, groups=groups, type=type_, arithmetic=arithmetic,
    )  # fmt: skip
    program = parse_trace(text)
    graph = AnalysisManager(program).get(Dependences).graph
    machine = machine_of(gpu)
    (step,) = keep_possible(estimate_costs(program, graph, machine), machine).steps
    (cost,) = step.on_device
    assert isinstance(cost, Duration)
    return cost


def main() -> None:
    options = arguments(__doc__, "narrow_products.json").parse_args()
    groups: dict[str, list[tuple[float, bool]]] = {}
    for gpu, kind, sizes, ns in rows():
        cost = said(gpu, kind, sizes)
        off = log(cost.ns / ns)
        many = "up to 64 rows" if sizes[0] <= 64 else "more"
        groups.setdefault(f"{gpu} {kind}, {many}", []).append(
            (off, abs(off) <= log(1.0 + cost.error))
        )
    document: dict[str, Row] = {}
    for name, found in groups.items():
        apart = sorted(abs(off) for off, _ in found)
        document[name] = {
            "rows": len(found),
            "median_ratio": round(exp(median(off for off, _ in found)), 3),
            "median_factor": round(exp(median(apart)), 3),
            "p90_factor": round(exp(apart[int(0.9 * (len(apart) - 1))]), 3),
            "bar_holds": round(sum(holds for _, holds in found) / len(found), 3),
        }
        print(name, document[name], flush=True)
    write({"schema": "tessera-narrow-products/1", **document}, options.output)


if __name__ == "__main__":
    main()
