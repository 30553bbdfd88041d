"""The operator table: what serving engines compute in one kernel, and what has no entry of its own.

These are under `tessera::`, because PyTorch has no such operators. `tessc trace --device meta`
writes them in place of the operators that they stand for (`driver/trace/patterns`). They are priced
and planned; nothing runs them yet. `other` stands for an operator that is not in the table: all of
its operands are read and written whole, and it is priced by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from tessera.ir.operators import work
from tessera.ir.operators.elementwise import number
from tessera.ir.operators.matrix import attribute, operands
from tessera.ir.operators.records import (
    AttributeKind,
    AttributeSpec,
    Bound,
    Kinds,
    OperandSpec,
    Operator,
    Reach,
    ResultType,
    Shape,
    Unit,
    Work,
)

NAMESPACE = "tessera"
MOST_WRITES = 16
_OUT = (OperandSpec(name="out"),)
_INTEGER = AttributeKind.INTEGER


def fused_operators() -> Iterator[Operator]:
    """All of them."""
    several = (*_OUT, *operands(" ".join(f"out{n}?" for n in range(1, MOST_WRITES))))
    listed = OperandSpec(name="operands", is_list=True, is_optional=True)
    yield _entry("other", (listed,), work.moved, several, attribute("name", AttributeKind.TEXT, ""))
    eps = number("eps", 1e-5)
    floats = Kinds.FLOAT
    yield _entry(
        "rms_norm",
        operands("input weight?", floats),
        work.per_element_hard,
        _OUT,
        eps,
        function="fused_norm",
    )
    yield _entry(
        "add_rms_norm",
        operands("input residual weight?", floats),
        work.per_element_hard,
        (*_OUT, OperandSpec(name="sum")),
        eps,
        function="fused_norm",
    )
    yield _entry(
        "add_layer_norm",
        operands("input residual weight? bias?", floats),
        work.per_element_hard,
        (*_OUT, OperandSpec(name="sum")),
        eps,
        function="fused_norm",
    )
    kind = attribute("activation", AttributeKind.TEXT, "silu")
    yield _entry("gated", operands("gate up", floats), work.per_element_hard, _OUT, kind)
    tensors = OperandSpec(name="tensors", is_list=True)
    yield _entry("rotary", (*operands("cos sin"), tensors), work.per_element, several)
    yield _entry(
        "merged_linear",
        (*operands("input", floats), OperandSpec(name="weights", is_list=True)),
        merged,
        several,
        attribute("biased", AttributeKind.BOOL, False),
    )
    caches = tuple(
        OperandSpec(name=name, reach=Reach.INDEXED) for name in ("key_cache", "value_cache")
    )
    yield _entry(
        "cache_write",
        (*caches, *operands("index key value")),
        work.moved,
        caches,
        attribute("dim", _INTEGER, 2),
    )
    paged = (*operands("query", floats), *caches, *operands("pages attn_mask?"))
    yield _entry("paged_attention", paged, attended_pages, _OUT, number("scale"))
    sizes = (
        attribute(name, _INTEGER, required=True)
        for name in ("tokens", "hidden", "inner", "chosen", "experts")
    )
    yield _entry(
        "experts", (OperandSpec(name="operands", is_list=True),), by_experts, several, *sizes
    )


def merged(bound: Bound) -> Work:
    """Two operations per element of all results and step of the inner dimension."""
    results = sum(prod(operand.shape) for _, operand in bound.writes)
    return Work(2.0 * bound.shape("input")[-1] * results, Unit.MATRIX)


def attended_pages(bound: Bound) -> Work:
    """Two products over the tokens of the pages that each sequence has."""
    query = bound.shape("query")
    return Work(4.0 * prod(query) * page_tokens(bound), Unit.MATRIX)


def page_tokens(bound: Bound) -> int:
    """Tokens of a sequence: pages of its row of the table, by the tokens of a page."""
    pages, cache = bound.shape("pages"), bound.shape("key_cache")
    size = cache[1] if len(cache) > 1 else 1
    return size * (pages[-1] if pages else 1)


def by_experts(bound: Bound) -> Work:
    """Three products for each expert that a token goes to."""
    matrix = 3.0 * bound.integer("hidden") * bound.integer("inner")
    return Work(2.0 * bound.integer("tokens") * bound.integer("chosen") * matrix, Unit.MATRIX)


def _entry(
    name: str,
    reads: tuple[OperandSpec, ...],
    effort: Callable[[Bound], Work],
    writes: tuple[OperandSpec, ...],
    *attributes: AttributeSpec,
    function: str = "",
) -> Operator:
    """An entry; results are what the operators had that it stands for, of any shape."""

    def shapes(bound: Bound) -> tuple[Shape | None, ...]:
        return (None,) * len(bound.writes)

    return Operator(
        name=f"{NAMESPACE}::{name}",
        function=function or name,
        reads=reads,
        writes=writes,
        attributes=attributes,
        shapes=shapes,
        work=effort,
        result=ResultType.FREE,
    )
