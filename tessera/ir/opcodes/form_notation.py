"""The notation of forms (modifiers, types and operands), and its reader.

Each file of `families` has its forms below its rows, in `FORMS`: one line per form, three columns,
and a fourth with what the form needs (`#` starts a comment):

    NAMES | MODIFIERS | OPERANDS | NEEDS

NAMES are opcodes; a dotted name stands for an opcode that starts with just these words, and the
longest name that an opcode starts with is the one whose forms count (`mul.wide` before `mul`).

MODIFIERS are slots. `a/b` is one of these, `[a/b]` at most one, `(a/b)` one, but none in modules
for sm_1x; `{a b}` stands for all of its slots or none, `{a; b c}` for `a`, for `b c` or none.
Types fill their slots from left to right; other modifiers stand in any order, as in ptxas. `*`
takes any further modifiers.

`@name` stands for the choices of a group (`GROUPS`). A line that starts with blanks continues the
one before it.

OPERANDS describe the operands from left to right.
    TYPE      a register of that type, or a constant of it
    D S T     the same, of the first, second or last type of the opcode
    W         twice as wide as T (`mul.wide`)
    ~ behind  a wider register will do as well (loads, stores, conversions)
    V         one T~ or, with `.v2` to `.v8`, as many
    M         as T, also a symbol, a special register or a vector that is as wide in all
    A         an address in the opcode's state space
    []        an address of one part; `[u32]` in a register of that type
    [parts]   an address of as many parts and coordinates as the modifiers say (`parts_fault`)
    C         a surface and the coordinates in it
    4*TYPE    a vector of four registers of that type (`4*D`: of the first type)
    +*TYPE    a vector of that type, of any length there is
    x32       a register of 32 bits, a predicate or a float, which ptxas does not tell apart
    shared    a variable in shared memory
    bare      what ptxas takes without brackets in the place of an address (`bare_fits`)
    v*TYPE    one of that type or, with `.v2` to `.v8`, a vector of as many
    i         a constant
    F*TYPE    a fragment: as many registers as the shape says (`operand_types.fragment_size`)
    sink      `_` alone
    label     a label
    .         as the word of the table says (`operand_types.USUAL`), like operands beyond the words
    _         anything
    -         no operand
`a/b` is one of two. Before a word, `!` asks for a register (or a list of them): constants are
refused; `_` lets the sink `_` stand too, `%` parts of a register (`%r1.b0`). Behind it, `&` lets a
pair with a predicate stand (`%r1|%p2`), and `&&` asks for one.

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

_DEPTHS = (8, 16, 32, 64, 256)
GROUPS: dict[str, str] = {
    "integers": "u16/u32/u64/s16/s32/s64",
    "plain": "b8/b16/b32/b64/u8/u16/u32/u64/s8/s16/s32/s64/f32/f64",
    "memory": "b8/b16/b32/b64/b128/u8/u16/u32/u64/s8/s16/s32/s64/f32/f64",
    "fp8": "e4m3/e5m2",
    "narrow": "e4m3/e5m2/e3m2/e2m3/e2m1",
    "scaled": "kind::mxf8f6f4/kind::mxf4/kind::mxf4nvf4",
    "sparse": "sp/sp::ordered_metadata",
    "packed": "e4m3x2/e5m2x2/e2m3x2/e3m2x2/e2m1x2/ue8m0x2/s2f6x2/ue5m3x2",
    "signed": "eq/ne/lt/le/gt/ge",
    "unsigned": "eq/ne/lt/le/gt/ge/lo/ls/hi/hs",
    "real": "eq/ne/lt/le/gt/ge/equ/neu/ltu/leu/gtu/geu/num/nan",
    "scope": "cta/cluster/gpu/sys",
    "sum": "acc::f16/acc::f32",
    "atomic": "relaxed/acquire/release/acq_rel",
    "shared": "shared/shared::cta/shared::cluster",
    "inside": "local/shared/shared::cta/shared::cluster",
    "windows": "global/local/shared/shared::cta/shared::cluster/const/const[]/param/param::entry",
    "L1": "L1::evict_normal/L1::evict_unchanged/L1::evict_first/L1::evict_last/L1::no_allocate",
    "L2": "L2::evict_normal/L2::evict_first/L2::evict_last",
    "ahead": "L2::64B/L2::128B/L2::256B/L1::32B",
    "policy": "L2::evict_last/L2::evict_normal/L2::evict_first/L2::evict_unchanged",
    "multicast": "multicast::cluster/multicast::cluster::16b/multicast::cluster::32b",
    "report": "mbarrier::report::disabled/mbarrier::report::validity::per_16bytes::8"
    "/mbarrier::report::validity::per_16bytes::80/mbarrier::report::validity::per_16bytes::8000"
    "/mbarrier::report::validity::per_16bytes::80000000"
    "/mbarrier::report::validity::per_element::ff",
    "tensor": "1d/2d/3d/4d/5d",
    "load": "tile/tile::gather4/im2col/im2col::w/im2col::w::128",
    "moved": "override::global_address",
    "resized": "override::global_dim/override::global_dim_stride",
    "field": "global_address/rank/box_dim/global_dim/global_stride/element_stride/elemtype"
    "/interleave_layout/swizzle_mode/swizzle_atomicity/fill_mode",
    "spaces": "global/shared/shared::cta/shared::cluster",
    "restricted": "sync_restrict::shared::cta/sync_restrict::shared::cluster"
    "/sync_restrict::shared::cluster::read",
    "ctas": "cta_group::1/cta_group::2",
    "lanes": "16x64b/16x128b/16x256b/32x32b",
    "many": "x1/x2/x4/x8/x16/x32/x64/x128",
    "kinds": "kind::f16/kind::tf32/kind::f8f6f4/kind::i8/kind::ti16",
    "collector": "collector::a::fill/collector::a::use/collector::a::lastuse/collector::a::discard",
    "collectors": "/".join(
        f"collector::b{buffer}::{use}"
        for buffer in range(4)
        for use in ("fill", "use", "lastuse", "discard")
    ),
    "ignored": "b8x16/b6x16_p32/b4x16_p64/b2",
    **{f"n64k{k}": "/".join(f"m64n{n}k{k}" for n in range(8, 257, 8)) for k in _DEPTHS},
    "half": "m16n16k16/m8n32k16/m32n8k16",
    "tile": "global/shared/shared::cta",
    "surface": "1d/2d/3d/a1d/a2d",
    "query": "width/height/depth/channel_data_type/channel_order/normalized_coords/array_size"
    "/num_mipmap_levels/num_samples/filter_mode/addr_mode_0/addr_mode_1/addr_mode_2"
    "/force_unnormalized_coords",
    "texture": "1d/2d/3d/a1d/a2d/cube/acube/2dms/a2dms",
}
"""Choices that several forms share."""


_IGNORED = "[b8x16/b6x16_p32/b4x16_p64] [b8x16/b6x16_p32/b4x16_p64] [b2]"
"""What `[@ignored]` stands for: two of the first three, and the last."""
_GROUP = re.compile(r"@(\w+)")
_SLOT = re.compile(r"\[(?:const\[\]|[^\[\]])+\]|\([^()]+\)|\S+")
_BRACES = re.compile(r"\{([^}]*)\}")
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
    words = _SLOT.findall(modifiers.replace("[@ignored]", _IGNORED))
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
            for variant in _variants(content):
                yield tuple(name.split(".")), variant


def _variants(content: str) -> Iterator[str]:
    """The line without the slots in braces, and with each alternative of them."""
    if (braces := _BRACES.search(content)) is None:
        yield content
        return
    for inner in ("", *braces[1].split(";")):
        yield content[: braces.start()] + inner + content[braces.end() :]


def written_modifiers(line: str) -> Iterator[str]:
    """Every modifier and type that a line or a group writes out."""
    for word in _WRITTEN.findall(line.split("|")[1]):
        if word[0] == "@":
            yield from GROUPS[word[1:]].split("/")
        elif word != "*":
            yield word
