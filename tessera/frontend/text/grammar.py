"""Find the grammar files, and the trace of `tessc demo`.

`grammars/` is in the repository root; a wheel carries a copy of it and of that trace inside the
package. Building an LALR table takes up to 0.2 s, so each parser is built once per process, on
first use.
"""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]


def grammar_text(name: str) -> str:
    """The text of `grammars/<name>.lark`."""
    return _text("grammars", f"{name}.lark")


def example_text(name: str) -> str:
    """The text of a trace of `examples/traces` that a wheel carries too."""
    return _text("examples/traces", name)


def _text(folder: str, name: str) -> str:
    for root in (PACKAGE, PACKAGE.parent):
        path = root / folder / name
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise FileNotFoundError(f"{folder}/{name} is missing from this installation of tessera")
