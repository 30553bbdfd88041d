"""`tessc plan`: read and analyse the traces, then plan them.

In: files and `PlanOptions`. Out: a `PlanReport`. `planning.make_plan` has the stages that follow.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from tessera.driver.asked_division import asked_divisions
from tessera.driver.step_sizes import read_sizes
from tessera.driver.text_plan import is_for_texts, plan_texts
from tessera.driver.traces import TraceName, graphs_in, load_traces
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting import LoadedTrace, PlanSetting
from tessera.planning.make_plan import PlanReport, integer_program, make_plan

__all__ = [
    "PlanOptions",
    "PlanReport",
    "PlanSetting",
    "Watch",
    "emit_lp",
    "graphs_in",
    "plan",
]


def plan(
    traces: TraceName | Sequence[TraceName],
    options: PlanOptions,
    watch: Watch | None = None,
    *,
    compare: bool = True,
    pareto: bool = False,
    on_proved: Callable[[PlanReport], None] | None = None,
) -> PlanReport:
    """Plan traces for a machine. Each is a file, or `FILE:NUMBER` with its share of the requests.

    `FILE,FILE:NUMBER` is one step of a language model at several sizes: then requests are texts,
    NUMBER says how often a text takes the step, and other GPUs are not compared (`text_plan`).

    `compare` also plans for as many GPUs of each kind alone; `pareto` collects the plans that none
    beats in throughput, latency and cost at once. `on_proved` is given the report as soon as the
    plan is proved, without these.
    """
    watch = watch or Watch()
    names = [traces] if isinstance(traces, str | os.PathLike) else list(traces)
    groups = [read_sizes(os.fspath(name)) for name in names]
    if is_for_texts(groups, options):
        return plan_texts(groups, options, watch, on_proved)
    loaded = _loaded(traces, options, watch)
    return make_plan(
        loaded,
        options,
        watch,
        compare=compare,
        pareto=pareto,
        on_proved=on_proved,
        asked=asked_divisions(loaded, options),
    )


def emit_lp(traces: TraceName | Sequence[TraceName], options: PlanOptions) -> str:
    """The integer program behind a throughput plan, in the LP format."""
    return integer_program(_loaded(traces, options, Watch()), options)


def _loaded(
    traces: TraceName | Sequence[TraceName], options: PlanOptions, watch: Watch
) -> tuple[LoadedTrace, ...]:
    watch.tell("reading and analysing")
    return load_traces(traces, options.data_root, watch.on_progress)
