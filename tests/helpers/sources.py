"""The package's own sources as trees, read once for all tests that look at them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file."""
    return ast.parse(path.read_text("utf-8"))


def package_trees() -> dict[str, ast.Module]:
    """The trees of all modules of the package, by name; packages end in `.__init__`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): tree_of(path)
        for path in sorted((ROOT / "tessera").rglob("*.py"))
    }


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Every statement below a node, at any depth: a tenth of all nodes, and where imports are."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        for name in _BLOCKS:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                yield from inner
                waiting += inner
