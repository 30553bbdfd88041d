"""What a plan of mixed steps gives by simulation, before it serves.

In: a plan file and limits. Out: `Foreseen`: the times of as many requests as there are rows, which
come at once, with prompts of a quarter and answers of an eighth of the context.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.driver.serve.measures import Slo
from tessera.driver.serve.options import ArrivingText, TextSimulationOptions
from tessera.driver.serve.simulate_text import simulate_text, stated_steps
from tessera.ir.arrivals import Arrival, Arrivals
from tessera.simulation.simulate_plan import read_followed


@dataclass(frozen=True, slots=True, kw_only=True)
class Foreseen:
    """Simulated requests, their lengths, the medians of their times, and tokens per second."""

    requests: int
    prompt: int
    answer: int
    ttft_ns: float
    tpot_ns: float
    tokens_per_s: float


def foreseen(plan: str, slo: Slo, backend: str) -> Foreseen:
    """Simulate a plan with all of its rows taken."""
    model = stated_steps(read_followed(plan)[0], plan, None)
    prompt, answer = max(model.context // 4, 1), max(model.context // 8, 1)
    arriving = (Arrival(0, prompt, answer),) * model.state_rows
    report = simulate_text(
        plan,
        ArrivingText(arrivals=Arrivals(name="at once", form="", requests=arriving), slo=slo),
        TextSimulationOptions(backend="cpu" if backend == "cpu" else "cuda"),
    )
    figures = report.figures()
    return Foreseen(
        requests=model.state_rows,
        prompt=prompt,
        answer=answer,
        ttft_ns=figures["ttft_ns"]["p50"],
        tpot_ns=figures["tpot_ns"]["p50"],
        tokens_per_s=report.rates()["answer_tokens_per_s"],
    )
