"""A model of full size on a GPU: its checkpoint, and what it takes to get to a running plan.

    python -m benchmarks.full_size OUTPUT.json --work FOLDER [--layers 32] [--seconds 540]
                                   [--stages save,trace,again,analyze,plan,start]

Stages, each with its seconds in the output, written after each; a stage that is there is not done
again, none begins after `--seconds`, and with `--stages` only those are done:

- `save`: Llama 3 8B with random weights, `save_pretrained` into FOLDER/checkpoint.
- `load`: the same files to the GPU, by `safetensors` and by Tessera in turns, three times each,
  files in the page cache. Aim: at most 1.5 times as long.
- `seeds`: contents from a seed on the GPU, held against the host's to the byte, for all types.
- `trace`, `again`: a decode step (batch 8, context 1024), captured twice: the second time from what
  was kept.
- `analyze`, `profile`, `plan`: the commands; a plan without a profile is by the model of durations.
- `start`: `tessera.Runtime(plan, weights=checkpoint)`, to its first result; and seeded, without
  the checkpoint.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cuda_bench import facts
from tessera.backend.cuda.helpers import Helpers
from tessera.backend.cuda.loading import _KINDS, Loader
from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
from tessera.frontend.contents.checkpoint import open_checkpoint
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.program.program import Buffer, BufferId, Role
from tessera.ir.program.seeded import Seeded

ALLOWED = 1.5
SLICES = "h200:84sm,h200:48sm"
BATCH, CONTEXT = 8, 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("output", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--stages", default="", help="with commas; all of them if not given")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + given.seconds
    result: dict[str, Any] = {"machine": facts(), "layers": given.layers, "stages": {}}
    if given.output.exists():
        result = json.loads(given.output.read_text())
    stages: dict[str, Callable[[Path, int], dict[str, Any]]] = {
        "save": save,
        "load": load,
        "seeds": seeds,
        "trace": trace,
        "again": trace,
        "analyze": analyze,
        "profile": profile,
        "plan": plan,
        "start": start,
    }
    for name, stage in stages.items():
        if name in result["stages"] or (given.stages and name not in given.stages.split(",")):
            continue
        if time.monotonic() > ends:
            print(f"no time for `{name}` and what follows", file=sys.stderr)
            break
        begun = time.perf_counter()
        done = stage(given.work, given.layers)
        result["stages"][name] = {"seconds": round(time.perf_counter() - begun, 2), **done}
        print(name, result["stages"][name], flush=True)
        given.output.parent.mkdir(parents=True, exist_ok=True)
        given.output.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n")
    wrong = [name for name, done in result["stages"].items() if done.get("fine") is False]
    if wrong:
        sys.exit(f"not within what is allowed: {', '.join(wrong)}")


def config(layers: int) -> Any:
    """The sizes of Llama 3 8B."""
    import transformers

    return transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=layers,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        tie_word_embeddings=False,
        attn_implementation="sdpa",
        dtype="bfloat16",
    )


def decode(folder: str, batch: int = BATCH, context: int = CONTEXT) -> tuple[Any, Any]:
    """A decode step of the model in a checkpoint, for `tessc trace`."""
    import torch
    import transformers

    model = transformers.LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    model = model.cuda().eval()
    cache = transformers.StaticCache(config=model.config, max_cache_len=context + 64)
    prompt = torch.randint(0, 1000, (batch, context), device="cuda")
    with torch.no_grad():
        model(input_ids=prompt, past_key_values=cache, use_cache=True, logits_to_keep=1)

    class Step(torch.nn.Module):
        """One token for every sequence."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, tokens: Any) -> Any:
            """The logits of the next token."""
            return self.model(input_ids=tokens, past_key_values=cache, use_cache=True).logits

    return Step(), (torch.randint(0, 1000, (batch, 1), device="cuda"),)


def save(work: Path, layers: int) -> dict[str, Any]:
    """A checkpoint with random weights, made on the GPU."""
    import torch
    import transformers

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config(layers)).to(torch.bfloat16)
    folder = work / "checkpoint"
    model.save_pretrained(folder, max_shard_size="5GB")
    del model
    torch.cuda.empty_cache()
    files = sorted(folder.glob("*.safetensors"))
    return {"files": len(files), "bytes": sum(file.stat().st_size for file in files)}


