"""Deaths of replicas on a GPU while they answer: is any answer lost, is any token another one?

    python -m benchmarks.serving.folder_deaths prepare --work FOLDER
    python -m benchmarks.serving.folder_deaths run --work FOLDER -o FILE --jobs 5 [--deaths 10]

`prepare` needs torch, Triton and transformers, and no GPU: it plans the steps of a small Llama in
f32 and in bf16 for two GPUs, a replica on each. `run` needs a GPU. Each case is an engine with both
replicas as processes on slices of it, and clients whose prompts come at random times, at first
without deaths. Then, whenever both replicas are there, one of them is killed, or stopped (SIGSTOP),
or its connection is cut, or a kernel of its next step faults: its table of blocks points out of the
GPU's memory. Tokens are compared with those of the undisturbed run. Answers are greedy; in the case
`f32 drawn` they are drawn, each with a seed. `--tiny` does the same on the CPU backend, whose
checks of accesses find such a table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import socket
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import Row, machine
from benchmarks.serving.over_http import behind_best, children, since

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "vocab_size": 8192,
    "max_position_embeddings": 1024,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
}
TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
}
TYPES = ("f32", "bf16")
NAMES = ("f32 a", "f32 b", "f32 c", "f32 d", "f32 drawn", "bf16")
KINDS = ("kill", "stop", "cut", "fault")
SLICES = ("cuda:0:84sm", "cuda:0:48sm")
PROMPTS = 48
STALL_S = 5.0
"""Seconds without progress after which a replica counts as dead."""
START_S = 180.0
"""Seconds that an engine may take to start, and to answer all prompts once."""
BACK_S = 90.0
"""Seconds that a replica may take to be back."""

Ask = Callable[[int], Any]
"""Asks for the answer to the prompt of a number."""


def write_model(given: argparse.Namespace, dtype: str) -> Path:
    """The folder of a small Llama with random weights, always the same."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    folder: Path = given.work / f"model_{dtype}"
    if folder.is_dir():
        return folder
    given.work.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=given.work))
    (made / "config.json").write_text(json.dumps(CONFIG | (TINY if given.tiny else {})))
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(made)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data *= 2
    model.to(torch.float32 if dtype == "f32" else torch.bfloat16).save_pretrained(made)
    try:
        made.rename(folder)
    except OSError:  # a case beside this one was first
        shutil.rmtree(made)
    return folder


def prepare(given: argparse.Namespace) -> None:
    """The plans: steps for a replica on each of two GPUs."""
    import tessera
    from tessera.driver.folder.model_folder import FolderOptions
    from tessera.driver.folder.prepare_folder import prepare_folder
    from tessera.ir.plan.print_plan import print_plan

    for dtype in TYPES:
        folder = write_model(given, dtype)
        options = FolderOptions(
            gpus="a100" if given.tiny else "h200",
            route="library" if given.tiny else "auto",
            rows=8 if given.tiny else 32,
            context=64 if given.tiny else 512,
            step_tokens=(8, 32) if given.tiny else (32, 256),
        )
        begun = time.monotonic()
        made = Path(prepare_folder(folder, options, lambda told: print(told, flush=True)).plan)
        place = given.work / f"plan_{dtype}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(made.parent, place)
        kind = "a100" if given.tiny else "h200"
        two = tessera.PlanOptions(gpus=f"{kind},{kind}", strategy="dp", sequences=1, slots=1)
        traces = sorted(str(own) for own in place.glob("step_*.ptx"))
        plan = tessera.plan(traces, two, compare=False).plan
        (place / "plan.tsp").write_text(print_plan(plan))
        (place / "devices.json").write_text(json.dumps([own.name for own in plan.devices]))
        print("prepared", dtype, since(begun), "s", flush=True)


