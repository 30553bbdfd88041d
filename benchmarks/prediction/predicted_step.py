"""Steps of Llama 3 8B from its config file and tables alone, against what an H200 takes.

    python -m benchmarks.prediction.predicted_step measure|predict [-o FILE] [--seconds 3600]

`measure` needs a GPU and torch: the step in plain torch with the sizes of `examples/configs`,
random weights and full caches; a layer is compiled by torch.compile, the whole step is a CUDA
graph, and the row has the median of 20 replays and the kernels that take longest. Each step is
measured as serving engines have it (one product for queries, keys and values, one for gate and up:
`measured_us`) and with the products apart, as in transformers (`apart_us`). Cases that are in the
file are not measured again, and `--seconds` ends the run before the next. `predict` needs no GPU:
the same step as `tessc trace hf:` makes it, priced for an H200 by the extra `tables`. It also takes
the steps of eight layers of `real_models.json`, which were measured as plans of a capture (`ratio`)
and by the fastest mode of torch.compile (`ratio_to_torch`). What has been predicted is not
predicted again.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import RESULTS, ROOT, Row, arguments, kept, write

if TYPE_CHECKING:
    import torch

CONFIG = ROOT / "examples" / "configs" / "llama-3-8b.json"
REPLAYS = 20
WITHIN = 0.15


@dataclass(frozen=True, slots=True)
class Case:
    """A step: `batch` sequences; decode steps see `context` tokens, prefill steps read them."""

    phase: str
    batch: int
    context: int
    layers: int = 32

    @property
    def name(self) -> str:
        """Its key in the file."""
        return f"{self.phase}, batch {self.batch}, {self.context} tokens, {self.layers} layers"


@dataclass(frozen=True, slots=True)
class Weights:
    """Of each layer: queries, keys and values; out; gate and up; down."""

    values: dict[str, int]
    layers: tuple[tuple[torch.Tensor, ...], ...]
    embedding: torch.Tensor
    head: torch.Tensor


CASES = (Case("decode", 8, 1024), Case("decode", 64, 1024), Case("prefill", 1, 1024))
SMALL = {
    "decode 8 layers, batch 1, context 1k": Case("decode", 1, 1024, 8),
    "decode 8 layers, batch 8, context 1k": Case("decode", 8, 1024, 8),
}


def measure(case: Case, weights: Weights, *, merged: bool) -> dict[str, object]:
    """What a step takes on the GPU that is there: a row of the file."""
    import torch

    step = make_step(case, weights, merged=merged, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        times = []
        for _ in range(REPLAYS + 3):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
            graph.replay()
            torch.cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in seen.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            kernels.setdefault(event.name[:120], []).append(event.time_range.elapsed_us())
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:16]
    return {
        "measured_us": round(float(statistics.median(times[3:])), 1),
        "kernels": {
            name: {"launches": len(us), "median_us": round(statistics.median(us), 2)}
            for name, us in longest
        },
    }


def make_weights(layers: int, device: str) -> Weights:
    """Random ones of the model that `CONFIG` describes."""
    import torch

    values = json.loads(CONFIG.read_text())
    torch.manual_seed(0)
    hidden, inner = values["hidden_size"], values["intermediate_size"]
    width = hidden // values["num_attention_heads"]
    rows = hidden + 2 * values["num_key_value_heads"] * width

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device=device, dtype=torch.bfloat16).mul_(0.02)

    own = tuple(
        (draw(rows, hidden), draw(hidden, hidden), draw(2 * inner, hidden), draw(hidden, inner))
        for _ in range(layers)
    )
    vocabulary = values["vocab_size"]
    return Weights(values, own, draw(vocabulary, hidden), draw(vocabulary, hidden))


def make_step(
    case: Case, weights: Weights, *, merged: bool, device: str
) -> Callable[[], torch.Tensor]:
    """The step in plain torch; a layer is compiled once and called for each.

    Merged: queries, keys and values are one product, gate and up another, as serving engines have
    them. Otherwise they are products of their own, as in transformers.
    """
    import torch

    sizes_of, linear = weights.values, torch.nn.functional.linear
    hidden, inner = sizes_of["hidden_size"], sizes_of["intermediate_size"]
    heads, shared = sizes_of["num_attention_heads"], sizes_of["num_key_value_heads"]
    width = hidden // heads
    sizes = [hidden, shared * width, shared * width]
    new = 1 if case.phase == "decode" else case.context
    attend = torch.nn.functional.scaled_dot_product_attention
    ones = torch.ones(hidden, device=device, dtype=torch.bfloat16)
    states = [
        tuple(
            torch.randn((case.batch, shared, case.context, width), device=device).bfloat16()
            for _ in range(2)
        )
        for _ in weights.layers
    ]
    tokens = torch.zeros((case.batch, new), dtype=torch.long, device=device)
    places = torch.arange(case.context - new, case.context, device=device)
    turns = 500000.0 ** (-torch.arange(0, width, 2, device=device).float() / width)

    def norm(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.rms_norm(x, (hidden,), ones, 1e-5)

    def project(x: torch.Tensor, weight: torch.Tensor, parts: list[int]) -> list[torch.Tensor]:
        if merged:
            return list(linear(x, weight).split(parts, dim=-1))
        return [linear(x, part) for part in weight.split(parts)]

    def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x.view(case.batch, new, -1, width).transpose(1, 2)
        left, right = x.chunk(2, dim=-1)
        return x * cos + torch.cat((-right, left), dim=-1) * sin

    def layer(
        x: torch.Tensor,
        own: tuple[torch.Tensor, ...],
        keys: torch.Tensor,
        values: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> torch.Tensor:
        query, key, value = project(norm(x), own[0], sizes)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        value = value.view(case.batch, new, shared, width).transpose(1, 2)
        keys.index_copy_(2, places, key)
        values.index_copy_(2, places, value)
        if new == 1:
            key, value = keys, values
        out = attend(query, key, value, is_causal=new > 1, enable_gqa=True)
        x = x + linear(out.transpose(1, 2).reshape(case.batch, new, hidden), own[1])
        gate, up = project(norm(x), own[2], [inner, inner])
        return x + linear(torch.nn.functional.silu(gate) * up, own[3])

    def angles() -> tuple[torch.Tensor, torch.Tensor]:
        angle = (places[:, None] * turns).repeat(1, 2)
        return angle.cos().bfloat16(), angle.sin().bfloat16()

    once = torch.compile(layer, dynamic=False, fullgraph=True)
    turned, last = torch.compile(angles), torch.compile(norm, dynamic=False)

    def step() -> torch.Tensor:
        x = torch.nn.functional.embedding(tokens, weights.embedding)
        cos, sin = turned()
        for own, state in zip(weights.layers, states, strict=True):
            x = once(x, own, *state, cos, sin)
        return linear(last(x[:, -1:]), weights.head)

    return step


def predict(case: Case) -> dict[str, object]:
    """Microseconds by config and tables, and which part of them comes from where."""
    from tessera.driver.plan import PlanOptions
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.meta_trace import trace_fake
    from tessera.driver.traces import load_traces
    from tessera.frontend.capture.meta import hf
    from tessera.ir.plan.costs import Duration
    from tessera.planning.prices.durations import find_costs, read_profiles

    with tempfile.TemporaryDirectory() as folder:
        values = json.loads(CONFIG.read_text()) | {"num_hidden_layers": case.layers}
        path = Path(folder, "config.json")
        path.write_text(json.dumps(values))
        config = hf.read_config(path)
        step = hf.HfStep(phase=case.phase, batch=case.batch, context=case.context)
        made = trace_fake(lambda: hf.make_step(config, step), warm_ups=0)
        target = str(Path(folder, "step.ptx"))
        write_trace(made.trace, target, data=False)
        loaded = load_traces([target])
    options = PlanOptions(gpus="h200")
    costs = find_costs(loaded, options.find_machine(), options, read_profiles(loaded, options))
    sums: dict[str, float] = {}
    for row in costs[0].steps:
        cost = row.on_device[0]
        assert isinstance(cost, Duration)
        sums[cost.source.value] = sums.get(cost.source.value, 0.0) + cost.ns / 1e3
    total = sum(sums.values())
    return {
        "predicted_us": round(total, 1),
        "steps": len(costs[0].steps),
        "sources": {name: round(us / total, 3) for name, us in sums.items()},
    }


def main() -> None:
    parser = arguments(__doc__, "predicted_step.json")
    parser.add_argument("command", choices=("measure", "predict"))
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    data = kept(given.output)
    cases = {case.name: case for case in CASES}
    if given.command == "predict":
        cases |= {case.name: case for case in SMALL.values()}
        add_captured(data)
    weights = make_weights(32, "cuda") if given.command == "measure" else None
    for name, case in cases.items():
        row = data.setdefault(name, {})
        if time.monotonic() > until:
            break
        if weights is None:
            compare(row, case)
        else:
            measure_both(row, case, weights)
        print(name, row, flush=True)
        write(data, given.output)


def add_captured(data: dict[str, Row]) -> None:
    """What plans of captures took, and PyTorch: rows of `real_models.json`."""
    rows = json.loads((RESULTS / "real_models.json").read_text())["rows"]
    for row in rows.values() if isinstance(rows, dict) else rows:
        if row["case"] in SMALL and row["route"] == "auto" and "ours" in row:
            own = data.setdefault(SMALL[row["case"]].name, {})
            own |= {"machine": row["machine"], "measured": "a plan of a capture"}
            own |= {"measured_us": row["ours"], "torch_us": row["torch"]}


def compare(row: Row, case: Case) -> None:
    """Predict a case, unless that is done, and hold it against all that was measured."""
    if "predicted_us" not in row:
        row |= predict(case)
    for key, measured in (
        ("ratio", row.get("measured_us")),
        ("ratio_to_apart", row.get("apart_us")),
        ("ratio_to_torch", min(row.get("torch_us", {}).values(), default=None)),
    ):
        if measured is not None:
            row[key] = round(row["predicted_us"] / measured, 3)
            row[f"{key}_within_15_percent"] = abs(row[key] - 1) <= WITHIN


def measure_both(row: Row, case: Case, weights: Weights) -> None:
    """Measure a case with its products merged and apart, unless that is done."""
    import torch

    row["measured"] = "a layer by torch.compile, the step as a CUDA graph"
    row["machine"] = f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}"
    if "measured_us" not in row:
        row |= measure(case, weights, merged=True)
    if "apart_us" not in row:
        apart = measure(case, weights, merged=False)
        row |= {"apart_us": apart["measured_us"], "apart_kernels": apart["kernels"]}
    torch.compiler.reset()


if __name__ == "__main__":
    main()
