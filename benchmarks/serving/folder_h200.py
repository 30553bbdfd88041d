"""What `tessc serve` of an 8B model folder comes to on one H200, over HTTP and below it.

    python -m benchmarks.serving.folder_h200 prepare --work FOLDER [--layers 32] [--rows 256]
    python -m benchmarks.serving.folder_h200 run --work FOLDER -o FILE [--only PARTS]

`prepare` needs torch, Triton and transformers, and no GPU: it writes a config of Llama 3 8B, whose
weights are a sparse file, captures the mixed steps of the folder and plans them. `run` needs a GPU.
Each part is a process of its own and a row of the file; what is there is not done again. Weights
are random, as transformers makes them. Clients are `benchmarks.serving.http_load`.

- `weights`: the folder as `save_pretrained` writes it.
- `start`: how long `tessc serve` takes until it answers: the first time, and once more.
- `speed`: 256 prompts of 64 to 511 tokens, answers of 128, all sent at once over HTTP: as streams,
  whole, with other lengths, and 1,024 of them.
- `checked`: those answers against the logits that transformers computes for the same tokens, in f32
  and in bf16: how far below the best token each of them is, beside what bf16 alone makes of it.
- `load`: the same requests at random times, at 20, 50 and 80% of that rate: times per token.
- `loop`: the engine in this process; the steps that it took once more, by a plain loop over the
  same inputs: every token must be the same. And each size of step alone, as a graph.
- `transformers`: continuous batching of the library, on the same prompts.

`--tiny` does the same with a small model on the CPU backend, but for graphs and `transformers`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import struct
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import Row, machine
from benchmarks.serving.over_http import behind_best, load, serving, since, steps_done

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "dtype": "bfloat16",
    "tie_word_embeddings": False,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "hidden_act": "silu",
}
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "num_hidden_layers": 1,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LOADS = (0.2, 0.5, 0.8)


def prepare(given: argparse.Namespace) -> None:
    """The config, a sparse checkpoint, and the plan of the folder's steps."""
    from tessera.driver.folder.model_folder import FolderOptions
    from tessera.driver.folder.prepare_folder import prepare_folder

    folder = given.work / "shapes"
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIG | ({"num_hidden_layers": given.layers} if not given.tiny else SMALL)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    write_sparse(folder)
    begun = time.monotonic()
    sizes = tuple(int(size) for size in given.step_tokens.split(","))
    on_cpu = {"gpus": "a100", "route": "library"}
    options = FolderOptions(
        **(on_cpu if given.tiny else {"gpus": "h200"}),  # type: ignore[arg-type]
        rows=given.rows,
        context=given.context,
        step_tokens=sizes,
    )
    prepared = prepare_folder(folder, options, lambda told: print(told, flush=True))
    shutil.copytree(Path(prepared.plan).parent, given.work / "plan", dirs_exist_ok=True)
    print("prepared in", round(time.monotonic() - begun), "s")


def write_sparse(folder: Path) -> None:
    """A checkpoint of zeros that takes no room."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=torch.bfloat16
        )
    head, at = {}, 0
    for name, tensor in model.named_parameters():
        end = at + tensor.nbytes
        head[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    raw = json.dumps(head).encode()
    with open(folder / "model.safetensors", "wb") as stream:
        stream.write(struct.pack("<Q", len(raw)) + raw)
        stream.truncate(8 + len(raw) + at)


# --- on the GPU -----------------------------------------------------------------------------------


def weights(given: argparse.Namespace) -> Row:
    """The folder as `save_pretrained` writes it."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    begun = time.monotonic()
    torch.manual_seed(0)
    with torch.device("cpu" if given.tiny else "cuda"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(given.work / "shapes"), dtype=torch.bfloat16
        )
    model.save_pretrained(given.work / "model", max_shard_size="4GB")
    return {"bytes": sum(p.nbytes for p in model.parameters()), "s": since(begun)}


