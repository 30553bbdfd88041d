"""Times that are possible: nothing is faster than its bytes, its operations and its launch.

In: what a step needs, GPUs, durations of whatever source. Out: the floor of a step on a GPU, and
durations that respect it. The floor is the longest of three times: bytes that cannot be in L2 at
the bandwidth of the data sheet, operations at its peak rate, and the shortest launch.

A guess (`model`, `sheet`) or a time from a table below the floor is raised and marked; a table was
measured with its bytes in L2 then, and takes the usual time of its bytes from memory. A profile is
kept, marked and explained. A guess far above the floor has a wider bar.

Guesses respect the order of GPUs: if one has at least the bandwidth and the arithmetic of another,
its guess is not longer (`in_order`). Where the model says otherwise, each guess becomes the middle
(by ratio) of the longest among better GPUs and the shortest among worse ones: that is in order, and
of all times in order it changes the most wrong guess least. GPUs that the model was fitted on keep
their times. Beside measured times of other GPUs, a guess is first moved as far as these require;
where they contradict each other, as the GPU that is most alike does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from math import sqrt

from tessera.ir.architecture import arch_number
from tessera.ir.plan.costs import (
    Barred,
    Cost,
    Costs,
    CostSource,
    Duration,
    FloorMark,
    StepCosts,
    StepNeeds,
)
from tessera.ir.plan.machine import Gpu, Machine
from tessera.planning.prices.carried import nearest
from tessera.planning.prices.device_model import CALIBRATED_ON, LAUNCH_NS, LEAST_NS, unit_rate

GUESSES = (CostSource.NEAR, CostSource.MODEL, CostSource.SHEET)
_USUAL_PART = 0.89  # fraction of the sheet's bandwidth that steps reach
_FROM_MEMORY = 0.15  # the bar of a time that memory decides
_ROUNDED = 1 + 1e-9
_NOISE = 0.03  # a measurement that is below the floor by no more is not marked
_FAR = 20.0  # times the floor; all launches that the model was fitted to are nearer
_MATTERS = 0.5  # of the time of the bytes; faster arithmetic decides nothing


def floor_ns(needs: StepNeeds, gpu: Gpu, sms: int) -> float:
    """The time that nothing can beat on `sms` SMs of a GPU."""
    times = [_memory_ns(needs, gpu) / 1e9]
    times += [count / _peak(gpu, unit) * gpu.sms / sms for unit, count in needs.operations]
    return max(LAUNCH_NS.get(arch_number(gpu.arch), LEAST_NS), 1e9 * max(times))


def _memory_ns(needs: StepNeeds, gpu: Gpu) -> float:
    """The time of the bytes that cannot be in L2."""
    missed = max(0.0, needs.warm - gpu.l2_bytes)
    if needs.kept > gpu.l2_bytes / 2:  # as `StepBytes.traffic`
        missed += needs.cold
    return missed / gpu.memory_bandwidth * 1e9


def _peak(gpu: Gpu, unit: str) -> float:
    """Operations per second; products in FP32 may be done in TF32."""
    if unit != "fp32":
        return unit_rate(gpu, unit)
    return max(gpu.flops("tf32") or 0.0, unit_rate(gpu, "fp32"))


# --- the order of GPUs -------------------------------------------------------------------------


def order_of(needs: StepNeeds, gpus: Sequence[Gpu]) -> Callable[[Gpu], tuple[float, ...]]:
    """The rates by which GPUs are compared for a step: bandwidth, and arithmetic that matters.

    If none matters, the rate of matrix units in 16 bits stands for arithmetic.
    """
    moved = max(needs.cold + needs.warm, 1.0)
    units = [
        unit
        for unit, count in needs.operations
        if any(count / _peak(g, unit) > _MATTERS * moved / g.memory_bandwidth for g in gpus)
    ] or ["bf16"]
    return lambda gpu: (gpu.memory_bandwidth, *(_peak(gpu, unit) for unit in units))


def _is_better(rates: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """At least as good in everything."""
    return all(mine >= its for mine, its in zip(rates, other, strict=True))


@lru_cache(maxsize=64)
def _ranking(rates: tuple[tuple[float, ...], ...]) -> tuple[tuple[list[int], list[int]], ...]:
    """For the GPU of each row of rates those that are better, and those that are worse."""
    return tuple(
        (
            [n for n, other in enumerate(rates) if _is_better(other, mine)],
            [n for n, other in enumerate(rates) if _is_better(mine, other)],
        )
        for mine in rates
    )


def in_order(times: Sequence[float], gpus: Sequence[Gpu], needs: StepNeeds) -> list[float]:
    """Times of a step on whole GPUs: none is longer than that of a GPU that is worse, or below the
    floor."""
    floors = [floor_ns(needs, gpu, gpu.sms) for gpu in gpus]
    known = [n for n, gpu in enumerate(gpus) if gpu.key in CALIBRATED_ON]
    ordered = []
    for better, worse in _ranking(tuple(map(order_of(needs, gpus), gpus))):
        ns = sqrt(max(times[n] for n in better) * min(times[n] for n in worse))
        ns = max([ns, *(times[n] for n in known if n in better)])
        ns = min([ns, *(times[n] for n in known if n in worse)])
        ordered.append(max([ns, *(floors[n] for n in better)]))
    return ordered


# --- durations of all sources ------------------------------------------------------------------


def keep_possible(costs: Costs, machine: Machine) -> Costs:
    """The costs with every duration checked against its floor, and guesses against measurements."""
    return Costs(tuple(_checked(step, machine) for step in costs.steps))


def _checked(step: StepCosts, machine: Machine) -> StepCosts:
    needs = step.needs
    if needs is None:
        return step
    gpus = [machine.gpu_of(device) for device in machine.devices]
    floors = [floor_ns(needs, g, d.sms) for g, d in zip(gpus, machine.devices, strict=True)]
    usual = [_memory_ns(needs, gpu) / _USUAL_PART for gpu in gpus]
    costs = [
        _possible(cost, floor, most)
        for cost, floor, most in zip(step.on_device, floors, usual, strict=True)
    ]
    is_whole = [d.sms == g.sms for g, d in zip(gpus, machine.devices, strict=True)]
    costs = _guesses_in_order(costs, gpus, is_whole, needs)
    return replace(
        step,
        on_device=tuple(
            _far_above(cost, floor)
            if isinstance(cost, Duration) and cost.source in GUESSES
            else cost
            for cost, floor in zip(costs, floors, strict=True)
        ),
    )


def _guesses_in_order(
    costs: list[Cost], gpus: Sequence[Gpu], is_whole: Sequence[bool], needs: StepNeeds
) -> list[Cost]:
    """Guesses moved as measured times of other GPUs require, and then as other guesses do."""
    own = {n: cost for n, cost in enumerate(costs) if is_whole[n] and isinstance(cost, Duration)}
    guesses = {n: cost for n, cost in own.items() if cost.source in GUESSES}
    measured = [(gpus[n], cost.ns) for n, cost in own.items() if n not in guesses]
    is_near = any(cost.source is CostSource.NEAR for cost in guesses.values())
    if not is_near and not measured:  # those of the model are in order
        return costs
    rate = order_of(needs, gpus)
    asked = [between_measured(cost.ns, gpus[n], measured, rate) for n, cost in guesses.items()]
    made = list(costs)
    for (n, cost), ns in zip(
        guesses.items(), in_order(asked, [gpus[n] for n in guesses], needs), strict=True
    ):
        if abs(ns / cost.ns - 1.0) > 1e-9:
            error = (1.0 + cost.error) * max(ns / cost.ns, cost.ns / ns) - 1.0
            origin = _joined(cost.origin, "moved, as times of other GPUs contradicted it")
            made[n] = replace(cost, ns=ns, error=error, mark=FloorMark.ORDERED, origin=origin)
    return made


def _possible(cost: Cost, floor: float, usual: float) -> Cost:
    """A duration that is not below its floor, or a measurement that is marked.

    A time by tables takes the `usual` time of its bytes from memory at least.
    """
    if isinstance(cost, Barred):
        return cost
    by_tables = cost.source in (CostSource.TABLE, CostSource.RATIO)
    if cost.ns >= floor and not (by_tables and cost.ns <= usual * _ROUNDED):
        return cost
    if cost.source is CostSource.PROFILE:
        if cost.ns >= (1 - _NOISE) * floor:
            return cost
        why = (
            f"below the {floor / 1e3:.3g} us that its bytes and operations take at the rates of"
            " the data sheet: it was measured with its bytes in a cache, or with other sizes"
        )
        return replace(cost, mark=FloorMark.BELOW, origin=_joined(cost.origin, why))
    if cost.source in GUESSES:
        why = "raised to what its bytes and operations take at least"
        return replace(cost, ns=floor, mark=FloorMark.RAISED, origin=_joined(cost.origin, why))
    why = "raised to the time of its bytes from memory"
    return replace(
        cost,
        ns=max(floor, usual),
        error=max(cost.error, _FROM_MEMORY),
        mark=FloorMark.RAISED,
        origin=_joined(cost.origin, why),
    )


def between_measured(
    ns: float,
    gpu: Gpu,
    measured: Sequence[tuple[Gpu, float]],
    rate: Callable[[Gpu], tuple[float, ...]],
) -> float:
    """A time that is not below that of a better GPU, and not above that of a worse one.

    Where measured times contradict each other, the most alike GPU has the last word.
    """
    times = dict(measured)
    for other in reversed(nearest(gpu, times)):
        if _is_better(rate(other), rate(gpu)):
            ns = max(ns, times[other])
        if _is_better(rate(gpu), rate(other)):
            ns = min(ns, times[other])
    return ns


def _far_above(cost: Duration, floor: float) -> Duration:
    """A guess with a wider bar if it is so far above the floor that something else must decide."""
    if cost.ns <= _FAR * floor:
        return cost
    error = (1.0 + cost.error) * sqrt(cost.ns / (_FAR * floor)) - 1.0
    why = f"{cost.ns / floor:.0f} times what its bytes and operations take at least"
    return replace(cost, error=error, mark=FloorMark.FAR, origin=_joined(cost.origin, why))


def _joined(origin: str, why: str) -> str:
    return f"{origin}; {why}" if origin else why
