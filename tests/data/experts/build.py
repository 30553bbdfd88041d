"""Make the traces of this folder: kernels of experts as Triton compiles them, with small inputs.

    TRITON_DISABLE_LINE_INFO=1 PYTHONPATH=. python tests/data/experts/build.py

Needs torch (a CPU build will do) and Triton, and no GPU.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tessera.frontend.capture.experts.launch import ProductTiles, launch, launch_greatest
from tests.data.attention.build import random, stand_in, trace

HERE = Path(__file__).parent
TILES = ProductTiles(rows=16, columns=32, inner=32, warps=4, stages=2)


def cases() -> dict[str, tuple[dict[str, torch.Tensor], Any]]:
    """Tensors by name, and the call."""
    torch.manual_seed(7)
    chosen = random(6, 40)
    chosen[1, 3] = float("nan")
    chosen[2] = 0.0
    chosen[3, 5] = -float("inf")
    return {
        # an expert without rows, one that spans two tiles, rows that have none
        "product": (
            {
                "rows": random(24, 48),
                "weights": random(5, 72, 48),
                "ends": torch.tensor([7, 7, 19, 20, 22], dtype=torch.int32),
            },
            lambda t: launch(t["rows"], t["weights"].transpose(1, 2), t["ends"], TILES),
        ),
        "greatest": ({"rows": chosen}, lambda t: launch_greatest(t["rows"], 5)[1]),
    }


def main() -> None:
    stand_in()
    for name, (tensors, call) in cases().items():
        text, contents = trace(tensors, call)
        (HERE / f"{name}.ptx").write_text(text)
        np.savez_compressed(HERE / f"{name}.npz", **contents)
        sys.stdout.write(f"{name} {len(text)}\n")


if __name__ == "__main__":
    main()
