"""Folders with quantized weights, from their files to tokens on the CPU backend. In bf16 products
are by our kernel; a token may then differ where the scores of two are as close as bf16's error.
Captures steps, which takes minutes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")
transformers = pytest.importorskip("transformers", reason="needs transformers")

import tessera
from tessera.driver.folder.model_folder import FolderOptions
from tests.helpers.small_models import generated
from tests.unit.frontend.test_capture_quantized import drawn, saved

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize(
    ("case", "dtype"),
    [("fp8 experts", "float32"), ("mxfp4", "bfloat16"), ("words of 4 bits", "bfloat16")],
)
def test_a_quantized_folder_gives_the_tokens_of_its_wide_model(
    case: str, dtype: str, tmp_path: Path
) -> None:
    from tessera.driver.folder.prepare_folder import prepare_folder

    narrow, wide = saved(tmp_path, case, dtype)
    sizes = FolderOptions(rows=4, context=32, step_tokens=(8,), route="library", draws=False)
    made = prepare_folder(narrow, sizes)
    assert "narrow_product" in Path(made.plan).read_text() or dtype == "float32"
    prompts = drawn(random.Random(5))
    model = transformers.AutoModelForCausalLM.from_pretrained(wide).eval()
    exact = transformers.AutoModelForCausalLM.from_pretrained(wide, dtype=torch.float32).eval()
    with tessera.Engine(made.plan, weights=made.weights, backend="cpu") as engine:
        answers = engine.generate(prompts, max_tokens=9)
    for prompt, given, wanted in zip(prompts, answers, generated(model, prompts, 9), strict=True):
        assert_alike(prompt, list(given), wanted, model, exact)


def assert_alike(
    prompt: list[int], given: list[int], wanted: list[int], model: Any, exact: Any
) -> None:
    """The same tokens, up to the first where the error of the type decides."""
    assert len(given) == len(wanted)
    for place, (token, other) in enumerate(zip(given, wanted, strict=True)):
        if token == other:
            continue
        ids = torch.tensor([prompt + wanted[:place]])
        with torch.no_grad():
            sharp, blunt = (own(ids).logits[0, -1].double() for own in (exact, model))
        assert sharp[other] - sharp[token] <= 2 * (sharp - blunt).abs().max()
        assert exact.dtype is not model.dtype
        return
