"""`tessc trace` on a machine without a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.command import tessc


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("def step():\n    raise SystemExit('must not run')\n")
    done = tessc("trace", f"{model}:step", "-o", str(tmp_path / "out.ptx"))
    assert done.code == 1
    assert "TSR6000" in done.err
    assert not (tmp_path / "out.ptx").exists()


@pytest.mark.parametrize("argument", ["model.py", "nowhere.py:step"])
def test_a_wrong_model(argument: str, tmp_path: Path) -> None:
    done = tessc("trace", argument, "-o", str(tmp_path / "out.ptx"))
    assert done.code == 1
    assert "TSR6007" in done.err


def test_an_option_that_is_not_well_formed(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("")
    done = tessc("trace", f"{model}:step", "-o", "x.ptx", "--set", "layers")
    assert done.code == 1
    assert "--set layers" in done.err
