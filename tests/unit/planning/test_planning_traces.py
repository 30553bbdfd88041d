"""Which traces a plan is for: a file, the kernel graph in this folder, a mix."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tessera.driver.load import load
from tessera.frontend.plan.tsp import parse_plan
from tessera.ir.program.print_trace import print_program
from tests.helpers.command import Outcome, tessc

MLP = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a trace and its kernel graph."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(MLP, tmp_path)
    assert tessc("analyze", "mlp.ptx").code == 0
    return tmp_path


def plan(*arguments: str) -> Outcome:
    return tessc("plan", *arguments, "--gpus", "a100", "--format", "concise")


def test_the_one_graph_in_the_folder(folder: Path) -> None:
    outcome = plan()
    assert outcome.code == 0, outcome.err
    assert "TSR3008" not in outcome.err
    by_graph = (folder / "plan.tsp").read_bytes()
    assert plan("mlp.ptx").code == 0
    assert (folder / "plan.tsp").read_bytes() == by_graph
    found = parse_plan(by_graph.decode())
    assert [(trace.name, trace.share) for trace in found.traces] == [("mlp", 1.0)]
    assert found.traces[0].text == print_program(load(MLP))


def test_several_graphs_are_listed(folder: Path) -> None:
    shutil.copy("mlp.tsg", "b.tsg")
    outcome = plan()
    assert outcome.code == 2
    assert "several kernel graphs here:\n  b.tsg\n  mlp.tsg\n" in outcome.err
    assert not (folder / "plan.tsp").exists()
    assert plan("b.tsg").code == 0


def test_no_graph_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = plan()
    assert outcome.code == 2
    assert "name a trace" in outcome.err


def test_a_graph_elsewhere_finds_its_trace(folder: Path) -> None:
    (folder / "sub").mkdir()
    shutil.move("mlp.tsg", "sub/mlp.tsg")
    assert "TSR3007" in plan("sub/mlp.tsg").err
    shutil.copy("mlp.ptx", "sub/mlp.ptx")
    assert plan("sub/mlp.tsg").code == 0


def test_a_graph_that_was_edited_is_not_trusted(folder: Path) -> None:
    text = Path("mlp.tsg").read_text()
    Path("mlp.tsg").write_text(text.replace("certainty=must", "certainty=may"))
    outcome = plan()
    assert outcome.code == 0
    assert "warning[TSR3008]" in outcome.err
    edited = (folder / "plan.tsp").read_bytes()
    plan("mlp.ptx")
    assert (folder / "plan.tsp").read_bytes() == edited


def test_a_graph_with_a_cycle(folder: Path) -> None:
    text = Path("mlp.tsg").read_text()
    assert "source=2 target=3" in text
    Path("mlp.tsg").write_text(text.replace("source=2 target=3", "source=3 target=2"))
    outcome = plan()
    assert outcome.code == 1
    assert "makes a cycle" in outcome.err


@pytest.mark.parametrize("damage", ["change", "remove", "forget"])
def test_a_graph_without_its_trace(folder: Path, damage: str) -> None:
    if damage == "change":
        Path("mlp.ptx").write_text(MLP.read_text() + "//! memset y bytes=4 value=0x00\n")
    elif damage == "remove":
        Path("mlp.ptx").unlink()
    else:
        lines = Path("mlp.tsg").read_text().splitlines(keepends=True)
        assert lines[1].startswith("trace ")
        Path("mlp.tsg").write_text("".join([lines[0], *lines[2:]]))
    outcome = plan()
    assert outcome.code == 1
    assert "error[TSR3007]" in outcome.err
    assert not (folder / "plan.tsp").exists()


def test_a_plan_is_no_trace(folder: Path) -> None:
    assert plan("mlp.ptx").code == 0
    outcome = plan("plan.tsp", "-o", "other.tsp")
    assert outcome.code == 1
    assert "error[TSR3013]" in outcome.err
    assert "it is a plan already" in outcome.err


def test_a_trace_from_standard_input_and_a_plan_to_standard_output(folder: Path) -> None:
    outcome = tessc("plan", "-", "--gpus", "a100", "-o", "-", stdin=MLP.read_bytes())
    assert outcome.code == 0, outcome.err
    found = parse_plan(outcome.text)
    assert found.traces[0].name == "trace"
    assert not (folder / "plan.tsp").exists()


@pytest.mark.parametrize("part", ["0", "0.0", "1e999", "-3", "nan", "inf", "two", ""])
def test_parts_that_are_no_number(folder: Path, part: str) -> None:
    outcome = plan(f"mlp.ptx:{part}")
    assert outcome.code == 1
    assert "TSR3009" in outcome.err


def test_a_file_whose_name_has_a_colon(folder: Path) -> None:
    shutil.copy("mlp.ptx", "mlp.ptx:3")
    assert plan("mlp.ptx:3").code == 0
    assert parse_plan((folder / "plan.tsp").read_text()).traces[0].name == "mlp"


def test_traces_that_do_not_fit_together(folder: Path) -> None:
    other = MLP.read_text().replace("buffer b1 bytes=384", "buffer b1 bytes=388")
    Path("other.ptx").write_text(other.replace("shape=96\n", "shape=97\n"))
    outcome = plan("mlp.ptx", "other.ptx")
    assert outcome.code == 1
    assert "error[TSR3009] the traces do not fit together: `b1` differs" in outcome.err


TABLE = """//! tessera.trace 1
//! buffer x bytes=64 role=input
//! buffer s bytes=64 role=state
//! buffer y bytes=64 role=output
//! pointers s @{POINTERS}
//! memcpy y x bytes=64
"""


def test_traces_whose_states_point_elsewhere(folder: Path) -> None:
    Path("one.ptx").write_text(TABLE.replace("POINTERS", "0:x,8:y+16"))
    Path("two.ptx").write_text(TABLE.replace("POINTERS", "0:x,8:y+32"))
    assert plan("one.ptx", "one.ptx").code == 0
    outcome = plan("one.ptx", "two.ptx")
    assert outcome.code == 1
    assert "TSR3009] the traces do not fit together: `s` holds different addr" in outcome.err
    assert "TSR3018" not in outcome.err


def test_traces_share_no_state_whose_addresses_one_overwrites(folder: Path) -> None:
    """Alone it is planned, for one request at a time; the other would follow what it leaves."""
    text = TABLE.replace("POINTERS", "0:x,8:y+16")
    Path("one.ptx").write_text(text)
    Path("two.ptx").write_text(text + "//! memcpy s x bytes=4\n")
    alone = plan("two.ptx")
    assert alone.code == 0
    assert "may overwrite addresses in the state s" in alone.out.decode()
    outcome = plan("one.ptx", "two.ptx")
    assert outcome.code == 1
    assert "TSR3009] the traces do not fit together: addresses in the state `s` may" in outcome.err


def test_a_placement_that_was_asked_for_is_no_verdict(folder: Path) -> None:
    every = ("plan", "mlp.ptx", "--gpus", "a100,l40s")
    assert "splitting a request does not pay" not in tessc(*every, "--strategy", "single").text
