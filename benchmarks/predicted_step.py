"""Steps of Llama 3 8B from its config file and tables alone, against what an H200 takes.

    python -m benchmarks.predicted_step measure -o benchmarks/results/predicted_step.json
    python -m benchmarks.predicted_step predict -o benchmarks/results/predicted_step.json

`measure` needs a GPU, torch and transformers: the model is made from `examples/configs` with random
weights; its layers are compiled one by one by torch.compile, the whole step is a CUDA graph, and
the row has the median of 20 replays. Cases that are in the file are not measured again, and
`--seconds` ends the run before the next. `predict` needs no GPU: the same step as `tessc trace hf:`
makes it, priced for an H200 by the extra `tables`. It also takes the steps of eight layers of
`real_models.json`, which were measured as plans of a capture (`ratio`) and by the fastest mode of
torch.compile (`ratio_to_torch`), and those of `serving_gpu.json`: the step of a model that is
served (`ratio_to_served`; one graph, caches of 1024 tokens). What has been predicted is not
predicted again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples" / "configs" / "llama-3-8b.json"
REAL = ROOT / "benchmarks" / "results" / "real_models.json"
SERVING = ROOT / "benchmarks" / "results" / "serving_gpu.json"
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


CASES = (Case("decode", 8, 1024), Case("decode", 64, 1024), Case("prefill", 1, 1024))
SMALL = {
    "decode 8 layers, batch 1, context 1k": Case("decode", 1, 1024, 8),
    "decode 8 layers, batch 8, context 1k": Case("decode", 8, 1024, 8),
}
SERVED = {
    "8-layers-8-rows": Case("decode", 8, 1024, 8),
    "8-layers-64-rows": Case("decode", 64, 1024, 8),
}


def measure(case: Case) -> float:
    """Microseconds of a step on the GPU that is there."""
    import torch
    import transformers

    torch.manual_seed(0)
    values = json.loads(CONFIG.read_text()) | {"num_hidden_layers": case.layers}
    config = transformers.LlamaConfig(**values)
    new = 1 if case.phase == "decode" else case.context
    attend = torch.nn.functional.scaled_dot_product_attention

    def attention(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *_: object,
        **__: object,
    ) -> tuple[torch.Tensor, None]:
        """Over a cache that is full but for the new token; heads are shared, not copied."""
        if new == 1:
            module.keys[:, :, -1:] = key
            module.values[:, :, -1:] = value
            key, value = module.keys, module.values
        out = attend(query, key, value, is_causal=new > 1, enable_gqa=True)
        return out.transpose(1, 2).contiguous(), None

    transformers.AttentionInterface.register("whole_cache", attention)
    with torch.device("cuda"), torch.no_grad():
        model = transformers.LlamaForCausalLM._from_config(
            config, dtype=torch.bfloat16, attn_implementation="whole_cache"
        ).eval()
        heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        for layer in model.model.layers:
            if new == 1:
                for name in ("keys", "values"):
                    cache = torch.randn(case.batch, heads, case.context, width).bfloat16()
                    layer.self_attn.register_buffer(name, cache)
            layer.compile(dynamic=False)
        tokens = torch.zeros((case.batch, new), dtype=torch.long)
        places = torch.arange(case.context - new, case.context).repeat(case.batch, 1)

        def step() -> object:
            return model(
                input_ids=tokens, position_ids=places, use_cache=False, logits_to_keep=1
            ).logits

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
    return float(statistics.median(times[3:]))


def predict(case: Case) -> dict[str, object]:
    """Microseconds by config and tables, and which part of them comes from where."""
    from tessera.driver.plan.durations import find_costs, read_profiles
    from tessera.driver.plan.make_plan import PlanOptions
    from tessera.driver.plan.traces import load_traces
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.meta_trace import trace_fake
    from tessera.frontend.capture.meta import hf
    from tessera.ir.plan.costs import Duration

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
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=("measure", "predict"))
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    begun = time.perf_counter()
    data = json.loads(given.output.read_text()) if given.output.exists() else {}
    cases = {case.name: case for case in CASES}
    if given.command == "predict":
        cases |= {case.name: case for case in SMALL.values()}
        cases |= {case.name: case for case in SERVED.values()}
        for name, run in json.loads(SERVING.read_text())["runs"].items():
            if name in SERVED and "speed" in run:
                own = data.setdefault(SERVED[name].name, {})
                own["served_us"] = run["speed"]["batches 1"]["bare_us"]
        for row in json.loads(REAL.read_text())["rows"]:
            if row["case"] in SMALL and "ours" in row:
                own = data.setdefault(SMALL[row["case"]].name, {})
                own |= {"machine": row["machine"], "measured_us": row["ours"],
                        "measured": "a plan of a capture", "torch_us": row["torch"]}  # fmt: skip
    for name, case in cases.items():
        row = data.setdefault(name, {})
        if time.perf_counter() - begun > given.seconds:
            break
        if given.command == "predict":
            if "predicted_us" not in row:
                row |= predict(case)
            for key, measured in (
                ("ratio", row.get("measured_us")),
                ("ratio_to_served", row.get("served_us")),
                ("ratio_to_torch", min(row.get("torch_us", {}).values(), default=None)),
            ):
                if measured is not None:
                    row[key] = round(row["predicted_us"] / measured, 3)
                    row[f"{key}_within_15_percent"] = abs(row[key] - 1) <= WITHIN
            row.pop("within_15_percent", None)
        elif "measured_us" not in row:
            import torch

            row["measured_us"] = round(measure(case), 1)
            row["measured"] = "layers by torch.compile, the step as a CUDA graph"
            row["machine"] = f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}"
        print(name, row, flush=True)
        given.output.write_text(json.dumps(data, indent=1) + "\n")


if __name__ == "__main__":
    main()
