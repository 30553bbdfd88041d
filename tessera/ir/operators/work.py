"""Rules of the operator table: the arithmetic of a call, for planners.

In: a bound call. Out: operations, and the unit that does them. Counts follow the usual conventions:
a multiply-add is two operations, an elementary function about ten.
"""

from __future__ import annotations

from math import prod

from tessera.ir.operators.records import Bound, Unit, Work


def moved(_bound: Bound) -> Work:
    """No arithmetic, only memory traffic."""
    return Work(0.0, Unit.MEMORY)


def per_element(bound: Bound) -> Work:
    """One operation per element of the largest tensor."""
    return Work(float(_largest(bound)), Unit.PLAIN)


def per_element_hard(bound: Bound) -> Work:
    """About ten operations per element: functions and normalisations."""
    return Work(10.0 * _largest(bound), Unit.PLAIN)


def _largest(bound: Bound) -> int:
    read = [prod(operand.shape) for _, operands in bound.reads for operand in operands]
    return max([*read, *(prod(operand.shape) for _, operand in bound.writes)], default=0)


def per_product(bound: Bound) -> Work:
    """Two operations per element of the result and per step of the inner dimension."""
    left = next(name for name in ("mat1", "batch1", "input", "self") if bound.has(name))
    depth = bound.shape(left)[-1]
    return Work(2.0 * depth * prod(bound.writes[0][1].shape), Unit.MATRIX)


def convolved(bound: Bound) -> Work:
    """Two operations per element of the result and per element of a kernel."""
    kernel = bound.shape("weight")
    return Work(2.0 * prod(bound.writes[0][1].shape) * prod(kernel[1:]), Unit.MATRIX)


def attended(bound: Bound) -> Work:
    """Two matrix products over the keys that each query sees, for each head of the queries."""
    query, value = bound.shape("query"), bound.shape("value")
    queries, keys = query[-2], value[-2]
    seen = queries * keys
    if bound.flag("is_causal"):  # query i sees the first i + 1 keys
        first = min(queries, keys)
        seen = first * (first + 1) // 2 + (queries - first) * keys
    return Work(2.0 * prod(query[:-2]) * seen * (query[-1] + value[-1]), Unit.MATRIX)


def sorted_elements(bound: Bound) -> Work:
    """n log n comparisons along a dimension."""
    shape = bound.shape("self")
    size = shape[bound.integer("dim")] if shape else 1
    return Work(float(prod(shape)) * max(1, size.bit_length()), Unit.PLAIN)
