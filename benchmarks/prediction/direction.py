"""Which of two GPUs runs a kernel faster: the model on PTX against published tables.

    python -m benchmarks.prediction.direction [--works FILE] [-o results.json]
    python -m benchmarks.prediction.direction --draw    # new rows; needs the extra `tables`
    python -m benchmarks.prediction.direction --libraries  # the same by other libraries

Shapes of products and attention with their measured times on six GPUs (rows drawn from the tables,
`results/direction_rows.json`). For each shape, Triton kernels compiled for each architecture
(`tests/data/triton/kernels.tar.xz`, made by `kernels/triton_arch.py`) are counted, and the time of
the fastest is the prediction, as a library would choose. No table is looked up, and the constants
of the model are fitted to an H200. Two parts per GPU (`device_model.SUSTAINED`) come from tables:
for a pair, those of its own GPUs are left out (`alone`); the result with them stands beside
(`now`). A row of attention holds more than one kernel: a library
writes the cache, which is counted by its bytes, plans and joins. What these take in cycles is the
median of short rows of GPUs outside the pair. `--works` keeps the counts between runs.

Libraries run other kernels on other GPUs. Where two of them do not agree which of two GPUs is
faster, software decides. So the rows of TensorRT-LLM and of SGLang for the same shapes stand beside
those of vLLM: how often each two agree, and how often the model is right where all do (`agreed`).

Longer than 400 lines because the rows, their kernels and how they are judged are one comparison.
"""

from __future__ import annotations

import json
import random
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from statistics import median

from benchmarks.common import arguments, write
from tessera.diagnostics import Source
from tessera.frontend.machine.gpus import machine_of
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.architecture import arch_number, limits_of
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.machine import Gpu
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Launch, LaunchId, ModuleId, Pointer, Scalar
from tessera.ir.ptx import syntax as ptx
from tessera.planning.prices import device_model
from tessera.planning.prices.count_work import count_work
from tessera.planning.prices.device_model import Traffic, launch_ns
from tessera.planning.prices.estimate_costs import error_of
from tessera.planning.prices.library_calls import Plain
from tessera.planning.prices.library_launches import call_ns

