"""`tessera.Engine`: tokens from a plan whose traces are steps of a language model.

    with tessera.Engine("plan.tsp") as engine:
        answer = engine.submit([1, 15, 7], max_tokens=32)
        for token in answer:
            ...

In: prompts, from any thread. Out: a `Generation` for each. The scheduler decides which step each
batch takes next; this module makes the inputs of the step, hands it to a `Runtime`, and reads the
tokens. Batches are the sequences of the runtime. Every batch that has work has a step under way, so
that devices overlap. One thread does all of this; prompts, ends of steps and cancellations reach it
through one queue.

A plan with two policies has both ready, and a prompt is given one of them when it gets a row
(`policies`). After a fault of a kernel its replica is started again while the others go on, and its
answers are computed once more: their tokens are known. If the same step faults again, the answer
that is why ends. If replicas serve only some of the steps, a sequence is handed over (`hand_overs`)
from the replica that reads its prompt to one that answers it. Another plan of the same steps can
take over: the sequences of the first one are handed over to it.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from tessera.diagnostics import Diagnostic, TesseraError
from tessera.driver.run.runtime import Runtime
from tessera.driver.serve.drift import Drift
from tessera.driver.serve.engine_loop import EngineLoop
from tessera.driver.serve.generation import Generation, Wish, refused
from tessera.driver.serve.look_ahead import chained_steps
from tessera.driver.serve.measures import Slo
from tessera.driver.serve.opened import OpenedRuntime
from tessera.driver.serve.policies import SwitchRule
from tessera.driver.serve.residents import (
    check_same_steps,
    engine_hardware,
    engine_sizes,
    find_monitor,
    find_pace,
    find_pays,
    find_switch,
)
from tessera.driver.serve.sampling import Constraint, Sampling
from tessera.driver.serve.step_inputs import check_prompt
from tessera.driver.serve.steps import (
    Declaration,
    declaration_beside,
    find_steps,
    read_declaration,
    with_token_range,
)
from tessera.ir.arguments import check_amounts, check_counts
from tessera.ir.choices import ADAPTIVE
from tessera.ir.plan.plan import Plan

_LOOK_S = 0.2
"""Seconds between two checks that the engine still runs, while a thread waits for it."""


class Engine(EngineLoop):
    """A plan that answers prompts."""

    def __init__(
        self,
        plan: Plan | str | os.PathLike[str],
        *,
        steps: Declaration | str | os.PathLike[str] | None = None,
        burst: int = 1,
        look_ahead: bool = True,
        max_waiting: int | None = None,
        policy: str | None = None,
        switch: SwitchRule | None = None,
        check_ranges: bool = True,
        ttft_ns: float | None = None,
        tpot_ns: float | None = None,
        reuse: bool = True,
        watch: bool | None = None,
        on_drift: Callable[[Drift], object] | None = None,
        on_end: Callable[[Generation], object] | None = None,
        **options: Any,
    ) -> None:
        """Open a plan; other `options` are those of `Runtime`.

        `steps` declares what the inputs of the traces are, where their names do not say it or no
        `NAME.steps.json` lies beside the plan. At most `burst` prefill steps of a batch come
        between two decode steps. With `look_ahead`, GPUs are given the next decode step of a lone
        batch before the one under way has ended, where steps give tokens. More than `max_waiting`
        prompts in line are refused (TSR5065). Of a plan with two policies both are ready, and
        `switch` says when prompts are given which, unless `policy` names one. With `check_ranges`,
        tokens that the analysis of the steps shows to be out of range are refused also where the
        steps do not give logits. Mixed steps are as small as they can be while prompts are read
        within half of `ttft_ns`, a limit on the first token, or 100 ms, and no larger than keep
        `tpot_ns`, a limit on the time per token, by the times of the plan; with `reuse` they share
        blocks of prompts that begin alike. On GPUs replicas that share no GPU are in processes of
        their own (`isolated=False`: in this one, which a fault then takes with it).
        `watch`: `on_drift` hears when steps leave the error bars of the plan; unless given, on GPUs
        only, for which plans are made.
        """
        check_counts({"burst": burst, "max_waiting": max_waiting}, least=1)
        check_amounts({"ttft_ns": ttft_ns, "tpot_ns": tpot_ns})
        self._options = {"isolated": True, **options, "policy": policy or ADAPTIVE}
        runtime = Runtime(plan, **self._options)
        try:
            given = declaration_beside(plan) if steps is None else steps
            self._declared = None if given is None else read_declaration(given)
            self._checks_ranges = check_ranges
            self._rule = switch
            self._watch = watch
            self._looks_ahead = look_ahead
            serving = self._opened(runtime)
            slo = Slo(ttft_ns=ttft_ns, tpot_ns=tpot_ns)
            hardware = engine_hardware(runtime.plan, runtime.backend)
            pace = find_pace(serving.sizes, runtime.replicas, hardware, slo, runtime.backend)
        except BaseException:
            runtime.close(wait=False)
            raise
        self.max_waiting = max_waiting
        super().__init__(
            serving, burst=burst, pace=pace, reuse=reuse, on_end=on_end, on_drift=on_drift
        )
        set_aside(id(self))

    def _opened(self, runtime: Runtime) -> OpenedRuntime:
        """A runtime with the roles that its traces state, and everything derived from them."""
        count = len(runtime.traces) // (1 + len(runtime.ways))
        model = find_steps(runtime.traces[:count], runtime.programs[:count], self._declared)
        if self._checks_ranges:
            model = with_token_range(model, runtime.programs, runtime.graphs)
        sizes = engine_sizes(model, runtime)
        switch = find_switch(sizes, runtime, self._rule)
        return OpenedRuntime(
            runtime=runtime,
            model=model,
            sizes=sizes,
            switch=switch,
            pays=find_pays(sizes, runtime, switch),
            monitor=find_monitor(runtime, self._watch),
            chains=chained_steps(model, runtime) if self._looks_ahead else frozenset(),
        )

    def replace_plan(self, plan: Plan | str | os.PathLike[str]) -> None:
        """Let another plan take over, whose traces are the same steps.

        Prompts that get a row from now on get it in the new plan. Answers under way are handed over
        to it as rows become free there; if its states have other shapes, they finish in the old
        plan. That plan is then closed; this call waits for it. Both plans are loaded meanwhile. If
        the new plan cannot be opened, nothing changes.
        """
        runtime = Runtime(plan, **self._options)
        try:
            serving = self._opened(runtime)
            check_same_steps(self.model, serving.model)
        except BaseException:
            runtime.close(wait=False)
            raise
        over = threading.Event()
        if not self._book.is_open:
            runtime.close(wait=False)
            raise self._book.refusal()
        set_aside(id(self))
        self._inbox.put(partial(self._take_over, serving, over))
        while not over.wait(_LOOK_S):
            if not self._thread.is_alive():
                break
        if runtime not in self._homes.runtimes():
            runtime.close(wait=False)  # it was closed before its turn came
            raise self._book.refusal()

    # --- for any thread ---------------------------------------------------------------------------

    def submit(
        self,
        prompt: Sequence[int],
        *,
        max_tokens: int = 16,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
        stop: Iterable[Sequence[int] | int] = (),
        ignore_end: bool = False,
        deadline_s: float | None = None,
        owner: str = "",
        sampling: Sampling | None = None,
        constraint: Constraint | None = None,
        reads_prompt: bool = False,
    ) -> Generation:
        """Ask for an answer; raises TSR5064 if none can be given, TSR5065 if too many prompts wait.

        Greedy unless a `temperature` is given; then each answer is drawn from fresh entropy, unless
        a `seed` makes it repeatable. `stop` are tokens, or rows of tokens, that end the
        answer; `deadline_s` is when it is given up, counted from now. Prompts that begin alike
        share what is computed of them, if they have the same `owner`. `sampling` has more ways to
        choose tokens, and takes the place of the four that have names here. `constraint` says
        what the answer may consist of, and follows this answer alone. `reads_prompt`: chances of
        the prompt's tokens are wanted, which mixed steps then read one by one.
        """
        check_amounts({"deadline_s": deadline_s})
        check_counts({"max_tokens": max_tokens}, least=1, optional=False)
        rows = tuple((row,) if isinstance(row, int) else tuple(row) for row in stop)
        if not all(rows):
            raise refused("a row of tokens in `stop` is empty")
        wish = Wish(
            most=max_tokens,
            sampling=sampling
            or Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
            stop=rows,
            keep_going=ignore_end,
            deadline_s=deadline_s,
            owner=owner,
            constraint=constraint,
            reads_prompt=reads_prompt,
        )
        tokens = check_prompt(self.model, self.sizes, prompt, wish)
        return self._book.ask(tokens, wish, self._check_line)

    def _check_line(self) -> None:
        """Refuse a prompt if too many are waiting already."""
        held_up = self._without_row()
        if self.max_waiting is not None and held_up >= self.max_waiting:
            message = f"{held_up} prompts are waiting, and no more may"
            raise TesseraError.of("TSR5065", message, hint="try again later")

    def generate(self, prompts: Iterable[Sequence[int]], **wishes: Any) -> list[list[int]]:
        """The answers to several prompts; the keywords are those of `submit`."""
        answers = [self.submit(prompt, **wishes) for prompt in prompts]
        return [answer.result() for answer in answers]

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Warnings from opening the plan."""
        return tuple(
            diagnostic for runtime in self._homes.runtimes() for diagnostic in runtime.diagnostics
        )

    @property
    def waiting(self) -> int:
        """The number of prompts that have no row yet."""
        return len(self._scheduler.line) + self._book.arrived

    def _without_row(self) -> int:
        """Prompts without a row, beyond those for which rows are free."""
        free = 0
        if not self._left:
            free = sum(len(batch.free_rows) for batch in self._scheduler.batches if batch.is_open)
        return max(self.waiting - free, 0)

    @property
    def running(self) -> int:
        """The number of prompts that have a row."""
        return sum(batch.used - len(batch.reserved) for batch in self._scheduler.batches)

    @property
    def blocks(self) -> tuple[int, int]:
        """The number of blocks of the cache that answers under way have, and of all blocks."""
        batches = [batch for batch in self._scheduler.batches if not batch.retires]
        whole = self.sizes.blocks * len(batches)
        return whole - sum(batch.cache.room for batch in batches), whole

    @property
    def reused_tokens(self) -> int:
        """Tokens of prompts that were not computed, because the cache held them."""
        return self._scheduler.reused

    @property
    def preempted(self) -> int:
        """How often an answer was put off and computed once more, because no block was left."""
        return self._scheduler.preempted

    @property
    def steps_done(self) -> dict[str, int]:
        """The number of steps of each trace that have ended."""
        return self.counts.steps_done

    @property
    def steps_ahead(self) -> int:
        """The number of steps handed over while the step before them was under way."""
        return self._ahead.count

    @property
    def switches(self) -> list[tuple[float, str]]:
        """The times (`time.monotonic_ns()`) at which the policy changed, and to which."""
        return [] if self.switch is None else list(self.switch.switches)

    @property
    def unready(self) -> str:
        """Why a prompt would not be taken now; empty if it would be."""
        if not self.is_well:
            return "the engine has ended"
        if not any(batch.is_open for batch in self._scheduler.batches):
            return "no replica is open"
        is_full = self.max_waiting is not None and self._without_row() >= self.max_waiting
        return "too many prompts are waiting" if is_full else ""

    @property
    def is_well(self) -> bool:
        """Whether the engine takes prompts."""
        return self._book.is_open

    def close(self, *, wait: bool = True) -> None:
        """Take no more prompts; end after the accepted ones, or at once with `wait=False`."""
        self._book.close(give_up=not wait)
        self._thread.join()
        for runtime in self._homes.runtimes():
            runtime.close(wait=wait)
        put_back(id(self))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close(wait=kind is None)


# A plan with its traces and graphs is some 10^5 objects, none of which becomes garbage before the
# engine is closed. A full collection visits all of them: tens of milliseconds in which no step is
# handed over. So all objects that exist when an engine opens are frozen (kept out of garbage
# collection), and thawed when the last engine is closed.
_LOCK = threading.Lock()
_OPEN: set[int] = set()


def set_aside(engine: int) -> None:
    """Register a serving engine, identified by its own number."""
    with _LOCK:
        _OPEN.add(engine)
        gc.freeze()


def put_back(engine: int) -> None:
    """Unregister a closed engine; a second call changes nothing."""
    with _LOCK:
        if engine in _OPEN:
            _OPEN.discard(engine)
            if not _OPEN:
                gc.unfreeze()
