"""Names in the docs are names of something: modules import, and files are there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from tests.docs import pages
from tests.helpers.each import each

DOTTED = re.compile(r"(?<![\w./-])tessera((?:\.\w+)+)(?![\w/]| \d)")
FILE = re.compile(r"[\w.*-]+(?:/[\w.*-]+)*/?")
# Names of other things: an array in a file of results.
WORDS = {"tessera.requests"}
# Folders that a path in the docs may start from.
BASES = ("", "tessera", "tessera/passes", "tessera/frontend", "tessera/backend", "benchmarks")
ENDINGS = (".py", ".lark", ".toml", ".lock", ".yml")
# Files of the reader's, files that a wheel or a run has, and folders that are planned.
NOT_HERE = {
    "model.py",
    "common.py",
    "serve.py",
    "tessera/grammars",
    "backend/transports",
    "driver/serve",
    "report/page",
    "out/gpu",
}


def resolve(dotted: str) -> object:
    """What a dotted name stands for: a module, or something in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: object = importlib.import_module(module)
        except ModuleNotFoundError as missing:
            if missing.name is None or not module.startswith(missing.name):
                raise
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    raise AssertionError(dotted)


@each([*pages.PAGES, *pages.EXPLAIN])
def test_dotted_names_import(page: Path) -> None:
    for rest in set(DOTTED.findall(pages.read(page))):
        if f"tessera{rest}" not in WORDS:
            resolve(f"tessera{rest}")


def paths(page: Path) -> list[str]:
    """What a page quotes that must be a file or folder of the repository."""
    top = {path.name for path in pages.ROOT.iterdir()}
    inside = {path.name for path in (pages.ROOT / "tessera").iterdir()}
    found = []
    for text in pages.quoted(page):
        if not FILE.fullmatch(text) or "nnnn" in text or text.strip("./") == "":
            continue
        if ("/" in text and text.split("/")[0] in top | inside) or text.endswith(ENDINGS):
            found.append(text)
    return found


@each(pages.PAGES)
def test_paths_exist(page: Path) -> None:
    for path in paths(page):
        if path.rstrip("/") in NOT_HERE or path.startswith((".venv", "out/")):
            continue
        if "/" in path:
            places = [pages.ROOT / base for base in BASES]
            assert any(next(place.glob(path.rstrip("/")), None) for place in places), path
        else:
            folders = [pages.ROOT / name for name in ("tessera", "benchmarks", "tests", "grammars")]
            found = next((pages.ROOT.glob(path)), None)
            assert found or any(next(f.rglob(path), None) for f in folders), path


def test_something_is_looked_at() -> None:
    assert sum(len(paths(page)) for page in pages.PAGES) > 80
    assert sum(len(DOTTED.findall(pages.read(page))) for page in pages.PAGES) > 30


def test_a_wrong_name_is_found() -> None:
    with pytest.raises(AttributeError):
        resolve("tessera.passes.base.NoSuchName")
    with pytest.raises(AttributeError):
        resolve("tessera.no_such_module")


def test_nothing_refers_to_pages_outside() -> None:
    """Reasons are in the decision records, not in a document that a reader does not have."""
    for folder in ("tessera", "tests", "benchmarks", "grammars", "docs", "examples"):
        for path in (pages.ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".md", ".lark") and path != Path(__file__):
                assert "design, section" not in path.read_text("utf-8"), path


def test_decision_records_that_are_cited_exist() -> None:
    folder = pages.DOCS / "developer" / "decisions"
    known = {path.name[:4] for path in folder.glob("[0-9]*.md")}
    for path in (pages.ROOT / "tessera").rglob("*.py"):
        for cited in re.findall(
            r"decision records? (\d{4})(?: and (\d{4}))?", path.read_text("utf-8")
        ):
            assert set(filter(None, cited)) <= known, path
