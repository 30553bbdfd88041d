"""Steps of models from their config files alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.meta import hf
from tessera.ir.plan.tables import TableKind
from tessera.ir.program.program import LibraryCall
from tessera.planning.prices.work_shapes import call_shape
from tests.helpers.hf_configs import FAMILIES, small_config

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 1,
    "vocab_size": 256,
}


def written(folder: Path, values: object) -> Path:
    path = folder / "config.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values))
    return path


def test_a_config_is_found_by_its_file_or_its_folder(tmp_path: Path) -> None:
    path = written(tmp_path, LLAMA)
    assert hf.find_config(f"hf:{path}") == hf.find_config(f"hf:{tmp_path}") == path
    with pytest.raises(TesseraError, match=r"TSR6015.*there is no file"):
        hf.find_config("hf:meta-llama/Llama-3.1-8B")


@pytest.mark.parametrize("values", ["{", "[]", '"text"', {"hidden_size": 3}, "[" * 100_000])
def test_files_that_are_no_configs(tmp_path: Path, values: object) -> None:
    with pytest.raises(TesseraError, match="TSR6015"):
        hf.read_config(written(tmp_path, values))


def test_code_and_unknown_quantizations_are_left_out_and_said(tmp_path: Path) -> None:
    more = {"auto_map": {"AutoModel": "evil.Model"}, "quantization_config": {"bits": 4}}
    config = hf.read_config(written(tmp_path, LLAMA | more))
    assert [note.code for note in config.notes] == ["TSR6016", "TSR6016"]
    assert "auto_map" not in config.values
    assert "quantization_config" not in config.values
    known = hf.read_config(
        written(tmp_path, LLAMA | {"quantization_config": {"quant_method": "fp8"}})
    )
    assert known.quantization is not None
    assert not known.notes


@pytest.mark.parametrize(
    "sizes", [{"batch": 0}, {"context": -1}, {"phase": "train"}, {"batch": 10**9}]
)
def test_odd_sizes_of_a_step(sizes: dict[str, Any]) -> None:
    with pytest.raises(TesseraError, match="TSR6015"):
        hf.HfStep(**sizes)


def test_a_missing_extra_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TesseraError) as refused:
        hf.require_transformers()
    assert refused.value.diagnostics[0].hint == "pip install 'tessera-compiler[hf]'"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layers", [0, -3, 10**7, "two"])
def test_numbers_of_layers_that_no_model_has(tmp_path: Path, layers: object) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    config = hf.read_config(written(tmp_path, LLAMA | {"num_hidden_layers": layers}))
    with pytest.raises(TesseraError, match=r"TSR6015.*(layers, which is not|expected int)"):
        trace_fake(lambda: hf.make_step(config, hf.HfStep()), warm_ups=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_unknown_types_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    config = hf.read_config(written(tmp_path, {"model_type": "mine"}))
    with pytest.raises(TesseraError, match=r"TSR6015.*no model of the type `mine`"):
        trace_fake(lambda: hf.make_step(config, hf.HfStep()), warm_ups=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", FAMILIES)
def test_small_models_of_all_families(tmp_path: Path, name: str, phase: str) -> None:
    """Every cache is state, every parameter a weight, every operator known; attention over a
    cache is one operator per layer that has one."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    config = hf.read_config(written(tmp_path, small_config(name)))
    step = hf.HfStep(phase=phase, batch=2, context=32)
    plain = trace_fake(lambda: hf.make_step(config, step), warm_ups=0, fused=False)
    fused = trace_fake(lambda: hf.make_step(config, step), warm_ups=0)
    roles = [b.role.value for b in fused.trace.program.declared_buffers()]
    assert roles.count("state") >= 4
    assert roles.count("weight") > 10
    assert len(fused.trace.program.steps) < len(plain.trace.program.steps)
    assert not [d for d in fused.trace.diagnostics if d.code == "TSR6013"]
    counts = [s.operator for s in fused.trace.program.steps]  # type: ignore[union-attr]
    attention = sum("attention" in operator for operator in counts)
    assert attention == FAMILIES[name].attention


