"""What ptxas refuses beyond the forms, as measured: the reader of `families.measured`.

One line per rule:

    NAMES | LITERALS | VERSIONS TARGETS... | ...

A rule holds for an instruction with one of the names and all literals. The name of an instruction
is the longest name of the tables whose words its opcode has. Literals:
    mod        it has the modifier; `mod*2` it has it at least twice
    #3         it has three operands; `#=3/4` three or four
    0=b32      its first operand is of that class (`operand_class`), or that special register
    0=b32/b64  it is of one of these
    -LITERAL   the literal does not hold
The columns behind it say where such an instruction is taken. Each is one way: a first version
(`8.6`), or a first and a last one (`3.0-6.3`), and targets (none: every target). `sm_90+` is every
target with that number or a higher one, `sm_100f+` the targets with a letter of the same ten, from
that number on, and a plain name that target alone. Without columns it is taken nowhere. A column
like `1:0..15,32` holds for the value of the second operand, if that is an integer constant;
`0:24..256/8` takes each eighth, and `0:32..` has no end. An instruction needs all rules that hold
for it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from tessera.ir.opcodes.families.measured import RULES
from tessera.ir.opcodes.form_table import FORM_NAMES
from tessera.ir.opcodes.lookup import OPCODES
from tessera.ir.opcodes.targets import NEWEST_VERSION, TARGETS, Version, read_version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.types import is_type, type_bits

_TARGET = re.compile(r"sm_(\d+)([af]?)(\+?)")
_CLASSES = frozenset({"pred", "b8", "b16", "b32", "b64", "b128", "f32", "f64"})
_UNKNOWN = "?"
_OPERAND = re.compile(r"-?(\d+)=")
_VALUES = re.compile(r"(\d+):(\S+)")


@dataclass(frozen=True, slots=True)
class RulePlace:
    """Versions from `first` to `last` on some targets."""

    first: Version
    last: Version
    targets: frozenset[str]


@dataclass(frozen=True, slots=True)
class ValueRange:
    """The integer constants that an operand may be."""

    operand: int
    ranges: tuple[range, ...]

    def __str__(self) -> str:
        return " or ".join(map(_told, self.ranges))

    def holds(self, operands: tuple[ptx.Operand, ...]) -> bool:
        """Whether the operand is in range, or no integer constant."""
        if self.operand >= len(operands):
            return True
        value = integer_value(operands[self.operand])
        return value is None or self.takes(value)

    def takes(self, value: int) -> bool:
        """Whether a constant is in range, or has more than the 32 bits that ptxas keeps."""
        return value >> 32 not in (0, -1) or any(value in values for values in self.ranges)


@dataclass(frozen=True, slots=True)
class MeasuredRule:
    """What holds for instructions with some features and without others; `words` as written."""

    words: tuple[str, ...]
    required: frozenset[str]
    absent: frozenset[str]
    choices: tuple[frozenset[str], ...]
    operands: frozenset[str]
    places: tuple[RulePlace, ...]
    values: ValueRange | None

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


@cache
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

    Only floats of 32 and 64 bits are classes of their own: ptxas takes a register without a type of
    its own (`.b32`) for each of its width. `?` stands for operands that no rule may judge.
    """
    first, bar, second = word.partition("|")
    if bar:
        return f"{operand_class(first)}^{operand_class(second)}"
    match word[0]:
        case "#":
            return "#i" if word == "#i" else "#f"
        case "[":
            inner = operand_class(word[1:-1].lstrip("*"))
            return _UNKNOWN if _UNKNOWN in inner else f"[{'*' * (word[1] == '*')}{inner}]"
        case "{":
            classes = {operand_class(part) for part in word[1:-1].split(",")}
            if len(classes) != 1 or not classes <= _CLASSES:
                return _UNKNOWN
            return f"{{{classes.pop()}*{word.count(',') + 1}}}"
        case "%":
            return "%"
        case "!":
            return operand_class(word[1:])
    if word == "_":
        return word
    if not is_type(word) or word == "f16x2":  # ptxas takes such a register for anything
        return _UNKNOWN
    name = word if word in _CLASSES else f"b{type_bits(word)}"
    return name if name in _CLASSES else _UNKNOWN


_NAMES: dict[str, list[tuple[str, ...]]] = defaultdict(list)
for _name in FORM_NAMES | {tuple(name.split(".")) for name in OPCODES}:
    _NAMES[_name[0]].append(_name)


@cache
def rule_name(opcode: ptx.Opcode) -> tuple[str, ...]:
    """The longest name of the tables whose words an opcode has, in any order."""
    words = (opcode.name, *opcode.modifiers)
    fitting = [name for name in _NAMES.get(opcode.name, ()) if set(words).issuperset(name)]
    return max(fitting, key=lambda n: (len(n), words[: len(n)] == n, n), default=words[:1])


@cache
def _features_of_opcode(opcode: ptx.Opcode) -> frozenset[str]:
    """The literals that hold for an opcode, without the words of its name."""
    words = list(opcode.modifiers)
    for word in rule_name(opcode)[1:]:
        words.remove(word)
    return frozenset(words) | {f"{word}*2" for word in words if words.count(word) > 1}


def features_of(opcode: ptx.Opcode, words: tuple[str, ...]) -> frozenset[str]:
    """The literals that hold for an instruction."""
    features = {f"#{len(words)}", *_features_of_opcode(opcode)}
    for index, word in enumerate(words):
        features.add(f"{index}={operand_class(word)}")
        if word[0] == "%":
            features.add(f"{index}={word.partition(':')[2].partition('.')[0]}")
    return frozenset(features)


