"""The figures of the README are those of the files that it names."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import tessera
from tests.docs.pages import ROOT, read

README = read(ROOT / "README.md")
RESULTS = ROOT / "benchmarks" / "results"


def row(results: str, words: str) -> str:
    """The row of the table that names a file of results and says some words."""
    rows = [line for line in README.splitlines() if f"({results})" in line and words in line]
    assert len(rows) == 1, (results, words)
    return rows[0]


def percent(share: float) -> str:
    return f"{share:.1%}"


def fuzz(data: dict[str, Any]) -> list[str]:
    kinds = data["positions"].values()
    assert not data["failures"]
    assert all(kind["at the fault"] == kind["cases"] for kind in kinds)
    planted = sum(kind["cases"] for kind in kinds)
    return [f"{data['cases']:,} cases", f"{planted} planted faults of {len(kinds)} kinds"]


def overhead(data: dict[str, Any]) -> list[str]:
    models = [value for value in data.values() if isinstance(value, dict) and "slots_1" in value]
    found = []
    for slots in ("slots_1", "slots_2", "slots_4"):
        ratios = [model[slots]["ratio"] for model in models]
        found.append(f"{min(ratios):.3f} to {max(ratios):.3f}")
    return found


def correct(data: dict[str, Any]) -> list[str]:
    runs = [
        part
        for model in data.values()
        if isinstance(model, dict)
        for part in model.values()
        if isinstance(part, dict) and "placements" in part
    ]
    assert all(part["different"] == 0 for part in runs)
    return [str(sum(part["placements"] for part in runs))]


def zoo(data: dict[str, Any]) -> list[str]:
    traces = data["traces"].values()
    assert not any(trace["pinned_launches"] for trace in traces)
    parts = [trace["decided_by_launch"] for trace in traces]
    assert all(part["exact"] == part["accesses"] for part in parts)
    return [f"{len(traces)} traces", f"all {sum(part['accesses'] for part in parts)} accesses"]


def replayed(data: dict[str, Any]) -> list[str]:
    counts = {
        part["placements"]
        for trace in data["rows"].values()
        for part in trace["random"].values()
        if isinstance(part, dict)
    }
    return [f"{len(data['rows'])} models", " or ".join(map(str, sorted(counts)))]


# By file: some words of its row, and the words that the figures in the file call for.
FIGURES: dict[str, tuple[str, Callable[[dict[str, Any]], list[str]]]] = {
    "parse.json": (
        "reading PTX",
        lambda data: [
            f"{data['total']['files']} files",
            f"{data['total']['mb_per_cpu_s']:.2f} MB/s",
            f"{data['total']['total_cpu_ratio']:.1f} times",
            *(
                f"{data['sizes'][size][f'geometric_mean_{kind}']}"
                for size in ("50 to 200 KB", "200 KB to 1 MB", "above 1 MB")
                for kind in ("cpu_ratio", "build_cpu_ratio")
            ),
        ],
    ),
    "fuzz.json": ("mutated PTX", fuzz),
    "tightness.json": (
        "regions",
        lambda data: [
            f"{data['cases']} cases",
            percent(data["decided_by_launch"]["exact_share"]),
            percent(data["all"]["exact_share"]),
        ],
    ),
    "regions_gpu.json": ("regions", lambda data: [f"{data['checked']} launches"]),
    "oracle_gpu.json": (
        "an oracle",
        lambda data: [f"{data['cases']:,} kernels", f"{data['runs']:,} runs"],
    ),
    "analyze.json": (
        "analysis of 40 kernels",
        lambda data: [f"cold {data['one_layer']['cold_over_ptxas']:.1f} times"],
    ),
    "fit_durations.json": (
        "durations",
        lambda data: [
            f"median factor {data['held_out_by_rows']['all']['median_factor']:.2f}",
            f"nine of ten within {data['held_out_by_rows']['all']['p90_factor']:.2f}",
            f"against {data['roofline']['median_factor']:.1f}",
        ],
    ),
    "check_plan.json": ("changes", lambda data: [f"{data['changes']['mutants']:,}"]),
    "cuda_correct.json": ("plans on an H200", correct),
    "cuda_overhead.json": ("one-device plan", overhead),
    "cuda_pipeline.json": (
        "transfers hidden",
        lambda data: [
            ", ".join(
                f"{data[speed]['planner']['hidden']:.0%}"
                for speed in ("25 GB/s", "12.5 GB/s", "3 GB/s")
            )
        ],
    ),
    "replay_zoo.json": ("captured models", replayed),
    "zoo_analysis.json": ("captured models, analysed", zoo),
    "cpu.json": (
        "CPU backend",
        lambda data: [f" {case['ratio']:.0f}" for case in data["cases"]],
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures(name: str) -> None:
    words, figures = FIGURES[name]
    text = row(f"benchmarks/results/{name}", words)
    for figure in figures(json.loads((RESULTS / name).read_text("utf-8"))):
        assert figure in text


def test_the_wheel_has_the_version() -> None:
    assert re.findall(r"tessera_compiler-([\d.]+)-py3", README) == [tessera.__version__]
