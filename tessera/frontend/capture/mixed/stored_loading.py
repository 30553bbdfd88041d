"""Quantized weights through the transformers library's loader, as they are stored.

In: the library's config of a model, and how its checkpoint is quantized. Out: the same config, by
which the library loads stored tensors without widening them. It renames them, and stacks those of
experts that are stored one by one, as it does with wide weights; nothing here names a model. The
library's registry of ways to quantize is public.
"""

from __future__ import annotations

from typing import Protocol

import torch
from transformers import PretrainedConfig, PreTrainedModel
from transformers.quantizers import HfQuantizer
from transformers.quantizers.auto import (
    AUTO_QUANTIZER_MAPPING,
    register_quantization_config,
    register_quantizer,
)
from transformers.utils.quantization_config import QuantizationConfigMixin

from tessera.frontend.capture.meta.quantized import Quantization
from tessera.frontend.capture.mixed.stored_weights import Tensors, hold_stored, stored_tensors

_NAME = "tessera_stored"


class FileSlice(Protocol):
    """A tensor of a file, as the library's loader hands it over."""

    def get_dtype(self) -> str:
        """The type by its name in the file."""


class _StoredConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """How a checkpoint is quantized, for the library's loader."""

    def __init__(self, how: Quantization, tensors: Tensors, **_: object) -> None:
        self.quant_method = _NAME
        self.how = how
        self.tensors = tensors


class _StoredQuantizer(HfQuantizer):  # type: ignore[misc]
    """Gives a model the parameters that a checkpoint has."""

    def __init__(self, quantization_config: _StoredConfig, **more: object) -> None:
        super().__init__(quantization_config, **more)
        config = quantization_config
        names = [own.name for own in stored_tensors(config.how, "weight", (1, 1))]
        self.serialized_names = {"weight": names}
        self._held: set[str] = set()

    def _process_model_before_weight_loading(self, model: PreTrainedModel, **_: object) -> None:
        config = self.quantization_config
        held = hold_stored(model, config.how, config.tensors, widened=False)
        self._held = {name for names in held.values() for name in names}
        for name in self._held:  # modules of which the library draws no first weights
            model.get_submodule(name.rpartition(".")[0])._is_hf_initialized = True

    def get_new_dtype(
        self, _converter: object, param: FileSlice, dtype: torch.dtype
    ) -> torch.dtype | None:
        """The type that a tensor is cast to; None for codes, which keep theirs."""
        return dtype if param.get_dtype() in ("F16", "BF16", "F32", "F64") else None

    def param_needs_quantization(self, _model: object, param_name: str, **_: object) -> bool:
        """Whether a shape is left to be checked by who asked for the weights."""
        return param_name in self._held

    def is_serializable(self) -> bool:
        """Whether such a model is saved."""
        return False

    @property
    def is_trainable(self) -> bool:
        """Whether such a model is trained."""
        return False


def loaded_as_stored(config: PretrainedConfig, how: Quantization, tensors: Tensors) -> None:
    """Make the library load the weights of this config as they are stored."""
    if _NAME not in AUTO_QUANTIZER_MAPPING:
        register_quantization_config(_NAME)(_StoredConfig)
        register_quantizer(_NAME)(_StoredQuantizer)
    config.quantization_config = {"quant_method": _NAME, "how": how, "tensors": tensors}