class Clients:
    """Prompts that come at random times, and how their answers end."""

    def __init__(self, ask: Ask, most: int, rate: float) -> None:
        self._ask, self._most, self._rate = ask, most, rate
        self._draw = random.Random(7)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.given: list[tuple[int, Any]] = []
        self.deaths: list[tuple[str, int]] = []
        """The kind and the time in ns of every death."""

    def __enter__(self) -> Clients:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._over.wait(self._draw.expovariate(self._rate)):
            number = self._draw.randrange(PROMPTS)
            self.given.append((number, self._ask(number)))

    def figures(self, right: list[list[int]]) -> tuple[Row, list[tuple[int, list[int]]]]:
        """How the answers ended, and those that are others than before."""
        ends: Counter[str] = Counter()
        seconds, others, same, alike, tokens = [], [], 0, 0, 0
        by_kind: dict[str, list[float]] = {}
        for number, asked in self.given:
            try:
                answer = asked.result(120)
            except Exception as problem:
                ends[f"error: {problem}"[:200]] += 1
                continue
            whole = len(answer) == self._most
            ends["whole" if whole else "cut"] += 1
            seconds.append((asked.ended_ns - asked.came_ns) / 1e9)
            for kind in {k for k, died in self.deaths if asked.came_ns <= died <= asked.ended_ns}:
                by_kind.setdefault(kind, []).append(seconds[-1])
            same += answer == right[number]
            alike += sum(a == b for a, b in zip(answer, right[number], strict=False))
            tokens += len(right[number])
            if answer != right[number]:
                others.append((number, answer))
        row: Row = {"answers": len(self.given), "ends": dict(ends), "equal": same}
        row |= {"tokens": tokens, "equal at their place": alike}
        row["seconds"] = shares(seconds)
        if by_kind:
            row["seconds of answers under way at a death"] = {
                kind: shares(own) for kind, own in sorted(by_kind.items())
            }
        return row, others


