"""Model folders: what they say, and one error for each thing that is wrong with them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.folder.capture_steps import CacheRoom, footprint
from tessera.driver.folder.model_folder import FolderOptions, read_folder
from tessera.driver.folder.prepare_folder import cache_room
from tessera.driver.folder.text_config import read_chat_format, read_defaults
from tessera.driver.serve.chat_template import ChatFormat
from tessera.driver.serve.completion_requests import GenerationDefaults
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


def quantized(folder: Path, **values: object) -> None:
    changed(folder, "config.json", quantization_config=values)


WRONG: dict[str, Callable[[Path], object]] = {
    r"TSR6019.*no `config.json`": lambda folder: (folder / "config.json").unlink(),
    r"TSR6015.*is not JSON": lambda folder: (folder / "config.json").write_text("{"),
    r"TSR1.*00002-of-00004": lambda folder: (folder / SHARD).unlink(),
    r"TSR118": lambda folder: (folder / SHARD).write_bytes(b"\xff" * 64),
    r"TSR1187.*is pickled": pickled,
    r"TSR6019.*`bitsandbytes` \(bnb_4bit_quant_type: nf4\)": lambda folder: quantized(
        folder, quant_method="bitsandbytes", bnb_4bit_quant_type="nf4"
    ),
    r"TSR6019.*`gptq` \(bits: 4, desc_act: True\)": lambda folder: quantized(
        folder, quant_method="gptq", bits=4, desc_act=True
    ),
    r"TSR6019.*`compressed-tensors` \(format: nvfp4-pack-quantized, num_bits: 4\)": (
        lambda folder: quantized(
            folder,
            quant_method="compressed-tensors",
            format="nvfp4-pack-quantized",
            config_groups={"group_0": {"weights": {"num_bits": 4}}},
        )
    ),
    r"TSR6019.*`mine` \(\)": lambda folder: quantized(folder, quant_method="mine"),
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


def test_tied_weights_count_once_unless_a_checkpoint_has_both(folder: Path) -> None:
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("triton", reason="needs Triton")
    table = 4 * 64 * 16
    apart = footprint(read_folder(folder)).weight_bytes
    changed(folder, "config.json", tie_word_embeddings=True)
    read = read_folder(folder)
    assert footprint(read).weight_bytes == apart, "the folder has a tensor `lm_head.weight`"
    tensors = {name: own for name, own in read.config.tensors.items() if "lm_head" not in name}
    tied = replace(read, config=replace(read.config, tensors=tensors))
    assert footprint(tied).weight_bytes == apart - table


def test_a_sequence_with_states_has_one_block() -> None:
    pytest.importorskip("transformers", reason="needs transformers")
    pytest.importorskip("triton", reason="needs Triton")
    folder = read_folder(ROOT / "examples" / "traces" / "state_model")
    need = footprint(folder)
    keys_and_values, convolution, space = 2 * 8, (32 + 2 * 8) * 4, 4 * 8 * 8
    assert need.token_bytes == 4 * keys_and_values
    assert need.state_bytes == 4 * (convolution + space)
    options = FolderOptions(rows=3, block=4)
    assert cache_room(folder, options, need) == CacheRoom(32, 32, 4, keeps_states=True)
    few = replace(need, state_bytes=int(20e9))  # 85% of 80 GB are for weights and cache
    assert cache_room(folder, options, few).blocks == 3
    with pytest.raises(TesseraError, match=r"TSR6019.*no room for a sequence of 32 tokens"):
        cache_room(folder, options, replace(need, state_bytes=int(40e9)))
    plain = replace(need, state_bytes=0)
    assert cache_room(folder, options, plain) == CacheRoom(32, 4, 25)


def test_a_folder_says_how_text_is_made(folder: Path) -> None:
    assert read_chat_format(folder) is None
    assert read_defaults(folder) == GenerationDefaults()
    changed(folder, "generation_config.json", temperature=0.6, top_k=20, max_new_tokens=7)
    assert read_defaults(folder) == GenerationDefaults(temperature=0.6, top_k=20, max_new_tokens=7)
    changed(folder, "generation_config.json", do_sample=False)
    assert read_defaults(folder).temperature == 0
    changed(
        folder,
        "tokenizer_config.json",
        chat_template=[{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}],
        bos_token={"content": "<s>", "lstrip": False},
        eos_token="</s>",
        model_max_length=9,
    )
    tokens = {"bos_token": "<s>", "eos_token": "</s>"}
    assert read_chat_format(folder) == ChatFormat(template="d", tokens=tokens)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert read_chat_format(folder) == ChatFormat(template="{{ messages }}", tokens=tokens)


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("tokenizer_config.json", "{", "is not JSON"),
        ("tokenizer_config.json", "[1]", "holds no object"),
        ("tokenizer_config.json", '{"chat_template": 5}', "is no text"),
        ("generation_config.json", '{"temperature": "hot"}', "`temperature` .* must be from 0"),
        ("generation_config.json", '{"top_p": NaN}', "`top_p` .* must be from"),
    ],
)
def test_what_a_folder_says_wrongly_of_text_is_one_error(
    folder: Path, file: str, text: str, said: str
) -> None:
    (folder / file).write_text(text)
    with pytest.raises(TesseraError, match=f"TSR6019.*{said}"):
        assert (read_chat_format(folder), read_defaults(folder)) is None
