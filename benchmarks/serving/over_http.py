"""A `tessc serve` as a process, clients in another one, and their answers against the library.

Benchmarks of model folders share it: `serving` starts a server, `load` sends requests to it
(`http_load`), `behind_best` compares tokens with the logits that transformers computes.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.common import Row


@contextmanager
def serving(
    options: Sequence[str], log: Path, variables: Mapping[str, str] | None = None
) -> Iterator[tuple[int, float]]:
    """A `tessc serve` with these arguments: its port, and how long it took to answer."""
    command = [sys.executable, "-m", "tessera", "serve", *options, "--port", "0"]
    begun = time.monotonic()
    with (
        open(log, "a", encoding="utf-8") as errors,
        subprocess.Popen(
            [*command, "--name", "model", "--max-waiting", "2048"],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **(variables or {})},
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if found := re.search(r"serving .*:(\d+)$", line.strip()):
                    break
            else:
                raise RuntimeError(log.read_text()[-600:])
            yield int(found[1]), since(begun)
        finally:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


def load(place: Path, port: int, wanted: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """What clients in another process got; requests and answers stay as files in a folder."""
    files = [place / f"{name}.{part}.json" for part in ("requests", "answers")]
    files[0].write_text(json.dumps(wanted), encoding="utf-8")
    command = [sys.executable, "-m", "benchmarks.serving.http_load", str(port), *map(str, files)]
    subprocess.run(command, check=True, timeout=300)
    answers: list[dict[str, Any]] = json.loads(files[1].read_text("utf-8"))
    for answer in answers:
        if "error" in answer:
            raise RuntimeError(answer["error"])
    return answers


def steps_done(port: int) -> dict[str, int]:
    """How many steps of each trace a server has done, by its metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as reply:
        text = reply.read().decode()
    found = re.findall(r'^tessera_steps_total\{trace="([^"]+)"\} (\d+)', text, re.MULTILINE)
    return {name: int(count) for name, count in found}


def behind_best(folder: Path, device: str, asked: Sequence[tuple[list[int], list[int]]]) -> Row:
    """How far tokens of answers are below the best one in f32, beside what bf16 alone makes of it.

    Each answer is given with its prompt; the library computes the logits in both types.
    """
    import torch
    from transformers import AutoModelForCausalLM

    exact, rounded = (
        AutoModelForCausalLM.from_pretrained(folder, dtype=kind).to(device).eval()
        for kind in (torch.float32, torch.bfloat16)
    )
    ours, theirs, errors = [], [], []
    for prompt, answer in asked:
        own = torch.tensor(answer, device=device)
        whole = torch.tensor([*prompt, *answer[:-1]], device=device)[None]
        with torch.inference_mode():
            right, other = (
                model(input_ids=whole, logits_to_keep=len(own)).logits[0].float()
                for model in (exact, rounded)
            )
        best = right.max(-1).values
        ours.append(best - right.gather(1, own[:, None])[:, 0])
        theirs.append(best - right.gather(1, other.argmax(-1)[:, None])[:, 0])
        errors.append((right - other).abs().amax(-1))
    behind, library, error = (torch.cat(part) for part in (ours, theirs, errors))
    return {
        "tokens": len(behind),
        "best in f32": round(float((behind == 0).float().mean()), 4),
        "behind the best by at most twice the error of bf16": round(
            float((behind <= 2 * error).float().mean()), 5
        ),
        "most behind": round(float(behind.max()), 4),
        "the library's bf16": {
            "best in f32": round(float((library == 0).float().mean()), 4),
            "most behind": round(float(library.max()), 4),
            "error": {"median": float(error.median()), "most": float(error.max())},
        },
    }


def children(process: Path) -> list[Path]:
    """The folders in `/proc` of what a process there has started."""
    told = ""
    for task in (process / "task").iterdir():
        with suppress(OSError):  # the thread has ended
            told += (task / "children").read_text()
    return [Path("/proc") / one for one in told.split()]


def since(begun: float) -> float:
    """Seconds, rounded."""
    return round(time.monotonic() - begun, 3)
