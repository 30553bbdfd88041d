"""`tessc demo`, `tessc cache` and what shells complete."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from tessera.cli.main import cli
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = str(ROOT / "examples" / "traces" / "mlp.ptx")


def test_the_demo_goes_all_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    outcome = tessc("demo", "-o", "shown", "--open")
    assert outcome.code == 0, outcome.err
    commands = [line.split()[2] for line in outcome.text.splitlines() if line.startswith("$ tessc")]
    assert commands == ["analyze", "plan", "run", "simulate", "report"]
    assert "verified: 6 requests equal the run on one device" in outcome.text
    assert sorted(path.name for path in Path("shown").iterdir()) == [
        "mlp.ptx",
        "mlp.tsp",
        "report.html",
        "simulated.json",
        "timeline.json",
    ]
    assert opened == [(tmp_path / "shown" / "report.html").as_uri()]
    assert list(tmp_path.glob("*.tsg")) == []


@pytest.mark.slow
def test_what_make_demo_says() -> None:
    """The gain that it shows has a bar above zero, tokens are equal, and it fits a screen."""
    command = [sys.executable, "tools/demo.py"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    gain = re.search(r"serves more by [\d.]+% \(([-+][\d.]+)% to", shown)
    assert gain is not None
    assert float(gain[1]) > 0
    assert "the same tokens to all 12 prompts" in shown
    assert "splitting a request does not pay" in shown
    assert "verified: 6 requests equal the run on one device" in shown
    assert len(shown.splitlines()) <= 40


def test_the_demo_writes_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "mlp.ptx").write_text("mine")
    outcome = tessc("demo", "-o", str(tmp_path))
    assert outcome.code == 1
    assert "TSR19" in outcome.err
    assert (tmp_path / "mlp.ptx").read_text() == "mine"


def test_the_cache_is_shown_and_cleared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(folder))
    assert "0 bytes of at most" in tessc("cache").text
    folder.mkdir(mode=0o700)
    (folder / "a.module").write_bytes(b"12345")
    (folder / "b.regions").write_bytes(b"123")
    (folder / "notes.txt").write_text("mine")
    text = tessc("cache").text
    assert "1 files of parsed modules, 5 bytes" in text
    value = json.loads(tessc("cache", "--json").out)
    assert value["files"]["what kernels touch"] == {"count": 1, "bytes": 3}
    assert "removed 2 files" in tessc("cache", "--clear").text
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_a_cache_that_is_not_ours_alone_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path))
    tmp_path.chmod(0o777)
    (tmp_path / "a.module").write_bytes(b"12345")
    outcome = tessc("cache", "--clear")
    assert outcome.code == 1
    assert "TSR1911" in outcome.err
    assert (tmp_path / "a.module").exists()


def completed(*arguments: str) -> list[str]:
    shell = ShellComplete(cli, {}, "tessc", "_TESSC_COMPLETE")
    return [item.value for item in shell.get_completions(list(arguments[:-1]), arguments[-1])]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("plan", "--gpus", "l40"), "l40s"),
        (("plan", "--gpus", "l40s,2xa1"), "l40s,2xa100"),
        (("plan", "--strategy", "ker"), "kernel"),
        (("gpus", "h20"), "h200"),
        (("plan", MLP, "--explain", "k"), "k7"),
        (("plan", f"{MLP}:3", "--explain", "k"), "k7"),
        (("plan", MLP, "--pin", "m0.re"), "m0.relu="),
        (("plan", MLP, "--gpus", "2xa100,l40s", "--pin", "k3="), "k3=l40s"),
        (("plan", "--price", "l40"), "l40s="),
        (("analyze", MLP, "-k", "rel"), "relu"),
    ],
)
def test_completion_knows_names(typed: tuple[str, ...], offered: str) -> None:
    assert offered in completed(*typed)


def test_completion_of_a_file_that_is_not_there() -> None:
    assert completed("plan", "/nonexistent.ptx", "--explain", "k") == []
    assert completed("plan", "--explain", "k") == []
