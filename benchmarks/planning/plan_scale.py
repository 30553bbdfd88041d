"""How long `tessc plan` takes on traces of very many launches, and where the time goes.

    python -m benchmarks.planning.plan_scale [--sizes 1000,10000,100000] [--models NAMES] [-o FILE]

The trace is of two element-wise kernels in layers of ten launches, each with a weight of its own,
planned for an A100 and an L40S. Models are traces of `real_traces.py`: about 1000 calls on two GPUs
to 1% and at the default gap, and all of Llama 70B on eight GPUs, with slots as they pay and with
given ones. Mixes are a prompt of 1024 tokens and four decode steps of 64 sequences: 8B on two GPUs,
70B on eight. Each runs in a process of its own, without a cache. Seconds are of processor time,
since wall time says little on a busy machine; stages are those that a terminal shows. `planning` is
what comes after reading and durations, without the comparison with other GPUs. A busy machine also
makes processor time longer: `million_calls_s` is what a million calls of an empty function took
just before and after, which is about 0.05 on an idle core.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.common import arguments, machine, million_calls_s, write

COUNT, LAYER = 65536, 10
GPUS = "a100,l40s"
_EIGHT = "4xa100,4xl40s"
_READING = ("reading and analysing", "analysing", "working out durations")
_COMPARING = "comparing with other GPUs"

MODELS: dict[str, tuple[str, str, int, dict[str, object]]] = {
    # name: model, phase, layers, options
    "decode-1000": ("llama-8b", "decode", 45, {"gap": 0.01}),
    "decode-1000-default-gap": ("llama-8b", "decode", 45, {}),
    "prefill-1000": ("llama-8b", "prefill", 45, {"gap": 0.01}),
    "tight-1000": ("llama-70b", "decode", 45, {"gap": 0.01}),
    "experts-1000": ("gpt-oss-20b", "decode", 24, {"gap": 0.01}),
    "70b": ("llama-70b", "decode", 80, {"gpus": _EIGHT}),
    **{
        f"70b-slots-{slots}": ("llama-70b", "decode", 80, {"gpus": _EIGHT, "slots": slots})
        for slots in (1, 2, 6, 8)
    },
}
MIXES: dict[str, tuple[tuple[tuple[str, int], ...], dict[str, object]]] = {
    # name: files of examples/large with their parts of the requests, options
    f"{model}-mix": (
        ((f"llama-{model}-prefill-1024", 1), (f"llama-{model}-decode-b64", 4)),
        {"gpus": gpus},
    )
    for model, gpus in (("8b", "a100,l40s"), ("70b", _EIGHT))
}
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


def text_of(case: str) -> str:
    """The traces of a case: a number of launches, a model, or files of a mix."""
    if case in MIXES:
        from benchmarks.planning.serving_traces import FOLDER

        return "".join((FOLDER / f"{name}.ptx").read_text() for name, _ in MIXES[case][0])
    if case not in MODELS:
        return trace_text(int(case))
    from benchmarks.planning.real_traces import real_trace

    model, phase, layers, _ = MODELS[case]
    return real_trace(model, phase, batch=8 if phase == "decode" else 1, layers=layers)


def measure(case: str, text: str) -> dict[str, object]:
    """Plan one trace in this process."""
    os.environ["TESSERA_NO_CACHE"] = "1"
    from tessera.diagnostics import TesseraError
    from tessera.driver.plan import PlanOptions, Watch, plan

    given: dict[str, object] = MODELS[case][3] if case in MODELS else {}
    shares: tuple[int, ...] = (1,)
    if case in MIXES:
        files, given = MIXES[case]
        shares = tuple(share for _, share in files)
    gc.set_threshold(200_000, 20)  # as the command does
    calls = [million_calls_s()]
    began: list[tuple[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        traces = []
        for number, (own, share) in enumerate(zip(_traces_in(text), shares, strict=True)):
            path = Path(folder) / f"trace{number}.ptx"
            path.write_text(own)
            traces.append(f"{path}:{share}" if case in MIXES else str(path))
        watch = Watch(on_progress=lambda told: began.append((told.stage, time.process_time())))
        options = PlanOptions(**{"gpus": GPUS, **given})  # type: ignore[arg-type]
        try:
            found = plan(traces, options, watch).plan
        except TesseraError as fault:
            found = None
            answer: dict[str, object] = {"none": str(fault.diagnostics[0].headline)}
    ends = [*(start for _, start in began[1:]), time.process_time()]
    calls.append(million_calls_s())
    stages: dict[str, float] = {}
    for (stage, start), end in zip(began, ends, strict=True):
        stages[stage] = round(stages.get(stage, 0.0) + end - start, 2)
    if found is not None:
        answer = {
            "strategy": found.strategy,
            "gap": round(found.gap, 6),
            "slots": found.replicas[0].slots,
            "requests_per_second": round(1e9 / found.period_ns, 3),
        }
    return {
        "case": case,
        "launches": text.count("//! launch ") + text.count("//! op "),
        **given,
        "cpu_seconds": round(ends[-1] - began[0][1], 2),
        "planning": round(sum(s for n, s in stages.items() if n not in (*_READING, _COMPARING)), 2),
        "stages": stages,
        "million_calls_s": calls,
        **answer,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _traces_in(text: str) -> list[str]:
    """The traces that `text_of` has put one after the other."""
    return [f"//! tessera.trace{own}" for own in text.split("//! tessera.trace")[1:]]


def _run(case: str) -> dict[str, object]:
    """A case in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.planning.plan_scale", "--one", case]
    text = text_of(case).encode()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, input=text)
    row: dict[str, object] = json.loads(done.stdout)
    return row


def main() -> None:
    parser = arguments(__doc__, "plan_scale.json")
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--models", default=",".join((*MODELS, *MIXES)))
    parser.add_argument("--one")
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(measure(given.one, sys.stdin.read())))
        return
    rows = []
    for case in filter(None, f"{given.sizes},{given.models}".split(",")):
        rows.append(_run(case))
        print(json.dumps(rows[-1]), flush=True)
    write({**machine(), "gpus": GPUS, "rows": rows}, given.output)


if __name__ == "__main__":
    main()
