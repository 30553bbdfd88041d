"""What a step of a program does to a buffer.

In: nothing. Out: frozen records that `passes.dependences.access_regions` makes and the graph keeps.

An access is READ, WRITE or ATOMIC (which reads and writes) and MAY or MUST. A MAY access touches
no byte outside its region. A MUST write writes every byte of its region whatever the data, and a
MUST read reads every one. Only a MUST write may end a dependence. An atomic is never a MUST
write: what it leaves depends on what was there.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tessera.diagnostics import Span
from tessera.ir.graph.region import Region
from tessera.ir.program.program import BufferId
from tessera.wording import Wording


class AccessKind(enum.Enum):
    """What happens to the bytes."""

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
    """How the address comes about.

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

    MEMORY: an address that comes from memory. NUMBER: one that is a number and points into no
    buffer. POINTERS: one that is made of several pointers. INSTRUCTION: what an instruction or a
    call does is not followed. OVERWRITTEN: it may write where pointers are. KERNEL: its code is not
    followed as a whole. STATED: a kernel graph says so.
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
    """Why a step must be taken to touch anything: it cannot be split from what it may touch.

    `reason` is for people, and what kernel graphs keep. Decisions are made by `kind`.
    """

    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)
    kind: PinKind = field(default=PinKind.STATED, compare=False, repr=False)


class NeedKind(enum.Enum):
    """What a step asks of the machine that runs it, beyond its memory.

    GRID: all of its CTAs run at the same time (a cooperative launch). CLUSTER: the CTAs of a
    cluster do, on a GPU that has clusters. WAIT: threads wait in a loop for what other threads
    write, so those must run too. MACHINE: it reads a register whose value depends on where and
    when it runs. OUTPUT: it prints, in an order that the machine chooses.
    """

    GRID = "grid"
    CLUSTER = "cluster"
    WAIT = "wait"
    MACHINE = "machine"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True)
class Need:
    """One thing that a step asks of the machine, and the instruction that shows it."""

    kind: NeedKind
    reason: Wording
    span: Span | None = field(default=None, compare=False, repr=False)
