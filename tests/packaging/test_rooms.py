"""The tree: few loose modules, a text in every room, no circles, caches that know their code."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from statistics import median

import networkx
import pytest

from tessera.frontend.cache import analysis_cache, module_cache
from tessera.frontend.cache.code_digest import files
from tessera.frontend.text.grammar import PACKAGE
from tests.helpers.sources import source_of

ROOT = Path(__file__).parents[2]
ROOMS = {"cli", "report", "driver", "frontend", "passes", "backend", "ir"}
LOOSE = {"__init__", "__main__", "codes", "diagnostics", "output", "settings", "wording"}

# Lines of a file: above `LONG` its docstring has a sentence with `REASON`, and none is longer than
# `LONGEST`. The median of all files is in `MEDIAN`: neither fragments nor heaps.
LONG, LONGEST = 400, 700
REASON = "Longer than 400 lines because"
MEDIAN = range(140, 261)


def modules_below(folder: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imports_of(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a file imports, anywhere in it."""
    found: set[str] = set()
    for node in source_of(path).imports:
        if not node.is_from:
            found |= set(node.names)
        elif node.module and not node.is_relative:
            found |= (set(node.paths()) & known.keys()) or {node.module}
    return found & known.keys()


def test_few_modules_stand_loose() -> None:
    assert {path.stem for path in (ROOT / "tessera").glob("*.py")} == LOOSE


@pytest.mark.parametrize("folder", ["tessera", "benchmarks"])
def test_no_modules_import_each_other_in_a_circle(folder: str) -> None:
    known = modules_below(folder)
    graph = networkx.DiGraph()
    for name, path in known.items():
        graph.add_edges_from((name, other) for other in imports_of(path, known) - {name})
    circles = [
        sorted(part) for part in networkx.strongly_connected_components(graph) if len(part) > 1
    ]
    assert circles == []


def test_every_room_says_what_it_is_for() -> None:
    """What comes in, what goes out, and who may import it: every room that does is named."""
    known = modules_below("tessera")
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in known.items():
        for other in imports_of(path, known):
            home = other if known[other].name == "__init__.py" else other.rpartition(".")[0]
            importers[home].add(name)
    for room, path in known.items():
        if path.name != "__init__.py" or room == "tessera":
            continue
        text = source_of(path).text
        assert "In: " in text, room
        assert "Out: " in text, room
        _, _, named = re.sub(r"\s+", " ", text).partition("mported by ")
        assert named, room
        names = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", named))))
        parent = room.rpartition(".")[0]
        unnamed = {
            name
            for name in importers[room] - {"tessera"}
            if not name.startswith(f"{room}.")
            and not names & set(name.split(".")[1:])
            and not (name.startswith(f"{parent}.") and re.search("neighbours|the other", named))
        }
        assert not unnamed or "everything" in named, (room, unnamed)


@pytest.mark.parametrize("cache", [module_cache, analysis_cache])
def test_caches_know_the_code_that_decides_what_they_hold(cache: object) -> None:
    """A pattern that matches nothing would let old entries pass for new ones."""
    for place in cache._SOURCES:  # type: ignore[attr-defined]
        found = list(files(place))
        assert found, place
        below = PACKAGE / place.removesuffix("/**")
        deep = sorted(below.rglob("*.py")) if place.endswith("/**") else sorted(below.glob("*.py"))
        assert sorted(found) == [str(path) for path in deep or [below]]


def test_a_file_is_a_subject() -> None:
    """A long one says why it is not two; a short one is a subject all the same."""
    lengths = {
        name: len(path.read_text("utf-8").splitlines())
        for name, path in modules_below("tessera").items()
        if path.name != "__init__.py"
    }
    known = modules_below("tessera")
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
    without_reason = {
        name: length
        for name, length in lengths.items()
        if length > LONG and REASON not in " ".join(source_of(known[name]).text.split())
    }
    assert without_reason == {}
    assert int(median(lengths.values())) in MEDIAN
