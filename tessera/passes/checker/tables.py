"""Checks that the words of `pointers` records can hold the addresses of their targets.

In: the places of buffers. Out: findings.

A table in a slot is written at the start of every request. A persistent table is shared by all
traces that have its name: their records must agree, and each target must be in one place for all of
them. A table in the state of a sequence may also point into slots, because then every request
writes it; a weight that exists once may not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tessera.ir.plan.launch_program import Area, AreaKind, Place
from tessera.ir.program.program import PointerWord, Program, Role
from tessera.passes.checker.findings import Findings

Places = Mapping[tuple[int, str, int], Place]
_LASTING = (Role.WEIGHT, Role.STATE)
_ONCE = (AreaKind.WEIGHTS, AreaKind.MODULE)


def check_tables(
    places: Places,
    areas: Mapping[tuple[str, AreaKind], Area],
    programs: Sequence[Program],
    findings: Findings,
) -> None:
    """Check that tables shared by several requests are right for all of them."""
    words = [_words(program) for program in programs]
    shared: dict[str, object] = {}
    for trace in sorted({trace for trace, _, _ in places}):
        for name, pointed_to in _shared_words(programs[trace], words[trace]):
            if shared.setdefault(name, pointed_to) != pointed_to:
                findings.add("TSR4013", f"traces share `{name}` and put different addresses in it")
    targets: dict[tuple[str, str, int], Place | None] = {}
    for place in places.values():
        program, own = programs[place.trace], words[place.trace].get(int(place.buffer), [])
        for word in () if place.kind is AreaKind.SLOT else own:
            name, other = (program.buffers[b].name for b in (place.buffer, word.target.buffer))
            target = places.get((place.trace, place.device, int(word.target.buffer)))
            known = targets.setdefault((place.device, name, word.offset), target)
            why = ""
            if place.kind in _ONCE and target and areas[target.device, target.kind].count > 1:
                why = (
                    f"`{name}` is on `{place.device}` once and points to `{other}`, which is "
                    "there once per request under way"
                )
            elif not _in_one_place(place, known, target):
                why = (
                    f"traces share `{name}` on `{place.device}`, which points to `{other}`, and "
                    "do not have that in one place"
                )
            if why:
                findings.add("TSR4011", why, at=place)
                break


def _in_one_place(table: Place, first: Place | None, other: Place | None) -> bool:
    """Whether two traces find one address in a word, or each writes its own before every use."""
    in_slots = all(place is None or place.kind is AreaKind.SLOT for place in (first, other))
    if in_slots and table.kind is AreaKind.LANE:
        return True
    if first is None or other is None:
        return first is other
    return (first.kind, first.base) == (other.kind, other.base)


def _words(program: Program) -> dict[int, list[PointerWord]]:
    """The pointer words of each buffer that has any."""
    words_of: dict[int, list[PointerWord]] = {}
    for table in program.pointer_tables:
        words_of.setdefault(int(table.buffer), []).extend(table.words)
    return words_of


def _shared_words(
    program: Program, words: Mapping[int, Sequence[PointerWord]]
) -> Iterator[tuple[str, object]]:
    """The names of buffers that traces share, and what their words point to."""
    for held in program.buffers:
        if held.role in _LASTING:
            yield (
                held.name,
                sorted(
                    (word.offset, program.buffers[word.target.buffer].name, word.target.offset)
                    for word in words.get(int(held.id), ())
                ),
            )
