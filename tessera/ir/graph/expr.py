"""Index expressions: sums of products of symbols with whole coefficients.

In: nothing. Out: frozen records in canonical form, so that equal expressions are equal records.
A symbol is a special register (`tid.x`), a parameter (`n`), a loop counter (`i1`), a register that
is not understood (`%r7?`), or an operation that is no sum or product, written out (`(tid.x / 32)`).
Its text is for people; what is known of it is beside the text. The text of an expression is its
terms, constants last: `4*ctaid.x*ntid.x + 4*tid.x + 8`.

Expressions describe a kernel for people; they are over whole numbers and leave out that registers
wrap. What a launch touches is computed on numbers (`passes.footprint`), never from these.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


class Origin(enum.IntEnum):
    """Where a symbol comes from: it is a name or an operation, a value loaded from memory, a
    register that is not understood, or one whose expression is being made."""

    NAMED = 0
    LOADED = 1
    OPEN = 2
    UNFINISHED = 3


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A factor of a term. `register` is the one of a value that is no name; `parts` are the symbols
    in an operation that is written out."""

    text: str
    origin: Origin = Origin.NAMED
    register: str = ""
    parts: tuple[Symbol, ...] = ()

    def walk(self) -> Iterator[Symbol]:
        """The symbol and all in it, in the order of the text."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Term:
    """`coefficient` times the product of symbols, which are sorted; no symbol: a constant."""

    coefficient: int
    symbols: tuple[Symbol, ...] = ()


@dataclass(frozen=True, slots=True)
class Expression:
    """A sum. Terms have distinct symbols, no zero coefficients, and constants come last."""

    terms: tuple[Term, ...] = ()

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for term in self.terms:
            size = abs(term.coefficient)
            factors = [
                *([str(size)] if size != 1 or not term.symbols else []),
                *(s.text for s in term.symbols),
            ]
            sign = "-" if term.coefficient < 0 else "+"
            text += f" {sign} {'*'.join(factors)}"
        return text.removeprefix(" + ").removeprefix(" ")

    def symbols(self) -> Iterator[Symbol]:
        """All symbols, those in operations too, in the order of the text."""
        return (part for term in self.terms for symbol in term.symbols for part in symbol.walk())

    def has(self, *origins: Origin) -> bool:
        """Whether a symbol of one of these origins is in it."""
        return any(symbol.origin in origins for symbol in self.symbols())

    @property
    def is_known(self) -> bool:
        """Whether it has names and counters alone."""
        return not self.has(Origin.LOADED, Origin.OPEN, Origin.UNFINISHED)

    @property
    def constant(self) -> int | None:
        """The value of an expression without symbols."""
        if not self.terms:
            return 0
        only = self.terms[0]
        return only.coefficient if len(self.terms) == 1 and not only.symbols else None


def collect(terms: Iterable[Term]) -> Expression:
    """The sum of terms in canonical form."""
    coefficients: dict[tuple[Symbol, ...], int] = {}
    for term in terms:
        coefficients[term.symbols] = coefficients.get(term.symbols, 0) + term.coefficient
    kept = [Term(value, symbols) for symbols, value in coefficients.items() if value]
    return Expression(tuple(sorted(kept, key=lambda t: (not t.symbols, t.symbols))))


def constant(value: int) -> Expression:
    """A number."""
    return collect([Term(value)])


def symbol(text: str, *parts: Expression) -> Expression:
    """A name, or an operation on expressions, written out."""
    inside = tuple(s for part in parts for term in part.terms for s in term.symbols)
    return Expression((Term(1, (Symbol(text, parts=inside),)),))


def register(name: str, origin: Origin) -> Expression:
    """What a register holds that is no expression of names."""
    text = f"data.{name}?" if origin is Origin.LOADED else f"{name}?"
    return Expression((Term(1, (Symbol(text, origin, name),)),))


ANYTHING = register("", Origin.OPEN)


def add(left: Expression, right: Expression, factor: int = 1) -> Expression:
    """left + factor * right."""
    scaled = [Term(factor * t.coefficient, t.symbols) for t in right.terms]
    return collect([*left.terms, *scaled])


def multiply(left: Expression, right: Expression) -> Expression:
    """The product."""
    return collect(
        Term(a.coefficient * b.coefficient, tuple(sorted((*a.symbols, *b.symbols))))
        for a in left.terms
        for b in right.terms
    )


def divide(left: Expression, by: int) -> Expression | None:
    """left / by where every coefficient divides, else None."""
    if by == 0 or any(term.coefficient % by for term in left.terms):
        return None
    return collect(Term(t.coefficient // by, t.symbols) for t in left.terms)
