"""Faults in the opcode, its modifiers and its types."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzz.faults.text import Edit, Statement, Text

TYPES = """b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 f32 f64 tf32 e4m3
e5m2 f32x2 s16x2 u16x2 pred""".split()  # noqa: SIM905
WIDTHS = {
    name: int("".join(filter(str.isdigit, name.split("x")[0])) or 1)
    * (2 if name.endswith("x2") else 1)
    for name in TYPES
    if name not in ("tf32", "e4m3", "e5m2")
}
MADE_UP = """
bogus foo fast wide2 rnd cached u33 s24 f8 nonsense v5 x async2 q""".split()  # noqa: SIM905
MODIFIERS = """
sat ftz approx wide rn rz rm rp rni rzi full hi lo cc uni sync aligned volatile relaxed
acquire release weak acq_rel sc cta gpu sys cluster global shared local const param v2 v4 v8
ca cg cs cv lu wb wt nc to noinc NaN abs xorsign relu x4 trans num row col eq ne lt gt and
or xor add min max exch cas inc dec all any ballot up down bfly idx clamp wrap l r shiftamt
popc geom a1d 2d unified L2::128B L1::no_allocate satfinite rna mmio noftz shared::cta
shared::cluster""".split()  # noqa: SIM905
OPCODES = """
add sub mul mad fma div rem abs neg min max popc clz bfind bfe bfi and or xor not shl shr
lop3 setp set selp slct mov ld st cvt cvta atom red bar membar fence bra ret exit vote shfl
prmt rcp sqrt rsqrt sin cos lg2 ex2 tanh copysign testp dp4a dp2a mad24 mul24 sad brev fns
tex suld sust activemask nanosleep redux match elect isspacep prefetch mma ldmatrix cp""".split()  # noqa: SIM905


def has_operands(statement: Statement) -> bool:
    """Whether the statement is a common one to change."""
    return bool(statement.operands)


def misspelt_opcode(text: Text, rng: random.Random) -> Edit | None:
    """An opcode with two letters swapped, one lost, or one doubled."""
    statement = text.choose(rng, lambda found: len(found.stem) > 2)
    if statement is None:
        return None
    stem, at = statement.stem, rng.randrange(len(statement.stem) - 1)
    swapped = stem[:at] + stem[at + 1] + stem[at] + stem[at + 2 :]
    lost, doubled = stem[:at] + stem[at + 1 :], stem[:at] + stem[at] + stem[at:]
    changed = rng.choice([swapped, lost, doubled])
    if changed in OPCODES or changed == stem:
        return None
    return replace(statement, opcode=".".join([changed, *statement.modifiers])).edit()


def unknown_opcode(text: Text, rng: random.Random) -> Edit | None:
    """An opcode that was never one, in place of a known one or alone."""
    made_up = rng.choice(
        [
            "frobnicate",
            "load",
            "store",
            "addf",
            "vadd9",
            "jump",
            "nop",
            "move",
            "cmp",
            "push",
            "mulf",
            "lea",
        ]
    )
    statement = text.choose(rng, has_operands)
    if statement is None:
        return None
    return replace(statement, opcode=".".join([made_up, *statement.modifiers])).edit()


def unknown_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A modifier that no opcode has, somewhere among the others."""
    statement = text.choose(rng, lambda found: True)
    if statement is None:
        return None
    modifiers = statement.modifiers
    modifiers.insert(rng.randint(0, len(modifiers)), rng.choice(MADE_UP))
    return statement.with_modifiers(modifiers).edit()


def misspelt_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A modifier with a letter lost, doubled or swapped."""
    statement = text.choose(rng, lambda found: bool(found.modifiers))
    if statement is None:
        return None
    modifiers = statement.modifiers
    at = rng.randrange(len(modifiers))
    word = modifiers[at]
    if len(word) < 2:
        return None
    place = rng.randrange(len(word) - 1)
    changed = [word[:place] + word[place + 1 :], word[: place + 1] + word[place:], word + "x"]
    modifiers[at] = rng.choice(changed)
    return None if modifiers[at] == word else statement.with_modifiers(modifiers).edit()


def foreign_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A modifier that PTX has, on an opcode that does not have it."""
    statement = text.choose(rng, lambda found: True)
    if statement is None:
        return None
    modifiers = statement.modifiers
    modifiers.insert(rng.randint(0, max(0, len(modifiers) - 1)), rng.choice(MODIFIERS))
    return statement.with_modifiers(modifiers).edit()


