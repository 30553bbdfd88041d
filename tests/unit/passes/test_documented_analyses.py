"""Every analysis of the package has a name of its own and a place in the documentation."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path
from typing import Any

import pytest

import tessera.passes
from tessera.passes.base import Analysis

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "access-analysis.md"


def analyses() -> list[type[Any]]:
    """The classes of the package that have what an analysis has."""
    parts = ("name", "needs", "compute")
    known: set[type[Any]] = set()
    for module in pkgutil.walk_packages(tessera.passes.__path__, "tessera.passes."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if kind is not Analysis and all(hasattr(kind, part) for part in parts):
                known.add(kind)
    return sorted(known, key=lambda kind: kind.__name__)


ANALYSES = analyses()


def test_all_are_seen() -> None:
    assert len(ANALYSES) >= 4
    assert len({kind.name for kind in ANALYSES}) == len(ANALYSES)


@pytest.mark.parametrize("kind", ANALYSES, ids=lambda kind: kind.name)
def test_it_is_documented(kind: type[Any]) -> None:
    assert f"`{kind.__name__}`" in PAGE.read_text("utf-8")
