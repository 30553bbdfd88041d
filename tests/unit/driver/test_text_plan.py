"""Plans for texts: sizes of steps, memory, a limit on the time per token."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.fleet.config_steps import write_steps
from tessera.driver.plan import PlanOptions, PlanReport, plan
from tessera.driver.step_sizes import SizedName, read_sizes
from tessera.ir.options import WrongOption
from tessera.report.plan import plan_text
from tessera.report.plan_json import plan_json

SIZES = (1, 8, 64)
TIMES = 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decode steps of three sizes, a prefill step, and one with a longer context."""
    made = tmp_path_factory.mktemp("steps")
    shapes = [(f"d{n}", "decode", n, 1, n, 256) for n in SIZES]
    shapes += [("prefill", "prefill", 1, 128, 64, 256), ("longer", "prefill", 1, 128, 64, 512)]
    for name, phase, batch, tokens, rows, capacity in shapes:
        step = ServingStep(
            model="llama-8b",
            phase=phase,
            batch=batch,
            tokens=tokens,
            rows=rows,
            capacity=capacity,
        )
        (made / f"{name}.ptx").write_text(serving_trace(step, layers=1))
    return made


def planned(folder: Path, prefill: str = "prefill", **options: object) -> PlanReport:
    sizes = ",".join(str(folder / f"d{n}.ptx") for n in SIZES)
    names = [f"{sizes}:{TIMES}", f"{folder / prefill}.ptx:1"]
    given = PlanOptions(**{"gpus": "l40s", "slots": 2, **options})  # type: ignore[arg-type]
    return plan(names, given)


def test_commas_join_sizes_unless_a_file_has_them(tmp_path: Path) -> None:
    for name in ("a.ptx", "b.ptx", "c,d.ptx", "e,f.ptx:2"):
        (tmp_path / name).write_text("")
    a, b, c, e = (str(tmp_path / name) for name in ("a.ptx", "b.ptx", "c,d.ptx", "e,f.ptx:2"))
    assert read_sizes(f"{a},{b}:64") == SizedName((a, b), 64.0)
    assert read_sizes(c) == SizedName((c,), 1.0)
    assert read_sizes(f"{c}:3") == SizedName((c,), 3.0)
    assert read_sizes(f"{a},{c},{b}") == SizedName((a, c, b), 1.0)
    assert read_sizes(e) == SizedName((e,), 1.0)
    assert read_sizes(f"{a},{tmp_path}/none.ptx:5") == SizedName((a, f"{tmp_path}/none.ptx"), 5.0)


def test_a_plan_takes_the_batch_that_serves_most(folder: Path) -> None:
    report = planned(folder)
    texts = report.texts
    assert texts is not None
    assert [size.batch for size in report.sizes] == sorted(SIZES, reverse=True)
    rates = [size.figures.requests_per_s for size in report.sizes if size.figures]
    assert texts.requests_per_s == max(rates)
    assert texts.batch == 64
    assert [trace.name for trace in report.plan.traces] == ["d64", "prefill"]
    # One decode step of 64 sequences and 64 prompts, for 64 texts of 64 tokens.
    assert [trace.share for trace in report.plan.traces] == pytest.approx([0.5, 0.5])
    assert texts.requests_per_s == pytest.approx(1e9 / report.plan.period_ns / 2)
    assert texts.tokens_per_s == pytest.approx(TIMES * texts.requests_per_s)
    # Little's law: as many texts in memory as arrive while one is answered.
    assert texts.sequences == pytest.approx(texts.tokens_per_s * texts.tpot_ns / 1e9)
    states = [b.shape for b in report.setting.traces[1].program.buffers if b.role.value == "state"]
    assert {shape[0] for shape in states if shape} == {64}


def test_the_report_counts_texts(folder: Path) -> None:
    report = planned(folder)
    assert report.texts is not None
    text, document = plan_text(report, "plan.tsp"), json.loads(plan_json(report))
    assert f"{report.texts.requests_per_s:.4g} requests/s" in text
    assert "sizes of the steps:" in text
    assert "steps/s" in text
    assert document["texts"]["batch"] == 64
    assert [size["batch"] for size in document["sizes"]] == [64, 8, 1]


def test_memory_decides(folder: Path) -> None:
    # Weights of this layer take 2.6 GB; the states of 64 sequences 67 MB for each set.
    report = planned(folder, memory=(("l40s", 3_715_000_000),))
    assert report.texts is not None
    assert report.texts.batch == 8
    assert [size.batch for size in report.sizes if size.figures is None] == [64]


def test_a_limit_on_the_time_per_token_decides(folder: Path) -> None:
    free = planned(folder).texts
    assert free is not None
    limit = 0.5 * free.tpot_ns
    report = planned(folder, tpot_ns=limit)
    assert report.texts is not None
    assert report.texts.tpot_ns <= limit
    assert report.texts.requests_per_s <= free.requests_per_s
    with pytest.raises(TesseraError) as caught:
        planned(folder, tpot_ns=1000.0)
    assert caught.value.diagnostics[0].code == "TSR3031"
    assert caught.value.exit_code == ExitCode.NO_PLAN


def test_states_that_differ_in_more_than_size_are_refused(folder: Path) -> None:
    with pytest.raises(TesseraError) as caught:
        planned(folder, prefill="longer")
    finding = caught.value.diagnostics[0]
    assert finding.code == "TSR3009"
    assert "differs in more than size" in str(finding.headline)
    assert any("512" in str(note) for note in finding.notes)


def test_what_is_no_choice_of_sizes_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copy(folder / "d8.ptx", tmp_path / "again.ptx")
    options = PlanOptions(gpus="l40s")
    one_size = f"{folder / 'd8.ptx'},{tmp_path / 'again.ptx'}"
    with pytest.raises(TesseraError, match="are of one size"):
        plan(one_size, options)
    with pytest.raises(TesseraError, match="no decode step"):
        plan(str(folder / "prefill.ptx"), PlanOptions(gpus="l40s", tpot_ns=1e9))
    with pytest.raises(WrongOption, match="how many tokens"):
        write_steps("hf:config.json", str(tmp_path))