def saturated_memory(text: Text, rng: random.Random) -> Edit | None:
    """An arithmetic modifier on an access of memory."""
    statement = text.choose(rng, lambda found: found.stem in ("ld", "st", "mov", "cvta", "atom"))
    if statement is None:
        return None
    added = rng.choice(["sat", "ftz", "approx", "rn", "hi", "lo", "wide", "cc"])
    modifiers = statement.modifiers
    modifiers.insert(rng.randint(0, max(0, len(modifiers) - 1)), added)
    return statement.with_modifiers(modifiers).edit()


def lost_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A modifier less: a type, a rounding, a space, `.lo`, `.sync`."""
    statement = text.choose(rng, lambda found: bool(found.modifiers))
    if statement is None:
        return None
    modifiers = statement.modifiers
    modifiers.pop(rng.randrange(len(modifiers)))
    return statement.with_modifiers(modifiers).edit()


def repeated_modifier(text: Text, rng: random.Random) -> Edit | None:
    """A modifier twice."""
    statement = text.choose(rng, lambda found: bool(found.modifiers))
    if statement is None:
        return None
    modifiers = statement.modifiers
    at = rng.randrange(len(modifiers))
    modifiers.insert(at, modifiers[at])
    return statement.with_modifiers(modifiers).edit()


def modifier_order(text: Text, rng: random.Random) -> Edit | None:
    """Two modifiers in the wrong order."""
    statement = text.choose(rng, lambda found: len(found.modifiers) > 1)
    if statement is None:
        return None
    modifiers = statement.modifiers
    at = rng.randrange(len(modifiers) - 1)
    modifiers[at], modifiers[at + 1] = modifiers[at + 1], modifiers[at]
    return statement.with_modifiers(modifiers).edit()


def _retyped(
    text: Text, rng: random.Random, fits: bool, stems: tuple[str, ...] | None = None
) -> Edit | None:
    """Another type in place of one; `fits` says whether its width stays."""
    statement = text.choose(
        rng,
        lambda found: (
            any(word in WIDTHS for word in found.modifiers)
            and (stems is None or found.stem in stems)
        ),
    )
    if statement is None:
        return None
    modifiers = statement.modifiers
    at = rng.choice([index for index, word in enumerate(modifiers) if word in WIDTHS])
    width = WIDTHS[modifiers[at]]
    others = [
        name
        for name, bits in WIDTHS.items()
        if (bits == width) == fits and name not in (modifiers[at], "pred")
    ]
    if not others:
        return None
    modifiers[at] = rng.choice(others)
    return statement.with_modifiers(modifiers).edit()


def wrong_type(text: Text, rng: random.Random) -> Edit | None:
    """A type of the same width that the opcode does not take (`and.f32`, `mul.lo.f32`)."""
    return _retyped(text, rng, True)


def wrong_width(text: Text, rng: random.Random) -> Edit | None:
    """A type of another width than the registers."""
    return _retyped(text, rng, False)


def logic_type(text: Text, rng: random.Random) -> Edit | None:
    """A float or signed type on an operation on bits, a bit type on arithmetic."""
    stems = """and or xor not shl shr lop3 prmt brev popc clz add sub mul mad fma min max""".split()  # noqa: SIM905
    return _retyped(text, rng, True, tuple(stems))


def odd_type(text: Text, rng: random.Random) -> Edit | None:
    """A type that exists and fits hardly anything (`.pred`, `.b128`, `.e4m3`, `.f16x2`)."""
    statement = text.choose(rng, lambda found: any(word in WIDTHS for word in found.modifiers))
    if statement is None:
        return None
    modifiers = statement.modifiers
    at = rng.choice([index for index, word in enumerate(modifiers) if word in WIDTHS])
    odd = ["pred", "b128", "e4m3", "tf32", "b8", "e5m2x2", "u128", "texref"]
    modifiers[at] = rng.choice([name for name in odd if name != modifiers[at]])
    return statement.with_modifiers(modifiers).edit()


def wrong_case(text: Text, rng: random.Random) -> Edit | None:
    """An opcode or a modifier in capitals."""
    statement = text.choose(rng, lambda found: True)
    if statement is None:
        return None
    if not statement.modifiers or rng.random() < 0.5:
        changed = ".".join([statement.stem.upper(), *statement.modifiers])
        return replace(statement, opcode=changed).edit()
    modifiers = statement.modifiers
    at = rng.randrange(len(modifiers))
    modifiers[at] = modifiers[at].upper()
    same = modifiers == statement.modifiers
    return None if same else statement.with_modifiers(modifiers).edit()


def other_opcode(text: Text, rng: random.Random) -> Edit | None:
    """Another opcode with the modifiers and operands of the first."""
    statement = text.choose(rng, has_operands)
    if statement is None:
        return None
    stem = rng.choice([name for name in OPCODES if name != statement.stem])
    return replace(statement, opcode=".".join([stem, *statement.modifiers])).edit()
