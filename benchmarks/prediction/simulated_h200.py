"""Plans on slices of an H200: what is predicted, what is simulated, what the GPU does.

    python -m benchmarks.prediction.simulated_h200 profile --out OUT --work WORK [--seconds 150]  \
         # on the GPU
    python -m benchmarks.prediction.simulated_h200 busy    --out OUT --work WORK                  \
         # on the GPU
    python -m benchmarks.prediction.simulated_h200 plan    --out OUT --work WORK [--jobs 12]      \
         # anywhere
    python -m benchmarks.prediction.simulated_h200 run     --out OUT --work WORK [--seconds 180]  \
         # on the GPU
    python -m benchmarks.prediction.simulated_h200 steps   --out OUT --work WORK     # anywhere, \
        needs profiles
    python -m benchmarks.prediction.simulated_h200 again   --out OUT --work WORK     # anywhere
    python -m benchmarks.prediction.simulated_h200 report  --out OUT FILE            # anywhere

The models are those of `h200_models`, on 84 and 48 SMs and on the whole GPU. OUT gets a profile per
model (`MODEL.profile.json`) and a line per plan that ran (`simulated.jsonl`); WORK what is in
between (traces, plans). Every stage goes on from what is there. Requests come back to back for
`--each` seconds; rates are slopes, latencies medians of what the backend says of each request.
`busy` measures again, in profiles that are there, what requests take one and two at a time: cards
of one kind differ by some percent, so plans run on the card that these were measured on.
`again` simulates plans that ran once more, with what plans say of the host today. `steps` compares
the time of a whole step with what the model says without a profile.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.prediction.h200_models import MODELS
from benchmarks.prediction.simulated_plans import (
    RESULTS,
    WANTED,
    again,
    plan_all,
    plan_path,
    read_rows,
    report,
    simulated,
    steps,
    traces,
    variants,
)

DEVICES = "h200:84sm,h200:48sm,h200"
ARENA_BYTES = 100 << 30
BROKEN = 3


# --- profile ---------------------------------------------------------------------------------


def profile_all(options: argparse.Namespace, stage: str = "profile-model") -> None:
    """A process per model: one measures at a time, the others read and analyse meanwhile."""
    command = [sys.executable, "-m", "benchmarks.prediction.simulated_h200", stage]
    command += ["--out", str(options.out), "--work", str(options.work)]
    command += ["--seconds", str(options.seconds), "--repeats", str(options.repeats)]
    traces(options)
    running = [subprocess.Popen([*command, "--models", model]) for model in options.models]
    until = time.monotonic() + options.seconds
    for one in running:
        try:
            one.wait(max(until - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            print("profiling takes too long:", one.args, flush=True)
            one.kill()


def profile(options: argparse.Namespace, module: Any = None, devices: str = DEVICES) -> None:
    """Profiles that are not there yet; the whole GPU last."""
    import fcntl
    from unittest import mock

    from benchmarks.gain import device as gain_device
    from tessera.backend.cuda.measure import profile as cuda_profile
    from tessera.driver import bench as benches
    from tessera.driver import profile as profiling

    class Keeping(gain_device.FillingDriver):
        """Code is compiled once for all devices and models."""

        kept: dict[bytes, Any] = {}  # noqa: RUF012

        def load(self, text: bytes) -> Any:
            if text not in self.kept:
                self.kept[text] = super().load(text)
            return self.kept[text]

        def unload(self, module: Any) -> None:
            pass

    def one_at_a_time(work: Any) -> Any:
        def locked(*given: Any) -> Any:
            with (options.work / "lock").open("w") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX)
                return work(*given)

        return locked

    measure, together = profiling.Bench.measure, profiling.Bench.together
    block = gain_device.random_block()
    driver = Keeping(module or gain_device.bindings(), block)
    gain_device.open_driver(driver)
    driver.use(driver.retain(0))  # the context stays
    paths = traces(options)
    begun = time.monotonic()
    for name in options.models:
        target = options.out / f"{name}.profile.json"
        if target.exists() or time.monotonic() - begun > options.seconds:
            continue
        start = time.monotonic()
        try:
            with (
                mock.patch.object(profiling.Bench, "measure", one_at_a_time(measure)),
                mock.patch.object(profiling.Bench, "together", one_at_a_time(together)),
                mock.patch.object(benches, "open_contents", return_value=contents(block)),
                mock.patch.object(cuda_profile, "Profiler", gain_device.FoldingProfiler),
            ):
                found = profiling.profile(
                    str(paths[name]),
                    profiling.ProfileOptions(devices=devices, repeats=options.repeats),
                    driver=driver,
                )
        except Exception:
            traceback.print_exc()
            continue
        target.write_text(profiling.profile_text(found))
        wholes = {row["sms"]: round(row["ns"] / 1e3) for row in found["wholes"]}  # type: ignore[attr-defined]
        print(f"profiled {name} in {time.monotonic() - start:.1f} s: {wholes} us", flush=True)


def busy(options: argparse.Namespace, module: Any = None, devices: str = DEVICES) -> None:
    """What a request takes on a device that is busy for long, measured again."""
    import fcntl
    from unittest import mock

    from benchmarks.gain import device as gain_device
    from tessera.backend.cuda.measure.host_calls import host_byte_ns, host_call_ns
    from tessera.driver import bench as benches
    from tessera.driver import profile as profiling
    from tessera.driver.load import load
    from tessera.frontend.machine.gpus import parse_gpus

    block = gain_device.random_block()
    driver = gain_device.FillingDriver(module or gain_device.bindings(), block)
    gain_device.open_driver(driver)
    driver.use(driver.retain(0))
    for name in options.models:
        target, path = options.out / f"{name}.profile.json", str(traces(options)[name])
        data = json.loads(target.read_text())
        with mock.patch.object(benches, "open_contents", return_value=contents(block)):
            given = profiling.ProfileOptions(devices=devices, repeats=options.repeats)
            bench = profiling.bench_of(load(path), path, given, driver)
        with (options.work / "lock").open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            data["machine"]["host_call_ns"] = host_call_ns(driver, 0, 10.0)
            data["machine"]["host_byte_ns"] = host_byte_ns(driver, 0)
            print("a call and a byte of the host:", data["machine"], flush=True)
            for entry in parse_gpus(devices):
                sms = entry.sms or entry.gpu.sms
                (whole,) = (row for row in data["wholes"] if row["sms"] == sms)
                busy = profiling.busy_times(bench, entry, 0)
                whole.update(busy)
                print(name, sms, busy, flush=True)
        target.write_text(profiling.profile_text(data))


def contents(block: Any) -> Any:
    """Contents without tokens: inputs are activations here."""
    from benchmarks.gain.device import Filled
    from tessera.ir.program.program import Role

    class Activations(Filled):
        def read(self, buffer: Any) -> Any:
            return super().read(replace(buffer, role=Role.WEIGHT))

        def source(self, buffer: Any) -> Any:
            return super().source(replace(buffer, role=Role.WEIGHT))

    return Activations(block)


# --- run -------------------------------------------------------------------------------------


def run_model(options: argparse.Namespace, model: str, module: Any = None) -> int:
    """Every plan of a model that has not run yet."""
    from benchmarks.gain.device import Arena, FillingDriver, bindings, open_driver, random_block

    known = {row["id"] for row in read_rows(options)}
    until = time.monotonic() + options.seconds
    block = random_block()
    first = FillingDriver(module or bindings(), block)
    open_driver(first)
    first.use(first.retain(0))
    size = ARENA_BYTES if module is None else 1 << 20
    arena = Arena(first.allocate(size), size)
    for one in WANTED:
        path = plan_path(options, model, one.label)
        if not path.exists():
            continue
        plan, prepared = pickle.loads(path.read_bytes())
        for suffix, changed, ready, extra in variants(plan, prepared, one):
            key = f"{model} {one.label}{suffix}"
            if key in known or time.monotonic() > until:
                continue
            row = {"id": key, "model": model, "label": one.label, "variant": suffix.strip()}
            try:
                row |= measured(changed, ready, block, arena, options.each, extra, module)
            except Exception as problem:
                row["error"] = f"{type(problem).__name__}: {problem}"[:300]
                print(key, row["error"], flush=True)
            with (options.out / RESULTS).open("a") as stream:
                stream.write(json.dumps(row) + "\n")
            if "error" in row:
                return BROKEN  # a fresh process for the next
            ratio = row["measured_ns"] / row["simulated_ns"]
            print(f"{key}: {row['measured_ns'] / 1e3:.0f} us, {ratio:.3f} of simulated", flush=True)
    return 0


def measured(
    plan: Any,
    prepared: Any,
    block: Any,
    arena: Any,
    seconds: float,
    extra: dict[str, Any],
    module: Any,
) -> dict[str, Any]:
    """A plan on the GPU and in the simulator."""
    from unittest import mock

    from benchmarks.gain import device as gain_device
    from benchmarks.gain.clock import ClockWatch

    options_of, filled = gain_device.CudaOptions, contents(block)
    with (
        mock.patch.object(gain_device, "Filled", return_value=filled),
        mock.patch.object(gain_device, "CudaOptions", lambda **given: options_of(**given, **extra)),
    ):
        served = gain_device.Served(prepared, block, arena, module)
    try:
        served.refill()
        host = [HostTime(backend) for backend in served.backends]
        with ClockWatch() as watch:
            rates, latencies = feed(served, seconds)
        depth = served.backends[0].depth
    finally:
        served.close()
    shares = [replica.share for replica in plan.replicas]
    by_share = max(share * 1e9 / rate for share, rate in zip(shares, rates, strict=True))
    return {
        "strategy": plan.strategy,
        "slots": [replica.slots for replica in plan.replicas],
        "shares": shares,
        "gates": sum(t.gate is not None for r in plan.replicas for t in r.lowered.traces),
        "transfers": sum(len(t.transfers) for r in plan.replicas for t in r.lowered.traces),
        "depth": depth,
        "predicted_ns": round(plan.period_ns, 1),
        "predicted_latency_ns": round(plan.loaded_latency_ns, 1),
        "measured_ns": round(by_share, 1),
        "measured_sum_ns": round(1e9 / sum(rates), 1),
        "measured_latency_ns": statistics.median(latencies),
        "requests": len(latencies),
        "host_begin_ns": [one.each_ns("begin") for one in host],
        "host_collect_ns": [one.each_ns("collect") for one in host],
        "mhz": watch.mhz,
        "watts": watch.watts,
        **simulated(plan, depth),
    }


class HostTime:
    """What the host spends on requests of a backend: to hand them over, to take outputs."""

    def __init__(self, backend: Any) -> None:
        self._spent = {"begin": 0, "collect": 0}
        self._requests = 0
        begin, collect = backend.begin, backend.collect

        def timed_begin(request: Any) -> None:
            start = time.perf_counter_ns()
            begin(request)
            self._spent["begin"] += time.perf_counter_ns() - start
            self._requests += 1

        def timed_collect(timeout_s: float) -> Any:
            start = time.perf_counter_ns()
            completions = collect(timeout_s)
            if completions and not timeout_s:
                self._spent["collect"] += time.perf_counter_ns() - start
            return completions

        backend.begin, backend.collect = timed_begin, timed_collect

    def each_ns(self, part: str) -> float:
        """Per request."""
        return round(self._spent[part] / max(self._requests, 1), 1)


def feed(served: Any, seconds: float) -> tuple[list[float], list[float]]:
    """Requests per second of every replica, all kept busy; latencies of the requests."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    from benchmarks.gain.device import rate_between

    over = threading.Event()
    ends: list[list[tuple[float, int]]] = [[] for _ in served.dispatchers]

    with ThreadPoolExecutor(len(ends)) as pool:
        feeding = [pool.submit(served.keep_busy, i, one, over) for i, one in enumerate(ends)]
        least = [2 * one.capacity for one in served.dispatchers]
        warm = time.perf_counter() + min(0.3, seconds)
        while not any(f.done() for f in feeding) and (
            time.perf_counter() < warm
            or any(len(one) < n for one, n in zip(ends, least, strict=True))
        ):
            time.sleep(0.002)
        begun = time.perf_counter()
        more = [len(one) + 8 for one in ends]
        while not any(f.done() for f in feeding) and (
            time.perf_counter() < begun + seconds
            or any(len(one) < n for one, n in zip(ends, more, strict=True))
        ):
            time.sleep(0.002)
        ended = time.perf_counter()
        over.set()
    for one in feeding:
        one.result()
    rates = [rate_between([at for at, _ in one], begun, ended) for one in ends]
    return rates, [float(ns) for one in ends for at, ns in one if begun <= at <= ended]


