"""A bound on all plans, divided or not: every step at its least time per share, on any devices.

In: a `Problem` of whole steps, and the ways of each step. Out: the least value of an objective.

A step that may be cut uses all devices at once: its time is that of shares which end together, at
the best time per share that the whole or a part of it reaches. Weights and states are free as far
as no device has to hold more than its share.

Exchanges are free where there are more than two devices. Between two, the relaxation of the integer
program holds for shares of steps, too, as far as parts are even: if a part needs at least its share
of what another step writes, and a part of that one writes at most its share, then a device lacks at
least the difference of its shares in both. It is sent, or the device is a twin of the writer, whose
time then counts there. What is uneven is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tessera.ir.objectives import Figure, Objective, PlanFigures
from tessera.planning.bound.class_model import class_bound
from tessera.planning.division.ways import Masks, StepWays, TraceWays, masked_bytes
from tessera.planning.problem.problem import INFINITY, Problem, Tensor
from tessera.planning.search.latency import bound_of_requests
from tessera.planning.search.plans import subset_problems
from tessera.planning.search.solve import lower_bound

_ROUNDED = 1e-6


def divided_bound(problem: Problem, traces: Sequence[TraceWays], objective: Objective) -> float:
    """The least value of an objective; `problem` has the whole steps of all traces, in order."""
    single = problem if problem.detail is None else problem.detail.problem
    steps = [step for trace in traces for step in trace.steps]
    devices = range(len(single.devices))
    shared = replace(
        single,
        tasks=tuple(
            replace(task, ns=tuple(step.least_ns(device) for device in devices))
            for task, step in zip(single.tasks, steps, strict=True)
        ),
    )
    figures = {figure: _least_figure(figure, shared, traces) for figure in objective.figures}
    return objective.value(
        PlanFigures(
            period_ns=figures.get(Figure.PERIOD, 0.0),
            latency_ns=figures.get(Figure.LATENCY, 0.0),
            usd_per_request=figures.get(Figure.MONEY, 0.0),
        )
    )


def _least_figure(figure: Figure, problem: Problem, traces: Sequence[TraceWays]) -> float:
    match figure:
        case Figure.PERIOD:
            least = class_bound(problem, None)
            if len(problem.devices) == 2 and least < INFINITY:
                least = max(least, lower_bound(_with_exchanges(problem, traces)))
            return least
        case Figure.LATENCY:
            return bound_of_requests(_as_one_device(problem, traces))
        case Figure.MONEY:
            priced = (price * class_bound(part, None) for part, price in subset_problems(problem))
            return min(priced, default=INFINITY)


def _as_one_device(problem: Problem, traces: Sequence[TraceWays]) -> Problem:
    """The problem on one device that does each step as fast as all devices together can."""
    steps = [step for trace in traces for step in trace.steps]
    return Problem(
        devices=("all",),
        tasks=tuple(
            replace(task, ns=(_together(task.ns, can_be_cut=step.can_be_cut),))
            for task, step in zip(problem.tasks, steps, strict=True)
        ),
        tensors=problem.tensors,
    )


def _together(times: Sequence[float | None], *, can_be_cut: bool) -> float | None:
    known = [max(ns, 1e-3) for ns in times if ns is not None]
    if not can_be_cut or not known:
        return min(known, default=None)
    return 1.0 / sum(1.0 / ns for ns in known)


def _with_exchanges(problem: Problem, traces: Sequence[TraceWays]) -> Problem:
    """The problem with the tensors between even parts; memory is in the bound by classes."""
    places = [(trace, step) for trace in traces for step in range(len(trace.steps))]
    buffers = {id(trace): {b.name: int(b.id) for b in trace.program.buffers} for trace in traces}
    tensors = []
    for tensor in problem.tensors:
        trace, producer = places[tensor.producer]
        buffer = buffers[id(trace)][tensor.name.rpartition("@")[0]]
        readers = tuple(
            reader
            for reader in tensor.consumers
            if _is_even(trace, producer, places[reader][1], buffer, tensor)
        )
        if readers:
            again = any(way.is_twin for way in trace.steps[producer].ways)
            tensors.append(replace(tensor, consumers=readers, again=again))
    return replace(problem, tensors=tuple(tensors), residents=())


def _is_even(trace: TraceWays, writer: int, reader: int, buffer: int, tensor: Tensor) -> bool:
    """Whether the shares of parts bound what is sent of a tensor from one step to another."""
    made, read = trace.steps[writer], trace.steps[reader]
    common = _mask(made.ways[0].sides[0].writes, buffer) & _mask(
        read.ways[0].sides[0].needs, buffer
    )
    sizes = trace.sizes.get(buffer, ())
    whole = masked_bytes(sizes, common)
    if whole > tensor.bytes * (1 + _ROUNDED):  # other bytes go by another tensor
        return False
    needed = all(
        masked_bytes(sizes, mask & common) >= share * whole * (1 - _ROUNDED)
        for mask, share in _parts(read, buffer, writes=False)
    )
    return needed and all(
        masked_bytes(sizes, mask & common) <= share * whole * (1 + _ROUNDED)
        for mask, share in _parts(made, buffer, writes=True)
    )


def _parts(step: StepWays, buffer: int, *, writes: bool) -> list[tuple[int, float]]:
    """The grains of a buffer that parts of a step touch, and the share of each part."""
    return [
        (0 if side is None else _mask(side.writes if writes else side.needs, buffer), share)
        for way in step.ways
        if way.axis is not None
        for side, share in zip(way.sides, (way.first_share, 1.0 - way.first_share), strict=True)
    ]


def _mask(masks: Masks, buffer: int) -> int:
    return next((mask for own, mask in masks if own == buffer), 0)
