"""Steps of twelve models that are not Llama, at real width: predicted first, then measured.

    python -m benchmarks.prediction.unseen_steps capture --work FOLDER -o FILE    # on a GPU
    python -m benchmarks.prediction.unseen_steps predict --work FOLDER
    python -m benchmarks.prediction.unseen_steps measure --work FOLDER -o FILE    # on a GPU
    python -m benchmarks.prediction.unseen_steps compare --work FOLDER

The models are those of the transformers library with random weights, few layers and their real
widths; `mmdit` is that of `examples/models`, `fp8` a Qwen3-8B whose products are of 8-bit numbers
with scales. `capture` writes a trace per step, as `tessc trace` does by default, and measures
nothing but what the capture itself chooses by. `predict` has the planner say how long each trace
takes on an H200, without a profile, and writes `results/unseen_steps.json`, committed before
`measure`: it captures each step again and measures the captured graph.
All steps are captured at once; when the last one is, they are measured one after the other.
`compare` puts the times beside the predictions; nothing that was predicted is changed.

Longer than 400 lines because each of the twelve models is made by a function of its own.
"""

# torch has no types here.
# mypy: ignore-errors

from __future__ import annotations

import fcntl
import json
import lzma
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import MODELS, RESULTS, Row, kept, machine, tessc, write

RESULT = RESULTS / "unseen_steps.json"
NEAR, WITHIN = 0.12, 0.25
CAPTURED = ".captured"
Step = tuple[Any, tuple[Any, ...]]


def made(kind: str, config: str, **sizes: Any) -> Any:
    """A model with random weights in bf16 on the GPU."""
    import torch
    import transformers

    from benchmarks.running.real_steps import in_bf16

    with in_bf16():
        whole = getattr(transformers, config)(**sizes)
        model = getattr(transformers, kind)(whole)
    for name, weight in model.named_parameters():
        if name.endswith((".gate.weight", ".router.weight")):
            torch.nn.init.normal_(weight, std=0.05)
    return model.eval().requires_grad_(False)


def decode(kind: str, config: str, batch: int, context: int, **sizes: Any) -> Step:
    """A token of every sequence at the end of a static cache."""
    from benchmarks.running.real_steps import cached

    model = made(kind, config, **sizes)
    step = cached(model, model.config, batch, context, 1)
    return step.module, step.inputs


def prompt(kind: str, config: str, batch: int, tokens: int, **sizes: Any) -> Step:
    """Prompts without a cache; the last token counts."""
    import torch

    model = made(kind, config, **sizes)

    class Last(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any) -> Any:
            return self.model(input_ids=tokens, use_cache=False).last_hidden_state[:, -1].clone()

    given = torch.randint(0, model.config.vocab_size, (batch, tokens), device="cuda")
    return Last(), (given,)


def seen(kind: str, config: str, shape: tuple[int, ...], part: str = "", **sizes: Any) -> Step:
    """An encoder of images or of sound, or that part of a model."""
    import torch

    model = made(kind, config, **sizes).get_submodule(part)

    class States(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, given: Any) -> Any:
            return self.model(given).last_hidden_state

    return States(), (torch.randn(shape, device="cuda", dtype=torch.bfloat16),)


def diffusion(**sizes: int) -> Step:
    """A denoising step of the example."""
    import torch

    from tessera.frontend.capture.model_file import find_model, load_model

    with torch.device("cuda"):
        model, inputs = load_model(find_model(str(MODELS / "mmdit.py:step")), dict(sizes))
    return model, tuple(inputs.plain)


