"""Changes of certificates that can still be read, and whether what they claim is still true.

In: a certificate that is true, and what the launch touched when it ran. Out: certificates with one
change each. In the family, what is touched does not depend on data, so the log of one run says what
every run touches: a changed region is true if it holds all bytes of the log, and a must region if
the log holds all of it. A changed form is true if it has the same values as before for all threads,
CTAs and rounds. The checker takes no part in this.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

Certificate = dict[str, Any]
Log = dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]]]]
"""Per buffer the intervals of bytes that are read and that are written."""
ELEMENTS = (1, 2, 4, 8, 16)
_ROUNDS = 1 << 12


@dataclass(frozen=True)
class Corruption:
    """A changed certificate, the kind of change, and whether it is still true."""

    kind: str
    certificate: Certificate
    is_true: bool


def corruptions(
    certificate: Certificate, sizes: dict[str, int], log: Log, random: Random
) -> Iterator[Corruption]:
    """A corruption of each kind that fits the certificate."""
    loops = [label for label, claim in certificate["loops"].items() if claim["registers"]]
    for name, change in (*_REGION_CHANGES.items(), *_KIND_CHANGES.items()):
        made = copy.deepcopy(certificate)
        if change(made["accesses"], sizes, random):
            yield Corruption(name, made, _regions_hold(made["accesses"], sizes, log))
    symbol = random.choice(sorted(certificate["ranges"]))
    made = copy.deepcopy(certificate)
    made["ranges"][symbol] += random.choice([-1, 1])
    yield Corruption("range of a symbol", made, False)
    # Few launches have loops, so each gets as many changes there as in its regions, and more.
    for label in random.choices(loops, k=4 if loops else 0):
        yield from _in_loop(certificate, label, random)


# --- regions ---------------------------------------------------------------------------------

Accesses = list[dict[str, Any]]


def _piece(accesses: Accesses, random: Random) -> tuple[dict[str, Any], int]:
    access = random.choice([a for a in accesses if a["region"]])
    return access, random.randrange(len(access["region"]))


def _shrink(accesses: Accesses, random: Random, where: str) -> bool:
    """Take an element from an interval, one of those of a piece."""
    access, place = _piece(accesses, random)
    start, length, stride, count = access["region"].pop(place)
    number = {"start": 0, "end": count - 1}.get(where, random.randrange(count))
    taken = random.choice([size for size in ELEMENTS if size <= length])
    at = {"start": 0, "end": length - taken}.get(where, random.randrange(length - taken + 1))
    first = start + number * stride
    kept = [
        [start, length, stride, number],
        [first, at, 0, 1],
        [first + at + taken, length - at - taken, 0, 1],
        [first + stride, length, stride, count - number - 1],
    ]
    access["region"][place:place] = [piece for piece in kept if piece[1] > 0 and piece[3] > 0]
    return True


def _shift(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    access, place = _piece(accesses, random)
    start, length, stride, count = access["region"][place]
    moved = random.choice(ELEMENTS) * random.choice([-1, 1])
    first = start + moved
    if first < 0 or first + stride * (count - 1) + length > sizes[access["buffer"]]:
        return False
    access["region"][place][0] = first
    return True


def _repeat(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    """One more or one less of an interval, or another distance between them."""
    access, place = _piece(accesses, random)
    piece = access["region"][place]
    if piece[3] < 2:
        return False
    at = random.choice([2, 3])
    piece[at] += random.choice([-1, 1])
    start, length, stride, count = piece
    return start + stride * (count - 1) + length <= sizes[access["buffer"]]


def _leave_out(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    accesses.pop(random.randrange(len(accesses)))
    return True


def _other_kind(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    access, _ = _piece(accesses, random)
    access["kind"] = "read" if access["kind"] != "read" else "write"
    access["must"] = False
    return True


def _other_buffer(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    access, _ = _piece(accesses, random)
    end = max(s + d * (c - 1) + n for s, n, d, c in access["region"])
    others = [name for name, size in sizes.items() if size >= end and name != access["buffer"]]
    if others:
        access["buffer"] = random.choice(others)
    return bool(others)


def _make_certain(accesses: Accesses, sizes: dict[str, int], random: Random) -> bool:
    """More than is touched, as certain: bytes before or after an interval."""
    access, place = _piece(accesses, random)
    start, length, stride, count = access["region"][place]
    more = random.choice(ELEMENTS)
    end = start + stride * (count - 1) + length
    places = [at for at in (start - more, end) if 0 <= at <= sizes[access["buffer"]] - more]
    if not places or access["kind"] == "atomic":
        return False
    access["region"].append([random.choice(places), more, 0, 1])
    access["must"] = True
    return True


_REGION_CHANGES: dict[str, Callable[[Accesses, dict[str, int], Random], bool]] = {
    "an element less at the start": lambda a, s, r: _shrink(a, r, "start"),
    "an element less at the end": lambda a, s, r: _shrink(a, r, "end"),
    "an element less in the middle": lambda a, s, r: _shrink(a, r, "middle"),
    "base shifted": _shift,
    "distance or count": _repeat,
}
_KIND_CHANGES: dict[str, Callable[[Accesses, dict[str, int], Random], bool]] = {
    "access left out": _leave_out,
    "another kind of access": _other_kind,
    "another buffer": _other_buffer,
    "may as must": _make_certain,
}


def _regions_hold(accesses: Accesses, sizes: dict[str, int], log: Log) -> bool:
    """Whether regions hold all that was touched, and must regions nothing else."""
    for name in {access["buffer"] for access in accesses} | log.keys():
        size = sizes[name]
        touched = [np.zeros(size, np.bool_), np.zeros(size, np.bool_)]
        for found, ranges in zip(touched, log.get(name, ((), ())), strict=True):
            for start, end in ranges:
                found[start:end] = True
        may = [np.zeros(size, np.bool_), np.zeros(size, np.bool_)]
        for access in (a for a in accesses if a["buffer"] == name):
            region = np.zeros(size, np.bool_)
            for start, length, stride, count in access["region"]:
                for i in range(count):
                    region[start + i * stride : start + i * stride + length] = True
            kinds = {"read": [0], "write": [1], "atomic": [0, 1]}[access["kind"]]
            for kind in kinds:
                may[kind] |= region
                if access["must"] and (region & ~touched[kind]).any():
                    return False
        if any((found & ~holds).any() for found, holds in zip(touched, may, strict=True)):
            return False
    return True


# --- loops -----------------------------------------------------------------------------------


def _in_loop(certificate: Certificate, label: str, random: Random) -> Iterator[Corruption]:
    for kind, change in _FORM_CHANGES.items():
        made = copy.deepcopy(certificate)
        claim = made["loops"][label]
        name = random.choice(sorted(claim["registers"]))
        form = claim["registers"][name]
        before = copy.deepcopy(form)
        if change(form, label, random):
            domain = _domain(certificate, label)
            is_true = before.get("buffer") == form.get("buffer") and bool(
                (_values(before, domain) == _values(form, domain)).all()
            )
            yield Corruption(kind, made, is_true)
    made = copy.deepcopy(certificate)
    made["loops"][label]["trips"]["at"] += random.choice([-1, 1])
    yield Corruption("trip count", made, False)


def _domain(certificate: Certificate, label: str) -> dict[str, NDArray[np.uint64]]:
    """All values of the symbols, each along an axis of its own."""
    ranges = dict(certificate["ranges"])
    trips = certificate["loops"][label]["trips"]
    ranges[label] = int(_values(trips, _axes(ranges)).max())
    assert ranges[label] <= _ROUNDS
    return _axes(ranges)


def _axes(ranges: dict[str, int]) -> dict[str, NDArray[np.uint64]]:
    return {
        name: np.arange(size, dtype=np.uint64).reshape(-1, *[1] * place)
        for place, (name, size) in enumerate(ranges.items())
    }


def _values(form: dict[str, Any], domain: dict[str, NDArray[np.uint64]]) -> NDArray[np.uint64]:
    total = np.full((1,), form["at"] % 2**64, np.uint64)
    for factor, symbol, divisor, modulus in form["terms"]:
        digit = domain[symbol] // np.uint64(divisor) % np.uint64(modulus)
        total = total + digit * np.uint64(factor % 2**64)
    return total


def _change_term(form: dict[str, Any], random: Random, among: list[int], place: int) -> bool:
    if among:
        term = form["terms"][random.choice(among)]
        term[place] += random.choice([-1, 1]) if term[place] > 1 else 1
    return bool(among)


def _of_rounds(form: dict[str, Any], label: str) -> list[int]:
    return [i for i, term in enumerate(form["terms"]) if term[1] == label]


def _of_threads(form: dict[str, Any], label: str) -> list[int]:
    return [i for i, term in enumerate(form["terms"]) if term[1] != label]


def _change_start(form: dict[str, Any], label: str, random: Random) -> bool:
    form["at"] += random.choice([-8, -4, -1, 1, 4, 8])
    return True


def _drop_term(form: dict[str, Any], label: str, random: Random) -> bool:
    if form["terms"]:
        form["terms"].pop(random.randrange(len(form["terms"])))
        return True
    return False


def _drop_buffer(form: dict[str, Any], label: str, random: Random) -> bool:
    return form.pop("buffer", None) is not None


_FORM_CHANGES: dict[str, Callable[[dict[str, Any], str, Random], bool]] = {
    "step of a round": lambda f, k, r: _change_term(f, r, _of_rounds(f, k), 0),
    "factor of a thread or CTA": lambda f, k, r: _change_term(f, r, _of_threads(f, k), 0),
    "divisor": lambda f, k, r: _change_term(f, r, _of_threads(f, k), 2),
    "modulus": lambda f, k, r: _change_term(f, r, _of_threads(f, k), 3),
    "start of a register": _change_start,
    "term left out": _drop_term,
    "pointer as a number": _drop_buffer,
}
