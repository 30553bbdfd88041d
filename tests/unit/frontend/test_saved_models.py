"""Checkpoints that the transformers library writes, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tessera.frontend.contents.checkpoint import open_checkpoint, weights_of
from tessera.frontend.trace.read_trace import parse_trace

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

KINDS = {torch.bfloat16: "bf16", torch.float32: "f32", torch.float16: "f16"}


def llama(*, tied: bool) -> Any:
    config = transformers.LlamaConfig(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
    )
    return transformers.LlamaForCausalLM(config)


def gpt2() -> Any:
    config = transformers.GPT2Config(vocab_size=96, n_embd=32, n_layer=2, n_head=4, n_positions=16)
    return transformers.GPT2LMHeadModel(config)


def check(model: Any, folder: Path, names: dict[str, Any]) -> None:
    """Every weight of a trace with these buffers is, to the byte, in the folder."""
    records = ["//! tessera.trace 1"]
    for name, tensor in names.items():
        shape = "x".join(map(str, tensor.shape))
        size = tensor.numel() * tensor.itemsize
        kind = KINDS[tensor.dtype]
        records.append(f"//! buffer {name} bytes={size} role=weight dtype={kind} shape={shape}")
    program = parse_trace("\n".join(records) + "\n", "t.ptx")
    checkpoint = open_checkpoint(folder)
    try:
        weights = weights_of(program, checkpoint)
        assert weights.tensor_of.keys() == names.keys()
        for name, tensor in names.items():
            flat = tensor.detach().contiguous().view(-1).view(torch.uint8)
            assert weights.read(name).tobytes() == flat.numpy().tobytes(), name
    finally:
        checkpoint.close()


@pytest.mark.parametrize("shard", ["40KB", "1GB"])
@pytest.mark.parametrize("tied", [True, False])
def test_llama(tmp_path: Path, shard: str, *, tied: bool) -> None:
    model = llama(tied=tied).to(torch.bfloat16)
    model.save_pretrained(tmp_path, max_shard_size=shard)
    is_sharded = (tmp_path / "model.safetensors.index.json").exists()
    assert is_sharded == (shard == "40KB")
    check(model, tmp_path, dict(model.named_parameters()))
    # The same model inside of another one, and one without its head.
    check(model, tmp_path, {f"step.{name}": t for name, t in model.named_parameters()})
    check(model, tmp_path, dict(model.model.named_parameters()))


def test_the_head_stands_for_embeddings_that_are_shared(tmp_path: Path) -> None:
    model = llama(tied=True)
    model.save_pretrained(tmp_path)
    every = dict(model.named_parameters(remove_duplicate=False))
    assert every["lm_head.weight"] is every["model.embed_tokens.weight"]
    check(model, tmp_path, every)


def test_gpt2(tmp_path: Path) -> None:
    model = gpt2()
    model.save_pretrained(tmp_path)
    check(model, tmp_path, dict(model.named_parameters()))
