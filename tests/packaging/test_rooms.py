"""The tree: few loose modules, a text in every room, no circles, caches that know their code."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
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

LOOSE_FILES = "(loose files)"
# Lines of a file: above `LONG` its docstring has a sentence with `REASON`, and none is longer than
# `LONGEST`. The median of all files is in `MEDIAN`: neither fragments nor heaps.
LONG, LONGEST = 400, 700
REASON = "Longer than 400 lines because"
MEDIAN = range(150, 261)


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


def arrows(known: dict[str, Path]) -> Iterator[tuple[str, str]]:
    """Every module with each module that it imports, by a statement or by a string."""
    for name, path in known.items():
        if name == "tessera":  # its table of public names; nothing in the package imports it
            continue
        for other in imports_of(path, known):
            yield name, other
        for text in source_of(path).strings:
            parts = text.split(".")
            prefixes = (".".join(parts[:end]) for end in range(len(parts), 1, -1))
            other = next((prefix for prefix in prefixes if prefix in known), None)
            if other is not None:
                yield name, other


def unit_in(package: str, module: str, known: dict[str, Path]) -> str:
    """The folder of a package that a module is in; loose modules of a package are one unit.

    At the top every loose module is a unit: they are layers of their own.
    """
    first = module.removeprefix(f"{package}.").partition(".")[0]
    child = f"{package}.{first}"
    is_folder = child in known and known[child].name == "__init__.py"
    return first if is_folder or package == "tessera" else LOOSE_FILES


def circles_of_folders(known: dict[str, Path]) -> dict[str, list[set[str]]]:
    """By package, the groups of its folders that import each other."""
    graphs: dict[str, networkx.DiGraph] = defaultdict(networkx.DiGraph)
    for name, other in arrows(known):
        package = name.rpartition(".")[0]
        while package:
            if other.startswith(f"{package}."):
                ends = unit_in(package, name, known), unit_in(package, other, known)
                graphs[package].add_edge(*ends)
            package = package.rpartition(".")[0]
    groups = {
        package: [part for part in networkx.strongly_connected_components(graph) if len(part) > 1]
        for package, graph in graphs.items()
    }
    return {package: found for package, found in groups.items() if found}


def test_no_folders_of_a_package_form_a_circle() -> None:
    """Imports by string count. `arrows` says which modules make an arrow."""
    assert circles_of_folders(modules_below("tessera")) == {}


def test_circles_are_found_through_strings_and_loose_files(tmp_path: Path) -> None:
    texts = {
        "tessera/__init__.py": "",
        "tessera/a/__init__.py": "",
        "tessera/a/b/__init__.py": "",
        "tessera/a/b/x.py": "import_module('tessera.a.y')",
        "tessera/a/y.py": "def f():\n    from tessera.a.b.x import g",
        "tessera/c/__init__.py": "",
        "tessera/c/z.py": "from tessera.a import y",
    }
    known = {}
    for place, text in texts.items():
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        known[place[:-3].replace("/", ".").removesuffix(".__init__")] = path
    assert circles_of_folders(known) == {"tessera.a": [{LOOSE_FILES, "b"}]}


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
