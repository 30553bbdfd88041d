"""`selftest`: try the devices of a machine, part by part, and keep the results.

In: `SelftestOptions` and a path. Out: a `SelftestDocument`, also on disk. The parts, in order:

1. `links`: copies between all pairs of devices and the host, and exchanges between devices; plans
   use what was measured.
2. `profile`: how long the steps of the traces take on every device.
3. `bytes`: random placements, each compared with one device to the byte.
4. `plans`: rate and latencies of a few plans, predicted and measured.

Results are written after every part and every few seconds. A failure is noted, and the next trial
runs; a fault of a GPU ends the test, because nothing runs after it in this process: the same
command, run again, continues. Every part ends when its share of the time is over.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tessera.diagnostics import ExitCode, TesseraError
from tessera.driver.selftest.document import Row, SelftestDocument, machine_facts, open_document
from tessera.driver.selftest.ground import find_ground
from tessera.driver.selftest.links import fit_links, link_jobs
from tessera.driver.selftest.options import SHARES, SelftestOptions, SelftestPart
from tessera.driver.selftest.plan_trials import PLANS, make_trial, try_plan
from tessera.driver.selftest.traces import TrialSize
from tessera.driver.selftest.trials import (
    Workshop,
    compare_bytes,
    digest_of,
    keep_profile,
    measure_durations,
    run_whole,
)
from tessera.frontend.machine.selftest_links import with_measured_links
from tessera.ir.progress import OnProgress, StageProgress

LEAST_PLACEMENTS = 50
_REQUESTS = 4
_LONGEST_LOAD_S = 2.0
_SEEDS = 1_000_000
# Large traces take seconds to plan; most placements are of small ones.
_LARGE_EVERY = 4


class _Broken(Exception):
    """A GPU has faulted, so nothing more runs in this process."""


def run_selftest(
    path: str, options: SelftestOptions, on_progress: OnProgress | None = None
) -> SelftestDocument:
    """Run the trials that are not done; the document is written to `path`."""
    ground = find_ground(options)
    document = open_document(path, options, ground, machine_facts(ground))
    for name in SelftestPart:
        part = document.parts[name]
        if name in options.skip and part.status == "waiting":
            part.status = "skipped"
        elif name not in options.skip and part.status == "skipped":
            part.status = "waiting"
    document.write()
    with tempfile.TemporaryDirectory(prefix="tessc-selftest-") as folder:
        document.folder = folder
        shop = Workshop(
            ground=ground,
            machine=with_measured_links(ground.machine, document.data()),
            folder=Path(folder),
            seed=options.seed,
            limit_s=options.limit_s,
        )
        try:
            _Test(document, options, on_progress, shop).run()
        except _Broken:
            pass
        finally:
            document.write()
    return document


@dataclass(slots=True)
class _Test:
    """A test under way."""

    document: SelftestDocument
    options: SelftestOptions
    on_progress: OnProgress | None
    shop: Workshop
    deadline_s: float = 0.0

    def run(self) -> None:
        """Run all parts that are not done."""
        begun, share = time.monotonic(), 0.0
        work = {
            SelftestPart.LINKS: self._links,
            SelftestPart.PROFILE: self._profile,
            SelftestPart.BYTES: self._bytes,
            SelftestPart.PLANS: self._plans,
        }
        asked = [part for part in work if str(part) in self.document.missing()]
        asked = [part for part in asked if part not in self.options.skip]
        whole = sum(SHARES[part] for part in asked)
        for part in asked:
            share += SHARES[part] / whole
            self.deadline_s = begun + share * self.options.minutes * 60.0
            self._tell(part, 0, None)
            with self._timed(part):
                is_whole = work[part]()
            record = self.document.parts[part]
            if is_whole:
                record.status = "failed" if record.problems else "passed"
            self.document.write()

    @contextmanager
    def _timed(self, part: SelftestPart) -> Iterator[None]:
        record, begun = self.document.parts[part], time.monotonic()
        record.status = "incomplete"
        try:
            yield
        finally:
            record.seconds += time.monotonic() - begun

    def _tell(self, part: SelftestPart, done: int, total: int | None) -> None:
        if self.on_progress is not None:
            self.on_progress(StageProgress(part, done, total, "tried"))

    def _is_over(self) -> bool:
        return time.monotonic() >= self.deadline_s

    def _failed(self, part: SelftestPart, problem: TesseraError, what: str) -> None:
        self.document.fail(part, problem, what)
        if problem.exit_code == ExitCode.FAULT and self.shop.ground.backend == "cuda":
            raise _Broken

    # --- the parts ----------------------------------------------------------------------------

    def _links(self) -> bool:
        jobs = list(link_jobs(self.shop, self.options.chosen_size()))
        for number, (measure, nbytes, way) in enumerate(jobs):
            self._tell(SelftestPart.LINKS, number, len(jobs))
            if self._is_over():
                break
            try:
                measure(self.shop, self.document, nbytes, way)
            except TesseraError as problem:
                self._failed(SelftestPart.LINKS, problem, f"{nbytes} bytes along {', '.join(way)}")
        else:
            number = len(jobs)
        fit_links(self.document, self.shop.ground.machine)
        machine = with_measured_links(self.shop.ground.machine, self.document.data())
        self.shop = replace(self.shop, machine=machine)
        return number == len(jobs)

    def _profile(self) -> bool:
        models, size = self.options.chosen_models(), self.options.chosen_size()
        for number, model in enumerate(models):
            self._tell(SelftestPart.PROFILE, number, len(models))
            if model in self.document.profiles:
                continue
            if self._is_over():
                return False
            try:
                measured = measure_durations(self.shop, self.shop.trace(model, size))
            except TesseraError as problem:
                self._failed(SelftestPart.PROFILE, problem, model)
                continue
            self.document.profiles[model] = measured
            self.document.write()
        return True

    def _bytes(self) -> bool:
        rows = self.document.rows["placements"]
        goal = self.options.placements
        while len(rows) < goal and not self._is_over():
            self._tell(SelftestPart.BYTES, len(rows), goal)
            self._placement(len(rows))
        return len(rows) >= min(goal, LEAST_PLACEMENTS)

    def _placement(self, number: int) -> None:
        """The random placement of a number, which determines its model, size and slots."""
        models = self.options.chosen_models()
        model = models[number % len(models)]
        is_large = number // len(models) % _LARGE_EVERY == _LARGE_EVERY - 1
        size = self.options.chosen_size() if is_large else TrialSize.SMALL
        slots = 1 + number % 4
        name = f"random:{_SEEDS * self.options.seed + number}"
        row: Row = {"model": model, "size": size, "placement": name, "slots": slots}
        try:
            plan = self.shop.plan(
                self.shop.trace(model, size), placement=name, slots=slots, sequences=slots
            )
            row["digest"] = digest_of(plan)
            prepared = self.shop.prepare(plan, _REQUESTS)
            row["bytes"] = compare_bytes(run_whole(prepared), prepared)
        except TesseraError as problem:
            row["problem"] = self.document.tidy(problem)
            self.document.add("placements", row)
            self._failed(SelftestPart.BYTES, problem, f"{model}, {size}, {name}, {slots} slots")
            return
        self.document.add("placements", row)

    def _plans(self) -> bool:
        labels = [*PLANS, f"random:{self.options.seed}"]
        models = self.options.chosen_models()
        jobs = [(model, label) for label in labels for model in models]
        for number, (model, label) in enumerate(jobs):
            self._tell(SelftestPart.PLANS, number, len(jobs))
            if self.document.has("plans", model=model, label=label):
                continue
            if self._is_over():
                return False
            left = max(self.deadline_s - time.monotonic(), 0.0)
            self._plan(model, label, min(_LONGEST_LOAD_S, left / (len(jobs) - number) / 3))
        return True

    def _plan(self, model: str, label: str, seconds: float) -> None:
        row: Row = {"model": model, "label": label, "durations": "model"}
        trace = self.shop.trace(
            next(m for m in self.options.chosen_models() if m == model), self.options.chosen_size()
        )
        profiles: tuple[str, ...] = ()
        if model in self.document.profiles:
            profiles = (keep_profile(self.shop, model, self.document.profiles[model]),)
            row["durations"] = "profile"
        try:
            row |= try_plan(self.shop, make_trial(self.shop, trace, label, profiles), seconds)
        except TesseraError as problem:
            row["problem"] = self.document.tidy(problem)
            self.document.add("plans", row)
            self._failed(SelftestPart.PLANS, problem, f"{model}, {label}")
            return
        self.document.add("plans", row)