def load(work: Path, layers: int) -> dict[str, Any]:
    """The checkpoint to the GPU, by both ways in turns."""
    folder = work / "checkpoint"
    for file in folder.glob("*.safetensors"):  # into the page cache
        subprocess.run(["cat", str(file)], stdout=subprocess.DEVNULL, check=True)
    theirs, ours = [], []
    for _ in range(3):
        theirs.append(by_safetensors(folder))
        ours.append(by_tessera(folder))
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


def seeds(work: Path, layers: int) -> dict[str, Any]:
    """Contents from a seed, on the GPU and on the host."""
    driver = open_driver(None)
    devices = {device.name: device for device in open_devices(driver, ("a",), {"a": "cuda:0"})}
    helpers = Helpers(driver, devices)
    equal: dict[str, bool] = {}
    size = 64 << 20
    try:
        driver.use(devices["a"].context)
        address = driver.allocate(size)
        for dtype in _KINDS:
            buffer = Buffer(id=BufferId(0), name="w", bytes=size, role=Role.WEIGHT, dtype=dtype)
            seeded = Seeded(buffer, 7)
            loader = Loader(helpers)
            loader.put("a", address, seeded, 0, size)
            loader.finish()
            made = driver.download(address, size)
            equal[dtype.value] = bool(np.array_equal(made, seeded.read()))
        driver.free(address)
    finally:
        helpers.close()
        close_devices(driver, tuple(devices.values()))
    return {"bytes_each": size, "equal": equal, "fine": all(equal.values())}


def tessc(*arguments: str) -> None:
    """A command of Tessera; its output is shown."""
    subprocess.run([sys.executable, "-m", "tessera", *arguments], check=True)


def trace(work: Path, layers: int) -> dict[str, Any]:
    """The capture, which leaves out what the checkpoint has."""
    folder = work / "checkpoint"
    wanted = f"{__file__}:decode"
    out = ("-o", str(work / "decode.ptx"), "--contents", "safetensors", "--weights", str(folder))
    tessc("trace", wanted, *out, "--set", f"folder={folder}")
    return {"contents_bytes": (work / "decode.safetensors").stat().st_size}


def analyze(work: Path, layers: int) -> dict[str, Any]:
    """Reads, writes and edges."""
    tessc("analyze", str(work / "decode.ptx"), "--no-graph")
    return {}


def profile(work: Path, layers: int) -> dict[str, Any]:
    """Three sizes. Aim: 60 s."""
    out = ("-o", str(work / "profile.json"), "--weights", str(work / "checkpoint"))
    tessc("profile", str(work / "decode.ptx"), "--devices", f"h200,{SLICES}", *out)
    return {}


def plan(work: Path, layers: int) -> dict[str, Any]:
    """For two slices."""
    times = work / "profile.json"
    measured = ("--profile", str(times)) if times.exists() else ()
    made = (*measured, "-o", str(work / "plan.tsp"))
    tessc("plan", str(work / "decode.ptx"), "--gpus", SLICES, *made)
    return {"profiled": times.exists()}


def start(work: Path, layers: int) -> dict[str, Any]:
    """A runtime, to its first result."""
    seconds = {}
    for name, weights in (("seeded", None), ("checkpoint", str(work / "checkpoint"))):
        seconds[name] = first_result(work / "plan.tsp", weights)
    return {"to_first_result_s": seconds}


def first_result(path: Path, weights: str | None) -> dict[str, float]:
    """Seconds until the runtime is there, and until it has answered."""
    import tessera

    devices = parse_plan(path.read_text()).devices
    targets = {device.name: f"cuda:0:{device.sms}sm" for device in devices}
    begun = time.perf_counter()
    with tessera.Runtime(path, targets=targets, weights=weights) as runtime:
        ready = time.perf_counter() - begun
        wanted = [b for b in runtime._programs[0].buffers if b.role is Role.INPUT]
        runtime.submit({buffer.name: Seeded(buffer, 0).read() for buffer in wanted}).result(120)
        return {"ready": ready, "first": time.perf_counter() - begun}


if __name__ == "__main__":
    main()
