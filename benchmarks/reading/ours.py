"""What Tessera says about single statements, and where it begins to refuse them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from benchmarks.reading.measure import MEASURED_TARGETS, spell, versions_of
from benchmarks.reading.statements import (
    in_kernel,
    module_head,
    opcode_of,
    operand_text_word,
    split_operands,
)
from tessera.diagnostics import Severity, Source, TesseraError, in_text_order, summarise
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.ir.opcodes.form_table import FoundForm, find_form
from tessera.ir.opcodes.rules import RULE_LINES, MeasuredRule, rules_for, rules_of
from tessera.ir.opcodes.targets import Needs, Version, read_version
from tessera.ir.ptx import syntax as ptx
from tessera.ir.verify_ptx import accept_outline
from tessera.ir.verify_ptx.known_statements import read_table
from tessera.ir.verify_ptx.module import verify_module

Place = tuple[str, Version]
_KEPT = 100_000


def module_of(statement: str, target: str, version: str) -> str:
    """A module with the statement on its fifth line."""
    lines = [*module_head(target, version), ".entry kernel(.param .b64 pointer) {"]
    return "\n".join([*lines, in_kernel(statement), "}"]) + "\n"


@lru_cache(_KEPT)
def _parsed(statement: str) -> ptx.Module | TesseraError:
    try:
        return parse_source(Source("statement", module_of(statement, "sm_100a", "9.4")))
    except TesseraError as failure:
        return failure


def tessera_says(statement: str, target: str, version: str) -> str | None:
    """Why Tessera refuses a statement; None if it takes it."""
    module = _parsed(statement)
    if isinstance(module, TesseraError):
        return summarise(module.diagnostics[0])
    size = 64 if read_version(version) >= (2, 3) else None
    here = replace(module, version=read_version(version), target=(target,), address_size=size)
    found = in_text_order(verify_module(here))
    faults = [fault for fault in found if fault.severity is Severity.ERROR]
    return summarise(faults[0]) if faults else None


def install(lines: Mapping[tuple[str, ...], Sequence[str]]) -> None:
    """Put rules in the place of those that Tessera has."""
    RULE_LINES.clear()
    RULE_LINES.update((name, tuple(group)) for name, group in lines.items())
    rules_for.cache_clear()
    rules_of.cache_clear()
    _rules.cache_clear()
    accept_outline.forget()
    read_table()[1].clear()


def allowed(statement: str) -> Needs:
    """What the form of a statement needs; nothing where it has none."""
    name, *modifiers = opcode_of(statement).split(".")
    form = find_form(ptx.Opcode(name, tuple(modifiers)), False)
    return form.needs if isinstance(form, FoundForm) else Needs()


def is_refused(statement: str, target: str, version: str) -> bool:
    """Whether the needs of its form or a measured rule refuse a statement."""
    return _is_refused(statement, target, read_version(version))


def _is_refused(statement: str, target: str, version: Version) -> bool:
    if allowed(statement).missing(version, target) is not None:
        return True
    return any(
        not rule.values.holds(operands)
        if rule.values is not None
        else rule.lacks(version, target) is not None and (rule.places or version >= (2, 0))
        for rule, operands in _rules(statement)
    )


@lru_cache(_KEPT)
def _rules(statement: str) -> list[tuple[MeasuredRule, tuple[ptx.Operand, ...]]]:
    """The rules that hold for a statement, with its operands."""
    module = _parsed(statement)
    if isinstance(module, TesseraError):
        return []
    body = next(module.kernels()).body or ()
    found = next((item for item in body if isinstance(item, ptx.Instruction)), None)
    if found is None:
        return []
    words = tuple(map(operand_text_word, split_operands(statement)))
    return [(rule, found.operands) for rule in rules_of(found.opcode, words)]


def edges(statement: str, rng: random.Random, count: int) -> Iterator[Place]:
    """Places where Tessera refuses a statement, each beside one where it takes it if there is one.

    Up to `count` of them, and a fixed number for a statement that is refused on every target.
    """
    here = next((place for place in _TELLING if not _is_refused(statement, *place)), None)
    if here is None or tessera_says(statement, here[0], spell(here[1])) is not None:
        yield from _TELLING
        return
    for target in rng.sample(MEASURED_TARGETS, 3 * count):
        versions, taken = versions_of(target), _first_taken(statement, target)
        place = len(versions) if taken is None else versions.index(taken)
        if place and count:
            yield target, versions[place - 1]
            count -= 1


_TELLING: tuple[Place, ...] = (
    *(("sm_107a", (9, 4)), ("sm_100a", (9, 4)), ("sm_90a", (9, 4)), ("sm_120a", (9, 4))),
    *(("sm_75", (9, 4)), ("sm_60", (6, 0)), ("sm_20", (2, 3))),
)


def _first_taken(statement: str, target: str) -> Version | None:
    """The first version that is not refused, if the newest is not, or one that was before it."""
    versions = versions_of(target)
    if _is_refused(statement, target, versions[-1]):
        taken = (v for v in versions[::4] if not _is_refused(statement, target, v))
        return next(taken, None)
    low, high = 0, len(versions) - 1
    while low < high:
        middle = (low + high) // 2
        if _is_refused(statement, target, versions[middle]):
            low = middle + 1
        else:
            high = middle
    return versions[low]
