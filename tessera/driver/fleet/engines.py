"""The engines of a unit: what a serving system starts, one process (or group of processes) each.

In: nothing; ways are made with them. Out: a `UnitEngine`, which holds the whole model. A unit
whose steps no engine of another system can place (kernel by kernel, attention apart) has none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EngineRole(StrEnum):
    """The part of a request that an engine does."""

    BOTH = "prompts and answers"
    PROMPTS = "prompts"
    ANSWERS = "answers"
    SHARES = "prompts and answers by separate shares"


@dataclass(frozen=True, slots=True)
class EngineStage:
    """A run of layers, and the kind of the GPUs that hold it."""

    kind: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEngine:
    """An engine: it has its layers in `stages`, one after the other.

    `tensor` GPUs share every step of a stage. `lanes` batches of up to `rows` sequences are under
    way side by side; the batch of a unit's `Capacity` may be smaller.
    """

    stages: tuple[EngineStage, ...]
    tensor: int = 1
    role: EngineRole = EngineRole.BOTH
    lanes: int = 1
    rows: int = 1

    @property
    def gpus(self) -> int:
        """The number of its GPUs."""
        return self.tensor * len(self.stages)
