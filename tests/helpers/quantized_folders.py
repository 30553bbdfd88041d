"""Folders of models with quantized weights, and what these weights are in numpy.

`quantized` writes random codes and scales of a form for a weight, as the tools of that form write
them, with the weight they stand for: numbers are read from tables of the formats, one code after
the other, so that nothing is shared with what is tested.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
# E4M3: 1 sign, 4 bits of exponent with a bias of 7, 3 of mantissa; the greatest code is no number.
E4M3 = np.array(
    [
        (-1) ** (code >> 7)
        * (
            (code & 7) * 2.0**-9
            if not code >> 3 & 15
            else (8 + (code & 7)) * 2.0 ** ((code >> 3 & 15) - 10)
        )
        for code in range(256)
    ]
)
Made = tuple[dict[str, np.ndarray], np.ndarray]
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def words(numbers: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """Unsigned numbers [rows, columns] as words of 32 bits along the columns."""
    each = 32 // bits
    rows, columns = numbers.shape
    padded = np.zeros((rows, -(-columns // each) * each), np.uint64)
    padded[:, :columns] = numbers
    made = np.zeros((rows, padded.shape[1] // each), np.uint64)
    for place, number in enumerate(order or range(each)):
        made |= padded[:, number::each] << np.uint64(bits * place)
    return made.astype(np.uint32).view(np.int32)


def grid_of(shape: tuple[int, ...], rows: int, group: int) -> tuple[int, int]:
    return (-(-shape[0] // rows) if rows else 1, -(-shape[1] // group) if group else 1)


def spread(grid: np.ndarray, shape: tuple[int, ...], rows: int, group: int) -> np.ndarray:
    """The number of a block for every number in it."""
    at = [np.arange(n) // (size or n) for n, size in zip(shape, (rows, group), strict=True)]
    return grid[np.ix_(*at)]


def scales_for(draw: Any, weight: np.ndarray, grid: tuple[int, int], top: float) -> np.ndarray:
    size = np.abs(weight).max() / top
    return (size * draw.uniform(0.5, 1.0, grid)).astype(np.float32)


def float8(rows: int, group: int, name: str, ones: bool = True) -> Callable[..., Made]:
    """8-bit floats, with a scale for `rows` x `group`."""

    def made(draw: Any, weight: np.ndarray) -> Made:
        scales = scales_for(draw, weight, grid_of(weight.shape, rows, group), 448)
        is_narrow = name == "weight_scale"
        scales = bf16(scales) if is_narrow else scales
        wide = spread(scales, weight.shape, rows, group)
        known = np.delete(E4M3, [127, 255])
        order = np.argsort(known)
        at = np.clip(np.searchsorted(known[order], weight / wide), 0, len(known) - 1)
        codes = order[at]
        codes = (codes + (codes >= 127)).astype(np.uint8)
        stored = scales if ones else scales.reshape(())
        wanted = (E4M3[codes] * wide).astype(np.float32)
        return {"weight": codes, name: stored}, wanted

    return made


def packed(bits: int, group: int, zeros: bool) -> Callable[..., Made]:
    """Words of `compressed-tensors`."""

    def made(draw: Any, weight: np.ndarray) -> Made:
        grid = grid_of(weight.shape, 1, group)
        scales = bf16(scales_for(draw, weight, grid, 1 << (bits - 1)))
        least = 1 << (bits - 1)
        zero = draw.integers(-2, 3, grid) if zeros else np.zeros(grid, np.int64)
        wide, zero_wide = (spread(own, weight.shape, 1, group) for own in (scales, zero))
        codes = np.clip(np.round(weight / wide) + zero_wide, -least, least - 1).astype(np.int64)
        parts = {
            "weight_packed": words(codes + least, bits),
            "weight_scale": scales,
            "weight_shape": np.array(weight.shape, np.int64),
        }
        if zeros:
            parts["weight_zero_point"] = words((zero + least).T, bits).T.copy()
        return parts, ((codes - zero_wide) * wide).astype(np.float32)

    return made


def by_columns(bits: int, group: int, awq: bool) -> Callable[..., Made]:
    """Words of AutoAWQ, or of AutoGPTQ in its first form, whose zeros are stored less one."""

    def made(draw: Any, weight: np.ndarray) -> Made:
        columns = weight.T
        grid = grid_of(columns.shape, group, 1)
        scales = scales_for(draw, weight, grid, 1 << (bits - 1)).astype(np.float16)
        zero = draw.integers(1, 1 << bits, grid)
        wide, zero_wide = (spread(own, columns.shape, group, 1) for own in (scales, zero))
        numbers = np.round(columns / wide.astype(np.float32)) + zero_wide
        codes = np.clip(numbers, 0, (1 << bits) - 1).astype(np.int64)
        parts = {"scales": scales}
        if awq:
            parts["qweight"] = words(codes, bits, AWQ_ORDER)
            parts["qzeros"] = words(zero, bits, AWQ_ORDER)
        else:
            parts["qweight"] = words(codes.T, bits).T.copy()
            parts["qzeros"] = words(zero - 1, bits)
            parts["g_idx"] = (np.arange(len(columns)) // (group or len(columns))).astype(np.int32)
        wanted = ((codes - zero_wide) * wide.astype(np.float32)).astype(np.float16)
        return parts, wanted.astype(np.float32).T

    return made


def mxfp4(draw: Any, stack: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Blocks, powers of two, and the weights [expert, inputs, results] that they stand for."""
    rows = np.swapaxes(stack, 1, 2)
    codes = draw.integers(0, 16, rows.shape)
    powers = draw.integers(120, 124, (*rows.shape[:2], rows.shape[2] // 32))
    wide = E2M1[codes] * 2.0 ** (np.repeat(powers, 32, 2) - 127)
    blocks = (codes[..., ::2] | codes[..., 1::2] << 4).astype(np.uint8)
    blocks = blocks.reshape(*powers.shape, 16)
    return blocks, powers.astype(np.uint8), np.swapaxes(wide, 1, 2).astype(np.float32).copy()


def bf16(numbers: np.ndarray) -> np.ndarray:
    """f32 as the nearest numbers of bf16, ties to even."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def write_folder(
    folder: Path, method: dict[str, Any], form: Callable[..., Made] | None, shards: int = 1
) -> dict[str, np.ndarray]:
    """Quantize the weights of a saved folder of f32 in place: of layers by `form`, of stacks of
    experts (without one) as mxfp4. Returns the wide tensors of all weights that are quantized."""
    import torch
    from safetensors.torch import load_file, save_file

    draw = np.random.default_rng(7)
    tensors: dict[str, Any] = {}
    for file in sorted(folder.glob("*.safetensors")):
        tensors |= load_file(file)
        file.unlink()
    stored: dict[str, Any] = {}
    wide: dict[str, np.ndarray] = {}
    for name, tensor in tensors.items():
        path, _, own = name.rpartition(".")
        if form is None and tensor.dim() == 3:
            blocks, powers, wide[name] = mxfp4(draw, tensor.float().numpy())
            stored[f"{name}_blocks"] = torch.from_numpy(blocks)
            stored[f"{name}_scales"] = torch.from_numpy(powers)
        elif form is not None and path.endswith(("proj", "_mqa", ".w1", ".w2", ".w3")):
            parts, wide[name] = (
                form(draw, tensor.float().numpy()) if own == "weight" else ({}, None)
            )
            if own != "weight":
                stored[name] = tensor
                wide.pop(name)
            for part, values in parts.items():
                stored[f"{path}.{part}"] = as_torch(part, values, tensor.dtype)
        else:
            stored[name] = tensor
    names = sorted(stored)
    index = {}
    for number in range(shards):
        file = f"model-{number + 1:05}-of-{shards:05}.safetensors"
        some = {name: stored[name].contiguous() for name in names[number::shards]}
        index |= dict.fromkeys(some, file)
        save_file(some, folder / file, metadata={"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {}, "weight_map": index})
    )
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = method
    (folder / "config.json").write_text(json.dumps(config))
    return wide


def as_torch(name: str, values: np.ndarray, dtype: Any) -> Any:
    """A stored tensor; scales of `compressed-tensors` have the type of the model."""
    import torch

    made = torch.from_numpy(np.array(values))
    if made.dtype is torch.uint8:
        return made.view(torch.float8_e4m3fn)
    return made.to(dtype) if name == "weight_scale" else made
