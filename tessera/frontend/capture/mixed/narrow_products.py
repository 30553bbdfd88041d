"""Products with quantized weights, by a kernel that reads the weights as they are stored.

In: rows and the stored tensors of a weight (`stored_weights`). Out: their product, in the type of
the rows: of a layer, or of rows that are sorted by expert with those of their experts. The kernel
is for rows of 16 bits and weights whose codes lie along the inputs; other products read a weight
that is widened before. Layers call it in place of `linear`, and experts by the interface that the
library has for ways to compute them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
from torch import Tensor, nn
from transformers.integrations.moe import ExpertsInterface, grouped_mm_experts_forward

from tessera.frontend.capture.meta.quantized import Quantization, StorageForm
from tessera.frontend.capture.mixed.narrow_kernel import narrow_product
from tessera.ir.program.data_type import DataType

_KERNEL = triton.jit(narrow_product)
_NARROW = 2
_FEW, _STAGES = 64, 3
# Columns and inputs of a tile, and warps, by whether it has few rows: 72 KiB of shared memory.
_TILES = {True: (64, 128, 4), False: (128, 64, 8)}
_INNER = 128
_PROGRAMS = 256  # that keep a GPU busy: two for each of its processors, about
_LEAST_PART = 4  # tiles of inputs that a program has at least
_FORMS = (StorageForm.SCALED, StorageForm.PACKED, StorageForm.MXFP4)


EXPERTS = "tessera_narrow"


@dataclass(frozen=True, slots=True)
class NarrowWeight:
    """A weight of a module for the kernel: the names of its stored tensors, its type, its size."""

    how: Quantization
    names: tuple[str, ...]
    dtype: torch.dtype
    results: int

    def product(self, module: nn.Module, rows: Tensor, ends: Tensor | None = None) -> Tensor:
        """The product of rows with the weight of a module."""
        parts = [module._parameters[name] for name in self.names]
        return narrow_grouped(self.how, parts, rows, self.results, ends)


def linear_forward(weight: NarrowWeight) -> Callable[[nn.Linear, Tensor], Tensor]:
    """What a layer computes; by the kernel where code for GPUs is made."""

    def forward(module: nn.Linear, rows: Tensor) -> Tensor:
        if not _is_for_kernel(rows, weight):
            return nn.functional.linear(rows, module.weight, module.bias)
        made = weight.product(module, rows.reshape(-1, rows.shape[-1]))
        made = made.reshape(*rows.shape[:-1], weight.results)
        return made if module.bias is None else made + module.bias

    return forward


def _is_for_kernel(rows: Tensor, weight: NarrowWeight) -> bool:
    return torch.compiler.is_compiling() and rows.is_cuda and rows.dtype is weight.dtype


def narrow_experts(module: nn.Module, weights: dict[str, NarrowWeight]) -> None:
    """Have the experts of a module computed by the kernel."""
    ExpertsInterface.register(EXPERTS, _experts_forward)
    module.narrow_weights = weights
    module.config._experts_implementation = EXPERTS


def _experts_forward(module: nn.Module, hidden: Tensor, index: Tensor, shares: Tensor) -> Tensor:
    """The sum of what the chosen experts [token, choice] make of a token, by their shares."""
    weights: dict[str, NarrowWeight] = getattr(module, "narrow_weights", {})
    first = "gate_up_proj" if module.has_gate else "up_proj"
    if not {first, "down_proj"} <= weights.keys() or not _is_for_kernel(hidden, weights[first]):
        return grouped_mm_experts_forward(module, hidden, index, shares)
    experts, order = torch.sort(index.reshape(-1))
    counts = torch.histc(experts.int(), bins=module.num_experts, min=0, max=module.num_experts - 1)
    ends = torch.cumsum(counts, dim=0, dtype=torch.int32)

    def product(name: str, rows: Tensor) -> Tensor:
        made = weights[name].product(module, rows, ends)
        return made + getattr(module, f"{name}_bias")[experts] if module.has_bias else made

    made = product(first, hidden[order // index.shape[1]])
    made = module._apply_gate(made) if module.has_gate else module.act_fn(made)
    made = product("down_proj", made)
    if module.has_post_expert_norm:
        made = module.post_expert_norm(made)
    made = made * shares.reshape(-1)[order].unsqueeze(-1)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return made[back].view(*index.shape, -1).sum(dim=1).to(hidden.dtype)


def has_kernel(how: Quantization, inputs: int, dtype: torch.dtype) -> bool:
    """Whether the kernel computes products of rows of a type with weights of so many inputs."""
    group = how.group or inputs
    is_whole = group >= inputs or group % _INNER == 0 or _INNER % group == 0
    has_words = how.form is not StorageForm.PACKED or inputs % (32 // how.bits) == 0
    has_bytes_of_zeros = how.form is StorageForm.SCALED and how.zeros
    return (
        how.form in _FORMS
        and dtype.itemsize == _NARROW
        and is_whole
        and has_words
        and not has_bytes_of_zeros
    )


def narrow_grouped(
    how: Quantization, parts: list[Tensor], rows: Tensor, results: int, ends: Tensor | None = None
) -> Tensor:
    """The product of rows with stored weights [expert, results, inputs]; the rows of each expert
    begin at the end of those before. Rows after the last end are zero."""
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    codes, scales = parts[0], parts[1]
    count, inputs = rows.shape
    experts = 1 if ends is None else codes.shape[0]
    width = min(128, _power(-(-count // min(experts, count))))
    columns, inner, warps = _TILES[width <= _FEW]
    tiles = triton.cdiv(results, columns) * triton.cdiv(count, width)
    of_inputs = triton.cdiv(inputs, inner)
    split = max(1, min(_PROGRAMS // tiles, of_inputs // _LEAST_PART))
    part = triton.cdiv(of_inputs, split) * inner
    split = triton.cdiv(inputs, part)
    group = min(how.group or inputs, inputs)
    block_rows = how.rows or results
    sums = torch.empty((split, count, results), dtype=torch.float32, device=rows.device)
    _KERNEL[(triton.cdiv(results, columns), triton.cdiv(count, width), split)](
        rows,
        codes,
        scales,
        parts[2] if how.zeros else codes,
        codes if ends is None else ends,
        sums,
        count,
        rows.stride(0),
        N=results,
        K=inputs,
        PART=part,
        BITS=how.bits,
        IS_FLOAT=how.form is not StorageForm.PACKED and how.kind is not DataType.S8,
        LEAST=-(1 << (how.bits - 1)) if how.form is StorageForm.PACKED else 0,
        HAS_ZEROS=how.zeros,
        POWERS=scales.dtype is torch.uint8,
        BLOCKS=triton.cdiv(results, block_rows),
        BLOCK_ROWS=block_rows,
        GROUP=group if group < inputs else _power(max(inputs, _INNER)),
        GROUPS=triton.cdiv(inputs, group),
        EXPERTS=experts,
        WIDE=_power(experts),
        BLOCK_M=width,
        BLOCK_N=columns,
        BLOCK_K=inner,
        STAGES=_STAGES,
        num_warps=warps,
        num_stages=_STAGES,
    )
    return (sums[0] if split == 1 else sums.sum(0)).to(rows.dtype)


def _power(number: int) -> int:
    """The least power of two from 16 on that is at least `number`."""
    power = 16
    while power < number:
        power *= 2
    return power
