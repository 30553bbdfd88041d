"""Unknown numbers by name, so that what is known of one is known of all that is computed from it.

A `DataSymbol` is a number that data decides: one whole number per thread, from `low` to `high`. A
`SymbolForm` says that a value of w bits is `at + sum(factor * symbol)` modulo 2**w in the threads
of `where`; `at` grows with the digits of the CTA's number as the value does (`slopes`). Sums,
products by numbers and low bits keep forms as they stand, since arithmetic modulo 2**w is exact;
whoever asks for the number itself takes the interval (`interval`). A form only adds to the interval
of its value: code that loses it errs towards larger intervals.

A comparison tells something about symbols: if it holds, the sum of some symbols times factors is in
an interval (`SumBound`). On the side of a branch, under a guard, or after a trap this is assumed
(`Assumptions.assume`) until the side ends (`undo`). What is assumed is about numbers that never
change again: a register that is written again, or computed in the next round of a loop, has another
symbol.

Two instructions that compute the same from the same numbers have one symbol (`Assumptions.name`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from tessera.ir.arrays import Flags, Signed, Words

MOST = 1 << 62
_MOST_TERMS = 4
_MOST_FACTS = 32
_TOP = (1 << 63) - 1
_BOTTOM = -(1 << 63)
_EVERYWHERE: Flags = np.ones((1, 1), dtype=np.bool_)
U64 = np.uint64


class DataSymbol:
    """A number per thread, from `low` to `high`; `sums` are bounds of sums with it in them.

    `is_shared`: all threads of a CTA have the same number. `is_case`: it is a number only if
    another one has a sign (`named_values.by_sign`); what is known of it is of no concern otherwise.
    """

    __slots__ = ("high", "is_case", "is_shared", "low", "number", "sums")

    def __init__(self, number: int, low: Signed, high: Signed, *, is_shared: bool = False) -> None:
        self.number = number
        self.is_case = False
        self.low = low
        self.high = high
        self.sums: tuple[SumBound, ...] = ()
        self.is_shared = is_shared


Terms = tuple[tuple[DataSymbol, int], ...]
"""Symbols with their factors, in the order of the symbols' numbers; no factor is 0."""


class SymbolForm(NamedTuple):
    """See the module docstring."""

    at: Words
    terms: Terms
    where: Flags = _EVERYWHERE


class SumBound(NamedTuple):
    """The sum of symbols times factors is from `low` to `high`, in each thread."""

    terms: Terms
    low: Signed
    high: Signed


Bounds = tuple[SumBound, ...]


class PredicateFacts(NamedTuple):
    """What is known if a predicate holds (or a number is not 0), and if it does not."""

    true: Bounds = ()
    false: Bounds = ()


def number(value: int) -> Signed:
    """A number that is the same for all threads."""
    return np.array([[value]], dtype=np.int64)


# --- forms ---------------------------------------------------------------------------------


