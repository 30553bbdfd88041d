"""Quantized weights as a checkpoint stores them, in a model that reads them as if they were wide.

In: a model with parameters in its own type, how its checkpoint is quantized, and the tensors that
the checkpoint has. Out: the same model, in which the stored tensors (`StorageForm`), under their
stored names, are the parameters, and the weight is an attribute that is computed from them where
the modeling code reads it. No module is replaced, so that products, experts and whatever else reads
a weight are the model's own. Floats of 8 bits are kept as bytes and widened by arithmetic on their
bits: GPUs before sm_89 have no such type.

Sources: the OCP formats FP8 (E4M3) and MX (E2M1, E8M0); the layouts that the transformers library,
`compressed-tensors`, AutoGPTQ and AutoAWQ write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tessera.frontend.capture.meta.quantized import (
    Quantization,
    StorageForm,
    general_name,
    layers_of,
)
from tessera.frontend.capture.mixed.narrow_products import (
    NarrowWeight,
    has_kernel,
    linear_forward,
    narrow_experts,
)
from tessera.frontend.capture.mixed.seam import refused
from tessera.frontend.contents.safetensors import NAMES, TensorType
from tessera.ir.program.data_type import DataType

Shape = tuple[int, ...]
Tensors = Mapping[str, TensorType]
_WORD = 32
_DIMS = dict.fromkeys(StorageForm, 3) | dict.fromkeys((StorageForm.GPTQ, StorageForm.AWQ), 2)
_HALF_BIAS, _BIAS_8, _BIAS_4 = 15, 7, 1
_NAN_8 = 480.0  # what the bits of a NaN would mean if it were a number
_TYPES = {
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "I8": torch.int8,
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as it is stored: the end of its name (or, for some forms, its name), its type, and
    its shape. A shape may be stored without dimensions of 1."""

    name: str
    dtype: torch.dtype
    shape: Shape


