"""Whether a body that is still text has no faults, by its outline.

In: the outline of a body (`ir.ptx.unread`), and a verifier with the names of the module and of the
function's head. Out: true if every rule holds. Nothing is reported: where this gives up, the
verifier looks at the statements one by one, with their places. Instructions in which every name is
a token are remembered across modules, by version and target; common ones are known from the start
(`known_statements`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import filterfalse
from typing import NamedTuple, Protocol

from tessera.ir.opcodes.targets import Version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import NO_STATEMENT, BodyOutline, Declaration, UnreadBody
from tessera.ir.verify_ptx.declarations import call_faults, variable_fault
from tessera.ir.verify_ptx.instruction import Ground, form_fault, instruction_fault
from tessera.ir.verify_ptx.known_statements import KnownStatements, operands_of
from tessera.ir.verify_ptx.names import (
    KIND_OF_TOKEN,
    TOKEN,
    NameScope,
    kind_token,
    names_in,
    operand_word,
    special_kind,
    variable_kind,
)

MANY_TEXTS = 100_000


class _AddedNames(NamedTuple):
    """What a good declaration adds to a scope."""

    names: dict[str, int]
    kinds: dict[str, str]
    ranges: dict[str, tuple[int, int, str]]
    numbered: tuple[str, ...]


# Kept from module to module.
GOOD_TEXTS: dict[Ground, tuple[set[str], KnownStatements]] = {}
_GOOD_CALLS: set[tuple[str, tuple[object, ...] | None]] = set()
_GOOD_DECLARATIONS: dict[Version, dict[Declaration, _AddedNames]] = {}
_CALL = re.compile(
    r"(?:@\S+\s+)?call(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?([\w$%]+)"
    r"\s*(?:,\s*\([^()]*\)\s*)?(?:,\s*[\w$%]+\s*)?"
)


def forget() -> None:
    """Forget what is known of statements: the rules or the table have changed."""
    GOOD_TEXTS.clear()
    _GOOD_CALLS.clear()
    _GOOD_DECLARATIONS.clear()
    operands_of.cache_clear()


def good_texts(ground: Ground) -> tuple[set[str], KnownStatements]:
    """The statements that are known to be good for a version and target."""
    known = GOOD_TEXTS.get(ground)
    if known is None:
        known = GOOD_TEXTS[ground] = set(), KnownStatements(ground.version, ground.target)
    if len(known[0]) > MANY_TEXTS:
        known[0].clear()
    return known


class _Tokens(dict[str, str]):
    """Names in scope by their tokens; other names stand for themselves."""

    def __init__(self, kind: Callable[[str], str | None]) -> None:
        self.kind = kind

    def __missing__(self, name: str) -> str:
        kind = self.kind(name)
        self[name] = known = name if kind is None else kind_token(kind)
        return known


def _kind_of(name: str) -> str | None:
    """The word for a token or a special register; None for any other name."""
    kind = KIND_OF_TOKEN.get(name) or special_kind(name)
    if kind is not None:
        KIND_OF_TOKEN[name] = kind
    return kind


class TrialVerifier(Protocol):
    """What is known of a module up to a function."""

    module: ptx.Module
    ground: Ground
    good_texts: tuple[set[str], KnownStatements]
    is_new: bool
    scopes: list[NameScope]
    functions: dict[str, ptx.Function]

    def declared_kind(self, name: str) -> str | None:
        """The word for a name in scope that something declares."""


def accepts(
    trial: TrialVerifier, unread: UnreadBody, outline: BodyOutline, scope: NameScope
) -> bool:
    """Whether a body or block has no faults; nothing is reported."""
    labels = outline.labels
    if scope.ranges or not scope.names.keys().isdisjoint(labels):
        return False
    scope.labels.update(dict.fromkeys(labels, 0))
    trial.scopes.append(scope)
    if not trial.functions.keys() >= outline.targets:
        return False
    if not _declares(scope, (*outline.declarations, *outline.late), trial.ground.version):
        return False
    good, table = trial.good_texts
    unseen = set(outline.pieces).difference(good)
    unseen.discard(NO_STATEMENT)
    if unseen:
        if not all(_accepts_rare(trial, unread, text) for text in outline.rare & unseen):
            return False
        new = list(unseen - outline.rare)
        tokens = _Tokens(trial.declared_kind)
        tokens.update(zip(scope.kinds, map(kind_token, scope.kinds.values()), strict=True))
        renamed = unread.rename(new, tokens)
        if unknown := list(filterfalse(good.__contains__, renamed)):
            good.update(table.known(unknown))
            for text in unknown:
                if text not in good:
                    if not accepts_text(trial, unread.instruction(text)):
                        return False
                    good.add(text)
        for text, canonical in zip(new, renamed, strict=True):
            if "call" in text and not _accepts_call(trial, unread, text, canonical):
                return False
    for block, _ in outline.blocks:
        if not accepts(trial, unread, block, NameScope()):
            return False
    trial.scopes.pop()
    return True


def _declares(scope: NameScope, declarations: Iterable[Declaration], version: Version) -> bool:
    """Whether declarations have no faults; their names are in the scope then."""
    good = _GOOD_DECLARATIONS.setdefault(version, {})
    for declaration in declarations:
        added = good.get(declaration)
        if added is None:
            if len(good) > MANY_TEXTS:
                good.clear()
            added = _added(declaration, version)
            if added is None:
                return False
            good[declaration] = added
        names, kinds, ranges, numbered = added
        if names:
            if not scope.names.keys().isdisjoint(names):
                return False
            if numbered and scope.ranges and any(map(scope.ranged, numbered)):
                return False
            scope.names.update(names)
            scope.kinds.update(kinds)
        if ranges:
            if not scope.ranges.keys().isdisjoint(ranges):
                return False
            scope.ranges.update(ranges)
    return True


def _added(declaration: Declaration, version: Version) -> _AddedNames | None:
    """What a declaration adds to a scope; None if it has a fault."""
    alone = NameScope()
    for variable in declaration.variables:
        if variable_fault(variable, "body", version) is not None:
            return None
        if variable.count is None and alone.declared(variable.name) is not None:
            return None
        alone.add(variable, variable_kind(variable))
    numbered = tuple([name for name in alone.names if name[-1].isdigit()])
    return _AddedNames(alone.names, alone.kinds, alone.ranges, numbered)


def _accepts_call(trial: TrialVerifier, unread: UnreadBody, text: str, canonical: str) -> bool:
    """Whether a call fits what it calls; other instructions do."""
    if not text.startswith(("call", "@")):
        return True
    plain = _CALL.fullmatch(text)
    function = trial.functions.get(plain[1]) if plain else None
    key = (canonical, None if function is None else _signature(function)) if plain else None
    if key in _GOOD_CALLS:
        return True
    instruction = unread.instruction(text)
    if instruction.opcode.name != "call":
        return True
    kinds = _kinds(trial, instruction)
    if kinds is None:
        return False
    if next(call_faults(trial.module, instruction, trial.functions, kinds), None) is not None:
        return False
    if key is not None:
        if len(_GOOD_CALLS) > MANY_TEXTS:
            _GOOD_CALLS.clear()
        _GOOD_CALLS.add(key)
    return True


def _kinds(trial: TrialVerifier, instruction: ptx.Instruction) -> dict[str, str] | None:
    """The words for the names in an instruction, if all are declared."""
    kinds: dict[str, str] = {}
    for name in _names(instruction):
        kind = KIND_OF_TOKEN.get(name) or trial.declared_kind(name) or special_kind(name)
        if kind is None:
            return None
        kinds[name] = kind
    return kinds


def _names(instruction: ptx.Instruction) -> list[str]:
    names = [name for operand in instruction.operands for name in names_in(operand)]
    return names if instruction.guard is None else [*names, instruction.guard.register]


def _accepts_rare(trial: TrialVerifier, unread: UnreadBody, text: str) -> bool:
    """Whether an instruction has no faults in which names of constants may stand."""
    instruction = unread.instruction(text)
    kinds = _kinds(trial, instruction)
    if kinds is None or not _is_good(trial, instruction, kinds):
        return False
    if instruction.opcode.name == "call":
        return next(call_faults(trial.module, instruction, trial.functions, kinds), None) is None
    if all(name.startswith(TOKEN) for name in kinds):
        trial.good_texts[0].add(text)
    return True


def accepts_text(trial: TrialVerifier, instruction: ptx.Instruction) -> bool:
    """Whether an instruction in which tokens stand for names has no faults."""
    are_known = None not in map(_kind_of, _names(instruction))
    return are_known and _is_good(trial, instruction, KIND_OF_TOKEN)


def _is_good(trial: TrialVerifier, instruction: ptx.Instruction, kinds: Mapping[str, str]) -> bool:
    guard = instruction.guard
    if guard is not None and kinds[guard.register] not in ("pred", "%pred", "?"):
        return False
    words = tuple([operand_word(operand, kinds) for operand in instruction.operands])
    return (
        instruction_fault(trial.module, instruction, is_new=trial.is_new) is None
        and form_fault(trial.module, instruction, words, trial.ground) is None
    )


def _signature(function: ptx.Function) -> tuple[object, ...]:
    """What a call must fit."""
    return (
        function.is_entry,
        len(function.returns),
        *[
            (v.space, v.type, v.vector, bool(v.dimensions), None in v.dimensions)
            for v in (*function.returns, *function.parameters)
        ],
    )
