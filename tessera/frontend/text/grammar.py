"""Find the grammar files and build Lark parsers from them.

`grammars/` stands in the repository root; a wheel carries a copy inside the package. Building an
LALR table takes about a fifth of a second, so each parser is built once per process, on first use.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def grammar_text(name: str) -> str:
    """The text of `grammars/<name>.lark`."""
    for folder in (PACKAGE / "grammars", PACKAGE.parent / "grammars"):
        path = folder / f"{name}.lark"
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"grammars/{name}.lark is missing from this installation of tessera")
