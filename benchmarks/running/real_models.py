"""Whole-GPU plans of default captures against PyTorch's own compiled steps.

    python -m benchmarks.running.real_models -o FILE --work FOLDER [--seconds 3000]
                                             [--modes default,max-autotune,reduce-overhead]

Needs a GPU, torch and transformers. A process per case makes the model (`real_steps`), captures it
as `tessc trace` does, runs the plan that has everything on the whole GPU (`real_plan`), has
torch.compile make the same step in its modes, captures these as graphs, and times all in turn:
medians of five rounds. PyTorch's own steps share what was compiled and measured for ours. Cases run
one after the other: what compilers measure is not disturbed.

A row has, in microseconds: `torch` by mode, `ours` (graphs of the plan one after the other,
with inputs from and outputs to the host) and `served` (requests through the dispatcher); `ratio` is
`ours` over the fastest of PyTorch's. `same_bytes`: outputs and states are those of the
captured callable as PyTorch runs it. `error` and `eager_error` are against the model in fp32: by
norm, and the largest by element over the largest element.
"""

from __future__ import annotations

import argparse
import statistics
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import Row

ROUNDS = 5
LEAST_S = 0.1
MODES = ("default", "max-autotune", "reduce-overhead")  # the last one is never recompiled


def one_case(name: str, options: argparse.Namespace) -> Row:
    """A case; what was measured before it failed is in the row."""
    from benchmarks.running.real_steps import CASES

    row: Row = {"case": name, "route": options.route}
    case = CASES[name]
    try:
        measure(case.make(**case.sizes), options, row)
    except Exception as problem:
        traceback.print_exc()
        more = getattr(problem, "diagnostics", "")
        row["failed"] = f"{type(problem).__name__}: {problem} {more}"[:1500]
    return row


def measure(step: Any, options: argparse.Namespace, row: Row) -> None:
    """Capture a step, run its plan, compile it by PyTorch, and time all of them in turns."""
    import torch

    from benchmarks.running.real_plan import WholePlan

    torch.set_grad_enabled(False)
    row["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    eager = step.module(*step.inputs).float()
    exact = tried(lambda: exact_result(step))  # the model may be written for its own type
    row["eager_error"] = exact if isinstance(exact, str) else errors(eager, exact)
    # The copy in fp32 is gone: the plan needs its memory.
    torch.cuda.empty_cache()
    plan = WholePlan(step, options.route, row, lambda progress: None)
    if problem := tried(lambda: plan.check(row)):
        row["check_failed"] = problem
    if isinstance(exact, torch.Tensor):
        row["error"] = tried(lambda: errors(plan.output().float(), exact))
    # After the plan is there: both compile, and share what was compiled.
    graphs = compiled_all(options.modes.split(","), step, row)
    times = alternate({**graphs, "ours": plan.replay}, plan, ROUNDS)
    row["torch"] = {mode: times[mode] for mode in graphs}
    row["ours"], row["served"] = times["ours"], times["served"]
    if graphs:
        best = min(graphs, key=lambda mode: times[mode])
        row["fastest"] = best
        row["ratio"] = round(row["ours"] / times[best], 3)
        row["served_ratio"] = round(row["served"] / times[best], 3)


def tried(work: Callable[[], Any]) -> Any:
    """What it gives, or why it failed: the rest of a case is worth its time on a GPU."""
    try:
        return work()
    except Exception as problem:
        traceback.print_exc()
        return f"{type(problem).__name__}: {problem}"[:300]


def exact_result(step: Any) -> Any:
    """What the model computes in fp32."""
    wide = step.widened()
    return wide.module(*wide.inputs)


def compiled_all(modes: Sequence[str], step: Any, row: Row) -> dict[str, Callable[[int], None]]:
    """PyTorch's own step by mode; the row says how long each took, and which failed."""
    graphs = {}
    for mode in modes:
        begun = time.monotonic()
        try:
            graphs[mode] = compiled(step, mode)
        except Exception as problem:
            traceback.print_exc()
            row.setdefault("torch_failed", {})[mode] = f"{type(problem).__name__}: {problem}"[:300]
        row.setdefault("compile_s", {})[mode] = round(time.monotonic() - begun, 1)
    return graphs


def errors(got: Any, exact: Any) -> dict[str, float]:
    """How far a result is off, by norm and at most by element over the largest."""
    exact = exact.reshape(-1)
    off = got.reshape(-1).float() - exact
    return {
        "norm": float(f"{float(off.norm() / exact.norm()):.3e}"),
        "element": float(f"{float(off.abs().max() / exact.abs().max()):.3e}"),
    }


def compiled(step: Any, mode: str) -> Callable[[int], None]:
    """A function that runs PyTorch's own step repeatedly, as a graph unless the mode makes one.

    What a capture has compiled and measured lies where PyTorch looks for it.
    """
    import torch

    from tessera.frontend.capture.compiled_folder import compiled_folder

    torch._dynamo.reset()
    own = mode == "reduce-overhead"
    kind = mode if own or mode == "default" else f"{mode}-no-cudagraphs"
    made = torch.compile(step.module, mode=kind, dynamic=False, fullgraph=True)
    stream = torch.cuda.Stream()
    with compiled_folder(), torch.cuda.stream(stream):
        for _ in range(3):
            made(*step.inputs)
    stream.synchronize()

    def call(count: int) -> None:
        for _ in range(count):
            made(*step.inputs)

    if own:
        return call
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = made(*step.inputs)

    def replay(count: int) -> None:
        for _ in range(count):
            graph.replay()

    setattr(replay, "kept", (graph, kept, made))  # noqa: B010
    return replay


def alternate(ways: dict[str, Callable[[int], None]], plan: Any, rounds: int) -> dict[str, float]:
    """Microseconds of each, in turn: medians of the rounds."""
    import torch

    def timed(work: Callable[[int], None], count: int) -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        work(count)
        torch.cuda.synchronize()
        return 1e6 * (time.perf_counter() - begun) / count

    ways = {**ways, "served": plan.serve}
    counts = {}
    for name, work in ways.items():
        timed(work, 3)
        counts[name] = max(5, min(400, round(LEAST_S * 1e6 / timed(work, 5))))
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(timed(work, counts[name]))
    return {name: round(statistics.median(several), 2) for name, several in times.items()}


def sums(rows: Mapping[str, Row]) -> Row:
    """Which cases have no ratio."""
    missing = [name for name, row in rows.items() if "ratio" not in row]
    return {"schema": "tessera-real-models/2", "not_measured": missing}


def main() -> None:
    parser = parser_of(__doc__, seconds=3000.0, jobs=1)
    parser.set_defaults(limit=600.0)
    parser.add_argument("--route", default="auto", help="of `tessc trace`")
    parser.add_argument("--modes", default=",".join(MODES), help="of torch.compile")
    options = parser.parse_args()
    from benchmarks.running.real_steps import CASES

    run_cases(
        "benchmarks.running.real_models",
        tuple(CASES),
        options,
        lambda name: one_case(name, options),
        more=("--route", options.route, "--modes", options.modes),
        sums=sums,
    )


if __name__ == "__main__":
    main()
