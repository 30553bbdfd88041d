"""What the project's own sources hold, read once for all tests that look at it.

Trees are not kept: millions of nodes would make every later garbage collection slow.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
# Names of modules in strings: what `import_module`, `python -m` and registries are given.
_DOTTED = re.compile(r"""(?<=["'])tessera(?:\.\w+)+""")
# Where one of them is stored, no word but `in` comes next: most files need not be walked.
_VAGUE = re.compile(r"\b(?:found|one)\b[^\S\n]*(?:\n|[^\w\s]|in\b)")


@dataclass(frozen=True, slots=True)
class ImportedNames:
    """One import statement: `import names`, or `from module import names`."""

    line: int
    module: str | None
    names: tuple[str, ...]
    is_from: bool
    is_relative: bool
    in_function: bool

    def paths(self) -> list[str]:
        """The imported names, with the module before them."""
        return [f"{self.module}.{name}" if self.is_from else name for name in self.names]


@dataclass(frozen=True, slots=True)
class Source:
    """A file: its own text, imports, modules named in strings, classes with texts, vague names."""

    text: str
    imports: tuple[ImportedNames, ...]
    strings: tuple[str, ...]
    classes: tuple[tuple[str, str], ...]
    vague: int  # how often a variable called `found` or `one` is stored


def parse(text: str) -> Source:
    """What a text of Python holds."""
    tree = ast.parse(text)
    imports, classes = [], []
    for node, in_function in _statements(tree):
        if isinstance(node, ast.ClassDef):
            classes.append((node.name, ast.get_docstring(node) or ""))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            is_from = isinstance(node, ast.ImportFrom)
            imports.append(
                ImportedNames(
                    line=node.lineno,
                    module=node.module if is_from else None,
                    names=tuple(alias.name for alias in node.names),
                    is_from=is_from,
                    is_relative=is_from and bool(node.level),
                    in_function=in_function,
                )
            )
    return Source(
        text=ast.get_docstring(tree) or "",
        imports=tuple(imports),
        strings=tuple(_DOTTED.findall(text)),
        classes=tuple(classes),
        vague=_vague_variables(tree) if _VAGUE.search(text) else 0,
    )


@cache
def source_of(path: Path) -> Source:
    """What a file holds."""
    return parse(path.read_text("utf-8"))


def package_sources() -> dict[str, Source]:
    """All modules of the package, by name; packages end in `.__init__`."""
    return {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): source_of(path)
        for path in sorted((ROOT / "tessera").rglob("*.py"))
    }


def _statements(tree: ast.Module) -> Iterator[tuple[ast.AST, bool]]:
    """Every statement, at any depth, and whether it stands in a function."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, False)]
    while waiting:
        node, inside = waiting.pop()
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for name in _BLOCKS:
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                below = [(one, inside) for one in inner]
                yield from below
                waiting += below


def _vague_variables(tree: ast.Module) -> int:
    return sum(
        isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Store)
        and node.id in ("found", "one")
        for node in ast.walk(tree)
    )
