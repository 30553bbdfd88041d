"""A mixed step of a model of the transformers library, to be captured.

In: the config of a model folder, and sizes. Out: `MixedStep`, a module whose parameters have the
model's own names, and its inputs. It takes tokens of any sequences (`tokens`, `positions`, `rows`,
`blocks`, `last`) and gives the logits of the last token of each. The model is called as it is; only
its attention goes through `seam`. Every layer has to come by there exactly once: a layer that does
not mixes tokens in a way that a cache in blocks does not hold, and is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest import mock

import torch
import transformers
from torch import Tensor, nn

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.inputs import Inputs
from tessera.frontend.capture.meta.hf import HfConfig, config_of, model_of, offline
from tessera.frontend.capture.mixed.drawing import draw
from tessera.frontend.capture.mixed.seam import (
    NAME,
    UNDER_WAY,
    SeamCache,
    StepTables,
    refused,
    register,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedSize:
    """The size of a mixed step: tokens, rows, tokens of a row, tokens of a block, blocks.

    With `draws` the step gives tokens in place of logits.
    """

    tokens: int
    rows: int
    context: int
    block: int
    blocks: int
    draws: bool = False


class MixedStep(nn.Module):  # type: ignore[misc]
    """One step of a model over a cache in blocks."""

    def __init__(self, model: transformers.PreTrainedModel, size: MixedSize) -> None:
        super().__init__()
        for name, child in model.named_children():
            self.add_module(name, child)
        self.__dict__["_called"] = model  # no child, so that parameters keep their names
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._block = size.block
        self.block_cache = nn.ModuleList()

    def forward(
        self, tokens: Tensor, positions: Tensor, rows: Tensor, blocks: Tensor, last: Tensor
    ) -> Tensor:
        """The logits of the tokens at `last`."""
        caches = [(cache.keys, cache.values) for cache in self.block_cache]
        return self.call(self.tables(positions, rows, blocks, caches), tokens, last)

    def tables(
        self,
        positions: Tensor,
        rows: Tensor,
        blocks: Tensor,
        caches: list[tuple[Tensor, Tensor]],
    ) -> StepTables:
        """What attention needs to know of the tokens."""
        return StepTables(
            positions=positions,
            rows=rows,
            blocks=blocks,
            at=blocks[rows, positions // self._block],
            offset=positions % self._block,
            context=blocks.shape[1] * self._block,
            caches=caches,
        )

    def call(self, tables: StepTables, tokens: Tensor, last: Tensor) -> Tensor:
        """Call the model with attention over these tables."""
        UNDER_WAY.tables = tables
        kept = {"logits_to_keep": last} if self._keeps else {}
        made = self._called(
            input_ids=tokens[None],
            position_ids=tables.positions[None],
            past_key_values=SeamCache(),
            use_cache=True,
            **kept,
        ).logits[0]
        UNDER_WAY.tables = None
        return made if self._keeps else made[last]


class DrawingStep(MixedStep):
    """A step that gives the next token of each row: the most likely one, or one that is drawn.

    A token -1 - r is that of row r of `earlier`, which the step before gave: the host may hand this
    step over before it knows that token.
    """

    def forward(  # type: ignore[override]  # names of arguments are roles
        self,
        tokens: Tensor,
        positions: Tensor,
        rows: Tensor,
        blocks: Tensor,
        last: Tensor,
        temperature: Tensor,
        uniform: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
        earlier: Tensor,
    ) -> Tensor:
        """The next token of each row."""
        given = torch.where(tokens < 0, earlier[(-1 - tokens).clamp(min=0)], tokens)
        logits = super().forward(given, positions, rows, blocks, last)
        return draw(logits, temperature, uniform, top_k, top_p, min_p)


def make_mixed(config: HfConfig, size: MixedSize) -> tuple[MixedStep, Inputs]:
    """The step and its inputs; to be called where tensors are fake."""
    with offline(), torch.device("cuda"):
        return mixed_step(model_of(seam_config(config), attention=NAME), size)


def mixed_step(model: transformers.PreTrainedModel, size: MixedSize) -> tuple[MixedStep, Inputs]:
    """The step of a model whose attention is the seam, and inputs, on the current device."""
    step = (DrawingStep if size.draws else MixedStep)(model, size)
    inputs: tuple[Tensor, ...] = (
        *(torch.zeros(size.tokens, dtype=torch.long) for _ in range(3)),
        torch.zeros(size.rows + 1, size.context // size.block, dtype=torch.long),
        torch.zeros(size.rows, dtype=torch.long),
    )
    for keys, values in _called_once(step, model, inputs):
        cache = nn.Module()
        for name, new in (("keys", keys), ("values", values)):
            shape = (size.blocks, size.block, *new.shape[1:])
            cache.register_buffer(name, torch.zeros(shape, dtype=new.dtype))
        step.block_cache.append(cache)
    if size.draws:
        plain, whole = torch.zeros(size.rows), torch.zeros(size.rows, dtype=torch.long)
        inputs += (plain, plain.clone(), whole, plain.clone(), plain.clone(), whole.clone())
    return step.eval().requires_grad_(False), Inputs(plain=inputs)


def seam_config(config: HfConfig) -> transformers.PretrainedConfig:
    """The config as the library has it; models that do not call the interface are refused."""
    register()
    made = config_of(config)
    if getattr(made, "is_encoder_decoder", False):
        raise refused(f"`{made.model_type}` has an encoder, which a step of tokens does not call")
    return made


def _called_once(
    step: MixedStep, model: transformers.PreTrainedModel, inputs: tuple[Tensor, ...]
) -> list[tuple[Tensor, Tensor]]:
    """The keys and values of each layer, by one call; raises unless each layer attends once."""
    if not getattr(model, "_supports_attention_backend", False):
        raise refused("does not call attention by the interface of the library", model)
    tokens, positions, rows, blocks, last = inputs
    tables = step.tables(positions, rows, blocks, [])
    under_way: list[nn.Module] = []

    def begin(module: nn.Module, _: object) -> None:
        under_way.append(module)

    def end(module: nn.Module, *_: object) -> None:
        under_way.pop()

    hooks = [
        hook
        for module in model.modules()
        for hook in (module.register_forward_pre_hook(begin), module.register_forward_hook(end))
    ]
    try:
        with torch.no_grad(), _batched_experts(model):
            step.call(tables, tokens, last)
    except TesseraError:
        raise
    except Exception as problem:  # whatever a layer does with a cache that has no state for it
        owner = under_way[-1] if under_way else model
        said = str(problem).strip().splitlines()[:1] or [type(problem).__name__]
        raise refused(f"cannot keep its state in blocks: {said[0][:200]}", owner) from None
    finally:
        UNDER_WAY.tables = None
        for hook in hooks:
            hook.remove()
    _check_layers(model, [module for module, _, _ in tables.calls])
    return [(keys, values) for _, keys, values in tables.calls]


@contextmanager
def _batched_experts(model: transformers.PreTrainedModel) -> Iterator[None]:
    """Let experts compute in plain products: grouped ones, uncompiled, take bf16 alone."""
    configs = {id(own): own for m in model.modules() if (own := getattr(m, "config", None))}
    chosen = {key: getattr(own, "_experts_implementation", None) for key, own in configs.items()}
    try:
        for key, way in chosen.items():
            if way is not None:
                configs[key]._experts_implementation = "batched_mm"
        yield
    finally:
        for key, way in chosen.items():
            if way is not None:
                configs[key]._experts_implementation = way


def _check_layers(model: transformers.PreTrainedModel, calls: list[nn.Module]) -> None:
    """Raise unless every layer of the decoder has called attention exactly once."""
    for name, layers in model.named_modules():
        if not isinstance(layers, nn.ModuleList) or not any(
            call in set(layer.modules()) for layer in layers for call in calls
        ):
            continue
        for number, layer in enumerate(layers):
            inside = set(layer.modules())
            count = sum(call in inside for call in calls)
            if count != 1:
                said = f"(`{name}.{number}`) calls attention {count} times in a step, and not once"
                raise refused(said, layer)
        return
    raise refused("has no layer that calls attention by the interface of the library", model)


@contextmanager
def _without_parameters() -> Iterator[None]:
    """Keep shapes of parameters only: what modules compute themselves is wanted."""
    register_parameter = nn.Module.register_parameter

    def shape_only(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            parameter = nn.Parameter(parameter.to("meta"), requires_grad=False)
        register_parameter(module, name, parameter)

    with mock.patch.object(nn.Module, "register_parameter", shape_only):
        yield


def computed_buffers(config: HfConfig) -> dict[str, Tensor]:
    """The buffers that a model computes when it is made, on the host; parameters take no memory."""
    with offline(), torch.device("cpu"), _without_parameters(), torch.no_grad():
        model = model_of(seam_config(config), attention=NAME)
    return {name: buffer for name, buffer in model.named_buffers() if not buffer.is_meta}
