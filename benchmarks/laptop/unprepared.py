"""Models as they come: captured, analysed, planned on two slices, run, and compared twice.

    python -m benchmarks.laptop.unprepared -o unprepared.json --work FOLDER [--jobs 14]

Needs an H200, torch, transformers and cuda-bindings. Each model of `models` is a process of its
own: it is captured by the default route, analysed (which steps are pinned, and why), planned on two
slices by a random placement and run there. Then results are compared, twice: with the captured call
as PyTorch runs it (to the byte, and with one device), and with the model as its author wrote it:
against fp32, the error of the captured call beside that of eager PyTorch in the model's own type.
A row that failed says why.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases, why
from benchmarks.common import Row, tessc
from benchmarks.laptop.compare import errors, pins_of, widened
from benchmarks.laptop.models import MODELS, build

TWO = "h200:84sm,h200:48sm"
REQUESTS = 2


def on_gpu(name: str, folder: Path) -> Row:
    """Capture, analyse, plan, run and compare one model; the row says how far it came."""
    import torch

    from tessera.driver.trace.capture_trace import TraceOptions, trace, write_trace
    from tessera.ir.program.program import Launch, LibraryCall

    row: Row = {"kinds": list(MODELS[name].kinds), "stage": "build"}
    row["machine"] = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    try:
        model, inputs = build(name, "cuda")
        row["parameters"] = sum(p.numel() for p in model.parameters())
        row["stage"] = "eager"
        exact, usual = references(model, inputs)
        model, inputs = build(name, "cuda")
        row["stage"] = "capture"
        begun = time.perf_counter()
        found = trace(model, options=TraceOptions(), **inputs)
        row["capture_s"] = round(time.perf_counter() - begun, 1)
        path = folder / f"{name}.ptx"
        write_trace(found, path)
        steps = list(found.program.work())
        row["launches"] = sum(isinstance(step, Launch) for step in steps)
        row["library_calls"] = sorted({s.operator for s in steps if isinstance(s, LibraryCall)})
        row["stage"] = "analyse"
        row["pins"] = pins_of(found.program)
        row["stage"] = "author"
        row["against_fp32"] = errors(found.program, found.reference, exact, usual)
        del model, inputs, exact, usual
        torch.cuda.empty_cache()
        row["stage"] = "plan"
        plan = folder / f"{name}.tsp"
        split = ("--gpus", TWO, "--placement", "random:1", "--slots", "2", "--sequences", "1")
        tessc("plan", str(path), *split, "-o", str(plan))
        row["stage"] = "run"
        told = ("--backend", "cuda", "--requests", str(REQUESTS), "--verify", "--json")
        said = json.loads(tessc("run", str(plan), *told))
        row["verified"] = said["verified"]["how"]
        row["notes"] = said["verified"]["notes"]
        row["devices"] = len(said["busy"])
        row["to_the_byte"] = any("recorded to the byte" in note for note in row["notes"])
        row["stage"] = "done"
    except BaseException as problem:
        row["failed"] = why(problem)
    return row


def references(model: Any, inputs: dict[str, Any]) -> tuple[list[Any], list[Any]]:
    """What the model gives in fp32, and in its own type, as its author wrote it."""
    import torch

    from tessera.frontend.capture.watch import tensors_in

    with torch.no_grad():
        usual = [t.float().cpu().numpy() for t in tensors_in(model(**inputs))]
        exact = [t.float().cpu().numpy() for t in tensors_in(model.float()(**widened(inputs)))]
    return exact, usual


def sums(rows: Mapping[str, Row]) -> Row:
    """How many models came how far."""
    done = [name for name, row in rows.items() if row.get("stage") == "done"]
    right = [
        name
        for name in done
        if rows[name]["to_the_byte"]
        and not rows[name]["pins"]
        and all(out.get("right", True) for out in rows[name]["against_fp32"])
    ]
    return {
        "schema": "tessera-unprepared/2",
        "models": len(MODELS),
        "tried": len(rows),
        "captured_planned_and_run": len(done),
        "right_twice_without_a_pin": len(right),
        "mixtures_of_experts_right": sum("moe" in rows[name]["kinds"] for name in right),
        "vision_right": sum("vision" in rows[name]["kinds"] for name in right),
        "not_right": [name for name in rows if name not in right],
        "not_tried": [name for name in MODELS if name not in rows],
    }


def main() -> None:
    options = parser_of(__doc__, seconds=420.0, jobs=14).parse_args()
    here = "benchmarks.laptop.unprepared"
    run_cases(here, tuple(MODELS), options, lambda n: on_gpu(n, options.work), sums=sums)


if __name__ == "__main__":
    main()
