"""Find a plan: gather candidates, rank, lower and prove them; fewer slots if memory is short.

In: a `PlanSetting`. Out: a `Decision`. `find_plan` is the loop; `choose_best` gathers and ranks. A
candidate becomes a plan only if its launch programs fit the memory and `passes.checker.check_plan`
proves them; otherwise the next best is taken, with a diagnostic. So every returned plan is proved.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tessera.diagnostics import Diagnostic
from tessera.ir.choices import Ending
from tessera.ir.plan.plan import Plan
from tessera.ir.progress import counter
from tessera.planning.attempts import (
    attempt_with,
    attempts,
    bound_of_any,
    runs_alone,
    what_fits,
    with_fewer_slots,
)
from tessera.planning.bound.relax import spread_bound
from tessera.planning.choose_best import choose_best
from tessera.planning.division import beside_whole
from tessera.planning.division.divided_promises import DividedPlans, Divider
from tessera.planning.given.options import SEARCHING, Watch
from tessera.planning.given.setting import Attempt, PlanSetting
from tessera.planning.given.setting_problem import host_ns
from tessera.planning.problem.limits import SearchWatch
from tessera.planning.problem.problem import INFINITY, Problem
from tessera.planning.promise.assemble import assemble
from tessera.planning.promise.contention import has_neighbours
from tessera.planning.promise.doubt import Doubt, doubt, interval, splits
from tessera.planning.promise.promise import Promise, promises
from tessera.planning.refusals import (
    Refused,
    findings_of,
    no_plan,
    none_left,
    refusals_of,
    was_ended,
)
from tessera.planning.roles.role_plans import role_bound
from tessera.planning.search.candidates import (
    Candidate,
    busiest_ns,
    candidate_of,
    slots_needed,
    splits_requests,
)
from tessera.planning.search.plans import Choice
from tessera.planning.search.small import is_small
from tessera.planning.search.strategies import KERNEL

MOST_SLOTS = 64
_NEAR, _NEAR_IF_LARGE, _LARGE_TASKS = 1.002, 1.03, 1_000
PROVING, DIVIDING = "proving the plan", "dividing steps"
SIMULATING = "simulating what was found"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A proved plan, its candidate, and the candidates it was chosen from.

    `setting` has the times of the plan. `split` is the best split as simulated, or the plan if
    there is none. `promise` is the plan as simulated, if it is one plan, and `others` are what it
    is compared with.
    """

    plan: Plan
    setting: PlanSetting
    attempt: Attempt
    choice: Choice
    chosen: Candidate
    diagnostics: tuple[Diagnostic, ...]
    doubt: Doubt | None = None
    split: Promise | None = None
    promise: Promise | None = None
    others: tuple[Promise, ...] = ()


def find_plan(setting: PlanSetting, watch: Watch) -> Decision:
    """The best plan that fits and is proved; raises with exit code 3 if there is none."""
    refused: list[Refused] = []
    attempt = None
    watch.stopped()
    divider = Divider(setting) if beside_whole.may_divide(setting) else None
    for attempt in attempts(setting):
        watch.tell(SEARCHING, f"{attempt.slots} slots")
        choice = choose_best(setting, attempt, setting.options.aim, watch)
        tried, made, divided = Tried(), list[Promise](), None
        if choice is not None:
            tried, made = _as_they_would_run(setting, attempt, choice, watch)
        elif attempt.slots > 1 and setting.options.slots is None:
            continue  # fewer slots come before parts
        if divider is not None and not beside_whole.leaves_nothing(setting, attempt, made):
            watch.tell(DIVIDING)
            divided = divider.plans(attempt, watch, made)
            made, choice = beside_whole.with_divided(setting, made, choice, divided)
        if choice is None:
            continue
        bound = _bound_of_all(setting, attempt, choice, tried, made, divided, watch)
        ranked, doubted = _settled(_ranked(setting, made, choice), choice)
        watch.tell(PROVING)
        decision = _first_proved(ranked, replace(choice, bound=bound), refused, doubted)
        if decision is not None:
            return decision
    assert attempt is not None
    if refused:
        raise none_left(refused)
    beside_whole.check_form(setting)
    raise no_plan(attempt.planning, setting.costs, setting.machine, what_fits(setting))


