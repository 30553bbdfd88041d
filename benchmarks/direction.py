"""Which of two GPUs runs a kernel faster: the model on PTX against published tables.

    python benchmarks/direction.py [--works FILE] [--before FILE] [-o results.json]

Shapes of products and attention with their measured times on A100 and L40S (rows drawn from the
tables, `results/direction_rows.json`). For each shape, Triton kernels compiled for each
architecture (`tests/data/triton/kernels.tar.xz`, made by `kernels/triton_arch.py`) are counted, and
the time of the fastest is the prediction, as a library would choose. No row of these tables is in
the fit of the model; two parts per GPU (`device_model.SUSTAINED`: bandwidth and matrix rate that
large products reach) come from them, and the result without those stands beside. `--works` keeps
the counts between runs; `--before` is the result of another commit (9789f00), run with
PYTHONPATH at its tree, which is put beside; without, what the output has stays. Short rows of
attention hold more than one kernel: the factor says so.
"""

from __future__ import annotations

import argparse
import json
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from statistics import median

sys.path.append(str(Path(__file__).parents[1]))

from tessera.diagnostics import Source
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, LaunchId, ModuleId, Pointer, Scalar
from tessera.ir.ptx import syntax as ptx
from tessera.passes.costs import device_model, estimate_costs
from tessera.passes.costs.count_work import count_work
from tessera.passes.costs.device_model import Traffic, launch_ns

HERE = Path(__file__).parent
ROWS = HERE / "results" / "direction_rows.json"
KERNELS = HERE.parent / "tests" / "data" / "triton" / "kernels.tar.xz"
GPUS = ("a100", "l40s")
GEMMS = ("gemm16", "gemm64", "gemm128", "grouped")
WIDTH = 128  # of a head
APART = 1.1
LONG_US = 50.0
ONE = {"gemm": 3, "prefill": 1, "decode": 1}  # the place of one kernel among those of a row
MOST_SPLIT, PARTS = 160, 8  # tiles of a product that is cut, and into how many parts


Works = dict[str, list[LaunchWork]]
Pair = tuple[tuple[float, float], tuple[float, float]]  # predicted and measured on both GPUs


