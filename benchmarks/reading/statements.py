"""Statements of PTX to ask ptxas about: from CUDA headers, from clang's tests and from examples.

In: a folder of C++ headers with inline assembly (CCCL's `cuda/__ptx`), of LLVM or clang tests, or
of PTX. Out: single statements over registers whose names say their types, each once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tessera.ir.opcodes import OperandRole, arity, families, meaning, special_register
from tessera.ir.opcodes.form_notation import Form, read_form, written_lines
from tessera.ir.opcodes.operand_types import (
    USUAL,
    WIDER,
    dimensions,
    named_type,
    offset_count,
    part_counts,
    vector_length,
    wide_type,
)
from tessera.ir.opcodes.rules import features_of, rule_name
from tessera.ir.opcodes.special_registers import SPECIAL_REGISTERS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import VECTOR_COUNTS, is_type, type_bits

_CLASSES = {
    "rc": "b8",
    "rs": "b16",
    "r": "b32",
    "rd": "b64",
    "f": "f32",
    "fd": "f64",
    "rq": "b128",
    "p": "pred",
}
_REGISTER = re.compile(r"%(r[csdq]?|fd?|p)\d+\b")

_VARIABLES = (
    ".global .align 128 .b8 g[1024]; .const .align 16 .b8 k[64];"
    " .shared .align 128 .b8 s[1024]; .shared .align 8 .b64 bar;"
)


def module_head(target: str, version: str) -> list[str]:
    """The first three lines of a module, with the variables that statements may use."""
    size = "" if tuple(map(int, version.split("."))) < (2, 3) else ".address_size 64 "
    return [f".version {version}", f".target {target}", size + _VARIABLES]


def in_kernel(statement: str) -> str:
    """The statement behind declarations of the registers that it uses, all on one line."""
    stems = dict.fromkeys(_REGISTER.findall(statement))
    return " ".join(f".reg .{_CLASSES[stem]} %{stem}<280>;" for stem in stems) + " " + statement


_REGISTERS = {"r": "%r", "l": "%rd", "h": "%rs", "f": "%f", "d": "%fd", "q": "%rq"}
_CONSTANTS = ("1", "0", "24", "128")
_SUFFIXES = frozenset({".h", ".hpp", ".cuh", ".cu", ".inl", ".inc"})
_ASM = re.compile(r'\basm\s*(?:volatile\s*)?\(\s*((?:"(?:[^"\\]|\\.)*"\s*)+)([^;]*)\)\s*;')
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CONSTRAINT = re.compile(r'"[=+]?&?([a-zA-Z])"\s*\(')
_PLACE = re.compile(r"%(\d+)")
_INSTRUCTION = re.compile(
    r"(?:@!?[\w%]+\s+)?[a-z]\w*[a-z0-9]*(?:\.[\w:]+)*(?:\s[^;{}]*(?:\{[^{}]*\}[^;{}]*)*)?;"
)
_NAMED = re.compile(r"\.reg\s*\.(\w+)\s+([^;]+);")


def header_statements(folder: Path) -> list[str]:
    """Every instruction in the inline assembly of C++ headers, over these registers."""
    seen: dict[str, None] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix in _SUFFIXES):
        for match in _ASM.finditer(path.read_text(errors="replace")):
            body = "".join(_TEXT.findall(match[1])).replace("\\n", "\n").replace("\\t", " ")
            body = re.sub(r"//[^\n]*", "", body)
            letters = _CONSTRAINT.findall(match[2])
            for constant in _CONSTANTS if "n" in letters else _CONSTANTS[:1]:
                seen |= dict.fromkeys(_instructions(body, letters, constant))
    return list(seen)


def _instructions(body: str, constraints: list[str], constant: str) -> Iterator[str]:
    counts: dict[str, int] = {}
    names = []
    for letter in constraints:
        counts[letter] = counts.get(letter, 0) + 1
        stem = _REGISTERS.get(letter, "%r")
        names.append(constant if letter == "n" else f"{stem}{counts[letter]}")
    body = body.replace("%%", "%")
    for kind, group in _NAMED.findall(body):
        stem = _stem(kind)
        for count, name in enumerate(group.split(",") if stem else (), 1):
            body = re.sub(rf"(?<![\w%]){re.escape(name.strip())}(?!\w)", f"{stem}{count}", body)
    body = re.sub(r"\.reg[^;]*;", "", body)
    body = _PLACE.sub(lambda m: names[int(m[1])] if int(m[1]) < len(names) else "%r1", body)
    for match in _INSTRUCTION.finditer(body.strip().removeprefix("{")):
        statement = " ".join(match[0].split())
        if not statement.startswith("selp"):
            yield statement


_EXAMPLE = re.compile(r"^\s+((?:@!?%\w+ )?[a-z][\w.:]*(?:\s[^;]*)?;)\s*$", re.MULTILINE)
_RENAMED = {"h": "rs", "q": "rq", "b": "rc"}


def example_statements(folder: Path) -> list[str]:
    """The instructions of PTX files whose registers are called as the examples call them."""
    text = "\n".join(path.read_text() for path in sorted(folder.glob("*.ptx")))
    renamed = (
        re.sub(r"%(h|q|b)(?=\d)", lambda match: "%" + _RENAMED[match[1]], statement)
        for statement in _EXAMPLE.findall(text)
    )
    return list(dict.fromkeys(renamed))


def special_statements() -> list[str]:
    """A move of every special register, in two types."""
    moves = []
    for name, register in SPECIAL_REGISTERS.items():
        stem = _TYPED.get(register.type) or _STEMS[type_bits(register.type)]
        kinds = dict.fromkeys((register.type, register.type.replace("u", "b")))
        for end in [f".{component}" for component in register.components[:2]] or [""]:
            moves += [f"mov.{kind} {stem}1, {name}{end};" for kind in kinds]
    return moves


_SCOPE = re.compile(r"\.(?:entry|func)\b")
_DECLARED = re.compile(r"\.reg\s*\.(\w+)\s+([^;]+);")
_IN_SPACE = re.compile(r"\.(global|shared|const)\b[^;={(]*?\.\w+\s+([\w$.%]+)\s*[\[;={]")
_STATEMENT = re.compile(
    r"(?:^|(?<=[;{}]))[ \t]*(?:@!?%?\w+[ \t]+)?([a-z]\w*(?:\.[\w:]+)*(?:\s[^;@]*)?;)", re.MULTILINE
)
_WORD = re.compile(r"(?<![\w.$:])[%$A-Za-z_][\w$]*")
_DIGITS = re.compile(r"\d+")
_SYMBOLS = {"global": "g", "shared": "s", "const": "k"}


def corpus_statements(texts: Iterable[str]) -> list[str]:
    """The instructions of PTX files over these registers, one for each opcode and its operands."""
    seen: dict[tuple[str, frozenset[str]], str] = {}
    for text in texts:
        symbols = {name: _SYMBOLS[space] for space, name in _IN_SPACE.findall(text)}
        for body in _SCOPE.split(text):
            stems = dict(_stems(body))
            alike: set[tuple[str, str]] = set()
            for statement in map(" ".join, map(str.split, _STATEMENT.findall(body))):
                opcode, _, operands = statement.partition(" ")
                if (opcode, shape := _DIGITS.sub("", operands)) in alike:
                    continue
                alike.add((opcode, shape))
                plain = _renamed(statement, stems, symbols)
                if plain is not None:
                    seen.setdefault((opcode_of(plain), features(plain)), plain)
    return list(seen.values())


def _stems(body: str) -> Iterator[tuple[str, str]]:
    """The names of registers (without `<count>`), with the stem for their type."""
    for kind, names in _DECLARED.findall(body):
        stem = _stem(kind)
        for name in names.split(",") if stem else ():
            yield name.partition("<")[0].strip(), stem


def _stem(kind: str) -> str:
    """How registers of a type are called; nothing for those that have no name here."""
    if kind == "b8":
        return "%rc"
    return _TYPED.get(kind) or (_STEMS.get(type_bits(kind), "") if is_type(kind) else "")


def _renamed(statement: str, stems: dict[str, str], symbols: dict[str, str]) -> str | None:
    """The statement with its registers called by their types; None if it names anything else."""
    opcode = opcode_of(statement)
    numbers: dict[str, str] = {}
    for word in dict.fromkeys(_WORD.findall(statement[len(opcode) :])):
        stem = stems.get(word) or stems.get(word.rstrip("0123456789"))
        if stem is not None:
            numbers[word] = f"{stem}{len(numbers) + 1}"
        elif word in symbols:
            numbers[word] = symbols[word]
        elif word != "_" and special_register(word) is None:
            return None
    return opcode + _WORD.sub(lambda m: numbers.get(m[0], m[0]), statement[len(opcode) :])


_STEMS = {8: "%rs", 16: "%rs", 32: "%r", 64: "%rd", 128: "%rq"}
_TYPED = {"pred": "%p", "f32": "%f", "f64": "%fd"}
_ROLES = {
    OperandRole.PREDICATE: "%p3",
    OperandRole.PREDICATE_DESTINATION: "%p4",
    OperandRole.IMMEDIATE: "1",
    OperandRole.SIZE: "16",
    OperandRole.CACHE_POLICY: "%rd7",
    OperandRole.BARRIER: "1",
    OperandRole.THREADS: "32",
    OperandRole.ADDRESS: "[%rd1]",
    OperandRole.MBARRIER: "[%rd2]",
    OperandRole.TENSOR_MEMORY: "[%r8]",
}


_PLAIN = {"sink": "_", "i": "1"}


def table_statements(rng: random.Random, count: int) -> list[str]:
    """Statements that the forms of `opcodes.families` describe, `count` for each form."""
    made: dict[str, None] = {}
    for table in families.FORMS:
        for name, line in written_lines(table):
            form = read_form(name, line)
            if form.is_open:
                continue
            for _ in range(count):
                chosen = [
                    rng.choice(sorted(slot.choices))
                    for slot in form.slots
                    if not slot.is_optional or rng.random() < 0.3
                ]
                opcode = ptx.Opcode(name[0], (*name[1:], *chosen))
                made |= dict.fromkeys(_with_operands(opcode, form, rng))
    return list(made)


def _with_operands(opcode: ptx.Opcode, form: Form, rng: random.Random) -> Iterator[str]:
    counts = arity(opcode)
    types = [m for m in opcode.modifiers if is_type(m)]
    for number in range(counts[0], counts[1] + 1) if counts else ():
        described = meaning(opcode, number)
        if described is None or not described.fits:
            continue
        usual = [USUAL.get(name, USUAL.get(name.rstrip("1234"), "_")) for name in described.words]
        words = (*form.operands, *usual[len(form.operands) :])
        words = tuple(usual[n] if word == "." else word for n, word in enumerate(words[:number]))
        operands = [
            _operand(role, word, types, opcode.modifiers, index)
            for index, (role, word) in enumerate(zip(described.roles, words, strict=False))
        ]
        yield f"{opcode} {', '.join(operands)}".strip() + ";"


def _operand(
    role: OperandRole, word: str, types: list[str], modifiers: tuple[str, ...], index: int
) -> str:
    if word.endswith("&&"):
        return _operand(role, word[:-2], types, modifiers, index) + "|%p4"
    if word == "[parts]":
        return f"[{', '.join(_address_parts(modifiers))}]"
    word = named_type(word, modifiers)
    if word == "offsets":
        return _registers("%rs", offset_count(modifiers))
    if role in _ROLES or word in _PLAIN:
        return _ROLES.get(role) or _PLAIN[word]
    word = word.partition("/")[0].lstrip("!_%").rstrip("~&")
    count, star, element = word.partition("*")
    if word == "V":
        vector = next((VECTOR_COUNTS[m] for m in modifiers if m in VECTOR_COUNTS), None)
        count, star = (str(vector), "*") if vector else ("", "")
    elif star:
        word = element
    kind = {"D": types[:1], "S": types[1:2]}.get(word, types[-1:])
    name = word if is_type(word) else (kind[0] if kind else "b32")
    name = wide_type(name) if word == "W" and name in WIDER else name
    stem = _TYPED.get(name) or _STEMS.get(type_bits(name), "%r")
    number = vector_length(count, modifiers) if star else None
    if number is None:
        return f"{stem}{index + 1}"
    stem = "%rc" if count == "v" and type_bits(name) == 8 else stem
    return _registers(stem, number, 10 * index)


def _address_parts(modifiers: tuple[str, ...]) -> Iterator[str]:
    """The parts of a tensor map with coordinates, or of an endpoint with an offset."""
    count, (_, coordinates) = dimensions(modifiers), part_counts(modifiers)
    if coordinates:
        yield "%rd1"
    if not {"fabric", "mbarrier::report::fabric"}.isdisjoint(modifiers):
        yield from ("%r1", "%rd2")
    elif "override::global_address" in modifiers:
        yield "%rd2"
    if "counted::bytes" in modifiers:
        yield "%rd3"
    if not {"override::global_dim", "override::global_dim_stride"}.isdisjoint(modifiers):
        yield _registers("%rs", count)
    if "override::global_dim_stride" in modifiers:
        yield from (_registers("%r", count - 1), "%rs9")
    if coordinates:
        yield _registers("%r", coordinates)


def _registers(stem: str, count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"{stem}{first + place}" for place in range(count)) + "}"


def opcode_of(statement: str) -> str:
    """The opcode of a statement, with its modifiers."""
    return re.split(r"[\s;]", statement, maxsplit=1)[0]


def split_operands(statement: str) -> list[str]:
    """Operands at the top level of brackets."""
    text = statement[len(opcode_of(statement)) :].strip().rstrip(";")
    operands, depth, start = [], 0, 0
    for index, character in enumerate(text + ","):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            operands.append(text[start:index].strip())
            start = index + 1
    return [operand for operand in operands if operand]


_WORDS = {"_": "_", "g": "=global", "s": "=shared", "bar": "=shared", "k": "=const"}
INTEGER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)U?")
_KINDS = {"#i": INTEGER, "#f": re.compile(r"-?(?:\d+\.\d+|0[fFdD][0-9a-fA-F]+)")}


def operand_text_word(text: str) -> str:
    """The word for an operand (`opcodes.operand_types`), from its text."""
    first, bar, second = text.strip().partition("|")
    if bar:
        return f"{operand_text_word(first)}|{operand_text_word(second)}"
    if not text:
        return "?"
    if register := _REGISTER.fullmatch(text):
        return _CLASSES[register[1]]
    for word, pattern in _KINDS.items():
        if pattern.fullmatch(text):
            return word
    match text[0]:
        case "{":
            return "{" + ",".join(map(operand_text_word, _parts(text))) + "}"
        case "[":
            parts = [operand_text_word(part.partition("+")[0]) for part in _parts(text)]
            return f"[{'*' * (len(parts) - 1)}{parts[-1]}]"
        case "%":
            return f"%u32:{text.partition('.')[0]}"
        case "!":
            return f"!{operand_text_word(text[1:])}"
    return _WORDS.get(text.partition("[")[0], "?")


def _parts(text: str) -> list[str]:
    return split_operands(f"x {text[1:-1]};")


def features(statement: str) -> frozenset[str]:
    """The features of a statement that rules may name."""
    words = tuple(map(operand_text_word, split_operands(statement)))
    return features_of(_opcode(opcode_of(statement)), words)


@cache
def _opcode(text: str) -> ptx.Opcode:
    name, *modifiers = text.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def name_of(statement: str) -> tuple[str, ...]:
    """The name whose rules hold for a statement."""
    return rule_name(_opcode(opcode_of(statement)))
