"""A model of the transformers library from its `config.json` alone, and one step of it.

In: `hf:PATH` (the file, or its folder), a phase, a batch, a context. Out: the model on fake
tensors, and the inputs of one call: the tokens, their positions, the cache. Nothing is fetched, no
weights are read, and code that a config file names (`auto_map`) is never run.

A prefill step reads `context` tokens of each of `batch` prompts into an empty cache, and computes
the logits of the last one. A decode step adds one token to each of `batch` sequences; the cache has
room for `context` tokens, and attention goes over all of them. An encode step is one pass of the
encoder: of text or sound, or the tower that sees images (`parts`).
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from tessera.diagnostics import Diagnostic, ExitCode, TesseraError, warning
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.meta.check_config import (
    check_cache,
    check_context,
    check_values,
    unknown_value,
)
from tessera.frontend.capture.meta.parts import decoder_step, encoder_step, no_encoder_step
from tessera.frontend.capture.meta.quantized import Quantization, read_quantization
from tessera.frontend.capture.problems import not_fake, refusal
from tessera.frontend.contents.safetensors import TensorType
from tessera.frontend.text.readfile import read_source

if TYPE_CHECKING:
    import torch
    import transformers

PREFIX = "hf:"
PHASES = ("prefill", "decode", "encode")
INSTALL = "pip install 'tessera-compiler[hf]'"
_CODE = "TSR6015"
_MOST = 1 << 24
_MOST_LAYERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class HfStep:
    """One step of a model: what is computed for how many sequences of how many tokens."""

    phase: str = "decode"
    batch: int = 1
    context: int = 1024

    def __post_init__(self) -> None:
        if self.phase not in PHASES:
            raise _bad(f"`{self.phase}` is no phase", hint=f"one of {', '.join(PHASES)}")
        for name, count in (("batch", self.batch), ("context", self.context)):
            if not 1 <= count <= _MOST:
                raise _bad(f"`--{name} {count}` is not between 1 and {_MOST}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HfConfig:
    """The values of a config file, and notes about them. `quantized_as` is what it says about
    quantized weights; `tensors` are those of the checkpoint beside it, where that is read."""

    path: Path
    values: dict[str, object]
    notes: tuple[Diagnostic, ...] = ()
    quantized_as: dict[str, object] = field(default_factory=dict)
    quantization: Quantization | None = None
    tensors: Mapping[str, TensorType] = field(default_factory=dict)


def find_config(text: str) -> Path:
    """The file that `hf:PATH` names; nothing is read yet."""
    path = Path(text.removeprefix(PREFIX))
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        hint = "name a local `config.json`: `hf:path/to/config.json`; nothing is fetched"
        raise _bad(f"there is no file `{file}`", hint=hint)
    return file


_FLOATS = {"Infinity": inf, "-Infinity": -inf, "NaN": nan}


def _with_float(table: dict[str, object]) -> object:
    """A table of JSON, or the float that the library writes as one."""
    tag = table.get("__float__")
    return _FLOATS.get(tag, table) if len(table) == 1 and isinstance(tag, str) else table


def read_config(path: Path) -> HfConfig:
    """The values of a config file, without what would run code or read weights."""
    try:
        values = json.loads(read_source(str(path)).text, object_hook=_with_float)
    except (ValueError, RecursionError) as problem:
        raise _bad(f"`{path}` is not JSON: {problem}") from None
    if not isinstance(values, dict) or not isinstance(values.get("model_type"), str):
        raise _bad(f"`{path}` names no `model_type`", hint="it is the `config.json` of a model")
    notes = []
    if values.pop("auto_map", None) is not None:
        notes.append(
            warning(
                "TSR6016",
                f"`{path.name}` names code of its own (`auto_map`), which is never run",
                hint="the model of that type in the transformers library is taken",
            )
        )
    said = _quantization_values(values)
    quantization = read_quantization(said) if isinstance(said, dict) else None
    if said is not None and quantization is None:
        method = said.get("quant_method") if isinstance(said, dict) else said
        notes.append(
            warning(
                "TSR6016",
                f"`{path.name}` quantizes weights in a way that is not known here: `{method}`",
                hint="weights are taken in the type of the model",
            )
        )
    return HfConfig(
        path=path,
        values=values,
        notes=tuple(notes),
        quantized_as=said if isinstance(said, dict) else {},
        quantization=quantization,
    )


def _quantization_values(values: dict[str, object]) -> object:
    """What a config says about quantized weights, which is taken out of it."""
    text = values.get("text_config")
    inner = text.pop("quantization_config", None) if isinstance(text, dict) else None
    own = values.pop("quantization_config", None)
    return inner if own is None else own


def left_wide(config: HfConfig) -> tuple[Diagnostic, ...]:
    """The notes about a config whose weights stay in the type of the model."""
    if config.quantization is None:
        return config.notes
    said = f"`{config.path.name}` says how weights are quantized, which this trace lacks"
    hint = "weights are taken in the type of the model"
    return (*config.notes, warning("TSR6016", said, hint=hint))


def require_transformers() -> None:
    """Raise unless torch and transformers are installed."""
    try:
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as problem:
        name = (problem.name or "transformers").partition(".")[0]
        raise TesseraError.of(
            "TSR6000",
            f"`hf:` needs the package `{name}`",
            hint=INSTALL,
            exit_code=ExitCode.NO_DEVICE,
        ) from None


def make_step(
    config: HfConfig, step: HfStep, known: list[transformers.PreTrainedModel] | None = None
) -> tuple[transformers.PreTrainedModel, Inputs]:
    """The model and the inputs of the step; to be called where tensors are fake.

    The model is called once before, so that its cache is there. It is kept in `known`, and taken
    from there by the next step.
    """
    import torch

    with ExitStack() as stack:
        stack.enter_context(offline())
        try:
            with torch.device("cuda"):
                model = known[0] if known else model_of(config_of(config))
                if step.phase == "encode":
                    called, inputs = encoder_step(model, step.batch, step.context)
                else:
                    check_context(model.config, step.context)
                    called, inputs = model, _inputs(model, model.config, step)
                inputs.call(called)
        except TesseraError as refused:
            if step.phase == "encode" and refused.diagnostics[0].code != _CODE:
                raise no_encoder_step(model, refused) from None
            raise
        except Exception as problem:  # whatever the library raises for odd sizes
            if "verflow" in str(problem):  # sizes that no tensor has
                raise _bad(f"`{config.path}` names sizes that are too large for a tensor") from None
            if step.phase == "encode":
                problem = not_fake(problem) or problem
                if isinstance(problem, TesseraError):
                    raise no_encoder_step(model, problem) from None
            odd = unknown_value(problem, config.values) or not_fake(problem) or refusal(problem)
            raise odd from problem
        cache: transformers.Cache = inputs.named.get(
            "past_key_values", inputs.named.get("cache_params")
        )
        if step.phase != "encode":
            check_cache(model, step.phase, cache)
        if step.phase == "prefill" and cache is not None:
            cache.reset()
        if known is not None:
            known[:] = [model]
        return called, inputs


def offline() -> AbstractContextManager[object]:
    """Keep the library from fetching anything."""
    import huggingface_hub.constants

    return mock.patch.object(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def config_of(config: HfConfig) -> transformers.PretrainedConfig:
    """The config as the library has it."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    kind = str(config.values["model_type"])
    check_values(config.values)
    try:
        made = CONFIG_MAPPING[kind]
    except KeyError:
        raise _bad(
            f"transformers {transformers.__version__} has no model of the type `{kind}`",
            hint="write the step as Python: `tessc trace model.py:step --device meta`",
        ) from None
    try:
        taken = made.from_dict(dict(config.values))
        layers = getattr(taken.get_text_config(), "num_hidden_layers", 1)
    except Exception as problem:  # whatever the library says about values
        lines = str(problem).split("\n")[:2] if str(problem).strip() else [type(problem).__name__]
        said = " ".join(line.strip() for line in lines)
        raise _bad(f"transformers does not take `{config.path}`: {said[:200]}") from None
    if isinstance(layers, int) and not 1 <= layers <= _MOST_LAYERS:
        raise _bad(f"`{config.path}` has {layers} layers, which is not from 1 to {_MOST_LAYERS}")
    return taken


