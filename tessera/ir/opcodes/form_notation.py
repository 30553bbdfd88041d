"""The notation of forms (modifiers, types and operands), and its reader.

Each file of `families` has its forms below its rows, in `FORMS`: one line per form, three columns,
and a fourth with what the form needs (`#` starts a comment):

    NAMES | MODIFIERS | OPERANDS | NEEDS

NAMES are opcodes; a dotted name stands for an opcode that starts with just these words, and the
longest name that an opcode starts with is the one whose forms count (`mul.wide` before `mul`).

MODIFIERS are slots. `a/b` is one of these, `[a/b]` at most one, `(a/b)` one, but none in modules
for sm_1x. Types fill their slots from left to right; other modifiers stand in any order, as in
ptxas. `*` takes any further modifiers.

`@name` stands for the choices of a group (`GROUPS`). A line that starts with blanks continues the
one before it.

OPERANDS describe the operands from left to right; operands beyond the words are not checked.
    TYPE      a register of that type, or a constant of it
    D S T     the same, of the first, second or last type of the opcode
    W         twice as wide as T (`mul.wide`)
    ~ behind  a wider register will do as well (loads, stores, conversions)
    V         one T~ or, with `.v2` to `.v8`, as many
    M         as T, also a symbol, a special register or a vector that is as wide in all
    A         an address in the opcode's state space
    C         a surface and the coordinates in it
    4*TYPE    a vector of four registers of that type (`4*D`: of the first type)
    i         a constant
    label     a label
    _         anything
    -         no operand
A `!` before the word asks for a register (or a list of them): constants are refused.

NEEDS is the least PTX version and target: `7.0 sm_80`; `mod:7.8/sm_90` for a modifier or type of
the form (`v4.f64:8.8` for two together). A target with a letter (`sm_90a`) needs one of the targets
with that number or a higher one and a letter.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from tessera.ir.opcodes.targets import Needs, read_needs
from tessera.ir.ptx.types import is_type

GROUPS: dict[str, str] = {
    "integers": "u16/u32/u64/s16/s32/s64",
    "memory": "b8/b16/b32/b64/b128/u8/u16/u32/u64/s8/s16/s32/s64/f32/f64",
    "fp8": "e4m3/e5m2",
    "narrow": "e4m3/e5m2/e3m2/e2m3/e2m1",
    "sparse": "sp/sp::ordered_metadata",
    "packed": "e4m3x2/e5m2x2/e2m3x2/e3m2x2/e2m1x2/ue8m0x2/s2f6x2/ue5m3x2",
    "signed": "eq/ne/lt/le/gt/ge",
    "unsigned": "eq/ne/lt/le/gt/ge/lo/ls/hi/hs",
    "real": "eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan",
    "scope": "cta/cluster/gpu/sys",
    "atomic": "relaxed/acquire/release/acq_rel",
    "shared": "shared/shared::cta/shared::cluster",
    "inside": "local/shared/shared::cta/shared::cluster",
    "windows": "global/local/shared/shared::cta/shared::cluster/const/const[]/param/param::entry",
    "L1": "L1::evict_normal/L1::evict_unchanged/L1::evict_first/L1::evict_last/L1::no_allocate",
    "L2": "L2::evict_normal/L2::evict_first/L2::evict_last",
    "ahead": "L2::64B/L2::128B/L2::256B/L1::32B",
    "policy": "L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged",
    "half": "m16n16k16/m8n32k16/m32n8k16",
    "tile": "global/shared/shared::cta",
    "surface": "1d/2d/3d/a1d/a2d",
    "query": "width/height/depth/channel_data_type/channel_order/normalized_coords/array_size"
    "/num_mipmap_levels/num_samples/filter_mode/addr_mode_0/addr_mode_1/addr_mode_2"
    "/force_unnormalized_coords",
    "texture": "1d/2d/3d/a1d/a2d/cube/acube/2dms/a2dms",
}
"""Choices that several forms share."""


_GROUP = re.compile(r"@(\w+)")
_SLOT = re.compile(r"\[(?:const\[\]|[^\[\]])+\]|\([^()]+\)|\S+")
_WRITTEN = re.compile(r"const\[\]|[^\s/\[\]()]+")


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one of several modifiers; `since_sm_20` may stay empty in modules for sm_1x."""

    choices: frozenset[str]
    is_optional: bool
    since_sm_20: bool
    takes_type: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """One line of a table, for one of its names."""

    name: tuple[str, ...]
    slots: tuple[Slot, ...]
    is_open: bool
    operands: tuple[str, ...]
    needs: Needs
    needs_of: tuple[tuple[str, Needs], ...]


@cache
def _read_slot(text: str) -> Slot:
    bare = text[1:-1] if text[0] in "[(" else text
    for group in _GROUP.findall(bare):
        bare = bare.replace(f"@{group}", GROUPS[group])
    choices = frozenset(bare.split("/"))
    return Slot(choices, text[0] == "[", text[0] == "(", any(map(is_type, choices)))


def read_form(name: tuple[str, ...], line: str) -> Form:
    """The form that a line describes, for one of its names."""
    _, modifiers, *rest = (column.strip() for column in line.split("|"))
    operands, needs = (*rest, "", "")[:2]
    words = _SLOT.findall(modifiers)
    plain = " ".join(word for word in needs.split() if ":" not in word).replace(" ", "/")
    special = [word.rpartition(":") for word in needs.split() if ":" in word]
    return Form(
        name=name,
        slots=tuple(_read_slot(word) for word in words if word != "*"),
        is_open="*" in words,
        operands=tuple(operands.split()),
        needs=read_needs(plain),
        needs_of=tuple((modifier, read_needs(text)) for modifier, _, text in special),
    )


def written_lines(table: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The lines of a table, unparsed, each paired with every name that it applies to."""
    for line in re.sub(r"\n +", " ", table).splitlines():
        content = line.partition("#")[0].strip()
        for name in content.partition("|")[0].split():
            yield tuple(name.split(".")), content


def written_modifiers(line: str) -> Iterator[str]:
    """Every modifier and type that a line or a group writes out."""
    for word in _WRITTEN.findall(line.split("|")[1]):
        if word[0] == "@":
            yield from GROUPS[word[1:]].split("/")
        elif word != "*":
            yield word
