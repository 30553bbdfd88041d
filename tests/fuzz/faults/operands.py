"""Faults in the operands: registers of another width or class, counts, vectors, names."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from tests.fuzz.faults.text import Edit, Statement, Text

REGISTER = re.compile(
    r"(?<![\w.$])%(?!tid|ntid|ctaid|nctaid|lane|warp|nwarp|clock|sm|pm)[a-z_A-Z$]*\d+"
)
FLOATS = ("f16", "f16x2", "f32", "f64")


def width_of(kind: str) -> int:
    """Bits of a register of a type; 1 for a predicate."""
    scale = 2 if kind.endswith("x2") else 1
    return scale * int("".join(filter(str.isdigit, kind.split("x")[0])) or 1)


def _with_register(
    text: Text, rng: random.Random, change: str, wanted: object = None
) -> Edit | None:
    """A statement with one of its registers replaced by one that differs as `change` says."""
    statement = text.choose(
        rng, lambda found: REGISTER.search(",".join(found.operands)) is not None
    )
    if statement is None:
        return None
    places = [
        (index, found)
        for index, operand in enumerate(statement.operands)
        for found in REGISTER.finditer(operand)
    ]
    index, found = rng.choice(places)
    kind = text.kind_of(statement.function, found[0])
    if kind is None:
        return None

    def differs(other: str) -> bool:
        if change == "width":
            return width_of(other) != width_of(kind) and "pred" not in (other, kind)
        if change == "predicate":
            return (other == "pred") != (kind == "pred")
        same_width = width_of(other) == width_of(kind)
        return same_width and (other in FLOATS) != (kind in FLOATS)

    name = text.register(statement.function, differs, rng)
    if name is None:
        return None
    operand = statement.operands[index]
    return statement.with_operand(
        index, operand[: found.start()] + name + operand[found.end() :]
    ).edit()


def register_of_other_width(text: Text, rng: random.Random) -> Edit | None:
    """A register that is wider or narrower than the type."""
    return _with_register(text, rng, "width")


def register_of_other_class(text: Text, rng: random.Random) -> Edit | None:
    """A float register for an integer one of the same width, or the other way round."""
    return _with_register(text, rng, "class")


def predicate_for_value(text: Text, rng: random.Random) -> Edit | None:
    """A predicate where a value belongs, or a value where a predicate belongs."""
    return _with_register(text, rng, "predicate")


def guard_no_predicate(text: Text, rng: random.Random) -> Edit | None:
    """A guard that is a register of another type."""
    statement = text.choose(rng, lambda found: not found.guard or rng.random() < 0.5)
    if statement is None:
        return None
    name = text.register(statement.function, lambda kind: kind != "pred", rng)
    return (name and replace(statement, guard=f"@{rng.choice(['', '!'])}{name} ").edit()) or None


def guard_no_register(text: Text, rng: random.Random) -> Edit | None:
    """A guard that is a number, nothing, or a special register."""
    statement = text.choose(rng, lambda found: True)
    guard = rng.choice(["@5", "@!0", "@%tid.x", "@%laneid", "@", "@!", "@%undeclared_p", "@[%p1]"])
    return statement and replace(statement, guard=guard + " ").edit()


def _with_name(text: Text, rng: random.Random, name: str) -> Edit | None:
    statement = text.choose(
        rng, lambda found: REGISTER.search(",".join(found.operands)) is not None
    )
    if statement is None:
        return None
    places = [i for i, operand in enumerate(statement.operands) if REGISTER.search(operand)]
    index = rng.choice(places)
    return statement.with_operand(
        index, REGISTER.sub(name, statement.operands[index], count=1)
    ).edit()


def undefined_register(text: Text, rng: random.Random) -> Edit | None:
    """A register that no declaration has."""
    return _with_name(text, rng, rng.choice(["%undeclared7", "%r999999", "%rd99999", "%q1", "zz"]))


def undefined_special(text: Text, rng: random.Random) -> Edit | None:
    """A special register that does not exist, or a component it does not have."""
    wrong = ["%tid.w2", "%tidx", "%ntid.q", "%blockid.x", "%clock65", "%lane", "%envreg77", "%pm9"]
    return _with_name(text, rng, rng.choice(wrong))


def special_misused(text: Text, rng: random.Random) -> Edit | None:
    """A write to a special register, or a read with a type of another width."""
    statement = text.any_statement(rng)
    if statement is None:
        return None
    wide = text.register(statement.function, lambda kind: width_of(kind) == 64, rng) or "%rdx"
    narrow = text.register(statement.function, lambda kind: width_of(kind) == 16, rng) or wide
    words = [
        "mov.u32 %tid.x, 5;",
        "mov.u32 %laneid, 0;",
        f"mov.u64 {wide}, %tid.x;",
        f"mov.u32 {wide}, %ctaid.y;",
        f"mov.u16 {narrow}, %laneid;",
        f"mov.f64 {wide}, %clock;",
        f"mov.b64 {wide}, %tid;",
        "add.u32 %ntid.x, %ntid.x, 1;",
    ]
    return statement.before(rng.choice(words))


def undefined_label(text: Text, rng: random.Random) -> Edit | None:
    """A branch to a label that does not exist."""
    statement = text.any_statement(rng)
    branch = text.choose(rng, lambda found: found.stem == "bra")
    label = rng.choice(["nowhere", "$L__BB99_99", "LBB_none", "$nowhere"])
    if branch is not None and rng.random() < 0.7:
        return branch.with_operand(0, label).edit()
    return statement and statement.before(f"bra{rng.choice(['', '.uni'])} {label};")


def label_of_other_function(text: Text, rng: random.Random) -> Edit | None:
    """A branch to a label of another function."""
    branch = text.choose(rng, lambda found: found.stem == "bra") or text.any_statement(rng)
    if branch is None:
        return None
    others = [n for f, names in text.labels.items() if f != branch.function for n in names]
    own = set(text.labels.get(branch.function, ()))
    others = [name for name in others if name not in own]
    return branch.before(f"bra {rng.choice(others)};") if others else None


def undefined_symbol(text: Text, rng: random.Random) -> Edit | None:
    """An address of a variable that is not declared."""
    statement = text.choose(
        rng, lambda found: found.stem in ("ld", "st", "atom", "red") and "[" in str(found)
    )
    if statement is None:
        return None
    index = next(i for i, word in enumerate(statement.operands) if word.startswith("["))
    symbol = rng.choice(["[no_such_symbol]", "[missing+4]", "[$str$99]", "[_param_99]"])
    return statement.with_operand(index, symbol).edit()


def lost_operand(text: Text, rng: random.Random) -> Edit | None:
    """An operand less."""
    statement = text.choose(rng, lambda found: len(found.operands) > 1)
    if statement is None:
        return None
    at = rng.randrange(len(statement.operands))
    kept = statement.operands[:at] + statement.operands[at + 1 :]
    return replace(statement, operands=kept).edit()


def extra_operand(text: Text, rng: random.Random) -> Edit | None:
    """An operand more."""
    statement = text.choose(rng, lambda found: True)
    if statement is None:
        return None
    known = text.register(statement.function, lambda kind: True, rng) or "1"
    added = rng.choice([known, "1", statement.operands[-1] if statement.operands else "0"])
    return replace(statement, operands=(*statement.operands, added)).edit()


def immediate_destination(text: Text, rng: random.Random) -> Edit | None:
    """A number where the result goes."""
    statement = text.choose(
        rng, lambda found: len(found.operands) > 1 and found.operands[0].startswith("%")
    )
    number = rng.choice(["5", "0", "0f3F800000", "-1", "0x10"])
    return statement and statement.with_operand(0, number).edit()


def immediate_operand(text: Text, rng: random.Random) -> Edit | None:
    """A number where a register or an address must stand."""
    statement = text.choose(rng, lambda found: len(found.operands) > 1)
    if statement is None:
        return None
    index = rng.randrange(len(statement.operands))
    number = rng.choice(["5", "0f3F800000", "0d3FF0000000000000", "1.5", "-3"])
    return statement.with_operand(index, number).edit()


def address_for_value(text: Text, rng: random.Random) -> Edit | None:
    """Brackets round an operand that is a value, or none round an address."""
    statement = text.choose(rng, lambda found: bool(found.operands))
    if statement is None:
        return None
    index = rng.randrange(len(statement.operands))
    operand = statement.operands[index]
    changed = operand[1:-1] if operand.startswith("[") else f"[{operand}]"
    return statement.with_operand(index, changed).edit()


def bad_address(text: Text, rng: random.Random) -> Edit | None:
    """An address that is no register plus a number."""
    statement = text.choose(rng, lambda found: any(word.startswith("[") for word in found.operands))
    if statement is None:
        return None
    index = next(i for i, word in enumerate(statement.operands) if word.startswith("["))
    inner = statement.operands[index][1:-1]
    base = inner.split("+")[0]
    wrong = [f"[{base}+{base}]", f"[{base}*4]", "[]", f"[{base}+1.5]", f"[{base}-]", f"[{base}+%r]"]
    return statement.with_operand(index, rng.choice(wrong)).edit()


def register_of_address(text: Text, rng: random.Random) -> Edit | None:
    """An address in a float, a predicate or a narrow register."""
    statement = text.choose(
        rng,
        lambda found: any(REGISTER.match(word, 1) for word in found.operands if word[:1] == "["),
    )
    if statement is None:
        return None
    index = next(i for i, word in enumerate(statement.operands) if word[:1] == "[")
    name = text.register(
        statement.function, lambda kind: kind in FLOATS or width_of(kind) in (1, 16), rng
    )
    return statement.with_operand(index, f"[{name}]").edit() if name else None


def vector_length(text: Text, rng: random.Random) -> Edit | None:
    """A vector with another number of elements than its modifier says."""
    statement = text.choose(rng, lambda found: any(word[:1] == "{" for word in found.operands))
    if statement is None:
        return None
    at = rng.choice([i for i, word in enumerate(statement.operands) if word[:1] == "{"])
    names = [name.strip() for name in statement.operands[at][1:-1].split(",")]
    changed = names[:-1] if rng.random() < 0.5 and len(names) > 1 else [*names, names[-1]]
    return statement.with_operand(at, "{" + ", ".join(changed) + "}").edit()


def vector_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A vector modifier that does not exist or does not fit the operand."""
    statement = text.choose(rng, lambda found: found.stem in ("ld", "st") and bool(found.modifiers))
    if statement is None:
        return None
    modifiers = [word for word in statement.modifiers if word not in ("v2", "v4", "v8")]
    had = next((word for word in statement.modifiers if word in ("v2", "v4", "v8")), "")
    wanted = rng.choice([word for word in ("v2", "v4", "v3", "v8", "v16", "v1") if word != had])
    return statement.with_modifiers([*modifiers[:-1], wanted, modifiers[-1]]).edit()


