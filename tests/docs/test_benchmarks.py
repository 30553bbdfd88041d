"""Benchmarks: every script is in a group and in the README, starts, and imports what is there."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks.groups import GROUPS, STARTED_BY
from tests.docs.pages import ROOT, read
from tests.helpers.each import each

FOLDER = ROOT / "benchmarks"
README = read(FOLDER / "README.md")
ASIDE = {"corpus", "kernels"}  # sources that compilers are given
# What a machine may lack: a module that needs one of them is not imported.
ABSENT = {"torch", "triton", "transformers", "cuda", "openai", "aiconfigurator", "safetensors"}
FILES = sorted(path for path in FOLDER.rglob("*.py") if path.parts[-2] not in ASIDE | {"sources"})
SCRIPTS = {
    f"{path.parent.name}.{path.stem}": path
    for path in FILES
    if path.parent != FOLDER and '__name__ == "__main__"' in path.read_text("utf-8")
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def test_every_script_is_in_one_group() -> None:
    groups = {name: {run.module for run in runs} for name, runs in GROUPS.items()}
    for script in SCRIPTS.keys() - STARTED_BY.keys():
        assert sum(script in modules for modules in groups.values()) == 1, script
    assert set().union(*groups.values()) <= SCRIPTS.keys()


@pytest.mark.parametrize(("script", "starter"), STARTED_BY.items())
def test_scripts_that_others_start(script: str, starter: str) -> None:
    assert f"benchmarks.{script}" in SCRIPTS[starter].read_text("utf-8")


def test_the_readme_names_every_file_and_every_result() -> None:
    for path in FILES:
        is_named = f"`{path.stem}`" in README or f"{path.stem}.py`" in README
        assert is_named or path.stem == "__main__", path
    for path in (FOLDER / "results").iterdir():
        assert path.name in README, path.name


def test_the_readme_names_nothing_else() -> None:
    stems = {path.stem for path in FILES} | {path.stem for path in FOLDER.rglob("*.*")}
    for row in re.findall(r"^\| ([^|]*)\|", README, re.MULTILINE):
        for name in re.findall(r"`([\w/]+)(?:\.py)?`", row):
            assert name.rpartition("/")[2] in stems, name


def imported(nodes: Iterable[ast.AST]) -> dict[str, object]:
    """What these nodes import from the project, by the name that it has there."""
    found: dict[str, object] = {}
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.split(".")[0] not in ("tessera", "tests", "benchmarks"):
            continue
        try:
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
                found[alias.asname or alias.name] = getattr(module, alias.name)
        except ModuleNotFoundError as problem:
            if (problem.name or "").split(".")[0] not in ABSENT:
                raise AssertionError(f"{node.module}: {problem}") from problem
    return found


def misfit(call: ast.Call, names: dict[str, object]) -> str:
    """Why a call does not fit the signature of what is called; empty if it does."""
    called = names.get(call.func.id) if isinstance(call.func, ast.Name) else None
    if not callable(called):
        return ""
    is_open = any(isinstance(one, ast.Starred) for one in call.args)
    is_open |= any(keyword.arg is None for keyword in call.keywords)
    given = dict.fromkeys(keyword.arg for keyword in call.keywords if keyword.arg)
    try:
        signature = inspect.signature(called)
        if is_open:
            signature.bind_partial(**given)
        else:
            signature.bind(*call.args, **given)
    except ValueError:  # a class of C has none
        return ""
    except TypeError as problem:
        return f"line {call.lineno}: {ast.unparse(call.func)}: {problem}"
    return ""


@each(FILES)
def test_benchmarks_call_what_is_there(path: Path) -> None:
    """Most of them run nowhere in the tests: what has moved or changed would not be noticed."""
    tree = ast.parse(path.read_text("utf-8"))
    outside = imported(tree.body)
    parts = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    wrong = []
    for part in parts:
        names = outside | imported(ast.walk(part))
        calls = (node for node in ast.walk(part) if isinstance(node, ast.Call))
        wrong += [text for call in calls if (text := misfit(call, names))]
    assert not wrong, "\n".join(wrong)


def test_a_call_that_does_not_fit_is_found() -> None:
    (call,) = (n for n in ast.walk(ast.parse("read(page=1, lanes=2)")) if isinstance(n, ast.Call))
    assert "lanes" in misfit(call, {"read": read})


@pytest.mark.parametrize("path", SCRIPTS.values(), ids=module_of)
def test_scripts_start(path: Path) -> None:
    try:
        importlib.import_module(module_of(path))
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ABSENT:
            raise
        pytest.skip(f"needs {problem.name}")
