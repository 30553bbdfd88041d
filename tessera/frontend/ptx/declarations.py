"""Plain declarations and parameter lists matched in one piece: another fast path.

`DECLARATION` (without its `;`) and `PARAMETER_LIST` match declarations with a known type, at most
an alignment, a vector size and `.ptr`, and no initialiser, attribute or comment. Everything else
is read token by token by the rules of `grammars/ptx.lark`, to the same records.
"""

from __future__ import annotations

import functools
import re

from tessera.frontend.ptx.constants import Numbers, integer_constant, strings_in
from tessera.frontend.ptx.terminals import (
    BLANK,
    BLANKS,
    INTEGER,
    LINKAGE,
    NAME,
    NUMBER,
    SINK,
    SPACE,
    STRING,
    TERMINALS,
    listed,
)
from tessera.ir.ptx import syntax as ptx

TYPES = frozenset(
    """b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 f64
    pred texref samplerref surfref""".split()  # noqa: SIM905
)
OPAQUE_TYPES = frozenset({"texref", "samplerref", "surfref"})
VECTORS = {"v2": 2, "v4": 4, "v8": 8}

_TYPE = rf"\.(?:{'|'.join(sorted(TYPES))})(?![A-Za-z0-9_:])"
_VECTOR = r"\.v[248](?![A-Za-z0-9_:])"
_ALIGN = rf"\.align[ \t]++{INTEGER}"
_QUALIFIERS = rf"{BLANK}(?:{_ALIGN}{BLANK})?(?:{_VECTOR}{BLANK})?{_TYPE}"
_RANGE = rf"{NAME}(?:{BLANK}<{BLANK}{INTEGER}{BLANK}>)?"
_SIZES = rf"(?:\[{BLANK}{INTEGER}{BLANK}\])*+"
_ARRAY = rf"{NAME}{_SIZES}"
_REGISTERS = rf"(?={SPACE})\.reg{_QUALIFIERS}{BLANK}{listed(_RANGE, ';')}"
_MEMORY = rf"(?={SPACE})\.(?:param|local|shared){_QUALIFIERS}{BLANK}{listed(_ARRAY, ';')}"
DECLARATION = rf"(?:{_REGISTERS}|{_MEMORY})(?=;)"

_SYMBOL = rf"(?:generic{BLANK}\({BLANK}{NAME}{BLANK}\)|{NAME})(?:{BLANK}\+{BLANK}{INTEGER})?"
_VALUE = rf"(?:{NUMBER}|{_SYMBOL})"
_TABLE = rf"\{{{BLANK}{listed(_VALUE, '}')}\}}"
_MANAGED = rf"\.attribute{BLANK}\({BLANK}\.managed{BLANK}\)"

# One variable at module scope, with its `;` and its initial value or table of values, if any.
MODULE_VARIABLE = (
    rf"(?:({LINKAGE}){BLANK})?(?={SPACE})\.(global|const|shared)(?![\w$:])"
    rf"{BLANK}({_MANAGED}{BLANK})?(?:\.align[ \t]++({INTEGER}){BLANK})?"
    rf"(?:\.v([248])(?![A-Za-z0-9_:]){BLANK})?"
    rf"\.({'|'.join(sorted(TYPES))})(?![A-Za-z0-9_:]){BLANK}({NAME})"
    rf"((?:\[{BLANK}(?:{INTEGER})?{BLANK}\])*+){BLANK}(?:={BLANK}({_VALUE}|{_TABLE}){BLANK})?;"
)
_NAMED = re.compile(r"(?<![\w.])[A-Za-z_$%]", re.ASCII)
_SIZE = re.compile(rf"\[{BLANK}({INTEGER})?{BLANK}\]")

_OPEN_SIZES = rf"(?:\[{BLANK}(?:{INTEGER}{BLANK})?\])*+"


def _parameter_expression(capture: str) -> str:
    align = rf"\.align[ \t]++({capture}{INTEGER})"
    space = rf"(?:{BLANK}\.({capture}global|const|local|shared))?"
    pointer = rf"({capture}\.ptr{space}(?:{BLANK}{align})?(?![A-Za-z0-9_:]){BLANK})?"
    return (
        rf"(?={SPACE})\.({capture}param|reg){BLANK}(?:{align}{BLANK})?"
        rf"(?:\.v({capture}[248])(?![A-Za-z0-9_:]){BLANK})?"
        rf"\.({capture}{'|'.join(sorted(TYPES))})(?![A-Za-z0-9_:]){BLANK}{pointer}"
        rf"({capture}{NAME}|{SINK})({capture}{_OPEN_SIZES})"
    )


PARAMETER_LIST = rf"\({BLANK}{listed(_parameter_expression('?:'), ')')}\)"

# What may stand behind the parameters of a prototype, and of a function, besides pragmas.
FLAGS = rf"\.(?:noreturn|abi_preserve(?:_control)?(?![\w$:]){BLANK}{INTEGER})(?![\w$:])"
DIRECTIVES = (
    r"\.(?:maxnreg|maxntid|reqntid|minnctapersm|maxnctapersm|reqnctapercluster|maxclusterrank)"
    rf"(?![\w$:]){BLANK}{INTEGER}(?:{BLANK},{BLANK}{INTEGER})*+"
    rf"|\.(?:explicitcluster|blocksareclusters)(?![\w$:])|{FLAGS}"
)
PRAGMA = rf"{TERMINALS['PRAGMA']}{BLANK}{STRING}(?:{BLANK},{BLANK}{STRING})*+"
_DIRECTIVE = re.compile(rf"{DIRECTIVES}|({PRAGMA})")
_WORD, _INTEGER = re.compile(r"\w++"), re.compile(INTEGER)

