"""Imports inside functions, which keep heavy packages out of start-up: one list, with reasons."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.helpers.sources import Source, package_sources, parse

ROOT = Path(__file__).parents[2]
LISTED: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
    "tessera"
]["lazy-imports"]


def lazy_imports(source: Source) -> Iterator[tuple[int, str]]:
    """The modules that are imported inside functions, with their lines."""
    for node in source.imports:
        if node.in_function:
            yield from ((node.line, module) for module in node.paths())


def row_of(module: str) -> str | None:
    """The longest row of the list that a module stands below."""
    rows = [row for row in LISTED if f"{module}.".startswith(f"{row}.")]
    return max(rows, key=len, default=None)


def test_every_import_in_a_function_is_listed() -> None:
    unlisted, used = [], set()
    for name, source in package_sources().items():
        for line, module in lazy_imports(source):
            row = row_of(module)
            used.add(row)
            if row is None:
                unlisted.append(f"{name}:{line}: {module}")
    assert unlisted == []
    assert LISTED.keys() <= used  # no stale rows


def test_rows_say_why() -> None:
    assert all(reason.strip() for reason in LISTED.values())


def test_imports_are_found_wherever_they_stand() -> None:
    text = "import os\ndef f():\n  if x:\n    import a.b\n  def g():\n    from c import d\n"
    assert set(lazy_imports(parse(text))) == {(4, "a.b"), (6, "c.d")}
    assert row_of("torchvision") is None
    assert row_of("torch.nn") == "torch"
