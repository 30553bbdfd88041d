"""What would the tests notice? One change at a time in the code that soundness depends on.

`draw -o DRAWN` takes a sample of changes, as many from each package; `run DRAWN -o RESULTS` tries
them; `show RESULTS` counts them, with what was found out about survivors by reading
(`tests/data/sabotage/survivors.txt`). `run` first notes which statements each test comes to, then
forks for each change: the child puts the changed code into the loaded function and runs the tests
that come there, first those that noticed other changes near it, then the quickest of each file.
A result is written as soon as it is there, and a second `run` goes on where the first ended. A few
are tried without the change first, to see that nothing but it makes a test fail. Not mutmut or
cosmic-ray: neither can choose tests by line, drop a widening, or try changes side by side in one
tree.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import copy
import functools
import gc
import hashlib
import importlib
import json
import os
import random
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
from types import CodeType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "kernel_facts": "tessera/passes/kernel_facts",
    "lane_values": "tessera/passes/lane_values",
    "footprint": "tessera/passes/footprint",
    "dependences": "tessera/passes/dependences",
    "byte_sets": "tessera/passes/byte_sets",
    "lowering": "tessera/planning/lower",
    "checker": "tessera/passes/checker",
    "access checks": "tessera/backend/ptx_executor/memory",
}
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
VERDICTS = ("killed", "equivalent", "wider", "alive")

_OPPOSITE = {
    "Lt": ("LtE", "GtE"), "LtE": ("Lt", "Gt"), "Gt": ("GtE", "LtE"), "GtE": ("Gt", "Lt"),
    "Eq": ("NotEq",), "NotEq": ("Eq",), "Is": ("IsNot",), "IsNot": ("Is",), "In": ("NotIn",),
    "NotIn": ("In",), "Add": ("Sub",), "Sub": ("Add",), "BitAnd": ("BitOr",), "BitOr": ("BitAnd",),
}  # fmt: skip
_WIDENS = re.compile(r"widen|hull|join|union|cover|anything|unknown")
_MAKES_MANY = {"tuple", "list", "set", "frozenset", "sorted", "dict"}
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp)
_FOR_PEOPLE = (ast.Raise, ast.JoinedStr, ast.Assert)

Mutant = dict[str, Any]
Change = tuple[str, Callable[[], None]]


def _less(values: Any) -> Any:
    """A collection without its last element."""
    if isinstance(values, dict):
        return dict(list(values.items())[:-1])
    return type(values)(list(values)[:-1])


builtins.__dict__["_sabotage_less"] = _less
builtins.__dict__["_sabotage_hits"] = {}
builtins.__dict__["_sabotage_first"] = lambda first, *_rest, **_named: first


def _changes(node: ast.AST) -> Iterator[Change]:
    """The ways to change a node: what is done, and the function that does it."""

    def put(name: str, value: object) -> Callable[[], None]:
        return lambda: setattr(node, name, value)

    match node:
        case ast.Compare(ops=ops):
            for place, op in enumerate(ops):
                for other in _OPPOSITE.get(type(op).__name__, ()):
                    changed = [*ops[:place], getattr(ast, other)(), *ops[place + 1 :]]
                    yield f"{type(op).__name__} {place} to {other}", put("ops", changed)
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield f"{type(op).__name__} to the other", put("op", other)
            for place in range(len(values)):
                rest = [*values[:place], *values[place + 1 :]]
                yield f"without condition {place}", put("values", [*rest, rest[-1]])
        case ast.BinOp(op=op):
            for other in _OPPOSITE.get(type(op).__name__, ()):
                yield f"{type(op).__name__} to {other}", put("op", getattr(ast, other)())
        case ast.AugAssign(op=ast.BitOr(), target=target):
            same = copy.deepcopy(target)
            same.ctx = ast.Load()
            yield "without what is added", put("value", same)
        case ast.Constant(value=bool(value)):
            yield f"{value} to {not value}", put("value", not value)
        case ast.Constant(value=int(value)):
            yield f"{value} to {value + 1}", put("value", value + 1)
            if value > 0:
                yield f"{value} to {value - 1}", put("value", value - 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "branches swapped", put("test", ast.UnaryOp(ast.Not(), test))
            yield "always", put("test", ast.Constant(True))
            yield "never", put("test", ast.Constant(False))
        case ast.While(test=test) if not isinstance(test, ast.Constant):
            yield "no round", put("test", ast.Constant(False))
        case ast.comprehension(ifs=[_, *_]):
            yield "without its filter", put("ifs", [])
        case ast.Expr(value=ast.Call()):
            yield "statement left out", put("value", ast.Constant(None))
        case ast.Return(value=value) if _is_many(value):
            yield "returns less", put("value", _call("_sabotage_less", [value]))
        case ast.Call(func=ast.Name(id="min" | "max" as name)):
            other = "max" if name == "min" else "min"
            yield f"{name} to {other}", put("func", ast.Name(other, ast.Load()))
        case ast.Call(func=ast.Name(id=name), args=[_, *_]) if _WIDENS.search(name):
            yield f"without {name}", put("func", ast.Name("_sabotage_first", ast.Load()))
        case ast.Call(func=ast.Attribute(attr=name, value=owner), args=args):
            if _WIDENS.search(name) and not isinstance(owner, ast.Constant):
                yield f"without {name}", lambda: _take_owner(node, owner, args)


def _take_owner(node: ast.Call, owner: ast.expr, arguments: list[ast.expr]) -> None:
    node.func, node.args = ast.Name("_sabotage_first", ast.Load()), [owner, *arguments]


def _is_many(value: ast.expr | None) -> bool:
    """Whether an expression is a collection, by its form."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id in _MAKES_MANY
    return isinstance(value, _COMPREHENSIONS)


