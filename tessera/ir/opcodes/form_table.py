"""The forms of opcodes, read from their tables: which modifiers and types an opcode may have.

In: an opcode. Out: its form, or what is wrong with it. The tables are in `families`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cache

from tessera.ir.opcodes import families
from tessera.ir.opcodes.form_notation import Form, read_form, written_lines
from tessera.ir.opcodes.modifiers import is_known_modifier
from tessera.ir.opcodes.targets import Needs
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type

REPEATABLE = frozenset(
    {"NaN", "approx", "cc", "relu", "sat", "satfinite", "shiftamt", "sync", "uni", "b2"}
)
"""Modifiers that ptxas takes twice."""


_UNUSED = frozenset({"b1", "s4", "u4", "bf16", "tf32"})


@dataclass(frozen=True, slots=True)
class FoundForm:
    """The form of an opcode, and its types in order."""

    form: Form
    types: tuple[str, ...]
    needs: Needs


@dataclass(frozen=True, slots=True)
class Unfit:
    """An opcode that matches no form: the modifier at fault (None for all), and the reason."""

    modifier: str | None
    reason: str


def _load() -> dict[tuple[str, ...], tuple[str, ...]]:
    lines: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for table in families.FORMS:
        for name, line in written_lines(table):
            lines[name].append(line)
    return {name: tuple(group) for name, group in lines.items()}


# The lines of each name. A line is read when an opcode needs it: a module has few opcodes.
_LINES = _load()
FORM_NAMES = frozenset(_LINES)
"""The names that have forms."""

_LONGEST = max(map(len, _LINES))
_NEXT_WORDS: dict[str, set[str]] = defaultdict(set)
for _name in _LINES:
    _NEXT_WORDS[_name[0]].update(_name[1:2])


def forms_of(opcode: ptx.Opcode) -> tuple[Form, ...]:
    """The forms of the longest name that an opcode starts with."""
    words = (opcode.name, *opcode.modifiers)
    for length in range(min(_LONGEST, len(words)), 0, -1):
        if words[:length] in _LINES:
            return _forms(words[:length])
    return ()


@cache
def _forms(name: tuple[str, ...]) -> tuple[Form, ...]:
    return tuple(read_form(name, line) for line in _LINES[name])


@cache
def find_form(opcode: ptx.Opcode, is_old: bool) -> FoundForm | Unfit | None:
    """The form of an opcode; None if the tables do not have the opcode at all."""
    opcode = _as_ptxas_reads(opcode)
    candidates = forms_of(opcode)
    if not candidates:
        if opcode.name not in _NEXT_WORDS:
            return None
        words = " or ".join(f"`.{word}`" for word in sorted(_NEXT_WORDS[opcode.name]))
        return Unfit(None, f"{words} follows `{opcode.name}`")
    modifiers = _plain(opcode.modifiers[len(candidates[0].name) - 1 :])
    for form in candidates:
        types = _match(form, modifiers, is_old)
        if types is not None:
            needs = form.needs
            for modifier, more in form.needs_of:
                if all(word in modifiers for word in modifier.split(".")):
                    needs = needs.joined(more)
            return FoundForm(form, types, needs)
    return _unfit(candidates, opcode, modifiers)


def _as_ptxas_reads(opcode: ptx.Opcode) -> ptx.Opcode:
    """The opcode without what ptxas overlooks.

    In `tcgen05.mma`, `.sp` may stand behind other modifiers; `mma` of doubles may name types that
    it does not use, and `mma` of halves `.bf16` at the end.
    """
    match opcode:
        case ptx.Opcode("tcgen05", ("mma", *others)):
            if others.count("sp") == 1 and "ws" not in others:
                others.remove("sp")
                return ptx.Opcode("tcgen05", ("mma", "sp", *others))
        case ptx.Opcode("mma", modifiers) if modifiers.count("f64") == 4:
            return ptx.Opcode("mma", tuple(m for m in modifiers if m not in _UNUSED))
        case ptx.Opcode("mma", (*others, "bf16")) if "f16" in others and "bf16" not in others:
            return ptx.Opcode("mma", tuple(others))
    return opcode


def _plain(modifiers: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("const[]" if m.startswith("const[") else m for m in modifiers)


def _match(form: Form, modifiers: tuple[str, ...], is_old: bool) -> tuple[str, ...] | None:
    """The types of an opcode in a form; None if it does not match the form."""
    free = list(form.slots)
    types = []
    closed = any(slot.takes_type for slot in form.slots) or not form.is_open
    for place, modifier in enumerate(modifiers):
        kind = is_type(modifier) and any(modifier in s.choices and s.takes_type for s in form.slots)
        slot = next((s for s in free if modifier in s.choices), None)
        if slot is None and modifier in REPEATABLE and modifier in modifiers[:place]:
            continue
        if slot is None:
            if not form.is_open or (kind and closed) or not is_known_modifier(modifier):
                return None
            if is_type(modifier):
                types.append(modifier)
            continue
        if slot.takes_type:
            # Types fill their slots in order: skipped slots must be optional.
            passed = free[: free.index(slot)]
            if any(s.takes_type and not s.is_optional for s in passed):
                return None
            free = [s for s in passed if not s.takes_type] + free[free.index(slot) + 1 :]
            types.append(modifier)
        else:
            free.remove(slot)
    if all(slot.is_optional or (is_old and slot.since_sm_20) for slot in free):
        return tuple(types)
    return None


def _unfit(candidates: tuple[Form, ...], opcode: ptx.Opcode, modifiers: tuple[str, ...]) -> Unfit:
    """The fault of an opcode that matches none of its forms."""
    name = ".".join(candidates[0].name)
    choices = frozenset(
        choice for form in candidates for slot in form.slots for choice in slot.choices
    )
    is_open = any(form.is_open for form in candidates)
    for modifier in modifiers:
        if modifier not in choices and not is_open:
            what = "type" if is_type(modifier) else "modifier"
            return Unfit(modifier, f"`{name}` has no such {what}")
    for modifier in modifiers:
        if modifiers.count(modifier) > 1 and not is_type(modifier):
            return Unfit(modifier, "it stands here twice")
    if not any(map(is_type, modifiers)) and not is_open:
        return Unfit(None, f"`{name}` needs a type or another modifier")
    return Unfit(None, f"`{name}` does not have these modifiers and types together")
