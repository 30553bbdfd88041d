"""Names of files with newlines and other control characters: no report and no error obeys them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
EVIL = "a\nINJECTED\r\x1b[31mb\x85\u2028INJECTED"
GPUS = ("--gpus", "a100")
CPU = ("--backend", "cpu", "--requests", "1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    shutil.copy(MLP, f"{EVIL}.ptx")
    Path("k.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n")
    shutil.copy("k.ptx", f"{EVIL}k.ptx")
    Path(f"{EVIL}bad.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\nbad;\n")
    return tmp_path


def check(code: int, *arguments: str) -> None:
    outcome = tessc(*arguments)
    assert outcome.code == code, outcome.err
    for text in (outcome.text, outcome.err):
        assert "\x1b" not in text
        assert "\r" not in text
        lines = text.split("\n")
        assert not [line for line in lines if line.startswith("INJECTED")]
        assert [
            len(line.splitlines()) for line in lines if line and len(line.splitlines()) > 1
        ] == []


def test_every_command(folder: Path) -> None:
    trace = f"{EVIL}.ptx"
    check(0, "analyze", trace)
    check(0, "analyze", trace, "-o", f"{EVIL}.txt")
    check(0, "analyze", f"{EVIL}k.ptx")
    check(0, "check", trace)
    check(1, "analyze", f"{EVIL}bad.ptx")
    check(1, "analyze", f"{EVIL}bad.ptx", "--format", "concise")
    check(1, "analyze", f"{EVIL}none.ptx")
    check(1, "analyze", trace, "-o", trace)
    check(0, "run", trace, "--outputs", f"{EVIL}.npz")
    check(0, "plan", trace, *GPUS, "-o", f"{EVIL}.tsp")
    check(0, "plan", trace, trace, *GPUS)
    check(0, "plan", *GPUS, "-o", f"{EVIL}.tsp")
    check(0, "plan", trace, *GPUS, "--emit", "cuda-python", "-o", f"{EVIL}")
    check(0, "check", f"{EVIL}.tsp")
    check(0, "simulate", f"{EVIL}.tsp", "--timeline", f"{EVIL}.simulated.json")
    check(1, "simulate", f"{EVIL}.tsp", "--arrivals", f"{EVIL}.tsp")
    check(1, "simulate", f"{EVIL}.tsp", "--arrivals", f"poisson:{EVIL}")
    check(1, "simulate", f"{EVIL}.tsp", "--policy", EVIL)
    check(0, "run", f"{EVIL}.tsp", *CPU, "--outputs", f"{EVIL}.npz", "--timeline", f"{EVIL}.json")
    check(1, "plan", f"{EVIL}k.ptx", *GPUS)
    check(2, "analyze", trace, "--kernel", EVIL)
