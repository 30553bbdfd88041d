"""The table of the PTX parser comes with the package: building it takes ten times as long.

In: the text of the grammar. Out: what `Lark` saves of a parser, if it was saved from this grammar
by this version of Lark; else None, and the caller builds the parser. `tools/store_parser.py` writes
the file, `tests/unit/frontend/test_stored_parser.py` compares it with a parser that was built.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from collections.abc import Mapping
from typing import TypeVar

import lark
from lark.grammar import Rule
from lark.lexer import TerminalDef

from tessera.frontend.text.grammar import PACKAGE

Value = TypeVar("Value")

FILE = PACKAGE / "data" / "ptx_parser.json.gz"


def _key(grammar: str) -> str:
    rules = re.sub(r"^//.*\n", "", grammar, flags=re.MULTILINE)
    return hashlib.sha256(f"{lark.__version__}\n{rules}".encode()).hexdigest()


def store_parser(grammar: str, parser: lark.Lark) -> None:
    """Write what there is to store of a parser of a grammar."""
    data, memo = parser.memo_serialize([TerminalDef, Rule])
    for given in ("transformer", "_plugins"):
        del data["options"][given]
    text = json.dumps({"key": _key(grammar), "data": data, "memo": memo}, separators=(",", ":"))
    FILE.write_bytes(gzip.compress(text.encode("ascii"), mtime=0))


def stored_parser(
    grammar: str, expressions: Mapping[str, str]
) -> tuple[dict[str, object], dict[int, object]] | None:
    """The data and the memo of the parser of a grammar, for `Lark`, with expressions for some
    terminals."""
    if not FILE.is_file():
        return None
    stored = json.loads(gzip.decompress(FILE.read_bytes()))
    if stored["key"] != _key(grammar):
        return None
    data, memo = stored["data"], stored["memo"]
    for entry in memo.values():
        if entry.get("name") in expressions:
            entry["pattern"]["value"] = expressions[entry["name"]]
    table = data["parser"]["parser"]
    table["tokens"] = _numbered(table["tokens"])
    table["states"] = {state: _numbered(row) for state, row in _numbered(table["states"]).items()}
    return data, _numbered(memo)


def _numbered(row: dict[str, Value]) -> dict[int, Value]:
    """A dictionary with its numbers back, which JSON writes as text."""
    return {int(number): value for number, value in row.items()}
