"""The operands that a type accepts: the rules of ptxas, which are those of the ISA and a few more.

An operand is given as a word: the type of a register (`b32`, `v4.f32`), `#i`, `#f` or `#d` for a
constant (an integer, a float of 32 or 64 bits), `%u32` for a special register, `=global` for a
variable, `:` for a label, `()` for a function, `!pred` for a negated predicate, `_` for a sink,
`{b32,b32}` for a vector, `a|b` for a pair, `[b64]` for an address, `[**{b32}]` for an address of
three parts with its last part, `?` for an operand that is not checked.

Source: PTX ISA 9.0, sections 6.4 (operands) and 9.4 (type information); measured with ptxas 13.4.
"""

from __future__ import annotations

import re
from functools import cache

from tessera.ir.ptx.types import VECTOR_COUNTS, is_float, is_type, state_space, type_bits

_WGMMA = re.compile(r"m64n(\d+)k\d+")
UNTOLD = "x32"  # a register of 32 bits, a predicate or a float: ptxas does not tell them apart
_UNTYPED = "f16x2"  # ptxas takes a register of this type for any of 32 bits, and for a predicate
_GENERIC = frozenset({"global", "shared", "local"})
_LEAST_COORDINATES = {"1d": 1, "a1d": 2, "2d": 2, "3d": 3, "a2d": 3}
USUAL = {
    **dict.fromkeys(("bar", "threads", "count", "stride", "desc"), "u32"),
    **dict.fromkeys(("policy", "smem", "desc2"), "u64"),
    **{"q": "pred", "p": "!pred", "i": "i", "srcsize": "u32/pred"},
    **dict.fromkeys(("d", "x", "a", "b", "c", "e", "s", "mask", "n"), "."),
    **dict.fromkeys(("[a]", "[d]", "[mbar]", "[done]"), "[]"),
    **dict.fromkeys(("[tmem]", "[acc]", "[lut]"), "[u32]"),
    **{"[map]": "[parts]", "[remote]": "[parts]", "off": "offsets"},
    **{"f": "function", "proto": "targets", "ctas": "ctas", "phase": "phase"},
    **{"r": "!b8", "bytemask": "u16/+*u16", "bare": "bare"},
}
"""The words of forms for operands that the form of an opcode leaves out, by the table's word."""
_ADDED_PARTS = {
    **dict.fromkeys(("counted::bytes", "fabric", "mbarrier::report::fabric"), 1),
    **{"override::global_address": 1, "override::global_dim": 1, "override::global_dim_stride": 3},
}
_FIVE = frozenset({"tile::gather4", "tile::scatter4"})  # a column and four rows
_DIMENSIONS = {f"{count}d": count for count in range(1, 6)}
# Vectors of these take integers too.
_HALVES = frozenset({"f16", "bf16", "f16x2", "bf16x2", "f64"})
_SHORT = frozenset({"%tid", "%ntid", "%ctaid", "%nctaid"})  # 16 bits wide before PTX 2.0
WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64", "u64": "b128", "s64": "b128"}


def is_integer(type_name: str) -> bool:
    """Whether a type is a signed or unsigned integer of one value."""
    return type_name[0] in "us" and type_name[1:].isdigit()


@cache
def register_fits(register: str, wanted: str, wider: bool) -> bool:
    """Whether a register of one type can stand where another type is wanted."""
    if register == wanted:
        return True
    if register == _UNTYPED:
        return wanted == "pred" or type_bits(wanted) <= 32
    if "pred" in (register, wanted) or register[0] == "v":
        return False
    have, want = type_bits(register), type_bits(wanted)
    if have < want or (have > want and not wider):
        return False
    if register[0] == "b" and register[1:].isdigit():
        return True
    if wanted[0] == "b" and wanted[1:].isdigit():
        return True
    if is_float(wanted):
        return False
    return is_integer(register) if is_integer(wanted) else have == want