def stored_tensors(how: Quantization, name: str, shape: Shape) -> tuple[StoredTensor, ...]:
    """The tensors of a weight [..., results, inputs]: its codes, its scales, perhaps its zeros."""
    assert how.form is not None
    *stack, results, inputs = shape
    if how.form is StorageForm.MXFP4:
        inputs, results = results, inputs
    groups = -(-inputs // how.group) if how.group else 1
    rows = -(-results // how.rows) if how.rows else 1
    scale = _type_of(how.scale)
    word, per_word = torch.int32, _WORD // how.bits
    words = (-(-results // per_word), -(-inputs // per_word))
    match how.form:
        case StorageForm.SCALED:
            code = torch.int8 if how.kind is DataType.S8 else torch.uint8
            made = [StoredTensor(name, code, shape)]
            made += [StoredTensor(name + how.scale_name, scale, (*stack, rows, groups))]
            zeros = StoredTensor(f"{name}_zero_point", torch.int8, (*stack, rows, groups))
        case StorageForm.PACKED:
            made = [StoredTensor(f"{name}_packed", word, (*stack, results, words[1]))]
            made += [StoredTensor(name + how.scale_name, scale, (*stack, results, groups))]
            zeros = StoredTensor(f"{name}_zero_point", word, (*stack, words[0], groups))
        case StorageForm.MXFP4:
            blocks = (*stack, results, groups)
            made = [StoredTensor(f"{name}_blocks", torch.uint8, (*blocks, how.group // 2))]
            return (*made, StoredTensor(name + how.scale_name, torch.uint8, blocks))
        case StorageForm.GPTQ | StorageForm.AWQ:
            codes = (inputs, words[0]) if how.form is StorageForm.AWQ else (words[1], results)
            made = [
                StoredTensor("qweight", word, codes),
                StoredTensor("scales", scale, (groups, results)),
            ]
            zeros = StoredTensor("qzeros", word, (groups, words[0]))
    return (*made, zeros) if how.zeros else tuple(made)


def hold_stored(
    model: nn.Module, how: Quantization, tensors: Tensors, *, widened: bool = True
) -> dict[str, tuple[str, ...]]:
    """Put stored tensors in the place of the weights that are quantized; their names by weight.

    `tensors` are those of the checkpoint: a weight whose scales are there is quantized, one that is
    there itself is not, and of others (experts that are stored one by one) the config decides.
    Without `widened` the model is only good for loading.
    """
    assert how.form is not None
    layers = layers_of(model, how)
    held = {}
    for path, module in list(model.named_modules()):
        changed: dict[str, object] = {}
        narrow: dict[str, NarrowWeight] = {}
        for name, weight in list(module.named_parameters(recurse=False)):
            whole = f"{path}.{name}"
            if general_name(whole) not in layers:
                continue
            if weight.dim() > _DIMS[how.form] or (weight.dim() > 2 and not how.rows):
                raise refused(f"(`{path}`) has experts, which are not served in this form", module)
            parts = stored_tensors(how, name, tuple(weight.shape))
            if not _is_quantized(how, whole, [f"{path}.{part.name}" for part in parts], tensors):
                continue
            del module._parameters[name]
            for part in parts:
                known = tensors.get(f"{path}.{part.name}")
                module._parameters[part.name] = _parameter(part, known, tensors, weight)
            names = tuple(part.name for part in parts)
            changed[name] = _widening(how, names, tuple(weight.shape), weight.dtype)
            if how.form is StorageForm.MXFP4 or not getattr(module, "is_transposed", False):
                narrow |= _for_kernel(how, name, names, weight)
            held[whole] = tuple(f"{path}.{part.name}" for part in parts)
        if changed and widened:
            kind = type(module)
            if narrow and kind.forward is nn.Linear.forward:
                changed["forward"] = linear_forward(*narrow.values())
            elif narrow and hasattr(getattr(module, "config", None), "_experts_implementation"):
                narrow_experts(module, narrow)
            module.__class__ = type(kind.__name__, (kind,), changed)
    return held


def _for_kernel(
    how: Quantization, name: str, names: tuple[str, ...], weight: Tensor
) -> dict[str, NarrowWeight]:
    """The weight for products by the kernel, if it computes them."""
    results, inputs = (
        weight.shape[-2:] if how.form is not StorageForm.MXFP4 else weight.mT.shape[-2:]
    )
    if not has_kernel(how, inputs, weight.dtype):
        return {}
    return {name: NarrowWeight(how, names, weight.dtype, results)}


def _is_quantized(how: Quantization, name: str, stored: list[str], tensors: Tensors) -> bool:
    if any(own in tensors for own in stored if own != name):
        return True
    return how.covers(name) and (name not in tensors or tensors[name].width == 1)


def _parameter(
    part: StoredTensor, known: TensorType | None, tensors: Tensors, weight: Tensor
) -> nn.Parameter:
    """A parameter for a stored tensor; in the type and with the dimensions of the file's own."""
    dtype, shape = part.dtype, part.shape
    alike = known or next(
        (own for name, own in tensors.items() if name.rpartition(".")[2] == part.name), None
    )
    if alike is not None and dtype.is_floating_point:
        dtype = _TYPES.get(alike.name, torch.uint8 if alike.width == 1 else dtype)
    if known is not None and _without_ones(known.shape) == _without_ones(shape):
        shape = known.shape
    made = torch.empty(shape, dtype=dtype, device=weight.device)
    return nn.Parameter(made, requires_grad=False)


def _without_ones(shape: Shape) -> Shape:
    return tuple(extent for extent in shape if extent != 1)


def _type_of(kind: DataType) -> torch.dtype:
    return _TYPES.get(NAMES[kind], torch.uint8)


# --- from codes to numbers ----------------------------------------------------------------------


def _widening(
    how: Quantization, names: tuple[str, ...], shape: Shape, dtype: torch.dtype
) -> property:
    """The weight as an attribute, computed from the tensors of a module."""

    def widen(module: nn.Module) -> Tensor:
        return widened(how, [module._parameters[name] for name in names], shape, dtype)

    return property(widen)


def widened(how: Quantization, parts: list[Tensor], shape: Shape, dtype: torch.dtype) -> Tensor:
    """The weight that stored tensors stand for."""
    assert how.form is not None
    codes, scales = parts[0], parts[1]
    zeros = parts[2] if how.zeros else None
    return _WIDEN[how.form](how, codes, scales, zeros, shape).to(dtype)


def _scaled(
    how: Quantization, codes: Tensor, scales: Tensor, zeros: Tensor | None, shape: Shape
) -> Tensor:
    values = codes.float() if how.kind is DataType.S8 else float8(codes)
    grid = _grid(how, shape)
    wide = scales.reshape(grid)
    if zeros is not None:
        values = values - _over(zeros.reshape(grid).float(), how, shape)
    return values * _over(_numbers(wide), how, shape)


def _grid(how: Quantization, shape: Shape) -> Shape:
    """The number of scales in each dimension of a weight."""
    *stack, results, inputs = shape
    rows = -(-results // how.rows) if how.rows else 1
    return (*stack, rows, -(-inputs // how.group) if how.group else 1)


def _over(scales: Tensor, how: Quantization, shape: Shape) -> Tensor:
    """Scales [..., rows, groups] for every number of a weight, or in a shape that spreads to it."""
    *_, results, inputs = shape
    if how.rows > 1:
        scales = _repeated(scales, -2, how.rows, results)
    return _repeated(scales, -1, how.group, inputs) if how.group > 1 else scales


def _repeated(tensor: Tensor, dim: int, times: int, most: int) -> Tensor:
    """Every element so many times, up to a length; the last block may be cut."""
    at = dim % tensor.dim()
    sizes = [-1] * (tensor.dim() + 1)
    sizes[at + 1] = times
    return tensor.unsqueeze(at + 1).expand(sizes).flatten(at, at + 1).narrow(at, 0, most)


def _packed(
    how: Quantization, codes: Tensor, scales: Tensor, zeros: Tensor | None, shape: Shape
) -> Tensor:
    least = 1 << (how.bits - 1)
    values = (_unpacked(codes, how.bits)[..., : shape[-1]] - least).float()
    if zeros is not None:
        rows = _unpacked(zeros.transpose(-1, -2), how.bits)[..., : shape[-2]] - least
        values = values - _over(rows.transpose(-1, -2).float(), how, shape)
    grid = (*shape[:-1], scales.shape[-1])
    return values * _over(scales.reshape(grid).float(), how, shape)


def _mxfp4(
    _how: Quantization, codes: Tensor, scales: Tensor, _zeros: Tensor | None, shape: Shape
) -> Tensor:
    values = float4(_unpacked(codes, 4)) * _numbers(scales)[..., None]
    *stack, inputs, results = shape
    return values.reshape(*stack, results, inputs).transpose(-1, -2)


def _by_columns(
    how: Quantization, codes: Tensor, scales: Tensor, zeros: Tensor | None, shape: Shape
) -> Tensor:
    """GPTQ and AWQ, whose tensors are [inputs, results]; zeros of GPTQ are stored less one."""
    assert zeros is not None
    is_awq = how.form is StorageForm.AWQ
    if is_awq:
        values, zeros = _even_first(codes, how.bits), _even_first(zeros, how.bits)
    else:
        values = _unpacked(codes.t(), how.bits).t()
        zeros = (_unpacked(zeros, how.bits) + how.zero_offset) & ((1 << how.bits) - 1)
    inputs = shape[1]
    wide = [_repeated(own, 0, how.group or inputs, inputs) for own in (zeros, scales.float())]
    return ((values - wide[0]).float() * wide[1]).to(scales.dtype).t()


def _even_first(words: Tensor, bits: int) -> Tensor:
    """Numbers in words that have the even ones of each eight first, as kernels of AWQ want them."""
    half = _WORD // bits // 2
    parts = _unpacked(words, bits).unflatten(-1, (-1, 2, half))
    return parts.transpose(-1, -2).flatten(-3)


def _unpacked(words: Tensor, bits: int) -> Tensor:
    """The unsigned numbers in the last dimension of words or bytes, least bits first."""
    width = words.element_size() * 8
    shifts = torch.arange(0, width, bits, dtype=words.dtype, device=words.device)
    parts = (words[..., None] >> shifts) & ((1 << bits) - 1)
    return parts.flatten(-2)


def _numbers(scales: Tensor) -> Tensor:
    """Scales as f32; of bytes, powers of two (E8M0)."""
    if scales.dtype is not torch.uint8:
        return scales.float()
    made = (scales.to(torch.int32) << 23).view(torch.float32)
    return torch.where(scales == 0, 2.0**-127, made)


def float8(codes: Tensor) -> Tensor:
    """Bytes as the numbers of E4M3 that they stand for: halves with a bias of their own."""
    half = ((codes.to(torch.int16) & 0x7F) << 7).view(torch.float16)
    size = half.float() * 2.0 ** (_HALF_BIAS - _BIAS_8)
    size = torch.where(size == _NAN_8, float("nan"), size)
    return torch.where(codes > 0x7F, -size, size)


def float4(codes: Tensor) -> Tensor:
    """Numbers from 0 to 15 as those of E2M1."""
    half = ((codes.to(torch.int16) & 0x7) << 9).view(torch.float16)
    size = half.float() * 2.0 ** (_HALF_BIAS - _BIAS_4)
    return torch.where(codes > 0x7, -size, size)


_WIDEN: dict[
    StorageForm, Callable[[Quantization, Tensor, Tensor, Tensor | None, Shape], Tensor]
] = {
    StorageForm.SCALED: _scaled,
    StorageForm.PACKED: _packed,
    StorageForm.MXFP4: _mxfp4,
    StorageForm.GPTQ: _by_columns,
    StorageForm.AWQ: _by_columns,
}
