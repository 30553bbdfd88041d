"""Times by tables of several libraries: their mean, bars between them, ratios, `--library`."""

from __future__ import annotations

import random
from dataclasses import replace
from math import log1p
from pathlib import Path

import pytest

from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
from tessera.frontend.machine.tables import has_tables
from tessera.ir.plan.costs import Costs, CostSource, Duration
from tessera.ir.plan.machine import Gpu
from tessera.ir.plan.tables import LIBRARIES, TableKind, TableRows
from tessera.planning.prices.libraries import LibraryTables, library_bar, shared_part
from tessera.planning.prices.table_lookup import TableIndex
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


def test_an_unknown_library_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    trace = tmp_path / "trace.ptx"
    trace.write_text(CALLS)
    for command in (["plan", str(trace)], ["fleet", str(trace), "--tokens", "8:8"]):
        shown = tessc(*command, "--gpus", "a100,l40s", "--library", "pytorch")
        assert shown.code == 2
        assert "`--library` is one of vllm, trtllm, sglang" in shown.err
