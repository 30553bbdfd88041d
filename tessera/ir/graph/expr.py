"""Index expressions: sums of products of symbols with whole coefficients.

In: nothing. Out: frozen records in canonical form, so that equal expressions are equal records.
A symbol is a text: a special register (`tid.x`), a parameter (`n`), a loop counter (`i1`), or an
operation that is no sum or product, written out (`(tid.x / 32)`). The text of an expression is
its terms, constants last: `4*ctaid.x*ntid.x + 4*tid.x + 8`.

Expressions describe a kernel for people; they are over whole numbers and leave out that registers
wrap. What a launch touches is computed on numbers (`passes.footprint`), never from these.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Term:
    """`coefficient` times the product of symbols, which are sorted; no symbol: a constant."""

    coefficient: int
    symbols: tuple[str, ...] = ()


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
            factors = [*([str(size)] if size != 1 or not term.symbols else []), *term.symbols]
            sign = "-" if term.coefficient < 0 else "+"
            text += f" {sign} {'*'.join(factors)}"
        return text.removeprefix(" + ").removeprefix(" ")

    @property
    def constant(self) -> int | None:
        """The value of an expression without symbols."""
        if not self.terms:
            return 0
        only = self.terms[0]
        return only.coefficient if len(self.terms) == 1 and not only.symbols else None


def collect(terms: Iterable[Term]) -> Expression:
    """The sum of terms in canonical form."""
    coefficients: dict[tuple[str, ...], int] = {}
    for term in terms:
        coefficients[term.symbols] = coefficients.get(term.symbols, 0) + term.coefficient
    kept = [Term(value, symbols) for symbols, value in coefficients.items() if value]
    return Expression(tuple(sorted(kept, key=lambda t: (not t.symbols, t.symbols))))


def constant(value: int) -> Expression:
    """A number."""
    return collect([Term(value)])


def symbol(text: str) -> Expression:
    """One symbol."""
    return Expression((Term(1, (text,)),))


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
