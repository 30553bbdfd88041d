"""Whole steps of the models of `examples/models` at real width: measured, and predicted.

    python -m benchmarks.prediction.whole_steps measure --work FOLDER -o FILE    # on a GPU
    python -m benchmarks.prediction.whole_steps keep --work FOLDER
    python -m benchmarks.prediction.whole_steps compare --work FOLDER [--kernels] [--made] [-o FILE]

`measure` needs torch and a GPU. A process per step has torch.compile make it (products by the
libraries), captures it as `tessc trace` does (`NAME.ptx.xz`, sizes only), and measures the captured
CUDA graph, again and again (`NAME.json`: medians of rounds), and each of its kernels by the
profiler. `keep` packs a folder into `results/whole_steps.tar.xz`. `compare` adds up what the model
says of the steps of each trace there, without a profile or a table; `--made` puts the steps beside
them that `simulated_h200` measured (`results/h200_profiles`).
"""

from __future__ import annotations

import argparse
import io
import json
import lzma
import statistics
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import MODELS, RESULTS, Row, write

KEPT = RESULTS / "whole_steps.tar.xz"
PROFILES = RESULTS / "h200_profiles"
LLAMA = {"vocabulary": 32000, "hidden": 4096, "layers": 4, "heads": 32, "kv_heads": 8}
MOE = {"vocabulary": 32000, "hidden": 2048, "layers": 4, "heads": 16, "experts": 16, "chosen": 4}
MAMBA = {"vocabulary": 32000, "hidden": 2048, "layers": 4, "heads": 64, "state": 128}
MMDIT = {"hidden": 1536, "layers": 4, "heads": 24}
VISION = {"vocabulary": 32000, "hidden": 4096, "layers": 4, "heads": 32, "vision": 1024}
STEPS: dict[str, tuple[str, dict[str, int]]] = {
    "llama decode": ("llama.py:decode", LLAMA | {"batch": 8, "context": 2048, "length": 2000}),
    "llama prefill": ("llama.py:prefill", LLAMA | {"context": 2048, "length": 2048}),
    "moe decode": ("moe.py:step", MOE | {"batch": 8, "length": 1, "window": 1}),
    "moe prefill": ("moe.py:step", MOE | {"length": 64, "window": 32}),
    "mamba decode": ("mamba.py:step", MAMBA | {"batch": 32, "length": 1, "chunk": 16}),
    "mamba prefill": ("mamba.py:step", MAMBA | {"length": 1024, "chunk": 128}),
    "mmdit small": ("mmdit.py:step", MMDIT | {"text": 77, "image": 1024}),
    "mmdit large": ("mmdit.py:step", MMDIT | {"text": 256, "image": 4096}),
    "vision decode": ("vision_language.py:step", VISION | {"patches": 64, "length": 1}),
    "vision prefill": ("vision_language.py:step", VISION | {"patches": 1024, "length": 256}),
}
ROUNDS, ROUND_NS, PROFILED = 7, 50e6, 5


def file_of(out: Path, name: str, ending: str) -> Path:
    return out / f"{name.replace(' ', '_')}{ending}"


# --- measure ---------------------------------------------------------------------------------


def one_step(out: Path, name: str) -> Row:
    """Compile, capture and measure a step; its row is a file, too."""
    call = capture(out, name)
    row: Row = {"name": name, "rounds_ns": []}
    for _ in range(2):
        measure(call, row)
    write(row, file_of(out, name, ".json"))
    return {key: value for key, value in row.items() if key != "kernels"}


def capture(out: Path, name: str) -> Any:
    """The captured call of a step; its trace is written."""
    import torch

    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace.build import draft_program, settle_roles
    from tessera.driver.trace.hints import with_hints
    from tessera.frontend.capture.model_file import find_model, load_model
    from tessera.frontend.capture.session import on_one_gpu
    from tessera.ir.program.print_trace import print_program

    file, sizes = STEPS[name]
    model = find_model(str(MODELS / file))
    with torch.device("cuda"):
        function, inputs = load_model(model, dict(sizes))
    begun = time.monotonic()
    options = tracing.TraceOptions(route="library", data=False)
    # As `tracing.trace`, but the graph is kept.
    with on_one_gpu(function, inputs):
        call = tracing._capture(function, inputs, options)
        draft = draft_program(call.raw, call.read)
        ran = call.run((b.name for b in draft.program.declared_buffers()), data=False)
        program = with_hints(settle_roles(draft, call.raw, ran.changed))
    text = print_program(program).encode()
    file_of(out, name, ".ptx.xz").write_bytes(lzma.compress(text, preset=2))
    steps = sum(1 for _ in program.work())
    print(f"{name}: {steps} steps captured, {time.monotonic() - begun:.0f} s", flush=True)
    return call


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


# --- compare ---------------------------------------------------------------------------------


def predicted(path: Path, gpus: str) -> list[tuple[str, float]]:
    """Names and nanoseconds of a trace's steps, by the model alone."""
    from tessera.driver.traces import load_traces
    from tessera.frontend.machine.gpus import machine_of
    from tessera.planning.prices.estimate_costs import estimate_costs

    (trace,) = load_traces(str(path))
    costs = estimate_costs(trace.program, trace.graph, machine_of(gpus, "100Gb/s"))
    return [(step.name, getattr(step.on_device[0], "ns", 0.0)) for step in costs.steps]


