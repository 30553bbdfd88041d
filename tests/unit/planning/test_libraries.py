"""Times by tables of several libraries: their mean, bars between them, ratios, `--library`."""

from __future__ import annotations

import random
from dataclasses import replace
from math import log1p
from pathlib import Path

import pytest

from tessera.driver.price_again import by_library
from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.tables import has_tables, read_tables
from tessera.ir.plan.costs import Costs, CostSource, Duration
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.print_plan import print_plan
from tessera.ir.plan.tables import LIBRARIES, TableKind, TableRows
from tessera.planning.prices.carried import carried, kinship, model_ns, sources_of
from tessera.planning.prices.libraries import LibraryTables, library_bar, shared_part
from tessera.planning.prices.table_lookup import TableIndex
from tessera.simulation.simulate_plan import read_followed
from tests.helpers.command import tessc
from tests.unit.planning.test_table_durations import CALLS, planned

ROWS = TableRows(
    gpu="",
    library="vllm",
    version="1.0",
    kind=TableKind.GEMM,
    fixed=("bfloat16",),
    sizes=((8, 4096, 4096), (8, 8192, 4096)),
    ns=(20_000.0, 40_000.0),
)
SIZES = ROWS.sizes[0]


def tables(gpu: str, *factors: float, known: bool = False) -> LibraryTables:
    """A table for each library, all times by a factor."""
    found = find_gpu(gpu)
    indexes = (
        TableIndex(
            replace(ROWS, gpu=found.key, library=name, ns=tuple(f * ns for ns in ROWS.ns)), found
        )
        for name, f in zip(LIBRARIES, factors, strict=False)
    )
    return LibraryTables(tuple(indexes), known)


def test_without_a_library_the_mean_counts_and_bars_cover_another_one() -> None:
    alone = tables("h100", 1.0, known=True).find(SIZES)
    one, two, three = (tables("h100", *f).find(SIZES) for f in ((1,), (1, 4), (1, 4, 2)))
    assert alone is not None
    assert one is not None
    assert two is not None
    assert three is not None
    assert (one.ns, two.ns, three.ns) == pytest.approx((20_000, 40_000, 40_000))
    assert alone.error < three.error < two.error < one.error


def test_what_gpus_of_one_architecture_share_cancels_in_their_ratio() -> None:
    kind, fixed = TableKind.GENERATION, ("bfloat16", "bfloat16", 128, 0)
    gpus = {name: find_gpu(name) for name in ("h100", "h200", "b200", "b300", "a100", "l40s")}
    alike = {
        (a, b) for a, x in gpus.items() for b, y in gpus.items() if shared_part(kind, fixed, x, y)
    }
    wanted = {("h100", "h200"), ("b200", "b300")}
    assert {tuple(sorted(pair)) for pair in alike if pair[0] != pair[1]} == {
        tuple(sorted(pair)) for pair in wanted
    }
    near = tables("h100", 1.0, 1.0).over(tables("h200", 1.0, 1.0), SIZES)
    far = tables("h100", 1.0, 1.0).over(tables("l40s", 2.0, 2.0), SIZES)
    known = tables("h100", 1.0, known=True).over(tables("l40s", 2.0, known=True), SIZES)
    assert near is not None
    assert far is not None
    assert known is not None
    assert far.ns == known.ns == pytest.approx(0.5)
    assert known.error < near.error < far.error


@pytest.mark.parametrize("gpu", [gpu for key, gpu in gpu_table().items() if has_tables(key)])
def test_bars_of_all_sizes_are_bars(gpu: Gpu) -> None:
    chosen = random.Random(gpu.key)
    for _ in range(300):
        kind = chosen.choice(list(TableKind))
        fixed = {
            TableKind.GEMM: (chosen.choice(("bfloat16", "fp8")),),
            TableKind.MOE: (chosen.choice(("bfloat16", "w4a16_mxfp4")), 2048, 1024, 4, 64),
        }.get(kind, ("bfloat16", chosen.choice(("bfloat16", "fp8")), 128, 0))
        count = 3 if kind in (TableKind.GEMM, TableKind.MOE) else 4
        sizes = tuple(sorted((2 ** chosen.randint(0, 15) for _ in range(count)), reverse=True))
        bar = library_bar(gpu, kind, fixed, sizes, chosen.choice((1, 2, 3)))
        assert 0.01 < bar < 4.0


def test_a_known_library_has_narrower_bars(tmp_path: Path) -> None:
    def bars(costs: Costs) -> list[Duration]:
        every = [cost for step in costs.steps for cost in step.on_device]
        return [c for c in every if isinstance(c, Duration) and c.source is CostSource.TABLE]

    open_ = bars(planned(tmp_path, CALLS).setting.costs[0])
    known = bars(planned(tmp_path, CALLS, library="vllm").setting.costs[0])
    assert [c.ns for c in open_] == [c.ns for c in known]
    assert all(log1p(a.error) > log1p(b.error) for a, b in zip(open_, known, strict=True))


