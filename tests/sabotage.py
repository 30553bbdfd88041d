"""What would the tests notice? One change at a time in the code that soundness depends on.

`draw -o DRAWN` takes a sample of changes, as many from each package; `run DRAWN -o RESULTS` tries
them; `show RESULTS` counts them, with what was found out about survivors by reading
(`tests/data/sabotage/survivors.txt`). `run` first notes in which tests each change makes a
difference (`tests/helpers/code_changes.py`), then forks for each change: the child puts the changed
code into the loaded function and runs these tests, first those that noticed other changes near it,
then the quickest of each file.
A result is written as soon as it is there, and a second `run` goes on where the first ended. A few
are tried without the change first, to see that nothing but it makes a test fail. Not mutmut or
cosmic-ray: neither can choose tests by line, drop a widening, or try changes side by side in one
tree.
"""

from __future__ import annotations

import argparse
import functools
import gc
import hashlib
import json
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.code_changes import (
    PACKAGES,
    ROOT,
    Mutant,
    apply_change,
    differing,
    draw,
    key_of,
    name_of,
    sources,
    watch_changes,
)

TESTS = (
    "kernels",
    "golden",
    "oracle",
    "differential",
    "property",
    "unit/passes",
    "unit/planning",
    "unit/backend",
)
BUDGET = 40  # seconds of processor time that a change gets, unless `--budget` says otherwise
CONTROL = 20  # one in so many is tried without its change, which no test may notice
GONE, BROKEN = 9, 10
REASONS = ROOT / "tests/data/sabotage/survivors.txt"
WIDER = ROOT / "benchmarks/results/sabotage_wider.jsonl"
VERDICTS = ("killed", "equivalent", "measured", "wider", "alive")


@functools.cache
def _caches(_modules: int) -> list[Any]:
    """The caches of Tessera's functions; those that `gc.freeze` has set aside are among them."""
    gc.unfreeze()
    kept = (o for o in gc.get_objects() if type(o) is functools._lru_cache_wrapper)
    found = [one for one in kept if one.__module__.startswith("tessera")]
    gc.freeze()
    return found


def forget() -> None:
    """Clears what functions of Tessera have cached, also while the tests were collected."""
    for kept in _caches(len(sys.modules)):
        kept.cache_clear()


def fork_each(
    works: Iterator[Callable[[], None]], ended: Callable[[int, int], None], jobs: int = 1
) -> None:
    """Calls functions in children, `jobs` at once; `ended` gets a number and its status."""
    running = dict[int, int]()
    for number, work in enumerate(works):
        if not (child := os.fork()):
            try:
                work()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(BROKEN)
        running[child] = number
        if len(running) == jobs:
            child, status = os.wait()
            ended(running.pop(child), status)
    while running:
        child, status = os.wait()
        ended(running.pop(child), status)


def _passes(item: Any, following: Any) -> bool:
    failed = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return bool(item.session.testsfailed == failed)


def _watch(items: list[Any], log: Path) -> None:
    """Writes the seconds of each test that passes, and the changes that make a difference in it."""
    reached, noted = {}, differing()
    for item in items:
        noted.clear()
        begin = time.process_time()
        if _passes(item, None):
            reached[item.nodeid] = [time.process_time() - begin, list(noted)]
    log.write_text(json.dumps(reached))


