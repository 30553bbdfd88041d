"""`PlanOptions`: the options of a plan, the same record for the command line and the library."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from tessera.diagnostics import TesseraError, error
from tessera.frontend.machine.gpus import DEFAULT_LINK, machine_of
from tessera.frontend.machine.quantities import format_time, parse_bytes
from tessera.ir.objectives import OBJECTIVES, PAIR, THROUGHPUT, Objective
from tessera.ir.options import WrongOption
from tessera.ir.plan.machine import Machine
from tessera.ir.plan.tables import LIBRARIES
from tessera.ir.progress import OnProgress, StageProgress
from tessera.planning.search.strategies import PLAN_STRATEGIES, Strategy

SEARCHING = "searching"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of a plan. `machine`, a machine or the path of a machine file, overrides `gpus`.

    `prices` and `memory` are pairs, or strings as users type them: `a100=1.80`, `l40s=40GB`.
    Without `slots` or `sequences`, as many are used as pay, within memory. `strategy` selects the
    best plan of one form in place of the best of all; `placement`, `random:SEED` or a file, selects
    that placement. `tables` looks up durations in tables of measured kernel times where available.
    `library` is the library whose kernels will run, if it is known; bars are narrower then.
    `states_alike` asks for two policies whose states are on the same devices. `pins` and `forbids`
    are `STEP=GPU`. `cuts` (`STEP:AXIS=SHARE[@GPU],...`) and `twins` (`STEP[=GPU,...]`) divide steps
    as asked for; the search then divides no others. `seconds` ends the search by the clock, which
    makes a plan depend on the machine that makes it; without it only counts end it. `tpot_ns` is
    the longest mean time per token where requests are texts.
    """

    gpus: str | None = None
    machine: Machine | str | None = None
    link: str = DEFAULT_LINK
    objective: str = THROUGHPUT
    strategy: str | None = None
    placement: str | None = None
    slots: int | None = None
    sequences: int | None = None
    gap: float = 0.001
    seconds: float | None = None
    prices: tuple[tuple[str, float] | str, ...] = ()
    memory: tuple[tuple[str, int] | str, ...] = ()
    profiles: tuple[str, ...] = ()
    tables: bool = True
    library: str | None = None
    pins: tuple[str, ...] = ()
    forbids: tuple[str, ...] = ()
    cuts: tuple[str, ...] = ()
    twins: tuple[str, ...] = ()
    states_alike: bool = False
    tpot_ns: float | None = None
    data_root: str | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise WrongOption(f"{{objective}} is one of {', '.join(OBJECTIVES)}")
        counts = [count for count in (self.slots, self.sequences) if count is not None]
        if min(counts, default=1) < 1 or not self.gap >= 0:
            raise WrongOption("{slots} and {sequences} are at least 1, {gap} at least 0")
        if self.strategy is not None and self.strategy not in PLAN_STRATEGIES:
            raise WrongOption(f"{{strategy}} is one of {', '.join(PLAN_STRATEGIES)}")
        if self.seconds is not None and not 0 < self.seconds < inf:
            raise WrongOption("{seconds} is a number above 0")
        if self.library is not None and self.library not in LIBRARIES:
            raise WrongOption(f"{{library}} is one of {', '.join(LIBRARIES)}")
        if self.library is not None and not self.tables:
            raise WrongOption("{library} names the library of tables: not without {tables}")
        if self.tpot_ns is not None and not 0 < self.tpot_ns < inf:
            raise WrongOption("a limit is a time above 0")
        if self.strategy is not None and self.placement is not None:
            raise WrongOption("{strategy} and {placement} exclude each other")
        if self.objective == PAIR and (self.strategy or self.placement):
            raise WrongOption(f"`{PAIR}` needs a search: no {{strategy}}, no {{placement}}")
        form = self.form
        if (self.cuts or self.twins) and form is not None and form.is_divided:
            raise WrongOption("{strategy} divides steps itself: no {cuts}, no {twins}")
        if self.states_alike and self.objective != PAIR:
            raise WrongOption(f"{{states_alike}} is for `{PAIR}`")
        self.overrides()

    def check_one_machine(self) -> None:
        """Refuse two machines, or changes to a machine file, on the command line.

        Programs may combine them: they replace the machine of given options.
        """
        if (self.gpus is None) == (self.machine is None):
            raise WrongOption("give the GPUs with either {gpus} or {machine}")
        is_changed = self.prices or self.memory or self.link != DEFAULT_LINK
        if self.machine is not None and is_changed:
            raise WrongOption("a machine file says links, prices and memory itself")

    @property
    def aim(self) -> Objective:
        """The objective named by its option."""
        return Objective.named(self.objective)

    @property
    def form(self) -> Strategy | None:
        """The strategy named by its option, if there is one."""
        return None if self.strategy is None else Strategy.named(self.strategy)

    def text(self) -> str:
        """The canonical text of the options that decide the plan, without machine and traces."""
        chosen = (
            ("objective", self.objective),
            ("strategy", self.strategy),
            ("placement", self.placement_name()),
            ("slots", self.slots or "auto"),
            ("lanes", self.sequences or "auto"),  # the name used in plan files
            ("gap", repr(self.gap)),
            ("seconds", self.seconds),
            ("tables", None if self.tables else "none"),
            ("library", self.library),
            ("states", "alike" if self.states_alike else None),
            ("tpot_ns", None if self.tpot_ns is None else repr(self.tpot_ns)),
            *(("pin", rule) for rule in self.pins),
            *(("forbid", rule) for rule in self.forbids),
            *(("cut", rule) for rule in self.cuts),
            *(("twin", rule) for rule in self.twins),
        )
        return f"plan{{{','.join(f'{key}={value}' for key, value in chosen if value is not None)}}}"

    def placement_name(self) -> str | None:
        """The name of a given placement; for a file, its name without the folder."""
        return None if self.placement is None else os.path.basename(self.placement)

    def find_machine(self) -> Machine:
        """The machine that the options give or name."""
        if isinstance(self.machine, str):
            from tessera.frontend.machine.machine_file import parse_machine
            from tessera.frontend.text.readfile import read_source

            return parse_machine(read_source(self.machine).text, self.machine)
        if self.machine is not None:
            return self.machine
        prices, memory = self.overrides()
        return machine_of(self.gpus or "", self.link, prices=prices, memory=memory)

    def overrides(self) -> tuple[dict[str, float], dict[str, int]]:
        """Prices and sizes of memory by GPU."""
        return dict(map(_price, self.prices)), dict(map(_memory, self.memory))


