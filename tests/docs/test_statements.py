"""Statements are true as far as a machine can tell: what they name is there.

Pages, docstrings and comments name modules, functions, files, options, commands, versions and
counts; each is looked up in the code. Names of other things stand in `elsewhere.txt`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import click
import pytest

import tessera
from tessera.backend.cuda import replica
from tessera.backend.transports import proved_links
from tessera.codes import CODES, FORMER_CODES
from tessera.driver.serve import completion_requests
from tessera.ir.opcodes.lookup import OPCODES
from tessera.ir.opcodes.targets import NEWEST_VERSION
from tessera.passes.dependences import last_touch
from tessera.passes.footprint import footprint
from tessera.passes.lane_values import lanes
from tessera.planning.bound import coarse
from tessera.planning.promise import trial
from tessera.planning.search import small
from tessera.report import diagnostics
from tessera.simulation import host_calls, simulate_plan
from tests.docs.pages import ROOT, read
from tests.docs.test_commands import parsed
from tests.docs.texts import Known, Statement, quoted, read_all
from tests.fuzz.faults.kinds import KINDS
from tests.helpers.reference import cli

# Names of Python, PyTorch, CUDA and other programs; files of a reader or of a run; placeholders.
ELSEWHERE = frozenset(read(Path(__file__).parent / "elsewhere.txt").split())
MNEMONICS = {opcode.split(".")[0] for opcode in OPCODES}
EXPORTED = frozenset(tessera.__all__)
EXTRAS = set(tomllib.loads(read(ROOT / "pyproject.toml"))["project"]["optional-dependencies"])
OLD = ("CHANGELOG.md", "docs/reference/operators.md")  # says what was; made from the table
NAME = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*(?:\(\))?")
DATA = re.compile(r"^(?:torch|numba)\.|\.(?:json|xz|toml|safetensors|tsg|npz|ptx)$")
PATH = re.compile(r"(?<![\w/.~:<$@{*-])(?:[\w-]+/)+[\w-]+(?:\.\w+)*(?![\w*/{<])")
FILE = re.compile(r"(?<![\w/.*{<-])[\w-]+\.(?:py|lark|md|toml|js|yml)\b(?![.(]\w)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]+(?![\w*])")
Check = Callable[[Statement, Known], Iterator[str]]
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
TOP = {"tessera", "tests", "docs", "benchmarks", "grammars", "examples", "tools"}
TOP |= {"cli", "report", "driver", "frontend", "passes", "backend", "ir", "data", "explain"}


def wrong_names(said: Statement, known: Known) -> Iterator[str]:
    """Names in backticks that no code has; of a module's, that the module does not have."""
    words = known.package if said.path.startswith(("tessera/", "grammars/")) else known.words
    for name in quoted(said.text):
        if not NAME.fullmatch(name) or DATA.search(name):
            continue
        if name in known.paths or name in ELSEWHERE:
            continue
        parts = name.removesuffix("()").split(".")
        if len(parts) == 1:
            if parts[0] not in words and not re.fullmatch(r"TSR\d{4}|[a-z]+\d+[a-z]?", parts[0]):
                yield name
        elif parts[0] not in MNEMONICS and not (parts[0] == "tessera" and parts[1] in EXPORTED):
            for owner, part in pairwise(parts):
                if owner in known.inside and part not in known.inside[owner]:
                    yield name


def wrong_paths(said: Statement, known: Known) -> Iterator[str]:
    """Files and folders of the repository that are not there, in backticks or not."""
    for path in {*PATH.findall(said.text), *FILE.findall(said.text)}:
        is_ours = "/" not in path or path.split("/")[0] in TOP
        if is_ours and path not in known.paths and path not in ELSEWHERE:
            yield path


@cache
def options_of_commands() -> set[str]:
    """Every option of every command of `tessc`."""
    found, rest = {"--help", "--version"}, [cli.cli]
    while rest:
        command = rest.pop()
        rest += command.commands.values() if isinstance(command, click.Group) else []
        found.update(n for each in command.params for n in (*each.opts, *each.secondary_opts))
    return found


