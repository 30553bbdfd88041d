"""What an engine has opened, and what it counts.

In: nothing. Out: records for `engine` and `engine_loop`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.batches import Sizes
from tessera.driver.serve.drift import Drift, StepMonitor
from tessera.driver.serve.follow import Pays
from tessera.driver.serve.policies import PolicySwitch
from tessera.driver.serve.step_roles import GenerationSteps


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedRuntime:
    """A runtime, the roles that its traces state, and everything derived from them."""

    runtime: Runtime
    model: GenerationSteps
    sizes: Sizes
    switch: PolicySwitch | None
    monitor: StepMonitor | None
    chains: frozenset[int]
    pays: Pays | None = None
    """Whether an answer under way is handed over after a switch; None if it has no other place."""


@dataclass(slots=True)
class EngineCounts:
    """Counters of an engine's work."""

    steps_done: dict[str, int]
    restarts: int = 0
    hand_overs: int = 0
    hand_over_bytes: int = 0
    hand_over_ns: int = 0
    drifts: list[Drift] = field(default_factory=list)
