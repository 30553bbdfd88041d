"""Buffers into which launches put addresses, or distances that they compute from them.

In: the steps of a walk with their accesses. Out: the buffers from which an unknown word is no
index: it may be an address, or the distance between two, which leads into another buffer. What a
launch stores is known from its code (`base_words`); a copy and a library call take all along. In
what outlives requests such a word is there from the first step on, so the walk begins again.
"""

from __future__ import annotations

from tessera.ir.graph.access import Access
from tessera.ir.program import program as ir
from tessera.passes.dependences.stored_addresses import Stored, holds_address, is_at
from tessera.passes.kernel_facts.base_words import stored_words

_LASTING = (ir.Role.STATE, ir.Role.VARIABLE)


class AddressHolders:
    """The buffers, as a walk goes on."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.buffers: frozenset[ir.BufferId] = frozenset()
        self._before = self.buffers
        self._stored: dict[tuple[int, str, str], Stored] = {}

    def note(self, step: ir.Work, accesses: tuple[Access, ...]) -> None:
        """What a step puts where."""
        match step:
            case ir.Launch():
                new = self._by_launch(step, accesses)
            case _ if any(a.kind.reads and a.buffer in self.buffers for a in accesses):
                new = {access.buffer for access in accesses if access.kind.writes}
            case _:
                return
        if not new <= self.buffers:
            self.buffers |= new

    def _by_launch(self, step: ir.Launch, accesses: tuple[Access, ...]) -> set[ir.BufferId]:
        """By the code for any GPU; accesses name the lines of one of them, so all count then."""
        new: set[ir.BufferId] = set()
        variants = self.program.modules[step.module].variants
        for variant in variants:
            key = (int(step.module), variant.arch, step.kernel)
            if key not in self._stored:
                function = variant.ptx.definitions()[step.kernel]
                self._stored[key] = stored_words(variant.ptx, function)
            made = ir.for_arch(step, variant.arch)
            spans = [
                variant.ptx.span(instruction.at)
                for instruction, words in self._stored[key]
                if holds_address(variant.ptx, made, words)
            ]
            new.update(
                access.buffer
                for access in accesses
                if access.kind.writes
                and any(len(variants) > 1 or is_at(access, span) for span in spans)
            )
        return new

    def restart(self) -> bool:
        """Whether the next request finds such words where this walk has not looked for them."""
        roles = {buffer.id: buffer.role for buffer in self.program.buffers}
        lasting = frozenset(b for b in self.buffers if roles[b] in _LASTING)
        grown, self._before, self.buffers = lasting != self._before, lasting, lasting
        return grown
