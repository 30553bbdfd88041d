"""Do the tests kill what they killed before a change? Mutants of the code that decides soundness.

`mutants.py draw BEFORE drawn.json`, then `run TREE drawn.json results.json` for both trees, then
`compare before.json after.json`. A mutant is one changed operator, constant or condition; the name
of its function and the text of its line find it in the other tree, and where that fails a spare
takes its place. `run` notes which functions each test enters (needs Python 3.12) and forks for each
mutant: the child puts the changed code into the loaded function and runs the tests that enter it.
"""

import ast
import importlib
import json
import os
import random
import resource
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

SEED, COUNT, SPARE, GONE = 37, 200, 200, 9
SECONDS = 300  # of processor time: a mutant that takes longer is in a loop, and counts as killed
ROOMS = "passes/[!pc]*", "passes/checker", "passes", "planning/lower"
LAWS = (f"property/test_{law}.py" for law in ("soundness_kernels", "check_plan", "grid_pieces"))
TESTS = ("kernels/test_cases.py", *LAWS, "golden", "unit/passes", "unit/planning/lower", "oracle")
NAMES = "Lt LtE Gt GtE Eq NotEq Is IsNot In NotIn And Or Add Sub BitAnd BitOr".split()  # noqa: SIM905
OPPOSITE = {name: NAMES[number ^ 1] for number, name in enumerate(NAMES)}

Mutant = dict[str, Any]


def _change(node: ast.AST) -> str | None:
    """Changes a node into its mutant, and says how; None if the node has none."""
    match node:
        case ast.Compare(ops=[op]) if (how := type(op).__name__) in OPPOSITE:
            node.ops = [getattr(ast, OPPOSITE[how])()]
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if (how := type(op).__name__) in OPPOSITE:
            node.op = getattr(ast, OPPOSITE[how])()
        case ast.Constant(value=int(value)):
            how, node.value = str(value), not value if isinstance(value, bool) else value + 1
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            how, node.test = "condition", ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
        case _:
            return None
    return how


def _sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """The nodes in functions and methods of a module, each with the name of the function."""
    for outer in tree.body:
        owner = f"{outer.name}." if isinstance(outer, ast.ClassDef) else ""
        for function in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            if isinstance(function, ast.FunctionDef):
                for node in (node for statement in function.body for node in ast.walk(statement)):
                    yield owner + function.name, node


def _mutants(paths: list[Path], root: Path) -> Iterator[Mutant]:
    for path in paths:
        lines = path.read_text().splitlines()
        for site, (function, node) in enumerate([*_sites(ast.parse("\n".join(lines)))]):
            if how := _change(node):
                line = lines[node.lineno - 1]
                column = node.col_offset - len(line) + len(line.lstrip())
                key = [function.rpartition(".")[2], line.strip(), column, how]
                where = {"path": str(path.relative_to(root)), "function": function, "site": site}
                yield where | {"key": key}


def carry(mutants: list[Mutant], root: Path) -> list[Mutant | None]:
    """Each mutant as it is in the tree `root`; None where its line is gone or is there twice."""
    places: dict[str, list[Mutant]] = {str(mutant["key"]): [] for mutant in mutants}
    for mutant in _mutants(sorted(root.glob("tessera/p*/**/*.py")), root):
        places.get(str(mutant["key"]), []).append(mutant)
    found = (places[str(mutant["key"])] for mutant in mutants)
    return [same[0] if len(same) == 1 else None for same in found]


def _apply(mutant: Mutant, root: Path) -> bool:
    """Puts the code of the mutant into the loaded function; False if that is a wrapper's."""
    source = root / mutant["path"]
    tree = ast.parse(source.read_text())
    _change([*_sites(tree)][mutant["site"]][1])
    code: CodeType = compile(ast.fix_missing_locations(tree), source, "exec", dont_inherit=True)
    target: Any = importlib.import_module(mutant["path"].removesuffix(".py").replace("/", "."))
    for name in mutant["function"].split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == name)
        target = target.__dict__[name]
    target = getattr(target, "fget", None) or getattr(target, "__func__", target)
    while hasattr(target, "__wrapped__"):
        target = target.__wrapped__
    if isinstance(target, FunctionType):
        target.__code__ = code
    return isinstance(target, FunctionType)