@dataclass
class Sabotage:
    """A plugin of pytest: tests run in children of the process that has collected them."""

    mutants: list[Mutant]
    results: Path
    work: Path
    budget: float
    until: float
    jobs: int
    entered: dict[tuple[object, ...], list[int]] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    noticed: dict[str, Counter[str]] = field(default_factory=dict)

    def pytest_runtestloop(self, session: Any) -> bool:
        """Takes the place of pytest's own loop over tests."""
        self._reach(session)
        items = {item.nodeid: item for item in session.items}
        tests = [items.get(name) for name in self.names]
        rows = read_rows(self.results)
        done = {key_of(row) for row in rows}
        for row in rows:
            self._learn(row)
        todo = [mutant for mutant in self.mutants if key_of(mutant) not in done]
        todo = [mutant | {"control": True} for mutant in todo[::CONTROL]] + todo
        print(f"\n{len(tests)} tests, {len(todo)} changes to try", flush=True)
        forget()  # before the children, which then know where to look
        begun = time.monotonic()

        def works() -> Iterator[Callable[[], None]]:
            for mutant in todo:
                if time.monotonic() > self.until:
                    return
                reach = [tests[number] for number in self._order(mutant)]
                yield lambda m=mutant, r=reach: self._try(m, [t for t in r if t is not None])

        def ended(number: int, status: int) -> None:
            kind = {0: "survived", GONE << 8: "gone"}.get(status, "killed")
            if status == BROKEN << 8:
                raise SystemExit(f"this program has a fault, see above: {todo[number]}")
            if "control" in todo[number]:
                if kind == "killed":
                    raise SystemExit(f"fails without a change (status {status}): {todo[number]}")
                return
            row = todo[number] | {"result": kind, "tests": len(self._order(todo[number]))}
            if kind == "killed":
                row["by"] = self._note(row).read_text("utf-8")
            self._learn(row)
            with self.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            self._note(row).unlink(missing_ok=True)
            if number % 50 == 0:
                print(f"{number} of {len(todo)}, {time.monotonic() - begun:.0f} s", flush=True)

        fork_each(works(), ended, self.jobs)
        return True

    def _reach(self, session: Any) -> None:
        """In which tests each change makes a difference: watched once for these changes, the code
        and a file of tests as they are now, and kept in the work folder."""
        self.work.mkdir(parents=True, exist_ok=True)
        code = b"".join(p.read_bytes() for p in sources())
        code += repr([key_of(mutant) for mutant in self.mutants]).encode()
        files: dict[Path, list[Any]] = {}
        names = dict[Path, str]()
        for item in session.items:
            if item.path not in names:
                seen = hashlib.sha256(code + item.path.read_bytes()).hexdigest()[:12]
                names[item.path] = re.sub(r"\W", "_", str(item.path.relative_to(ROOT))) + seen
            files.setdefault(self.work / f"{names[item.path]}.json", []).append(item)
        # Long files are taken apart, so that no core waits for one.
        parts = {
            file.with_suffix(f".{part}.json"): items[part::8]
            for file, items in files.items()
            for part in range(8)
            if items[part::8]
        }
        todo = [(file, items) for file, items in parts.items() if not file.exists()]
        todo.sort(key=lambda one: -len(one[1]))
        if todo:  # in a child, whose functions note what they come to

            def watched_tests() -> None:
                watch_changes(self.mutants)
                forget()
                watched = (lambda f=f, i=i: _watch(i, f) for f, i in todo)
                fork_each(watched, lambda *_: None, self.jobs)

            fork_each(iter([watched_tests]), lambda *_: None)
        watched = [
            pair
            for file in sorted(parts)
            if file.exists()
            for pair in json.loads(file.read_text()).items()
        ]
        watched.sort(key=lambda pair: pair[1][0])
        self.names = [name for name, _ in watched]
        for number, (_, (_, keys)) in enumerate(watched):
            self.counts.append(len(keys))
            for key in keys:
                self.entered.setdefault(tuple(key), []).append(number)

    def _order(self, mutant: Mutant) -> list[int]:
        """The tests in which a change makes a difference: first those that noticed others near it;
        then those in which few make one and the quickest of each file, in turn."""
        ranks = Counter[str]()
        turns = dict[int, tuple[int, int]]()
        for number in self.entered.get(key_of(mutant), ()):
            file = self.names[number].partition("::")[0]
            turns[number] = ranks[file], number
            ranks[file] += 1
        quick = sorted(turns, key=turns.__getitem__)
        near = sorted(turns, key=self.counts.__getitem__)
        numbers = {name: number for number, name in enumerate(self.names)}
        first = [
            numbers[name]
            for place in (mutant["path"] + mutant["function"], mutant["path"], mutant["package"])
            for name, _ in self.noticed.get(place, Counter()).most_common(6)
            if numbers.get(name) in turns
        ]
        both = (number for pair in zip(near, quick, strict=True) for number in pair)
        return [*dict.fromkeys([*first, *both])]

    def _learn(self, row: Mutant) -> None:
        for place in (row["path"] + row["function"], row["path"], row["package"]):
            if row.get("by"):
                self.noticed.setdefault(place, Counter())[row["by"]] += 1

    def _note(self, mutant: Mutant) -> Path:
        return self.work / hashlib.sha256(repr(key_of(mutant)).encode()).hexdigest()[:16]

    def _try(self, mutant: Mutant, items: list[Any]) -> None:
        Path("/proc/self/oom_score_adj").write_text("1000")  # if memory ends, this child does
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        if not mutant.get("control") and not apply_change(mutant):
            os._exit(GONE)
        forget()
        begin = time.process_time()
        for item, following in zip(items, [*items[1:], None], strict=False):
            used = time.process_time() - begin
            if used > self.budget:
                return
            # A test that takes this much longer is in a loop: the change is noticed.
            limit = int(time.process_time() + 2 * self.budget)
            resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
            signal.alarm(int(8 * self.budget))
            self._note(mutant).write_text(item.nodeid, "utf-8")
            if not _passes(item, following):
                os._exit(1)


