"""Whether a body that is still text has no faults, by its outline.

In: the outline of a body (`ir.ptx.unread`), and a verifier with the names of the module and of the
function's head. Out: true if every rule holds. Nothing is reported: where this gives up, the
verifier looks at the statements one by one, with their places. Instructions in which every name is
a token are remembered across modules, by version and target; common ones are known from the start
(`known_statements`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Protocol

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.unread import BodyOutline, UnreadBody
from tessera.ir.verify_ptx.declarations import call_faults, variable_fault
from tessera.ir.verify_ptx.instruction import Ground, form_fault, instruction_fault
from tessera.ir.verify_ptx.known_statements import KnownStatements
from tessera.ir.verify_ptx.names import (
    KIND_OF_TOKEN,
    NameScope,
    kind_token,
    names_in,
    operand_word,
    special_kind,
    variable_kind,
)

MANY_TEXTS = 100_000

GOOD_TEXTS: dict[Ground, tuple[set[str], KnownStatements]] = {}  # kept from module to module
_GOOD_CALLS: set[tuple[str, tuple[object, ...] | None]] = set()  # this, too
_CALL = re.compile(
    r"(?:@\S+\s+)?call(?:\.uni)?\s+(?:\([^()]*\)\s*,\s*)?([\w$%]+)"
    r"\s*(?:,\s*\([^()]*\)\s*)?(?:,\s*[\w$%]+\s*)?"
)


def forget() -> None:
    """Forget what is known of statements: the rules or the table have changed."""
    GOOD_TEXTS.clear()
    _GOOD_CALLS.clear()


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
    is_new: bool
    scopes: list[NameScope]
    functions: dict[str, ptx.Function]

    def earlier_declaration(self, scope: NameScope, variable: ptx.Variable) -> int | None:
        """The position of an earlier declaration of a name."""

    def declared_kind(self, name: str) -> str | None:
        """The word for a name in scope that something declares."""


def accepts(
    trial: TrialVerifier, unread: UnreadBody, outline: BodyOutline, scope: NameScope
) -> bool:
    """Whether a body or block has no faults; nothing is reported."""
    for name in outline.labels:
        if scope.declared(name) is not None:
            return False
        scope.labels[name] = 0
    trial.scopes.append(scope)
    ground = trial.ground
    for variable in (*outline.declarations, *outline.late):
        place = trial.earlier_declaration(scope, variable)
        if place is not None or variable_fault(variable, "body", ground.version) is not None:
            return False
        scope.add(variable, variable_kind(variable))
    known = GOOD_TEXTS.get(ground)
    if known is None:
        known = GOOD_TEXTS[ground] = set(), KnownStatements(ground.version, ground.target)
    good, table = known
    if len(good) > MANY_TEXTS:
        good.clear()
    if new := [text for text in outline.statements if text not in good]:
        renamed = unread.rename(new, _Tokens(trial.declared_kind))
        if unknown := [text for text in renamed if text not in good]:
            good.update(table.known(unknown))
            for text in unknown:
                if text not in good and not accepts_text(trial, unread.instruction(text)):
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


def _accepts_call(trial: TrialVerifier, unread: UnreadBody, text: str, canonical: str) -> bool:
    """Whether a call fits what it calls; other instructions do."""
    plain = _CALL.fullmatch(text)
    function = trial.functions.get(plain[1]) if plain else None
    key = (canonical, None if function is None else _signature(function)) if plain else None
    if key in _GOOD_CALLS:
        return True
    instruction = unread.instruction(text)
    if instruction.opcode.name != "call":
        return True
    kinds: dict[str, str] = {}
    for name in (name for operand in instruction.operands for name in names_in(operand)):
        kind = KIND_OF_TOKEN.get(name) or trial.declared_kind(name) or special_kind(name)
        if kind is None:
            return False
        kinds[name] = kind
    if next(call_faults(trial.module, instruction, trial.functions, kinds), None) is not None:
        return False
    if key is not None:
        if len(_GOOD_CALLS) > MANY_TEXTS:
            _GOOD_CALLS.clear()
        _GOOD_CALLS.add(key)
    return True


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


def accepts_text(trial: TrialVerifier, instruction: ptx.Instruction) -> bool:
    """Whether an instruction in which tokens stand for names has no faults."""
    names = [name for operand in instruction.operands for name in names_in(operand)]
    if instruction.guard is not None:
        names.append(instruction.guard.register)
        if _kind_of(instruction.guard.register) not in ("pred", "%pred", "?"):
            return False
    if None in map(_kind_of, names):
        return False
    words = tuple([operand_word(operand, KIND_OF_TOKEN) for operand in instruction.operands])
    return (
        instruction_fault(trial.module, instruction, is_new=trial.is_new) is None
        and form_fault(trial.module, instruction, words, trial.ground) is None
    )
