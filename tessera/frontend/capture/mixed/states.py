"""States of sequences beside keys and values: of convolutions, state spaces and linear attention.

In: what layers of the transformers library hand to their cache. Out: `StateCache`, the cache that a
model is given in a step with one token of each row. A state is a tensor with an entry for each row,
in which a layer notes its token in place; `step` fetches it before the call and puts it back after.
Layers are told that there is a state already: before the first token of a sequence it is zero,
which is what the library's own layers take for one that is missing.

Without states the cache watches: layers then begin their sequences, and what they would keep is
noted, with the module that did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import torch
import transformers
from torch import Tensor, nn

from tessera.frontend.capture.mixed.seam import SeamCache


class StateKind(StrEnum):
    """What a state is of."""

    CONVOLUTION = "convolution"
    RECURRENCE = "recurrence"


@dataclass(frozen=True, slots=True)
class StateKey:
    """Which state: its kind, its layer, and its number there."""

    kind: StateKind
    layer: int
    number: int


@dataclass(slots=True)
class LayerStates:
    """The states of a layer, where the library's cache has no method to ask for them (5.17)."""

    conv_states: dict[int, Tensor] = field(default_factory=dict)
    recurrent_states: dict[int, Tensor] = field(default_factory=dict)
    record_past: bool = False
    is_sliding: bool = False


class StateCache(SeamCache):
    """Keys and values pass through; states are those of the step, or are watched for."""

    def __init__(
        self,
        held: Mapping[StateKey, Tensor] | None = None,
        under_way: Sequence[nn.Module] = (),
    ) -> None:
        super().__init__()
        self.is_watching = held is None
        self.held = dict(held or {})
        self.owners: list[nn.Module] = []
        """The modules that keep states, while it watches."""
        self.pairs = 0
        """How often keys and values came by."""
        self._under_way = under_way
        if self.held and not hasattr(transformers.Cache, "get_conv_state"):
            layers = 1 + max(key.layer for key in self.held)
            self.layers = [LayerStates() for _ in range(layers)]
            for key, state in self.held.items():
                own = self.layers[key.layer]
                is_of_recurrence = key.kind is StateKind.RECURRENCE
                (own.recurrent_states if is_of_recurrence else own.conv_states)[key.number] = state

    def update(
        self, key: Tensor, value: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Keys and values as they are."""
        self.pairs += 1
        return key, value

    def has_previous_state(
        self, layer_idx: int | None = None, state_idx: int | None = None
    ) -> bool:
        """Whether sequences go on from a state."""
        return not self.is_watching

    def is_recording_past(self, layer_idx: int) -> bool:
        """States of earlier tokens are not kept."""
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """The last inputs of a convolution."""
        return self._state(StateKind.CONVOLUTION, layer_idx, state_idx)

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """The state of a recurrence."""
        return self._state(StateKind.RECURRENCE, layer_idx, state_idx)

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
        **_: object,
    ) -> Tensor:
        """Note new inputs of a convolution; returns them after those that are held."""
        key = StateKey(StateKind.CONVOLUTION, layer_idx, state_idx)
        if self.is_watching:
            size = conv_kernel_size or conv_states.shape[-1]
            self._note(key, conv_states.new_zeros(*conv_states.shape[:-1], size))
        held = self.held[key]
        whole = torch.cat([held, conv_states], dim=-1)
        held.copy_(whole[..., -held.shape[-1] :])
        return (
            whole[..., -max(held.shape[-1], conv_states.shape[-1]) :] if self.is_watching else whole
        )

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0, **_: object
    ) -> Tensor:
        """Note the new state of a recurrence."""
        key = StateKey(StateKind.RECURRENCE, layer_idx, state_idx)
        if self.is_watching:
            self._note(key, torch.zeros_like(recurrent_states))
        self.held[key].copy_(recurrent_states)
        return self.held[key]

    def _state(self, kind: StateKind, layer: int, number: int) -> Tensor | None:
        return None if self.is_watching else self.held[StateKey(kind, layer, number)]

    def _note(self, key: StateKey, state: Tensor) -> None:
        self.held[key] = state
        self.owners += self._under_way[-1:]