def server(given: argparse.Namespace) -> AbstractContextManager[tuple[int, float]]:
    """A `tessc serve` of the plan: its port, and how long it took to answer."""
    options = [str(given.work / "plan" / "plan.tsp"), "--weights", str(given.work / "model")]
    options += ["--backend", "cpu"] if given.tiny else []
    return serving(options, given.work / "server.log")


def start(given: argparse.Namespace) -> Row:
    """The first time compiles kernels, the second finds them in the driver's cache."""
    row: Row = {}
    for which in ("first", "again"):
        with server(given) as (port, started_s):
            begun = time.monotonic()
            (answer,) = load(given.work, port, requests(given, 1, seed=9), which)
            row[which] = {"answers_s": started_s, "first_request_s": since(begun)}
            row[which]["tokens"] = len(answer["tokens"])
    return row


def requests(
    given: argparse.Namespace,
    count: int,
    *,
    seed: int,
    stream: bool = True,
    rate: float | None = None,
) -> list[dict[str, Any]]:
    """Prompts of random lengths; at once, or at random times."""
    draw = random.Random(seed)
    at, made = 0.0, []
    for _ in range(count):
        at += 0.0 if rate is None else draw.expovariate(rate)
        length = draw.randint(*((4, 40) if given.tiny else (64, 511)))
        prompt = [draw.randrange(100 if given.tiny else 128000) for _ in range(length)]
        made.append({"at": at, "prompt": prompt, "most": answer(given), "stream": stream})
    return made


def answer(given: argparse.Namespace) -> int:
    """Tokens of an answer."""
    return 12 if given.tiny else 128


def figures(answers: list[dict[str, Any]]) -> Row:
    """Rates and times of answers."""
    begun = min(answer["begun"] for answer in answers)
    over = max(answer["over"] for answer in answers)
    tokens = sum(len(answer["tokens"]) for answer in answers)
    row: Row = {"requests": len(answers), "tokens": tokens, "s": round(over - begun, 3)}
    row["tokens_per_s"] = round(tokens / (over - begun), 1)
    timed = [answer for answer in answers if len(answer["times"]) > 1]
    if timed:
        first = [answer["times"][0] - answer["begun"] for answer in timed]
        each = [(a["times"][-1] - a["times"][0]) / (len(a["times"]) - 1) for a in timed]
        row |= {"ttft_ms": spread(first), "tpot_ms": spread(each)}
    return row


