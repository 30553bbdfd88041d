"""Quantized weights in mixed steps: tokens equal those of models with the weights that they stand
for, as numpy reads them from tables of the formats, and as the transformers library widens them."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")
pytest.importorskip("triton", reason="needs Triton")

from tessera.settings import with_environment
from tests.helpers.quantized_folders import by_columns, float8, packed, write_folder
from tests.helpers.small_models import generated, in_mixed_steps, model_of
from tests.unit.frontend.test_capture_mixed import LATENT, SERVED


def compressed(form: str, **weights: Any) -> dict[str, Any]:
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"} | weights
    group = {"targets": ["Linear"], "weights": weights}
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }


BLOCKS = {"quant_method": "fp8", "weight_block_size": [16, 16], "activation_scheme": "dynamic"}
EXPERTS = SERVED["gpt_oss"] | {"hidden_size": 64, "intermediate_size": 64}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], Any]] = {
    "fp8": ("llama", {}, BLOCKS, float8(16, 16, "weight_scale_inv")),
    "fp8 of a whole tensor": (
        "llama",
        {"tie_word_embeddings": True},
        BLOCKS | {"weight_block_size": None},
        float8(0, 0, "weight_scale_inv", ones=False),
    ),
    "fp8 experts": ("mixtral", SERVED["mixtral"], BLOCKS, float8(16, 16, "weight_scale_inv")),
    "fp8 with cut blocks": (
        "deepseek_v3",
        LATENT | {"moe_intermediate_size": 32, "intermediate_size": 40},
        BLOCKS,
        float8(16, 16, "weight_scale_inv"),
    ),
    "fp8 of channels": (
        "qwen3",
        {},
        compressed("float-quantized"),
        float8(1, 0, "weight_scale"),
    ),
    "words of 4 bits": (
        "llama",
        {},
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16),
        packed(4, 16, zeros=False),
    ),
    "words of 4 bits of experts": (
        "mixtral",
        SERVED["mixtral"],
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=16),
        packed(4, 16, zeros=False),
    ),
    "words of 4 bits with zeros": (
        "llama",
        {},
        compressed(
            "pack-quantized",
            num_bits=4,
            type="int",
            strategy="group",
            group_size=8,
            symmetric=False,
        ),
        packed(4, 8, zeros=True),
    ),
    "words of 8 bits": (
        "llama",
        {},
        compressed("pack-quantized", num_bits=8, type="int"),
        packed(8, 0, zeros=False),
    ),
    "mxfp4": ("gpt_oss", EXPERTS, {"quant_method": "mxfp4"}, None),
    "awq": (
        "llama",
        {},
        {"quant_method": "awq", "bits": 4, "group_size": 16, "version": "gemm"},
        by_columns(4, 16, awq=True),
    ),
    "gptq": (
        "llama",
        {},
        {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": False},
        by_columns(4, 16, awq=False),
    ),
}


def saved(folder: Path, case: str, dtype: str = "float32") -> tuple[Path, Path]:
    """The folder of a case, and one with the weights that it stands for."""
    from safetensors.torch import load_file, save_file

    kind, values, method, form = CASES[case]
    model = model_of(kind, **values).to(getattr(torch, dtype))
    model.config.dtype = dtype
    model.save_pretrained(folder / "wide")
    shutil.copytree(folder / "wide", folder / "narrow")
    wide = write_folder(folder / "narrow", method, form, shards=3)
    assert wide
    (file,) = (folder / "wide").glob("*.safetensors")
    tensors = load_file(file)
    assert wide.keys() < tensors.keys()
    for name, values in wide.items():
        tensors[name] = torch.from_numpy(np.ascontiguousarray(values)).to(tensors[name].dtype)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder / "narrow", folder / "wide"


def step_of(folder: Path) -> Any:
    """The step of a folder on the host, with its weights."""
    from tessera.diagnostics import TesseraError
    from tessera.driver.folder.capture_steps import loaded_weights
    from tessera.driver.folder.model_folder import read_folder
    from tessera.frontend.capture.meta.hf import model_of as empty
    from tessera.frontend.capture.mixed.seam import NAME
    from tessera.frontend.capture.mixed.step import MixedSize, mixed_step, seam_config
    from tessera.frontend.capture.mixed.stored_weights import hold_stored

    read = read_folder(folder)
    assert read.config.quantization is not None
    model = empty(seam_config(read.config), attention=NAME)
    hold_stored(model, read.config.quantization, read.config.tensors)
    state = loaded_weights(read, TesseraError.of("TSR6019", "does not fit"))
    for name, parameter in model.named_parameters():
        parameter.data = state[name].view(parameter.dtype)
    return mixed_step(model, MixedSize(tokens=8, rows=3, context=32, block=4, blocks=25))[0]


def drawn(draw: random.Random) -> list[list[int]]:
    return [[draw.randrange(3, 64) for _ in range(length)] for length in (3, 13, 1)]


@pytest.mark.parametrize("case", CASES)
def test_tokens_equal_those_of_the_weights_that_are_meant(case: str, tmp_path: Path) -> None:
    narrow, wide = saved(tmp_path, case)
    draw = random.Random(3)
    prompts = drawn(draw)
    model = transformers.AutoModelForCausalLM.from_pretrained(wide).eval()
    assert in_mixed_steps(step_of(narrow), prompts, 9, draw) == generated(model, prompts, 9)


# What the library widens on the host: no blocks that are cut, no packed zeros.
WORDS = [case for case in CASES if case.startswith("words") and "zeros" not in case]
THEIRS = ["fp8", "fp8 of a whole tensor", "fp8 experts", "fp8 of channels", "mxfp4", *WORDS]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", THEIRS)
def test_tokens_equal_those_of_the_model_that_the_library_widens(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow, _ = saved(tmp_path, case)
    method = CASES[case][2]["quant_method"]
    if method == "compressed-tensors":
        pytest.importorskip("compressed_tensors", reason="needs compressed-tensors")
        more = {}
    else:
        kinds = {"fp8": transformers.FineGrainedFP8Config, "mxfp4": transformers.Mxfp4Config}
        more = {"quantization_config": kinds[method](dequantize=True)}
    # That package is asked for, and not used to widen weights.
    of_fp8 = "transformers.quantizers.quantizer_finegrained_fp8"
    monkeypatch.setattr(f"{of_fp8}.is_accelerate_available", lambda: True)
    draw = random.Random(3)
    prompts = drawn(draw)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(narrow, **more).eval()
    assert in_mixed_steps(step_of(narrow), prompts, 9, draw) == generated(theirs, prompts, 9)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("case", CASES)
def test_weights_are_those_that_are_meant_to_the_bit(case: str, dtype: str, tmp_path: Path) -> None:
    narrow, wide = saved(tmp_path, case, dtype)
    step = step_of(narrow)
    model = transformers.AutoModelForCausalLM.from_pretrained(wide)
    assert model.dtype is getattr(torch, dtype)
    changed = 0
    for name, wanted in model.named_parameters():
        module = step.get_submodule(name.rpartition(".")[0])
        given = getattr(module, name.rpartition(".")[2])
        assert given.dtype is wanted.dtype
        assert torch.equal(given, wanted), name
        changed += given is not module._parameters.get(name.rpartition(".")[2])
    assert changed >= 4


@pytest.mark.parametrize("case", CASES)
def test_a_folder_takes_the_bytes_of_its_checkpoint(case: str, tmp_path: Path) -> None:
    from tessera.driver.folder.capture_steps import footprint
    from tessera.driver.folder.model_folder import read_folder

    narrow, wide = saved(tmp_path, case, "bfloat16")
    read = read_folder(narrow)
    size = sum(
        np.prod(tensor.shape, dtype=int) * tensor.width
        for name, tensor in read.config.tensors.items()
        if not name.endswith(("weight_shape", "g_idx", "correction_bias"))
    )
    need, wide_need = footprint(read).weight_bytes, footprint(read_folder(wide)).weight_bytes
    assert need == size
    assert need < 0.7 * wide_need


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES)
def test_the_trace_of_the_config_has_the_sizes_of_the_step(case: str, tmp_path: Path) -> None:
    from tessera.driver.folder.model_folder import read_folder
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.frontend.capture.meta.hf import HfStep, read_config
    from tessera.frontend.capture.meta.record import among_fakes
    from tessera.frontend.capture.mixed.step import MixedSize, make_mixed
    from tessera.ir.program.program import Role

    narrow, _ = saved(tmp_path, case, "bfloat16")
    size = MixedSize(tokens=2, rows=1, context=1, block=1, blocks=1)
    with among_fakes():
        step, _ = make_mixed(read_folder(narrow).config, size)
        sizes = {name: parameter.nbytes for name, parameter in step.named_parameters()}
        config = read_config(narrow / "config.json")
        program = ConfigTracer(config).trace(HfStep(context=16)).trace.program
    traced = {b.name: b.bytes for b in program.buffers if b.role is Role.WEIGHT}
    computed = sum(
        n for name, n in traced.items() if name.endswith(("inv_freq", "correction_bias"))
    )
    assert sum(sizes.values()) == sum(traced.values()) - computed


def changed(folder: Path, change: Any) -> None:
    """The tensors of a folder, changed in place."""
    from safetensors.torch import load_file, save_file

    for file in folder.glob("*.safetensors"):
        tensors = load_file(file)
        change(tensors)
        save_file(tensors, file, metadata={"format": "pt"})
    (index,) = folder.glob("*.index.json")
    index.unlink()
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
        file.unlink()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


PART = "model.layers.0.self_attn.q_proj.weight"
WRONG: dict[str, tuple[str, Any]] = {
    rf"`{PART}_scale_inv` is missing": ("fp8", lambda t: t.pop(f"{PART}_scale_inv", None)),
    rf"`{PART}` is missing": ("fp8", lambda t: t.pop(PART, None)),
    rf"`{PART}_scale_inv` .* has the shape \[2, 3\], and \[2, 2\]": (
        "fp8",
        lambda t: (
            t.update({f"{PART}_scale_inv": torch.ones(2, 3)}) if f"{PART}_scale_inv" in t else None
        ),
    ),
    rf"`{PART}` .* is BF16, and not quantized as its config says": (
        "fp8",
        lambda t: t.update({PART: t[PART].bfloat16()}) if PART in t else None,
    ),
    rf"`{PART}_packed` .* has the shape \[32, 5\]": (
        "words of 4 bits",
        lambda t: (
            t.update({f"{PART}_packed": torch.zeros(32, 5, dtype=torch.int32)})
            if f"{PART}_packed" in t
            else None
        ),
    ),
    r"`model.layers.1.mlp.experts.down_proj_scales` is missing": (
        "mxfp4",
        lambda t: t.pop("model.layers.1.mlp.experts.down_proj_scales", None),
    ),
}


@pytest.mark.parametrize("said", WRONG)
def test_what_is_wrong_with_quantized_weights_is_said_once(said: str, tmp_path: Path) -> None:
    from tessera.diagnostics import TesseraError
    from tessera.driver.folder.capture_steps import footprint
    from tessera.driver.folder.model_folder import read_folder

    case, change = WRONG[said]
    narrow, _ = saved(tmp_path, case)
    changed(narrow, change)
    with pytest.raises(TesseraError, match=f"TSR6019.*{said}") as problem:
        footprint(read_folder(narrow))
    assert len(problem.value.diagnostics) == 1


def test_bytes_are_the_numbers_of_the_formats() -> None:
    from tessera.frontend.capture.mixed.stored_weights import float4, float8
    from tests.helpers.quantized_folders import E2M1, E4M3

    codes = torch.arange(256, dtype=torch.uint8)
    numbers = float8(codes).numpy()
    assert np.isnan(numbers[[127, 255]]).all()
    ours, wanted = (np.delete(own, [127, 255]) for own in (numbers, E4M3))
    assert (ours == wanted).all()
    assert (np.signbit(ours) == np.signbit(wanted)).all()
    assert (float4(codes[:16]).numpy() == E2M1).all()


@pytest.mark.parametrize("case", ["awq", "gptq", "fp8 of a whole tensor"])
def test_experts_of_other_forms_are_refused_by_name(case: str, tmp_path: Path) -> None:
    from tessera.diagnostics import TesseraError
    from tessera.driver.folder.capture_steps import footprint
    from tessera.driver.folder.model_folder import read_folder

    model_of("mixtral", **SERVED["mixtral"]).save_pretrained(tmp_path)
    write_folder(tmp_path, *CASES[case][2:])
    with pytest.raises(TesseraError, match=r"TSR6019.*`MixtralExperts` \(`model.layers.0.mlp"):
        footprint(read_folder(tmp_path))


KERNEL = """
import itertools
import numpy as np, torch
from tessera.frontend.capture.meta.quantized import read_quantization
from tessera.frontend.capture.mixed.narrow_products import has_kernel, narrow_grouped
from tessera.frontend.capture.mixed.stored_weights import widened
from tests.helpers.quantized_folders import as_torch, float8, mxfp4, packed
from tests.unit.frontend.test_capture_quantized import BLOCKS, compressed