def wrong_commands(said: Statement, known: Known) -> Iterator[str]:
    """What users type or read: options, commands, targets, modules, codes, variables, schemas."""
    for option in OPTION.findall(said.text):
        if not any(option in some for some in (options_of_commands(), known.options, ELSEWHERE)):
            yield option
    for name in re.findall(r"`tessc ([a-z]+)\b", said.text):
        if name not in cli.cli.commands:
            yield f"tessc {name}"
    for line in quoted(said.text):
        if re.match(r"tessc [a-z]+ .*--", line) and line.split()[1] in cli.cli.commands:
            command, words = parsed(re.sub(r"[^\w\s./:=,-]", "", line))
            has = {n for each in command.params for n in (*each.opts, *each.secondary_opts)}
            used = {word.split("=")[0] for word in words if word.startswith("--")}
            yield from (f"{line}: {option}" for option in used - has - {"--help"})
    for target in re.findall(r"`make ([a-z][\w-]*)", said.text):
        if not re.search(rf"^{target}:", read(ROOT / "Makefile"), re.MULTILINE):
            yield f"make {target}"
    for module in re.findall(r"python -m ((?:tests|benchmarks|tessera)[\w.]*)", said.text):
        place = ROOT / module.rstrip(".").replace(".", "/")
        is_there = place.with_suffix(".py").is_file() or place.is_dir()
        if not is_there and module not in ELSEWHERE:
            yield f"python -m {module}"
    codes = {code.code for code in CODES}
    if said.path == "tessera/codes.py":  # former codes have no page of their own to be named for
        codes.update(*FORMER_CODES.values())
    yield from set(re.findall(r"\bTSR\d{4}\b", said.text)) - codes
    for name in re.findall(r"\bTESSERA_[A-Z_]*[A-Z]\b|\btessera-[a-z-]+/\d\b", said.text):
        if name not in known.words and name not in known.schemas:
            yield name
    for names in re.findall(r"(?:\.|tessera-compiler)\[([a-z]+(?:,[a-z]+)*)\]'", said.text):
        yield from (f"extra {name}" for name in set(names.split(",")) - EXTRAS)


def wrong_figures(said: Statement, known: Known) -> Iterator[str]:
    """Versions and counts of which the code says something else."""
    newest = "{}.{}".format(*NEWEST_VERSION)
    python = re.findall(r'requires-python = ">=(.*)"', read(ROOT / "pyproject.toml"))
    kinds = [str(len(KINDS))]
    for pattern, right in (
        (r"PTX(?: ISA)? 1\.0\s+to\s+(\d+\.\d+)", [newest]),
        (r"PTX, generic over opcodes \(PTX ISA (.*?),", [f"1.0 to {newest}"]),
        (r"versions newer than (\d\.\d)", [newest]),
        (r"Python (\d\.\d+) or newer", python),
        (r"faults of (\d+) kinds into", kinds),
    ):
        yield from (
            f"{figure} is {right[0]}"
            for figure in re.findall(pattern, said.text)
            if figure not in right
        )
    for count in re.findall(r"^(\w+) locks\.", said.text, re.MULTILINE):
        locks = len(re.findall(r"= threading\.R?Lock\(\)", read(ROOT / said.path)))
        if NUMBERS.index(count.lower()) != locks:
            yield f"{count} locks: {locks}"


# A page, the number that it states, and where the code has it.
STATED = [
    ("docs/concepts/planning.md", r"There are (\d+) draws", trial.DRAWS),
    ("docs/concepts/planning.md", r"memory holds \(at most (\d+)\)", trial.MOST_SLOTS),
    ("docs/concepts/planning.md", r"up to (\d+) placements", small._MOST_PLACEMENTS),
    ("docs/concepts/planning.md", r"more than ([\d,]+) steps are placed", coarse.MOST_TASKS),
    ("docs/concepts/simulation.md", r"follows the plan (\d+) times", simulate_plan.DRAWS),
    ("docs/concepts/simulation.md", r"A request has (\d+) calls", host_calls.CALLS_OF_REQUEST),
    ("docs/concepts/diagnostics.md", r"At most (\d+) findings", diagnostics.LIMIT),
    ("docs/developer/soundness.md", r"The last (\d+) writers", last_touch.MOST_KEPT),
    ("docs/developer/soundness.md", r"Above (\d+) objects", lanes.MOST_OPTIONS),
    ("docs/developer/soundness.md", r"with 3 or (\d+) independent", max(footprint.DRAWS.values())),
    ("docs/concepts/cuda-backend.md", r"make more than (\d+) graphs", replica.MOST_GRAPHS),
    ("docs/guides/serve.md", r"and (\d+) texts in `stop`", completion_requests.MOST_STOPS),
    ("SECURITY.md", r"(\d+) strangers are held", proved_links._MOST_UNPROVED),
]


