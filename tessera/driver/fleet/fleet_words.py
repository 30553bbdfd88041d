"""The words of a fleet report: the answer, its assumptions, and why there is no answer.

In: choices, the offered GPUs, a workload. Out: lines of text, and errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.choose_units import FleetChoice, best_choice
from tessera.driver.fleet.model_steps import ServedModel
from tessera.driver.fleet.offered import LARGEST_UNIT, Offered
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.workload import Workload

NOISE = 0.05
"""Smaller relative differences are within the error of looked-up and interpolated times."""


def verdict_of(
    chosen: FleetChoice,
    rivals: Sequence[FleetChoice],
    offered: Offered,
    options: FleetOptions,
) -> list[str]:
    """The answer in words."""
    if not chosen.units:
        return ["buy nothing: there is no demand"]
    lines = []
    taken = chosen.gpus(len(offered.kinds))
    used = [kind for kind, n in zip(offered.kinds, taken, strict=True) if n]
    if all(kind.have for kind in used):
        lines.append("buy nothing: what is there suffices")
    if len(used) == 1 and len(offered.kinds) > 1:
        lines.append(f"use only the {used[0].label}")
    plain = rivals[0]
    if not chosen.splits:
        lines.append("do not split: every GPU that is used serves requests by itself")
    elif plain.units:
        gain = _gain(chosen, plain, options)
        what = "costs less" if options.demand is not None else "serves more"
        if gain < NOISE:
            lines.append(
                f"splitting brings nothing: by the figures the units below, some of which split, "
                f"are the best, by {gain:.1%}; that is within the error of the times, and the row "
                "`data parallel` is as good and simpler"
            )
        else:
            lines.append(f"split: it {what} by {gain:.1%} than data parallel")
    else:
        lines.append(f"split: without that, {plain.why}")
    return lines


def _gain(chosen: FleetChoice, plain: FleetChoice, options: FleetOptions) -> float:
    if options.demand is None:
        return chosen.rate / plain.rate - 1 if plain.rate else inf
    if chosen.usd_per_hour is None or plain.usd_per_hour is None or not plain.usd_per_hour:
        return 0.0
    return 1 - chosen.usd_per_hour / plain.usd_per_hour


def notes_of(
    model: ServedModel, offered: Offered, options: FleetOptions, work: Workload
) -> list[str]:
    """What the figures rest on."""
    sizes = ", ".join(str(step.rows) for step in model.decode)
    chunk = ", ".join(str(step.rows * step.tokens) for step in model.prefill)
    lines = [
        f"decode steps are known for {sizes} sequences and prefill steps for {chunk} tokens; "
        "times between are on the line between them",
        f"attention of a decode step goes with the context, {work.context:.0f} tokens in the mean;"
        " memory is estimated, `tessc plan` proves it",
    ]
    traced = min(step.context for step in model.decode)
    if work.longest > traced:
        lines.append(
            f"requests have up to {work.longest} tokens, and decode steps are known for {traced}: "
            "beyond that, attention and caches are taken to grow in proportion"
        )
    for number, kind in enumerate(offered.kinds):
        shares = model.shares(number)
        listed = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
        lines.append(f"times on {kind.label}: {listed}")
    if not options.slo.ttft_ns and not options.slo.tpot_ns:
        lines.append("no limits are given: units are busy for 95% of the time at most")
    known = [k for k in offered.kinds if k.usd_per_hour is not None and not k.have]
    if known:
        said = ", ".join(f"{k.label} ${k.usd_per_hour:.2f} ({k.price_source})" for k in known)
        lines.append(f"prices per hour: {said}; those of providers are of 2026-08-22")
    return lines


def check_prices(offered: Offered, options: FleetOptions) -> None:
    """Refuse a demand if a price is unknown: the cheapest fleet depends on it."""
    unknown = [kind.label for kind in offered.kinds if kind.usd_per_hour is None]
    if unknown and options.demand is not None:
        raise TesseraError.of(
            "TSR3025",
            f"no price is known for {', '.join(unknown)}",
            hint=f"give it: `--price {unknown[0]}=2.50`",
        )


def nothing_fits(model: ServedModel, offered: Offered, work: Workload) -> TesseraError:
    """The error if no unit holds the model: the bytes of the model, and the memory."""
    weights = sum(model.weight_bytes.values()) / 1e9
    each = (sum(model.token_bytes.values()) * (work.prompt + work.answer)) / 1e9
    room = sum(k.gpu.memory_bytes * min(k.most, LARGEST_UNIT) for k in offered.kinds) / 1e9
    return TesseraError.of(
        "TSR3027",
        "the model fits none of the groups of GPUs",
        notes=(
            f"weights take {weights:.1f} GB and each sequence {each:.3g} GB; "
            f"a unit of these GPUs has {room:.1f} GB at most",
        ),
        hint="offer more GPUs, or larger ones",
        exit_code=ExitCode.NO_PLAN,
    )


def no_mix(
    capacities: Sequence[Capacity], offered: Offered, options: FleetOptions, work: Workload
) -> TesseraError:
    """The error if nothing serves the demand within the limits: the nearest, and what it lacks."""
    able = [capacity for capacity in capacities if capacity.rate > 0]
    if not able:
        tried = [c for c in capacities if c.nearest is not None]

        def distance(capacity: Capacity) -> float:
            report = capacity.nearest
            assert report is not None
            pairs = ((v, limit) for _, v, limit in work.against(report) if v and limit)
            return max((v / limit for v, limit in pairs), default=inf)

        best = min(tried, key=distance, default=None)
        notes = (
            []
            if best is None
            else [
                f"the nearest is `{best.way.strategy}` on {best.way.names}: {best.missed}, "
                "with hardly any load"
            ]
        )
        if best is not None:
            notes.append(f"its limits would have to be {distance(best):.3g} times as long")
        return TesseraError.of(
            "TSR3027",
            "no way to use these GPUs keeps the limits",
            notes=tuple(notes),
            hint="relax `--slo`, or offer faster GPUs",
            exit_code=ExitCode.NO_PLAN,
        )
    most = best_choice("", able, offered, None)
    demand = options.demand or 0.0
    listed = ", ".join(
        f"{n}x{kind.label}"
        for kind, n in zip(offered.kinds, most.gpus(len(offered.kinds)), strict=True)
        if n
    )
    return TesseraError.of(
        "TSR3027",
        f"these GPUs do not serve {demand:g} requests/s within the limits",
        notes=(
            f"the most is {most.rate:.4g} requests/s, with {listed}",
            f"it would take about {demand / max(most.rate, 1e-12):.3g} times as many",
        ),
        hint="offer more GPUs (a kind without a count has no limit), or relax `--slo`",
        exit_code=ExitCode.NO_PLAN,
    )
