"""Times of kernels at the sizes of real models on an H200: whole, and on slices of 84 and 48 SMs.

    python -m benchmarks.prediction.h200_rows --out FOLDER [--seconds 300] [--cases FILE]

Rows go to `FOLDER/h200_rows.jsonl` one by one; what is there already is not measured again, and
what fails is a row with an `error`. Two kinds, each in a process of its own: `ptx`, the launches of
`results/h200_cases.json.xz` (no Triton is needed here), and `library`, PyTorch's operators.

A row's `ns` is with cold caches: launches in one CUDA graph take turns over sets of buffers that
are larger than L2 together (`rotated_bytes`; what is small may still be in L2). `warm_ns` is one
set over and over. Both are medians of graphs. Half of all cases come first, then slices, then the
rest, so that a run that ends early has something of everything.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import add_row, read_rows
from benchmarks.prediction.h200_cases import CASES, parameters_of, read_cases
from benchmarks.prediction.h200_shapes import Case, Tensor

WHOLE, SLICES = 132, (84, 48)
FILE = "h200_rows.jsonl"
REPEATS, TARGET_NS = 5, 3_000_000
MOST_LAUNCHES, MOST_SETS, ROTATED_BYTES = 256, 128, 200 << 20
READ_BYTES, WRITTEN_BYTES, BLOCK_BYTES = 14 << 30, 4 << 30, 16 << 20
BROKEN = 3  # the exit code of a process whose context is lost


@dataclass(frozen=True)
class Job:
    """A case to measure on a number of SMs."""

    key: str
    about: dict[str, object]
    sms: int
    case: Any


def in_order(
    cases: Sequence[Any], describe: Callable[[Any], tuple[str, dict[str, object]]]
) -> Iterator[Job]:
    """Half of everything, half of that on slices, then the rest."""
    by_family: dict[object, list[Any]] = {}
    for case in cases:
        by_family.setdefault(describe(case)[1]["family"], []).append(case)
    passes = (
        (0, 2, (WHOLE,)),
        (0, 4, SLICES),
        (1, 2, (WHOLE,)),
        (2, 4, SLICES),
        (1, 2, SLICES),
    )
    for first, step, sizes in passes:
        for found in by_family.values():
            for case in found[first::step]:
                for sms in sizes:
                    name, about = describe(case)
                    yield Job(f"{name} @{sms}", about, sms, case)


class Rows:
    """The file of rows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = {row["id"] for row in read_rows(path)}

    def add(self, job: Job, found: dict[str, object]) -> None:
        add_row(self.path, {"id": job.key, **job.about, "sms": job.sms, **found})
        self.known.add(job.key)


def run_jobs(
    jobs: Iterator[Job], rows: Rows, until: float, measure: Callable[[Job], dict[str, object]]
) -> int:
    """Measure jobs without a row, and print how many failed."""
    count = failed = 0
    for job in jobs:
        if time.monotonic() > until:
            print("time is over", flush=True)
            break
        if job.key in rows.known:
            continue
        try:
            found = measure(job)
        except Exception as problem:
            failed += 1
            rows.add(job, {"error": f"{type(problem).__name__}: {problem}"[:300]})
            print(job.key, repr(problem)[:200], flush=True)
            if is_broken(problem):
                return BROKEN
            continue
        rows.add(job, found)
        count += 1
        if count % 50 == 1:
            print(f"{count} rows: {job.key}: {found['ns']} ns", flush=True)
    print(count, "rows,", failed, "failed", flush=True)
    return 0


def is_broken(problem: Exception) -> bool:
    """Whether nothing more can run in this process."""
    text = str(problem)
    words = (
        "ILLEGAL",
        "LAUNCH_FAILED",
        "MISALIGNED",
        "illegal",
        "misaligned",
        "unspecified launch",
    )
    return any(word in text for word in words)


class Clock:
    """The clock of the SMs in MHz, by NVML; None without NVML."""

    def __init__(self) -> None:
        self._device = ctypes.c_void_p()
        self._nvml: Any = None
        try:
            nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        if not (
            nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self._device))
        ):
            self._nvml = nvml

    def mhz(self) -> int | None:
        clock = ctypes.c_uint()
        if self._nvml is None:
            return None
        wrong = self._nvml.nvmlDeviceGetClockInfo(self._device, 1, ctypes.byref(clock))
        return None if wrong else clock.value


