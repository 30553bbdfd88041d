"""`--cut` and `--twin`: how the user wants steps to be divided.

In: analysed traces and `PlanOptions`. Out: an `AskedDivision` for each trace, whose cuts are legal
and whose twins may be twins. Shares are parts of 1, which are rounded to the nearest legal edges,
or counts, which have to be legal as they are. What cannot be done gets one error with the reason
and the nearest legal cut (TSR3029).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import isclose

from tessera.diagnostics import TesseraError
from tessera.driver.analyses import remembering
from tessera.frontend.plan.tsp import read_plan
from tessera.frontend.text.readfile import read_source
from tessera.ir.plan.division import Cut, Division, Twin, parts_of
from tessera.ir.plan.print_plan import FORMAT
from tessera.ir.program.program import Work
from tessera.ir.program.step_names import meant_name, named_steps, work_name
from tessera.passes.base import AnalysisManager
from tessera.passes.division.legal_cuts import CutAxis, StepCuts, cuts_of, for_every_arch, why_not
from tessera.passes.division.twins import TwinRules
from tessera.planning.given.options import PlanOptions
from tessera.planning.given.setting import AskedDivision, LoadedTrace
from tessera.planning.placements import RANDOM
from tessera.wording import Wording

_CUT = re.compile(r"(.+):([a-z_]+)=([^=]+)")
_SHARE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:@(.+))?")
_HOW_CUT = "write `STEP:AXIS=SHARES`, such as `gemm:x=0.6,0.4` or `12:x=96,32`"
_SLACK = 1e-6


@dataclass(frozen=True, slots=True)
class _Shares:
    """The shares of a cut as typed: parts of 1 or counts, with GPUs where some are named."""

    axis: str
    amounts: tuple[float, ...]
    gpus: tuple[str, ...]
    are_counts: bool

    def spelled(self, option: str, counts: Sequence[int]) -> str:
        """The option with other counts, for a hint."""
        step = option.rpartition("=")[0].rpartition(":")[0]
        shares = (
            f"{count}@{gpu}" if gpu else f"{count}"
            for count, gpu in zip(counts, self.gpus, strict=True)
        )
        return f"`--cut {step}:{self.axis}={','.join(shares)}`"


def asked_divisions(
    traces: Sequence[LoadedTrace], options: PlanOptions
) -> tuple[AskedDivision, ...]:
    """The divisions that options ask for, one for each trace; none if they ask for none."""
    if not options.cuts and not options.twins:
        return _of_placement(traces, options)
    asked = [_Asked(trace) for trace in traces]
    for option in options.cuts:
        shares = _shares(option)
        step = option.rpartition("=")[0].rpartition(":")[0]
        for own, number in _named(asked, step, f"--cut {option}"):
            own.cut(number, shares, option)
    devices = [device.name for device in options.find_machine().devices]
    for option in options.twins:
        step, _, gpus = option.partition("=")
        for own, number in _named(asked, step, f"--twin {option}"):
            own.twin(number, gpus.split(",") if gpus else devices, option)
    return tuple(own.division() for own in asked)


def _of_placement(traces: Sequence[LoadedTrace], options: PlanOptions) -> tuple[AskedDivision, ...]:
    """The divisions of the plan that steps are to be placed as in, if it is one of these traces."""
    if options.placement is None or options.placement.startswith(RANDOM):
        return ()
    source = read_source(options.placement)
    if not source.text.lstrip().startswith(FORMAT):
        return ()
    planned = read_plan(source).plan.traces
    if [trace.digest for trace in planned] != [trace.planned.digest for trace in traces]:
        return ()
    divided = any(trace.division for trace in planned)
    return tuple(AskedDivision(trace.division) for trace in planned if divided)


def _shares(option: str) -> _Shares:
    match = _CUT.fullmatch(option)
    shares = [_SHARE.fullmatch(share) for share in match[3].split(",")] if match else []
    known = [share for share in shares if share is not None]
    if match is None or len(known) != len(shares):
        raise _wrong(f"`--cut {option}` is not well formed", _HOW_CUT)
    amounts = tuple(float(share[1]) for share in known)
    are_counts = not any("." in share[1] for share in known)
    if len(amounts) < 2 or min(amounts) <= 0:
        raise _wrong(f"`--cut {option}` has no two shares above zero", _HOW_CUT)
    if not are_counts and not isclose(sum(amounts), 1.0, abs_tol=_SLACK):
        near = ",".join(f"{amount / sum(amounts):.3g}" for amount in amounts)
        headline = f"the shares of `--cut {option}` add up to {sum(amounts):.6g}, not to 1"
        raise _wrong(headline, f"in proportion they are {near}")
    gpus = tuple(share[2] or "" for share in known)
    return _Shares(match[2], amounts, gpus, are_counts)


def _named(asked: Sequence[_Asked], step: str, option: str) -> list[tuple[_Asked, int]]:
    """The steps of all traces that a text names."""
    steps = [
        (own, number)
        for own in asked
        for number in named_steps(own.trace.program, own.without_name(step))
    ]
    if not steps:
        near = meant_name(asked[0].trace.program, step)
        last = len(asked[0].work) - 1
        hint = f"did you mean `{near}`?" if near else f"steps are #0 to #{last}, or kernels"
        raise _wrong(f"`{option}` names no step", hint)
    return steps


class _Asked:
    """What is asked for one trace."""

    def __init__(self, trace: LoadedTrace) -> None:
        self.trace = trace
        self.work: tuple[Work, ...] = tuple(trace.program.work())
        self._manager: AnalysisManager | None = None
        self._rules: TwinRules | None = None
        self._known: dict[int, StepCuts] = {}
        self._cuts: dict[int, tuple[Cut, ...]] = {}
        self._twins: dict[int, Twin] = {}
        self._gpus: dict[int, Sequence[str]] = {}

    @property
    def manager(self) -> AnalysisManager:
        if self._manager is None:
            self._manager = remembering(self.trace.program)
        return self._manager

    def without_name(self, step: str) -> str:
        """The name of a step without that of the trace before it."""
        return step.removeprefix(f"{self.trace.planned.name}:")

    def cut(self, step: int, shares: _Shares, option: str) -> None:
        """Cut a step by shares."""
        self._check_new(step, f"--cut {option}")
        axis = self._axis(step, shares.axis, option)
        edges = self._edges(step, shares, axis, option)
        cut = Cut(step=step, axis=axis.axis, edges=edges)
        made = for_every_arch(self.manager, cut)
        reason = made if isinstance(made, Wording) else why_not(self.manager, *made)
        if isinstance(made, Wording) or reason is not None:
            raise self._refused(step, option, f"{reason}")
        self._cuts[step] = tuple(sorted(made, key=lambda one: one.arch))
        self._gpus[step] = shares.gpus

    def _axis(self, step: int, name: str, option: str) -> CutAxis:
        if step not in self._known:
            (self._known[step],) = cuts_of(self.manager, [step])
        known = self._known[step]
        axis = known.axis(name)
        if axis is None:
            reasons = (refused.reason for refused in known.refused if refused.axis in (name, ""))
            reason = next(reasons, Wording(f"it has no axis `{name}` along which it can be cut"))
            able = (f"`{a.axis}` ({a.extent}, multiples of {a.multiple})" for a in known.axes)
            listed = ", ".join(able)
            hint = f"it can be cut along {listed}" if listed else None
            raise self._refused(step, option, f"{reason}", hint)
        return axis

    def _edges(self, step: int, shares: _Shares, axis: CutAxis, option: str) -> tuple[int, ...]:
        total = sum(shares.amounts)
        places = [
            round(edge * axis.extent / total / axis.multiple) * axis.multiple
            for edge in accumulate(shares.amounts[:-1])
        ]
        near = (0, *places, axis.extent)
        if len(set(near)) < len(near) or min(places) <= 0 or max(places) >= axis.extent:
            units = -(-axis.extent // axis.multiple)
            reason = f"a share is less than one of the {units} units of `{axis.axis}`"
            if len(shares.amounts) > units:
                raise self._refused(step, option, reason, f"{units} parts are the most")
            counts = _least_one(shares.amounts, axis, units)
            hint = f"the nearest legal cut is {shares.spelled(option, counts)}"
            raise self._refused(step, option, reason, hint)
        if not shares.are_counts:
            return near
        edges = (0, *map(int, accumulate(shares.amounts)))
        if edges[-1] != axis.extent or any(edge % axis.multiple for edge in edges[:-1]):
            counts = [end - first for first, end in pairwise(near)]
            reason = f"its {axis.extent} of `{axis.axis}` are cut at multiples of {axis.multiple}"
            if edges[-1] != axis.extent:
                reason = f"the shares add up to {edges[-1]}, and `{axis.axis}` has {axis.extent}"
            hint = f"the nearest legal cut is {shares.spelled(option, counts)}"
            raise self._refused(step, option, reason, hint)
        return edges

    def twin(self, step: int, gpus: Sequence[str], option: str) -> None:
        """Let several GPUs do a step."""
        self._check_new(step, f"--twin {option}")
        name = work_name(self.work[step])
        if len(set(gpus)) < 2 or len(set(gpus)) < len(gpus):
            headline = f"`--twin {option}`: twins of step #{step} `{name}` need different GPUs"
            raise _wrong(headline, "name two or more, such as `norm=a100,l40s`")
        if self._rules is None:
            self._rules = TwinRules(self.trace.program, self.trace.graph)
        if (reason := self._rules.why_not(step)) is not None:
            raise _wrong(f"`--twin {option}`: step #{step} `{name}` has no twins: {reason}")
        self._twins[step] = Twin(step, len(gpus))
        self._gpus[step] = gpus

    def _check_new(self, step: int, option: str) -> None:
        if step in self._gpus:
            name = work_name(self.work[step])
            raise _wrong(f"`{option}` divides step #{step} `{name}` a second time")

    def _refused(
        self, step: int, option: str, reason: str, hint: str | None = None
    ) -> TesseraError:
        name = work_name(self.work[step])
        return _wrong(f"`--cut {option}`: step #{step} `{name}` cannot be cut so: {reason}", hint)

    def division(self) -> AskedDivision:
        """All of it."""
        cuts = tuple(cut for step in sorted(self._cuts) for cut in self._cuts[step])
        twins = tuple(self._twins[step] for step in sorted(self._twins))
        division = Division(cuts, twins)
        gpus = (
            (part.step, gpu)
            for part in parts_of(len(self.work), division)
            if part.count > 1 and (gpu := self._gpus[part.origin][part.index])
        )
        return AskedDivision(division, tuple(gpus))


def _least_one(amounts: Sequence[float], axis: CutAxis, units: int) -> list[int]:
    """Counts in proportion to shares, with one unit for each share at least."""
    counts = [max(1, round(amount / sum(amounts) * units)) for amount in amounts]
    while sum(counts) != units:
        step = 1 if sum(counts) < units else -1
        counts[counts.index(max(counts))] += step
    sizes = [count * axis.multiple for count in counts]
    return [*sizes[:-1], axis.extent - sum(sizes[:-1])]


def _wrong(headline: str, hint: str | None = None) -> TesseraError:
    return TesseraError.of("TSR3029", headline, hint=hint)
