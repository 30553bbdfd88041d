"""Whether `tessc run` prints the rate of the plan, and runs a plan on the SMs it was made for.

    python -m benchmarks.running.run_rate OUTPUT_FOLDER

`rates`: steps of 0.3, 2 and 10 ms, as one kernel, as kernels of 10 us in a row, and as one kernel
with the inputs of 16 images (9.6 MB) and outputs of 0.5 MB. Each has so many requests through what
`tessc run` does without `--outputs` and `--verify` (`printed`, its requests/s), and the same ones
through `Runtime` in the same process (`served`): inputs made beforehand, outputs not read, handles
dropped when they are done, no search for garbage among what made the plan. They take turns; medians
of rounds, and `ratio`, the one over the other.

`slices`: a kernel that fills a GPU, planned for 48 and 84 SMs of it and for all, with the time of
its step and the SMs that the time of the whole GPU says it had.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

from benchmarks.running.cuda_bench import facts, write
from tessera.backend.host_loop.request_handle import RequestHandle
from tessera.driver.plan.make_plan import plan as make_plan
from tessera.driver.plan.options import PlanOptions
from tessera.driver.run.keep_run import prepare_kept, run_kept
from tessera.driver.run.options import KeepOptions, PlanRunOptions
from tessera.driver.run.run_plan import Prepared
from tessera.driver.run.runtime import Result, Runtime
from tessera.ir.plan.print_plan import print_plan

ROUNDS = 3
LENGTHS_US = (300, 2_000, 10_000)
SMALL, IMAGES, RESULT = 1024, 16 * 3 * 224 * 224, 128 * 1024
SLICES = ("h200:48sm", "h200:84sm", "h200")

KERNELS = """\
//! module m0
.version 8.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 x, .param .u64 y, .param .u64 ns)
{
    .reg .b64 %d<8>; .reg .b32 %r<4>; .reg .f32 %f<2>; .reg .pred %p;
    mov.u64 %d1, %globaltimer;
    ld.param.u64 %d2, [ns];
    add.u64 %d2, %d1, %d2;
LOOP:
    mov.u64 %d1, %globaltimer;
    setp.lt.u64 %p, %d1, %d2;
    @%p bra LOOP;
    ld.param.u64 %d3, [x]; ld.param.u64 %d4, [y];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r1, 1024, %r2;
    mul.wide.u32 %d5, %r3, 4;
    add.u64 %d6, %d3, %d5; add.u64 %d7, %d4, %d5;
    ld.global.f32 %f1, [%d6];
    st.global.f32 [%d7], %f1;
    ret;
}
.visible .entry work(.param .u64 x, .param .u64 y, .param .u32 rounds)
{
    .reg .b64 %d<8>; .reg .b32 %r<8>; .reg .f32 %f<4>; .reg .pred %p;
    ld.param.u64 %d3, [x]; ld.param.u64 %d4, [y]; ld.param.u32 %r4, [rounds];
    mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r1, 1024, %r2;
    mul.wide.u32 %d5, %r3, 4;
    add.u64 %d6, %d3, %d5; add.u64 %d7, %d4, %d5;
    ld.global.f32 %f1, [%d6];
    mov.u32 %r5, 0;
LOOP:
    fma.rn.f32 %f1, %f1, 0f3F7FFFFE, %f1;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p, %r5, %r4;
    @%p bra LOOP;
    st.global.f32 [%d7], %f1;
    ret;
}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    arguments = parser.parse_args()
    result: dict[str, object] = {"machine": facts(), "rounds": ROUNDS}
    with tempfile.TemporaryDirectory() as folder:
        result["rates"] = [
            rates(Path(folder), length, shape)
            for length in LENGTHS_US
            for shape in ("one kernel", "kernels of 10 us", "images")
        ]
        result["slices"] = slices(Path(folder))
    write(arguments.folder, "run_rate.json", result)


