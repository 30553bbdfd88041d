"""A plan of `tessc plan` and its simulation, beside a cell of the paper's figures.

In: texts of traces, and how often a request runs each. Out: the period of a request in ns, from the
simulator that `tessc simulate` has, of the plan that `tessc plan` makes with its own choice of
strategy, slots and sequences; and what the plan is, or why there is none.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from benchmarks.planning.promises import OverLimitError
from tessera.diagnostics import TesseraError
from tessera.driver.plan import plan
from tessera.planning.given.options import PlanOptions
from tessera.simulation.simulate_plan import simulate

GAP = 0.01
LIMIT_S = 120
"""Of processor time, for a plan."""

Planned = dict[str, float | dict[str, object]]


def planned(gpus: str, link: str, traces: Sequence[tuple[str, str, float]]) -> Planned:
    """The plan of traces (name, text, how often), simulated."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OverLimitError

    signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
    try:
        return _followed(gpus, link, traces)
    except TesseraError as fault:
        return {"plan": {"none": str(fault.diagnostics[0].headline)}}
    except OverLimitError:
        return {"plan": {"none": f"not made in {LIMIT_S} s of processor time"}}
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _followed(gpus: str, link: str, traces: Sequence[tuple[str, str, float]]) -> Planned:
    at = time.process_time()
    each = sum(share for _, _, share in traces)
    with tempfile.TemporaryDirectory() as folder:
        names = []
        for name, text, share in traces:
            path = Path(folder, f"{name}.ptx")
            path.write_text(text)
            names.append(f"{path}:{share / traces[0][2]:g}")
        made = plan(names, PlanOptions(gpus=gpus, link=link, gap=GAP)).plan
    full = simulate(made).full
    return {
        "planned": full.period_ns * each,
        "plan": {
            "strategy": str(made.strategy),
            "slots": [replica.slots for replica in made.replicas],
            "bound": round(made.bound * each),
            "busy": {d.name: round(full.busy.get(d.name, 0.0), 3) for d in made.devices},
            "others": {str(o.name): round(o.period_ns * each) for o in made.baselines},
            "processor_s": round(time.process_time() - at, 1),
        },
    }
