"""Options for requests for text that arrive at given times: records that check themselves."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tessera.diagnostics import TesseraError
from tessera.driver.serve.follow import Wanted
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.policies import SwitchRule
from tessera.frontend.arrivals.read_arrivals import read_arrivals
from tessera.ir.arguments import check_amounts, check_counts, check_texts
from tessera.ir.arrivals import LATEST_NS, Arrivals
from tessera.ir.choices import ADAPTIVE
from tessera.ir.options import WrongOption
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.policies import policies_of

BY_NAME = "names"
"""Used instead of a declaration: inputs have the role that they are named after."""


class Between(StrEnum):
    """How to find the time of a step whose size no trace has."""

    FIT = "fit"
    INTERPOLATE = "interpolate"


class ClockKind(StrEnum):
    """How the time of steps is found."""

    AUTO = "auto"
    EXACT = "exact"
    RATES = "rates"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivingText:
    """Requests for text: when they arrive, how long they are, and which latencies count as good.

    `tokens` are those of prompt and answer, for requests that do not state their lengths. With
    `reuse`, what is computed of prompts that begin alike is shared.
    """

    arrivals: str | os.PathLike[str] | Arrivals
    speed: float = 1.0
    requests: int | None = None
    seed: int = 0
    tokens: tuple[int, int] | None = None
    slo: Slo = field(default_factory=Slo)
    burst: int = 1
    reuse: bool = True

    def __post_init__(self) -> None:
        check_counts({"requests": self.requests, "burst": self.burst}, least=1)
        check_counts({"seed": self.seed}, least=0, optional=False)
        check_amounts({"speed": self.speed}, optional=False)

    def read(self) -> Arrivals:
        """The arrivals, up to the requested number."""
        if isinstance(self.arrivals, Arrivals):
            count = self.requests
            whole = self.arrivals
            return whole if count is None else replace(whole, requests=whole.requests[:count])
        return read_arrivals(os.fspath(self.arrivals), most=self.requests, seed=self.seed)

    def wanted(self, arrivals: Arrivals) -> list[Wanted]:
        """The requests with their times and lengths; prompt and answer have at least one token."""
        made = []
        for request in arrivals.requests:
            prompt, answer = request.input_tokens, request.output_tokens
            if prompt is None or answer is None:
                if self.tokens is None:
                    raise WrongOption(
                        "these arrivals do not say how long requests are: give {tokens}, such as ",
                        "`512:128`",
                    )
                prompt, answer = self.tokens
            at_ns = request.at_ns / self.speed
            made.append(Wanted(at_ns, max(prompt, 1), max(answer, 1), request.pieces))
        if made and not made[-1].at_ns <= LATEST_NS:
            message = f"at a speed of {self.speed:g} the last request comes after {LATEST_NS:g} ns"
            raise TesseraError.of("TSR5053", message, hint="choose a higher `--speed`")
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSimulationOptions:
    """How to follow a plan that generates text. `steps` is a declaration, or `names`.

    Of a plan with two policies, both are ready unless `policy` names one; `switch` says when
    requests are given which. With `foresees`, the rule knows what will come: an oracle.
    """

    steps: str | os.PathLike[str] | None = None
    slots: int | None = None
    sequences: int | None = None
    policy: str | None = None
    switch: SwitchRule | None = None
    foresees: bool = False
    backend: str = "cuda"
    throttle_bytes_per_s: float | None = None
    between: str = Between.FIT
    clock: str = ClockKind.AUTO

    def __post_init__(self) -> None:
        check_counts({"slots": self.slots, "sequences": self.sequences}, least=1)
        check_texts({"policy": self.policy})
        for name, kind in (("between", Between), ("clock", ClockKind)):
            known = [choice.value for choice in kind]
            if getattr(self, name) not in known:
                raise WrongOption(f"{{{name}}} is one of: ", ", ".join(known))
        if self.between == Between.INTERPOLATE and self.clock == ClockKind.EXACT:
            raise WrongOption("{between} goes by rates: programs of sizes between traces are none")
        if self.policy not in (None, ADAPTIVE) and (self.switch is not None or self.foresees):
            raise WrongOption("{switch} is for `adaptive`, and {policy} names one policy")

    def chosen_policy(self, plan: Plan) -> str | None:
        """The policy to follow: both, if the plan has two and none is named."""
        return default_policy(plan, self.policy)


def default_policy(plan: Plan, policy: str | None) -> str | None:
    """The policy that serves requests for text: both, if there are two and none is named."""
    is_pair = len(policies_of(plan)) > 1
    return ADAPTIVE if policy is None and is_pair else policy
