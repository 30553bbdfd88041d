"""`tessc trace` on a machine without a GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import pytest

from tessera.cli.trace import _size, trace
from tessera.diagnostics import TesseraError
from tessera.driver.trace.capture_trace import TraceOptions, _no_package
from tessera.frontend.capture.meta.hf import PHASES
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT


def test_without_a_gpu_it_says_so(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("def step():\n    raise SystemExit('must not run')\n")
    done = tessc("trace", f"{model}:step", "-o", str(tmp_path / "out.ptx"))
    assert done.code == 4
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


@pytest.fixture
def model(tmp_path: Path) -> Path:
    place = tmp_path / "model.py"
    place.write_text("def step():\n    raise SystemExit('must not run')\n")
    return place


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--arch", "sm80"), "`sm80` is no architecture"),
        (("--for", "abacus"), "abacus"),
        (("--ptx", "nowhere.ptx"), "nowhere.ptx"),
        (("-o", "model.py"), "no name for a trace"),
        (("-o", "out.npz"), "no name for a trace"),
        (("-o", "nowhere/out.ptx"), "TSR1911"),
        (("-o", "folder"), "it is a folder"),
        (("-o", "-"), "no name for a trace"),
    ],
)
def test_what_is_wrong_is_said_before_the_model_runs(
    model: Path, arguments: tuple[str, str], expected: str
) -> None:
    option, value = arguments
    (model.parent / "folder").mkdir()
    value = str(model.parent / value) if option == "-o" and value != "-" else value
    default = () if option == "-o" else ("-o", str(model.parent / "out.ptx"))
    before = sorted(model.parent.iterdir())
    done = tessc("trace", f"{model}:step", *default, option, value)
    assert done.code == 1
    assert expected in done.err
    assert "must not run" not in done.err
    assert sorted(model.parent.iterdir()) == before


def test_a_trace_is_not_written_over_ptx_that_it_is_made_with(model: Path) -> None:
    own = model.parent / "own.ptx"
    own.write_text(".version 8.0\n.target sm_80\n.address_size 64\n")
    done = tessc("trace", f"{model}:step", "--ptx", str(own), "-o", str(own))
    assert done.code == 1
    assert "TSR1911" in done.err


@pytest.mark.parametrize(
    ("text", "value"),
    [("4", 4), ("0.5", 0.5), ("true", True), ("False", False), ("gelu", "gelu"), ("", "")],
)
def test_arguments_of_the_function_are_numbers_truths_or_words(text: str, value: object) -> None:
    assert _size(f"layers={text}") == ("layers", value)


@pytest.mark.parametrize("given", [{"route": "fast"}, {"archs": ("a100",)}])
def test_options_that_make_no_sense_are_refused_from_python_too(given: dict[str, Any]) -> None:
    with pytest.raises(TesseraError, match="TSR6007"):
        TraceOptions(**given)


@pytest.mark.parametrize(
    ("problem", "package", "notes"),
    [
        (ModuleNotFoundError("no", name="cuda"), "cuda-python", 0),
        (ModuleNotFoundError("no", name="torch"), "torch", 0),
        (ImportError("libtorch.so: cannot open", name="torch._C"), "torch", 1),
        (ImportError("libtorch.so: cannot open"), "torch", 1),
    ],
)
def test_a_package_that_is_not_there_is_told_by_the_name_to_install(
    problem: ImportError, package: str, notes: int
) -> None:
    (found,) = _no_package(problem, "cuda,torch").diagnostics
    assert f"the package `{package}`" in str(found.headline)
    assert len(found.notes) == notes
    assert found.hint == "pip install 'tessera-compiler[cuda,torch]'"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--device", "meta", "--route", "auto", "--for", "a100"),
            "`--route` and `--for` do nothing",
        ),
        (("--device", "meta", "--arch", "sm_80"), "`--arch` does nothing with `--device meta`"),
        (("--device", "meta", "--dry-run"), "`--dry-run` does nothing"),
        (("--device", "none", "--phase", "decode"), "`--phase` does nothing with `--device none`"),
        (("--batch", "2", "--context", "8", "--no-fuse"), "`--batch`, `--context` and `--no-fuse`"),
    ],
)
def test_options_that_do_nothing_are_refused(
    arguments: tuple[str, ...], expected: str, model: Path, tmp_path: Path
) -> None:
    done = tessc("trace", f"{model}:step", "-o", str(tmp_path / "out.ptx"), *arguments)
    assert done.code == 2
    assert expected in " ".join(done.err.split())


def test_all_phases_of_config_files_can_be_asked_for() -> None:
    (phase,) = (option for option in trace.params if option.name == "phase")
    assert isinstance(phase.type, click.Choice)
    assert tuple(phase.type.choices) == PHASES


def test_a_routing_that_is_no_law_is_refused(tmp_path: Path) -> None:
    done = tessc("trace", "hf:x.json", "-o", str(tmp_path / "out.ptx"), "--routing", "skew:-1")
    assert done.code == 2
    assert "`--routing` is no law" in done.err


def test_options_of_kernels_are_refused_for_a_config_file(tmp_path: Path) -> None:
    done = tessc("trace", "hf:x.json", "-o", str(tmp_path / "out.ptx"), "--for", "a100")
    assert done.code == 2
    assert "`--for` does nothing with a config file" in " ".join(done.err.split())


def test_without_a_gpu_the_gpus_are_named(model: Path, tmp_path: Path) -> None:
    done = tessc("trace", f"{model}:step", "-o", str(tmp_path / "out.ptx"), "--device", "none")
    assert done.code == 1
    assert "which GPUs to compile for" in done.err


CONFIG = ROOT / "examples" / "configs" / "gpt-oss-20b.json"


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace", "MODEL", "-o", "t.ptx"],
        ["trace", "MODEL", "-o", "t.ptx", "--dry-run"],
        ["trace", "MODEL", "-o", "t.ptx", "--device", "meta"],
        ["trace", "MODEL", "-o", "t.ptx", "--device", "none", "--for", "a100"],
        ["trace", f"hf:{CONFIG}", "-o", "t.ptx", "--device", "meta"],
        ["trace", f"hf:{CONFIG}", "-o", "t.ptx", "--device", "none", "--for", "a100"],
        ["fleet", f"hf:{CONFIG}", "--gpus", "a100", "--tokens", "100:10"],
    ],
    ids=" ".join,
)
def test_without_pytorch_one_error_names_the_package(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modules of `frontend.capture` import PyTorch on top: each command has to look before."""
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "model.py"
    model.write_text("import torch\n\ndef step(): ...\n")
    absent = {name for name in sys.modules if name.partition(".")[0] == "torch"} | {"torch"}
    for name in absent:
        monkeypatch.setitem(sys.modules, name, None)
    for name in [name for name in sys.modules if name.startswith("tessera.frontend.capture")]:
        monkeypatch.delitem(sys.modules, name)
    done = tessc(*(word.replace("MODEL", f"{model}:step") for word in arguments))
    assert "error[TSR6000]" in done.err
    assert "TSR9000" not in done.err
    assert done.err.count("error[") == 1
    assert list(tmp_path.iterdir()) == [model]