def spread(values: list[float]) -> dict[str, float]:
    """Half, nine in ten, 99 in 100 of them are below, in milliseconds."""
    ordered = sorted(values)
    return {
        f"p{share}": round(1e3 * ordered[min(len(ordered) * share // 100, len(ordered) - 1)], 2)
        for share in (50, 90, 99)
    }


def speed(given: argparse.Namespace) -> Row:
    """All at once."""
    row: Row = {}
    many = 8 if given.tiny else 256
    runs = {
        "warm": requests(given, many // 4, seed=8),
        "streams": requests(given, many, seed=1),
        "streams again": requests(given, many, seed=1),
        "whole": requests(given, many, seed=1, stream=False),
        "other lengths": requests(given, many, seed=2),
        "1024": requests(given, 4 * many, seed=3),
    }
    with server(given) as (port, _):
        tokens = {}
        for name, wanted in runs.items():
            answers = load(given.work, port, wanted, name.replace(" ", "_"))
            row[name] = figures(answers)
            tokens[name] = [answer["tokens"] for answer in answers]
            print(name, row[name], file=sys.stderr, flush=True)
    (given.work / "rate").write_text(str(row["streams"]["tokens_per_s"]))
    for name in ("streams again", "whole"):
        same = sum(a == b for a, b in zip(tokens["streams"], tokens[name], strict=True))
        row[name]["answers as in streams"] = same
    return row


def load_part(given: argparse.Namespace) -> Row:
    """Requests at random times, at shares of the rate at which 256 at once were answered."""
    most = float((given.work / "rate").read_text()) / answer(given)
    row: Row = {"requests_per_s_at_most": round(most, 2)}
    with server(given) as (port, _):
        load(given.work, port, requests(given, 8, seed=8), "warm")
        for share in LOADS:
            count = max(int(most * share * given.load_s), 8)
            # Other prompts for each share, so that none finds blocks of the one before.
            wanted = requests(given, count, seed=50 + int(10 * share), rate=most * share)
            before = steps_done(port)
            row[str(share)] = figures(load(given.work, port, wanted, f"load_{share}"))
            after = steps_done(port)
            row[str(share)]["steps"] = {n: after[n] - before.get(n, 0) for n in after}
            print(share, row[str(share)], file=sys.stderr, flush=True)
    return row


def against_graphs(rows: Mapping[str, Row]) -> Row:
    """TPOT at each load beside the graphs alone: of the size that most steps had, and the mean."""
    graphs = rows.get("loop", {}).get("graphs")
    measured = rows.get("load", {})
    if not graphs:
        return {}
    made: Row = {}
    for share in map(str, LOADS):
        if share not in measured:
            continue
        steps = {name: n for name, n in measured[share]["steps"].items() if name in graphs}
        mean = sum(n * graphs[name]["ms"] for name, n in steps.items()) / sum(steps.values())
        most = max(steps, key=lambda name: steps[name])
        tpot = measured[share]["tpot_ms"]["p99"]
        made[share] = {
            "size that most steps had": most,
            "TPOT p99 to its graph": round(tpot / graphs[most]["ms"], 3),
            "TPOT p99 to the mean graph": round(tpot / mean, 3),
        }
    return {"load against graphs": made}


def loop(given: argparse.Namespace) -> Row:
    """The engine's steps once more by a plain loop, and the graph of each size alone."""
    import tessera

    options = opened(given) | {"isolated": False}
    begun = time.monotonic()
    with tessera.Engine(given.work / "plan" / "plan.tsp", **options) as engine:
        row: Row = {"engine": {"start_s": since(begun)}}
        engine.generate([[1, 2, 3]], max_tokens=3)
        steps = Recorded(engine.runtime)
        wanted = requests(given, 8 if given.tiny else 256, seed=1)
        begun = time.monotonic()
        answers = [
            engine.submit(one["prompt"], max_tokens=one["most"], ignore_end=True) for one in wanted
        ]
        tokens = sum(len(own.result(120)) for own in answers)
        row["engine"] |= {"s": since(begun), "tokens_per_s": round(tokens / since(begun), 1)}
        row["engine"] |= {"steps": dict(engine.steps_done), "ahead": engine.steps_ahead}
        steps.stop()
        row["loop"] = steps.repeat(tokens)
        row["graphs"] = {} if given.tiny else steps.graphs()
    return row


def opened(given: argparse.Namespace) -> dict[str, Any]:
    """How an engine opens the plan."""
    backend = "cpu" if given.tiny else "cuda"
    return {"weights": str(given.work / "model"), "backend": backend}


class Recorded:
    """The steps that a runtime is handed, with the tokens that they gave."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self._submit = runtime.submit
        self.steps: list[tuple[dict[str, Any], int, Any]] = []
        runtime.submit = self._noted

    def stop(self) -> None:
        """Note no more."""
        self._runtime.submit = self._submit

    def _noted(self, inputs: dict[str, Any], *, sequence: int, trace: int) -> Any:
        handle = self._submit(inputs, sequence=sequence, trace=trace)
        copied = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in inputs.items()}
        self.steps.append((copied, trace, handle))
        return handle

    def repeat(self, tokens: int) -> Row:
        """The same steps one by one; what each gives goes into the next."""
        equal, before = 0, None
        begun = time.monotonic()
        for inputs, trace, handle in self.steps:
            own = dict(inputs)
            if not isinstance(own["earlier"], np.ndarray):
                own["earlier"] = before
            (before,) = self._submit(own, sequence=0, trace=trace).result(60).values()
            equal += bool(np.array_equal(before, *handle.result().values()))
        spent = since(begun)
        return {
            "steps": len(self.steps),
            "steps with equal tokens": equal,
            "s": spent,
            "tokens_per_s": round(tokens / spent, 1),
        }

    def graphs(self, count: int = 30) -> Row:
        """Per size of step: the graph of its last full inputs, back to back, in milliseconds."""
        backend = self._runtime._serving._dispatchers[0].backend
        root = backend.replica.roots[0]
        last = {trace: inputs for inputs, trace, _ in self.steps}
        row: Row = {}
        for trace, inputs in sorted(last.items()):
            own = inputs | {"earlier": np.zeros_like(inputs["last"])}
            self._submit(own, sequence=0, trace=trace).result(60)
            ready = next(r for key, r in backend.replica.ready.items() if key[0] == trace)
            times = []
            with backend.driver.using(root.context):
                for _ in range(5):
                    begun = time.perf_counter()
                    for _ in range(count):
                        backend.driver.launch_graph(ready.graph, root.stream)
                    backend.driver.finish()
                    times.append((time.perf_counter() - begun) / count)
            used = sum(step_trace == trace for _, step_trace, _ in self.steps)
            name = self._runtime.traces[trace]
            row[name] = {"ms": round(1e3 * statistics.median(times), 3), "steps": used}
        return row


def checked(given: argparse.Namespace, count: int = 32) -> Row:
    """Answers over HTTP against the library: first without, then with blocks that were reused."""
    asked = json.loads((given.work / "streams.requests.json").read_text("utf-8"))
    row: Row = {"answers": min(count, len(asked))}
    for name in ("streams", "streams_again"):
        answers = json.loads((given.work / f"{name}.answers.json").read_text("utf-8"))
        pairs = [(a["prompt"], b["tokens"]) for a, b in zip(asked, answers, strict=True)]
        device = "cpu" if given.tiny else "cuda"
        row[name] = behind_best(given.work / "model", device, pairs[:count])
    return row


def transformers_part(given: argparse.Namespace) -> Row:
    """Continuous batching of the library on the same prompts."""
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig

    model = AutoModelForCausalLM.from_pretrained(
        given.work / "model", dtype=torch.bfloat16, device_map="cuda", attn_implementation="sdpa"
    )
    prompts = [one["prompt"] for one in requests(given, 256, seed=1)]
    config = GenerationConfig(
        max_new_tokens=answer(given),
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
        use_cuda_graph=False,
    )
    model.generate_batch(inputs=prompts[:8], generation_config=config, progress_bar=False)
    begun = time.monotonic()
    made = model.generate_batch(inputs=prompts, generation_config=config, progress_bar=False)
    spent = since(begun)
    tokens = sum(len(one.generated_tokens) for one in made.values())
    return {"tokens": tokens, "s": spent, "tokens_per_s": round(tokens / spent, 1)}


PARTS = {
    "weights": weights,
    "start": start,
    "speed": speed,
    "checked": checked,
    "load": load_part,
    "transformers": transformers_part,
    "loop": loop,
}


def main() -> None:
    parser = parser_of(__doc__, seconds=3000.0, jobs=1)
    parser.add_argument("stage", choices=("prepare", "run"))
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rows", type=int, default=256)
    parser.add_argument("--context", type=int, default=640)
    parser.add_argument("--step-tokens", default="64,128,256,512,2048")
    parser.add_argument("--load-s", type=float, default=12.0, help="seconds of each load")
    parser.add_argument("--tiny", action="store_true", help="a small model, without a GPU")
    given = parser.parse_args()
    if given.stage == "prepare":
        prepare(given)
        return
    run_cases(
        "benchmarks.serving.folder_h200",
        tuple(PARTS),
        given,
        lambda name: PARTS[name](given),
        more=(
            *("run", "--load-s", str(given.load_s)),
            *(["--tiny"] if given.tiny else []),
        ),
        sums=lambda rows: {
            "what": "Llama 3 8B from a model folder, bf16, on one GPU",
            **machine(),
            "steps": f"{given.step_tokens} tokens; {given.rows} rows; context {given.context}",
            **against_graphs(rows),
        },
    )


if __name__ == "__main__":
    main()
