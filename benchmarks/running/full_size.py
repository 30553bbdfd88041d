"""A model of full size on a GPU: its checkpoint, and what it takes to get to a running plan.

    python -m benchmarks.running.full_size OUTPUT.json --work FOLDER [--model llama|olmoe]
                                   [--seconds 540] [--stages save,trace decode,again,plan,start]

Stages, each with its seconds in the output, written after each; a stage that is there is not done
again, none begins after `--seconds`, and with `--stages` only those are done. One that fails is
there with the reason, and is tried again by the next call:

- `save`: Llama 3 8B (or OLMoE 7B) with random weights, `save_pretrained` into FOLDER/checkpoint.
- `trace decode`, `again`: a decode step (batch 8, context 1024), captured twice: the second time
  from what was kept. The seconds are of the whole command; `model_s` is what it takes to load the
  checkpoint, which is no part of a capture. `parts_s` says where the time went (`sampled`).
- `analyze`, `plan`, `start`: the commands on that step alone, and `tessera.Runtime` to its first
  result, with weights from the checkpoint (`start seeded`: from a seed). `plan` is by the model of
  durations.
- `trace prefill`: a prompt of 512 tokens.
- `mix`, `verify`: both steps as one plan on two slices, kernels spread over both, and eight
  sequences through it, held against one device to the byte.
- `profile decode`, `profile prefill`: on the whole GPU and on both slices.
- `load`: the checkpoint to the GPU, by `safetensors` and by Tessera in turns, files in the page
  cache. Aim: at most 1.5 times as long.

`benchmarks.gain.real FOLDER` goes on from the same folder. `--trial`: a tiny model without a GPU.

Longer than 400 lines because stages hand files to one another, and `gain.real` uses them.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import run_stages
from benchmarks.common import tessc, write
from benchmarks.running.cuda_bench import facts
from benchmarks.running.sampled import parts_of
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.loading import Loader
from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
from tessera.frontend.contents.checkpoint import open_checkpoint
from tessera.frontend.plan.tsp import parse_plan

ALLOWED = 1.5
GPU = "h200"
SLICES = f"{GPU}:84sm,{GPU}:48sm"
KINDS = ("prefill", "decode")
MIX = "2:6"  # prompts and decode steps
SEQUENCES = 8
ON_GPU = ("profile decode", "profile prefill", "load", "start", "start seeded")
SIZES: dict[str, dict[str, Any]] = {
    "llama": {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "olmoe": {
        "vocab_size": 50304,
        "hidden_size": 2048,
        "intermediate_size": 1024,
        "num_hidden_layers": 16,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "num_experts": 64,
        "num_experts_per_tok": 8,
    },
}
_TINY = {
    "vocab_size": 512,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TRIAL = {"llama": _TINY, "olmoe": _TINY | {"num_experts": 8, "num_experts_per_tok": 2}}


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model, where its files are, and the sizes of both steps."""

    work: Path
    model: str = "llama"
    layers: int = 32
    prefill: int = 512
    batch: int = 8
    context: int = 1024
    trial: bool = False
    tuned: bool = False

    def claim(self) -> None:
        """Note these sizes in the folder; end where it has files of others."""
        own = {key: value for key, value in asdict(self).items() if key not in ("work", "tuned")}
        note = self.work / "sizes.json"
        if note.exists() and json.loads(note.read_text()) != own:
            sys.exit(f"{self.work} has files of other sizes: {note.read_text()}")
        note.write_text(json.dumps(own) + "\n")

    @property
    def checkpoint(self) -> Path:
        """The folder with the weights."""
        return self.work / "checkpoint"

    def trace(self, kind: str) -> Path:
        """The trace of a step."""
        return self.work / f"{kind}{'.tuned' * self.tuned}.ptx"

    def given(self, kind: str) -> dict[str, Any]:
        """What `step` is called with."""
        is_prefill, least = kind == "prefill", 16 if self.trial else 0
        context = self.prefill if is_prefill else self.context
        return {
            "folder": str(self.checkpoint),
            "kind": kind,
            "batch": 1 if is_prefill else self.batch,
            "context": least or context,
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--model", choices=tuple(SIZES), default="llama")
    parser.add_argument("--layers", type=int, help="all of them if not given")
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--stages", default="", help="with commas; all of them if not given")
    parser.add_argument("--trial", action="store_true", help="a tiny model, without a GPU")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    layers = given.layers or (2 if given.trial else SIZES[given.model]["num_hidden_layers"])
    size = Sizes(given.work.resolve(), given.model, layers, trial=given.trial)
    size.claim()
    machine = "a trial without a GPU" if given.trial else facts()
    result: dict[str, Any] = {
        "schema": "tessera-full-size/1",
        "machine": machine,
        "model": given.model,
        "layers": layers,
        "stages": {},
    }
    if given.output.exists():
        result = json.loads(given.output.read_text())
        if (result["model"], result["layers"]) != (given.model, layers):
            sys.exit(f"{given.output} is of {result['model']}, {result['layers']} layers")
    asked = given.stages.split(",") if given.stages else list(STAGES)
    todo = [name for name in STAGES if name in asked and not (given.trial and name in ON_GPU)]

    def keep() -> None:
        result["together"] = together(result["stages"])
        write(result, given.output)

    stages = ((name, partial(STAGES[name], size)) for name in todo)
    run_stages(result, stages, given.seconds, keep=keep, needed=("save",))
    print("together", json.dumps(result.get("together", {})), flush=True)
    wrong = [
        n for n, done in result["stages"].items() if "failed" in done or not done.get("fine", 1)
    ]
    if wrong:
        sys.exit(f"failed, or not within what is allowed: {', '.join(wrong)}")


def together(stages: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Seconds from the model to the first result, with the compile and without.

    Without what PyTorch takes to load the checkpoint.
    """
    made = {}
    for name, first in (("with_compile_s", "trace decode"), ("without_compile_s", "again")):
        parts = [stages.get(part, {}) for part in (first, "analyze", "plan", "start")]
        if all(part and "failed" not in part for part in parts):
            start = parts[3]["to_first_result_s"]["first"]
            own = sum(part["seconds"] for part in parts[:3]) - parts[0].get("model_s", 0.0)
            made[name] = round(own + start, 1)
    return made


def config(model: str, layers: int, *, trial: bool = False) -> Any:
    """The configuration of a model."""
    import transformers

    kind = {"llama": transformers.LlamaConfig, "olmoe": transformers.OlmoeConfig}[model]
    sizes = TRIAL[model] if trial else SIZES[model]
    return kind(
        **sizes | {"num_hidden_layers": layers},
        max_position_embeddings=8192,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
        dtype="bfloat16",
    )


def step(folder: str, kind: str, batch: int, context: int) -> tuple[Any, tuple[Any, ...]]:
    """A prompt of `context` tokens, or one token at the end of a cache of `context` tokens.

    For `tessc trace`. Weights have the names of the checkpoint; each kind has a cache of its own.
    """
    import torch
    import transformers

    from benchmarks.running.real_steps import cached

    begun = time.perf_counter()
    where = "cuda" if torch.cuda.is_available() else "cpu"
    whole = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = whole.to(where).eval().requires_grad_(False).model
    made = cached(model, whole.config, batch, context, context if kind == "prefill" else 1, where)
    took = time.perf_counter() - begun
    Path(folder).with_name("model_s").write_text(f"{took:.1f}\n")

    class Step(torch.nn.Module):
        """The step over a cache that is named after its kind."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model
            setattr(self, kind, made.module.cache)

        def forward(self, tokens: Any, start: Any) -> Any:
            """What the last token of every sequence is at the end."""
            cache = getattr(self, kind)
            for layer in cache.layers:
                layer.cumulative_length.copy_(start)
            out = self.model(input_ids=tokens, past_key_values=cache, use_cache=True)
            return out.last_hidden_state[:, -1].clone()

    return Step().eval(), made.inputs


def save(size: Sizes) -> dict[str, Any]:
    """A checkpoint with random weights, made on the GPU."""
    import torch
    import transformers

    from benchmarks.running.real_steps import in_bf16

    with in_bf16("cpu" if size.trial else "cuda"):
        made = config(size.model, size.layers, trial=size.trial)
        model = transformers.AutoModelForCausalLM.from_config(made)
    # Experts under the names that they have in the model, not one by one as published.
    model.save_pretrained(size.checkpoint, max_shard_size="5GB", save_original_format=False)
    del model
    if not size.trial:
        torch.cuda.empty_cache()
    files = sorted(size.checkpoint.glob("*.safetensors"))
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}


def load(size: Sizes) -> dict[str, Any]:
    """The checkpoint to the GPU, by both ways in turns."""
    folder = size.checkpoint
    for file in folder.glob("*.safetensors"):  # into the page cache
        subprocess.run(["cat", str(file)], stdout=subprocess.DEVNULL, check=True)
    theirs, ours = [], []
    for _ in range(3):
        theirs.append(by_safetensors(folder))
        ours.append(by_tessera(folder))
        print("load", theirs[-1], ours[-1], flush=True)
    ratio = statistics.median(ours) / statistics.median(theirs)
    return {"safetensors_s": theirs, "tessera_s": ours, "ratio": ratio, "fine": ratio <= ALLOWED}


def by_safetensors(folder: Path) -> float:
    """Seconds until all tensors are on the GPU."""
    import torch
    from safetensors.torch import load_file

    torch.cuda.synchronize()
    begun = time.perf_counter()
    kept = [load_file(file, device="cuda") for file in sorted(folder.glob("*.safetensors"))]
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    del kept
    torch.cuda.empty_cache()
    return seconds


def by_tessera(folder: Path) -> float:
    """The same, with headers read and checked, memory allocated and every byte in its place."""
    driver = open_driver(None)
    devices = {device.name: device for device in open_devices(driver, ("a",), {"a": "cuda:0"})}
    helpers = Helpers(driver, devices)
    try:
        begun = time.perf_counter()
        checkpoint = open_checkpoint(folder)
        contents = {name: checkpoint.read(name) for name in checkpoint.types}
        driver.use(devices["a"].context)
        base = driver.allocate(sum(-(-c.nbytes // 256) * 256 for c in contents.values()))
        loader, at = Loader(helpers), base
        for content in contents.values():
            loader.put("a", at, content, 0, content.nbytes)
            at += -(-content.nbytes // 256) * 256
        loader.finish()
        seconds = time.perf_counter() - begun
        check(driver, base, contents)
        driver.free(base)
        checkpoint.close()
    finally:
        helpers.close()
        close_devices(driver, tuple(devices.values()))
    return seconds


def check(driver: Any, base: int, contents: dict[str, Any]) -> None:
    """Every sixteenth tensor is there to the byte."""
    at = base
    for number, content in enumerate(contents.values()):
        if number % 16 == 0 and not np.array_equal(driver.download(at, content.nbytes), content):
            raise AssertionError("bytes on the GPU differ from those of the file")
        at += -(-content.nbytes // 256) * 256


def trace(size: Sizes, kind: str, *told: str) -> dict[str, Any]:
    """The capture, which leaves out what the checkpoint has."""
    words = [
        part for item in size.given(kind).items() for part in ("--set", "=".join(map(str, item)))
    ]
    weights = ("--weights", str(size.checkpoint))
    where = ("--device", "none", "--for", GPU) if size.trial else weights
    place = ("-o", str(size.trace(kind)), "--contents", "safetensors")
    note, spent = size.work / "sampled.json", children_s()
    said = tessc(
        "trace",
        f"{__file__}:step",
        *place,
        *words,
        *where,
        *told,
        by=("benchmarks.running.sampled", str(note)),
    )
    loaded = float(size.checkpoint.with_name("model_s").read_text())
    kept = [line for line in said.splitlines() if "code for" in line or "time:" in line]
    processor = round(children_s() - spent, 2)
    return {"model_s": loaded, "processor_s": processor, "said": kept, "parts_s": parts_of(note)}


def children_s() -> float:
    """Seconds of the processor that processes took which have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def profile(size: Sizes, kind: str, devices: str = f"{GPU},{SLICES}") -> dict[str, Any]:
    """Three sizes. Aim: 60 s."""
    place = size.trace(kind)
    out = ("-o", str(place.with_suffix(".json")), "--weights", str(size.checkpoint))
    tessc("profile", str(place), "--devices", devices, *out)
    return {}


def analyze(size: Sizes) -> dict[str, Any]:
    """Reads, writes and edges."""
    said = tessc("analyze", str(size.trace("decode")), "--no-graph")
    return {
        "said": [line for line in said.splitlines() if line.startswith(("  pinned", "  edges"))]
    }


def plan(size: Sizes) -> dict[str, Any]:
    """The decode step, for two slices."""
    made = ("-o", str(size.work / "decode.tsp"), "--json")
    report = json.loads(tessc("plan", str(size.trace("decode")), "--gpus", SLICES, *made))
    return {"strategy": report["strategy"], "gap": report["gap"]}


def mix(size: Sizes) -> dict[str, Any]:
    """Both steps for two slices, kernels of both spread over them."""
    traces = [
        f"{size.trace(kind)}:{part}" for kind, part in zip(KINDS, MIX.split(":"), strict=True)
    ]
    told = ("--gpus", SLICES, "--strategy", "kernel", "--sequences", str(SEQUENCES), "--json")
    report = json.loads(tessc("plan", *traces, *told, "-o", str(size.work / "mix.tsp")))
    places = [
        step["device"]
        for replica in report["replicas"]
        for placed in replica["traces"]
        for step in placed["steps"]
    ]
    counts = {device["name"]: places.count(device["name"]) for device in report["devices"]}
    return {"strategy": report["strategy"], "steps": counts}


def verify(size: Sizes) -> dict[str, Any]:
    """Sequences through the mix, held against one device."""
    path = size.work / "mix.tsp"
    given = ["--weights", str(size.checkpoint), "--verify", "--json"]
    if not size.trial:
        given += ["--map", ",".join(f"{name}={target}" for name, target in targets(path).items())]
    requests = str(sum(map(int, MIX.split(":"))) * SEQUENCES // 4)
    said = json.loads(tessc("run", str(path), *given, "--requests", requests))
    verified = said["verified"] or {}
    kept = {key: verified.get(key) for key in ("requests", "lanes", "bytes", "how")}
    notes = [note[:300] for note in verified.get("notes", ())]
    fine = kept["how"] == "to the byte"
    return {"run_s": said["seconds"], "notes": notes, "fine": fine, **kept}


def start(size: Sizes, *, seeded: bool = False) -> dict[str, Any]:
    """A runtime, to its first result."""
    weights = None if seeded else str(size.checkpoint)
    return {"to_first_result_s": first_result(size.work / "decode.tsp", weights)}


def targets(path: Path) -> dict[str, str]:
    """What stands for the devices of a plan on slices."""
    devices = parse_plan(path.read_text()).devices
    return {device.name: f"cuda:0:{device.sms}sm" for device in devices}


def first_result(path: Path, weights: str | None) -> dict[str, float]:
    """Seconds until the runtime is there, and until it has answered."""
    from safetensors import safe_open

    import tessera

    with safe_open(path.with_suffix(".safetensors"), "numpy") as recorded:
        given = {name: recorded.get_tensor(name) for name in ("tokens", "start")}
    ends = targets(path)
    begun = time.perf_counter()
    with tessera.Runtime(path, targets=ends, weights=weights) as runtime:
        ready = time.perf_counter() - begun
        runtime.submit(given).result(120)
        first = time.perf_counter() - begun
    return {"ready": round(ready, 2), "first": round(first, 2)}


STAGES: dict[str, Callable[[Sizes], dict[str, Any]]] = {
    "save": save,
    "trace decode": partial(trace, kind="decode"),
    "again": partial(trace, kind="decode"),
    "analyze": analyze,
    "plan": plan,
    "start": start,
    "trace prefill": partial(trace, kind="prefill"),
    "mix": mix,
    "verify": verify,
    "profile decode": partial(profile, kind="decode"),
    "profile prefill": partial(profile, kind="prefill"),
    "load": load,
    "start seeded": partial(start, seeded=True),
}


if __name__ == "__main__":
    main()