def read_rows(path: Path) -> list[Mutant]:
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def reasons() -> dict[tuple[str, ...], tuple[str, str]]:
    """What was found out about survivors by reading, by file, function, change and line: the
    verdict (`equivalent`, `measured` or only argued to be `wider`, `alive`) and why."""
    known, verdict, why = {}, "", ""
    rows = read_rows(WIDER)
    measured = {name_of(row) for row in rows if row["differ"]}
    measured -= {name_of(row) for row in rows if row["less"]}
    for line in REASONS.read_text("utf-8").splitlines():
        if line.startswith("    "):
            place, how, text = line.strip().split(" | ", 2)
            path, function = place.split(" ")
            is_measured = verdict == "wider" and (path, function, how, text) in measured
            known[path, function, how, text] = "measured" if is_measured else verdict, why
        elif line and not line.startswith("#"):
            verdict, _, why = line.partition(": ")
    return known


def show(rows: list[Mutant]) -> None:
    """Prints how many changes the tests notice, by package, and those that count as not noticed."""
    known = reasons()
    rows = [row for row in rows if row["result"] != "gone"]
    for row in rows:
        if row["result"] == "survived":
            row["result"], row["why"] = known.get(name_of(row), ("alive", "not read"))
    for package in [*PACKAGES, None]:
        counts = Counter(r["result"] for r in rows if package in (r["package"], None))
        if total := counts.total():
            each = "".join(f"{counts[name]:5} {name}" for name in VERDICTS)
            killed = counts["killed"] / max(1, total - counts["equivalent"])
            share = 1 - (counts["wider"] + counts["alive"]) / total
            print(
                f"{package or 'all':16}{total:5}:{each}; noticed {killed:6.1%}, good {share:6.1%}"
            )
    for row in sorted(rows, key=lambda row: (row["path"], row["lines"])):
        if row["result"] in ("wider", "alive"):
            place = f"{row['path'].removeprefix('tessera/')}:{row['lines'][0]}"
            print(f"{row['result']}: {place} {row['function']}: {row['how']}: {row['text']}")
            print(f"    {row['why']}")


def main() -> None:
    """Runs one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("draw", "run", "show"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=time.time_ns())
    parser.add_argument("--seconds", type=float, default=1e9, help="start no change after this")
    parser.add_argument("--budget", type=float, default=BUDGET, help="processor seconds each")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files and folders of tests/")
    parser.add_argument("--work", type=Path, default=ROOT / "out" / "sabotage")
    options = parser.parse_args()
    if options.command == "draw":
        drawn = draw(options.count, options.seed)
        options.output.write_text("".join(json.dumps(m) + "\n" for m in drawn), "utf-8")
    elif options.command == "run":
        os.chdir(ROOT)
        plugin = Sabotage(
            read_rows(options.file),
            options.output.resolve(),
            options.work,
            options.budget,
            time.monotonic() + options.seconds,
            options.jobs,
        )
        arguments = [
            "-q",
            "-n0",
            "--tb=no",
            "-pno:cacheprovider",
            "-m",
            "not gpu and not slow and not fuzz",
        ]
        sys.exit(
            pytest.main([*arguments, *(f"tests/{t}" for t in options.tests)], plugins=[plugin])
        )
    else:
        show(read_rows(options.file))


if __name__ == "__main__":
    main()
