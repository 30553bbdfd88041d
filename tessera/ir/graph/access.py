"""Accesses of a step to a buffer.

In: nothing. Out: frozen records that `passes.dependences.access_regions` makes and the graph keeps.

An access is READ, WRITE or ATOMIC (which reads and writes) and MAY or MUST. A MAY access touches
no byte outside its region. A MUST write writes every byte of its region whatever the data, and a
MUST read reads every one. Only a MUST write may end a dependence. An atomic is never a MUST
write: its result depends on the bytes before it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tessera.diagnostics import Span
from tessera.ir.graph.region import Region
from tessera.ir.program.program import BufferId
from tessera.wording import Wording


class AccessKind(enum.Enum):
    """What an access does to the bytes."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"

    @property
    def reads(self) -> bool:
        """Whether the access depends on the bytes before it."""
        return self is not AccessKind.WRITE

    @property
    def writes(self) -> bool:
        """Whether the bytes can differ after the access."""
        return self is not AccessKind.READ


class Certainty(enum.Enum):
    """Whether a region is a bound or a promise."""

    MAY = "may"
    MUST = "must"


class AddressClass(enum.Enum):
    """How the address is computed.

    DIRECT: computed from parameters and thread indices. INDEXED: a known base plus an index from
    memory. POINTER: the base itself is from memory.
    """

    DIRECT = "direct"
    INDEXED = "indexed"
    POINTER = "pointer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One instruction's (or record's) effect on one buffer. `text` names the instruction."""

    buffer: BufferId
    kind: AccessKind
    certainty: Certainty
    address: AddressClass
    region: Region
    text: str = ""
    span: Span | None = field(default=None, compare=False, repr=False)


class PinKind(enum.Enum):
    """Why a step may touch anything.

    MEMORY: an address comes from memory. NUMBER: an address is a number that points into no buffer.
    POINTERS: an address is computed from several pointers. INSTRUCTION: the analysis does not
    follow an instruction or a call. OVERWRITTEN: the step may overwrite pointers. KERNEL: the
    analysis does not follow the kernel as a whole. STATED: a kernel graph says so.
    """

    MEMORY = "memory"
    NUMBER = "number"
    POINTERS = "pointers"
    INSTRUCTION = "instruction"
    OVERWRITTEN = "overwritten"
    KERNEL = "kernel"
    STATED = "stated"


@dataclass(frozen=True, slots=True)
class Pin:
    """The reason to assume that a step touches anything, so it cannot be split from other steps.

    `reason` is for people, and is stored in kernel graphs. Decisions use `kind`.
    """

    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)
    kind: PinKind = field(default=PinKind.STATED, compare=False, repr=False)


class NeedKind(enum.Enum):
    """A requirement of a step on the machine that runs it, beyond memory.

    GRID: all of its CTAs run at the same time (a cooperative launch). CLUSTER: the CTAs of a
    cluster do, on a GPU that has clusters. WAIT: threads wait in a loop for writes of other
    threads, which must therefore run too. MACHINE: it reads a register whose value depends on where
    and when it runs. OUTPUT: it prints, in an order that the machine chooses.
    """

    GRID = "grid"
    CLUSTER = "cluster"
    WAIT = "wait"
    MACHINE = "machine"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Need:
    """One requirement of a step on the machine, and the instruction that shows it."""

    kind: NeedKind
    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)