def summary(times: Sequence[float], launches: int) -> tuple[float, float]:
    """Nanoseconds of a launch, and the mean distance from the median as a fraction."""
    each = [one / launches for one in times]
    middle = statistics.median(each)
    return round(middle, 1), round(
        statistics.mean(abs(t - middle) for t in each) / max(middle, 1e-9), 4
    )


def launches_of(once_ns: float, sets: int) -> int:
    """Launches of a graph: a few milliseconds, every set as often as the others."""
    wanted = min(max(TARGET_NS / max(once_ns, 500.0), 2), MOST_LAUNCHES)
    return max(1, round(wanted / sets)) * sets


# --- launches of PTX -------------------------------------------------------------------------


class Bench:
    """The GPU by its driver: memory, streams of slices, code."""

    def __init__(
        self, driver: Any = None, read: int = READ_BYTES, written: int = WRITTEN_BYTES
    ) -> None:
        import numpy as np

        from tessera.backend.cuda.slices import split_gpu
        from tessera.backend.cuda.targets import open_driver

        self.driver = driver = open_driver(driver)
        driver.use(driver.retain(0))
        lowest, _ = driver.priorities()
        whole = driver.gpus()[0].sms
        self.streams = {whole: driver.stream(lowest)}
        for green, sms in split_gpu(driver, 0, list(SLICES), [0, 1]):
            self.streams[sms] = driver.stream(lowest, green)
        self.events = [driver.event(timed=True) for _ in range(2)]
        self.sizes = read, written
        self.read, self.written = driver.allocate(read), driver.allocate(written)
        block_bytes = min(BLOCK_BYTES, read)
        values = np.random.default_rng(0).standard_normal(block_bytes // 2, np.float32)
        block = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        driver.upload(self.read, block)
        done = block_bytes
        while done < read:
            size = min(done, read - done)
            driver.call("cuMemcpyDtoD", self.read + done, self.read, size)
            done += size
        driver.finish()
        self.modules: dict[str, Any] = {}
        self.clock = Clock()

    def function(self, case: Case, text: str) -> Any:
        if case.code not in self.modules:
            self.modules[case.code] = self.driver.load(text.encode())
        found = self.driver.function(self.modules[case.code], case.kernel)
        self.driver.allow_shared(found, case.shared)
        return found

    def time(self, work: Callable[[], None], stream: Any) -> float:
        driver = self.driver
        driver.record(self.events[0], stream)
        work()
        driver.record(self.events[1], stream)
        driver.call("cuStreamSynchronize", stream)
        return float(driver.elapsed_ns(*self.events))

    def measure(self, case: Case, text: str, sms: int) -> dict[str, object]:
        """The times of a case on a number of SMs, with cold and with warm caches."""
        stream = self.streams[sms]
        function = self.function(case, text)
        sets, rotated, kept = self.sets_of(case, len(parameters_of(text)))
        grid = (*case.grid, 1, 1)[:3]

        def launch(number: int) -> None:
            self.driver.call(
                "cuLaunchKernel",
                function,
                *grid,
                case.threads,
                1,
                1,
                case.shared,
                stream,
                sets[number],
                0,
            )

        launch(0)
        self.driver.call("cuStreamSynchronize", stream)
        once = min(self.time(lambda: launch(len(sets) - 1), stream) for _ in range(3))
        cold, spread, count = self.graph(launch, len(sets), once, stream)
        mhz = self.clock.mhz()
        warm, warm_spread, _ = self.graph(launch, 1, once, stream)
        del kept
        return {
            "ns": cold,
            "spread": spread,
            "warm_ns": warm,
            "warm_spread": warm_spread,
            "sets": len(sets),
            "rotated_bytes": rotated,
            "launches": count,
            "mhz": mhz,
        }

    def graph(
        self, launch: Callable[[int], None], sets: int, once: float, stream: Any
    ) -> tuple[float, float, int]:
        launches = launches_of(once, sets)
        self.driver.begin_capture(stream)
        for number in range(launches):
            launch(number % sets)
        graph = self.driver.end_capture(stream)
        try:
            go = lambda: self.driver.launch_graph(graph, stream)  # noqa: E731
            times = [self.time(go, stream) for _ in range(REPEATS + 1)][1:]
        finally:
            self.driver.destroy_graph(graph)
        return (*summary(times, launches), launches)

    def sets_of(self, case: Case, parameters: int) -> tuple[list[int], int, list[object]]:
        """Parameters of as many sets of buffers as make L2 cold, their bytes, what to keep."""
        import numpy as np

        from benchmarks.prediction.h200_cases import distinct_bytes

        every = {one.name: one for one in case.tensors}
        table = every.get("table")
        apart = [one for one in every.values() if one is not table]
        reads = sum(padded(one) for one in apart if one.role != "output")
        writes = sum(padded(one) for one in apart if one.role == "output")
        room_read = self.sizes[0] - (padded(table) if table else 0)
        most = min(MOST_SETS, room_read // max(reads, 1), self.sizes[1] // max(writes, 1))
        if most < 1:
            raise MemoryError(f"{reads} bytes to read and {writes} to write")
        count = int(min(max(ROTATED_BYTES // distinct_bytes(case) + 1, 2), most))
        sets, kept = [], []
        at = {"read": self.read + (padded(table) if table else 0), "written": self.written}
        generator = np.random.default_rng(1)
        for _ in range(count):
            places = {} if table is None else {"table": self.read}
            for one in apart:
                side = "written" if one.role == "output" else "read"
                places[one.name] = at[side]
                at[side] += padded(one)
                if one.kind == "i32":
                    numbers = generator.integers(0, max(one.below, 1), one.elements, np.int32)
                    self.driver.upload(places[one.name], numbers.view(np.uint8))
            values = [
                ctypes.c_uint64(places[a.name]) if isinstance(a, Tensor) else ctypes.c_uint32(a)
                for a in case.arguments
            ]
            values += [ctypes.c_uint64(0)] * (parameters - len(values))
            pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
            kept.append((values, pointers))
            sets.append(ctypes.addressof(pointers))
        self.driver.settle()
        return sets, count * (reads + writes), kept


def padded(one: Tensor) -> int:
    return -(-one.bytes // 256) * 256


def describe_case(case: Case) -> tuple[str, dict[str, object]]:
    about = {
        "source": "ptx",
        "family": case.family,
        "name": case.name,
        "kernel": case.kernel,
        "code": case.code,
        "shape": dict(case.shape),
    }
    return f"ptx {case.family} {case.name}", about


def ptx_part(options: argparse.Namespace, rows: Rows, until: float, driver: Any = None) -> int:
    cases, codes = read_cases(options.cases)
    bench = Bench(driver) if driver is None else Bench(driver, 4 << 20, 1 << 20)

    def measure(job: Job) -> dict[str, object]:
        return bench.measure(job.case, codes[job.case.code], job.sms)

    return run_jobs(in_order(cases, describe_case), rows, until, measure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--part", choices=("ptx",))
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if options.part is None:
        parts(options, until)
        return
    sys.exit(ptx_part(options, Rows(options.out / FILE), until))


def parts(options: argparse.Namespace, until: float) -> None:
    """Both parts; a process whose context is lost is followed by another."""
    begun = time.monotonic()
    # PTX rows have 0.6 of the time, what they leave over is the library's.
    for part, share in (("ptx", 0.6), ("library", 1.0)):
        end = begun + (until - begun) * share
        for _ in range(8):
            left = end - time.monotonic()
            if left < 3:
                break
            command = [sys.executable, "-m", "benchmarks.prediction.h200_library"]
            if part == "ptx":
                command = [sys.executable, "-m", "benchmarks.prediction.h200_rows", "--part", part]
                command += ["--cases", str(options.cases)]
            command += ["--out", str(options.out), "--seconds", f"{left:.1f}"]
            try:
                code = subprocess.run(command, timeout=left + 30).returncode
            except subprocess.TimeoutExpired:
                print(part, "did not end", flush=True)
                break
            except OSError:
                traceback.print_exc()
                break
            print(part, "ended with", code, f"{time.monotonic() - begun:.0f} s", flush=True)
            if code != BROKEN:
                break


if __name__ == "__main__":
    main()