@cache
def constant_fits(constant: str, wanted: str) -> bool:
    """Whether a constant can stand where a type is wanted."""
    if constant == "#i":
        return wanted == "pred" or not is_float(wanted)
    same_bits = "b32" if constant == "#f" else "b64"
    return wanted in ("f32", "f64", same_bits)


def value_fits(operand: str, wanted: str, *, wider: bool, takes_special: bool) -> bool:
    """Whether an operand can stand where a value of a type is wanted."""
    if operand in ("?", "()"):
        return True
    if wanted == UNTOLD:
        return operand == "#f" or operand.removeprefix("!") == "pred" or _is_word(operand)
    match operand[0]:
        case "#":
            return constant_fits(operand, wanted)
        case "!":
            return wanted == "pred" and operand in ("!pred", "!?", f"!{_UNTYPED}")
        case "%":
            kind = operand.partition(":")[0][1:]
            return takes_special and register_fits(kind, wanted, wider)
        case "{" | "[" | "=" | ":" | "(" | "_" | "-":
            return False
    if "|" in operand or "." in operand:
        return False
    return register_fits(operand, wanted, wider)


def _is_word(operand: str) -> bool:
    return is_type(operand) and type_bits(operand) == 32


def is_value(operand: str) -> bool:
    """Whether an operand is a register, a constant or a vector, of any type."""
    if operand[0] == "{":
        return True
    return operand[0] not in "[%=:(_-" and "|" not in operand and "." not in operand


def pair_fits(operand: str, *, is_needed: bool) -> str | None:
    """The first half of a pair with a predicate, or an operand that is no pair; None if neither."""
    first, bar, second = operand.partition("|")
    if not bar:
        return None if is_needed and operand != "?" else operand
    return ("?" if first == "_" else first) if second in ("pred", "_", "?", _UNTYPED) else None


def moved_fits(operand: str, wanted: str, modifiers: tuple[str, ...]) -> bool:
    """Whether an operand can stand in a `mov` of a type."""
    if any(modifier in VECTOR_COUNTS for modifier in modifiers) or operand == "":
        return True
    match operand[0]:
        case "=":
            return not is_float(wanted) and wanted != "pred"
        case "{":
            return wanted[0] == "b" and _packed_fits(operand[1:-1].split(","), wanted)
        case "%" if operand.partition(":")[2] in _SHORT and wanted in ("u16", "b16", "s16"):
            return True
        case "%" if operand.endswith(":%gridid"):  # 32 bits wide before PTX 3.0
            return not is_float(wanted)
        case "v":
            count, _, element = operand[1:].partition(".")
            return _packed_fits([element] * int(count), wanted)
    return value_fits(operand, wanted, wider=False, takes_special=True)


def _packed_fits(elements: list[str], wanted: str) -> bool:
    if len(elements) not in (1, 2, 4) or any(e[0] in "?#(" for e in elements):
        return len(elements) in (1, 2, 4)
    kinds = [e for e in elements if e != "_"]
    if not all(kind[0] in "bsuf" and "." not in kind and kind != "pred" for kind in kinds):
        return False
    return all(type_bits(kind) * len(elements) == type_bits(wanted) for kind in kinds)


def memory_value_fits(operand: str, wanted: str, modifiers: tuple[str, ...]) -> bool:
    """Whether an operand can be the destination of a load or the source of a store."""
    count = next((VECTOR_COUNTS[m] for m in modifiers if m in VECTOR_COUNTS), None)
    if count is not None and (wanted == "b128" or count * type_bits(wanted) > _largest(modifiers)):
        return False
    if operand[0] == "{":
        elements = operand[1:-1].split(",")
        if len(elements) != (count or 1):
            return False
        fits = all(
            e == "_" or value_fits(e, wanted, wider=True, takes_special=False) for e in elements
        )
        return fits and _alike([e for e in elements if e[0] not in "?_#("])
    if count is not None:
        return operand == "?" or operand.startswith(f"v{count}.")
    return value_fits(operand, wanted, wider=True, takes_special=False)


