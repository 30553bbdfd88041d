"""Models captured without a GPU and run on the CPU backend, against PyTorch on the host.

    python -m benchmarks.laptop.no_gpu -o no_gpu.json --work FOLDER [--seconds 7200] [--jobs 2]

Needs torch, Triton and transformers, and no GPU. Each step of `examples/models` and each model of
`models` is captured as `tessc trace --device none --for a100` does it. The trace is analysed
(pins), and runs on the CPU backend from the contents that were written with it. Its results are
compared with those of PyTorch on the host: against fp32, by the error of the trace beside that of
eager PyTorch in the model's own type. Where results are no floats, where the model computes in fp32
itself, and for states, the tolerance of `tessc run` counts; `beyond` says what is outside.
`llama@8` is `llama` with eight layers, most of them equal; steps of real size (`COMPILED`) are
compiled, and not run. A row that failed says why.
"""

from __future__ import annotations

import gc
import platform
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases, why
from benchmarks.common import MODELS as FILES
from benchmarks.common import ROOT, Row, peak_mb
from benchmarks.laptop.compare import STEPS, compared, errors, pins_of, widened
from benchmarks.laptop.models import MODELS, build
from tessera.frontend.capture.inputs import Inputs
from tessera.settings import overridden

KINDS = ("llama", "gpt", "recurrent")
ZOO = (*STEPS, *(f"generation.py:{k}_{step}" for k in KINDS for step in ("decode", "prefill")))
COMPILED = ("hf:llama-3-70b",)
CONFIGS = ROOT / "examples" / "configs"
GPU = "a100"


def maker(name: str) -> Any:
    """What makes a model and its inputs; those of a GPU where there seems to be one."""
    from tessera.frontend.capture.model_file import find_model, load_model

    if name in ZOO:
        place = find_model(str(FILES / name))
        return lambda: load_model(place, {})
    if name in COMPILED:
        from tessera.frontend.capture.meta import hf

        config = hf.read_config(CONFIGS / f"{name.removeprefix('hf:')}.json")
        step = hf.HfStep(phase="decode", batch=16, context=1024)
        return lambda: hf.make_step(config, step)

    def make() -> Any:
        model, inputs = build(name, "cuda")
        return model, Inputs(named=inputs)

    return make


def one(name: str, folder: Path) -> Row:
    """Capture, analyse, run and compare one model; the row says how far it came."""
    import torch
    import triton

    row: Row = {"stage": "capture"}
    row["machine"] = f"{platform.machine()}, torch {torch.__version__}"
    row["machine"] += f", triton {triton.__version__}"
    gc.set_threshold(200_000, 20)  # as the command has it
    with ExitStack() as stack:
        if name in COMPILED:  # nothing of it is compiled yet
            empty = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(overridden({"TESSERA_CACHE_DIR": empty}))
        try:
            captured_row(name, maker(name), folder, row)
        except BaseException as problem:
            row["failed"] = why(problem)
    return row


def captured_row(name: str, make: Any, folder: Path, row: Row) -> None:
    """Fill a row, stage by stage."""
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.no_gpu_trace import NoGpuOptions, trace_no_gpu
    from tessera.frontend.machine.gpu_table import find_gpu
    from tessera.ir.program.program import LibraryCall

    begun = time.process_time()
    options = NoGpuOptions(gpus=(find_gpu(GPU),), data=name not in COMPILED)
    made = trace_no_gpu(make, options)
    row["capture_cpu_s"] = round(time.process_time() - begun, 1)
    row["peak_mb"] = round(peak_mb())
    captured = made.trace
    calls = [step for step in captured.program.work() if isinstance(step, LibraryCall)]
    row["launches"] = sum(1 for _ in captured.program.work()) - len(calls)
    row["kernels"] = len(captured.program.modules)
    row["library_calls"] = sorted({call.operator for call in calls})
    row["notes"] = sorted({f"{d.code} {d.headline}"[:160] for d in captured.diagnostics})
    if name in COMPILED:
        row["stage"] = "compiled"
        return
    if made.problem:
        raise RuntimeError(made.problem)
    path = folder / f"{name.replace(':', '_').replace('.py', '').replace('@', '_')}.ptx"
    write_trace(captured, path)
    row["stage"] = "analyse"
    row["pins"] = pins_of(captured.program)
    row["stage"] = "run"
    ran, results = compared(path, captured.reference)
    row |= ran
    row["stage"] = "compare"
    row["compared"] = sorted(set(results) & set(captured.reference))
    if alone := sorted(set(results) - set(captured.reference)):
        raise RuntimeError(f"nothing to compare with: {alone}")
    if row["pins"]:
        raise RuntimeError(f"pinned: {row['pins'][0]}")
    row["against_fp32"] = errors(captured.program, results, *references(make))
    # PyTorch itself is no nearer to fp32 than rounding, unless that is what it computes in.
    rounded = [p for p in row["against_fp32"] if p["compared"] and p["eager_norm"]]
    wrong = [part["output"] for part in rounded if not part["right"]]
    if wrong or ("beyond" in row and not rounded):
        row["failed"] = f"not within rounding: {wrong or row['beyond']}"
    row["stage"] = "done"


def references(make: Any) -> tuple[list[Any], list[Any]]:
    """What the model gives on the host in fp32, and in its own type."""
    import torch

    from tessera.frontend.capture.dry_run import without_gpu
    from tessera.frontend.capture.watch import tensors_in

    def called(exact: bool) -> list[Any]:
        torch.manual_seed(0)
        model, inputs = make()
        if exact:
            model = model.float()
            inputs = Inputs(plain=widened(inputs.plain), named=widened(dict(inputs.named)))
        return [t.float().numpy() for t in tensors_in(inputs.call(model))]

    with without_gpu(on_gpu=False), torch.no_grad():
        usual = called(False)
        return called(True), usual


def sums(rows: Mapping[str, Row]) -> Row:
    """How many models came to PyTorch's results."""
    right = [n for n, row in rows.items() if row.get("stage") == "done" and "failed" not in row]
    return {
        "schema": "tessera-no-gpu/2",
        "compiled_for": GPU,
        "tried": len(rows),
        "right": len(right),
        "zoo_right": f"{sum(name in ZOO for name in right)} of {len(ZOO)}",
        "unprepared_right": sum(name in MODELS for name in right),
        "mixtures_of_experts_right": sum("moe" in MODELS[n].kinds for n in right if n in MODELS),
        "with_equal_layers_right": [name for name in right if "@" in name],
        "not_right": [name for name in rows if name not in right and name not in COMPILED],
        "not_tried": [name for name in (*ZOO, *MODELS) if name not in rows],
    }


def main() -> None:
    options = parser_of(__doc__, seconds=7200.0, jobs=1).parse_args()
    names = (*ZOO, *COMPILED, *MODELS)
    run_cases("benchmarks.laptop.no_gpu", names, options, lambda n: one(n, options.work), sums=sums)


if __name__ == "__main__":
    main()
