"""Which names of a body are registers: the declarations in front of its statements.

In: the text of a body. Out: its leading declarations, and a token for each name that is a register
(`ir.verify_ptx.names.kind_token`). What a declaration declares is kept from module to module, by
its text.
"""

from __future__ import annotations

import functools
import itertools
import re
from typing import NamedTuple

from tessera.frontend.ptx import values
from tessera.frontend.ptx.declarations import DECLARATION, declare
from tessera.frontend.ptx.terminals import BLANK
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import Declaration
from tessera.ir.verify_ptx.names import TOKEN, kind_token, variable_kind

SHORT = 2_000
"""Texts with no more characters are remembered."""

FEW = 64
"""The names of ranges with no more registers are remembered."""

_DIGITS = "0123456789"
_NUMBERED: dict[str, list[str]] = {}
_DECLARATION = re.compile(rf"{BLANK}({DECLARATION}){BLANK};")


class Declared(NamedTuple):
    """What a statement declares: names, the tokens of registers, the sizes of ranges.

    The names of ranges are among the tokens, but for those of `many` registers.
    """

    declaration: Declaration
    names: tuple[str, ...]
    single: dict[str, str]
    numbered: dict[str, str]
    ranges: dict[str, tuple[int, str]]
    many: dict[str, tuple[int, str]]


def forget() -> None:
    """Forget what other modules have left here."""
    _read.cache_clear()


def leading(text: str) -> tuple[list[Declared], int]:
    """The declarations that a body or block begins with, and where they end."""
    declarations: list[Declared] = []
    position = 0
    while (end := text.find(";", position)) >= 0:
        declared = read_declaration(text[position:end])
        if declared is None:
            break
        declarations.append(declared)
        position = end + 1
    return declarations, position


def read_declaration(piece: str) -> Declared | None:
    """What a piece of a body, up to its `;`, declares, if it is an ordinary declaration."""
    return (_read if len(piece) <= SHORT else _read.__wrapped__)(piece)


@functools.lru_cache(maxsize=4_000)
def _read(piece: str) -> Declared | None:
    match = _DECLARATION.fullmatch(f"{piece};")
    if match is None:
        return None
    variables = declare(match[1], 0)
    ranges = {v.name: (v.count, _token(v)) for v in variables if v.count is not None}
    numbered: dict[str, str] = {}
    for prefix, (count, token) in ranges.items():
        if count <= FEW:
            numbered.update(dict.fromkeys(_numbered(prefix, count), token))
    return Declared(
        Declaration(tuple(variables)),
        tuple([variable.name for variable in variables]),
        {v.name: _token(v) for v in variables if v.space == "reg" and v.count is None},
        numbered,
        ranges,
        {name: (count, token) for name, (count, token) in ranges.items() if count > FEW},
    )


def repeat(declarations: list[Declared]) -> bool:
    """Whether a name is declared twice, which is a fault."""
    names = [name for declared in declarations for name in declared.names]
    return len(set(names)) < len(names)


class Registers(dict[str, str]):
    """The tokens of registers by name; other names stand for themselves."""

    def __init__(self, declarations: list[Declared], length: int) -> None:
        self.ranges: dict[str, tuple[int, str]] = {}
        self.are_unclear = repeat(declarations)
        for declared in declarations:
            self.update(declared.numbered)
            self.ranges.update(declared.ranges)
            for name, (count, token) in declared.many.items():
                if count * 16 < length:
                    self.update(zip(_numbered(name, count), itertools.repeat(token)))
        # A name with a number could mean two things.
        self.are_unclear |= any(name[-1] in _DIGITS for name in self.ranges)
        for declared in declarations:
            self.update(declared.single)

    def __missing__(self, name: str) -> str:
        prefix = name.rstrip(_DIGITS)
        count, token = self.ranges.get(prefix, (0, ""))
        digits = name[len(prefix) :]
        is_one = count and digits and len(digits) <= 10 and int(digits) < count
        self.are_unclear |= name.startswith(TOKEN)
        self[name] = known = token if is_one else name
        return known


def _numbered(prefix: str, count: int) -> list[str]:
    """The names of a range; those of common ranges are the same objects each time."""
    names = _NUMBERED.get(prefix, [])
    if len(names) < count:
        names = [*names, *map(prefix.__add__, map(str, range(len(names), count)))]
        if count <= values.MANY and (prefix in _NUMBERED or len(_NUMBERED) < 50):
            _NUMBERED[prefix] = names
    return names[:count]


def _token(variable: ptx.Variable) -> str:
    return kind_token(variable_kind(variable))
