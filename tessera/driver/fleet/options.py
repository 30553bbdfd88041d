"""The options of a fleet: `FleetOptions`, one record for the command line and the library."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from math import inf, isfinite

from tessera.driver.fleet.workload import P99, PERCENTILES
from tessera.driver.serve.measures import Slo
from tessera.frontend.machine.gpus import DEFAULT_LINK
from tessera.ir.options import WrongOption
from tessera.planning.given.options import PlanOptions
from tessera.planning.search.strategies import FLEET_STRATEGIES

MOST_DEMAND = 1e9
MOST_TOKENS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOptions:
    """The GPUs, the requests, the limits. `machine` wins over `gpus`.

    `tokens` are those of prompt and answer; `arrivals` is a file with tokens and arrival times.
    `demand` is in requests per second: with it, the cheapest GPUs are searched for, and a kind
    without a count may be taken as often as needed. `have` are existing GPUs, which cost nothing
    more; `most` limits kinds (`h100=2`). `context` is that of decode traces that do not state it.
    """

    gpus: str | None = None
    machine: str | None = None
    link: str = DEFAULT_LINK
    have: str | None = None
    most: tuple[tuple[str, int], ...] = ()
    tokens: tuple[int, int] | None = None
    arrivals: str | os.PathLike[str] | None = None
    requests: int | None = None
    speed: float = 1.0
    demand: float | None = None
    slo: Slo = field(default_factory=Slo)
    percentile: str = P99
    strategies: tuple[str, ...] = FLEET_STRATEGIES
    prices: tuple[tuple[str, float] | str, ...] = ()
    memory: tuple[tuple[str, int] | str, ...] = ()
    profiles: tuple[str, ...] = ()
    tables: bool = True
    library: str | None = None
    context: int | None = None
    seed: int = 0
    data_root: str | None = None

    def __post_init__(self) -> None:
        if (self.gpus is None and self.have is None) == (self.machine is None):
            raise WrongOption("give the GPUs with either {gpus} or {machine}")
        if self.machine is not None and (self.have or self.prices or self.memory):
            raise WrongOption("a machine file says what there is, prices and memory itself")
        if self.tokens is None and self.arrivals is None:
            raise WrongOption(
                "say how long requests are: {tokens}, such as `1024:256`, or {arrivals}"
            )
        if self.tokens is not None and not all(0 < n <= MOST_TOKENS for n in self.tokens):
            raise WrongOption(f"{{tokens}} are from 1 to {MOST_TOKENS}")
        if self.demand is not None and not (
            isfinite(self.demand) and 0 <= self.demand <= MOST_DEMAND
        ):
            raise WrongOption(f"{{demand}} is from 0 to {MOST_DEMAND:g} requests per second")
        if self.percentile not in PERCENTILES:
            raise WrongOption(f"{{percentile}} is one of {', '.join(PERCENTILES)}")
        if not 0 < self.speed < inf:
            raise WrongOption("{speed} is a number above 0")
        if self.context is not None and not 0 < self.context <= MOST_TOKENS:
            raise WrongOption(f"{{context}} is from 1 to {MOST_TOKENS}")
        for name in self.strategies:
            if name not in FLEET_STRATEGIES:
                raise WrongOption(f"{{strategies}} are of: {', '.join(FLEET_STRATEGIES)}")
        self.as_plan()

    def as_plan(self) -> PlanOptions:
        """The options that a fleet shares with the planner."""
        return PlanOptions(
            gpus=self.gpus,
            machine=self.machine,
            link=self.link,
            prices=self.prices,
            memory=self.memory,
            profiles=self.profiles,
            tables=self.tables,
            library=self.library,
            data_root=self.data_root,
        )
