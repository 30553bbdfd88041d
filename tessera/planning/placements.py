"""Placements that the user asks for: a strategy by name, a random one, one from a file.

In: `PlanOptions.strategy` or `.placement`. Out: a `Choice` with only that candidate, measured like
all others. A file is a plan, whose replicas are taken over, or lines `STEP=GPU` as in `--pin`,
where later lines win, `*` means all steps and `//` begins a comment.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

from tessera.diagnostics import ExitCode, Source, Span, TesseraError, error
from tessera.frontend.plan.tsp import parse_plan
from tessera.frontend.text.readfile import read_source
from tessera.ir.choices import Ending
from tessera.ir.plan.plan import Plan
from tessera.ir.plan.print_plan import FORMAT
from tessera.planning.division.beside_whole import unusable_strategy
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.prices.adjust_costs import names_device
from tessera.planning.problem.problem import INFINITY, Placement, measure
from tessera.planning.refusals import STAY_TOGETHER
from tessera.planning.roles.role_plans import asked_roles
from tessera.planning.search.candidates import Candidate, candidate_of
from tessera.planning.search.plans import Choice

RANDOM = "random:"
_MOST_DIGITS = 18
_LINES = "write a line `STEP=GPU` for each: `*=a100` (all steps), `m0.linear=l40s`, `#3=l40s-0`"


def given_choice(setting: PlanSetting, attempt: Attempt) -> Choice | None:
    """The requested candidate as the only one; None if none is requested, or if a strategy needs
    fewer slots."""
    options = setting.options
    form = options.form
    if options.placement is None and (form is None or form.is_divided):
        return None
    problem = attempt.planning.problem
    if not all(task.allowed() for task in problem.tasks):
        return None
    if form is not None:
        chosen, reason = asked_roles(setting, attempt) or (form.candidate(problem), "")
        if chosen is None:
            if attempt.slots > 1 and options.slots is None:
                return None
            raise unusable_strategy(form, reason)
    else:
        chosen = _placed(setting, attempt)
    return Choice(objective=options.aim, candidates=(chosen,), bound=0.0, ended=Ending.GIVEN)


def _placed(setting: PlanSetting, attempt: Attempt) -> Candidate:
    asked = setting.options.placement or ""
    problem = attempt.planning.problem
    if asked.startswith(RANDOM):
        parts: Sequence[tuple[Placement, float]] = ((_random(setting, attempt, asked), 1.0),)
    else:
        parts = _from_file(setting, attempt, asked)
    chosen = candidate_of(problem, setting.options.placement_name() or "", tuple(parts))
    if chosen.period_ns == INFINITY:
        for placement, _ in parts:
            measured = measure(problem, placement)
            for used, room in zip(measured.memory, problem.rooms, strict=True):
                if used > room.bytes:
                    raise _unusable(
                        f"the placement `{asked}` does not fit: `{room.name}` would need {used} "
                        f"bytes and has {room.bytes}"
                    )
        raise _unusable(f"the placement `{asked}` cannot run: no link, or not enough memory")
    return chosen


def _random(setting: PlanSetting, attempt: Attempt, asked: str) -> Placement:
    seed = asked.removeprefix(RANDOM)
    if not (seed.isascii() and seed.isdecimal() and len(seed) <= _MOST_DIGITS):
        raise _unusable(f"`{asked}` is no placement", "write `random:` and a number", code=1)
    generator = random.Random(int(seed))
    return tuple(generator.choice(task.allowed()) for task in attempt.planning.problem.tasks)


# --- files -------------------------------------------------------------------------------------


def _from_file(
    setting: PlanSetting, attempt: Attempt, path: str
) -> tuple[tuple[Placement, float], ...]:
    source = read_source(path)
    if source.text.lstrip().startswith(FORMAT):
        rows = list(_of_plan(setting, parse_plan(source.text, path), path))
    else:
        rows = [(_of_lines(setting, source), 1.0)]
    return tuple((_of_steps(setting, attempt, devices, path), rate) for devices, rate in rows)


def _of_plan(setting: PlanSetting, plan: Plan, path: str) -> Iterator[tuple[list[int], float]]:
    index = {device.name: int(device.id) for device in setting.machine.devices}
    if [trace.digest for trace in plan.traces] != [t.planned.digest for t in setting.traces]:
        raise _unusable(f"`{path}` is a plan of other traces", code=1)
    if [trace.division for trace in plan.traces] != [t.planned.division for t in setting.traces]:
        raise _unusable(f"`{path}` divides steps in another way than asked for", code=1)
    for replica in plan.replicas:
        names = [step.device for placed in replica.traces for step in placed.steps]
        missing = sorted(set(names) - set(index))
        if missing:
            raise _unusable(f"`{path}` is for `{missing[0]}`, which the machine lacks", code=1)
        yield [index[name] for name in names], replica.share


def _of_lines(setting: PlanSetting, source: Source) -> list[int]:
    steps = [
        (trace.planned.name, step)
        for trace, costs in zip(setting.traces, setting.costs, strict=True)
        for step in costs.steps
    ]
    devices_of: list[int | None] = [None] * len(steps)
    offset = 0
    for line in source.text.split("\n"):
        rule = line.partition("//")[0].strip()
        span = Span(source, offset, offset + max(len(line), 1))
        offset += len(line) + 1
        if not rule:
            continue
        pattern, _, device = rule.rpartition("=")
        named = [
            d for d in setting.machine.devices if names_device(setting.machine, d, device.strip())
        ]
        if len(named) != 1:
            headline = f"`{device.strip()}` is not one GPU of the machine"
            raise TesseraError(error("TSR3017", headline, span, hint=_LINES))
        matched = False
        for at, (trace, step) in enumerate(steps):
            own = pattern.strip().removeprefix(f"{trace}:")
            if own == f"#{step.step}" or fnmatchcase(step.name, own):
                devices_of[at], matched = int(named[0].id), True
        if not matched:
            headline = f"`{pattern.strip()}` names no step"
            raise TesseraError(error("TSR3017", headline, span, hint=_LINES))
    unplaced = next((at for at, device in enumerate(devices_of) if device is None), None)
    if unplaced is not None:
        trace, step = steps[unplaced]
        raise _unusable(
            f"`{source.name}` does not place step #{step.step} `{step.name}` of `{trace}`",
            "a first line `*=GPU` places all steps",
            code=1,
        )
    return [device for device in devices_of if device is not None]


def _of_steps(setting: PlanSetting, attempt: Attempt, devices: list[int], path: str) -> Placement:
    """A device per task from one per step; steps of one task must agree."""
    planning = attempt.planning
    if len(devices) != len(planning.task_of):
        raise _unusable(f"`{path}` places another number of steps", code=1)
    device_of: dict[int, int] = {}
    for step, (task, device) in enumerate(zip(planning.task_of, devices, strict=True)):
        name = planning.problem.tasks[task].name
        if device_of.setdefault(task, device) != device:
            raise _unusable(
                f"`{path}` puts steps apart that must stay together: step {step}, of `{name}`",
                STAY_TOGETHER,
                code=1,
            )
        if planning.problem.tasks[task].ns[device] is None:
            raise _unusable(
                f"`{path}` puts `{name}` on `{setting.machine.devices[device].name}`, "
                "which cannot run it"
            )
    return tuple(device_of[task] for task in range(len(planning.problem.tasks)))


def _unusable(headline: str, hint: str | None = None, code: int = ExitCode.NO_PLAN) -> TesseraError:
    return TesseraError(error("TSR3017", headline, hint=hint), exit_code=code)
