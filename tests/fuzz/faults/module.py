"""Faults in the header, in declarations, in functions and calls, and in the syntax."""

from __future__ import annotations

import random
import re

from tests.fuzz.faults.text import Edit, Text, read_sections

VERSIONS = """
1.0 1.4 2.0 2.3 3.0 3.2 4.0 4.3 5.0 6.0 6.2 6.3 6.5
7.0 7.1 7.4 7.8 8.0 8.1 8.3 8.6 8.8 9.0""".split()  # noqa: SIM905
TARGETS = """
sm_10 sm_11 sm_13 sm_20 sm_30 sm_35 sm_50 sm_52 sm_53 sm_60 sm_61 sm_70 sm_72 sm_75 sm_80
sm_86 sm_89 sm_90 sm_100""".split()  # noqa: SIM905


def _header(text: Text, word: str, replacement: str) -> Edit | None:
    line = text.header(word)
    return None if line is None else Edit(line, 1, (replacement,), line)


def version_too_old(text: Text, rng: random.Random) -> Edit | None:
    """An older `.version` than the file needs."""
    line = text.header("version")
    found = line is not None and re.search(r"(\d+)\.(\d+)", text.lines[line])
    if not found:
        return None
    had = (int(found[1]), int(found[2]))
    older = [word for word in VERSIONS if tuple(map(int, word.split("."))) < had]
    return _header(text, "version", f".version {rng.choice(older)}") if older else None


def target_too_old(text: Text, rng: random.Random) -> Edit | None:
    """An older `.target` than the file needs."""
    line = text.header("target")
    found = line is not None and re.search(r"sm_(\d+)", text.lines[line])
    if line is None or not found:
        return None
    older = [word for word in TARGETS if int(word[3:]) < int(found[1])]
    if not older:
        return None
    changed = re.sub(r"sm_\d+[af]?", rng.choice(older), text.lines[line], count=1)
    return _header(text, "target", changed)


def target_without_letter(text: Text, rng: random.Random) -> Edit | None:
    """`sm_90` for a file that needs `sm_90a`."""
    line = text.header("target")
    if line is None or not re.search(r"sm_\d+[af]", text.lines[line]):
        return None
    return _header(text, "target", re.sub(r"(sm_\d+)[af]", r"\1", text.lines[line]))


def bad_target(text: Text, rng: random.Random) -> Edit | None:
    """A `.target` that no version has."""
    wrong = """sm_999 sm_81 sm_8 sm_80a sm_75f compute_80 80 sm80 sm_ gfx90a sm_90z SM_80""".split()  # noqa: SIM905
    wrong += ["sm_80, foo", "", "sm_80 sm_90", "sm_80,", "texmode_unified", "sm_80, sm_90"]
    return _header(text, "target", f".target {rng.choice(wrong)}")


def bad_version(text: Text, rng: random.Random) -> Edit | None:
    """A `.version` that no assembler knows."""
    wrong = """99.0 8 eight 8.x 8.99 7.9 -1.0 0.5 8.0.1 v8.0 6.9 5.5 12.0 3.3""".split()  # noqa: SIM905
    return _header(text, "version", f".version {rng.choice(['', *wrong])}")


def bad_address_size(text: Text, rng: random.Random) -> Edit | None:
    """An `.address_size` that is neither 32 nor 64."""
    wrong = rng.choice(["16", "33", "128", "0", "-64", "64.0", "abc", "8", "63", "64,"])
    return _header(text, "address_size", f".address_size {wrong}")


def header_order(text: Text, rng: random.Random) -> Edit | None:
    """`.version` lost or doubled, `.target` in front of it."""
    version, target = text.header("version"), text.header("target")
    if version is None or target is None or target != version + 1:
        return None
    lines = text.lines
    choices = [
        Edit(version, 2, (lines[target], lines[version]), version),
        Edit(version, 1, (), version),
        Edit(target, 1, (), target),
        Edit(target + 1, 0, (lines[version],), target + 1),
    ]
    return rng.choice(choices)


PAIRS = {
    "duplicate_variable": (".global .b32 ztwice;", ".global .b32 ztwice;"),
    "duplicate_variable_type": (".global .b32 ztwice;", ".global .u64 ztwice;"),
    "duplicate_function": (".func ztwice() { ret; }", ".func ztwice() { ret; }"),
    "other_prototype": (
        ".extern .func ztwice(.param .u32 a);",
        ".func ztwice(.param .u64 a) { ret; }",
    ),
    "function_and_variable": (".global .u32 ztwice;", ".func ztwice() { ret; }"),
    "other_results": (
        ".extern .func ztwice(.param .u32 a);",
        ".func (.param .u32 r) ztwice(.param .u32 a) { ret; }",
    ),
}
DECLARED = read_sections("declarations.txt")
IN_BODY = DECLARED.pop("bad_declaration_in_body")
CALLEES = read_sections("calls.txt")


def declared(kind: str, text: Text, rng: random.Random) -> Edit | None:
    """A module-level declaration that is wrong."""
    line = text.module_line(rng)
    return None if line is None else Edit(line, 0, (rng.choice(DECLARED[kind]),), line)


def paired(kind: str, text: Text, rng: random.Random) -> Edit | None:
    """Two declarations that do not go together; the second is the fault."""
    line = text.module_line(rng)
    return None if line is None else Edit(line, 0, PAIRS[kind], line + 1)


