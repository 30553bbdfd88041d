"""Benchmarks: every script is in a group and in the README, starts, and imports what is there."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from benchmarks.groups import GROUPS, STARTED_BY
from tests.docs.pages import ROOT, read

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


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_benchmarks_import_what_is_there(path: Path) -> None:
    """Most of them run nowhere in the tests: a name that has moved would not be noticed."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.split(".")[0] not in ("tessera", "tests", "benchmarks"):
            continue
        try:
            module = importlib.import_module(node.module)
            for alias in node.names:
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
        except ModuleNotFoundError as problem:
            if (problem.name or "").split(".")[0] not in ABSENT:
                raise AssertionError(f"{node.module}: {problem}") from problem


@pytest.mark.parametrize("path", SCRIPTS.values(), ids=module_of)
def test_scripts_start(path: Path) -> None:
    try:
        importlib.import_module(module_of(path))
    except ModuleNotFoundError as problem:
        if (problem.name or "").split(".")[0] not in ABSENT:
            raise
        pytest.skip(f"needs {problem.name}")
