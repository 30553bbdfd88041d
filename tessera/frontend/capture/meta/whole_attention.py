"""Attention as one operator, whatever PyTorch would choose for it.

In: a recording. Out: while the mode is in force `scaled_dot_product_attention` of tensors on the
GPU is noted there, and nothing of it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch
from torch.overrides import TorchFunctionMode

from tessera.frontend.capture.graphs.graph_nodes import is_in_vmap
from tessera.frontend.capture.tensors import tensors_in


class NotesAttention(Protocol):
    """An object that notes attentions while `is_on`."""

    is_on: bool

    def attention(self, result: torch.Tensor, given: dict[str, torch.Tensor]) -> None:
        """Note one."""


_ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


@contextmanager
def whole_attention(recording: NotesAttention) -> Iterator[None]:
    """Note `scaled_dot_product_attention` as one operator; its result is laid out as that of
    the kernels that compute it."""
    attend = torch.nn.functional.scaled_dot_product_attention

    class WholeAttention(TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[torch.Tensor, ...] = (),
            kwargs: dict[str, torch.Tensor] | None = None,
        ) -> object:
            if func is not attend:
                return func(*args, **(kwargs or {}))
            given = dict(zip(_ATTENTION, args, strict=False)) | (kwargs or {})
            query, value = given["query"], given["value"]
            is_plain = query.is_cuda and query.dim() == 4 and not given.get("dropout_p")
            if not is_plain or any(is_in_vmap(tensor) for tensor in tensors_in(given)):
                return func(*args, **(kwargs or {}))
            _check_heads(given)
            batch, heads, length, _ = query.shape
            was_on, recording.is_on = recording.is_on, False
            shape = (batch, length, heads, value.shape[-1])
            result = query.new_empty(shape).transpose(1, 2)
            recording.is_on = was_on
            if was_on:
                recording.attention(result, dict.fromkeys(_ATTENTION) | given)
            return result

    with WholeAttention():
        yield


def _check_heads(given: dict[str, torch.Tensor]) -> None:
    """Raise as PyTorch does for keys and values that do not fit the queries."""
    query, key, value = (tuple(given[name].shape) for name in _ATTENTION[:3])
    fits = len(key) == len(value) == 4 and query[3] == key[3] and key[2] == value[2]
    for part in (key, value) if fits else ():
        fits &= query[0] == part[0] or 1 in (query[0], part[0])
        shared = bool(given.get("enable_gqa")) and part[1] > 0 and query[1] % part[1] == 0
        fits &= shared or query[1] == part[1] or 1 in (query[1], part[1])
    if not fits:
        shapes = f"{list(query)}, {list(key)} and {list(value)}"
        raise RuntimeError(f"query, key and value of attention do not fit each other: {shapes}")