@pytest.mark.parametrize(("page", "pattern", "number"), STATED)
def test_a_number_is_that_of_the_code(page: str, pattern: str, number: int) -> None:
    (stated,) = re.findall(pattern, read(ROOT / page))
    assert int(stated.replace(",", "")) == number


CHECKS = (wrong_names, wrong_paths, wrong_commands, wrong_figures)


def test_what_is_said_is_there() -> None:
    said, strings, known = read_all()
    wrong = [
        f"{each.path}: {name}"
        for check in CHECKS
        for each in ([*said, *strings] if check is wrong_commands else said)
        if each.path not in OLD
        for name in check(each, known)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("path", "text", "check"),
    [
        ("tessera/frontend/ptx/body.py", "a statement is an ordinary one (`ptx_run`)", wrong_names),
        ("tessera/driver/trace/arguments.py", "a base (`passes.base_words`)", wrong_names),
        ("tessera/ir/plan/costs.py", "`tessera.passes.estimate_costs` fills", wrong_names),
        ("docs/guides/library.md", "call `tessera.no_such_function()`", wrong_names),
        ("docs/guides/library.md", "`AnalysisManager.no_such_method` does", wrong_names),
        ("grammars/ptx.lark", "// item by item (frontend/ptx_scan.py)", wrong_paths),
        ("docs/developer/testing.md", "`tests/no_such_folder` has them", wrong_paths),
        ("docs/developer/testing.md", "`no_such_file.py` has them", wrong_paths),
        ("docs/concepts/planning.md", "`--no-such-option` does", wrong_commands),
        (
            "docs/concepts/planning.md",
            "`tessc check plan.tsp --objective cost` does",
            wrong_commands,
        ),
        ("docs/concepts/planning.md", "`tessc nothing` does", wrong_commands),
        ("docs/developer/testing.md", "`make nothing` does", wrong_commands),
        ("docs/developer/testing.md", "`python -m benchmarks.nothing` does", wrong_commands),
        ("docs/concepts/diagnostics.md", "it is TSR1999", wrong_commands),
        ("docs/concepts/diagnostics.md", "a former code, TSR1906", wrong_commands),
        (
            "grammars/ptx.lark",
            "// PTX, generic over opcodes (PTX ISA 9.0, chapters)",
            wrong_figures,
        ),
        ("docs/reference/settings.md", "`TESSERA_NO_SUCH=1` does", wrong_commands),
        ("docs/reference/json.md", "`tessera-nothing/1`", wrong_commands),
        ("docs/guides/serve.md", "`pip install '.[cuda,nothing]'`", wrong_commands),
        ("docs/reference/opcodes.md", "It covers PTX ISA 1.0 to 9.3.", wrong_figures),
        ("README.md", "Python 3.9 or newer", wrong_figures),
        ("docs/developer/testing.md", "faults of 87 kinds into", wrong_figures),
        ("tessera/backend/host_loop/dispatch.py", "Four locks. `_beginning`", wrong_figures),
    ],
)
def test_a_false_statement_is_found(path: str, text: str, check: Check) -> None:
    known = read_all()[2]
    assert list(check(Statement(path, text), known))


def test_enough_is_looked_at() -> None:
    said, strings, _ = read_all()
    names = sum(bool(NAME.fullmatch(name)) for each in said for name in quoted(each.text))
    assert names > 5000
    assert sum(len(OPTION.findall(each.text)) for each in [*said, *strings]) > 500