def _fork(works: list[Callable[[], None]]) -> list[int]:
    """Calls functions in children, one for each core, and returns how each child ended."""
    running, statuses = dict[int, int](), [0] * len(works)
    for number, work in enumerate(works):
        if not (child := os.fork()):
            try:
                work()
                os._exit(0)
            finally:
                os._exit(1)
        running[child] = number
        while len(running) == os.cpu_count() or (running and number == len(works) - 1):
            child, status = os.wait()
            statuses[running.pop(child)] = status
    return statuses


def _passed(session: Any, items: list[Any]) -> Iterator[Any]:
    """Runs tests, and yields those that pass."""
    for item, following in zip(items, [*items[1:], None], strict=True):
        failed = session.testsfailed
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if session.testsfailed == failed:
            yield item


def _watch(session: Any, items: list[Any], log: Path) -> None:
    """Writes which functions each test enters, of tests that pass."""
    watch, names, codes = sys.monitoring, {}, set[CodeType]()
    watch.use_tool_id(3, "mutants")
    start = lambda code, _: codes.add(code) or watch.DISABLE  # noqa: E731
    watch.register_callback(3, watch.events.PY_START, start)
    watch.set_events(3, watch.events.PY_START)
    for item in _passed(session, items):
        names[item.nodeid] = [(c.co_filename, c.co_qualname.split(".<")[0]) for c in codes]
        codes.clear()
        watch.restart_events()
    log.write_text(json.dumps(names))


@dataclass
class Forks:
    """A plugin of pytest: tests run in children of the process that has collected them."""

    mutants: list[Mutant | None]
    root: Path

    def pytest_runtestloop(self, session: Any) -> bool:
        """Takes the place of pytest's own loop over tests."""
        with tempfile.TemporaryDirectory() as folder:
            files: dict[Path, list[Any]] = {}
            for item in session.items:
                files.setdefault(Path(folder, item.path.stem), []).append(item)
            _fork([lambda f=file, i=files[file]: _watch(session, i, f) for file in files])
            logs = [json.loads(path.read_text()) for path in sorted(Path(folder).iterdir())]
        entered = {test: {*map(tuple, names)} for log in logs for test, names in log.items()}
        works = []
        for mutant in self.mutants:
            name = mutant and (str(self.root / mutant["path"]), mutant["function"])
            items = [item for item in session.items if name in entered.get(item.nodeid, ())]
            works.append(lambda m=mutant, i=items: self._try(session, m, i))
        self.statuses = _fork(works)
        return True

    def _try(self, session: Any, mutant: Mutant | None, items: list[Any]) -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        if mutant is None or not _apply(mutant, self.root):
            os._exit(GONE)
        assert all(item is passed for item, passed in zip_longest(items, _passed(session, items)))


def main(command: str, *paths: str) -> int:
    """Runs one of the three commands."""
    first, *rest = (Path(path).resolve() for path in paths)
    if command == "draw":
        rooms = sorted(path for room in ROOMS for path in first.glob(f"tessera/{room}/*.py"))
        mutants = random.Random(SEED).sample([*_mutants(rooms, first)], COUNT + SPARE)
    elif command == "run":
        mutants = json.loads(rest[0].read_text())
        os.chdir(first)
        forks = Forks(carry(mutants, first), first)
        tests = [f"tests/{test}" for test in TESTS if Path("tests", test).exists()]
        pytest.main(["-q", "-n0", "--tb=no", "-pno:cacheprovider", *tests], plugins=[forks])
        for mutant, status in zip(mutants, forks.statuses, strict=True):
            mutant["result"] = {0: "survived", GONE << 8: "gone"}.get(status, "killed")
    else:
        before, after = (json.loads(path.read_text()) for path in (first, rest[0]))
        pairs = [pair for pair in zip(before, after, strict=True) if pair[1]["result"] != "gone"]
        killed = [late for early, late in pairs[:COUNT] if early["result"] == "killed"]
        lost = [mutant for mutant in killed if mutant["result"] == "survived"]
        print(*lost, f"{len(killed)} were killed, and {len(lost)} of them live now", sep="\n")
        return bool(lost)
    rest[-1].write_text("[\n" + ",\n".join(map(json.dumps, mutants)) + "\n]\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
