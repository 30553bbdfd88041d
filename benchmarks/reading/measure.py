"""Measure from which version to which a target takes each statement.

In: statements and oracles. Out: for each statement and target the first and the last version in
which ptxas takes it. Between these two it takes every version: ptxas adds a form once and removes
it at most once.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.reading.oracle import Oracle
from tessera.ir.opcodes.targets import TARGETS, VERSIONS, Version

Span = tuple[Version, Version]
_REMOVED = "from PTX ISA version"


def spell(version: Version) -> str:
    """A version as PTX writes it."""
    return f"{version[0]}.{version[1]}"


def versions_of(target: str) -> list[Version]:
    """The versions that a module for a target may have, oldest first."""
    return [version for version in VERSIONS if version >= TARGETS[target]]


def spans_on(
    oracles: Sequence[Oracle], statements: Sequence[str], target: str
) -> dict[str, Span] | None:
    """First and last version of each statement that the target has; None if no ptxas knows it."""
    for oracle in oracles:
        versions = versions_of(target)
        while versions and oracle.ask(statements[:1], target, spell(versions[-1])) is None:
            versions.pop()
        if versions:
            return _spans(oracle, statements, target, versions)
    return None


def _spans(
    oracle: Oracle, statements: Sequence[str], target: str, versions: list[Version]
) -> dict[str, Span]:
    newest = oracle.ask(statements, target, spell(versions[-1])) or {}
    last = {text: versions[-1] for text in statements if newest[text] is None}
    for text, said in newest.items():
        if said is not None and _REMOVED in said:
            major, minor = said.rpartition(_REMOVED)[2].strip().split(".")[:2]
            last[text] = max((v for v in versions if v < (int(major), int(minor))), default=(0, 0))
    spans: dict[str, Span] = {}
    for end in sorted(set(last.values())):
        known = [version for version in versions if version <= end]
        texts = [text for text in last if last[text] == end]
        for text, first in _firsts(oracle, texts, target, known).items():
            spans[text] = (first, end)
    return spans


def _firsts(
    oracle: Oracle, texts: list[str], target: str, versions: list[Version]
) -> dict[str, Version]:
    """The first version that takes each text, by halving; the last of `versions` takes all."""
    if not texts or not versions:
        return {}
    if len(versions) == 1:
        return dict.fromkeys(texts, versions[0])
    middle = 0 if len(versions) > 20 else (len(versions) - 1) // 2
    said = oracle.ask(texts, target, spell(versions[middle])) or {}
    taken = [text for text in texts if said.get(text, "") is None]
    rest = [text for text in texts if said.get(text, "") is not None]
    return _firsts(oracle, taken, target, versions[: middle + 1]) | _firsts(
        oracle, rest, target, versions[middle + 1 :]
    )
