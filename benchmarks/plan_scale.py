"""How long `tessc plan` takes on traces of very many launches, and where the time goes.

    python -m benchmarks.plan_scale [--sizes 1000,10000,100000] [--out FILE]

The trace is of two element-wise kernels in layers of ten launches, each with a weight of its own,
planned for an A100 and an L40S. Each size runs in a process of its own, without a cache. Seconds
are of processor time, since wall time says little on a busy machine; stages are those that a
terminal shows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

COUNT, LAYER = 65536, 10
GPUS = "a100,l40s"
_KERNEL = """.visible .entry {name}(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n) {{
 .reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f<4>; .reg .pred %p<2>;
 ld.param.u64 %rd1,[a]; ld.param.u64 %rd2,[b]; ld.param.u64 %rd3,[c]; ld.param.u32 %r1,[n];
 mov.u32 %r2,%ctaid.x; mov.u32 %r3,%ntid.x; mov.u32 %r4,%tid.x; mad.lo.s32 %r5,%r2,%r3,%r4;
 setp.ge.u32 %p1,%r5,%r1; @%p1 bra END;
 mul.wide.u32 %rd4,%r5,4; add.s64 %rd5,%rd1,%rd4; add.s64 %rd6,%rd2,%rd4; add.s64 %rd7,%rd3,%rd4;
 ld.global.f32 %f1,[%rd5]; ld.global.f32 %f2,[%rd6]; {name}.f32 %f3,%f1,%f2;
 st.global.f32 [%rd7],%f3;
END: ret; }}
"""


def trace_text(launches: int) -> str:
    """A chain with a branch in every layer."""
    size = 4 * COUNT
    lines = ["//! tessera.trace 1", f"//! buffer x bytes={size} role=input"]
    lines.append(f"//! buffer y bytes={size} role=output")
    lines += [f"//! buffer t{n} bytes={size} role=temp" for n in range(LAYER)]
    layers = -(-launches // LAYER)
    lines += [f"//! buffer w{n} bytes={size} role=weight" for n in range(layers)]
    lines += ["//! module m", ".version 8.0\n.target sm_80\n.address_size 64"]
    lines += [_KERNEL.format(name=name) for name in ("add", "mul")]
    last = "x"
    for number in range(launches):
        place = number % LAYER
        out = "y" if number == launches - 1 else f"t{place}"
        other = f"w{number // LAYER}" if place % 2 == 0 else f"t{place - 2}" if place > 1 else last
        name = "add" if place % 3 else "mul"
        lines.append(
            f"//! launch m.{name} grid={COUNT // 256},1,1 block=256,1,1 smem=0 "
            f"args=[{last}, {other}, {out}, u32:{COUNT}]"
        )
        last = out
    return "\n".join(lines) + "\n"


def measure(launches: int) -> dict[str, object]:
    """Plan one trace in this process."""
    os.environ["TESSERA_NO_CACHE"] = "1"
    from tessera.driver.plan.make_plan import PlanOptions, Watch, plan

    began: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.ptx"
        path.write_text(trace_text(launches))
        watch = Watch(on_progress=lambda told: began.append((told.stage, time.process_time())))
        found = plan(path, PlanOptions(gpus=GPUS), watch)
    ends = [*(start for _, start in began[1:]), time.process_time()]
    stages: dict[str, float] = {}
    for (stage, start), end in zip(began, ends, strict=True):
        stages[stage] = round(stages.get(stage, 0.0) + end - start, 2)
    return {
        "launches": launches,
        "cpu_seconds": round(ends[-1] - began[0][1], 2),
        "stages": stages,
        "strategy": found.plan.strategy,
        "gap": round(found.plan.gap, 6),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", type=int)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.one)))
        return
    rows = []
    for size in given.sizes.split(","):
        command = [sys.executable, "-m", "benchmarks.plan_scale", "--one", size]
        rows.append(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))
        print(json.dumps(rows[-1]), flush=True)
    found = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "gpus": GPUS,
        "load": round(os.getloadavg()[0], 1),
        "rows": rows,
    }
    if given.out is not None:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
