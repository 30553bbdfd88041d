"""Steps of every size give the same bits in float32. Captures two sizes, which takes minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.driver.folder.capture_steps import CacheRoom, StepTrace, capture_steps
from tessera.driver.folder.model_folder import FolderOptions, read_folder
from tessera.frontend.machine.gpu_table import gpu_table
from tessera.ir.program.program import LibraryCall, Role

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
for name in ("torch", "transformers", "triton"):
    pytest.importorskip(name, reason=f"needs {name}")

ROWS, SIZES = 4, (8, 64)
ROOM = CacheRoom(context=64, block=16, blocks=20)
KINDS = {
    "llama": {"intermediate_size": 1408},
    "gemma3_text": {"query_pre_attn_scalar": 8, "sliding_window": 6},
    "qwen3_moe": {
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "decoder_sparse_step": 1,
    },
}


def answers(step: StepTrace, tokens: int, weights: dict[str, Any]) -> dict[str, Any]:
    """What the cache and the outputs hold after a step with one prompt of 8 tokens."""
    draw = np.random.default_rng(0)
    given = {role: np.zeros(tokens, np.int64) for role in ("tokens", "positions")}
    given["tokens"][:8] = draw.integers(3, 60, 8)
    given["positions"][:8] = range(8)
    given["rows"] = np.where(np.arange(tokens) < 8, 0, ROWS)
    given["blocks"] = np.zeros((ROWS + 1, 4), np.int64)
    given["blocks"][0] = [1, 2, 3, 4]
    given["last"] = np.array([7, 0, 0, 0])
    contents = {}
    for buffer in step.program.declared_buffers():
        known = given.get(buffer.name, weights.get(buffer.name))
        if known is not None:
            contents[buffer.name] = np.ascontiguousarray(known).reshape(-1).view(np.uint8)
        elif buffer.role in (Role.STATE, Role.WEIGHT):
            contents[buffer.name] = np.zeros(buffer.bytes, np.uint8)
    kept = run_program(step.program, contents, arch="sm_90").buffers
    (out,) = (b for b in step.program.declared_buffers() if b.role is Role.OUTPUT)
    made = {out.name: np.asarray(kept[out.name]).reshape(ROWS, -1)[0]}
    for name in set(kept) - {out.name}:  # block 0 is nobody's
        made[name] = np.asarray(kept[name]).reshape(ROOM.blocks, -1)[1:]
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_has_the_same_bits_in_steps_of_every_size(tmp_path: Path, kind: str) -> None:
    from tests.helpers.small_models import model_of

    model = model_of(kind, **KINDS[kind])
    model.save_pretrained(tmp_path / "model")
    options = FolderOptions(gpus="h200", rows=ROWS, step_tokens=SIZES, draws=False)
    folder, gpus = read_folder(tmp_path / "model"), (gpu_table()["h200"],)
    steps = capture_steps(folder, options, ROOM, gpus, tmp_path, lambda told: None)
    assert not any(isinstance(own, LibraryCall) for step in steps for own in step.program.steps)
    weights = {n: own.numpy() for n, own in (*model.named_parameters(), *model.named_buffers())}
    small, large = (answers(s, n, weights) for s, n in zip(steps, SIZES, strict=True))
    for name, known in small.items():
        np.testing.assert_array_equal(large[name], known, err_msg=name)
