"""Model folders: what they say, and one error for each thing that is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.folder.model_folder import read_folder
from tests.helpers.corpus import ROOT

MODEL = ROOT / "examples" / "traces" / "mixed_model"
SHARD = "model-00002-of-00004.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


def changed(folder: Path, name: str, **values: object) -> None:
    path = folder / name
    known = json.loads(path.read_text("utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | values), "utf-8")


def test_a_folder_says_how_long_sequences_are_and_what_ends_them(folder: Path) -> None:
    read = read_folder(folder)
    assert (read.longest, read.end, read.tokenizer) == (32, (2,), None)
    changed(folder, "generation_config.json", eos_token_id=[5, 7])
    (folder / "tokenizer.json").write_text("{}")
    read = read_folder(folder)
    assert (read.end, read.tokenizer) == ((5, 7), str(folder / "tokenizer.json"))


def pickled(folder: Path) -> None:
    for file in folder.glob("model*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")


WRONG: dict[str, Callable[[Path], object]] = {
    r"TSR6019.*no `config.json`": lambda folder: (folder / "config.json").unlink(),
    r"TSR6015.*is not JSON": lambda folder: (folder / "config.json").write_text("{"),
    r"TSR1.*00002-of-00004": lambda folder: (folder / SHARD).unlink(),
    r"TSR118": lambda folder: (folder / SHARD).write_bytes(b"\xff" * 64),
    r"TSR1187.*is pickled": pickled,
    r"TSR6019.*quantized": lambda folder: changed(
        folder, "config.json", quantization_config={"quant_method": "fp8"}
    ),
    r"TSR6019.*`eos_token_id`": lambda folder: changed(
        folder, "generation_config.json", eos_token_id="</s>"
    ),
    r"TSR6019.*is not JSON": lambda folder: (folder / "generation_config.json").write_text("["),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_a_folder_is_said_once(folder: Path, said: str) -> None:
    WRONG[said](folder)
    with pytest.raises(TesseraError, match=said) as problem:
        read_folder(folder)
    assert len(problem.value.diagnostics) == 1
