"""Config files whose values do not fit each other, or the step, are refused by their fields."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.meta import hf
from tessera.frontend.capture.meta.check_config import (
    check_context,
    check_values,
    unknown_value,
)

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 64,
}
ENCODER = {
    "model_type": "bert",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "vocab_size": 128,
}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_attention_heads": 32, "num_key_value_heads": 7}, "`num_key_value_heads` (7)"),
        ({"num_attention_heads": 8, "num_kv_heads": 16}, "`num_kv_heads` (16)"),
        ({"text_config": {"n_head": 6, "num_kv_heads": 4}}, "does not divide `n_head` (6)"),
        ({"num_attention_heads": 0}, "`num_attention_heads` is 0"),
        ({"vocab_size": -1}, "`vocab_size` is -1"),
        ({"num_experts": 4, "num_experts_per_tok": 5}, "`num_experts_per_tok` (5)"),
    ],
)
def test_values_that_do_not_fit_each_other(values: dict[str, Any], words: str) -> None:
    with pytest.raises(TesseraError) as refused:
        check_values(values)
    assert refused.value.diagnostics[0].code == "TSR6015"
    assert words in str(refused.value.diagnostics[0].headline)


@pytest.mark.parametrize(
    "values",
    [
        LLAMA,
        ENCODER,
        {"num_attention_heads": 32, "num_key_value_heads": None},
        {"num_attention_heads": [4, 8], "num_key_value_heads": [3, 3]},
        {"num_experts": 0, "num_experts_per_tok": 2},
        {"hidden_size": "a"},
    ],
)
def test_values_that_fit_or_are_not_known(values: dict[str, Any]) -> None:
    check_values(values)


@pytest.mark.parametrize(
    ("rope", "most"),
    [
        (None, 64),
        ({"rope_type": "default"}, 64),
        ({"rope_type": "yarn", "factor": 4.0}, 256),
        ({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}, 128),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 32}, 64),
        ({"full_attention": {"rope_type": "linear", "factor": 2}}, 128),
    ],
)
def test_a_context_has_positions(rope: Any, most: int) -> None:
    text = SimpleNamespace(
        max_position_embeddings=64,
        rope_parameters=rope,
        attribute_map={"max_position_embeddings": "n_positions"},
    )
    config: Any = SimpleNamespace(get_text_config=lambda decoder: text)
    check_context(config, most)
    with pytest.raises(TesseraError, match=f"positions for {most} tokens") as refused:
        check_context(config, most + 1)
    assert "`n_positions`" in str(refused.value.diagnostics[0].hint)


def test_a_name_that_the_library_lacks_is_named_by_its_field() -> None:
    problem = KeyError("silly")
    found = unknown_value(problem, {"vision_config": {"hidden_act": "silly"}})
    assert found is not None
    assert "which `hidden_act` names" in str(found.diagnostics[0].headline)
    assert unknown_value(problem, LLAMA) is None
    assert unknown_value(ValueError("llama"), LLAMA) is None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("values", "phase", "words"),
    [
        (LLAMA | {"num_key_value_heads": 3}, "decode", "`num_key_value_heads` (3)"),
        (LLAMA | {"hidden_act": "silly"}, "decode", "`hidden_act`"),
        (LLAMA | {"max_position_embeddings": 16}, "decode", "positions for 16 tokens"),
        (LLAMA | {"max_position_embeddings": 16}, "prefill", "positions for 16 tokens"),
        (ENCODER, "decode", "has no decode step"),
        (ENCODER | {"architectures": ["BertForMaskedLM"]}, "decode", "has no decode step"),
        (ENCODER | {"is_decoder": True}, "decode", ""),
        (ENCODER, "prefill", ""),
        (LLAMA, "decode", ""),
    ],
)
def test_models_are_traced_or_refused(
    tmp_path: Path, values: dict[str, Any], phase: str, words: str
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    path = tmp_path / "config.json"
    path.write_text(json.dumps(values))
    step = hf.HfStep(phase=phase, batch=1, context=32)
    config = hf.read_config(path)
    if not words:
        trace_fake(lambda: hf.make_step(config, step), warm_ups=0)
        return
    with pytest.raises(TesseraError) as refused:
        trace_fake(lambda: hf.make_step(config, step), warm_ups=0)
    assert refused.value.diagnostics[0].code == "TSR6015"
    assert words in str(refused.value.diagnostics[0].headline)
