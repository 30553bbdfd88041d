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
from transformers import cache_utils

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
from tessera.frontend.capture.mixed.states import StateCache, StateKey
from tessera.frontend.capture.mixed.stored_weights import hold_stored


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
    """One step of a model over a cache in blocks, with tokens of any sequences."""

    keeps_states = False
    """Whether sequences have states beside keys and values, and a step one token of each."""

    def __init__(self, model: transformers.PreTrainedModel, size: MixedSize) -> None:
        super().__init__()
        for name, child in model.named_children():
            self.add_module(name, child)
        self.__dict__["_called"] = model  # no child, so that parameters keep their names
        self._known = inspect.signature(model.forward).parameters
        self._block = size.block
        self.block_cache = nn.ModuleList()
        self.state_cache = nn.ModuleList()
        self.keys: list[StateKey] = []

    def forward(
        self, tokens: Tensor, positions: Tensor, rows: Tensor, blocks: Tensor, last: Tensor
    ) -> Tensor:
        """The logits of the tokens at `last`."""
        tables = self.tables(positions, rows, blocks)
        logits = self.call(tables, tokens[None], SeamCache(), last)[0]
        return logits if "logits_to_keep" in self._known else logits[last]

    def tables(
        self, positions: Tensor, rows: Tensor, blocks: Tensor, *, is_flat: bool = True
    ) -> StepTables:
        """What attention needs to know of the tokens."""
        return StepTables(
            positions=positions,
            rows=rows,
            blocks=blocks,
            at=blocks[rows, positions // self._block],
            offset=positions % self._block,
            context=blocks.shape[1] * self._block,
            is_flat=is_flat,
            caches=[(cache.keys, cache.values) for cache in self.block_cache],
        )

    def call(
        self, tables: StepTables, ids: Tensor, cache: SeamCache, last: Tensor | None = None
    ) -> Tensor:
        """The logits [sequence, token, vocabulary] of the model with attention over these tables;
        where the model can, only of the tokens at `last`."""
        UNDER_WAY.tables = tables
        given = {"position_ids": tables.positions.view(ids.shape), "logits_to_keep": last}
        taken = {n: own for n, own in given.items() if n in self._known and own is not None}
        holder = next((name for name in _CACHES if name in self._known), _CACHES[0])
        made = self._called(input_ids=ids, use_cache=True, **{holder: cache}, **taken).logits
        UNDER_WAY.tables = None
        return made


_CACHES = ("past_key_values", "cache_params")
"""What the library calls the cache that a model is given."""


class SingleStep(MixedStep):
    """A step with one token of each row, for models that keep states of sequences.

    The states of a sequence lie at its first block, in the first axis of `state_cache`. The first
    token of a sequence finds zeros there. Rows that take no part have block 0, which is nobody's.
    """

    keeps_states = True

    def forward(  # type: ignore[override]  # names of arguments are roles
        self, tokens: Tensor, positions: Tensor, blocks: Tensor
    ) -> Tensor:
        """The logits of the token of each row."""
        rows, first = torch.arange(len(tokens), device=tokens.device), blocks[:, 0]
        held = {}
        for key, kept in zip(self.keys, self.state_cache, strict=True):
            state = kept.state[first, 0]
            is_begun = (positions > 0).view(-1, *(1 for _ in state.shape[1:]))
            held[key] = torch.where(is_begun, state, torch.zeros_like(state))
        cache = StateCache(held)
        tables = self.tables(positions, rows, blocks, is_flat=False)
        logits = self.call(tables, tokens[:, None], cache)[:, -1]
        for key, kept in zip(self.keys, self.state_cache, strict=True):
            kept.state[first, 0] = cache.held[key]
        return logits


class DrawingStep(MixedStep):
    """A step that gives the next token of each row: the most likely one, or one that is drawn.

    A token -1 - r is that of row r of `earlier`, which the step before gave: the host may hand this
    step over before it knows that token.
    """

    def forward(  # type: ignore[override]
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


class DrawingSingleStep(SingleStep):
    """The same with one token of each row."""

    def forward(  # type: ignore[override]
        self,
        tokens: Tensor,
        positions: Tensor,
        blocks: Tensor,
        temperature: Tensor,
        uniform: Tensor,
        top_k: Tensor,
        top_p: Tensor,
        min_p: Tensor,
    ) -> Tensor:
        """The next token of each row."""
        logits = super().forward(tokens, positions, blocks)
        return draw(logits, temperature, uniform, top_k, top_p, min_p)


def make_mixed(config: HfConfig, size: MixedSize) -> tuple[MixedStep, Inputs]:
    """The step and its inputs; to be called where tensors are fake."""
    with offline(), torch.device("cuda"):
        model = model_of(seam_config(config), attention=NAME, stored=config.tensors)
        if config.quantization is not None:
            hold_stored(model, config.quantization, config.tensors)
        return mixed_step(model, size)


def mixed_step(model: transformers.PreTrainedModel, size: MixedSize) -> tuple[MixedStep, Inputs]:
    """The step of a model whose attention is the seam, and inputs, on the current device.

    A model that keeps states gets a step with one token of each of `size.tokens` rows.
    """
    step = (DrawingStep if size.draws else MixedStep)(model, size)
    inputs: tuple[Tensor, ...] = (
        *(torch.zeros(size.tokens, dtype=torch.long) for _ in range(3)),
        torch.zeros(size.rows + 1, size.context // size.block, dtype=torch.long),
        torch.zeros(size.rows, dtype=torch.long),
    )
    tokens, positions, rows, blocks, last = inputs
    calls, cache = watched(step, step.tables(positions, rows, blocks), tokens[None], last)
    drawing: tuple[Tensor, ...] = ()
    if size.draws:
        plain, whole = torch.zeros(len(last)), torch.zeros_like(last)
        drawing = (plain, plain.clone(), whole, plain.clone(), plain.clone(), whole.clone())
    if cache.held:
        step = (DrawingSingleStep if size.draws else SingleStep)(model, size)
        blocks = torch.zeros(size.tokens, blocks.shape[1], dtype=torch.long)
        tables = step.tables(positions, rows, blocks, is_flat=False)
        calls, cache = watched(step, tables, tokens[:, None])
        inputs = (tokens, positions, blocks)
        drawing = tuple(own.new_zeros(size.tokens) for own in drawing[:-1])
    for _, keys, values in calls:
        step.block_cache.append(_kept(size, keys=(size.block, keys), values=(size.block, values)))
    for key, state in cache.held.items():
        step.keys.append(key)
        step.state_cache.append(_kept(size, state=(1, state)))
    return step.eval().requires_grad_(False), Inputs(plain=(*inputs, *drawing))


def _kept(size: MixedSize, **parts: tuple[int, Tensor]) -> nn.Module:
    """Buffers with room for so many of each part in every block."""
    made = nn.Module()
    for name, (count, part) in parts.items():
        shape = (size.blocks, count, *part.shape[1:])
        made.register_buffer(name, torch.zeros(shape, dtype=part.dtype))
    return made


def seam_config(config: HfConfig) -> transformers.PretrainedConfig:
    """The config as the library has it; models that do not call the interface are refused."""
    register()
    made = config_of(config)
    if getattr(made, "is_encoder_decoder", False):
        raise refused(f"`{made.model_type}` has an encoder, which a step of tokens does not call")
    return made


def watched(
    step: MixedStep, tables: StepTables, ids: Tensor, last: Tensor | None = None
) -> tuple[list[tuple[nn.Module, Tensor, Tensor]], StateCache]:
    """What attends in one call, with keys and values, and the states that are kept; raises if a
    layer mixes tokens in another way."""
    model: transformers.PreTrainedModel = step._called
    under_way: list[nn.Module] = []
    cache = StateCache(under_way=under_way)

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
            step.call(tables, ids, cache, last)
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
    if not getattr(model, "_supports_attention_backend", False) and cache.pairs > len(tables.calls):
        raise refused("does not call attention by the interface of the library", model)
    attending = [module for module, _, _ in tables.calls]
    _check_layers(model, attending, cache.owners)
    return tables.calls, cache


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


def _check_layers(
    model: transformers.PreTrainedModel, calls: list[nn.Module], owners: list[nn.Module]
) -> None:
    """Raise unless every layer of the decoder has called attention exactly once.

    In a model that keeps states, a layer attends or keeps states, or both; those that the library
    gives no cache do neither.
    """
    for name, layers in model.named_modules():
        if not isinstance(layers, nn.ModuleList) or not any(
            call in set(layer.modules()) for layer in layers for call in (*calls, *owners)
        ):
            continue
        bare = _bare_layers(model) if owners else ()
        for number, layer in enumerate(layers):
            inside = set(layer.modules())
            count = sum(call in inside for call in calls)
            if owners:
                if not (count or number in bare or any(own in inside for own in owners)):
                    said = f"(`{name}.{number}`) neither attends nor keeps a state in the cache"
                    raise refused(said, layer)
            elif count != 1:
                said = f"(`{name}.{number}`) calls attention {count} times in a step, and not once"
                raise refused(said, layer)
        return
    raise refused("has no layer that calls attention by the interface of the library", model)


def _bare_layers(model: transformers.PreTrainedModel) -> set[int]:
    """The layers that have no part in a cache of the library's own."""
    layers = transformers.DynamicCache(config=model.config).layers
    bare = getattr(cache_utils, "DummyLayer", ())  # transformers 5.17 gives every layer a cache
    return {number for number, layer in enumerate(layers) if isinstance(layer, bare)}


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
