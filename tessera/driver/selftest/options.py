"""The options and the parts of a self-test."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf

from tessera.backend.service import DEFAULT_LIMIT_S
from tessera.driver.selftest.traces import TrialModel, TrialSize
from tessera.ir.options import WrongOption

BACKENDS = ("cuda", "cpu")
MOST_PLACEMENTS = 10_000


class SelftestPart(StrEnum):
    """The parts of a self-test, in order."""

    LINKS = "links"
    PROFILE = "profile"
    BYTES = "bytes"
    PLANS = "plans"


SHARES = {
    SelftestPart.LINKS: 0.15,
    SelftestPart.PROFILE: 0.15,
    SelftestPart.BYTES: 0.4,
    SelftestPart.PLANS: 0.3,
}
"""The share of the time that each part may take; later parts get what earlier ones leave."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestOptions:
    """How to try a machine.

    No `devices`: all GPUs that are here, or two of the table on the CPU. No `size`: `usual` on
    GPUs, `small` on the CPU. `placements` are random ones at most; `minutes` are what all parts may
    take together, from now on.
    """

    backend: str = "cuda"
    devices: str | None = None
    minutes: float = 10.0
    models: tuple[str, ...] = ()
    size: str | None = None
    placements: int = 200
    seed: int = 0
    skip: tuple[str, ...] = ()
    limit_s: float = DEFAULT_LIMIT_S

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise WrongOption("{backend} is one of: ", ", ".join(f"`{name}`" for name in BACKENDS))
        if not 0 < self.minutes < inf:
            raise WrongOption("{minutes} is a finite number above 0")
        if not 1 <= self.placements <= MOST_PLACEMENTS:
            raise WrongOption("{placements} is from 1 to ", str(MOST_PLACEMENTS))
        if self.seed < 0:
            raise WrongOption("{seed} is at least 0")
        if not 0 < self.limit_s < inf:
            raise WrongOption("the time limit {limit_s} must be a finite number of seconds above 0")
        for given, known in ((self.models, TrialModel), (self.skip, SelftestPart)):
            for name in given:
                if name not in [*known]:
                    raise WrongOption(f"`{name:.60}` is none of: {', '.join(known)}")
        if self.size is not None and self.size not in [*TrialSize]:
            raise WrongOption(f"{{size}} is one of: {', '.join(TrialSize)}")
        if set(self.skip) == set(SelftestPart):
            raise WrongOption("{skip} leaves nothing to try")

    def chosen_models(self) -> tuple[TrialModel, ...]:
        """The models to try, each once."""
        return tuple(map(TrialModel, dict.fromkeys(self.models))) or tuple(TrialModel)

    def chosen_size(self) -> TrialSize:
        """How large their traces are."""
        usual = TrialSize.SMALL if self.backend == "cpu" else TrialSize.USUAL
        return usual if self.size is None else TrialSize(self.size)
