"""What is remembered of one kernel from an earlier analysis.

In: a place to keep JSON values (`Store`), a module and a kernel's name. Out: the facts that a
launch's scene is built with (`KernelFacts`) and the patterns of launches, so that a
launch like one seen before needs neither the kernel's code nor a run of it.

The name of what is kept holds the texts of the module, so nothing is ever out of date. Launches
with pins or findings are not kept: these speak of their launch.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from tessera.ir.program import program as ir
from tessera.passes.dependences.launch_pattern import Buffers, Pattern
from tessera.passes.dependences.pattern_codec import PatternCodec

MOST_PATTERNS = 4096


class Store(Protocol):
    """Where values outlive the process; a value that was kept may be gone, but never another."""

    def find(self, name: str) -> object:
        """The values kept under a name, or None."""
        ...

    def keep(self, name: str, values: object) -> None:
        """Put values under a name."""
        ...


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """What the code says about parameters: `odd` are more than bases, `idle` matter to nothing."""

    odd: frozenset[str]
    idle: frozenset[str]


class KernelMemory:
    """The memory of one kernel of one module."""

    def __init__(self, store: Store, module: ir.ProgramModule, kernel: str) -> None:
        self.store = store
        self.codec = PatternCodec(module)
        self.name = _name(module, kernel)
        self.changed = False
        known = store.find(self.name)
        self.facts: dict[str, object] = {}
        self.patterns: dict[str, object] = {}
        match known:
            case [dict() as facts, dict() as patterns]:
                self.facts, self.patterns = facts, patterns

    def find_facts(self, arch: str) -> KernelFacts | None:
        """The facts about the code for an architecture."""
        match self.facts.get(arch):
            case [[*odd], [*idle]] if _are_texts(odd) and _are_texts(idle):
                return KernelFacts(frozenset(odd), frozenset(idle))
        return None

    def keep_facts(self, arch: str, facts: KernelFacts) -> None:
        """Remember facts."""
        self.facts[arch] = [sorted(facts.odd), sorted(facts.idle)]
        self.changed = True

    def find(self, key: object, step: ir.LaunchId, name: str, buffers: Buffers) -> Pattern | None:
        """The pattern with this key, for a launch that gets these buffers."""
        value = self.patterns.get(_digest(key))
        if value is None:
            return None
        try:
            return self.codec.decode(value, step, name, buffers)
        except ValueError:
            return None

    def keep(self, key: object, pattern: Pattern) -> None:
        """Remember a pattern."""
        if len(self.patterns) >= MOST_PATTERNS:
            return
        try:
            self.patterns[_digest(key)] = self.codec.encode(pattern)
            self.changed = True
        except ValueError:
            return

    def close(self) -> None:
        """Keep what is new."""
        if self.changed:
            self.store.keep(self.name, [self.facts, self.patterns])


def _are_texts(values: list[object]) -> TypeGuard[list[str]]:
    return all(isinstance(value, str) for value in values)


def _name(module: ir.ProgramModule, kernel: str) -> str:
    digest = hashlib.blake2b(digest_size=24, person=b"tessera-regions")
    for part in (kernel, *(t for v in module.variants for t in (v.arch, v.text))):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def _digest(key: object) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=24).hexdigest()