def signed(value: int, bits: int) -> int:
    """A factor modulo 2**bits as the whole number that is nearest to 0."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _terms(factors: dict[DataSymbol, int], bits: int) -> Terms | None:
    kept = [(symbol, signed(factor, bits)) for symbol, factor in factors.items()]
    kept = sorted((t for t in kept if t[1]), key=lambda term: term[0].number)
    return tuple(kept) if len(kept) <= _MOST_TERMS else None


def plus(a: SymbolForm, b: SymbolForm, bits: int) -> SymbolForm | None:
    """The form of a sum."""
    factors = dict(a.terms)
    for symbol, factor in b.terms:
        factors[symbol] = factors.get(symbol, 0) + factor
    terms = _terms(factors, bits)
    if not terms:
        return None
    return SymbolForm((a.at + b.at) & U64((1 << bits) - 1), terms, a.where & b.where)


def times(a: SymbolForm, factor: int, bits: int) -> SymbolForm | None:
    """The form of a product by a number."""
    terms = _terms({symbol: own * factor for symbol, own in a.terms}, bits)
    if not terms:
        return None
    return SymbolForm(a.at * U64(factor & ((1 << 64) - 1)) & U64((1 << bits) - 1), terms, a.where)


def low_bits(a: SymbolForm, bits: int) -> SymbolForm | None:
    """The form of the low bits."""
    terms = _terms(dict(a.terms), bits)
    return SymbolForm(a.at & U64((1 << bits) - 1), terms, a.where) if terms else None


def total(terms: Terms) -> tuple[Signed, Signed] | None:
    """The least and the greatest sum of symbols times factors; None if the numbers are too large
    to count with."""
    least = most = 0
    for symbol, factor in terms:
        ends = (int(symbol.low.min()) * factor, int(symbol.high.max()) * factor)
        least, most = least + min(ends), most + max(ends)
    if least < _BOTTOM or most > _TOP:
        return None
    low, high = number(0), number(0)
    for symbol, factor in terms:
        first, last = symbol.low * factor, symbol.high * factor
        low, high = low + np.minimum(first, last), high + np.maximum(first, last)
    if len(terms) > 1:
        low, high = _by_sums(terms, low, high)
    return low, high


def _by_sums(terms: Terms, low: Signed, high: Signed) -> tuple[Signed, Signed]:
    """Bounds of a sum by the known bounds of a multiple of some of its terms."""
    factors = dict(terms)
    known = {id(bound): bound for symbol, _ in terms for bound in symbol.sums}
    for bound in known.values():
        times = factors.get(bound.terms[0][0], 0) // bound.terms[0][1]
        if any(factors.get(s) != f * times for s, f in bound.terms):
            continue
        inside = {symbol for symbol, _ in bound.terms}
        rest = total(tuple(term for term in terms if term[0] not in inside))
        usable = max(abs(int(bound.low.min())), abs(int(bound.high.max()))) * abs(times) < MOST
        if (
            rest is None
            or not usable
            or max(abs(int(r)) for r in (rest[0].min(), rest[1].max())) >= MOST
        ):
            continue
        first, last = bound.low * times, bound.high * times
        low = np.maximum(low, rest[0] + np.minimum(first, last))
        high = np.minimum(high, rest[1] + np.maximum(first, last))
    return low, high


def interval(form: SymbolForm, bits: int) -> tuple[Words, Words, Flags] | None:
    """The start of a form's values (modulo 2**bits), how far they reach, and where that holds.

    Where a symbol has no value left no thread is here, and any interval will do.
    """
    sums = total(form.terms)
    if sums is None:
        return None
    low, high = sums
    reach = np.maximum(high, low).view(U64) - low.view(U64)
    mask = U64((1 << bits) - 1)
    return (form.at + low.view(U64)) & mask, reach, form.where & (reach <= mask)


def impossible(form: SymbolForm | None) -> Flags:
    """The threads in which some symbol of a form has no value left: they are not here."""
    none = ~_EVERYWHERE
    if form is not None:
        for symbol, _ in form.terms:
            none = none | (form.where & (symbol.low > symbol.high))
    return none


def extended(form: SymbolForm, bits: int, *, is_signed: bool) -> SymbolForm | None:
    """The form of a value of `bits` bits as one of 64, where its values do not pass the ends of
    their type."""
    sums, reached = total(form.terms), interval(form, bits)
    if sums is None or reached is None:
        return None
    lo, reach, where = reached
    mask, half = U64((1 << bits) - 1), U64(1 << (bits - 1) if is_signed else 0)
    turned = (lo + half) & mask
    where = where & (reach <= mask - turned)
    if not where.any():
        return None
    return SymbolForm(turned - half - sums[0].view(U64), form.terms, where)


def granularity(form: SymbolForm) -> int:
    """A power of two that all values of a form are multiples of."""
    bits = int(np.bitwise_or.reduce(form.at, axis=None)) | (1 << 20)
    for _, factor in form.terms:
        bits |= abs(factor)
    return bits & -bits


# --- what is assumed -----------------------------------------------------------------------


class _Saved(NamedTuple):
    symbol: DataSymbol
    low: Signed
    high: Signed
    sums: tuple[SumBound, ...]


class Assumptions:
    """The symbols of a run, and what is assumed of them on the way to the current instruction.

    `trail` has what to put back, and the names that were given since: what a name stands for was
    computed under what was assumed then.
    """

    def __init__(self) -> None:
        self.count = 0
        self.case: object | None = None
        self.names: dict[object, SymbolForm] = {}
        self.trail: list[_Saved | object] = []

    def fresh(self, low: Signed, high: Signed, *, is_shared: bool = False) -> DataSymbol:
        """A new symbol."""
        self.count += 1
        symbol = DataSymbol(self.count, low, high, is_shared=is_shared)
        symbol.is_case = self.case is not None
        return symbol

    def name(self, key: object, form: SymbolForm) -> None:
        """Have a form stand for whatever is computed in the same way again."""
        self.names[key] = form
        self.trail.append(key)

    def assume(
        self, bounds: Iterable[SumBound], where: Flags, certain: Flags | None = None
    ) -> None:
        """Assume bounds in the threads of `where`.

        `certain` are threads that surely come here, and for which the launch fails if a bound does
        not hold: what one of them knows of a number that its CTA shares, all threads know.
        """
        for bound in bounds:
            if len(bound.terms) == 1:
                self._narrow(bound, where, certain)
            elif bool(where.all()):
                self.keep(bound)

    def keep(self, bound: SumBound) -> None:
        """Assume a bound of a sum, in all threads."""
        for symbol, _ in bound.terms:
            self._save(symbol)
            symbol.sums = (*symbol.sums, bound)

    def _save(self, symbol: DataSymbol) -> None:
        self.trail.append(_Saved(symbol, symbol.low, symbol.high, symbol.sums))

    def _narrow(self, bound: SumBound, where: Flags, certain: Flags | None) -> None:
        ((symbol, factor),) = bound.terms
        low, high = _divided(bound, factor)
        self._save(symbol)
        if symbol.is_shared and certain is not None and certain.any():
            low = np.where(certain, low, _BOTTOM).max(axis=-1, keepdims=True)
            high = np.where(certain, high, _TOP).min(axis=-1, keepdims=True)
            where = _EVERYWHERE
        narrow_low = np.where(where, np.maximum(symbol.low, low), symbol.low)
        narrow_high = np.where(where, np.minimum(symbol.high, high), symbol.high)
        symbol.low, symbol.high = narrow_low, narrow_high

    def undo(self, mark: int) -> None:
        """Put back what was assumed since the trail had this length."""
        while len(self.trail) > mark:
            last = self.trail.pop()
            if isinstance(last, _Saved):
                last.symbol.low, last.symbol.high, last.symbol.sums = last[1:]
            else:
                del self.names[last]


def _divided(bound: SumBound, factor: int) -> tuple[Signed, Signed]:
    """The bounds of a symbol of which `factor` times it is bounded; the ends say nothing."""
    no_low, no_high = bound.low == _BOTTOM, bound.high == _TOP
    low, high = np.where(no_low, 0, bound.low), np.where(no_high, 0, bound.high)
    if factor < 0:
        low, high, no_low, no_high = -high, -low, no_high, no_low
    size = abs(factor)
    return np.where(no_low, _BOTTOM, -(-low // size)), np.where(no_high, _TOP, high // size)


def joined(first: Sequence[SumBound], second: Sequence[SumBound]) -> Bounds:
    """What is known if one of two things is known: bounds of the same sums, the wider ones."""
    others = {bound.terms: bound for bound in second}
    return tuple(
        SumBound(b.terms, np.minimum(b.low, o.low), np.maximum(b.high, o.high))
        for b in first
        if (o := others.get(b.terms)) is not None
    )


def only_where(bounds: Iterable[SumBound], where: Flags) -> Bounds:
    """Bounds that hold in some threads; nothing is known of the others."""
    if where.all():
        return tuple(bounds)
    if not where.any():
        return ()
    return tuple(
        SumBound(b.terms, np.where(where, b.low, _BOTTOM), np.where(where, b.high, _TOP))
        for b in bounds
    )


def merged_facts(
    mask: Flags, new: PredicateFacts | None, old: PredicateFacts | None
) -> PredicateFacts:
    """The facts of `new` in the threads of a mask, of `old` in the others."""
    pairs = zip(new or PredicateFacts(), old or PredicateFacts(), strict=True)
    return PredicateFacts(
        *(all_of((*only_where(a, mask), *only_where(b, ~mask))) for a, b in pairs)
    )


def all_of(bounds: Iterable[SumBound]) -> Bounds:
    """The same bounds, one of each sum: a loop that merges again and again has no more of them."""
    by_sum: dict[Terms, SumBound] = {}
    for bound in bounds:
        known = by_sum.get(bound.terms, bound)
        low, high = np.maximum(known.low, bound.low), np.minimum(known.high, bound.high)
        by_sum[bound.terms] = SumBound(bound.terms, low, high)
    return tuple(by_sum.values())[:_MOST_FACTS]