class Kernels:
    """The recorded kernels, parsed when they are asked for."""

    def __init__(self) -> None:
        with tarfile.open(KERNELS) as archive:
            names = [member.name for member in archive.getmembers() if member.isfile()]
            self.texts = {n: (archive.extractfile(n) or sys.stdin.buffer).read() for n in names}
        self.index = json.loads(self.texts["index.json"])
        self.modules: dict[str, ptx.Module] = {}

    def launch(
        self, name: str, grid: tuple[int, int, int], pointers: int, sizes: tuple[int, ...]
    ) -> LaunchWork:
        """The work of a kernel of the archive with these sizes as arguments."""
        about = self.index[name]
        if name not in self.modules:
            self.modules[name] = parse_source(Source(name, self.texts[name].decode()))
        scale = (Scalar(DataType.F32, 0),) if pointers == 4 else ()
        numbers = tuple(Scalar(DataType.S32, size) for size in sizes)
        launch = Launch(
            id=LaunchId(0),
            module=ModuleId(0),
            kernel=about["kernel"],
            grid=grid,
            block=(about["threads"], 1, 1),
            arguments=(*(Pointer(n, 0) for n in range(pointers)), *numbers, *scale),
            shared_bytes=about["shared"],
        )
        found = count_work(self.modules[name], launch)
        assert found is not None
        return found

    def split_works(self, shape: list[int], arch: str) -> Iterator[LaunchWork]:
        """Products of few tiles and long rows, cut along the rows as libraries do."""
        m, n, k = shape
        for name in GEMMS[:2]:
            file = f"{name}_sm{arch.removeprefix('sm_')}.ptx"
            size = self.index[file]["constants"]
            down, across = -(-m // size["BM"]), -(-n // size["BN"])
            if down * across < MOST_SPLIT and k >= PARTS * 2 * size["BK"]:
                yield self.launch(file, (down, across, PARTS), 3, (m, n, k // PARTS))

    def works(self, kind: str, shape: list[int], arch: str) -> Iterator[LaunchWork]:
        """The work of each kernel that does a row."""
        number = arch.removeprefix("sm_")
        if kind == "gemm":
            m, n, k = shape
            for name in GEMMS:
                size = self.index[f"{name}_sm{number}.ptx"]["constants"]
                down, across = -(-m // size["BM"]), -(-n // size["BN"])
                grid = (down * across, 1, 1) if name == "grouped" else (down, across, 1)
                yield self.launch(f"{name}_sm{number}.ptx", grid, 3, (m, n, k))
            return
        batch, length, heads, kv_heads = shape
        group = heads // kv_heads
        if kind == "prefill":
            for name, rows in (("flash64", 64), ("flash128", 128)):
                grid = (-(-length // rows), batch * heads, 1)
                yield self.launch(f"{name}_sm{number}.ptx", grid, 4, (length, group))
            return
        for parts in (1, 4, 16):
            part = -(-length // parts // 64) * 64 if length >= 64 * parts else 64
            grid = (kv_heads, batch, -(-length // part))
            yield self.launch(f"decode_sm{number}.ptx", grid, 4, (length, group, part))


def moved_bytes(kind: str, shape: list[int]) -> float:
    """Distinct bytes of a row."""
    if kind == "gemm":
        m, n, k = shape
        return 2.0 * (m * k + k * n + m * n)
    batch, length, heads, kv_heads = shape
    queries = length if kind == "prefill" else 1
    return 2.0 * batch * WIDTH * (2 * queries * heads + 2 * length * kv_heads)


def traffic_of(kind: str, shape: list[int]) -> Traffic:
    """As the tables look: products take turns over several buffers, attention runs again."""
    moved = moved_bytes(kind, shape)
    return Traffic(warm=moved, working=(6.0 if kind == "gemm" else 1.0) * moved)


def operations(kind: str, shape: list[int]) -> float:
    if kind == "gemm":
        m, n, k = shape
        return 2.0 * m * n * k
    batch, length, heads, _ = shape
    pairs = length * (length + 1) / 2 if kind == "prefill" else length
    return 4.0 * batch * heads * pairs * WIDTH


def predicted(
    works: Works, kind: str, shape: list[int], gpu: Gpu, only: int | None = None
) -> float:
    """Microseconds of the fastest kernel for a row, or of one."""
    traffic = traffic_of(kind, shape)
    key = f"{kind} {shape} {gpu.arch}"
    times = [launch_ns(work, traffic, gpu, gpu.sms) for work in works[key]]
    if only is not None:
        return times[only] / 1e3
    for work in works.get(f"split {key}", ()):
        partial = 8.0 * PARTS * shape[0] * shape[1]  # written and read again, in FP32
        more = Traffic(warm=traffic.warm + partial, working=traffic.working + partial)
        times.append(launch_ns(work, more, gpu, gpu.sms))
    return min(times) / 1e3


def roofline(kind: str, shape: list[int], gpu: Gpu) -> float:
    rate = gpu.flops("bf16") or 1e12
    seconds = (moved_bytes(kind, shape) / gpu.memory_bandwidth, operations(kind, shape) / rate)
    return max(seconds) * 1e6


def counted(rows: dict[str, list[list[float]]], store: Path | None) -> Works:
    """The works of all rows on all GPUs, by `kind shape arch`."""
    kept: dict[str, list[dict[str, object]]] = {}
    if store is not None and store.exists():
        kept = json.loads(store.read_text())
    kernels = Kernels()
    for kind, several in rows.items():
        for row in several:
            shape = [int(n) for n in row[:-2]]
            for name in GPUS:
                arch = machine_of(name).cards[0].gpu.arch
                key = f"{kind} {shape} {arch}"
                if key not in kept:
                    kept[key] = [asdict(w) for w in kernels.works(kind, shape, arch)]
                if kind == "gemm" and f"split {key}" not in kept:
                    kept[f"split {key}"] = [asdict(w) for w in kernels.split_works(shape, arch)]
        if store is not None:
            store.write_text(json.dumps(kept))
    return {
        key: [LaunchWork(**{**w, "units": tuple(map(tuple, w["units"]))}) for w in works]  # type: ignore[call-overload]
        for key, works in kept.items()
    }


def bar(us: float, gpu: Gpu) -> float:
    """The factor that the error bar of a predicted time stands for."""
    if hasattr(estimate_costs, "error_of"):
        return 1.0 + float(estimate_costs.error_of(us * 1e3, gpu))
    return 1.0 + 0.9 * 1.5  # as at 9789f00, which has no such function


def judged(rows: list[Pair], gpus: list[Gpu]) -> object:
    """How often the faster GPU is right, and how far off times are."""
    apart = [(p, m) for p, m in rows if max(m) > APART * min(m)]
    right = sum((p[0] < p[1]) == (m[0] < m[1]) for p, m in apart)
    result: dict[str, object] = {
        "rows": len(rows),
        "apart": len(apart),
        "faster_right": round(right / len(apart), 3),
    }
    both = [abs(log(a / b)) for p, m in rows for a, b in zip(p, m, strict=True)]
    for place, name in enumerate(GPUS):
        off = [log(p[place] / m[place]) for p, m in rows]
        result[name] = {"median_ratio": round(exp(median(off)), 3), **_factors(map(abs, off))}
    bars = [bar(one, gpu) for p, _ in rows for one, gpu in zip(p, gpus, strict=True)]
    inside = sum(e <= log(width) for e, width in zip(both, bars, strict=True)) / len(both)
    shown = {"inside_the_bar": round(inside, 3), "median_bar": round(median(bars), 2)}
    return {**result, **_factors(iter(both)), **shown}


def _factors(found: Iterator[float]) -> dict[str, float]:
    ordered = sorted(found)
    return {
        "median_factor": round(exp(median(ordered)), 3),
        "p90_factor": round(exp(ordered[int(0.9 * (len(ordered) - 1))]), 3),
    }


def measure(store: Path | None) -> dict[str, object]:
    rows = {k: v for k, v in json.loads(ROWS.read_text()).items() if isinstance(v, list)}
    works = counted(rows, store)
    gpus = [machine_of(name).cards[0].gpu for name in GPUS]
    result: dict[str, object] = {}
    every: list[Pair] = []
    single: list[Pair] = []
    plain: list[Pair] = []
    for kind, several in rows.items():
        model, one, sheet = [], [], []
        for row in several:
            shape, truth = [int(n) for n in row[:-2]], (row[-2], row[-1])
            ours = [predicted(works, kind, shape, gpu) for gpu in gpus]
            alone = [predicted(works, kind, shape, gpu, ONE[kind]) for gpu in gpus]
            one.append(((alone[0], alone[1]), truth))
            roof = [roofline(kind, shape, gpu) for gpu in gpus]
            model.append(((ours[0], ours[1]), truth))
            sheet.append(((roof[0], roof[1]), truth))
        result[kind] = compared(model, one, sheet, gpus)
        every += model
        single += one
        plain += sheet
    result["all"] = compared(every, single, plain, gpus)
    return result


def compared(
    model: list[Pair], one: list[Pair], sheet: list[Pair], gpus: list[Gpu]
) -> dict[str, object]:
    """The model's figures, those of long rows, of one kernel for all rows, and the roofline's."""
    return {
        "model": judged(model, gpus),
        "model_from_50_us": judged([row for row in model if min(row[1]) >= LONG_US], gpus),
        "one_kernel": judged(one, gpus),
        "roofline": judged(sheet, gpus),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--works", type=Path, help="counts, kept between runs")
    parser.add_argument("--before", type=Path, help="the result of another commit")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    document: dict[str, object] = {"schema": "tessera-direction-benchmark/1"}
    if options.before:
        document["before"] = json.loads(options.before.read_text())["now"]
    elif options.output and options.output.exists():
        document["before"] = json.loads(options.output.read_text()).get("before")
    document["now"] = measure(options.works)
    own: dict[str, object] | None = getattr(device_model, "SUSTAINED", None)
    if own:
        own.clear()  # neither GPU of the pair in any constant
        document["without_parts_of_their_own"] = measure(options.works)
    print(json.dumps(document, indent=1))
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
