"""The captured steps of `unseen_steps` with a profile: predicted by it, beside what they took.

    python -m benchmarks.prediction.profiled_steps predict --work FOLDER
    python -m benchmarks.prediction.profiled_steps measure --work FOLDER -o FILE    # on a GPU
    python -m benchmarks.prediction.profiled_steps compare --work FOLDER
    python -m benchmarks.prediction.profiled_steps explain --work FOLDER

`predict` has the planner say again, without a profile, how long each trace takes on an H200.
`measure` profiles each trace, as `tessc profile` does: weights and caches are from a seed, tokens
are random, and a decode step is at the end of its cache. It also measures the whole trace
(`whole_ns`; `steady_ns` while it is repeated for three seconds). `compare` has the planner predict
each step from its profile (`profiled_ns`), beside the time of the CUDA graph that PyTorch captured
(`graph_ns`, of `unseen_steps.json`, from another day and another process). The profile scales the
times of steps to those of the whole trace, so `graph_ns` is what `profiled_ns` is compared with.

`explain`: how many experts the tokens of GLM-4.5-Air reach with weights and biases from a seed
(uniform in [-1, 1), states of unit size), beside what uniform choices reach; and what the model
says of Mamba2 now, which `unseen_steps.json` has as it was said before the measurement.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import lzma
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import RESULTS, Row, machine, write
from benchmarks.prediction.unseen_steps import RESULT as MEASURED
from benchmarks.prediction.unseen_steps import ROUTES, STEPS, file_of, said
from tessera.driver.load import load
from tessera.driver.profile.trace_timer import ProfileOptions, open_contexts
from tessera.ir.program.program import Program
from tessera.planning.prices.expert_routing import UNIFORM, expected_experts

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver

RESULT = RESULTS / "profiled_steps.json"
NEAR = 0.05
PROFILE = ".profile.json"


def unpack(work: Path) -> dict[str, Path]:
    """The traces that torch.compile captured, packed."""
    work.mkdir(parents=True, exist_ok=True)
    with tarfile.open(RESULTS / "unseen_steps.tar") as archive:
        archive.extractall(work, filter="data")
    names = [name for name in STEPS if name not in ROUTES]
    return {name: path for name in names if (path := file_of(work, name, ".ptx.xz")).exists()}


def predict(work: Path) -> None:
    """Predictions without a profile."""
    rows = {}
    for name, packed in unpack(work).items():
        rows[name] = said(packed)
        print(name, rows[name], flush=True)
    write({"schema": "tessera-profiled-steps/1", "predicted_at": machine(), "rows": rows}, RESULT)


def profiled(work: Path, name: str) -> Row:
    """A profile of a trace, which is a file. Other traces are analysed meanwhile."""
    from tessera.driver.profile import profile_trace as profiling

    @contextmanager
    def in_turn(driver: Driver, ordinals: Sequence[int]) -> Iterator[None]:
        with (work / "turn").open("w") as turn:
            fcntl.flock(turn, fcntl.LOCK_EX)
            with open_contexts(driver, ordinals):
                yield

    packed = file_of(work, name, ".ptx.xz")
    trace, data = packed.with_suffix(""), file_of(work, name, ".npz")
    trace.write_bytes(lzma.decompress(packed.read_bytes()))
    np.savez(data, **integers(load(trace), context_of(name)))
    options = ProfileOptions(devices="h200", data=str(data), repeats=5)
    with mock.patch.object(profiling, "open_contexts", in_turn):
        made = profiling.profile(trace, options)
    file_of(work, name, PROFILE).write_text(profiling.profile_text(made))
    return {"wholes": made["wholes"]}


def integers(program: Program, context: int) -> dict[str, Any]:
    """Contents of integers, which a seed leaves zero: tokens, and the ends of caches."""
    random = np.random.default_rng(0)
    made = {}
    for buffer in program.declared_buffers():
        if buffer.name == "tokens" and buffer.shape is not None:
            made[buffer.name] = random.integers(0, 30_000, buffer.shape, dtype=np.int64)
        elif buffer.name == "start" or buffer.name.endswith("cumulative_length"):
            made[buffer.name] = np.full(buffer.shape or (), context - 1, dtype=np.int64)
    return made


def context_of(name: str) -> int:
    """The tokens for which the cache of a decode step has room; 1 if it has none."""
    step: Any = STEPS[name]
    given = inspect.signature(step.func).bind(*step.args, **step.keywords).arguments
    return int(given.get("context", 1))


def compare(work: Path) -> None:
    """What the planner says with a profile, beside what was measured."""
    document = json.loads(RESULT.read_text())
    graphs = json.loads(MEASURED.read_text())["rows"]
    for name, packed in unpack(work).items():
        path = file_of(work, name, PROFILE)
        if not path.exists():
            continue
        row: Row = document["rows"][name]
        (whole,) = json.loads(path.read_text())["wholes"]
        made = said(packed, "--profile", str(path))
        graph = graphs[name]["measured_ns"]
        row |= {"profiled_ns": made["predicted_ns"], "graph_ns": graph}
        row |= {"whole_ns": whole["ns"], "steady_ns": whole.get("steady_ns")}
        row["ratio"] = round(row["predicted_ns"] / graph, 3)
        row["profiled_ratio"] = round(made["predicted_ns"] / graph, 3)
        print(name, row, flush=True)
    ratios = [row["profiled_ratio"] for row in document["rows"].values() if "ratio" in row]
    document["profiled"] = len(ratios)
    document["within_5_percent"] = sum(abs(ratio - 1) <= NEAR for ratio in ratios)
    write(document, RESULT)


def reached(tokens: int, chosen: int, experts: int, hidden: int) -> float:
    """The mean number of experts that tokens reach if the router's weights are from a seed."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(20):
        states = random.standard_normal((tokens, hidden))
        logits = states @ random.uniform(-1, 1, (hidden, experts))
        scores = 1 / (1 + np.exp(-logits)) + random.uniform(-1, 1, experts)
        found.append(len(np.unique(np.argsort(-scores, axis=1)[:, :chosen])))
    return float(np.mean(found))


def explain(work: Path) -> None:
    """Causes of the two greatest misses."""
    unpack(work)
    document = json.loads(RESULT.read_text())
    document["causes"] = {
        "glm_experts_from_seed": round(reached(32, 8, 128, 4096), 1),
        "glm_experts_uniform": round(expected_experts(32, 8, 128, UNIFORM), 1),
        "mamba2": said(file_of(work, "mamba2 prompt", ".ptx.xz")),
    }
    print(document["causes"])
    write(document, RESULT)


def main() -> None:
    parser = parser_of(__doc__, seconds=600.0, jobs=len(STEPS))
    parser.add_argument("stage", choices=("predict", "measure", "compare", "explain"))
    options = parser.parse_args()
    if options.stage != "measure":
        stages = {"predict": predict, "compare": compare, "explain": explain}
        stages[options.stage](options.work)
        return
    names = STEPS if options.one else unpack(options.work)
    run_cases(
        "benchmarks.prediction.profiled_steps",
        tuple(names),
        options,
        partial(profiled, options.work),
        more=("measure",),
    )


if __name__ == "__main__":
    main()
