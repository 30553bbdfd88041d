"""What benchmarks of captures share: the steps of `examples/models`, and what is compared."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tessera.ir.program import program as ir

FILES = Path(__file__).resolve().parents[2] / "examples" / "models"
STEPS = (
    "llama.py:decode",
    "llama.py:prefill",
    "moe.py:step",
    "mamba.py:step",
    "vision_language.py:step",
    "mmdit.py:step",
    "huggingface.py:llama",
    "huggingface.py:qwen",
    "huggingface.py:mamba",
    "huggingface.py:vit",
)


def roles(program: ir.Program) -> dict[str, str]:
    """The roles of buffers that the model names."""
    return {b.name: b.role.value for b in program.declared_buffers() if b.role is not ir.Role.TEMP}


def tessc(*arguments: str, hidden: bool = False) -> str:
    """What a command of Tessera prints; what it says of its failure is the exception's text.

    `hidden`: it sees no GPU.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tessera", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | ({"CUDA_VISIBLE_DEVICES": ""} if hidden else {}),
    )
    if done.returncode:
        raise RuntimeError(
            f"tessc {arguments[0]} ended with {done.returncode}: {done.stderr[:900]}"
        )
    return done.stdout
