"""Measure from which version to which a target takes each statement.

In: statements and oracles. Out: for each statement and target the first and the last version in
which ptxas takes it. Between these two it takes every version: ptxas adds a form once and removes
it at most once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from benchmarks.reading.oracle import Oracle
from tessera.ir.opcodes.targets import TARGETS, VERSIONS, Version, read_version

Span = tuple[Version, Version]
_OLD = (("sm_13", "1.5"), ("sm_20", "2.3"), ("sm_60", "6.0"), ("sm_72", "6.1"), ("sm_90a", "8.0"))
_OLD = (*_OLD, ("sm_100a", "8.6"))
"""Where it is seen that a later version removes a statement."""
_NOT_NOW = ("sm_82", "sm_101")
_NEEDED = re.compile(r"requires PTX ISA \.version (\d+\.\d+)")


def spell(version: Version) -> str:
    """A version as PTX writes it."""
    return f"{version[0]}.{version[1]}"


MEASURED_TARGETS = [name for name in TARGETS if name.rstrip("af") not in _NOT_NOW]
"""Targets that ptxas has."""


def versions_of(target: str) -> list[Version]:
    """The versions that a kernel with parameters for a target may have, oldest first."""
    return [version for version in VERSIONS if version >= max(TARGETS[target], (1, 4))]


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
    gone = [text for text in _gone(oracle, statements) if newest[text] is not None]
    for version in versions[:-1] if gone else ():
        said = oracle.ask(gone, target, spell(version)) or {}
        last |= {text: version for text in gone if said[text] is None}
    spans: dict[str, Span] = {}
    for end in sorted(set(last.values())):
        known = [version for version in versions if version <= end]
        texts = [text for text in last if last[text] == end]
        for text, first in _firsts(oracle, texts, target, known).items():
            spans[text] = (first, end)
    return spans


def _gone(oracle: Oracle, statements: Sequence[str]) -> list[str]:
    """The statements that a version took and a later one does not."""
    gone: dict[str, None] = {}
    for target, version in _OLD:
        old = oracle.ask(statements, target, version) or {}
        taken = [text for text, said in old.items() if said is None]
        new = oracle.ask(taken, target, spell(VERSIONS[-1])) or {}
        gone |= {text: None for text, said in new.items() if said is not None}
    return list(gone)


def _firsts(
    oracle: Oracle, texts: list[str], target: str, versions: list[Version]
) -> dict[str, Version]:
    """The first version that takes each text; the last of `versions` takes all.

    ptxas mostly says which version a text needs: that one is asked next, or else the following one.
    """
    if not texts or not versions:
        return {}
    firsts = {}
    least: dict[Version, list[str]] = {versions[0]: texts}
    while least:
        version = min(least)
        asked = least.pop(version)
        said = oracle.ask(asked, target, spell(version)) or {}
        for text in asked:
            if said.get(text, "") is None:
                firsts[text] = version
            elif version < versions[-1]:
                match = _NEEDED.search(said.get(text) or "")
                needed = read_version(match[1]) if match else version
                later = [v for v in versions if v > version]
                following = needed if needed in later else later[0]
                least.setdefault(following, []).append(text)
            else:
                firsts[text] = version
    # A version before the one that ptxas names may take the text all the same.
    for version in reversed(versions[1:]):
        before = versions[versions.index(version) - 1]
        said = oracle.ask([t for t in texts if firsts[t] == version], target, spell(before)) or {}
        firsts |= {text: before for text, against in said.items() if against is None}
    return firsts