def run(options: argparse.Namespace) -> None:
    """A process per model; after a failure another goes on."""
    until = time.monotonic() + options.seconds
    for number, model in enumerate(options.models):
        for _ in range(20):
            left = until - time.monotonic()
            if left < 5:
                return
            mine = left / (len(options.models) - number)
            command = [sys.executable, "-m", "benchmarks.prediction.simulated_h200", "run-model"]
            command += ["--out", str(options.out), "--work", str(options.work)]
            command += ["--seconds", f"{mine:.1f}", "--each", str(options.each), "--models", model]
            try:
                code = subprocess.run(command, timeout=mine + 60).returncode
            except subprocess.TimeoutExpired:
                print(model, "did not end", flush=True)
                break
            if code != BROKEN:
                break


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    stages = ("profile", "profile-model", "busy", "busy-model", "plan", "run", "run-model")
    stages += ("steps", "again", "report")
    parser.add_argument("stage", choices=stages)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("/tmp/simulated_h200"))
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--each", type=float, default=1.5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    options = parser.parse_args()
    for folder in (options.out, options.work):
        folder.mkdir(parents=True, exist_ok=True)
    match options.stage:
        case "profile":
            profile_all(options)
        case "profile-model":
            profile(options)
        case "busy":
            profile_all(options, "busy-model")
        case "busy-model":
            busy(options)
        case "plan":
            plan_all(options)
        case "run":
            run(options)
        case "run-model":
            sys.exit(run_model(options, options.models[0]))
        case "steps":
            steps(options)
        case "again":
            again(options)
        case _:
            report(options)


if __name__ == "__main__":
    main()