def _largest(modifiers: tuple[str, ...]) -> int:
    """The bits of the largest vector; none has parts of 128 bits."""
    spaces = {space for space in map(state_space, modifiers) if space is not None}
    return 256 if spaces <= {"global"} else 128


def _alike(kinds: list[str]) -> bool:
    """Whether the registers of a vector have one width and do not mix floats and integers."""
    widths = {type_bits(kind) for kind in kinds}
    letters = {"f" if is_float(kind) else "i" for kind in kinds if kind[0] != "b"}
    return len(widths) <= 1 and len(letters) <= 1


def address_fault(operand: str, modifiers: tuple[str, ...], *, is_store: bool) -> str | None:
    """What is wrong with an address operand; None if nothing is."""
    inner = operand[1:-1] if operand[0] == "[" else operand
    if operand[0] not in "[=?" or inner[0] == "*":
        return "an address in brackets belongs here" if inner[0] != "*" else "it has one part"
    if inner[0] == "?":
        return None
    space = next((s for s in map(state_space, modifiers) if s is not None), None)
    match inner[0]:
        case "=":
            return _variable_fault(inner[1:], space, is_store)
        case "#":
            return "the displacement is not an integer" if inner != "#i" else None
        case ":" | "(":
            return "this is no variable and no register"
    if inner == "pred" or inner == "b128" or inner[0] == "v" or is_float(inner):
        return None if inner == _UNTYPED else f"a register of type `.{inner}` is no address"
    return None


def bare_fits(operand: str, name: str, modifiers: tuple[str, ...]) -> bool:
    """Whether ptxas takes an operand without brackets where an address belongs."""
    if name == "red":
        return operand == "_"
    kind, is_shared = operand.removeprefix("!"), operand.startswith("=shared")
    if name == "fabric":
        return is_shared or (is_type(kind) and type_bits(kind) in (32, 64) and kind != "f32")
    if "tensor" in modifiers:
        return is_shared or operand in ("#f", "#d") or is_type(kind)
    if operand == "#i" or (is_type(kind) and type_bits(kind) == 64 and not is_float(kind)):
        return True  # as a cache policy or a mask
    if "reduce" in modifiers:
        return False
    is_half = value_fits(operand, "b16", wider=False, takes_special=False)
    return is_half or any_vector_fits(operand, "b16")


def dimensions(modifiers: tuple[str, ...]) -> int:
    """How many dimensions a tensor has; none if no modifier says so."""
    return next((_DIMENSIONS[m] for m in modifiers if m in _DIMENSIONS), 0)


def part_counts(modifiers: tuple[str, ...]) -> tuple[int, int]:
    """How many parts an address of several has, and how many coordinates the last one is."""
    count = dimensions(modifiers)
    added = sum(_ADDED_PARTS.get(modifier, 0) for modifier in modifiers)
    count = count if _FIVE.isdisjoint(modifiers) else 5
    return 1 + (count > 0) + added, count


def parts_fault(operand: str, modifiers: tuple[str, ...]) -> str | None:
    """What is wrong with a tensor map or an endpoint and what follows it; None if nothing is."""
    if operand[0] != "[":
        return None if operand == "?" else "an address in brackets belongs here"
    count, parts = dimensions(modifiers), operand.count("*") + 1
    wanted, coordinates = part_counts(modifiers)
    if parts != wanted:
        return f"it has {wanted} parts, not {parts}"
    if coordinates and not vector_fits(operand.strip("[*]"), coordinates, "b32"):
        return f"its last part is a vector of {coordinates} coordinates"
    if count != 2 and not _FIVE.isdisjoint(modifiers) and "L2::evict_normal" not in modifiers:
        return "only tensors of 2 dimensions are gathered and scattered"
    of_images = any(modifier.startswith("im2col") for modifier in modifiers)
    if of_images and count < 3:
        return "a tensor of images has at least 3 dimensions"
    if "override::global_dim" in modifiers and count != 1:
        return "`.override::global_dim` is for tensors of one dimension"
    if "override::global_dim_stride" in modifiers and (count == 1 or of_images):
        return "`.override::global_dim_stride` is for tiles of two dimensions and more"
    return None