def test_a_simulation_by_one_library_has_its_bars(tmp_path: Path) -> None:
    target = tmp_path / "plan.tsp"
    made = planned(tmp_path, CALLS).plan
    target.write_text(print_plan(made))
    (read, name) = read_followed(str(target))
    again = by_library(read, name, "vllm")
    steps = [p.replicas[0].traces[0].steps for p in (made, again)]
    pairs = [(a, b) for a, b in zip(*steps, strict=True) if a.source == "table"]
    assert pairs
    assert all(
        b.error < a.error and b.predicted_ns == pytest.approx(a.predicted_ns) for a, b in pairs
    )
    assert [a for a in steps[0] if a.source != "table"] == [
        b for b in steps[1] if b.source != "table"
    ]
    shown = tessc("simulate", str(target), "--library", "vllm", "--noise")
    assert shown.code == 0


def test_an_unknown_library_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    trace = tmp_path / "trace.ptx"
    trace.write_text(CALLS)
    gpus = "--gpus", "a100,l40s"
    for command in (
        ["plan", str(trace), *gpus],
        ["fleet", str(trace), "--tokens", "8:8", *gpus],
        ["simulate", str(trace)],
    ):
        shown = tessc(*command, "--library", "pytorch")
        assert shown.code == 2
        assert "`--library` is one of vllm, trtllm, sglang" in shown.err


def test_a_gpu_without_rows_has_those_of_a_gpu_with_the_same_kernels(tmp_path: Path) -> None:
    def product(gpu: str) -> Duration:
        cost = planned(tmp_path, CALLS, gpu).setting.costs[0].steps[0].on_device[0]
        assert isinstance(cost, Duration)
        return cost

    card, other = product("rtx4090"), product("t4")
    assert card.source is CostSource.NEAR
    assert "vllm 0.14.0 on l40s, gemm" in card.origin
    assert other.source is CostSource.SHEET


def test_no_gpu_that_is_better_in_both_is_slower_by_the_same_rows() -> None:
    chosen = random.Random(5)
    cards = [gpu for gpu in gpu_table().values() if kinship(gpu, find_gpu("l40s")) == 1]
    assert len(cards) > 3
    for _ in range(400):
        sizes = tuple(2 ** chosen.randint(0, 13) for _ in range(3))
        first, second = chosen.sample(cards, 2)
        better = (first, second) if first.memory_bandwidth > second.memory_bandwidth else ()
        if not better or (first.flops("bf16") or 0) < (second.flops("bf16") or 0):
            continue
        if first.sms < second.sms or first.clock_mhz < second.clock_mhz:
            continue
        times = [model_ns(TableKind.GEMM, ("bfloat16",), sizes, gpu) for gpu in better]
        assert times[0] <= 1.02 * times[1], (first.key, second.key, sizes)


def test_a_gpu_is_predicted_from_its_architecture_or_from_several() -> None:
    gpus = [gpu for key, gpu in gpu_table().items() if has_tables(key)]
    names = {
        gpu.key: [source.key for source in sources_of(gpu, gpus, lambda _: True)] for gpu in gpus
    }
    assert names["h200"] == ["h100-sxm"]
    assert len(names["a100-80g-sxm"]) == len(names["l40s"]) == 3
    assert names["l40s"][0] == "rtx-pro-6000-blackwell-server"
    for gpu in gpus:
        kin = [kinship(gpu, find_gpu(name)) for name in names[gpu.key]]
        assert kin == sorted(kin)
        assert gpu.key not in names[gpu.key]
    drawn, bf16 = random.Random(3), ("bfloat16",)
    tables = {
        key: LibraryTables((TableIndex(rows, find_gpu(key)),), known=True)
        for key in ("a100-80g-sxm", "l40s")
        for rows in read_tables(key, TableKind.GEMM)
        if rows.fixed == bf16
    }
    for gpu in (find_gpu("h100"), find_gpu("rtx-pro-6000"), find_gpu("b200")):
        sizes = tuple(2 ** drawn.randint(4, 12) for _ in range(3))
        both, *single = (
            carried(TableKind.GEMM, bf16, sizes, gpu, [tables[key] for key in keys])
            for keys in (tuple(tables), *((key,) for key in tables))
        )
        assert both is not None
        times = [one.ns for one in single if one is not None]
        assert min(times) * (1 - 1e-9) <= both.ns <= max(times) * (1 + 1e-9)
