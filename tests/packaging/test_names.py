"""One noun, one thing: names of classes, and variables that say what they hold."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict

from tests.helpers.sources import package_trees, statements


def test_a_class_name_stands_for_one_concept() -> None:
    """Classes with one name in two modules are one concept on two levels; each names the other.

    A leading underscore makes no other name.
    """
    homes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for module, tree in package_trees().items():
        for node in statements(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name.lstrip("_")].append((module, ast.get_docstring(node) or ""))
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
    stored = Counter(
        node.id
        for tree in package_trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    assert stored["found"] + stored["one"] < 60


def test_nothing_imports_the_list_of_public_names() -> None:
    """`tessera` itself stands above all; what it has comes from modules further down."""
    trees = package_trees()
    modules = {name.removesuffix(".__init__") for name in trees}
    upward = [
        f"{module}:{node.lineno}"
        for module, tree in trees.items()
        for node in statements(tree)
        if (isinstance(node, ast.ImportFrom) and node.module == "tessera" and _own(node, modules))
        or (isinstance(node, ast.Import) and any(n.name == "tessera" for n in node.names))
    ]
    assert upward == []


def _own(node: ast.ImportFrom, modules: set[str]) -> bool:
    """Whether a name comes from the package itself, not from one of its modules."""
    return any(f"tessera.{alias.name}" not in modules for alias in node.names)
