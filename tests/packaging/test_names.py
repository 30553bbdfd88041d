"""One noun, one thing: names of classes, and variables that say what they hold."""

from __future__ import annotations

from collections import defaultdict

from tests.helpers.sources import ImportedNames, package_sources, parse


def test_a_class_name_stands_for_one_concept() -> None:
    """Classes with one name in two modules are one concept on two levels; each names the other.

    A leading underscore makes no other name.
    """
    homes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for module, source in package_sources().items():
        for name, text in source.classes:
            homes[name.lstrip("_")].append((module, text))
    unsaid = []
    for name, defined in homes.items():
        for module, text in defined:
            others = [other.removeprefix("tessera.") for other, _ in defined if other != module]
            says = f"`{name}`" in text and any(f"`{other}`" in text for other in others)
            if len(defined) > 1 and not says:
                unsaid.append(f"{module}: {name}")
    assert unsaid == []


def test_variables_say_what_they_hold() -> None:
    """`found` and `one` could be anything; a few in short functions are left."""
    assert sum(source.vague for source in package_sources().values()) < 60


def test_vague_variables_are_found_wherever_they_are_stored() -> None:
    """Also where the pattern decides that a file need not be walked."""
    for text in (
        "found = 1",
        "found: int = 1",
        "found\\\n=1",
        "for one in x: ...",
        "for a, (one) in x: ...",
        "[one for one in x]",
        "with x as one: ...",
        "print(one := 1)",
        "(found\n, a) = x",
        "one += 1",
        "*found, a = x",
    ):
        assert parse(text).vague == 1, text
    for text in (
        "# one is found in one",
        "f(found, one=one)",
        "x.found = one",
        "def one(found): ...",
    ):
        assert parse(text).vague == 0, text


def test_nothing_imports_the_list_of_public_names() -> None:
    """`tessera` itself stands above all; what it has comes from modules further down."""
    sources = package_sources()
    modules = {name.removesuffix(".__init__") for name in sources}
    upward = [
        f"{module}:{node.line}"
        for module, source in sources.items()
        for node in source.imports
        if (node.module == "tessera" and _own(node, modules))
        or (not node.is_from and "tessera" in node.names)
    ]
    assert upward == []


def _own(node: ImportedNames, modules: set[str]) -> bool:
    """Whether a name comes from the package itself, not from one of its modules."""
    return any(f"tessera.{name}" not in modules for name in node.names)