CASES = [
    (BLOCKS, float8(16, 16, "weight_scale_inv")),
    (BLOCKS | {"weight_block_size": [128, 128]}, float8(128, 128, "weight_scale_inv")),
    (BLOCKS | {"weight_block_size": None}, float8(0, 0, "weight_scale_inv", ones=False)),
    (compressed("float-quantized"), float8(1, 0, "weight_scale")),
    (
        compressed("pack-quantized", num_bits=4, type="int", strategy="group", group_size=32),
        packed(4, 32, zeros=False),
    ),
    (
        compressed("pack-quantized", num_bits=4, type="int", group_size=128, symmetric=False),
        packed(4, 128, zeros=True),
    ),
    (compressed("pack-quantized", num_bits=8, type="int"), packed(8, 0, zeros=False)),
    ({"quant_method": "mxfp4"}, None),
]
numbers = np.random.default_rng(1)
for (values, form), (count, results, inputs, experts) in itertools.product(
    CASES, [(3, 72, 1024, 1), (130, 40, 160, 1), (37, 72, 192, 5)]
):
    how = read_quantization(values)
    assert has_kernel(how, inputs, torch.float16)
    if form is None:
        experts = max(experts, 2)
        blocks, powers, _ = mxfp4(numbers, np.zeros((experts, inputs, results)))
        parts = [torch.from_numpy(blocks), torch.from_numpy(powers)]
        shape = (experts, inputs, results)
    else:
        each = []
        for _ in range(experts):
            made, _ = form(numbers, numbers.normal(size=(results, inputs)).astype(np.float32))
            made.pop("weight_shape", None)
            each.append([as_torch(n, v, torch.bfloat16) for n, v in made.items()])
        parts = [torch.stack(own) if experts > 1 else own[0] for own in zip(*each, strict=True)]
        shape = (experts, results, inputs) if experts > 1 else (results, inputs)
    if experts > 1 and not how.rows:
        continue
    parts = [part.view(torch.uint8) if part.dtype.itemsize == 1 else part for part in parts]
    narrow = widened(how, parts, shape, torch.float16).float()
    narrow = narrow if form is None else narrow.mT
    rows = torch.randn(count, inputs).half()
    if experts == 1:
        given = narrow_grouped(how, parts, rows, results)
        wanted = rows.float() @ narrow
    else:
        ends = torch.randint(0, count - 2, (experts,)).sort().values.int()
        given = narrow_grouped(how, parts, rows, results, ends)
        wanted = torch.zeros(count, results)
        for number, (first, end) in enumerate(itertools.pairwise([0, *ends.tolist()])):
            wanted[first:end] = rows[first:end].float() @ narrow[number]
    assert given.shape == wanted.shape and given.dtype is torch.float16
    error = float((given.float() - wanted).abs().max() / wanted.abs().max().clamp(min=1))
    assert error < 1e-3, (values, count, results, inputs, error)
"""


def test_the_kernel_of_products_widens_weights_as_operators_do() -> None:
    environment = with_environment({"TRITON_INTERPRET": "1"})
    subprocess.run([sys.executable, "-c", KERNEL], check=True, env=environment)
