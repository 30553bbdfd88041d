"""Random cuts, shares and twins on two and three devices, against one device, to the byte.

    python -m benchmarks.running.divided_models -o FILE --work FOLDER [--plans 1] [--jobs 2]

Every trace of `examples/traces`, every step of the zoo (`benchmarks.laptop.no_gpu`: captured for
this), and models of the transformers library that were not used while this was built
(`divided_zoo`), compiled and as library calls (their names end in ops); these need torch, Triton
and transformers, and no GPU. Each trace is divided at random among what is legal, as often as
`PLANS` says for its kind, times `--plans`: steps are cut along random axes at random shares, have
twins, or stay whole, and go to random devices. Launch programs are made and proved, and run on the
CPU backend; outputs and states are compared with those of the whole trace on one device.
`cut_steps`, `twin_steps` and `steps` are sums over all plans; `sent_mb` what went between devices
and from and to the host.
"""

from __future__ import annotations

import argparse
import platform
import time
import traceback
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import TRACES, Row
from benchmarks.laptop.models import MODELS
from benchmarks.laptop.no_gpu import GPU, ZOO, maker
from benchmarks.running.divided_zoo import COMPILED_ALONE, NEW
from tests.helpers.divided import divided_trace

EXAMPLES = tuple(sorted(path.stem for path in TRACES.glob("*.ptx")))
CALLS = {f"{name}_ops": name for name in NEW if name not in COMPILED_ALONE}
NAMES = (*EXAMPLES, *CALLS, *ZOO, *NEW)
PLANS = {"example": 6, "library calls": 12, "zoo": 3, "new model": 3}
SUMMED = ("steps", "cut_steps", "twin_steps", "parts")


def captured(name: str, folder: Path) -> Path:
    """The file of a case's trace; captured, unless it is there."""
    path = folder / f"{name.replace(':', '_').replace('.py', '')}.ptx"
    if name in EXAMPLES:
        return TRACES / f"{name}.ptx"
    if path.exists():
        return path
    from tessera.driver.trace.capture_trace import write_trace
    from tessera.driver.trace.meta_trace import trace_fake
    from tessera.driver.trace.no_gpu_trace import NoGpuOptions, trace_no_gpu
    from tessera.frontend.machine.gpu_table import find_gpu

    MODELS.update(NEW)
    if name in CALLS:
        write_trace(trace_fake(maker(CALLS[name]), fused=False).trace, path)
        return path
    options = NoGpuOptions(gpus=(find_gpu(GPU),), data=True)
    write_trace(trace_no_gpu(maker(name), options).trace, path)
    return path


def one(name: str, options: argparse.Namespace) -> Row:
    """The plans of one trace; what fails is in the row, with its seed."""
    path = captured(name, options.work)
    trace = divided_trace(path, 2 if name in EXAMPLES else 1)
    plans = options.plans * PLANS[kind_of(name)]
    row: Row = {"machine": platform.machine(), "kind": kind_of(name), "plans": plans, "equal": 0}
    row |= dict.fromkeys(SUMMED, 0)
    sent, failed, begun = 0, [], time.process_time()
    for seed in range(plans):
        try:
            trial = trace.trial(seed, "abc"[: 2 + seed % 2])
        except Exception:
            failed.append({"seed": seed, "why": traceback.format_exc()[-800:]})
            continue
        row["equal"] += 1
        row["steps"] += sum(1 for _ in trace.program.work())
        row["cut_steps"] += len({cut.step for cut in trial.division.cuts})
        row["twin_steps"] += len(trial.division.twins)
        row["parts"] += trial.parts
        sent += trial.sent_bytes
    row |= {"sent_mb": round(sent / 1e6, 3), "cpu_s": round(time.process_time() - begun, 1)}
    return row | ({"failed": failed} if failed else {})


def kind_of(name: str) -> str:
    """What a case is among those of `PLANS`."""
    if name in CALLS:
        return "library calls"
    return "example" if name in EXAMPLES else "zoo" if name in ZOO else "new model"


def sums(rows: Mapping[str, Row]) -> Row:
    """All plans, and those that are equal."""
    total = {key: sum(row.get(key, 0) for row in rows.values()) for key in ("plans", "equal")}
    kinds = {kind: sum(row.get("kind") == kind for row in rows.values()) for kind in PLANS}
    bad = [name for name, row in rows.items() if "failed" in row]
    more = {key: sum(row.get(key, 0) for row in rows.values()) for key in SUMMED}
    return {"schema": "tessera-divided/1", **total, "traces": kinds, **more, "failed": bad}


def main() -> None:
    parser = parser_of(__doc__, seconds=7200.0, jobs=2)
    parser.add_argument("--plans", type=int, default=1, help="times what `PLANS` says")
    parser.add_argument("--capture", action="store_true", help="make traces alone")
    options = parser.parse_args()
    more = ["--plans", str(options.plans)]
    run_cases(
        "benchmarks.running.divided_models",
        NAMES,
        options,
        lambda name: (
            {"trace": captured(name, options.work).name} if options.capture else one(name, options)
        ),
        more=more + ["--capture"] * options.capture,
        sums=(lambda rows: {}) if options.capture else sums,
    )


if __name__ == "__main__":
    main()
