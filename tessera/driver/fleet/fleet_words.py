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
    """The answer in words; `doubts` has the bars of rivals against it, by name."""
    if not chosen.units:
        return ["buy nothing: there is no demand"]
    lines, offered = [], chooser.offered
    taken = chosen.gpus(len(offered.kinds))
    used = [kind for kind, n in zip(offered.kinds, taken, strict=True) if n]
    if all(kind.have for kind in used):
        lines.append("buy nothing: what is there suffices")
    if len(used) == 1 and len(offered.kinds) > 1:
        lines.append(f"use only the {used[0].label}{_open_to(rivals, taken, doubts or {})}")
    plain = rivals[0]
    what = "costs less" if chooser.demand is not None else "serves more"
    if not chosen.splits:
        lines.append("do not split: every GPU that is used serves requests by itself")
    elif plain.units:
        gain = chooser.gain(chosen, plain)
        bar = _turned((doubts or {}).get(plain.name))
        lines.append(f"{_split_words(chosen)}: it {what} by {gain:.1%}{bar} than data parallel")
    else:
        coarse = [row for row in rivals if row.units and row.name in _COARSE]
        best = max(coarse, key=lambda row: chooser.gain(row, chosen), default=plain)
        gain = chooser.gain(chosen, best) if best.units else 0.0
        bar = _turned((doubts or {}).get(best.name))
        more = f", and it {what} by {gain:.1%}{bar} than `{best.name}`" if gain > NOISE else ""
        lines.append(f"{_split_words(chosen)}: {plain.why}{more}")
    best = max(rivals, key=lambda row: chooser.gain(row, chosen) if row.units else -inf)
    gain = chooser.gain(best, chosen) if best.units else 0.0
    if 0 < gain < NOISE + best.doubt and best.splits:
        lines.append(
            f"`{best.name}` {what} by {gain:.1%} by the figures, which is within the error of the "
            "times: this mix is as good and simpler"
        )
    return lines


def _open_to(
    rivals: Sequence[FleetChoice], taken: Sequence[int], doubts: Mapping[str, Doubt]
) -> str:
    """The mixes with other kinds of GPUs of which the bars do not tell whether they are better."""
    names = [
        f"`{row.name}` ({doubt.low:+.1%} to {doubt.high:+.1%})"
        for row in rivals
        if (doubt := doubts.get(row.name)) is not None and doubt.standing is Standing.OPEN
        if any(n and not taken[k] for k, n in enumerate(row.gpus(len(taken))))
    ]
    if not names:
        return ""
    return f" by the figures; the error bars do not tell whether better: {', '.join(names)}"


def _turned(against: Doubt | None) -> str:
    """The bar of the answer's gain over a rival, from that of the rival over the answer."""
    if against is None:
        return ""
    low, high = (1 / (1 + end) - 1 for end in (against.high, against.low))
    said = ", so the bars do not tell" if against.standing is Standing.OPEN else ""
    return f" ({low:+.1%} to {high:+.1%} with the error bars{said})"


def _split_words(chosen: FleetChoice) -> str:
    if not chosen.hands_over:
        return "split"
    roles = {c.way.role for c, _ in chosen.units}
    if EngineRole.SHARES in roles:
        return "give GPUs separate shares of prompts and answers"
    return "read prompts and make answers on GPUs of their own"


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
