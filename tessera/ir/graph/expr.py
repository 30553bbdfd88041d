"""Index expressions: sums of products of symbols with integer coefficients.

In: nothing. Out: frozen records in canonical form, so that equal expressions are equal records. A
symbol is a special register (`tid.x`), a parameter (`n`), a loop counter (`i1`), a register that is
not understood (`%r7?`), or an operation other than a sum or product (`(tid.x / 32)`). Its text is
for people; other fields hold the facts about it. The text of an expression is its terms, constants
last: `4*ctaid.x*ntid.x + 4*tid.x + 8`.

Expressions describe a kernel for people. They are over unbounded integers and ignore that registers
wrap. The bytes that a launch touches are computed from numbers (`passes.footprint`), never from
expressions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


class Origin(enum.IntEnum):
    """The origin of a symbol.

    It is a name or an operation, a value loaded from memory, a register that is not understood, or
    a register whose expression is still being built.
    """

    NAMED = 0
    LOADED = 1
    OPEN = 2
    UNFINISHED = 3


@dataclass(frozen=True, slots=True, order=True)
class Symbol:
    """A factor of a term. `register` is the register of a value without a name; `parts` are the
    symbols in an operation."""

    text: str
    origin: Origin = Origin.NAMED
    register: str = ""
    parts: tuple[Symbol, ...] = ()

    def walk(self) -> Iterator[Symbol]:
        """The symbol and all symbols in it, in the order of the text."""
        yield self
        for part in self.parts:
            yield from part.walk()


@dataclass(frozen=True, slots=True)
class Term:
    """`coefficient` times the product of sorted symbols; without symbols, a constant."""

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
        """All symbols, including those in operations, in the order of the text."""
        return (part for term in self.terms for symbol in term.symbols for part in symbol.walk())

    def has(self, *origins: Origin) -> bool:
        """Whether the expression contains a symbol of one of these origins."""
        return any(symbol.origin in origins for symbol in self.symbols())

    @property
    def is_known(self) -> bool:
        """Whether the expression contains only names and counters."""
        return not self.has(Origin.LOADED, Origin.OPEN, Origin.UNFINISHED)

    @property
    def constant(self) -> int | None:
        """The value of an expression without symbols; else None."""
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
    """The expression of a name, or of an operation on `parts`."""
    inside = tuple(s for part in parts for term in part.terms for s in term.symbols)
    return Expression((Term(1, (Symbol(text, parts=inside),)),))


def register(name: str, origin: Origin) -> Expression:
    """The expression of a register whose value is not an expression of names."""
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
    """left / by if `by` divides every coefficient, else None."""
    if by == 0 or any(term.coefficient % by for term in left.terms):
        return None
    return collect(Term(t.coefficient // by, t.symbols) for t in left.terms)
