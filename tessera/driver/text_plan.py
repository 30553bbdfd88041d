"""Plans for texts: the batch is chosen with the plan, by memory and by a limit on time per token.

In: groups of traces (`driver.step_sizes`), each one step of a model at several sizes, and
`PlanOptions`. Out: a `PlanReport` with `TextFigures`. For every choice of
sizes, states get the rows of the chosen decode step, and `make_plan` plans the traces: it also
chooses how many batches are under way. Sizes that do not fit in memory, or miss the limit with even
one batch under way, are passed over; of the others, the one with the most texts per second wins.

The number behind a group says how often a sequence takes the step; a trace that takes `n` sequences
at once runs for all of them, so its share of all steps is the n-th part of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.asked_division import asked_divisions
from tessera.driver.step_sizes import (
    SizedName,
    check_family,
    states_of,
    tokens_of,
    with_states,
    wrong_sizes,
)
from tessera.driver.traces import check_shared, load_traces
from tessera.frontend.machine.quantities import format_time
from tessera.ir.objectives import PAIR
from tessera.ir.options import WrongOption
from tessera.planning.given.options import PlanOptions, Watch
from tessera.planning.given.setting import LoadedTrace
from tessera.planning.make_plan import PlanReport, make_plan
from tessera.planning.text_figures import TextFigures, TextStep, TriedSize, text_figures

_MOST_CHOICES = 16


@dataclass(frozen=True, slots=True)
class _SizedStep:
    """The traces of one step, largest first, and how often a sequence takes it."""

    traces: tuple[LoadedTrace, ...]
    times: float


def is_for_texts(groups: Sequence[SizedName], options: PlanOptions) -> bool:
    """Whether requests are texts: there are sizes to choose from, or a limit on time per token."""
    several = any(len(group.paths) > 1 for group in groups)
    return several or options.tpot_ns is not None


def plan_texts(
    groups: Sequence[SizedName],
    options: PlanOptions,
    watch: Watch,
    on_proved: Callable[[PlanReport], None] | None = None,
) -> PlanReport:
    """The best plan over all choices of sizes."""
    if options.objective == PAIR:
        raise WrongOption(f"`{PAIR}` takes traces of one size, and no limit")
    best: PlanReport | None = None
    tried: list[TriedSize] = []
    refused: TesseraError | None = None
    loaded = _loaded(groups, options, watch)
    for chosen in _choices(loaded):
        steps = [TextStep(*tokens_of(t), group.times) for t, group in chosen]
        names = tuple(trace.planned.name for trace, _ in chosen)
        row = TriedSize(names=names, batch=max(s.rows for s in steps if s.tokens == 1))
        watch.tell("choosing sizes", ", ".join(names))
        try:
            report, figures = _planned(_shared(chosen, steps, options), steps, options, watch)
        except TesseraError as failure:
            if failure.exit_code != ExitCode.NO_PLAN:
                raise
            refused = refused or failure
            tried.append(replace(row, why=str(failure.diagnostics[0].headline)))
            continue
        row = replace(row, figures=figures, strategy=report.plan.strategy)
        if options.tpot_ns is not None and figures.tpot_ns > options.tpot_ns:
            tried.append(replace(row, why="the time per token is above the limit"))
            continue
        tried.append(row)
        if best is None or figures.requests_per_s > _figures(best).requests_per_s:
            best = replace(report, texts=figures, sizes=tuple(tried))
            if on_proved is not None:
                on_proved(best)
        if watch.stopped():
            break
    if best is None:
        raise refused or _too_slow(tried, options)
    return replace(best, sizes=tuple(tried))


def _figures(report: PlanReport) -> TextFigures:
    assert report.texts is not None
    return report.texts


# --- what is given ------------------------------------------------------------------------------


def _loaded(groups: Sequence[SizedName], options: PlanOptions, watch: Watch) -> list[_SizedStep]:
    watch.tell("reading and analysing")
    made = []
    for group in groups:
        traces = [load_traces([p], options.data_root, watch.on_progress)[0] for p in group.paths]
        check_family(traces)
        made.append(_sorted(traces, group.share))
    _check_phases(made)
    return made


def _sorted(traces: Sequence[LoadedTrace], times: float) -> _SizedStep:
    return _SizedStep(tuple(sorted(traces, key=lambda t: -tokens_of(t)[0])), times)


def _check_phases(groups: Sequence[_SizedStep]) -> None:
    phases = [tokens_of(group.traces[0])[1] == 1 for group in groups]
    if not any(phases):
        raise wrong_sizes(
            "there is no decode step (one token of each sequence) among the traces",
            "the time per token, and the batch, are those of decode steps: give one",
        )


def _choices(groups: Sequence[_SizedStep]) -> Iterator[list[tuple[LoadedTrace, _SizedStep]]]:
    """One trace of every group, in all ways, large ones first."""
    count = 1
    for group in groups:
        count *= len(group.traces)
    if count > _MOST_CHOICES:
        raise WrongOption(f"there are {count} choices of sizes: give {_MOST_CHOICES} at most")
    for chosen in product(*(group.traces for group in groups)):
        yield list(zip(chosen, groups, strict=True))


def _shared(
    chosen: Sequence[tuple[LoadedTrace, _SizedStep]],
    steps: Sequence[TextStep],
    options: PlanOptions,
) -> tuple[LoadedTrace, ...]:
    """The traces with the states of the largest decode step, and their shares of all steps."""
    decode = max(
        (n for n, step in enumerate(steps) if step.tokens == 1), key=lambda n: steps[n].rows
    )
    given = chosen[decode][0]
    runs = sum(step.per_text for step in steps)
    traces = []
    for (trace, _), step in zip(chosen, steps, strict=True):
        fitted = with_states(trace, states_of(given), given.planned.name, options.data_root)
        planned = replace(fitted.planned, share=step.per_text / runs)
        traces.append(replace(fitted, planned=planned))
    check_shared(traces)
    return tuple(traces)


# --- one choice -----------------------------------------------------------------------------------


def _planned(
    traces: tuple[LoadedTrace, ...],
    steps: Sequence[TextStep],
    options: PlanOptions,
    watch: Watch,
) -> tuple[PlanReport, TextFigures]:
    """A plan, with fewer batches under way if the time per token is above the limit."""
    asked = asked_divisions(traces, options)
    counts: list[int | None] = [options.sequences]
    while True:
        tried = replace(options, sequences=counts[-1])
        report = make_plan(traces, tried, watch, compare=False, asked=asked)
        figures = text_figures(report.plan, steps)
        limit = options.tpot_ns
        lanes = max(replica.lanes for replica in report.plan.replicas)
        if limit is None or figures.tpot_ns <= limit or lanes == 1 or counts[-1] == 1:
            return report, figures
        fewer = max(1, min(lanes - 1, int(lanes * limit / figures.tpot_ns)))
        counts.append(1 if len(counts) > 1 else fewer)


def _too_slow(tried: Sequence[TriedSize], options: PlanOptions) -> TesseraError:
    rows = [(row.figures.tpot_ns, row) for row in tried if row.figures is not None]
    ns, row = min(rows, key=lambda pair: pair[0])
    return TesseraError.of(
        "TSR3031",
        f"no size keeps {format_time(options.tpot_ns or 0.0)} per token",
        notes=(f"the nearest is {', '.join(row.names)}: {format_time(ns)} per token",),
        hint="allow more time per token, give traces of smaller batches, or faster GPUs",
        exit_code=ExitCode.NO_PLAN,
    )
