"""Parts of models that do more than to add tokens: encoders, decoders beside them, vision towers.

In: a model of the library on fake tensors, a batch, a context. Out: the part that is called, and
the inputs of one call. The encoder reads text of `context` tokens, sound of the length that the
model is made for, or images of its size; a tower that takes images as patches reads `context` of
them for each. The decoder of such a model attends to all that its encoder made, whose keys and
values are cached.
"""

from __future__ import annotations

import inspect
from math import isqrt
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.inputs import Inputs

if TYPE_CHECKING:
    import transformers

_CODE = "TSR6015"
_SOURCES = ("max_source_positions",)  # how many places an encoder of sound makes


def encoder_step(
    model: transformers.PreTrainedModel, batch: int, context: int
) -> tuple[transformers.PreTrainedModel, Inputs]:
    """The encoder of a model, or its vision tower, and what it reads."""
    import torch

    part = _encoder_of(model)
    taken, config = inspect.signature(part.forward).parameters, part.config
    if "pixel_values" in taken:
        vision = getattr(config, "vision_config", config)
        size = _first(vision, ("image_size",), 224)
        height, width = size if isinstance(size, list | tuple) else (size, size)
        shape = (batch, _first(vision, ("num_channels",), 3), height, width)
        pixels = torch.zeros(shape, dtype=part.dtype)
        return part, Inputs(named={"pixel_values": pixels})
    if "input_features" in taken:
        places = _first(config, _SOURCES, context)
        bands = _first(config, ("num_mel_bins",), 80)
        sound = torch.zeros((batch, bands, 2 * places), dtype=part.dtype)
        return part, Inputs(named={"input_features": sound})
    if "grid_thw" in taken:
        return part, _patches(part, batch, context)
    if "input_ids" in taken:
        tokens = torch.zeros((batch, context), dtype=torch.long)
        return part, Inputs(named={"input_ids": tokens})
    raise TesseraError.of(
        _CODE,
        f"it is not known what `{type(part).__name__}` reads: {', '.join(taken)}",
        hint="write the step as Python: `tessc trace model.py:step --device meta`",
    )


def no_encoder_step(model: transformers.PreTrainedModel, why: TesseraError) -> TesseraError:
    """An error for an encoder that cannot be called without data."""
    return TesseraError.of(
        _CODE,
        f"the encoder of `{type(model).__name__}` cannot be traced from its config file",
        notes=(str(why.diagnostics[0].headline),),
        hint="`--phase prefill` and `decode` trace the rest; write the encoder's step as Python",
    )


def _patches(part: transformers.PreTrainedModel, batch: int, context: int) -> Inputs:
    """Images as rows of patches, all of one size: the largest square of whole merges."""
    import torch

    config = part.config
    merge = _first(config, ("spatial_merge_size",), 1)
    side = max(merge, isqrt(context) // merge * merge)
    channels = _first(config, ("in_channels", "in_chans", "num_channels"), 3)
    patch, frames = _first(config, ("patch_size",), 14), _first(config, ("temporal_patch_size",), 1)
    rows = torch.zeros((batch * side * side, channels * frames * patch * patch), dtype=part.dtype)
    # Its values decide shapes, so it stays on the host.
    grid = torch.tensor([[1, side, side]] * batch, device="cpu")
    first = next(iter(inspect.signature(part.forward).parameters))
    return Inputs(named={first: rows, "grid_thw": grid})


def decoder_step(
    model: transformers.PreTrainedModel, batch: int, context: int, *, is_first: bool
) -> Inputs:
    """New tokens of the decoder, its cache, and what the encoder made."""
    import torch
    import transformers
    from transformers.modeling_outputs import BaseModelOutput

    config = model.config
    places = _first(config, _SOURCES, context)
    hidden = _first(config, ("d_model", "hidden_size"), 1)
    made = torch.zeros((batch, places, hidden), dtype=model.dtype)
    own = transformers.StaticCache(config=config, max_cache_len=context)
    cross = transformers.StaticCache(config=config, max_cache_len=places)
    tokens = torch.zeros((batch, context if is_first else 1), dtype=torch.long)
    return Inputs(
        named={
            "decoder_input_ids": tokens,
            "encoder_outputs": BaseModelOutput(last_hidden_state=made),
            "past_key_values": transformers.EncoderDecoderCache(own, cross),
            "use_cache": True,
        }
    )


def _encoder_of(model: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """The encoder beside a decoder, the tower for images, or the model if it is one itself."""
    import transformers

    if getattr(model.config, "is_encoder_decoder", False):
        part: transformers.PreTrainedModel = model.get_encoder()
        return part
    vision = getattr(model.config, "vision_config", None)
    for module in model.modules() if vision is not None else ():
        is_model = isinstance(module, transformers.PreTrainedModel)
        if is_model and type(module.config) is type(vision) and module is not model:
            return module
    causal = [module.is_causal for module in model.modules() if hasattr(module, "is_causal")]
    if vision is None and any(causal):
        raise TesseraError.of(
            _CODE,
            f"`{type(model).__name__}` has no encoder",
            hint="its phases are `prefill` and `decode`",
        )
    return model


def _first(config: transformers.PretrainedConfig, names: tuple[str, ...], default: int) -> int:
    given = (getattr(config, name, None) for name in names)
    return next((value for value in given if value), default)