def model_of(
    config: transformers.PretrainedConfig, attention: str = "", stored: Collection[str] = ()
) -> transformers.PreTrainedModel:
    """The model with parameters that have no memory, in evaluation.

    Parameters that its config ties are one, unless a checkpoint has both of them `stored`.
    """
    kind, dtype = class_and_type(config)
    attention = attention or ("sdpa" if getattr(kind, "_supports_sdpa", False) else "eager")
    with _no_initial_weights():
        model = kind._from_config(config, dtype=dtype, attn_implementation=attention)
    tied = getattr(model, "_tied_weights_keys", None) or ()
    if not any(re.search(key, name) for key in tied for name in stored):
        model.tie_weights()  # the library does so where it sets initial weights
    for module in model.modules():
        # Experts in a loop over those that are hit depend on data; grouped products do not.
        own: transformers.PretrainedConfig = getattr(module, "config", None)
        if getattr(own, "_experts_implementation", None) is not None:
            own._experts_implementation = "grouped_mm"
    return model.eval().requires_grad_(False)


def class_and_type(
    config: transformers.PretrainedConfig,
) -> tuple[type[transformers.PreTrainedModel], torch.dtype]:
    """The class of the model, and the type of its weights."""
    import torch

    named = getattr(config, "dtype", None) or getattr(config.get_text_config(), "dtype", None)
    return _class_of(config), named if isinstance(named, torch.dtype) else torch.bfloat16


