"""Values of a config file, and steps of its model, that make no sense together.

In: what a config file says, the library's config and model, and the step. Out: nothing, or TSR6015
with the fields that do not fit. The library takes most of them, and shapes alone do not show them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.problems import chain
from tessera.frontend.capture.tensors import tensors_in

if TYPE_CHECKING:
    import transformers

CODE = "TSR6015"
Values = Mapping[str, object]
# Names of one thing, in the order in which they are looked for.
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KEY_HEADS = ("num_key_value_heads", "num_kv_heads")
_CHOSEN = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "top_k_experts")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_SIZES = ("hidden_size", "n_embd", "d_model", "vocab_size")
_COUNTS = (*_SIZES, *_HEADS, *_KEY_HEADS)
# Ways to stretch rotary embeddings whose factor counts on top of the positions.
_STRETCHED = ("linear", "dynamic", "yarn")


def check_values(values: Values) -> None:
    """Raise TSR6015 for counts that do not fit each other; of parts of the config, too."""
    for part in _parts(values):
        for name in _COUNTS:
            if (count := _count(part, name)) is not None and count < 1:
                raise _bad(f"`{name}` is {count}, and has to be 1 or more")
        heads, of_keys = _first(part, _HEADS), _first(part, _KEY_HEADS)
        if heads is not None and of_keys is not None and heads[1] % of_keys[1]:
            raise _bad(
                f"`{of_keys[0]}` ({of_keys[1]}) does not divide `{heads[0]}` ({heads[1]})",
                hint="every key head serves the same number of query heads",
            )
        chosen, experts = _first(part, _CHOSEN), _first(part, _EXPERTS)
        if chosen is not None and experts is not None and chosen[1] > experts[1] > 0:
            raise _bad(f"`{chosen[0]}` ({chosen[1]}) is more than `{experts[0]}` ({experts[1]})")


def check_context(config: transformers.PretrainedConfig, context: int) -> None:
    """Raise TSR6015 for more tokens than the model has positions for."""
    text = config.get_text_config(decoder=True)
    limit = getattr(text, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit < 1:
        return
    rope = getattr(text, "rope_parameters", None) or getattr(text, "rope_scaling", None)
    for part in _parts(rope) if isinstance(rope, Mapping) else ():
        factor, kind = part.get("factor"), part.get("rope_type", part.get("type"))
        if isinstance(factor, int | float) and kind in _STRETCHED:
            begun = part.get("original_max_position_embeddings")
            limit = max(limit, int((begun if isinstance(begun, int) else limit) * factor))
    if context > limit:
        name = text.attribute_map.get("max_position_embeddings", "max_position_embeddings")
        raise _bad(
            f"the model has positions for {limit} tokens, and the context is {context}",
            hint=f"give a smaller `--context`; the field is `{name}`",
        )


def check_cache(model: transformers.PreTrainedModel, phase: str, cache: object) -> None:
    """Raise TSR6015 for a step that adds a token to a model that keeps nothing of those before, or
    in which every token sees those after it."""
    causal = [module.is_causal for module in model.modules() if hasattr(module, "is_causal")]
    is_encoder = bool(causal) and not any(causal)
    keeps = next(tensors_in(cache), None) is not None
    keeps |= "state" in inspect.signature(model.forward).parameters  # RWKV returns it
    if phase == "decode" and (is_encoder or not keeps):
        raise _bad(
            f"`{type(model).__name__}` has no decode step: it is an encoder, or it is not set up"
            " as a decoder (`is_decoder`)",
            hint="`--phase prefill` traces one pass over `--context` tokens",
        )


def unknown_value(problem: BaseException, values: Values) -> TesseraError | None:
    """An error for a name in the config file that the library does not know."""
    for cause in chain(problem):
        key = cause.args[0] if isinstance(cause, KeyError) and cause.args else None
        named = [n for part in _parts(values) for n, value in part.items() if value == key]
        if isinstance(key, str) and named:
            return _bad(f"transformers knows no `{key}`, which `{named[0]}` names")
    return None


def _parts(values: Values) -> Iterator[Values]:
    yield values
    for value in values.values():
        if isinstance(value, Mapping):
            yield from _parts(value)


def _count(part: Values, name: str) -> int | None:
    value = part.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(part: Values, names: tuple[str, ...]) -> tuple[str, int] | None:
    counts = ((name, _count(part, name)) for name in names)
    return next(((name, count) for name, count in counts if count is not None), None)


def _bad(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of(CODE, headline, hint=hint)