Tried = list[tuple[Attempt, Choice]]


def _as_they_would_run(
    setting: PlanSetting, attempt: Attempt, choice: Choice, watch: Watch
) -> tuple[Tried, list[Promise]]:
    """Lower and simulate candidates, also those of other numbers of slots; best first."""
    if choice.ended is Ending.INTERRUPTED:
        choice = _briefly(choice)
    count = counter(watch.on_progress, SIMULATING, "candidates")
    made = promises(setting, [(attempt, choice)], choice.objective, count=count)
    more = [] if _is_near(made, choice) else _with_more_slots(setting, attempt, choice, watch)

    def again(fewer: Attempt) -> Choice | None:
        return choose_best(setting, fewer, setting.options.aim, watch)

    tried = [(attempt, choice), *more, *with_fewer_slots(setting, attempt, choice, again)]
    made = promises(setting, tried[1:], choice.objective, count=count, before=made)
    return tried, made


def _bound_of_all(
    setting: PlanSetting,
    attempt: Attempt,
    choice: Choice,
    tried: Tried,
    made: Sequence[Promise],
    divided: DividedPlans | None,
    watch: Watch,
) -> float:
    """A bound on plans with any number of slots, divided or not."""
    is_search = choice.ended is not Ending.GIVEN
    bound = min((searched.bound for _, searched in tried), default=INFINITY)
    if attempt.least_ns is not None:
        bound = attempt.least_ns
    elif is_search and tried:
        bound = min(bound, bound_of_any(setting, attempt, choice.objective, watch))
    if divided is not None:
        bound = min(bound, divided.bound)
    elif is_search and choice.objective.is_rate and beside_whole.may_divide(setting):
        bound = min(bound, spread_bound(attempt.planning.problem))
    if any(promise.chosen.roles is not None for promise in made):
        bound = min(bound, role_bound(setting, SearchWatch(deadline=watch.deadline)))
    if choice.objective.is_rate and is_search:
        bound = max(bound, host_ns(setting))
    return bound


def _is_near(made: list[Promise], choice: Choice) -> bool:
    """Whether another search can gain little: the best candidate, simulated, is near the bound."""
    tasks = len(choice.best.replicas[0].placement)
    near = _NEAR_IF_LARGE if tasks > _LARGE_TASKS else _NEAR
    best = min(promise.chosen.value(choice.objective) for promise in made)
    return choice.ended != Ending.GIVEN and best <= near * choice.bound


def _briefly(choice: Choice) -> Choice:
    """Only the best candidate and the best without a split, because the user asked to stop."""
    whole = [c for c in choice.candidates if not splits_requests(c)]
    return replace(choice, candidates=tuple(dict.fromkeys((choice.best, *whole[:1]))))


def _ranked(setting: PlanSetting, made: list[Promise], choice: Choice) -> list[Promise]:
    """The requested promise first, then the others, best first."""
    if choice.ended != Ending.GIVEN:
        return _with_best_split(made)
    rivals = [p for p in made if p.chosen.name == choice.best.name]
    if setting.options.strategy == KERNEL:
        rivals = [p for p in made if splits_requests(p.chosen)] or rivals
    asked = rivals[0].named(choice.best.name)
    others = [p for p in made if p.chosen.replicas != asked.chosen.replicas]
    return [asked, *(p for p in others if p.chosen.name != asked.chosen.name)]


def _with_best_split(made: list[Promise]) -> list[Promise]:
    """Make the row `kernel` the best split, even if it has the form of another strategy."""
    best = next((p for p in made if splits_requests(p.chosen) and not p.is_divided), None)
    if best is None or best.chosen.name == KERNEL:
        return made
    rows = [p for p in made if p.chosen.name != KERNEL]
    rows.insert(rows.index(best) + 1, best.named(KERNEL))
    return rows


