"""PyTorch's own result for the block in examples/traces/dit.ptx, in eager mode on the CPU.

Needs torch 2.13; run from the repository's root:

    python tests/data/kernels/sources/dit_torch.py

Writes tests/data/kernels/h200/dit_torch.npz. The block is the one whose kernels the trace holds:
adaptive layer norms around attention and a feed-forward part, each with a gate, all in bf16.
"""

from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[4]
SHAPES = {
    "ada": (128, 768),
    "qkv": (128, 384),
    "o": (128, 128),
    "f1": (128, 256),
    "f2": (256, 128),
    "in0": (2, 64, 128),
    "in1": (2, 128),
}


def block(x, condition, ada, qkv, o, f1, f2):
    """One diffusion-transformer block."""
    parts = (torch.nn.functional.silu(condition) @ ada)[:, None].chunk(6, dim=-1)
    scale1, shift1, gate1, scale2, shift2, gate2 = parts
    h = torch.nn.functional.layer_norm(x, (128,)) * (1 + scale1) + shift1
    q, k, v = ((h @ qkv).chunk(3, dim=-1)[i].view(2, 64, 4, 32).transpose(1, 2) for i in range(3))
    weights = torch.softmax(q @ k.transpose(-1, -2) / 32**0.5, dim=-1)
    x = x + gate1 * ((weights @ v).transpose(1, 2).reshape(2, 64, 128) @ o)
    h = torch.nn.functional.layer_norm(x, (128,)) * (1 + scale2) + shift2
    return x + gate2 * (torch.nn.functional.gelu(h @ f1) @ f2)


def main():
    """Write the result for the inputs in dit.npz."""
    with np.load(ROOT / "examples" / "traces" / "dit.npz") as archive:
        given = {
            name: torch.from_numpy(archive[name].copy()).view(torch.bfloat16).view(shape)
            for name, shape in SHAPES.items()
        }
    with torch.no_grad():
        result = block(
            given["in0"], given["in1"], *(given[n] for n in ("ada", "qkv", "o", "f1", "f2"))
        )
    words = result.contiguous().view(torch.int16).numpy().view(np.uint16)
    path = ROOT / "tests" / "data" / "kernels" / "h200" / "dit_torch.npz"
    np.savez_compressed(path, result=words)


if __name__ == "__main__":
    main()
