"""Recorded oracle cases: one compressed file with PTX, launches and the host's runs.

In: cases. Out: the file, the same bytes for the same cases; and back. It is JSON in xz. Texts,
C sources and logs that are the same stand once.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.oracle.compilers import WAYS
from tests.oracle.subset import (
    FORMATS,
    Argument,
    At,
    Buffer,
    Run,
    Source,
    Struct,
    Touched,
    Value,
    Word,
)

DATA = Path(__file__).resolve().parent.parent / "data" / "oracle"
RECORDED = DATA / "cases.json.xz"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Case:
    """A source compiled one way, and what the host did."""

    source: Source
    way: str
    ptx: str
    runs: tuple[Run, ...]

    @property
    def id(self) -> str:
        """The name of the case in tests and lists."""
        return f"{self.source.name}.{self.way}"

    @property
    def name(self) -> str:
        """The name that contents are made from."""
        return self.source.name

    @property
    def plain(self) -> bool:
        """Whether the PTX does exactly the accesses of the text."""
        return WAYS[self.way]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return self.source.buffers

    @property
    def args(self) -> tuple[Argument, ...]:
        return self.source.args

    @property
    def tables(self) -> tuple[tuple[int, Word], ...]:
        return self.source.tables

    @property
    def grid(self) -> tuple[int, int, int]:
        return self.source.grid

    @property
    def block(self) -> tuple[int, int, int]:
        return self.source.block


def trace_text(case: Case) -> str:
    """A case as a trace with one launch."""
    buffers = case.buffers

    def place(at: At) -> str:
        return f"{buffers[at.buffer].name}+{at.offset}"

    def argument(value: Argument) -> str:
        match value:
            case At():
                return place(value)
            case Value(kind, number):
                return f"{kind.replace('i', 's')}:{number}"
            case Struct(content, words):
                held = ",".join(f"{w.offset}:{place(w.target)}" for w in words)
                return f"b8[{len(content)}]:{content.hex()}" + (f"@{{{held}}}" if held else "")

    lines = ["//! tessera.trace 1"]
    lines += [f"//! buffer {b.name} bytes={b.bytes} role=state" for b in buffers]
    by_buffer: dict[int, list[str]] = {}
    for buffer, word in case.tables:
        by_buffer.setdefault(buffer, []).append(f"{word.offset}:{place(word.target)}")
    lines += [f"//! pointers {buffers[b].name} @{{{','.join(w)}}}" for b, w in by_buffer.items()]
    shape = "grid={},{},{} block={},{},{}".format(*case.grid, *case.block)
    args = ", ".join(argument(value) for value in case.args)
    return "\n".join(
        [
            *lines,
            "//! module m0",
            case.ptx.rstrip("\0\n"),
            f"//! launch m0.k {shape} args=[{args}]\n",
        ]
    )


class _Pool:
    """Values that stand once."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self.numbers: dict[str, int] = {}

    def add(self, value: Any) -> int:
        key = json.dumps(value)
        if key not in self.numbers:
            self.numbers[key] = len(self.values)
            self.values.append(value)
        return self.numbers[key]


def to_values(cases: Sequence[Case]) -> dict[str, Any]:
    """All cases, for JSON."""
    texts, sources, runs = _Pool(), _Pool(), _Pool()
    listed = [
        [
            sources.add(_source_values(c.source)),
            c.way,
            texts.add(c.ptx),
            [runs.add(_run_values(run)) for run in c.runs],
        ]
        for c in cases
    ]
    return {
        "format": FORMAT,
        "texts": texts.values,
        "sources": sources.values,
        "runs": runs.values,
        "cases": listed,
    }


def write(path: Path, cases: Sequence[Case]) -> None:
    """All cases in one file."""
    raw = json.dumps(to_values(cases), separators=(",", ":")).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(raw, preset=9 | lzma.PRESET_EXTREME))


def read(path: Path = RECORDED) -> list[Case]:
    """The cases of a file."""
    return from_values(json.loads(lzma.decompress(path.read_bytes())))


def from_values(value: dict[str, Any]) -> list[Case]:
    """The cases that `to_values` was given."""
    if value["format"] != FORMAT:
        raise ValueError(f"the cases have format {value['format']}, not {FORMAT}")
    sources = [_source(v) for v in value["sources"]]
    runs = [_run(v) for v in value["runs"]]
    return [
        Case(sources[source], way, value["texts"][text], tuple(runs[r] for r in mine))
        for source, way, text, mine in value["cases"]
    ]


def _word_values(words: Iterable[tuple[int, Word]]) -> list[list[int]]:
    return [[b, w.offset, w.target.buffer, w.target.offset] for b, w in words]


def _words(values: Iterable[Sequence[int]]) -> tuple[tuple[int, Word], ...]:
    return tuple((b, Word(at, At(target, offset))) for b, at, target, offset in values)


def _source_values(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "family": source.family,
        "params": source.params,
        "body": source.body,
        "prelude": source.prelude,
        "buffers": [[b.name, b.bytes, b.content] for b in source.buffers],
        "tables": _word_values(source.tables),
        "grid": source.grid,
        "block": source.block,
        "data": source.data,
        "args": [_argument_values(a) for a in source.args],
    }


def _argument_values(argument: Argument) -> list[Any]:
    match argument:
        case At(buffer, offset):
            return ["at", buffer, offset]
        case Value(kind, value):
            return ["value", kind, value]
        case Struct(content, words):
            return ["struct", content.hex(), _word_values((0, w) for w in words)]


def _argument(value: Sequence[Any]) -> Argument:
    kind, first, second = value
    if kind == "at":
        return At(first, second)
    if kind == "value":
        assert first in FORMATS
        return Value(first, second)
    return Struct(bytes.fromhex(first), tuple(word for _, word in _words(second)))


def _source(value: dict[str, Any]) -> Source:
    return Source(
        name=value["name"],
        family=value["family"],
        body=value["body"],
        prelude=value["prelude"],
        params=tuple((kind, name) for kind, name in value["params"]),
        buffers=tuple(Buffer(*b) for b in value["buffers"]),
        tables=_words(value["tables"]),
        args=tuple(_argument(a) for a in value["args"]),
        data=tuple(value["data"]),
        grid=tuple(value["grid"]),
        block=tuple(value["block"]),
    )


def _run_values(run: Run) -> list[Any]:
    touched = [[t.buffer, t.reads, t.writes, t.needed] for t in run.touched]
    left = [[buffer, start, content.hex()] for buffer, start, content in run.left]
    return [run.data, touched, left, _word_values(run.words)]


def _run(value: Sequence[Any]) -> Run:
    data, touched, left, words = value

    def pairs(ranges: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
        return tuple((start, end) for start, end in ranges)

    return Run(
        data,
        tuple(Touched(b, pairs(r), pairs(w), pairs(n)) for b, r, w, n in touched),
        tuple((b, start, bytes.fromhex(text)) for b, start, text in left),
        _words(words),
    )