def named_type(word: str, modifiers: tuple[str, ...]) -> str:
    """The type that modifiers give an operand (`ctas`, `phase`), or the word itself."""
    if word == "ctas":
        return "u32" if "multicast::cluster::32b" in modifiers else "u16"
    if word == "phase":
        return "u32" if "parity" in modifiers else "b64"
    return word


def offset_count(modifiers: tuple[str, ...]) -> int:
    """How many offsets an access to a tensor of images has."""
    return dimensions(modifiers) - 2 if "im2col" in modifiers else 2


def surface_fault(operand: str, modifiers: tuple[str, ...]) -> str | None:
    """What is wrong with the coordinates of a surface; None if nothing is."""
    if not operand.startswith("[*{"):
        return None
    coordinates = operand[3:-2].split(",")
    # ptxas treats a vector with an untyped register as untyped.
    if all(is_type(word) and is_float(word) and word != _UNTYPED for word in coordinates):
        return "coordinates of a surface are integers"
    least = max((_LEAST_COORDINATES.get(modifier, 0) for modifier in modifiers), default=0)
    return f"it has at least {least} coordinates" if len(coordinates) < least else None


def _variable_fault(place: str, space: str | None, is_store: bool) -> str | None:
    variable, _, kind = place.partition(":")
    base = None if space is None else space.partition("::")[0]
    if variable == "opaque":
        return "this is a texture, sampler or surface"
    if base is None and variable not in _GENERIC:
        return f"the variable is in `.{variable}`, and no state space is named"
    if base is not None and base != variable:
        return f"the variable is in `.{variable}`, not in `.{space}`"
    if is_store and kind == "in":
        return "a parameter cannot be written"
    return None


def vector_fits(operand: str, count: int, wanted: str) -> bool:
    """Whether an operand is a vector of `count` registers of a type."""
    if operand[0] == "{":
        elements = operand[1:-1].split(",")
        if wanted == UNTOLD and {"_", "#f"}.intersection(elements):
            return False
        return len(elements) == count and all(
            e == "_"
            or value_fits(e, wanted, wider=False, takes_special=False)
            or (e == "#i" and wanted in _HALVES)
            for e in elements
        )
    return operand == "?" or operand.startswith(f"v{count}.")


def any_vector_fits(operand: str, wanted: str) -> bool:
    """Whether an operand is a vector of a type, of any length there is."""
    count = operand.count(",") + 1
    lengths = (1, 2, 4, 8) if wanted == UNTOLD else (1, 2, 4)
    return operand[0] == "{" and count in lengths and vector_fits(operand, count, wanted)


def vector_length(written: str, modifiers: tuple[str, ...]) -> int | None:
    """How many registers a vector of a form has (`4`, `F` or `v`); None for one without braces."""
    if written == "v":
        return next((VECTOR_COUNTS[m] for m in modifiers if m in VECTOR_COUNTS), None)
    return fragment_size(modifiers) if written == "F" else int(written)


def fragment_size(modifiers: tuple[str, ...]) -> int:
    """How many registers the fragment of a tcgen05 load or store or of a wgmma result has."""
    shape = next(filter(None, map(_WGMMA.fullmatch, modifiers)), None)
    if shape is not None:
        return int(shape[1]) // (4 if modifiers[modifiers.index(shape[0]) + 1] == "f16" else 2)
    count = next((int(m[1:]) for m in modifiers if m[0] == "x" and m[1:].isdigit()), 0)
    return count * (4 if "16x256b" in modifiers else 2 if "16x128b" in modifiers else 1)


def wide_type(type_name: str) -> str:
    """The type of a product of two values of a type."""
    return WIDER[type_name]
