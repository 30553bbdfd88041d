"""Launches that compute addresses from several, run with more than one draw of addresses.

In: a launch whose footprint was found with one draw of made-up addresses (`footprint.zones`), and
how to find it with another. Out: the footprint, if it is the same with all; where it is not,
what hangs on where buffers lie in memory, and the instructions are pinned.

Why this suffices: what a thread touches is a sum `c1 * A1 + ... + cn * An + offset` of the objects'
addresses, with whole numbers `c`, wherever only sums, differences, products by numbers, copies and
choices are used. If it is an address in an object for all places of the objects, one `c` is 1 and
all others are 0, and then every draw gives the same object and offset. If not, the sum lies at the
same offset of the same object in two independent draws with a chance of about 2**-50. Other ways to
compute with addresses (their bits) are given more draws. Every second draw has the bits of the one
before it turned, so what hangs on one bit of an address is never the same in all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tessera.passes.byte_sets import intervals
from tessera.passes.footprint.footprint import Footprint, FootprintEntry
from tessera.passes.footprint.pointer_steps import BITS, SUMS
from tessera.passes.kernel_facts.kernel_code import KernelCode

DRAWS = {0: 1, SUMS: 3, BITS: 9}
"""How many draws a launch gets, by its doubt."""


def agreed_footprint(code: KernelCode, find: Callable[[int], Footprint]) -> Footprint:
    """The footprint of a launch; `find` finds it with a draw of a given number."""
    first = find(0)
    done, doubt = 1, first.doubt
    while done < DRAWS[doubt] and not first.gave_up:
        other = find(done)
        done += 1
        doubt = max(doubt, other.doubt)
        first = _agreed(code, first, other)
    return first


def _agreed(code: KernelCode, first: Footprint, other: Footprint) -> Footprint:
    """The first footprint, with pins for the instructions that the other one differs in."""
    if other.gave_up or first.is_coarse != other.is_coarse:
        return other if other.gave_up or other.is_coarse else first
    entries = {entry.key: entry for entry in first.entries}
    others = {entry.key: entry for entry in other.entries}
    differ = {
        key.at
        for key in entries.keys() | others.keys()
        if not _same(entries.get(key), others.get(key))
    }
    differ |= {at for at, _ in first.unresolved.keys() ^ other.unresolved.keys()}
    differ |= first.nulls.keys() ^ other.nulls.keys()
    pins = {at: _reason(code, at) for at in sorted(differ)}
    if not pins:
        return replace(first, pins={**other.pins, **first.pins})
    return replace(
        first,
        entries=tuple(
            replace(entry, sure=intervals.EMPTY) if entry.key.at in differ else entry
            for entry in first.entries
        ),
        pins={**other.pins, **first.pins, **pins},
        unresolved=other.unresolved | first.unresolved,
    )


def _same(first: FootprintEntry | None, second: FootprintEntry | None) -> bool:
    if first is None or second is None:
        return False
    return (
        np.array_equal(first.may, second.may)
        and np.array_equal(first.sure, second.sure)
        and (first.whole is None) == (second.whole is None)
        and first.exact == second.exact
    )


def _reason(code: KernelCode, index: int) -> str:
    return f"what `{code.opcode_text(index)}` touches depends on where buffers lie in memory"
