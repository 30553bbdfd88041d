"""Every entry of the table imports, has its name, and a place in the documentation."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from tessera.passes.registry import ANALYSES

PAGE = Path(__file__).parents[3] / "docs" / "concepts" / "access-analysis.md"


@pytest.mark.parametrize("name", ANALYSES)
def test_entry(name: str) -> None:
    module, _, attribute = ANALYSES[name].partition(":")
    analysis = getattr(importlib.import_module(module), attribute)
    assert analysis.name == name
    assert f"`{attribute}`" in PAGE.read_text("utf-8")