def _settled(ranked: list[Promise], choice: Choice) -> tuple[list[Promise], Doubt | None]:
    """The best split whose gain exceeds the errors of the times; without one, no split.

    On a better machine, the best split may be in doubt while one ranked behind it is not.
    """
    rival = next((p for p in ranked if not splits(p)), None)
    if not splits(ranked[0]) or rival is None:
        return ranked, None
    first: Doubt | None = None
    for split in ranked[: ranked.index(rival)]:
        doubted = doubt(split, rival, choice.objective)
        if choice.ended == Ending.GIVEN or doubted.is_sure:
            return [split, *(p for p in ranked if p is not split)], doubted
        first = first or doubted
    return [rival, *(p for p in ranked if p is not rival)], first


def _first_proved(
    ranked: list[Promise], choice: Choice, refused: list[Refused], doubted: Doubt | None
) -> Decision | None:
    """The best candidate that becomes a proved plan; the refused ones are recorded."""
    for number, made in enumerate(ranked[: 1 if choice.ended == Ending.GIVEN else None]):
        others = [other.simulated for other in ranked[number + 1 :]]  # those before are refused
        low, high = interval(made, choice.objective)
        plan = assemble(made.setting, made.attempt, choice, made.simulated, others)
        plan = replace(plan, low=low, high=high)
        findings = findings_of(made.setting, plan)
        if not findings:
            return Decision(
                plan=plan,
                setting=made.setting,
                attempt=made.attempt,
                choice=choice,
                chosen=made.chosen,
                diagnostics=(*refusals_of(refused), *was_ended(choice, made.chosen)),
                doubt=doubted,
                split=next((p for p in ranked if splits_requests(p.chosen)), made),
                promise=made,
                others=tuple(ranked[number + 1 :]),
            )
        refused.append((made.chosen.name, findings))
        if findings[0].code == "TSR3010" and made.attempt.slots > 1:
            return None  # trying fewer slots loses less than taking another plan
    return None


def _with_more_slots(
    setting: PlanSetting, attempt: Attempt, choice: Choice, watch: Watch
) -> Iterator[tuple[Attempt, Choice]]:
    """Repeat the search with as many slots as keep the busiest load busy.

    With more slots, a plan that only slots and sequences hold back may become the best.
    """
    options = setting.options
    ahead = [
        candidate for candidate in _rivals(choice) if busiest_ns(candidate) < choice.best.period_ns
    ]
    wanted = min(MOST_SLOTS, max(map(slots_needed, (choice.best, *ahead))))
    fixed = options.slots is not None or options.aim.is_of_one_request
    fixed = fixed or bool(runs_alone(setting))
    if fixed or wanted <= attempt.slots or choice.ended.is_cut_short:
        return
    more = attempt_with(setting, wanted, options.sequences or wanted)
    if not has_neighbours(setting) and _fit(more.planning.problem, (choice.best, *ahead)):
        return
    better = choose_best(setting, more, options.aim, watch)
    if better is not None:
        yield more, better


def _fit(problem: Problem, candidates: Sequence[Candidate]) -> bool:
    """Whether candidates fit with the slots of a problem: a search would find them again.

    Slots count in the memory of a search, and in the floors of enumerated placements. The number of
    slots of a candidate is found by simulation, whatever number the search used.
    """
    return not is_small(problem) and all(
        candidate_of(
            problem,
            candidate.name,
            tuple((replica.placement, replica.share) for replica in candidate.replicas),
        ).period_ns
        < INFINITY
        for candidate in candidates
        if candidate.roles is None
    )


def _rivals(choice: Choice) -> tuple[Candidate, ...]:
    """The candidates that may be chosen in place of the best."""
    if choice.ended != Ending.GIVEN:
        return choice.candidates
    if choice.best.name == KERNEL:
        return tuple(candidate for candidate in choice.candidates if splits_requests(candidate))
    return (choice.best,)