_TOWER = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "image_size": 32, "patch_size": 8}  # fmt: skip
_BOTH = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "vocab_size": 512,
         "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 128,
         "decoder_ffn_dim": 128, "max_source_positions": 150, "pad_token_id": 0}  # fmt: skip
PARTS: dict[str, tuple[str, dict[str, Any], dict[str, int]]] = {
    # How many attentions each phase has; 0: it is refused.
    "t5": ("T5Config", {"d_model": 64, "d_kv": 16, "num_layers": 2, "num_heads": 4},
           {"encode": 2, "prefill": 4, "decode": 4}),
    "whisper": ("WhisperConfig", _BOTH, {"encode": 2, "prefill": 4, "decode": 4}),
    "vit": ("ViTConfig", _TOWER, {"encode": 2, "prefill": 0, "decode": 0}),
    "clip": ("CLIPConfig", {"vision_config": _TOWER}, {"encode": 2, "prefill": 0, "decode": 0}),
    "llama": ("LlamaConfig", FAMILIES["llama"].values, {"encode": 0, "prefill": 2}),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_models_are_phases(tmp_path: Path, name: str) -> None:
    """Encoders, decoders beside them and towers for images; others are refused by name."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    kind, values, phases = PARTS[name]
    written(tmp_path, getattr(transformers, kind)(**values).to_dict() | {"dtype": None})
    config = hf.read_config(tmp_path / "config.json")
    for phase, count in phases.items():
        step = hf.HfStep(phase=phase, batch=2, context=32)
        if not count:
            with pytest.raises(TesseraError, match="TSR6015") as refused:
                trace_fake(lambda step=step: hf.make_step(config, step), warm_ups=0)
            assert any(other in str(refused.value.diagnostics[0].hint) for other in hf.PHASES)
            continue
        made = trace_fake(lambda step=step: hf.make_step(config, step), warm_ups=0)
        steps = [s.operator for s in made.trace.program.steps]  # type: ignore[union-attr]
        assert sum("attention" in operator for operator in steps) == count


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_steps_are_what_tables_know_whatever_the_library_makes_of_them(
    tmp_path: Path, phase: str, batch: int
) -> None:
    """Releases of transformers differ in masks, in the layout of queries and in products."""
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.meta_trace import trace_fake

    config = hf.read_config(written(tmp_path, LLAMA | {"num_hidden_layers": 2}))
    step = hf.HfStep(phase=phase, batch=batch, context=32)
    program = trace_fake(lambda: hf.make_step(config, step), warm_ups=0).trace.program
    calls = [step for step in program.steps if isinstance(step, LibraryCall)]
    shapes = [shape for shape in map(call_shape, calls) if shape is not None]
    attention = TableKind.GENERATION if phase == "decode" else TableKind.CONTEXT
    assert [s.sizes for s in shapes if s.kind is attention] == [(batch, 32, 4, 2)] * 2
    rows = batch if phase == "decode" else batch * 32
    products = [s.sizes for s in shapes if s.kind is TableKind.GEMM]
    layer = [(rows, 128, 64), (rows, 64, 64), (rows, 256, 64), (rows, 64, 128)]
    assert products == [*layer, *layer, (batch, 256, 64)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("name", FAMILIES)
def test_equal_layers_are_traced_once_and_others_are_not(
    tmp_path: Path, name: str, phase: str
) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.driver.trace.meta_trace import trace_fake
    from tessera.frontend.capture.meta.record import among_fakes
    from tessera.ir.program.print_trace import print_program

    values = small_config(name)
    if isinstance(values.get("num_hidden_layers"), int):
        values |= {"num_hidden_layers": 13}
    values.pop("layer_types", None)
    config = hf.read_config(written(tmp_path, values))
    step = hf.HfStep(phase=phase, batch=2, context=32)
    whole = trace_fake(lambda: hf.make_step(config, step), warm_ups=0)
    with among_fakes():
        made = ConfigTracer(config).trace(step)
    assert print_program(made.trace.program) == print_program(whole.trace.program)
    assert made.patterns == whole.patterns
    assert made.trace.nodes == whole.trace.nodes
    assert made.trace.diagnostics == whole.trace.diagnostics
