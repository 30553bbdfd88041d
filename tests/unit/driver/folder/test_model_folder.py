"""Model folders: what they say, and one error for each thing that is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.folder.capture_steps import footprint
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
    (folder / "tokenizer.json").write_text(tokenizer(63))
    read = read_folder(folder)
    assert (read.end, read.tokenizer) == ((5, 7), str(folder / "tokenizer.json"))


def tokenizer(last: int) -> str:
    added = [{"id": last, "content": "<end>"}]
    return json.dumps({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}}, "added_tokens": added})


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
    r"TSR6019.*a token 64, and the model a vocabulary of 64": lambda folder: (
        folder / "tokenizer.json"
    ).write_text(tokenizer(64)),
    r"TSR6019.*no tokenizer file": lambda folder: (folder / "tokenizer.json").write_text("{}"),
    r"TSR6019.*is not JSON": lambda folder: (folder / "generation_config.json").write_text("["),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_a_folder_is_said_once(folder: Path, said: str) -> None:
    WRONG[said](folder)
    with pytest.raises(TesseraError, match=said) as problem:
        read_folder(folder)
    assert len(problem.value.diagnostics) == 1


def test_weights_of_another_shape_are_refused_before_a_capture(folder: Path) -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("triton", reason="needs Triton")
    changed(folder, "config.json", intermediate_size=48)
    with pytest.raises(TesseraError, match=r"TSR6019.*`model.layers.0.mlp.*48"):
        footprint(read_folder(folder))
