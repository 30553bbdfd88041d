"""`tessc serve FOLDER` from an empty cache on a GPU machine: kinds of folders, against the library.

    python -m benchmarks.serving.folder_kinds --work FOLDER -o FILE [--jobs 5] [--tiny]

Each case writes a folder of random weights by `save_pretrained`, serves it with an empty cache
folder, asks, ends the server, and does so once more with what was kept. Needs a GPU, torch, Triton
and transformers. Weights of `fp8` and `awq` are codes and scales that `tests/helpers` writes, and
the library gets the weights that they stand for. In f32 tokens are compared with `generate`, in
bf16 with the logits of the library (`behind_best`), too. `--tiny`: smaller, on the CPU backend.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import Row, machine
from benchmarks.serving.over_http import behind_best, load, serving, since
from tests.helpers.quantized_folders import by_columns, float8, write_folder

BASE: dict[str, Any] = {
    "vocab_size": 4096,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}
LARGE = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
KINDS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "llama of 1B": ("llama", LARGE, None),
    "llama": ("llama", {}, None),
    "fp8": ("llama", {}, (FP8, float8(128, 128, "weight_scale_inv"))),
    "awq": ("llama", {}, (AWQ, by_columns(4, 128, awq=True))),
    "experts": (
        "qwen3_moe",
        {
            "num_experts": 8,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 512,
            "decoder_sparse_step": 1,
        },
        None,
    ),
    "states beside attention": (
        "falcon_h1",
        {
            "mamba_d_ssm": 512,
            "mamba_n_heads": 8,
            "mamba_d_head": 64,
            "mamba_d_state": 64,
            "mamba_chunk_size": 32,
        },
        None,
    ),
    "states": (
        "mamba2",
        {"num_heads": 16, "state_size": 64, "n_groups": 1, "chunk_size": 32, "head_dim": 64},
        None,
    ),
}
NAMES = ("llama of 1B bf16", *(f"{k} {d}" for k in list(KINDS)[1:] for d in ("f32", "bf16")))
TINY = {"vocab_size": 128, "num_hidden_layers": 1, "hidden_size": 128, "intermediate_size": 256}
ANSWER = 24


def folders(given: argparse.Namespace, name: str) -> tuple[Path, Path]:
    """The folder of a case, and one with the weights that it stands for."""
    import torch
    import transformers
    from safetensors.torch import load_file, save_file

    kind, values, method = KINDS[name.rpartition(" ")[0]]
    place = given.work / name.replace(" ", "_")
    shutil.rmtree(place, ignore_errors=True)
    sizes = BASE | values | (TINY if given.tiny else {})
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("cpu" if given.tiny else "cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 2  # else most answers repeat one token
    dtype = torch.float32 if name.endswith("f32") else torch.bfloat16
    model = model.cpu().to(dtype)
    model.config.dtype = dtype
    model.save_pretrained(place / "wide")
    if method is None:
        return place / "wide", place / "wide"
    shutil.copytree(place / "wide", place / "narrow")
    wide = write_folder(place / "narrow", *method)
    (file,) = (place / "wide").glob("*.safetensors")
    tensors = load_file(file)
    for tensor, numbers in wide.items():
        own = torch.from_numpy(np.ascontiguousarray(numbers))
        tensors[tensor] = own.to(tensors[tensor].dtype)
    save_file(tensors, file, metadata={"format": "pt"})
    return place / "narrow", place / "wide"


def options_of(given: argparse.Namespace, name: str) -> list[str]:
    """Small models have few rows, so that a case is quick; the large one is served as it comes."""
    where = ["--backend", "cpu"] if given.tiny else ["--gpus", "h200"]
    if name.startswith("llama of 1B") and not given.tiny:
        return where
    return [*where, "--rows", "16", "--context", "256", "--step-tokens", "16,64"]


def served(given: argparse.Namespace, name: str) -> Row:
    """A folder served twice: what it takes to start, and what it answers."""
    begun = time.monotonic()
    folder, wide = folders(given, name)
    place = folder.parent
    row: Row = {"written_s": since(begun), "bytes": size_of(folder)}
    draw = random.Random(5)
    lengths = [draw.randint(1, 20 if given.tiny else 120) for _ in range(4 if given.tiny else 24)]
    most = 6 if given.tiny else ANSWER
    wanted: list[dict[str, Any]] = [
        {
            "at": 0.0,
            "prompt": [draw.randrange(3, 100 if given.tiny else 4000) for _ in range(length)],
            "most": most,
            "stream": True,
        }
        for length in lengths
    ]
    variables = {"TESSERA_CACHE_DIR": str(place / "cache")}
    options = [str(folder), *options_of(given, name)]
    answers: dict[str, list[list[int]]] = {}
    for which in ("from nothing", "kept"):
        with serving(options, place / "server.log", variables) as (port, started_s):
            begun = time.monotonic()
            told = load(place, port, wanted, which.replace(" ", "_"))
            row[which] = {"starts_s": started_s, "answers_s": since(begun)}
        answers[which] = [answer["tokens"] for answer in told]
    row["answers"] = len(wanted)
    row["answers as before"] = answers["kept"] == answers["from nothing"]
    pairs = list(zip([one["prompt"] for one in wanted], answers["kept"], strict=True))
    device = "cpu" if given.tiny else "cuda"
    row["against generate"] = generated(wide, pairs, device, most)
    if name.endswith("bf16"):
        row["against logits"] = behind_best(wide, device, pairs)
    return row


def generated(
    folder: Path, pairs: list[tuple[list[int], list[int]]], device: str, most: int
) -> Row:
    """How many of the answers are those of `generate`, greedy, one prompt after the other."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").to(device).eval()
    model.generation_config.eos_token_id = None
    same = tokens = alike = 0
    distinct: set[int] = set()
    for prompt, answer in pairs:
        ids = torch.tensor([prompt], device=device)
        made = model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=most,
        )[0, len(prompt) :].tolist()
        same += made == answer
        tokens += len(made)
        alike += sum(a == b for a, b in zip(made, answer, strict=False))
        distinct |= set(made)
    return {
        "equal answers": same,
        "tokens": tokens,
        "equal tokens": alike,
        "distinct": len(distinct),
    }


def size_of(folder: Path) -> int:
    """Bytes of the checkpoint."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def main() -> None:
    parser = parser_of(__doc__, seconds=3000.0, jobs=1)
    parser.add_argument("--tiny", action="store_true", help="smaller models, without a GPU")
    given = parser.parse_args()
    run_cases(
        "benchmarks.serving.folder_kinds",
        NAMES,
        given,
        lambda name: served(given, name),
        more=["--tiny"] if given.tiny else (),
        sums=lambda rows: {
            "what": "folders as `save_pretrained` writes them, served from an empty cache",
            **machine(),
            "steps": "16 and 64 tokens, 16 rows, context 256; the model of 1B as it comes",
        },
    )


if __name__ == "__main__":
    main()