def wrong_call(text: Text, rng: random.Random) -> Edit | None:
    """A call whose arguments or results are not those of the function."""
    line = text.module_line(rng)
    if line is None:
        return None
    callee = rng.choice(sorted(CALLEES))
    registers = (
        ".reg .pred %zp<9>; .reg .b16 %zh<9>; .reg .b32 %zr<9>; .reg .b64 %zd<9>; .reg .f32 %zf<9>;"
    )
    lines = (callee, ".entry zcaller() {", registers, rng.choice(CALLEES[callee]), "ret; }")
    return Edit(line, 0, lines, line + 3)


def duplicate_register(text: Text, rng: random.Random) -> Edit | None:
    """A register declared twice in one block."""
    statement = text.any_statement(rng)
    kinds = text.registers.get(statement.function, {}) if statement else {}
    start = text.body_starts.get(statement.function) if statement else None
    if statement is None or start is None or not kinds:
        return None
    for number in range(start, min(start + 30, len(text.lines))):
        if re.match(r"^\s*\.reg\b[^;]*;", text.lines[number]) and rng.random() < 0.6:
            return Edit(number + 1, 0, (text.lines[number],), number + 1)
    first, second = rng.choice([(".b32", ".b32"), (".b32", ".f64"), (".pred", ".pred")])
    return statement.before(f".reg {first} %ztwice;", f".reg {second} %ztwice;")


def duplicate_label(text: Text, rng: random.Random) -> Edit | None:
    """A label that stands twice."""
    statement = text.any_statement(rng)
    if statement is None:
        return None
    names = text.labels.get(statement.function)
    if names and rng.random() < 0.6:
        return Edit(statement.line, 0, (f"{rng.choice(names)}:",), statement.line)
    return statement.before("ztwice:", "ztwice:")


def duplicate_local(text: Text, rng: random.Random) -> Edit | None:
    """A variable declared twice in one block."""
    statement = text.any_statement(rng)
    if statement is None:
        return None
    space = rng.choice(["shared", "local", "param", "global"])
    row = f".{space} .align 4 .b8 ztwice[8];"
    return statement.before("{", row, row, "}", fault=2)


def bad_declaration_in_body(text: Text, rng: random.Random) -> Edit | None:
    """A declaration in a body that may not stand there, or is wrong."""
    statement = text.any_statement(rng)
    return statement and statement.before(rng.choice(IN_BODY))


def store_to_parameter(text: Text, rng: random.Random) -> Edit | None:
    """A store to a kernel's parameter, or a read of one that does not exist."""
    load = text.choose(rng, lambda found: found.opcode.startswith("ld.param"))
    if load is None or len(load.operands) != 2:
        return None
    kind = load.modifiers[-1]
    value, place = load.operands
    rows = [
        f"st.param.{kind} {place}, {value};",
        f"ld.param.{kind} {value}, [zno_such_param];",
        f"ld.param.{kind} {value}, {place[1:-1]};",
        f"st.param.{kind} [{value}], {value};",
        f"atom.param.add.u32 {value}, {place}, 1;",
        f"mov.{kind} {place[1:-1]}, {value};",
    ]
    return load.before(rng.choice(rows))


def missing_semicolon(text: Text, rng: random.Random) -> Edit | None:
    """A statement that does not end."""
    statement = text.choose(rng, lambda found: True)
    return statement and Edit(statement.line, 1, (str(statement)[:-1],), statement.line)


def missing_comma(text: Text, rng: random.Random) -> Edit | None:
    """Two operands with nothing between them."""
    statement = text.choose(rng, lambda found: len(found.operands) > 1)
    if statement is None:
        return None
    return Edit(statement.line, 1, (str(statement).replace(",", " ", 1),), statement.line)


def unbalanced_bracket(text: Text, rng: random.Random) -> Edit | None:
    """A bracket or a brace less or more."""
    statement = text.choose(rng, lambda found: bool(re.search(r"[\[\]{}]", str(found))))
    if statement is None:
        return None
    row = str(statement)
    at = rng.choice([i for i, character in enumerate(row) if character in "[]{}"])
    changed = row[:at] + row[at] * rng.choice([0, 2]) + row[at + 1 :]
    return Edit(statement.line, 1, (changed,), statement.line)


def stray_text(text: Text, rng: random.Random) -> Edit | None:
    """A character or a word that belongs nowhere."""
    statement = text.choose(rng, lambda found: True)
    if statement is None:
        return None
    row, added = str(statement), rng.choice(["`", "#", "?", "\\", "~", "stray", "=", "]", ")", ","])
    at = rng.choice([match.start() for match in re.finditer(r"[ \t,;]", row)])
    return Edit(statement.line, 1, (row[:at] + added + row[at:],), statement.line)


def lost_dot(text: Text, rng: random.Random) -> Edit | None:
    """A dot less or more in an opcode."""
    statement = text.choose(rng, lambda found: "." in found.opcode)
    if statement is None:
        return None
    at = rng.choice([i for i, character in enumerate(statement.opcode) if character == "."])
    middle = rng.choice(["", "..", ". ", " "])
    opcode = statement.opcode[:at] + middle + statement.opcode[at + 1 :]
    row = str(statement).replace(statement.opcode, opcode, 1)
    return Edit(statement.line, 1, (row,), statement.line)
