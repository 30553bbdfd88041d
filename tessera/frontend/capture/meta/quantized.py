"""How the weights of a checkpoint are quantized, by the `quantization_config` of its config file.

In: the values of a config file; the model of the library. Out: `Quantization`, and which weights it
covers. The tensors of each method are those that its checkpoints have: weights of 8 bits, or of 4
bits two to a byte, with a scale for each group of inputs (or block), and zeros where groups are not
symmetric. Layers that a config file exempts keep their type, and so does the head, unless it says
otherwise. A `StorageForm` says under which names and in which order a checkpoint has these tensors;
of methods without one only the sizes are known.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from typing import TYPE_CHECKING

from tessera.ir.program.data_type import DataType

if TYPE_CHECKING:
    import torch

Values = Mapping[str, object]
_EXEMPT = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules")
_FLOAT8 = DataType.E4M3
_BLOCK = [128, 128]


class StorageForm(enum.Enum):
    """How a checkpoint stores a weight [..., results, inputs]; names follow that of the weight.

    SCALED: the weight in 8 bits under its own name, and scales for blocks of it. PACKED: words of
    32 bits along the inputs, least bits first, above their least value. MXFP4: of a stack [expert,
    inputs, results], blocks [expert, results, block, 16] of two to a byte, and a power of two each.
    GPTQ: words along the inputs, [inputs, results]. AWQ: words along the results, even ones first.
    """

    SCALED = "scaled"
    PACKED = "packed"
    MXFP4 = "mxfp4"
    GPTQ = "gptq"
    AWQ = "awq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Weights of `bits` bits; a scale for `group` inputs (0: all) of `rows` results (0: all).

    `arithmetic` is the type of products on GPUs that have it, where inputs are quantized, too; None
    if weights are widened for products in the type of the inputs. The name of a scale is that of
    its weight with `scale_name`. Zeros are stored less `zero_offset`.
    """

    bits: int
    group: int = 0
    rows: int = 1
    scale: DataType = DataType.F32
    zeros: bool = False
    arithmetic: DataType | None = None
    kind: DataType = DataType.U8
    experts_only: bool = False
    exempt: tuple[str, ...] = ()
    form: StorageForm | None = None
    scale_name: str = "_scale"
    zero_offset: int = 0

    def covers(self, name: str) -> bool:
        """Whether a weight is quantized, as far as its name says."""
        module = name.rpartition(".")[0]
        return not any(
            _is_named(pattern, module) or _is_named(pattern, name) for pattern in self.exempt
        )


def _is_named(pattern: str, module: str) -> bool:
    """Whether a module is one that a config file names, or part of one."""
    if pattern.startswith("re:"):
        return re.fullmatch(pattern[3:], module) is not None
    parts, own = module.split("."), pattern.split(".")
    return any(
        all(fnmatch(part, wanted) for part, wanted in zip(parts[at:], own, strict=False))
        for at in range(len(parts) - len(own) + 1)
    )


def read_quantization(values: Values) -> Quantization | None:
    """What a `quantization_config` says; None for a method that is not known here."""
    method = str(values.get("quant_method", "")).replace("_", "-")
    known = _READERS.get(method)
    made = known(values) if known is not None else None
    if made is None or made.bits not in (4, 8):
        return None
    listed = [values.get(name) for name in _EXEMPT]
    exempt = [str(name) for some in listed if isinstance(some, list) for name in some]
    if not values.get("lm_head"):
        exempt += ["lm_head", "embed_out", "output"]
    return replace(made, exempt=tuple(exempt))


def _float8(values: Values) -> Quantization:
    block = values.get("weight_block_size", _BLOCK)
    rows, group = block if isinstance(block, list) and len(block) == 2 else (0, 0)
    is_plain = values.get("expert_dtype", "fp8") == "fp8" and not values.get("modules_to_convert")
    made = Quantization(bits=8, rows=rows, group=group, kind=_FLOAT8, arithmetic=_FLOAT8)
    if values.get("scale_fmt") == "ue8m0":
        made = replace(made, scale=DataType.U8)
    return replace(made, scale_name="_scale_inv", form=StorageForm.SCALED if is_plain else None)


def _float8_rows(_values: Values) -> Quantization:
    return Quantization(bits=8, kind=_FLOAT8, arithmetic=_FLOAT8)


def _float8_whole(_values: Values) -> Quantization:
    return replace(_float8_rows({}), rows=0)