def _no_initial_weights() -> AbstractContextManager[object]:
    try:
        from transformers.initialization import no_init_weights
    except ImportError:
        from transformers.modeling_utils import no_init_weights
    quiet: AbstractContextManager[object] = no_init_weights()
    return quiet


def _class_of(config: transformers.PretrainedConfig) -> type[transformers.PreTrainedModel]:
    """The class that the file names, or the one that makes tokens."""
    import transformers
    from transformers.models.auto import modeling_auto as known

    for name in config.architectures or ():
        kind = getattr(transformers, str(name), None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            return kind
    both = (known.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING, known.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING)
    for mapping in (
        *(both if getattr(config, "is_encoder_decoder", False) else ()),
        known.MODEL_FOR_CAUSAL_LM_MAPPING,
        known.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING,
        known.MODEL_MAPPING,
    ):
        if type(config) in mapping:
            listed = mapping[type(config)]
            first: type[transformers.PreTrainedModel] = (
                listed[0] if isinstance(listed, tuple) else listed
            )
            return first
    raise _bad(f"transformers has no model for the type `{config.model_type}`")


def _inputs(
    model: transformers.PreTrainedModel, config: transformers.PretrainedConfig, step: HfStep
) -> Inputs:
    """Tokens, positions and a cache, as far as the model takes them."""
    import torch
    import transformers

    taken = inspect.signature(model.forward).parameters
    if "input_ids" not in taken and "decoder_input_ids" not in taken:
        raise _bad(
            f"`{type(model).__name__}` takes no tokens (`input_ids`)",
            hint="`--phase encode` traces one pass over images, sound or text",
        )
    if "pixel_values" in taken and "past_key_values" not in taken:
        raise _bad(
            f"`{type(model).__name__}` reads images beside text, and makes no tokens",
            hint="`--phase encode` traces its tower for images",
        )
    if getattr(config, "is_encoder_decoder", False):
        return decoder_step(model, step.batch, step.context, is_first=step.phase == "prefill")
    new = 1 if step.phase == "decode" else step.context
    shape = (step.batch, new)
    named: dict[str, object] = {"input_ids": torch.zeros(shape, dtype=torch.long)}
    cache = next((n for n in ("past_key_values", "cache_params") if n in taken), None)
    if cache is not None:
        text = config.get_text_config(decoder=True)
        named[cache] = transformers.StaticCache(config=text, max_cache_len=step.context)
        named["use_cache"] = True
    if "position_ids" in taken:
        named["position_ids"] = torch.zeros(shape, dtype=torch.long)
    if "logits_to_keep" in taken:
        named["logits_to_keep"] = 1
    return Inputs(named=named)


def _bad(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of(_CODE, headline, hint=hint)
