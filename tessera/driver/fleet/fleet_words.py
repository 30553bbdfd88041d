"""The words of a fleet report: the answer, its assumptions, and why there is no answer.

In: choices, the offered GPUs, a workload. Out: lines of text, and errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.fleet.capacity import Capacity, UnitRates
from tessera.driver.fleet.choose_units import NOISE, FleetChoice, UnitChooser
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.model_steps import ServedModel
from tessera.driver.fleet.offered import LARGEST_UNIT, Offered
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.ways import UnitWay
from tessera.driver.fleet.workload import Workload
from tessera.planning.promise.doubt import Doubt, Standing

# The forms of splitting that other systems have too.
_COARSE = ("layers", "phase", "tensor")


def verdict_of(
    chosen: FleetChoice,
    rivals: Sequence[FleetChoice],
    chooser: UnitChooser,
    doubts: Mapping[str, Doubt] | None = None,
) -> list[str]:
    """What to do, then why; `doubts` has the bars of rivals against the answer, by name."""
    if not chosen.units:
        return ["buy nothing: there is no demand"]
    doubts = doubts or {}
    lines = [f"{_take(chosen, chooser)}, {_use(chosen)}"]
    plain = rivals[0]
    if chosen.splits and plain.units:
        lines.append(_against(chosen, plain, chooser, doubts))
    elif chosen.splits:
        lines.append(str(plain.why))
        coarse = [row for row in rivals if row.units and row.name in _COARSE]
        best = max(coarse, key=lambda row: chooser.gain(row, chosen), default=plain)
        if best.units and chooser.gain(chosen, best) > NOISE:
            lines.append(_against(chosen, best, chooser, doubts))
    lines += _open_to(rivals, chosen.gpus(len(chooser.offered.kinds)), doubts)
    best = max(rivals, key=lambda row: chooser.gain(row, chosen) if row.units else -inf)
    gain = chooser.gain(best, chosen) if best.units else 0.0
    if 0 < gain < NOISE + best.doubt and best.splits:
        what = "costs" if chooser.demand is not None else "serves"
        more = "less" if chooser.demand is not None else "more"
        told = doubts.get(best.name)
        why = " by the figures, which is within the error of the times: the answer is as good and"
        if told is not None and told.standing is Standing.AHEAD:
            least = f"less than {NOISE + best.doubt:.0%}"
            why = f", also with the error bars, but {least}: the answer is"
        lines.append(f"`{best.name}` {what} {gain:.1%} {more}{why} simpler")
    return lines


def _take(chosen: FleetChoice, chooser: UnitChooser) -> str:
    """Which GPUs, and whether they have to be rented."""
    kinds = chooser.offered.kinds
    used = [(k, n) for k, n in zip(kinds, chosen.gpus(len(kinds)), strict=True) if n]
    gpus = " and ".join(f"{n} {kind.label}" for kind, n in used)
    only = "only " if len(used) == 1 and len(kinds) > 1 else ""
    if all(kind.have for kind, _ in used):
        are = "is" if sum(n for _, n in used) == 1 else "are"
        return f"buy nothing: use {only}{gpus}, which {are} there"
    return f"{'use' if chooser.demand is None else 'rent'} {only}{gpus}"


def _use(chosen: FleetChoice) -> str:
    if not chosen.splits:
        return "and do not split: every GPU serves requests by itself"
    if not chosen.hands_over:
        return "and split the model over them, in the units below"
    if EngineRole.SHARES in {c.way.role for c, _ in chosen.units}:
        return "and give them separate shares of prompts and answers"
    return "and read prompts and make answers on GPUs of their own"


def _against(
    chosen: FleetChoice, row: FleetChoice, chooser: UnitChooser, doubts: Mapping[str, Doubt]
) -> str:
    """What the answer serves more than another mix, or how much less it costs."""
    gain, bar = chooser.gain(chosen, row), ""
    has_demand = chooser.demand is not None
    if (doubt := doubts.get(row.name)) is not None:
        # The doubt is how many times as good the other mix is: a cost changes by the same part.
        ends = doubt.low, doubt.high
        low, high = ends if has_demand else (1 / (1 + end) - 1 for end in reversed(ends))
        bar = f", {low:+.1%} to {high:+.1%} with the error bars"
        bar += ": the bars do not tell which is better" * (doubt.standing is Standing.OPEN)
    figure = f"cost {-gain:+.1%}" if has_demand else f"requests/s {gain:+.1%}"
    return f"{figure} against `{row.name}`{bar}"


def _open_to(
    rivals: Sequence[FleetChoice], taken: Sequence[int], doubts: Mapping[str, Doubt]
) -> list[str]:
    """The mixes with other kinds of GPUs of which the bars do not tell whether they are better."""
    names = [
        f"`{row.name}`"
        for row in rivals
        if (doubt := doubts.get(row.name)) is not None and doubt.standing is Standing.OPEN
        if any(n and not taken[k] for k, n in enumerate(row.gpus(len(taken))))
    ]
    said = f"the bars do not tell whether these, with other GPUs, are better: {', '.join(names)}"
    return [said] if names else []


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
    counts = [int(min(k.most, LARGEST_UNIT)) for k in offered.kinds]
    room = sum(k.gpu.memory_bytes * n for k, n in zip(offered.kinds, counts, strict=True)) / 1e9
    gpus = " and ".join(
        f"{n} {kind.label}" for kind, n in zip(offered.kinds, counts, strict=True) if n
    )
    return _refusal(
        "the model fits none of the groups of GPUs",
        f"the nearest is a unit of {gpus}, which breaks the limit on memory: it has {room:.1f} GB, "
        f"and weights take {weights:.1f} GB, each sequence {each:.3g} GB, and steps and the driver "
        "some more",
        hint="offer more GPUs, or larger ones",
    )


def _refusal(headline: str, *notes: str, hint: str) -> TesseraError:
    return TesseraError.of("TSR3027", headline, notes=notes, hint=hint, exit_code=ExitCode.NO_PLAN)


def no_mix(rates: UnitRates, chooser: UnitChooser, work: Workload) -> TesseraError:
    """The error if nothing serves the demand within the limits: the nearest, and what it lacks."""
    offered, demand = chooser.offered, chooser.demand or 0.0
    most = replace(chooser, demand=None).best("", rates.all())
    if not most.units:
        return _refusal(
            "no way to use these GPUs keeps the limits",
            *_nearest([rates.follow(c) for c in rates.all()], work),
            hint="relax `--slo`, or offer faster GPUs",
        )
    taken = most.gpus(len(offered.kinds))
    listed = ", ".join(f"{n} x {named(c.way)}" for c, n in most.units)
    spent = " and ".join(
        f"{kind.label} ({kind.most:g})"
        for kind, n in zip(offered.kinds, taken, strict=True)
        if kind.most - n < 1
    )
    price = "" if most.usd_per_hour is None else f", ${most.usd_per_hour:.2f} per hour"
    return _refusal(
        f"these GPUs do not serve {demand:g} requests/s within the limits",
        f"the nearest is {listed}: {most.rate:.4g} requests/s{price}",
        f"it breaks the limit on the number of GPUs: {spent or 'they'} are all used, and it would "
        f"take about {demand / max(most.rate, 1e-12):.3g} times as many",
        hint="offer more GPUs (a kind without a count has no limit), or relax `--slo`",
    )


def named(way: UnitWay) -> str:
    """A unit in a sentence."""
    role = "" if way.role is EngineRole.BOTH else f" for {way.role}"
    return f"`{way.strategy}` on {way.names}{role}"


def _nearest(capacities: Sequence[Capacity], work: Workload) -> Iterator[str]:
    """The arrangement that comes nearest to the limits with hardly any load, and its figures."""

    def distance(capacity: Capacity) -> float:
        pairs = ((v, limit) for _, v, limit in _figures(capacity, work) if v and limit)
        return max((v / limit for v, limit in pairs), default=0.0)

    tried = [c for c in capacities if c.nearest is not None]
    best = [
        min((c for c in tried if c.way.role is role), key=distance, default=None)
        for role in (EngineRole.BOTH, EngineRole.PROMPTS, EngineRole.ANSWERS)
    ]
    whole, pools = [c for c in best[:1] if c], [c for c in best[1:] if c]
    arranged = [own for own in (whole, pools if len(pools) > 1 else []) if own]
    if not arranged:
        return
    nearest = min(arranged, key=lambda own: max(map(distance, own)))
    figures = [row for c in nearest for row in _figures(c, work) if row[1]]
    said = ", ".join(f"{name} {value / 1e6:.3g} ms" for name, value, _ in figures if value)
    broken = " and ".join(
        f"{name} (the limit is {limit / 1e6:.3g} ms)"
        for name, value, limit in figures
        if value is not None and limit is not None and value > limit
    )
    yield (
        f"the nearest is {' with '.join(named(c.way) for c in nearest)}: {said} at "
        f"{work.percentile}, with hardly any load; it breaks the limit on "
        f"{broken or 'memory: a request does not fit'}"
    )
    factor = max(map(distance, nearest))
    if factor > 1:
        yield f"its limits would have to be {factor:.3g} times as long"


def _figures(
    capacity: Capacity, work: Workload
) -> Sequence[tuple[str, float | None, float | None]]:
    """TTFT and TPOT of a unit with hardly any load, beside their limits; in a pool one of them."""
    assert capacity.nearest is not None
    rows = work.against(capacity.nearest)
    own = {EngineRole.PROMPTS: rows[:1], EngineRole.ANSWERS: rows[1:]}
    return own.get(capacity.way.role, rows)
