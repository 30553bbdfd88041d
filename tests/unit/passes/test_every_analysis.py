"""Rules that hold for every analysis of the package, and that nobody has to write a test for."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import tessera.passes
from tessera import load
from tessera.passes.base import Analysis, AnalysisManager

TRACE = Path(__file__).parents[3] / "examples" / "traces" / "mlp.ptx"


def analyses() -> list[type[Any]]:
    """The classes with `needs` and `compute`, wherever they are."""
    classes = set()
    for module in pkgutil.walk_packages(tessera.passes.__path__, "tessera.passes."):
        for one in vars(importlib.import_module(module.name)).values():
            is_own = inspect.isclass(one) and one.__module__ == module.name
            if is_own and one is not Analysis and hasattr(one, "needs") and hasattr(one, "compute"):
                classes.add(one)
    return sorted(classes, key=lambda one: one.__name__)


def test_all_are_found() -> None:
    names = {one.__name__ for one in analyses()}
    assert {"AccessRegions", "Dependences", "LegalCuts"} <= names
    assert len({one.name for one in analyses()}) == len(names)


@pytest.mark.parametrize("analysis", analyses(), ids=lambda one: one.__name__)
def test_it_says_what_comes_in_and_what_goes_out(analysis: type[Any]) -> None:
    source = Path(inspect.getfile(analysis)).read_text("utf-8")
    text = " ".join((ast.get_docstring(ast.parse(source)) or "").split())
    assert "In: " in text
    assert "Out: " in text.partition("In: ")[2]


@pytest.mark.parametrize("analysis", analyses(), ids=lambda one: one.__name__)
def test_it_is_a_fact_about_the_program(analysis: type[Any]) -> None:
    """Frozen, computed with what it declares, and the same when it is computed again."""
    assert analysis.__dataclass_params__.frozen
    first, again = (AnalysisManager(load(str(TRACE))).get(analysis) for _ in range(2))
    for field in fields(analysis):
        assert shown(first, field.name) == shown(again, field.name), field.name


def shown(analysis: object, name: str) -> str:
    """A field as text, without the addresses of functions in this process."""
    return re.sub(r" at 0x[0-9a-f]+>", ">", repr(getattr(analysis, name)))
