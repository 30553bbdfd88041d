"""What an oracle kernel is: C text, the memory and arguments it is launched with, and what it did.

In: nothing. Out: the records that generators fill in (`Source`) and that the host gives back
(`Run`). Nothing here, nor in the other modules that make these records (`host`, `compilers`,
`forms`, `families*`, `random_*`), imports Tessera: what they say is worked out by C compilers.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ranges = Sequence[tuple[int, int]]

# Contents that every kernel is run with: two random ones, all zeros and all ones.
DATA = ("first", "second", "zeros", "ones")
FLOAT_DATA = ("first", "second", "zeros")

FORMATS = {
    "u8": "B",
    "i8": "b",
    "u16": "H",
    "i16": "h",
    "u32": "I",
    "i32": "i",
    "u64": "Q",
    "i64": "q",
    "f32": "f",
    "f64": "d",
}


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a case; `content` is `bytes`, `f32` or `f64` (small exact fractions)."""

    name: str
    bytes: int
    content: str = "bytes"


@dataclass(frozen=True, slots=True)
class At:
    """An address: a byte of a buffer, by number."""

    buffer: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Word:
    """An address in memory or in a struct: the 8 bytes at `offset` hold `target`."""

    offset: int
    target: At


@dataclass(frozen=True, slots=True)
class Value:
    """A number passed by value."""

    type: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct passed by value."""

    content: bytes
    words: tuple[Word, ...] = ()


Argument = At | Value | Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A kernel `k` in the subset and its launch; `params` are C types and names."""

    name: str
    family: str
    params: tuple[tuple[str, str], ...]
    body: str
    buffers: tuple[Buffer, ...]
    args: tuple[Argument, ...]
    prelude: str = ""
    tables: tuple[tuple[int, Word], ...] = ()
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (32, 1, 1)
    data: tuple[str, ...] = DATA

    @property
    def code(self) -> str:
        """The text that every compiler is given, after the subset's header."""
        params = ", ".join(f"{kind} {name}" for kind, name in self.params)
        return f"{self.prelude}\nENTRY k({params}) {{\n{self.body}\n}}\n"


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes of one buffer: read, written, and those whose value decides something."""

    buffer: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]
    needed: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run on the host: what it touched, what it left there, the words with addresses.

    `left` has the bytes of every range that was written, with zeros where addresses are.
    """

    data: str
    touched: tuple[Touched, ...]
    left: tuple[tuple[int, int, bytes], ...]
    words: tuple[tuple[int, Word], ...] = field(default=())


def packed(argument: Argument, address: Callable[[At], int]) -> bytes:
    """An argument as the bytes that a kernel is given, where buffers have these addresses."""
    match argument:
        case At():
            return struct.pack("<Q", address(argument))
        case Value(kind, value):
            return struct.pack(f"<{FORMATS[kind]}", value)
        case Struct(content, words):
            raw = bytearray(content)
            for word in words:
                raw[word.offset : word.offset + 8] = struct.pack("<Q", address(word.target))
            return bytes(raw)


def contents(name: str, buffers: Sequence[Buffer], data: str) -> list[Bytes]:
    """The bytes of all buffers, from names only, so that they need not be stored."""
    return [_content(f"{name}/{buffer.name}", buffer, data) for buffer in buffers]


def _content(key: str, buffer: Buffer, data: str) -> Bytes:
    if data in ("zeros", "ones"):
        return np.full(buffer.bytes, 0 if data == "zeros" else 0xFF, np.uint8)
    raw = hashlib.shake_128(f"{key}/{data}".encode()).digest(buffer.bytes)
    random = np.frombuffer(raw, np.uint8)
    if buffer.content == "bytes":
        return random.copy()
    kind = {"f32": np.float32, "f64": np.float64}[buffer.content]
    size = buffer.bytes // np.dtype(kind).itemsize
    return ((random[:size].astype(kind) - kind(128)) / kind(8)).view(np.uint8).copy()


def to_ranges(flags: NDArray[np.bool_]) -> tuple[tuple[int, int], ...]:
    """Where flags are set, as sorted ranges."""
    edges = np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    return tuple((int(s), int(e)) for s, e in zip(starts, ends, strict=True))


def to_flags(ranges: Ranges, size: int) -> NDArray[np.bool_]:
    """The inverse of `to_ranges`."""
    flags = np.zeros(size, np.bool_)
    for start, end in ranges:
        flags[start:end] = True
    return flags