_PARTS = re.compile(
    rf"\.(reg|param|local|shared){BLANK}(?:\.align[ \t]++({INTEGER}){BLANK})?"
    rf"(?:\.v([248]){BLANK})?\.([a-z0-9]++){BLANK}"
)
_DECLARATOR = re.compile(rf"({NAME})(?:{BLANK}<{BLANK}({INTEGER}){BLANK}>)?((?:\[[^]]*+\])*+)")
_ENTRY = re.compile(rf"[(,]{BLANK}{_parameter_expression('')}{BLANK}(?=[,)])")
_EMPTY = re.compile(rf"\({BLANK}\)")


def declare(text: str, at: int) -> list[ptx.Variable]:
    """The variables of one declaration, which starts at an offset."""
    parts = _PARTS.match(text)
    assert parts is not None, "the text was matched by DECLARATION"
    space, align, vector, kind = parts.groups()
    return [
        ptx.Variable(
            space=space,
            type=kind,
            name=name,
            at=at,
            align=_natural(align) if align else None,
            vector=int(vector) if vector else None,
            count=_natural(count) if count else None,
            dimensions=_dimensions(sizes) if sizes else (),
        )
        for name, count, sizes in _DECLARATOR.findall(text, parts.end())
    ]


def module_variable(match: re.Match[str], numbers: Numbers) -> list[ptx.Variable]:
    """The variable that `MODULE_VARIABLE` matched."""
    linkage, space, managed, align, vector, kind, name, sizes, initializer = match.groups()
    return [
        ptx.Variable(
            space=space,
            type=kind,
            name=name,
            at=match.start(),
            linkage=linkage[1:] if linkage else None,
            align=_natural(align) if align else None,
            vector=int(vector) if vector else None,
            dimensions=_dimensions(sizes) if sizes else (),
            initializer=_initial(initializer, numbers) if initializer else None,
            attributes=(ptx.Attribute(name="managed", values=()),) if managed else (),
        )
    ]


def _initial(text: str, numbers: Numbers) -> ptx.Initializer:
    if text[0] != "{":
        return _value(text, numbers)
    if _NAMED.search(text) is None:
        return numbers.table(text)
    return ptx.InitializerList(tuple(_value(word, numbers) for word in text[1:-1].split(",")))


def _value(text: str, numbers: Numbers) -> ptx.Constant:
    """A number, or the address of a variable."""
    text = text.strip(BLANKS)
    if _NAMED.match(text) is None:
        return numbers.number(text)
    symbol, plus, displacement = text.partition("+")
    name, bracket, inside = symbol.partition("(")
    base: ptx.Constant = ptx.Name(name.strip(BLANKS))
    if bracket:
        base = ptx.Generic(ptx.Name(inside.partition(")")[0].strip(BLANKS)))
    return ptx.Binary("+", base, integer_constant(displacement.strip(BLANKS))) if plus else base


@functools.lru_cache(maxsize=1_000)
def read_directives(text: str) -> tuple[ptx.Directive, ...]:
    """Directives of a function, without a comment between them."""
    directives: list[ptx.Directive] = []
    for match in _DIRECTIVE.finditer(text):
        if match[1] is not None:
            directives.append(ptx.Directive("pragma", strings_in(match[1])))
            continue
        name = _WORD.match(match[0], 1)
        assert name is not None
        numbers = _INTEGER.findall(match[0], name.end())
        directives.append(ptx.Directive(name[0], tuple(map(integer_constant, numbers))))
    return tuple(directives)


def declare_parameters(text: str, base: int) -> tuple[ptx.Variable, ...]:
    """The parameters of a list that was matched and starts at an offset."""
    return tuple([_parameter(match, base) for match in _ENTRY.finditer(text)])


def read_parameters(text: str | None, base: int) -> tuple[ptx.Variable, ...] | None:
    """The parameters of what stands in parentheses at an offset; None if that is unusual."""
    if text is None or _EMPTY.fullmatch(text):
        return ()
    entries = list(iter(_ENTRY.scanner(text).match, None))  # type: ignore[attr-defined]
    if not entries or entries[-1].end() < len(text) - 1:
        return None
    return tuple([_parameter(match, base) for match in entries])


def _parameter(match: re.Match[str], base: int) -> ptx.Variable:
    space, align, vector, kind, pointer, pointer_space, pointer_align, name, sizes = match.groups()
    return ptx.Variable(
        space=space,
        type=kind,
        name=name,
        at=base + match.start(1) - 1,
        align=_natural(align) if align else None,
        vector=int(vector) if vector else None,
        dimensions=_dimensions(sizes) if sizes else (),
        pointer_space=(pointer_space or "") if pointer else None,
        pointer_align=_natural(pointer_align) if pointer_align else None,
    )


@functools.lru_cache(maxsize=10_000)
def _dimensions(text: str) -> tuple[int | None, ...]:
    """`[4][]`."""
    return tuple(_natural(size) if size else None for size in _SIZE.findall(text))


@functools.lru_cache(maxsize=10_000)
def _natural(text: str) -> int:
    return integer_constant(text).value
