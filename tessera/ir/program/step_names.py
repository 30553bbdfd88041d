"""What people call steps: by number, or by the name of a kernel or operator.

In: a program and a text as a user types it. Out: the steps that it names.
"""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase

from tessera.ir.program.program import Launch, LibraryCall, Memcpy, Memset, Program, Work


def work_name(work: Work) -> str:
    """The name of a step: its kernel or operator, or the kind of its record."""
    match work:
        case Launch():
            return work.kernel
        case LibraryCall():
            return work.operator
        case Memset():
            return "memset"
        case Memcpy():
            return "memcpy"


def named_steps(program: Program, wanted: str) -> tuple[int, ...]:
    """The steps of a number (`12`, `#12`, `k12`), or of a pattern of kernels and operators."""
    work = tuple(program.work())
    number = wanted[1:] if wanted[:1] in ("#", "k") and wanted[1:].isdecimal() else wanted
    if number.isdecimal():
        return (int(number),) if int(number) < len(work) else ()
    return tuple(
        place
        for place, step in enumerate(work)
        if any(fnmatchcase(name, wanted) for name in _names(program, step))
    )


def meant_name(program: Program, wanted: str) -> str | None:
    """The name of a step that is most like one that no step has."""
    names = [name for step in program.work() for name in _names(program, step)]
    return next(iter(difflib.get_close_matches(wanted, names, n=1)), None)


def _names(program: Program, work: Work) -> tuple[str, ...]:
    """What a step is called: by itself, and with its module."""
    name = work_name(work)
    if not isinstance(work, Launch):
        return (name,)
    return name, f"{program.modules[work.module].name}.{name}"