def shares(seconds: list[float]) -> Row:
    """The seconds within which shares of answers ended, in percent."""
    ordered = sorted(seconds)
    return {
        f"p{share}": round(ordered[min(len(ordered) * share // 100, len(ordered) - 1)], 3)
        for share in (50, 90, 99, 100)
    }


def processes(engine: Any, *, on_cpu: bool) -> list[int]:
    """The processes of replicas; on the CPU backend, those of devices."""
    if not on_cpu:
        found: list[int] = engine.runtime._serving.processes()
        return found
    return [int(own.name) for own in children(Path("/proc/self"))]


def connections() -> set[int]:
    """The descriptors of this process's connections."""
    found = set()
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as end:
                    end.getpeername()  # one that listens has none
                found.add(number)
    return found


def cut(number: int) -> None:
    """End a connection, as if the network had."""
    with suppress(OSError), socket.socket(fileno=os.dup(number)) as end:
        end.shutdown(socket.SHUT_RDWR)


class Poison:
    """Spoils the table of blocks of one step, so that a kernel reads where nothing is."""

    def __init__(self, runtime: Any) -> None:
        self._submit = runtime.submit
        self.is_set = False
        runtime.submit = self._hand_over

    def _hand_over(self, inputs: dict[str, Any], **more: Any) -> Any:
        if self.is_set:
            self.is_set = False
            table = next(name for name in inputs if name.endswith("blocks"))
            # Terabytes away, and not so far that the address comes round.
            wrong = np.full_like(inputs[table], 1 << 30)
            inputs = {**inputs, table: wrong}
        return self._submit(inputs, **more)


def died(given: argparse.Namespace, name: str) -> Row:
    """One engine whose replicas die again and again."""
    import tessera

    dtype = name.split()[0]
    folder = write_model(given, dtype)
    plan = given.work / f"plan_{dtype}" / "plan.tsp"
    options: dict[str, Any] = {"weights": str(folder), "time_limit_s": STALL_S}
    names = json.loads((plan.parent / "devices.json").read_text("utf-8"))
    if given.tiny:
        options |= {"backend": "cpu", "time_limit_s": 2 * STALL_S}
    else:
        options |= {"backend": "cuda", "targets": dict(zip(names, SLICES, strict=True))}
    begun = time.monotonic()
    before = connections()
    draw = random.Random(name)
    top = 100 if given.tiny else 8000
    lengths = [draw.randint(4, 20 if given.tiny else 200) for _ in range(PROMPTS)]
    prompts = [[draw.randrange(3, top) for _ in range(length)] for length in lengths]
    most = 8 if given.tiny else 64
    with tessera.Engine(plan, **options) as engine:
        row: Row = {"starts_s": since(begun), "replicas": len(names)}

        def ask(number: int) -> Any:
            drawn = {"temperature": 1.0, "seed": number} if name == "f32 drawn" else {}
            return engine.submit(prompts[number], max_tokens=most, ignore_end=True, **drawn)

        right = [own.result(300) for own in [ask(number) for number in range(PROMPTS)]]
        rate = 1.0 if given.tiny else 10.0
        with Clients(ask, most, rate) as clients:
            time.sleep(given.calm_s)
        row["calm"], others = clients.figures(right)
        poison = Poison(engine.runtime)
        done: Counter[str] = Counter()
        whole = len(processes(engine, on_cpu=given.tiny))
        until = time.monotonic() + given.most_s
        back_s = []
        with Clients(ask, most, rate) as clients:
            while sum(done.values()) < given.deaths and time.monotonic() < until:
                kind = KINDS[sum(done.values()) % len(KINDS)]
                time.sleep(draw.uniform(0.2, 0.8))
                restarts = engine.counts.restarts
                dying = time.monotonic_ns()
                clients.deaths.append((kind, dying))
                if kind == "fault":
                    poison.is_set = True
                elif kind == "cut":
                    cut(draw.choice(sorted(connections() - before)))
                elif found := processes(engine, on_cpu=given.tiny):
                    sent = signal.SIGSTOP if kind == "stop" else signal.SIGKILL
                    os.kill(draw.choice(found), sent)
                if came_back(engine, restarts, whole, on_cpu=given.tiny):
                    done[kind] += 1
                    back_s.append((time.monotonic_ns() - dying) / 1e9)
            time.sleep(0.5)
        poison.is_set = False
        row["deaths"] = dict(done)
        row["restarts"] = engine.counts.restarts
        row["seconds until the replica was back"] = shares(back_s) if back_s else {}
        row["dying"], more = clients.figures(right)
    grown = row["dying"]["seconds"]["p99"] - row["calm"]["seconds"]["p99"]
    row["p99 grows by s"] = round(grown, 3)
    sample = [(prompts[number], tokens) for number, tokens in [*others, *more][:64]]
    if sample and not given.tiny:
        row["other answers against the library"] = behind_best(folder, "cuda", sample)
    return row


def came_back(engine: Any, restarts: int, whole: int, *, on_cpu: bool) -> bool:
    """Wait until a replica has been started again, and all are open; whether one was."""
    until = time.monotonic() + BACK_S
    while time.monotonic() < until:
        is_open = all(group.is_open for group in engine._homes.groups)
        is_there = len(processes(engine, on_cpu=on_cpu)) >= whole
        if engine.counts.restarts > restarts and is_open and is_there:
            return True
        time.sleep(0.05)
    return False


def summed(rows: dict[str, Row]) -> Row:
    """All cases together."""
    good = [row for row in rows.values() if "dying" in row]
    kinds: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for row in good:
        kinds.update(row["deaths"])
        ends.update(row["dying"]["ends"])
    return {
        "deaths": sum(kinds.values()),
        "of kind": dict(kinds),
        "answers while replicas died": sum(row["dying"]["answers"] for row in good),
        "ends": dict(ends),
        "equal in f32": [
            sum(row["dying"][key] for name, row in rows.items() if "dying" in row and "f32" in name)
            for key in ("equal", "answers")
        ],
    }


def main() -> None:
    parser = parser_of(__doc__, seconds=3000.0, jobs=len(NAMES))
    parser.add_argument("stage", choices=("prepare", "run"))
    parser.add_argument("--deaths", type=int, default=10, help="of each case")
    parser.add_argument("--calm-s", type=float, default=6.0, help="seconds without deaths")
    parser.add_argument("--most-s", type=float, default=150.0, help="seconds with deaths")
    parser.add_argument("--tiny", action="store_true", help="a small model on the CPU backend")
    given = parser.parse_args()
    given.limit = max(given.limit, given.calm_s + given.most_s + BACK_S + START_S)
    if given.stage == "prepare":
        prepare(given)
        return
    more = ["run", "--deaths", str(given.deaths), "--calm-s", str(given.calm_s)]
    more += ["--most-s", str(given.most_s)]
    run_cases(
        "benchmarks.serving.folder_deaths",
        NAMES,
        given,
        lambda name: died(given, name),
        more=[*more, *(["--tiny"] if given.tiny else [])],
        sums=lambda rows: {
            "what": f"replicas on {'the CPU backend' if given.tiny else 'one GPU'} that die while "
            "they answer",
            **machine(),
            **summed(dict(rows)),
        },
    )


if __name__ == "__main__":
    main()
