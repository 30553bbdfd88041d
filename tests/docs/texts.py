"""What the repository says in words, and the names that there are.

In: the files of a checkout. Out: texts that a reader takes for true (pages, docstrings, comments),
the strings of the package, which users read, and `Known`, the names of files and code. One regular
expression cuts Python up: `tokenize` takes ten times as long.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.docs.pages import EXPLAIN, FENCE, PAGES, ROOT

FOLDERS = ("tessera", "tests", "benchmarks", "tools", "examples")
WORD = re.compile(r"[A-Za-z_]\w*")
_PIECE = re.compile(
    r"(?P<code>[^\"'#]+)|(?P<comment>#[^\n]*)|(?P<long>\"\"\"(?s:.*?)\"\"\"|'''(?s:.*?)''')"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*')"
)
_DEFINED = re.compile(
    r"^ *(?:(?:async )?def|class) (\w+)|^ *(?:self\.)?(\w+)(?: = |: |, |,$)|^from \S+ import (.+)$",
    re.MULTILINE,
)
_PLAIN = (".lark", ".toml", ".js", ".html", ".txt", ".h", ".cpp", "")
_HIDDEN = {"__pycache__", "out", "build", "dist", "node_modules", "corpus", "results"}


@dataclass(frozen=True, slots=True)
class Statement:
    """A text, and the file that it stands in, from the root."""

    path: str
    text: str


@dataclass(slots=True)
class Known:
    """Names that are something."""

    package: set[str] = field(default_factory=set)  # words of code in `tessera`, and of data
    words: set[str] = field(default_factory=set)  # those of all code
    options: set[str] = field(default_factory=set)  # `--name` as a string of its own
    schemas: set[str] = field(default_factory=set)  # of JSON documents, likewise
    inside: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    paths: set[str] = field(default_factory=set)  # any run of folders, with the file or without


def _files(folder: Path = ROOT) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name not in _HIDDEN and not path.name.startswith("."):
            yield path
            if path.is_dir():
                yield from _files(path)


@cache
def read_all() -> tuple[list[Statement], list[Statement], Known]:
    """Statements, strings of the package, and what is known."""
    said: list[Statement] = []
    strings: list[Statement] = []
    known = Known()
    pages = {*PAGES, *EXPLAIN}
    for path in [*_files(), *(ROOT / "benchmarks" / "results").iterdir()]:
        name = path.relative_to(ROOT).as_posix()
        steps = name.split("/")
        known.package |= {*WORD.findall(path.name), path.stem}
        known.inside[path.parent.name].add(path.stem)
        for first in range(len(steps)):
            known.paths |= {"/".join(steps[first:end]) for end in range(first + 1, len(steps) + 1)}
            known.paths.add("/".join([*steps[first:-1], path.stem]))
        if path.is_dir() or "results" in steps or path.name == "test_statements.py":
            continue
        if path.suffix == ".py" and steps[0] in FOLDERS:
            _read_python(path, name, said, strings, known)
        elif path.suffix == ".md" and (path in pages or path.name == "README.md"):
            said.append(Statement(name, FENCE.sub("", path.read_text("utf-8"))))
        elif path.suffix in _PLAIN or (path.suffix == ".json" and steps[0] == "tessera"):
            text = path.read_text("utf-8", "replace")
            known.package.update(WORD.findall(text))
            if path.suffix == ".lark":
                said += [Statement(name, line) for line in re.findall(r"//.*", text)]
    known.words |= known.package
    return said, strings, known


def _read_python(
    path: Path, name: str, said: list[Statement], strings: list[Statement], known: Known
) -> None:
    pieces: list[str] = []
    code = ""
    comment = ""
    for match in _PIECE.finditer(path.read_text("utf-8")):
        kind, piece = match.lastgroup, match[0]
        if kind == "comment":  # of several lines, they are one text
            comment += piece + "\n"
            continue
        if kind == "code" and comment and not piece.isspace():
            said.append(Statement(name, comment))
            comment = ""
        if kind == "long" and (not code.strip() or re.search(r"\n[ ]*r?$", code)):
            said.append(Statement(name, piece))
        elif kind == "code":
            code = piece
            pieces.append(piece)
        else:
            bare = piece.strip("\"'")
            pieces.append(f" '{bare}' ")
            if re.fullmatch(r"--[a-z][\w-]*(/--[\w-]+)?", bare):
                known.options.update(bare.split("/"))
            if re.fullmatch(r"tessera-[a-z-]+/\d", bare):
                known.schemas.add(bare)
            if name.startswith("tessera/"):
                strings.append(Statement(name, bare))
            code = "'"
    text = "".join(pieces)
    words = set(WORD.findall(text))
    (known.package if name.startswith("tessera/") else known.words).update(words)
    defined = {word for found in _DEFINED.findall(text) for word in WORD.findall(" ".join(found))}
    owners = {path.stem, *re.findall(r"^class (\w+)", text, re.MULTILINE)}
    if not name.startswith("tests/"):
        owners.add(path.parent.name)
    for owner in owners - {"__init__"}:
        known.inside[owner] |= defined


def quoted(text: str) -> Iterator[str]:
    """What stands between backticks; a line may end inside."""
    for match in re.findall(r"(?<!`)`([^`]+)`(?!`)", text):
        yield re.sub(r"\s*\n\s*(?:[#/]+ ?)?", " ", match)
