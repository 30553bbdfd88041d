"""Kernels that a compiler made, and launches of them, as files; no need of Tessera.

A folder of PTX and `NAME.jsonl`, a launch per line: the PTX file, the kernel, grid, block, dynamic
shared memory, buffers (`[type, count, content]`) and arguments. Content is null (made from the
name), or a list of numbers; words of a buffer may hold addresses.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import traceback
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

BYTES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8e4nv": 1, "fp8e5": 1,
    "i64": 8, "i32": 4, "i16": 2, "i8": 1, "u8": 1, "u32": 4, "u64": 8,
}  # fmt: skip


def cdiv(a: int, b: int) -> int:
    """A quotient, rounded up."""
    return -(-a // b)


class Array:
    """A buffer; `words` are bytes that hold the address of a byte of another."""

    def __init__(
        self,
        kind: str,
        count: int,
        content: Sequence[int | float] | None = None,
        words: dict[int, tuple[Array, int]] | None = None,
    ) -> None:
        self.kind, self.count, self.content, self.words = kind, count, content, words or {}

    @property
    def pointer(self) -> str:
        """The type of a pointer to it, as Triton writes it."""
        return f"*{self.kind}"


class Launches:
    """What one compiler made of one list."""

    def __init__(self, folder: str, name: str) -> None:
        self.folder, self.name = Path(folder), name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.rows: list[dict[str, Any]] = []
        self.modules: dict[Hashable, dict[str, Any] | None] = {}
        self.failed = 0

    def module(
        self, key: Hashable, make: Callable[[], tuple[str, dict[str, Any]]]
    ) -> dict[str, Any] | None:
        """The facts of a module with `ptx`, its file; None where the compiler fails."""
        if key not in self.modules:
            try:
                text, facts = make()
            except Exception as error:
                self.failed += 1
                said = (str(error) or traceback.format_exc()).strip().splitlines()
                print(f"{self.name}: {key}: {said[-1][:150] if said else error!r}", flush=True)
                self.modules[key] = None
            else:
                stem = f"{self.name}.{hashlib.sha256(repr(key).encode()).hexdigest()[:12]}.ptx"
                (self.folder / stem).write_text(text)
                entry = text.partition(".entry")[2].partition(")")[0]
                extra = len(re.findall(r"\.param \.", entry))
                self.modules[key] = facts | {"ptx": stem, "parameters": extra}
        return self.modules[key]

    def add_triton(
        self, made: dict[str, Any], grid: Sequence[int], values: Sequence[Array | float]
    ) -> None:
        """A launch with the arguments for scratch that Triton's launcher adds."""
        ctas = 1
        for size in grid:
            ctas *= size
        extra: list[Any] = [0] * (made["parameters"] - len(values))
        if made["scratch"]:
            extra[0] = Array("u8", made["scratch"] * ctas)
        sent = [*values, *(e if isinstance(e, Array) else ("u64", e) for e in extra)]
        self.add(made["ptx"], made["kernel"], grid, [made["threads"]], sent, made["smem"])

    def add(
        self,
        ptx: str,
        kernel: str,
        grid: Sequence[int],
        block: Sequence[int],
        values: Sequence[Any],
        smem: int = 0,
    ) -> None:
        """A launch. Values: an `Array`, `(Array, offset)`, a number, `(type, number)`, a struct
        as `(bytes, {offset: (Array, offset)})`."""
        arrays: list[Array] = []

        def place(array: Array, offset: int = 0) -> str:
            if array not in arrays:
                arrays.append(array)
                for target, _ in array.words.values():
                    place(target)
            return f"b{arrays.index(array)}+{offset}"

        arguments: list[Any] = []
        for value in values:
            match value:
                case Array():
                    arguments.append(place(value))
                case (Array() as array, int(offset)):
                    arguments.append(place(array, offset))
                case (bytes(raw), dict(words)):
                    held = {str(at): place(*target) for at, target in words.items()}
                    arguments.append([raw.hex(), held])
                case (str(kind), number):
                    arguments.append([_packed(kind, number).hex(), {}])
                case float():
                    arguments.append([_packed("fp32", value).hex(), {}])
                case int():
                    kind = "i32" if abs(value) < 1 << 31 else "i64"
                    arguments.append([_packed(kind, value).hex(), {}])
        words = {
            f"b{i}": {str(at): place(*target) for at, target in array.words.items()}
            for i, array in enumerate(arrays)
            if array.words
        }
        row = {
            "name": f"{self.name}.{len(self.rows)}.{kernel}",
            "ptx": ptx,
            "kernel": kernel,
            "grid": list(grid),
            "block": list(block),
            "smem": smem,
            "buffers": {f"b{i}": [a.kind, a.count, a.content] for i, a in enumerate(arrays)},
            "words": words,
            "args": arguments,
        }
        self.rows.append(row)

    def write(self) -> None:
        """The launches, each once."""
        text = "".join(json.dumps(row) + "\n" for row in self.rows)
        (self.folder / f"{self.name}.jsonl").write_text(text)
        print(
            f"{self.name}: {len(self.rows)} launches, {len(self.modules)} modules,"
            f" {self.failed} failed",
            flush=True,
        )


def _packed(kind: str, number: float) -> bytes:
    codes = {"fp64": "d", "fp32": "f", "i64": "q", "i32": "i", "i16": "h", "i8": "b", "u8": "B",
             "u32": "I", "u64": "Q"}  # fmt: skip
    return struct.pack(f"<{codes[kind]}", number)