def keep(options: argparse.Namespace) -> None:
    """Pack the traces and times of a folder; those of steps that it lacks stay."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path in (*unpacked(folder), *measured_in(options.work)):
            text = path.read_bytes()
            is_packed = path.suffix == ".xz"
            target = folder / (path.stem if is_packed else path.name)
            target.write_bytes(lzma.decompress(text) if is_packed else text)
        with tarfile.open(KEPT, "w:xz", preset=9) as archive:
            for path in sorted(folder.iterdir()):
                about = tarfile.TarInfo(path.name)
                about.size = path.stat().st_size
                archive.addfile(about, io.BytesIO(path.read_bytes()))


def measured_in(folder: Path) -> list[Path]:
    """The files of steps that have both, a trace and times."""
    endings = (".json", ".ptx.xz")
    both = [[file_of(folder, name, ending) for ending in endings] for name in STEPS]
    return [path for files in both if all(path.exists() for path in files) for path in files]


def unpacked(folder: Path) -> list[Path]:
    """What is kept of earlier runs, in a folder."""
    if KEPT.exists():
        with tarfile.open(KEPT) as archive:
            archive.extractall(folder, filter="data")
    return sorted(folder.iterdir())


def compare(options: argparse.Namespace) -> None:
    """Measured against predicted, step by step where kernels can be told apart."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        unpacked(Path(name))
        for step in STEPS:
            measured, trace = (file_of(Path(name), step, end) for end in (".json", ".ptx"))
            if measured.exists():
                rows += step_rows(step, json.loads(measured.read_text()), trace, options.kernels)
    rows += made_rows() if options.made else []
    document: dict[str, Any] = {"schema": "tessera-whole-steps/2", "rows": rows}
    for origin in dict.fromkeys(row["origin"] for row in rows):
        off = [abs(row["ratio"] - 1) for row in rows if row["origin"] == origin]
        document[origin] = {
            "steps": len(off),
            "within_10_percent": sum(one <= 0.1 for one in off),
            "within_20_percent": sum(one <= 0.2 for one in off),
            "worst": round(max(off), 3),
        }
        print(origin, document[origin])
    write(document, options.output)


def step_rows(
    name: str, measured: dict[str, Any], trace: Path, in_detail: bool
) -> list[dict[str, Any]]:
    """A measured step against its prediction: as a graph, and by the sum of its kernels."""
    said = predicted(trace, "h200")
    rows = [row_of(name, "captured", measured["ns"], said)]
    if isinstance(measured["kernels"], list):
        whole = sum_of(measured["kernels"])
        rows.append(row_of(name, "captured, sum of kernels", whole, said))
    if in_detail:
        tell_kernels(measured["kernels"], said)
    return rows


def row_of(name: str, origin: str, ns: float, said: list[tuple[str, float]]) -> dict[str, Any]:
    whole = sum(one for _, one in said)
    row = {"name": name, "origin": origin, "steps": len(said), "measured_ns": ns}
    row |= {"predicted_ns": round(whole, 1), "ratio": round(whole / ns, 3)}
    print(row, flush=True)
    return row


def sum_of(kernels: list[tuple[str, float]]) -> float:
    """Nanoseconds of all kernels; one that stood still beside others of its name counts as they."""
    same: dict[str, list[float]] = {}
    for name, ns in kernels:
        same.setdefault(name, []).append(ns)
    middle = {name: statistics.median(several) for name, several in same.items()}
    return round(sum(ns if ns < 3 * middle[name] else middle[name] for name, ns in kernels), 1)


def tell_kernels(kernels: Any, said: list[tuple[str, float]]) -> None:
    """Both lists beside each other; calls of libraries may be more than one kernel."""
    if isinstance(kernels, str):
        print(kernels)
        return
    for number in range(max(len(kernels), len(said))):
        left = kernels[number] if number < len(kernels) else ("", 0.0)
        right = said[number] if number < len(said) else ("", 0.0)
        print(f"  {left[1]:10.0f} {right[1]:10.0f}  {left[0][:50]:50} {right[0]}")


def made_rows() -> list[dict[str, Any]]:
    """The models of `h200_models`, which `simulated_h200` has measured whole and on slices."""
    from benchmarks.prediction.h200_models import unpack

    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for model, path in unpack(Path(folder)).items():
            profiled = PROFILES / f"{model}.profile.json.xz"
            for whole in json.loads(lzma.decompress(profiled.read_bytes()))["wholes"]:
                gpus = "h200" if whole["sms"] == 132 else f"h200:{whole['sms']}sm"
                name = f"{model} on {whole['sms']} SMs"
                rows.append(row_of(name, "made", whole["ns"], predicted(path, gpus)))
    return rows


def main() -> None:
    parser = parser_of(__doc__, seconds=1200.0, jobs=1)
    parser.add_argument("stage", choices=("measure", "keep", "compare"))
    parser.add_argument("--kernels", action="store_true", help="kernel by kernel")
    parser.add_argument("--made", action="store_true", help="models of `h200_models`, too")
    options = parser.parse_args()
    if options.stage == "keep":
        keep(options)
    elif options.stage == "compare":
        compare(options)
    else:
        run_cases(
            "benchmarks.prediction.whole_steps",
            tuple(STEPS),
            options,
            lambda name: one_step(options.work, name),
            more=("measure",),
        )


if __name__ == "__main__":
    main()
