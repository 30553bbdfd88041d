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
_REMOVED = "from PTX ISA version"
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
    return firsts
