"""`tessc fleet` beside aiconfigurator's own recommendation, on GPUs of one kind.

    python -m benchmarks.planning.homogeneous theirs -o homogeneous.json
    python -m benchmarks.planning.homogeneous ours -o homogeneous.json
    python -m benchmarks.planning.homogeneous compare -o homogeneous.json

In: ten cases: a GPU and how many, a model, lengths, limits. Out: JSON: what each recommends: how
many GPUs serve a request together, and how (tensor parallel, layers). `theirs` needs the package
`aiconfigurator` (0.12) in the environment, and asks it for the aggregated mode with vLLM; `ours`
needs the extra `tables`. Both go on where they ended, and `--seconds` ends them before the next.

A way that can be in no better fleet is not followed, and has a rate of 0.

`compare` says where the choices are the same. Where they are not, both choices are priced by us: a
difference below the error of looked-up times (5%) is none; otherwise the reason is in the row.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import ROOT, arguments, kept, write

CONFIGS = {"llama-8b": "llama-3-8b", "llama-70b": "llama-3-70b"}
SYSTEMS = {
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "a100": "a100_sxm",
    "l40s": "l40s",
}
NOISE = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """GPUs of a kind, a model, tokens of prompt and answer, limits in ms."""

    gpu: str
    count: int
    model: str
    tokens: tuple[int, int]
    ttft: float
    tpot: float

    @property
    def name(self) -> str:
        """Its key in the file."""
        return f"{self.count}x{self.gpu} {self.model} {self.tokens[0]}/{self.tokens[1]}"


CASES = (
    Case("h100", 4, "llama-8b", (1024, 256), 2000, 60),
    Case("h100", 8, "llama-70b", (1024, 256), 3000, 60),
    Case("a100", 4, "llama-8b", (1024, 256), 2000, 60),
    Case("l40s", 4, "llama-8b", (1024, 256), 3000, 80),
    Case("h200", 4, "llama-8b", (1024, 256), 2000, 30),
    Case("b200", 4, "llama-8b", (1024, 256), 1000, 30),
    Case("h100", 8, "llama-8b", (4000, 500), 3000, 40),
    Case("h200", 8, "llama-70b", (1024, 256), 3000, 60),
    Case("b200", 8, "llama-70b", (1024, 256), 3000, 60),
    Case("a100", 8, "llama-70b", (1024, 256), 5000, 100),
)


def theirs(case: Case) -> dict[str, object]:
    """What aiconfigurator puts first."""
    from aiconfigurator.cli.main import _execute_tasks, build_default_tasks

    with tempfile.TemporaryDirectory() as folder:
        config = ROOT / "examples" / "configs" / f"{CONFIGS[case.model]}.json"
        shutil.copy(config, Path(folder, "config.json"))
        tasks = build_default_tasks(
            model_path=folder,
            total_gpus=case.count,
            system=SYSTEMS[case.gpu],
            backend="vllm",
            isl=case.tokens[0],
            osl=case.tokens[1],
            ttft=case.ttft,
            tpot=case.tpot,
            serving_mode="agg",
        )
        _, best, *_ = _execute_tasks(tasks, mode="default", top_n=3)
    rows = next(iter(best.values()))
    first = rows.iloc[0].to_dict()
    kept = ("tp", "pp", "dp", "bs", "concurrency", "ttft", "tpot", "tokens/s/gpu", "parallel")
    return {key: _plain(first[key]) for key in kept if key in first}


def _plain(value: object) -> object:
    item = getattr(value, "item", None)
    return item() if callable(item) else value


def ours(case: Case) -> dict[str, object]:
    """What `tessc fleet` says, and what each way of one unit serves per GPU."""
    from benchmarks.planning.serving_traces import ServingStep, serving_trace
    from tessera.driver.fleet.make_fleet import fleet
    from tessera.driver.fleet.options import FleetOptions
    from tessera.driver.serve.measures import Slo

    options = FleetOptions(
        gpus=f"{case.count}x{case.gpu}",
        tokens=case.tokens,
        strategies=("single", "layers", "tensor"),
        slo=Slo(ttft_ns=case.ttft * 1e6, tpot_ns=case.tpot * 1e6),
    )
    sizes = [("decode", batch, 1) for batch in (8, 64, 256)] + [("prefill", 1, case.tokens[0])]
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for phase, batch, tokens in sizes:
            step = ServingStep(
                model=case.model,
                phase=phase,
                batch=batch,
                tokens=tokens,
                rows=batch,
                capacity=sum(case.tokens),
            )
            path = Path(folder, f"{phase}-{batch}.ptx")
            path.write_text(serving_trace(step))
            paths.append(str(path))
        report = fleet(paths, options)
    return {
        "units": [
            {
                "count": count,
                "strategy": str(capacity.way.strategy),
                "gpus": sum(capacity.way.gpus),
                "batch": capacity.rows,
                "lanes": capacity.way.lanes,
            }
            for capacity, count in report.chosen.units
        ],
        "tokens/s/gpu": report.chosen.rate * case.tokens[1] / case.count,
        "ways": {
            f"{capacity.way.strategy} {sum(capacity.way.gpus)}": round(
                capacity.rate * case.tokens[1] / sum(capacity.way.gpus), 2
            )
            for capacity in report.capacities
        },
    }


def compare(row: dict[str, dict[str, object]]) -> dict[str, object]:
    """Whether both choose alike; else what each choice serves by our times."""
    mine, their = row["ours"], row["theirs"]
    tensor, layers = int(str(their["tp"])), int(str(their["pp"]))
    label = "single 1" if tensor * layers == 1 else (
        f"layers {layers}" if tensor == 1 else f"tensor {tensor}"
    )  # fmt: skip
    if tensor > 1 and layers > 1:
        label = f"tensor {tensor} in layers {layers}"
    units: list[dict[str, object]] = mine["units"]  # type: ignore[assignment]
    chosen = " and ".join(f"{unit['strategy']} {unit['gpus']}" for unit in units)
    made: dict[str, object] = {"ours": chosen, "theirs": label, "same": chosen == label}
    ways: dict[str, float] = mine["ways"]  # type: ignore[assignment]
    if chosen == label:
        return made
    first, second = ways.get(units[0]["strategy"] + f" {units[0]['gpus']}"), ways.get(label)  # type: ignore[operator]
    if second is None:
        return made | {"reason": f"`{label}` is no way that we look at"}
    if not second:
        return made | {
            "reason": "by our times it does not keep the limits, or can be in no better fleet"
        }
    gain = (first or 0.0) / second - 1
    if gain < NOISE:
        return made | {"reason": f"within the error: ours is {gain:.1%} better by our times"}
    return made | {"reason": f"by our times theirs serves {gain:.0%} less per GPU"}


def main() -> None:
    parser = arguments(__doc__, "homogeneous.json")
    parser.add_argument("command", choices=("theirs", "ours", "compare"))
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    begun = time.perf_counter()
    make = {"theirs": theirs, "ours": ours}.get(given.command)
    for case in CASES:
        data = kept(given.output)
        row = data.setdefault(case.name, {"ttft_ms": case.ttft, "tpot_ms": case.tpot})
        if make is None:
            if "ours" in row and "theirs" in row:
                row["compared"] = compare(row)
                print(case.name, row["compared"])
        elif given.command in row:
            continue
        elif time.perf_counter() - begun > given.seconds:
            break
        else:
            made = make(case)
            # Both may be under way: what the other has written meanwhile is kept.
            data = kept(given.output)
            data.setdefault(case.name, row)[given.command] = made
            print(case.name, made, flush=True)
        write(data, given.output)


if __name__ == "__main__":
    main()