def in_8_bits(batch: int, context: int, **sizes: Any) -> Step:
    """A decode step whose products are of 8-bit numbers, a scale per row and per column."""
    import torch

    module, inputs = decode("Qwen3Model", "Qwen3Config", batch, context, **sizes)

    class Product(torch.nn.Module):
        def __init__(self, linear: Any) -> None:
            super().__init__()
            scale = linear.weight.abs().amax(1, keepdim=True).float() / 448
            self.register_buffer("weight", (linear.weight / scale).to(torch.float8_e4m3fn))
            self.register_buffer("scale", scale.t().contiguous())

        def forward(self, x: Any) -> Any:
            rows = x.reshape(-1, x.shape[-1])
            scale = rows.abs().amax(1, keepdim=True).float().clamp(min=1e-6) / 448
            narrow = (rows / scale).to(torch.float8_e4m3fn)
            wide = torch._scaled_mm(
                narrow, self.weight.t(), scale, self.scale, out_dtype=torch.bfloat16
            )
            return wide.reshape(*x.shape[:-1], -1)

    for part in list(module.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, torch.nn.Linear):
                setattr(part, name, Product(child))
    return module, inputs


HEADS = {"num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128}
STEPS: dict[str, Callable[[], Step]] = {
    "qwen3-moe decode": partial(
        decode,
        "Qwen3MoeModel",
        "Qwen3MoeConfig",
        16,
        1024,
        vocab_size=151936,
        hidden_size=2048,
        num_hidden_layers=6,
        num_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=768,
        **HEADS,
    ),
    "mixtral decode": partial(
        decode,
        "MixtralModel",
        "MixtralConfig",
        32,
        2048,
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=4,
        num_attention_heads=32,
        num_key_value_heads=8,
        num_local_experts=8,
        num_experts_per_tok=2,
        sliding_window=None,
    ),
    "gpt-oss prompt": partial(
        prompt,
        "GptOssModel",
        "GptOssConfig",
        1,
        512,
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=4,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        num_local_experts=32,
        num_experts_per_tok=4,
    ),
    "glm-4.5-air decode": partial(
        decode,
        "Glm4MoeModel",
        "Glm4MoeConfig",
        32,
        1024,
        vocab_size=151552,
        hidden_size=4096,
        intermediate_size=10944,
        num_hidden_layers=5,
        num_attention_heads=96,
        num_key_value_heads=8,
        head_dim=128,
        n_routed_experts=128,
        num_experts_per_tok=8,
        n_shared_experts=1,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
    "olmoe prompt": partial(
        prompt,
        "OlmoeModel",
        "OlmoeConfig",
        1,
        1024,
        vocab_size=50304,
        hidden_size=2048,
        intermediate_size=1024,
        num_hidden_layers=6,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_experts=64,
        num_experts_per_tok=8,
    ),
    "deepseek-v2-lite prompt": partial(
        prompt,
        "DeepseekV2Model",
        "DeepseekV2Config",
        1,
        1024,
        vocab_size=102400,
        hidden_size=2048,
        intermediate_size=10944,
        num_hidden_layers=5,
        num_attention_heads=16,
        num_key_value_heads=16,
        q_lora_rank=None,
        kv_lora_rank=512,
        qk_rope_head_dim=64,
        qk_nope_head_dim=128,
        v_head_dim=128,
        n_routed_experts=64,
        num_experts_per_tok=6,
        n_shared_experts=2,
        n_group=1,
        topk_group=1,
        moe_intermediate_size=1408,
        first_k_dense_replace=1,
    ),
    "gemma-3 prompt": partial(
        prompt,
        "Gemma3TextModel",
        "Gemma3TextConfig",
        1,
        2048,
        vocab_size=262208,
        hidden_size=2560,
        intermediate_size=10240,
        num_hidden_layers=6,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        sliding_window=1024,
    ),
    "mamba2 prompt": partial(
        prompt,
        "Mamba2Model",
        "Mamba2Config",
        1,
        1024,
        vocab_size=50288,
        hidden_size=2560,
        num_hidden_layers=6,
        num_heads=80,
        head_dim=64,
        state_size=128,
        n_groups=1,
        chunk_size=256,
    ),
    "vit image": partial(
        seen,
        "ViTModel",
        "ViTConfig",
        (16, 3, 224, 224),
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=12,
        num_attention_heads=16,
        patch_size=16,
        image_size=224,
    ),
    "whisper sound": partial(
        seen,
        "WhisperModel",
        "WhisperConfig",
        (2, 128, 3000),
        "encoder",
        decoder_layers=1,
        decoder_attention_heads=20,
        d_model=1280,
        encoder_layers=8,
        encoder_attention_heads=20,
        encoder_ffn_dim=5120,
        num_mel_bins=128,
    ),
    "mmdit image": partial(diffusion, hidden=3072, layers=4, heads=24, text=128, image=2304),
    "qwen3 in 8 bits, decode": partial(
        in_8_bits,
        24,
        2048,
        vocab_size=151936,
        hidden_size=4096,
        intermediate_size=12288,
        num_hidden_layers=6,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
    ),
}

ROUNDS, ROUND_NS, PROFILED = 7, 50e6, 5

# The code generator of PyTorch 2.11 fails on this step; by this route it runs its operators.
ROUTES = {"mamba2 prompt": "eager"}


def file_of(work: Path, name: str, ending: str) -> Path:
    return work / f"{name.replace(' ', '_').replace(',', '')}{ending}"


def measure(call: Any, row: Row) -> None:
    """Nanoseconds of the captured graph, many of them after each other; and of its kernels."""
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        once = replayed(call.graph, stream, 1)[0]
        count = int(min(200, max(5, ROUND_NS // once)))
        replayed(call.graph, stream, count)  # the clock rises
        found = [replayed(call.graph, stream, count) for _ in range(ROUNDS)]
        times = [ns for ns, _ in found]
        middle = statistics.median(times)
        spread = statistics.mean(abs(ns - middle) for ns in times) / middle
        row["rounds_ns"].append(round(middle, 1))
        row |= {"ns": min(row["rounds_ns"]), "spread": round(spread, 4), "replays": count}
        row["host_ns"] = round(statistics.median(host for _, host in found), 1)
        row["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
        try:
            row["kernels"] = kernels_of(call.graph, stream)
        except Exception as problem:  # the profiler needs rights that not every machine gives
            row["kernels"] = f"{type(problem).__name__}: {problem}"[:200]


def replayed(graph: Any, stream: Any, count: int) -> tuple[float, float]:
    """Nanoseconds of a graph: on the GPU, and of the host for its submission."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    stream.synchronize()
    begin.record(stream)
    begun = time.monotonic_ns()
    for _ in range(count):
        graph.replay()
    host = (time.monotonic_ns() - begun) / count
    end.record(stream)
    end.synchronize()
    return begin.elapsed_time(end) * 1e6 / count, host


def kernels_of(graph: Any, stream: Any) -> list[tuple[str, float]]:
    """Names of what a replay runs, in order, and nanoseconds: medians of a few replays."""
    import torch

    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profiler:
        for _ in range(PROFILED):
            graph.replay()
        stream.synchronize()
    events = sorted(
        (event.time_range.start, event.name[:120], 1e3 * event.time_range.elapsed_us())
        for event in profiler.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
    )
    each = len(events) // PROFILED
    assert each * PROFILED == len(events), f"{len(events)} kernels of {PROFILED} replays"
    several = [events[number::each] for number in range(each)]
    return [(one[0][1], round(statistics.median(ns for *_, ns in one), 1)) for one in several]


def on_gpu(work: Path, name: str, *, is_measured: bool = False) -> Row:
    """Capture a step; its trace is a file. Measured or not."""
    import torch

    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace.build import draft_program, settle_roles
    from tessera.driver.trace.hints import with_hints
    from tessera.frontend.capture.inputs import Inputs
    from tessera.frontend.capture.session import on_one_gpu
    from tessera.ir.program.print_trace import print_program

    function, given = STEPS[name]()
    inputs = Inputs(plain=given)
    begun = time.monotonic()
    # As `tracing.trace`, but the graph is kept.
    with on_one_gpu(function, inputs):
        route = ROUTES.get(name, "auto")
        call = tracing._capture(function, inputs, tracing.TraceOptions(route=route, data=False))
        draft = draft_program(call.raw, call.read)
        ran = call.run((b.name for b in draft.program.declared_buffers()), data=False)
        program = with_hints(settle_roles(draft, call.raw, ran.changed))
    text = print_program(program).encode()
    file_of(work, name, ".ptx.xz").write_bytes(lzma.compress(text, preset=2))
    row: Row = {
        "steps": sum(1 for _ in program.work()),
        "capture_s": round(time.monotonic() - begun, 1),
        "machine": f"{torch.cuda.get_device_name()}, torch {torch.__version__}",
    }
    if is_measured:
        row["rounds_ns"] = []
        with alone(work, name):
            for _ in range(2):
                measure(call, row)
        write(row, file_of(work, name, ".json"))
    return {key: value for key, value in row.items() if key != "kernels"}


@contextmanager
def alone(work: Path, name: str) -> Iterator[None]:
    """Inside, no other step is captured or measured: all wait for all captures, then take turns."""
    file_of(work, name, CAPTURED).touch()
    while not all(file_of(work, each, CAPTURED).exists() for each in STEPS):
        time.sleep(0.2)
    with (work / "turn").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


def measured(work: Path, name: str) -> Row:
    """A step, captured and measured; one that fails holds up no other."""
    try:
        return on_gpu(work, name, is_measured=True)
    finally:
        file_of(work, name, CAPTURED).touch()


def predict(work: Path) -> None:
    """What the planner says of each trace for an H200, without a profile."""
    rows = kept(RESULT).get("rows", {})
    for name in STEPS:
        path = file_of(work, name, ".ptx.xz")
        if path.exists() and "measured_ns" not in rows.get(name, {}):
            rows[name] = said(path)
            print(name, rows[name], flush=True)
    write({"schema": "tessera-unseen-steps/1", "predicted_at": machine(), "rows": rows}, RESULT)


def said(packed: Path, *more: str) -> Row:
    """The prediction for a trace: the time of its steps, its bar, and where durations come from."""
    path = packed.with_suffix("")
    path.write_bytes(lzma.decompress(packed.read_bytes()))
    out = str(path.with_suffix(".tsp"))
    plan = ("--gpus", "h200", "--objective", "latency", "-o", out, *more)
    report = json.loads(tessc("plan", str(path), *plan, "--json"))
    (device,) = report["devices"]
    # A captured graph has no copies of inputs and results: the bar is that of the plan, scaled.
    part = device["busy_ns"] / report["latency_ns"]
    return {
        "predicted_ns": round(device["busy_ns"], 1),
        "bar": [round(part * report[end], 1) for end in ("low", "high")],
        "steps": sum(len(t["steps"]) for r in report["replicas"] for t in r["traces"]),
        "sources": report["sources"],
    }


def compare(work: Path) -> None:
    """The measured times beside the predictions."""
    document = json.loads(RESULT.read_text())
    for name, row in document["rows"].items():
        path = file_of(work, name, ".json")
        if path.exists():
            found = json.loads(path.read_text())
            row |= {"measured_ns": found["ns"], "machine": found["machine"]}
            row["ratio"] = round(row["predicted_ns"] / found["ns"], 3)
            low, high = row["bar"]
            row["bar_holds"] = low <= found["ns"] <= high
            print(name, row, flush=True)
    off = [abs(row["ratio"] - 1) for row in document["rows"].values() if "ratio" in row]
    document["within_25_percent"] = sum(one <= WITHIN for one in off)
    document["within_12_percent"] = sum(one <= NEAR for one in off)
    write(document, RESULT)


def main() -> None:
    parser = parser_of(__doc__, seconds=420.0, jobs=len(STEPS))
    parser.add_argument("stage", choices=("capture", "predict", "measure", "compare"))
    options = parser.parse_args()
    if options.stage in ("predict", "compare"):
        {"predict": predict, "compare": compare}[options.stage](options.work)
        return
    run_cases(
        "benchmarks.prediction.unseen_steps",
        tuple(STEPS),
        options,
        partial(measured if options.stage == "measure" else on_gpu, options.work),
        more=(options.stage,),
    )


if __name__ == "__main__":
    main()