HERE = Path(__file__).parents[1]
ROWS = HERE / "results" / "direction_rows.json"
KERNELS = HERE.parent / "tests" / "data" / "triton" / "kernels.tar.xz"
CARDS = ("l40s", "rtx-pro-6000")  # of graphics architectures
PAIRS = (("a100", "l40s"), ("h100", "rtx-pro-6000"), ("h200", "h100"), ("b200", "h100"))
KINDS = {"gemm": "gemm", "prefill": "context", "decode": "generation"}
GEMMS = ("gemm16", "gemm64", "gemm128", "grouped", "wide")
FLASHES = ("flash64", "flash64s", "flash128", "flash128n", "flash128w")
WIDTH = 128  # of a head
APART = 1.1
SHORT = 0.4  # of a row, the part that its kernel has
BRIEF, LONG = 20.0, 50.0  # microseconds
MOST_SPLIT, PARTS = 160, (2, 4, 8, 16, 32)  # tiles of a product that is cut, and numbers of parts
KEY_PARTS = (1, 4, 16, 64)
SMALL = 64  # columns and depth of the smallest products in the tables
LIBRARIES = {"TensorRT-LLM 1.3.0rc20": "trtllm/1.3.0rc20", "SGLang 0.5.14": "sglang/0.5.14"}
SYSTEMS = {
    "a100": "a100_sxm",
    "l40s": "l40s",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "b300": "b300_sxm",
    "rtx-pro-6000": "rtx_pro_6000_server",
}
OUTSIDE = ("l40s", "b300")  # GPUs of no pair of the last set, with rows for most of its shapes
LIKE = {"sm_103a": "sm_100a"}  # there is no other code for it here
# What vLLM computes attention with on a GPU; each brings launches of its own.
BACKENDS = {
    "a100": "FlashAttention 2",
    "l40s": "FlashAttention 2",
    "rtx-pro-6000": "FlashAttention 2",
    "h100": "FlashAttention 3",
    "h200": "FlashAttention 3",
    "b200": "TensorRT-LLM",
    "b300": "TensorRT-LLM",
}
HEADS = ("num_heads", "num_key_value_heads")
BF16 = {"attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "head_dim": WIDTH, "window_size": 0}
SOURCES: dict[str, tuple[str, str, tuple[str, ...], dict[str, object]]] = {
    "gemm": ("gemm", "gemm_perf", ("m", "n", "k"), {"gemm_dtype": "bfloat16"}),
    "prefill": ("attention", "context_attention_perf", ("batch_size", "isl", *HEADS), {**BF16}),
    "decode": ("attention", "generation_attention_perf", ("batch_size", "step", *HEADS), {**BF16}),
}
VERSION, SEED, DRAWN = "0.24.0", 17, {"gemm": 128, "prefill": 60, "decode": 60}

Works = dict[str, list[LaunchWork]]
Times = dict[str, float]


@dataclass(frozen=True)
class Row:
    """A shape, and microseconds by GPU; and by library, where others have measured it too."""

    kind: str
    shape: tuple[int, ...]
    us: Times
    others: dict[str, Times] = field(default_factory=dict)

    def apart(self, pair: tuple[str, str]) -> bool:
        """Whether the GPUs differ by more than 10%."""
        return _faster(self.us, pair) is not None

    def agreed(self, pair: tuple[str, str]) -> bool:
        """Whether all libraries, at least two, call the same GPU faster."""
        measured = [self.us, *(us for us in self.others.values() if all(n in us for n in pair))]
        return len(measured) > 1 and len({_faster(us, pair) for us in measured}) == 1


def _faster(us: Times, pair: tuple[str, str]) -> str | None:
    """The GPU of a pair that is faster by more than 10%."""
    first, second = sorted(pair, key=lambda name: us[name])
    return first if us[second] > APART * us[first] else None


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

    def split_works(self, shape: tuple[int, ...], arch: str, parts: int) -> Iterator[LaunchWork]:
        """Products of few tiles and long rows, cut along the rows as libraries do."""
        m, n, k = shape
        for name in GEMMS[:2]:
            file = f"{name}_sm{arch_number(arch)}.ptx"
            size = self.index[file]["constants"]
            down, across = -(-m // size["BM"]), -(-n // size["BN"])
            if down * across < MOST_SPLIT and k >= parts * 2 * size["BK"]:
                yield self.launch(file, (down, across, parts), 3, (m, n, k // parts))

    def works(self, kind: str, shape: tuple[int, ...], arch: str) -> Iterator[LaunchWork]:
        """The work of each kernel that does a row."""
        number = arch_number(arch)
        if kind == "gemm":
            m, n, k = shape
            for name in GEMMS:
                size = self.index[f"{name}_sm{number}.ptx"]["constants"]
                down, across = -(-m // size["BM"]), -(-n // size["BN"])
                grid = (down * across, 1, 1) if name in ("grouped", "wide") else (down, across, 1)
                yield self.launch(f"{name}_sm{number}.ptx", grid, 3, (m, n, k))
            return
        batch, length, heads, kv_heads = shape
        group = heads // kv_heads
        if kind == "prefill":
            for name in FLASHES:
                size = self.index[f"{name}_sm{number}.ptx"]["constants"]
                grid = (-(-length // size["BM"]), batch * heads, 1)
                yield self.launch(f"{name}_sm{number}.ptx", grid, 4, (length, group))
            return
        for parts in KEY_PARTS:
            part = -(-length // parts // 64) * 64 if length >= 64 * parts else 64
            grid = (kv_heads, batch, -(-length // part))
            yield self.launch(f"decode_sm{number}.ptx", grid, 4, (length, group, part))


def moved_bytes(kind: str, shape: tuple[int, ...]) -> float:
    """Distinct bytes of a row."""
    if kind == "gemm":
        m, n, k = shape
        return 2.0 * (m * k + k * n + m * n)
    batch, length, heads, kv_heads = shape
    queries = length if kind == "prefill" else 1
    return 2.0 * batch * WIDTH * (2 * queries * heads + 2 * length * kv_heads)


def traffic_of(kind: str, shape: tuple[int, ...]) -> Traffic:
    """As the tables look: products take turns over several buffers, attention runs again."""
    moved = moved_bytes(kind, shape)
    return Traffic(warm=moved, working=(6.0 if kind == "gemm" else 1.0) * moved)


def operations(kind: str, shape: tuple[int, ...]) -> float:
    if kind == "gemm":
        m, n, k = shape
        return 2.0 * m * n * k
    batch, length, heads, _ = shape
    pairs = length * (length + 1) / 2 if kind == "prefill" else length
    return 4.0 * batch * heads * pairs * WIDTH


def kernel_us(works: Works, row: Row, gpu: Gpu) -> float:
    """Microseconds of the fastest kernel for a row."""
    traffic = traffic_of(row.kind, row.shape)
    key = f"{row.kind} {list(row.shape)} {LIKE.get(gpu.arch, gpu.arch)}"
    most = limits_of(gpu.arch).cta_shared_bytes
    fits = [work for work in works[key] if work.shared_bytes <= most]
    times = [launch_ns(work, traffic, gpu, gpu.sms) for work in fits]
    for parts in PARTS:
        for work in works.get(f"split {parts} {key}", ()):
            partial = 8.0 * parts * row.shape[0] * row.shape[1]  # written and read again, in FP32
            more = Traffic(warm=traffic.warm + partial, working=traffic.working + partial)
            times.append(launch_ns(work, more, gpu, gpu.sms))
    return (min(times) + written_ns(row.kind, row.shape, gpu)) / 1e3


def written_ns(kind: str, shape: tuple[int, ...], gpu: Gpu) -> float:
    """How much longer attention takes for new keys and values, read and written to the cache."""
    if kind == "gemm":
        return 0.0
    batch, length, _, kv_heads = shape
    new = 2.0 * batch * (length if kind == "prefill" else 1) * kv_heads * WIDTH
    call = Plain(elements=new, operations=new, bytes=4.0 * new)
    traffic = Traffic(warm=4.0 * new, working=4.0 * new)
    nothing = Plain(elements=1.0, operations=1.0, bytes=4.0)
    least = call_ns(nothing, Traffic(warm=4.0), gpu, gpu.sms)  # is in `around_cycles`
    return max(0.0, call_ns(call, traffic, gpu, gpu.sms) - least)


def roofline(row: Row, gpu: Gpu) -> float:
    rate = gpu.flops("bf16") or 1e12
    moved = moved_bytes(row.kind, row.shape) / gpu.memory_bandwidth
    return max(moved, operations(row.kind, row.shape) / rate) * 1e6


def gpu_of(name: str) -> Gpu:
    return machine_of(name).cards[0].gpu


def read_rows() -> list[Row]:
    rows = []
    for one in json.loads(ROWS.read_text())["sets"]:
        count = len(one["gpus"])
        for kind in KINDS:
            for number, row in enumerate(one[kind]):
                shape = tuple(int(n) for n in row[:-count])
                others = {
                    library: dict(zip(one["gpus"], known[kind][number], strict=True))
                    for library, known in one.get("others", {}).items()
                    if known[kind][number]
                }
                us = dict(zip(one["gpus"], row[-count:], strict=True))
                for name, known in one.get("outside", {}).items():
                    us.update((name, time) for time in known[kind][number])
                rows.append(Row(kind, shape, us, others))
    return rows


def draw() -> None:
    """New rows that four GPUs of the extra have; the first set of the file stays."""
    from tessera.frontend.machine.gpu_table import find_gpu
    from tessera.frontend.machine.tables import read_tables
    from tessera.ir.plan.tables import TableKind

    document = json.loads(ROWS.read_text())
    last = document["sets"][-1]
    for kind, table in KINDS.items():
        fixed = ("bfloat16",) if kind == "gemm" else ("bfloat16", "bfloat16", WIDTH, 0)
        known = []
        for name in last["gpus"]:
            found = read_tables(find_gpu(name).key, TableKind(table))
            (rows,) = (r for r in found if r.version == VERSION and r.fixed == fixed)
            known.append(dict(zip(rows.sizes, rows.ns, strict=True)))
        common = sorted(set.intersection(*map(set, known)))
        chosen = sorted(random.Random(SEED).sample(common, DRAWN[kind]))
        chosen = chosen[::2] if kind == "gemm" else chosen  # they take the longest to count
        last[kind] = [[*s, *(round(times[s] / 1e3, 3) for times in known)] for s in chosen]
    write_rows(document)


def write_rows(document: dict[str, object]) -> None:
    text = json.dumps(document).replace("], [", "],\n[").replace(": [[", ": [\n[")
    ROWS.write_text(text + "\n")


def add_libraries() -> None:
    """Times of other libraries for the rows of the last set; none if a GPU lacks one."""
    from importlib.util import find_spec

    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the extra `tables` is not installed")
    data = Path(spec.submodule_search_locations[0], "systems", "data")
    document = json.loads(ROWS.read_text())
    last = document["sets"][-1]
    last["others"] = {
        library: {
            kind: library_rows([data / SYSTEMS[name] for name in last["gpus"]], at, kind, last)
            for kind in KINDS
        }
        for library, at in LIBRARIES.items()
    }
    at = f"vllm/{VERSION}"
    last["outside"] = {
        name: {kind: library_rows([data / SYSTEMS[name]], at, kind, last) for kind in KINDS}
        for name in OUTSIDE
    }
    document["shortest"] = {name: shortest_us(data / at) for name, at in SYSTEMS.items()}
    write_rows(document)


def shortest_us(system: Path) -> float:
    """How long the smallest products take on a GPU: the median of all libraries' tables."""
    import pyarrow.parquet

    exact = [(column, "==", value) for column, value in SOURCES["gemm"][3].items()]
    found = []
    for path in sorted((system / "gemm").glob("*/*/gemm_perf.parquet")):
        try:
            small = [*exact, ("m", "==", 1), ("n", "<=", SMALL), ("k", "<=", SMALL)]
            read = pyarrow.parquet.read_table(path, columns=["latency"], filters=small)
        except (OSError, ValueError):  # not every file is a table
            continue
        found += [1e3 * ms for ms in read["latency"].to_pylist()]
    return round(median(found), 3)


def library_rows(
    systems: list[Path], at: str, kind: str, rows: dict[str, list[list[float]]]
) -> list[list[float]]:
    """For each row of a kind the times of all GPUs, or nothing."""
    import pyarrow.parquet

    folder, file, sizes, exact = SOURCES[kind]
    wanted = [(column, "==", value) for column, value in exact.items()]
    known: list[dict[tuple[int, ...], float]] = []
    for system in systems:
        path = system / folder / at / f"{file}.parquet"
        read = pyarrow.parquet.read_table(path, filters=wanted).to_pydict()
        times: dict[tuple[int, ...], float] = {}
        for *shape, ms in zip(*(read[size] for size in sizes), read["latency"], strict=True):
            shape[1] += kind == "decode"  # a step, and itself
            times[tuple(shape)] = min(1e3 * ms, times.get(tuple(shape), 1e99))
        known.append(times)
    shapes = [tuple(int(n) for n in row[: len(sizes)]) for row in rows[kind]]
    return [
        [round(times[shape], 3) for times in known] if all(shape in t for t in known) else []
        for shape in shapes
    ]


def counted(rows: list[Row], store: Path | None) -> Works:
    """The works of all rows on all GPUs, by `kind shape arch`."""
    kept: dict[str, list[dict[str, object]]] = {}
    if store is not None and store.exists():
        kept = json.loads(store.read_text())
    kernels = Kernels()
    for number, row in enumerate(rows):
        archs = [gpu_of(name).arch for name in row.us]
        for arch in dict.fromkeys(LIKE.get(arch, arch) for arch in archs):
            key = f"{row.kind} {list(row.shape)} {arch}"
            if key not in kept:
                kept[key] = [asdict(w) for w in kernels.works(row.kind, row.shape, arch)]
                for parts in PARTS if row.kind == "gemm" else ():
                    found = kernels.split_works(row.shape, arch, parts)
                    kept[f"split {parts} {key}"] = [asdict(w) for w in found]
        if store is not None and number % 20 == 19:
            store.write_text(json.dumps(kept))
    if store is not None:
        store.write_text(json.dumps(kept))
    return {
        key: [LaunchWork(**{**w, "units": tuple(map(tuple, w["units"]))}) for w in works]  # type: ignore[call-overload]
        for key, works in kept.items()
    }


def around_cycles(
    works: Works, rows: list[Row], kind: str, pair: tuple[str, str], name: str
) -> float:
    """Cycles of a row on a GPU beside its kernel, by short rows of attention of other GPUs.

    They are those with the same library's kernels, outside the pair; all outside if there are none.
    """
    if kind == "gemm":
        return 0.0
    cycles: dict[str, list[float]] = {}
    for row in rows:
        for other, us in row.us.items():
            if row.kind == kind and other not in pair:
                gpu = gpu_of(other)
                kernel = kernel_us(works, row, gpu)
                if kernel < SHORT * us and us < BRIEF:
                    cycles.setdefault(other, []).append((us - kernel) * gpu.clock_mhz)
    alike = [n for other, n in cycles.items() if BACKENDS[other] == BACKENDS[name]]
    known = [number for numbers in alike or cycles.values() for number in numbers]
    return median(known) if known else 0.0


def judged(given: list[tuple[Row, Times]], pair: tuple[str, str]) -> dict[str, object]:
    """How often the faster GPU is right, and how far off times are."""
    first, second = pair
    apart = [(r, t) for r, t in given if r.apart(pair)]
    right = sum((t[first] < t[second]) == (r.us[first] < r.us[second]) for r, t in apart)
    result: dict[str, object] = {
        "rows": len(given),
        "apart": len(apart),
        "faster_right": round(right / max(len(apart), 1), 3),
    }
    both: list[tuple[float, float]] = []
    for name in pair:
        gpu = gpu_of(name)
        off = [(log(t[name] / r.us[name]), error_of(t[name] * 1e3, gpu)) for r, t in given]
        result[name] = {"median_ratio": round(exp(median(e for e, _ in off)), 3), **_factors(off)}
        both += off
    return {**result, **_factors(both)}


def libraries(given: list[tuple[Row, Times]], pair: tuple[str, str]) -> dict[str, object]:
    """What other libraries say of the rows, and how often the model is right where all agree."""
    result: dict[str, object] = {}
    for library in LIBRARIES:
        both = [
            (row, times, row.others[library])
            for row, times in given
            if library in row.others and row.apart(pair)
        ]
        if both:
            calls = [(_faster(row.us, pair), _faster(us, pair)) for row, _, us in both]
            result[library] = {
                "rows": len(both),
                "same_faster": round(sum(a == b for a, b in calls) / len(both), 3),
                "other_faster": round(sum(b not in (a, None) for a, b in calls) / len(both), 3),
            }
    agreed = [(row, times) for row, times in given if row.apart(pair) and row.agreed(pair)]
    return {**result, **({"agreed": judged(agreed, pair)} if agreed else {})}


def _factors(given: list[tuple[float, float]]) -> dict[str, float]:
    """How far off, from logarithms of ratios, and how often that is inside the error bar."""
    ordered = sorted(abs(off) for off, _ in given)
    inside = sum(1.0 / (1.0 + error) <= exp(-off) <= 1.0 + error for off, error in given)
    return {
        "median_factor": round(exp(median(ordered)), 3),
        "p90_factor": round(exp(ordered[int(0.9 * (len(ordered) - 1))]), 3),
        "inside_the_bar": round(inside / len(given), 3),
        "median_bar": round(median(error for _, error in given), 2),
    }


def measure(works: Works, rows: list[Row], pair: tuple[str, str]) -> dict[str, object]:
    """Both GPUs of a pair, by kind."""
    result: dict[str, object] = {}
    gpus = {name: gpu_of(name) for name in pair}
    every: list[tuple[Row, Times]] = []
    for kind in KINDS:
        chosen = [row for row in rows if row.kind == kind and all(name in row.us for name in pair)]
        around = {name: around_cycles(works, rows, kind, pair, name) for name in pair}
        model, sheet = [], []
        for row in chosen:
            plain = {n: kernel_us(works, row, gpu) for n, gpu in gpus.items()}
            times = {n: us + around[n] / gpus[n].clock_mhz for n, us in plain.items()}
            model.append((row, times))
            sheet.append((row, {n: roofline(row, gpu) for n, gpu in gpus.items()}))
        long = [one for one in model if min(one[0].us[name] for name in pair) >= LONG]
        result[kind] = {
            "model": judged(model, pair),
            **({"model_from_50_us": judged(long, pair)} if long else {}),
            **libraries(model, pair),
            "roofline": judged(sheet, pair),
            "around_cycles": {name: round(cycles) for name, cycles in around.items()},
        }
        every += model
    result["all"] = judged(every, pair)
    return result


def graphics_watts(works: Works, rows: list[Row], pair: tuple[str, str]) -> float:
    """`device_model.GRAPHICS_WATTS` by long rows of the graphics cards outside the pair.

    Libraries are faster than these kernels on every GPU: the factor of an H200 is divided out.
    What remains is how far a card keeps its clock. Directions play no part in this.
    """
    kept = device_model.SUSTAINED.copy(), device_model.GRAPHICS_WATTS
    device_model.SUSTAINED.clear()
    device_model.GRAPHICS_WATTS = 1e-9  # any card keeps its clock
    found = {}
    for name in (*(card for card in CARDS if card not in pair), "h200"):
        gpu = gpu_of(name)
        long = [r for r in rows if r.kind != "decode" and r.us.get(name, 0.0) >= LONG]
        off = {
            kind: median(log(kernel_us(works, r, gpu) / r.us[name]) for r in long if r.kind == kind)
            for kind in ("gemm", "prefill")
        }
        found[name] = (off["gemm"] + off["prefill"]) / 2
    device_model.SUSTAINED.update(kept[0])
    device_model.GRAPHICS_WATTS = kept[1]
    usual = found.pop("h200")
    each = [
        log((gpu_of(name).watts or 1.0) / ((gpu_of(name).flops("bf16") or 1e12) / 1e12))
        - 3.0 * min(0.0, off - usual)
        for name, off in found.items()
    ]
    return exp(sum(each) / len(each))


def launches_ns(pair: tuple[str, str]) -> dict[int, float]:
    """`device_model.LAUNCH_NS` by the smallest products of GPUs outside a pair."""
    shortest = json.loads(ROWS.read_text())["shortest"]
    fitted = gpu_of("h200")
    own = shortest["h200"] * fitted.clock_mhz - device_model.FITTED.fixed_cycles  # cycles of a CTA
    return {
        arch_number(gpu_of(name).arch): 1e3 * (us - own / gpu_of(name).clock_mhz)
        for name, us in shortest.items()
        if name not in (*pair, "h100", "h200")
    }


def without(pair: tuple[str, str]) -> dict[str, device_model.Sustained]:
    """The parts of GPUs but those of a pair, which are then like any GPU without tables."""
    keys = {gpu_of(name).key for name in pair}
    return {key: part for key, part in device_model.SUSTAINED.items() if key not in keys}


def main() -> None:
    parser = arguments(__doc__, "direction.json")
    parser.add_argument("--works", type=Path, help="counts, kept between runs")
    parser.add_argument("--draw", action="store_true", help="draw rows anew, and end")
    parser.add_argument("--libraries", action="store_true", help="add other libraries, and end")
    options = parser.parse_args()
    if options.draw or options.libraries:
        (draw if options.draw else add_libraries)()
        return
    rows = read_rows()
    works = counted(rows, options.works)
    document: dict[str, object] = {"schema": "tessera-direction-benchmark/3"}
    own = dict(device_model.SUSTAINED)
    for pair in PAIRS:
        now = measure(works, rows, pair)
        others = without(pair)  # neither GPU of the pair in any constant
        device_model.SUSTAINED.clear()
        device_model.SUSTAINED.update(others)
        usual, launches = device_model.GRAPHICS_WATTS, device_model.LAUNCH_NS
        device_model.LAUNCH_NS = launches_ns(pair)
        device_model.GRAPHICS_WATTS = watts = graphics_watts(works, rows, pair)
        found = {"graphics_watts": round(watts, 3), "launch_ns": device_model.LAUNCH_NS}
        document["/".join(pair)] = {"now": now, "alone": found | measure(works, rows, pair)}
        device_model.GRAPHICS_WATTS, device_model.LAUNCH_NS = usual, launches
        device_model.SUSTAINED.clear()
        device_model.SUSTAINED.update(own)
    print(json.dumps(document, indent=1))
    write(document, options.output)


if __name__ == "__main__":
    main()