def _price(given: tuple[str, float] | str) -> tuple[str, float]:
    if not isinstance(given, str):
        return given
    name, _, value = given.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise _bad_override("--price", given, "a100=1.80") from None


def _memory(given: tuple[str, int] | str) -> tuple[str, int]:
    if not isinstance(given, str):
        return given
    name, _, value = given.partition("=")
    size = parse_bytes(value)
    if size is None:
        raise _bad_override("--memory", given, "l40s=40GB")
    return name, size


def _bad_override(option: str, text: str, example: str) -> TesseraError:
    return TesseraError(
        error(
            "TSR3002", f"`{option} {text}` is not well formed", hint=f"write `{option} {example}`"
        )
    )


@dataclass(frozen=True, slots=True)
class Watch:
    """Listeners and limits of a search for a plan.

    `on_progress` receives the stage and its progress; while a search runs, also its best plan and
    its bound. The search ends with the best found so far once `should_stop()` is true, or
    `time.perf_counter()` is past the `deadline`.
    """

    on_progress: OnProgress | None = None
    should_stop: Callable[[], bool] | None = None
    deadline: float | None = None

    def within(self, seconds: float | None) -> Watch:
        """A watch with a deadline this many seconds from now, for all searches together."""
        return self if seconds is None else replace(self, deadline=time.perf_counter() + seconds)

    def seconds_left(self) -> float | None:
        """Seconds until the deadline, a tenth at least; None without one."""
        return None if self.deadline is None else max(0.1, self.deadline - time.perf_counter())

    def stopped(self) -> bool:
        """Whether the search must end: the caller asks for it, or the deadline is past."""
        wished = self.should_stop is not None and self.should_stop()
        return wished or (self.deadline is not None and time.perf_counter() >= self.deadline)

    def tell(self, stage: str, note: str = "") -> None:
        """Report the current stage."""
        if self.on_progress is not None:
            self.on_progress(StageProgress(stage, note=note))

    def tell_search(self, bound_ns: float, best_ns: float) -> None:
        """Report the progress of a search; `best_ns` is infinite until a plan is found."""
        best = "none yet" if best_ns == float("inf") else format_time(best_ns)
        gap = f", gap {best_ns / bound_ns - 1:.2%}" if bound_ns > 0 and best_ns < 1e300 else ""
        self.tell(SEARCHING, f"best {best}, bound {format_time(bound_ns)}{gap}")