def _call(name: str, arguments: list[Any]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    """A node and those below it, without annotations and texts for people."""
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            is_code = isinstance(child, ast.AST) and not isinstance(child, _FOR_PEOPLE)
            if is_code and name not in ("annotation", "returns"):
                yield from _inside(child)


def _sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The nodes in functions and methods of a module, each with the name of the function."""
    for outer in tree.body:
        owner = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for function in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            if isinstance(function, ast.FunctionDef) and function.name not in (
                "__repr__",
                "__str__",
            ):
                for statement in function.body:
                    for node in _inside(statement):
                        yield owner + function.name, node


def mutants(package: str) -> Iterator[Mutant]:
    for path in sorted((ROOT / PACKAGES[package]).rglob("*.py")):
        text = path.read_text("utf-8")
        lines = text.splitlines()
        for site, (function, node) in enumerate(_sites(ast.parse(text))):
            for how, _ in _changes(node):
                reached = getattr(node, "test", getattr(node, "iter", node))
                yield {
                    "package": package,
                    "path": str(path.relative_to(ROOT)),
                    "function": function,
                    "site": site,
                    "how": how,
                    "lines": [reached.lineno, reached.end_lineno],
                    "text": lines[reached.lineno - 1].strip(),
                    "source": hashlib.sha256(text.encode()).hexdigest()[:16],
                }


def apply_change(mutant: Mutant) -> bool:
    """Puts the changed code into the loaded function; False if the function is a wrapper's."""
    path = ROOT / mutant["path"]
    tree = ast.parse(path.read_text("utf-8"))
    node = [*_sites(tree)][mutant["site"]][1]
    next(change for how, change in _changes(node) if how == mutant["how"])()
    code: CodeType = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    return _put(path, code, mutant["function"])


def _put(path: Path, code: CodeType, function: str) -> bool:
    name = str(path.relative_to(ROOT)).removesuffix(".py").replace("/", ".")
    target: Any = importlib.import_module(name)
    for name in function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
        target = target.__dict__[name]
    target = getattr(target, "fget", None) or getattr(target, "__func__", target)
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    if isinstance(target, FunctionType):
        target.__code__ = code
    return isinstance(target, FunctionType)


@functools.cache
def _caches(_modules: int) -> list[Any]:
    """The caches of Tessera's functions; those that `gc.freeze` has set aside are among them."""
    gc.unfreeze()
    kept = (o for o in gc.get_objects() if isinstance(o, functools._lru_cache_wrapper))
    found = [one for one in kept if one.__module__.startswith("tessera")]
    gc.freeze()
    return found


def forget() -> None:
    """Clears what functions of Tessera have cached, also while the tests were collected."""
    for kept in _caches(len(sys.modules)):
        kept.cache_clear()


def _fork(
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


def sources() -> list[Path]:
    """The files that are changed."""
    return [path for folder in PACKAGES.values() for path in sorted((ROOT / folder).rglob("*.py"))]


def _passes(item: Any, following: Any) -> bool:
    failed = item.session.testsfailed
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    return bool(item.session.testsfailed == failed)


def probe(path: Path) -> None:
    """Makes the loaded functions of a file note each statement that they come to."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in [*ast.walk(tree)]:
        for name, block in ast.iter_fields(node):
            if not isinstance(node, ast.Module | ast.ClassDef) and _is_block(block):
                noted = list[ast.stmt]()
                for statement in block:
                    note = f"_sabotage_hits[{str(path)!r}, {statement.lineno}] = 1"
                    noted += [*ast.parse(note).body, statement]
                setattr(node, name, noted)
    code = compile(ast.fix_missing_locations(tree), path, "exec", dont_inherit=True)
    for function in {name for name, _ in _sites(ast.parse(path.read_text("utf-8")))}:
        _put(path, code, function)


def _is_block(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], ast.stmt)


def _watch(items: list[Any], log: Path) -> None:
    """Writes the statements that each test comes to, and its seconds, of tests that pass."""
    reached, hits = {}, builtins.__dict__["_sabotage_hits"]
    for item in items:
        hits.clear()
        begin = time.process_time()
        if _passes(item, None):
            lines: dict[str, list[int]] = {}
            for file, number in sorted(hits):
                lines.setdefault(str(Path(file).relative_to(ROOT)), []).append(number)
            reached[item.nodeid] = [time.process_time() - begin, lines]
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
    entered: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    shares: list[dict[str, float]] = field(default_factory=list)
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

        _fork(works(), ended, self.jobs)
        return True

    def _reach(self, session: Any) -> None:
        """Which tests reach which line: watched once for the code and a file of tests as they are
        now, and kept in the work folder."""
        self.work.mkdir(parents=True, exist_ok=True)
        code = b"".join(p.read_bytes() for p in sources())
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
                for path in sources():
                    probe(path)
                forget()
                watched = (lambda f=f, i=i: _watch(i, f) for f, i in todo)
                _fork(watched, lambda *_: None, self.jobs)

            _fork(iter([watched_tests]), lambda *_: None)
        watched = [
            pair
            for file in sorted(parts)
            if file.exists()
            for pair in json.loads(file.read_text()).items()
        ]
        watched.sort(key=lambda pair: pair[1][0])
        self.names = [name for name, _ in watched]
        for number, (_, (_, lines)) in enumerate(watched):
            every = sum(map(len, lines.values()))
            self.shares.append({path: len(reached) / every for path, reached in lines.items()})
            for path, reached in lines.items():
                for line in reached:
                    self.entered.setdefault((path, line), []).append(number)

    def _order(self, mutant: Mutant) -> list[int]:
        """The tests that come to the statement of a change: first those that noticed others near
        it; then those that come to little but its file and the quickest of each file, in turn."""
        statement = statements(mutant["path"])[mutant["lines"][0]]
        ranks = Counter[str]()
        turns = dict[int, tuple[int, int]]()
        for number in self.entered.get((mutant["path"], statement), ()):
            file = self.names[number].partition("::")[0]
            turns[number] = ranks[file], number
            ranks[file] += 1
        quick = sorted(turns, key=turns.__getitem__)
        near = sorted(turns, key=lambda number: -self.shares[number].get(mutant["path"], 0))
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


@functools.cache
def statements(path: str) -> dict[int, int]:
    """The line where the innermost statement begins that holds a line, for each line of a file."""
    begins = {}
    for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):  # from the outside in
        if isinstance(node, ast.stmt) and node.end_lineno is not None:
            begins |= dict.fromkeys(range(node.lineno, node.end_lineno + 1), node.lineno)
    return begins


def key_of(mutant: Mutant) -> tuple[object, ...]:
    return tuple(mutant[name] for name in ("path", "source", "site", "how"))


def name_of(mutant: Mutant) -> tuple[str, ...]:
    """What `survivors.txt` calls a change; it stays while other lines of the file change."""
    return tuple(str(mutant[part]) for part in ("path", "function", "how", "text"))


def read_rows(path: Path) -> list[Mutant]:
    return (
        [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    )


def draw(count: int, seed: int) -> list[Mutant]:
    """A sample with as many changes of each package, in random order."""
    chosen = random.Random(seed)
    share = -(-count // len(PACKAGES))
    every = ([*mutants(package)] for package in PACKAGES)
    drawn = [one for rows in every for one in chosen.sample(rows, min(share, len(rows)))]
    chosen.shuffle(drawn)
    return drawn[:count]


def reasons() -> dict[tuple[str, ...], tuple[str, str]]:
    """What was found out about survivors by reading, by file, function, change and line: the
    verdict (`equivalent`, `wider`, `alive`) and why."""
    known, verdict, why = {}, "", ""
    for line in REASONS.read_text("utf-8").splitlines():
        if line.startswith("    "):
            place, how, text = line.strip().split(" | ", 2)
            path, function = place.split(" ")
            known[path, function, how, text] = verdict, why
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
            share = (counts["killed"] + counts["equivalent"]) / total
            print(f"{package or 'all':16}{total:5}:{each}; killed or equivalent {share:6.1%}")
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
