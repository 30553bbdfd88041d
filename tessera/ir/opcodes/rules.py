"""What ptxas refuses beyond the forms, as measured: the reader of `families.measured`.

One line per rule:

    HEAD LITERAL... | VERSIONS TARGETS... | ...

A rule holds for an instruction with that first word and all literals:
    mod        it has the modifier; `mod*2` it has it at least twice
    #3         it has three operands
    #!3/4      it has neither three nor four
    0=b32      its first operand is of that class (`operand_class`)
    0!b32/b64  it has a first operand, of another class than these
    -LITERAL   the literal does not hold
The columns behind it say where such an instruction is taken. Each is one way: a first version
(`8.6`), or a first and a last one (`3.0-6.3`), and targets (none: every target). `sm_90+` is every
target with that number or a higher one, `sm_100f+` the targets with a letter of the same ten, from
that number on, and a plain name that target alone. Without columns it is taken nowhere. An
instruction needs all rules that hold for it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from tessera.ir.opcodes.families.measured import RULES
from tessera.ir.opcodes.targets import NEWEST_VERSION, TARGETS, Version, read_version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type, type_bits

_TARGET = re.compile(r"sm_(\d+)([af]?)(\+?)")
_CLASSES = frozenset({"pred", "b8", "b16", "b32", "b64", "b128"})
_UNKNOWN = "?"
_OPERAND = re.compile(r"-?(\d+)[=!]")


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Versions from `first` to `last` on some targets."""

    first: Version
    last: Version
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class MeasuredRule:
    """What holds for instructions with some features and without others; `words` as written."""

    words: tuple[str, ...]
    required: frozenset[str]
    absent: frozenset[str]
    closed: tuple[tuple[str, frozenset[str]], ...]
    operands: frozenset[str]
    places: tuple[RulePlace, ...]

    def lacks(self, version: Version, target: str) -> str | None:
        """What a module lacks for the rule, as text; None if it satisfies it."""
        if not self.places:
            return ""
        here = [place for place in self.places if target in place.targets]
        if any(place.first <= version <= place.last for place in here):
            return None
        if here and version < (first := min(place.first for place in here)):
            return f"PTX {first[0]}.{first[1]} or later"
        if here:
            last = max(place.last for place in here)
            return f"PTX {last[0]}.{last[1]} or earlier"
        names = frozenset().union(*(place.targets for place in self.places))
        first_name = next(name for name in TARGETS if name in names)
        if names == targets_of(f"{first_name}+"):
            return f"`.target {first_name}` or later"
        known = [f"`{name}`" for name in TARGETS if name in names]
        return f"one of the targets {', '.join(known)}"


def targets_of(word: str) -> frozenset[str]:
    """The targets that a word of a rule stands for."""
    match = _TARGET.fullmatch(word)
    if match is None:
        return frozenset()
    number = int(match[1])
    if not match[3]:
        return frozenset({word})
    split = ((name, _TARGET.fullmatch(name)) for name in TARGETS)
    return frozenset(
        name
        for name, parts in split
        if parts is not None
        and int(parts[1]) >= number
        and (not match[2] or (parts[2] and int(parts[1]) // 10 == number // 10))
    )


@cache
def operand_class(word: str) -> str:
    """The class of an operand, from its word (`operand_types`): types of one width are one class.

    `?` stands for operands that no rule may judge.
    """
    first, bar, second = word.partition("|")
    if bar:
        return f"{operand_class(first)}^{operand_class(second)}"
    match word[0]:
        case "#":
            return "#i" if word == "#i" else "#f"
        case "[":
            inner = operand_class(word[1:-1].removeprefix("*"))
            return _UNKNOWN if inner == _UNKNOWN else f"[{'*' * (word[1] == '*')}{inner}]"
        case "{":
            classes = {operand_class(part) for part in word[1:-1].split(",")}
            if len(classes) != 1 or not classes <= _CLASSES:
                return _UNKNOWN
            return f"{{{classes.pop()}*{word.count(',') + 1}}}"
        case "%":
            return "%"
        case "!":
            return operand_class(word[1:])
    if not is_type(word) or word == "f16x2":  # ptxas takes such a register for anything
        return _UNKNOWN
    name = word if word == "pred" else f"b{type_bits(word)}"
    return name if name in _CLASSES else _UNKNOWN


def features_of(modifiers: Iterable[str], words: tuple[str, ...]) -> frozenset[str]:
    """The literals that hold for an instruction."""
    features = set()
    for modifier in modifiers:
        features.add(f"{modifier}*2" if modifier in features else modifier)
    features.add(f"#{len(words)}")
    features |= {f"{index}={operand_class(word)}" for index, word in enumerate(words)}
    return frozenset(features)


def _read_place(column: str) -> RulePlace:
    versions, *names = column.split()
    first, _, last = versions.partition("-")
    chosen = [targets_of(name) for name in names]
    targets = frozenset().union(*chosen) if chosen else frozenset(TARGETS)
    return RulePlace(read_version(first), read_version(last) if last else NEWEST_VERSION, targets)


def _load() -> dict[str, list[str]]:
    lines: dict[str, list[str]] = defaultdict(list)
    for line in re.sub(r"\n +", " ", RULES).splitlines():
        if line and line[0] != "#":
            lines[line.split(maxsplit=1)[0]].append(line)
    return lines


_LINES = _load()


@cache
def rules_for(head: str) -> tuple[MeasuredRule, ...]:
    """The rules of a first word."""
    return tuple(map(read_rule, _LINES.get(head, ())))


def read_rule(line: str) -> MeasuredRule:
    """The rule that a line describes."""
    subject, *columns = (column.strip() for column in line.split("|"))
    words = tuple(subject.split()[1:])
    closed = [word.partition("!")[::2] for word in words if "!" in word]
    plain = [word for word in words if "!" not in word]
    return MeasuredRule(
        words,
        frozenset(word for word in plain if word[0] != "-"),
        frozenset(word[1:] for word in plain if word[0] == "-"),
        tuple((place, frozenset(classes.split("/"))) for place, classes in closed),
        frozenset(match[1] for word in words if (match := _OPERAND.match(word))),
        tuple(map(_read_place, filter(None, columns))),
    )


def _is_other(place: str, known: frozenset[str], words: tuple[str, ...]) -> bool:
    """Whether an operand, or their number for `#`, is none of the known ones."""
    if place == "#":
        return str(len(words)) not in known
    return int(place) < len(words) and operand_class(words[int(place)]) not in known


def unmet_rule(
    opcode: ptx.Opcode, words: tuple[str, ...], version: Version, target: str
) -> MeasuredRule | None:
    """The first rule that an instruction breaks in a module; None if there is none."""
    rules = rules_for(opcode.name)
    name = target.replace("compute_", "sm_", 1).replace("sm_101", "sm_110")  # renamed in PTX 9.0
    if not rules or name not in TARGETS:
        return None
    features = features_of(opcode.modifiers, words)
    unknown = {f.partition("=")[0] for f in features if "=" in f and _UNKNOWN in f}
    for rule in rules:
        if (
            rule.required <= features
            and not rule.absent & features
            and not rule.operands & unknown
            and all(_is_other(place, known, words) for place, known in rule.closed)
            and rule.lacks(version, name) is not None
        ):
            return rule
    return None
