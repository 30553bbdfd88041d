"""Every name that a file imports from this repository is there, also where PyTorch or a GPU is
needed to run the file."""

from __future__ import annotations

import re
import symtable
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.helpers.corpus import ROOT

ROOMS = ("tessera", "tests", "benchmarks", "tools")


@cache
def names_of(path: Path) -> frozenset[str] | None:
    """What a module defines or imports; None if it makes names as they are asked for."""
    table = symtable.symtable(path.read_text("utf-8"), str(path), "exec")
    made = (own for own in table.get_symbols() if own.is_assigned() or own.is_imported())
    found = frozenset(own.get_name() for own in made)
    return None if "__getattr__" in found else found


def module(name: str) -> Path | None:
    place = ROOT.joinpath(*name.split("."))
    files = (place.with_suffix(".py"), place / "__init__.py")
    return next((file for file in files if file.is_file()), place if place.is_dir() else None)


_IMPORTS = re.compile(
    rf"^[ \t]*from ({'|'.join(ROOMS)})([\w.]*) import (\([^)]*\)|.*)", re.MULTILINE
)


def missing(text: str) -> Iterator[str]:
    for room, rest, names in _IMPORTS.findall(text):
        file = module(room + rest)
        there = names_of(file) if file is not None and file.is_file() else frozenset()
        for own in re.findall(r"(\w+)(?: as \w+)?\s*(?:,|\)|$)", names.partition("#")[0]):
            is_there = file is not None and (there is None or own in there)
            if not is_there and module(f"{room}{rest}.{own}") is None:
                yield f"{room}{rest}.{own}"


@pytest.mark.parametrize("room", ["tests", "benchmarks", "tools", "examples"])
def test_what_is_imported_is_there(room: str) -> None:
    files = sorted((ROOT / room).rglob("*.py"))
    assert files
    gone = {
        f"{file.relative_to(ROOT)}: {name}"
        for file in files
        for name in missing(file.read_text("utf-8"))
    }
    assert not gone


def test_a_name_that_is_gone_is_found() -> None:
    assert list(missing("from tessera.driver.plan import plan, nothing")) == [
        "tessera.driver.plan.nothing"
    ]
    assert list(missing("from tessera.driver import nothing")) == ["tessera.driver.nothing"]
