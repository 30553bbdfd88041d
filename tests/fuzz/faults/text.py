"""A PTX text as lines that faults can be planted in; knows nothing of Tessera's own parser.

In: the text of a valid file with about one statement a line. Out: `Text`, its statements, the
functions they stand in, and the registers of each function. Only lines that look plain are taken:
a fault has to be single, and at a line that is known.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

DATA = Path(__file__).resolve().parents[2] / "data" / "faults"
STATEMENT = re.compile(
    r"^(\s*)(@!?[%$\w]+\s+)?([a-z][a-z0-9]*(?:(?:\.|::)[\w]+)*)(?:\s+([^;\"]*?))?\s*;\s*(?://.*)?$"
)
REGISTERS = re.compile(r"^\s*\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+([^;]*);")
NOTE = re.compile(r"//.*|\"(?:[^\"\\]|\\.)*\"")
LABEL = re.compile(r"^\s*([$%\w]+):")
NO_STATEMENTS = ("call", "branchtargets")


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `at` to `at + removed` become `lines`; the fault is in line `fault` of the result."""

    at: int
    removed: int
    lines: tuple[str, ...]
    fault: int

    def apply(self, lines: Sequence[str]) -> list[str]:
        """The lines with the fault in them."""
        return [*lines[: self.at], *self.lines, *lines[self.at + self.removed :]]


@dataclass(frozen=True, slots=True)
class Statement:
    """An instruction that has a line of its own."""

    line: int
    function: int
    indent: str
    guard: str
    opcode: str
    operands: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.split(".")[0]

    @property
    def modifiers(self) -> list[str]:
        """What follows the stem, without the dots."""
        return self.opcode.split(".")[1:]

    def with_modifiers(self, modifiers: Sequence[str]) -> Statement:
        """The same statement with another list of modifiers."""
        return replace(self, opcode=".".join([self.stem, *modifiers]))

    def with_operand(self, index: int, operand: str) -> Statement:
        """The same statement with another operand."""
        changed = (*self.operands[:index], operand, *self.operands[index + 1 :])
        return replace(self, operands=changed)

    def __str__(self) -> str:
        operands = f" \t{', '.join(self.operands)}" if self.operands else ""
        return f"{self.indent}{self.guard}{self.opcode}{operands};"

    def edit(self) -> Edit:
        """The edit that puts this statement where the one it was made from stood."""
        return Edit(self.line, 1, (str(self),), self.line)

    def before(self, *lines: str, fault: int | None = None) -> Edit:
        """The edit that puts lines in front; the fault is in the last of them unless told."""
        indented = tuple(f"{self.indent}{line}" for line in lines)
        at = self.line + (len(lines) - 1 if fault is None else fault)
        return Edit(self.line, 0, indented, at)


def read_sections(name: str) -> dict[str, list[str]]:
    """The rows of a file of faults, by the `////` line that they stand under."""
    sections: dict[str, list[str]] = {}
    rows: list[str] = []
    for line in (DATA / name).read_text().splitlines():
        if line.startswith("//// "):
            rows = sections.setdefault(line[5:].strip(), [])
        elif line.strip() and not line.startswith("//"):
            rows.append(line)
    return sections


def split_operands(text: str) -> tuple[str, ...]:
    """Operands at the commas that stand in no bracket."""
    parts, depth, current = [], 0, ""
    for character in text:
        depth += (character in "[({") - (character in "])}")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    return tuple([*parts, current.strip()] if text.strip() else [])


class Text:
    """One valid file."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.lines = text.split("\n")
        self.statements: list[Statement] = []
        self.labels: dict[int, list[str]] = {}
        self.registers: dict[int, dict[str, list[str]]] = {}
        self.body_starts: dict[int, int] = {}
        self.function_lines: list[int] = []
        self._scan()

    def _scan(self) -> None:
        depth, function, comment = 0, -1, False
        continues = False
        for number, line in enumerate(self.lines):
            code = NOTE.sub("", line)
            comment = "/*" in code or (comment and "*/" not in code)
            if depth == 0 and re.search(r"\.(?:entry|func)\b", code):
                self.function_lines.append(number)
            if depth == 0 and "{" in code and "=" not in code and self.function_lines:
                function += 1
                self.body_starts[function] = number + 1
            if depth and not comment and not continues:
                self._take(number, line, function)
            depth += code.count("{") - code.count("}")
            ended = code.rstrip()
            continues = depth > 0 and bool(ended) and ended[-1] not in ";{}:"

    def _take(self, number: int, line: str, function: int) -> None:
        label = LABEL.match(line)
        if label:
            self.labels.setdefault(function, []).append(label[1])
        declared = REGISTERS.match(line)
        if declared:
            self._declare(function, declared[1], declared[2])
        found = STATEMENT.match(line)
        if found is None or found[3].split(".")[0] in NO_STATEMENTS or "{" in (found[3] or ""):
            return
        operands = split_operands(found[4] or "")
        self.statements.append(
            Statement(number, function, found[1], found[2] or "", found[3], operands)
        )

    def _declare(self, function: int, kind: str, names: str) -> None:
        of_kind = self.registers.setdefault(function, {}).setdefault(kind, [])
        for name in (part.strip() for part in names.split(",")):
            ranged = re.fullmatch(r"(.*)<(\d+)>", name)
            if ranged is None:
                of_kind.append(name)
            else:
                of_kind.extend(f"{ranged[1]}{index}" for index in range(1, min(int(ranged[2]), 40)))

    def register(
        self, function: int, wanted: Callable[[str], bool], rng: random.Random
    ) -> str | None:
        """A register of the function whose type name is wanted."""
        kinds = self.registers.get(function, {})
        names = [name for kind, names in kinds.items() if wanted(kind) for name in names]
        return rng.choice(names) if names else None

    def kind_of(self, function: int, name: str) -> str | None:
        """The type name of a register, by its declaration or its prefix."""
        kinds = self.registers.get(function, {})
        for kind, names in kinds.items():
            if name in names:
                return kind
        prefix = name.rstrip("0123456789")
        for kind, names in kinds.items():
            if any(other.rstrip("0123456789") == prefix for other in names):
                return kind
        return None

    def choose(self, rng: random.Random, wanted: Callable[[Statement], bool]) -> Statement | None:
        """A statement that is wanted; each opcode is as likely as any other."""
        by_opcode: dict[str, list[Statement]] = {}
        for statement in self.statements:
            if wanted(statement):
                by_opcode.setdefault(statement.opcode, []).append(statement)
        if not by_opcode:
            return None
        return rng.choice(by_opcode[rng.choice(sorted(by_opcode))])

    def any_statement(self, rng: random.Random) -> Statement | None:
        """Some statement, to put a line before."""
        return rng.choice(self.statements) if self.statements else None

    def header(self, word: str) -> int | None:
        """The line of the first `.version`, `.target` or `.address_size`."""
        for number, line in enumerate(self.lines[:200]):
            if re.match(rf"^\s*\.{word}\b", line):
                return number
        return None

    def module_line(self, rng: random.Random) -> int | None:
        """A line in front of a function, where a module-level declaration may stand."""
        return rng.choice(self.function_lines) if self.function_lines else None