@cache
def _read_place(column: str) -> RulePlace:
    versions, *names = column.split()
    first, _, last = versions.partition("-")
    chosen = [targets_of(name) for name in names]
    targets = frozenset().union(*chosen) if chosen else frozenset(TARGETS)
    return RulePlace(read_version(first), read_version(last) if last else NEWEST_VERSION, targets)


def _read_values(operand: str, written: str) -> ValueRange:
    ranges = []
    for part in written.split(","):
        bounds, _, step = part.partition("/")
        low, dots, high = bounds.partition("..")
        last = int(high) if high else (1 << 32 if dots else int(low))
        ranges.append(range(int(low), last + 1, int(step or 1)))
    return ValueRange(int(operand), tuple(ranges))


def _told(values: range) -> str:
    """A range of integers in words."""
    first, last = values[0], values[-1]
    if values.step > 1:
        told = f"a multiple of {values.step}"
        if last >> 32:
            return told if first == 0 else f"{told} from {first} on"
        return f"{told} from {first} to {last}"
    if last >> 32:
        return f"{first} or more"
    return f"{first}" if first == last else f"{first} to {last}"


def _read_choice(word: str) -> frozenset[str]:
    what, _, classes = word.partition("=")
    sign = "#" if what == "#" else f"{what}="
    return frozenset(f"{sign}{name}" for name in classes.split("/"))


@cache
def read_rule(line: str) -> MeasuredRule:
    """The rule that a line describes."""
    _, literals, *columns = (column.strip() for column in line.split("|"))
    words = tuple(literals.split())
    choices = [_read_choice(word) for word in words if "/" in word or word[:2] == "#="]
    plain = [word for word in words if "/" not in word and word[:2] != "#="]
    values = [_read_values(*match.groups()) for c in columns if (match := _VALUES.fullmatch(c))]
    return MeasuredRule(
        words,
        frozenset(word for word in plain if word[0] != "-"),
        frozenset(word[1:] for word in plain if word[0] == "-"),
        tuple(choices),
        frozenset(match[1] for word in words if (match := _OPERAND.match(word))),
        tuple(_read_place(column) for column in columns if column and not values),
        values[0] if values else None,
    )


def written_rules(text: str) -> dict[tuple[str, ...], tuple[str, ...]]:
    """The lines of each name, unparsed."""
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for line in re.sub(r"\n +", " ", text).splitlines():
        for name in line.partition("|")[0].split():
            lines[tuple(name.split("."))].append(line)
    return {name: tuple(group) for name, group in lines.items()}


RULE_LINES = written_rules(RULES)
_WITH_VALUES = re.compile(r"\| \d+:\S+$")


def _read_values_of(lines: dict[tuple[str, ...], tuple[str, ...]]) -> dict[str, frozenset[str]]:
    seconds: dict[str, set[str]] = defaultdict(set)
    for name, group in lines.items():
        if any(map(_WITH_VALUES.search, group)):
            seconds[name[0]].add(name[1] if name[1:] else "")
    return {first: frozenset() if "" in s else frozenset(s) for first, s in seconds.items()}


READS_VALUES: dict[str, frozenset[str]] = _read_values_of(RULE_LINES)
"""First words of the opcodes whose verdict depends on the values of operands that are constants.

Each with modifiers of which such an opcode has one; none stands for all with the word.
"""


def reads_values(opcode: ptx.Opcode) -> bool:
    """Whether the verdict about an opcode may depend on the values of constants."""
    seconds = READS_VALUES.get(opcode.name)
    return seconds is not None and (not seconds or not seconds.isdisjoint(opcode.modifiers))


@cache
def rules_for(name: tuple[str, ...]) -> tuple[MeasuredRule, ...]:
    """The rules of a name."""
    return tuple(map(read_rule, RULE_LINES.get(name, ())))


@cache
def rules_of(opcode: ptx.Opcode, words: tuple[str, ...]) -> tuple[MeasuredRule, ...]:
    """The rules that hold for an instruction, by its opcode and the words for its operands."""
    rules = rules_for(rule_name(opcode))
    if not rules:
        return ()
    features = features_of(opcode, words)
    unknown = {f.partition("=")[0] for f in features if "=" in f and _UNKNOWN in f}
    return tuple(
        rule
        for rule in rules
        if rule.required <= features
        and not rule.absent & features
        and not rule.operands & unknown
        and all(choice & features for choice in rule.choices)
    )


def unmet_rule(
    opcode: ptx.Opcode,
    words: tuple[str, ...],
    operands: tuple[ptx.Operand, ...],
    version: Version,
    target: str,
) -> MeasuredRule | None:
    """The first rule that an instruction breaks in a module; None if there is none."""
    name = target.replace("compute_", "sm_", 1).replace("sm_101", "sm_110")  # renamed in PTX 9.0
    name = name.replace("sm_82", "sm_80")  # no ptxas has it
    if name not in TARGETS:
        return None
    version = max(version, (1, 4))  # the oldest that was measured
    for rule in rules_of(opcode, words):
        if rule.values is not None:
            if not rule.values.holds(operands):
                return rule
        elif rule.lacks(version, name) is not None and (rule.places or version >= (2, 0)):
            return rule
    return None