def rates(folder: Path, length_us: int, shape: str) -> dict[str, object]:
    """What is printed, and what is served, of a step of about that length."""
    inputs, outputs = (IMAGES, RESULT) if shape == "images" else (SMALL, SMALL)
    launches = length_us // 10 if shape == "kernels of 10 us" else 1
    line = f"//! launch m0.spin grid={outputs // 1024},1,1 block=1024,1,1 args=[x, y, u64:{{}}]\n"
    trace = _trace(inputs, outputs, launches * line.format(length_us * 1000 // launches))
    count = 100 if shape == "images" else min(2000, 1_000_000 // length_us)
    path = _plan(folder, trace, "h200")
    options = PlanRunOptions(requests=count, slots=1)
    printed, served = [], []
    for _ in range(ROUNDS):
        prepared = prepare_kept(path, options, KeepOptions())
        kept = run_kept(prepared, KeepOptions())
        assert not kept.exit_code, kept.outcome.fault
        printed.append(kept.outcome.figures().requests_per_s)
        served.append(_served(path, prepared))
    row = {
        "step_us": length_us,
        "shape": shape,
        "launches": launches,
        "requests": count,
        "printed": round(statistics.median(printed), 1),
        "served": round(statistics.median(served), 1),
        "ratio": round(statistics.median(printed) / statistics.median(served), 4),
        "spread": [round(a / b, 4) for a, b in zip(printed, served, strict=True)],
    }
    print(row, flush=True)
    return row


def _served(path: str, prepared: Prepared) -> float:
    """The rate at which the same requests end through `Runtime`."""
    made = [prepared.materials.inputs(t.request, t.trace, t.turn) for t in prepared.turns]
    with Runtime(path, slots=1) as runtime:
        for inputs in made[:4]:
            runtime.submit(inputs).result()
        gc.collect()
        gc.freeze()
        under_way: deque[RequestHandle[Result]] = deque()
        began = time.perf_counter()
        for inputs in made:
            under_way.append(runtime.submit(inputs))
            if len(under_way) > runtime.capacity:
                under_way.popleft()  # it is done, or there were no room for the last
        while under_way:
            under_way.popleft().result()
        ended = time.perf_counter()
        gc.unfreeze()
        return len(made) / (ended - began)


def slices(folder: Path) -> list[dict[str, object]]:
    """The time of a step on slices and on the whole of a GPU."""
    line = "//! launch m0.work grid=10560,1,1 block=1024,1,1 args=[x, y, u32:4096]\n"
    trace = _trace(10560 * 1024, 10560 * 1024, line)
    times = {}
    for gpus in SLICES:
        path = _plan(folder, trace, gpus)
        options = PlanRunOptions(requests=6, slots=1)
        kept = run_kept(prepare_kept(path, options, KeepOptions()), KeepOptions())
        assert not kept.exit_code, kept.outcome.fault
        steps = [e.end_ns - e.start_ns for e in kept.outcome.events() if e.name == "steps"]
        times[gpus] = statistics.median(steps[1:])
    rows = [
        {
            "gpus": gpus,
            "step_us": round(ns / 1e3, 1),
            "sms": round(132 * times["h200"] / ns, 1),
        }
        for gpus, ns in times.items()
    ]
    print(rows, flush=True)
    return rows


def _trace(inputs: int, outputs: int, launches: str) -> str:
    head = f"//! tessera.trace 1\n//! buffer x bytes={4 * inputs} role=input dtype=f32\n"
    return f"{head}//! buffer y bytes={4 * outputs} role=output dtype=f32\n{KERNELS}{launches}"


def _plan(folder: Path, trace: str, gpus: str) -> str:
    (folder / "trace.ptx").write_text(trace)
    made = make_plan(str(folder / "trace.ptx"), PlanOptions(gpus=gpus, tables=False), compare=False)
    path = folder / "plan.tsp"
    path.write_text(print_plan(made.plan))
    return str(path)


if __name__ == "__main__":
    main()