def vector_of_mixed(text: Text, rng: random.Random) -> Edit | None:
    """A vector with an element of another width or class."""
    statement = text.choose(rng, lambda found: any(word[:1] == "{" for word in found.operands))
    if statement is None:
        return None
    at = rng.choice([i for i, word in enumerate(statement.operands) if word[:1] == "{"])
    names = [name.strip() for name in statement.operands[at][1:-1].split(",")]
    kind = text.kind_of(statement.function, names[0])
    if kind is None:
        return None
    name = text.register(statement.function, lambda other: width_of(other) != width_of(kind), rng)
    if name is None:
        return None
    names[rng.randrange(len(names))] = name
    return statement.with_operand(at, "{" + ", ".join(names) + "}").edit()


def element_of_scalar(text: Text, rng: random.Random) -> Edit | None:
    """A component of a register that is no vector, or one that does not exist."""
    statement = text.choose(rng, lambda found: any(word[:1] == "%" for word in found.operands))
    if statement is None:
        return None
    at = rng.choice([i for i, word in enumerate(statement.operands) if word[:1] == "%"])
    name = statement.operands[at].split(".")[0]
    if "|" in name:
        return None
    return statement.with_operand(at, f"{name}.{rng.choice('xyzwqrb')}").edit()


def swapped_operands(text: Text, rng: random.Random) -> Edit | None:
    """Destination and source, or address and value, the other way round."""
    statement = text.choose(rng, lambda found: len(found.operands) > 1)
    if statement is None:
        return None
    first, second = rng.sample(range(len(statement.operands)), 2)
    operands = list(statement.operands)
    operands[first], operands[second] = operands[second], operands[first]
    return None if tuple(operands) == statement.operands else _swap(statement, operands)


def _swap(statement: Statement, operands: list[str]) -> Edit:
    return replace(statement, operands=tuple(operands)).edit()
