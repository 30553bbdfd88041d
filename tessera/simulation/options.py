"""Options of a simulation: a self-validating record for the command line and the library."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tessera.ir.arguments import check_amounts, check_counts, check_flags, check_texts, wrong_type
from tessera.ir.arrivals import Arrivals
from tessera.ir.options import WrongOption

MOST_SLOTS = 1024
MOST_SEQUENCES = 4096
MOST_REQUESTS = 2_000_000
BACKENDS = ("cuda", "cpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """Options for simulating a plan.

    `arrivals` is a file, `poisson:20/s` or records; `speed` divides the times between them.
    `requests` is the maximum number of arrivals, or the number of back-to-back requests. `backend`
    selects the rules that apply. With `noise`, further simulations draw times from their error
    bars, starting with `seed`. `timeline` keeps the busy intervals of every device.
    """

    arrivals: str | os.PathLike[str] | Arrivals | None = None
    speed: float = 1.0
    requests: int | None = None
    slots: int | None = None
    sequences: int | None = None
    policy: str | None = None
    backend: str = "cuda"
    throttle_bytes_per_s: float | None = None
    seed: int = 0
    noise: bool = False
    timeline: bool = False

    def __post_init__(self) -> None:
        counts = {"requests": self.requests, "slots": self.slots, "sequences": self.sequences}
        check_counts(counts, least=1)
        check_counts({"seed": self.seed}, least=0, optional=False)
        check_amounts({"speed": self.speed}, optional=False)
        check_amounts({"throttle_bytes_per_s": self.throttle_bytes_per_s})
        check_texts({"policy": self.policy})
        check_texts({"backend": self.backend}, optional=False)
        check_flags({"noise": self.noise, "timeline": self.timeline})
        if not isinstance(self.arrivals, str | os.PathLike | Arrivals | None):
            raise wrong_type("arrivals", self.arrivals, "a path, `poisson:20/s` or `Arrivals`")
        if self.backend not in BACKENDS:
            raise WrongOption("{backend} is one of: ", ", ".join(f"`{name}`" for name in BACKENDS))
        if self.arrivals is None and self.speed != 1.0:
            raise WrongOption("{speed} is for {arrivals} only")
        if (self.requests or 0) > MOST_REQUESTS:
            raise WrongOption("{requests} is at most ", str(MOST_REQUESTS))