def _packed(values: Values) -> Quantization:
    """AWQ and GPTQ: groups of inputs, scales of 16 bits, zeros."""
    bits, group = _integer(values, "bits", 4), _integer(values, "group_size", 128)
    made = Quantization(bits=bits, group=max(group, 0), scale=DataType.F16, zeros=True)
    if str(values.get("quant_method")) == "awq":
        kinds = {str(values.get(name, "gemm")).lower() for name in ("version", "format")}
        return replace(made, form=StorageForm.AWQ if kinds == {"gemm"} and bits == 4 else None)
    kind = values.get("checkpoint_format", "gptq")
    is_plain = kind in ("gptq", "gptq_v2") and not values.get("desc_act")
    return replace(
        made, form=StorageForm.GPTQ if is_plain else None, zero_offset=1 if kind == "gptq" else 0
    )


def _mxfp4(_values: Values) -> Quantization:
    return Quantization(
        bits=4,
        group=32,
        scale=DataType.U8,
        experts_only=True,
        form=StorageForm.MXFP4,
        scale_name="_scales",
    )


def _compressed(values: Values) -> Quantization | None:
    groups = values.get("config_groups")
    parts = list(groups.values()) if isinstance(groups, Mapping) else []
    weights = [part.get("weights") for part in parts if isinstance(part, Mapping)]
    if not weights or any(not isinstance(own, Mapping) or own != weights[0] for own in weights):
        return None
    own = weights[0]
    assert isinstance(own, Mapping)
    inputs = [part.get("input_activations") for part in parts if isinstance(part, Mapping)]
    bits, group = _integer(own, "num_bits", 8), max(_integer(own, "group_size", 0), 0)
    kind = _FLOAT8 if own.get("type") == "float" else DataType.S8
    block = own.get("block_structure")
    rows = 0 if own.get("strategy") == "tensor" else 1
    if isinstance(block, list) and len(block) == 2:
        rows, group = block
    return Quantization(
        bits=bits,
        group=group,
        rows=rows,
        scale=DataType.BF16,
        zeros=not own.get("symmetric", True),
        kind=kind if bits == 8 else DataType.U8,
        arithmetic=kind if bits == 8 and all(inputs) else None,
        form=_compressed_form(values, own),
    )


def _compressed_form(values: Values, weights: Values) -> StorageForm | None:
    """How `compressed-tensors` stores weights; None for orders of inputs of its own."""
    if weights.get("actorder") not in (None, False, "static", "weight"):
        return None
    made = _FORMATS.get(str(values.get("format")))
    if made is StorageForm.PACKED and weights.get("type") == "float":
        return None
    return made


def _bitsandbytes(values: Values) -> Quantization:
    if values.get("load_in_4bit"):
        scale = DataType.U8 if values.get("bnb_4bit_use_double_quant") else DataType.F32
        return Quantization(bits=4, group=64, scale=scale)
    return Quantization(bits=8, kind=DataType.S8, arithmetic=DataType.S8)


def _modelopt(values: Values) -> Quantization | None:
    algorithm = str(values.get("quant_algo", ""))
    if algorithm == "FP8":
        return _float8_whole({})
    if algorithm == "NVFP4":
        return Quantization(bits=4, group=16, scale=_FLOAT8)
    return None


_FORMATS = {
    "naive-quantized": StorageForm.SCALED,
    "int-quantized": StorageForm.SCALED,
    "float-quantized": StorageForm.SCALED,
    "pack-quantized": StorageForm.PACKED,
}
_READERS = {
    "fp8": _float8,
    "fbgemm-fp8": _float8_rows,
    "awq": _packed,
    "gptq": _packed,
    "mxfp4": _mxfp4,
    "compressed-tensors": _compressed,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
}


def _integer(values: Values, name: str, default: int) -> int:
    value = values.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def general_name(name: str) -> str:
    """A name without the numbers of layers."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", name)


def layers_of(model: torch.nn.Module, quantization: Quantization) -> frozenset[str]:
    """The general names of weights of linear layers, and of stacks of them (experts)."""
    import torch

    made = set()
    for name, module in model.named_modules():
        kind = type(module).__name__
        for own, tensor in module.named_parameters(recurse=False):
            is_stack = tensor.dim() == 3 and "onv" not in kind
            is_linear = isinstance(module, torch.nn.Linear) or kind == "Conv1D"
            is_layer = is_linear and own == "weight" and not quantization.experts_only
            if is_stack or is_layer:
                made.add(general_name(f"{name}.{own}"))
    return frozenset(made)
