"""The operator table: operators that serving engines fuse into one kernel, and a catch-all entry.

Their names are under `tessera::`, because PyTorch does not have these operators.
`tessc trace --device meta` writes them in place of the operators that they replace
(`driver/trace/patterns`).
They are priced and planned; no backend runs them. `other` stands for an operator that is not in the
table: all of its operands are read and written whole, and it is priced by their bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tessera.ir.operators import work
from tessera.ir.operators.notation import (
    REQUIRED,
    WorkRule,
    flag,
    forms,
    integer,
    number,
    type_name,
    word,
)
from tessera.ir.operators.records import (
    AttributeSpec,
    Bound,
    Kinds,
    Operator,
    ResultType,
    Shape,
    Unit,
    Work,
)

NAMESPACE = "tessera"
MOST_WRITES = 16
_SEVERAL = " ".join(["out", *(f"out{n}?" for n in range(1, MOST_WRITES))])


def fused_operators() -> Iterator[Operator]:
    """All fused operators."""
    yield from _fused("other", "operands*?", work.moved, word("name", ""), writes=_SEVERAL)
    for name, reads, writes in (
        ("rms_norm", "input weight?", "out"),
        ("add_rms_norm", "input residual weight?", "out sum"),
        ("add_layer_norm", "input residual weight? bias?", "out sum"),
    ):
        yield from _fused(
            name,
            reads,
            work.per_element_hard,
            number("eps", 1e-5),
            function="fused_norm",
            kinds=Kinds.FLOAT,
            writes=writes,
        )
    gated = "gate:float up:float"
    yield from _fused("gated", gated, work.per_element_hard, word("activation", "silu"))
    yield from _fused("rotary", "cos sin tensors*", work.per_element, writes=_SEVERAL)
    layers = "input:float weights*"
    yield from _fused("merged_linear", layers, merged, flag("biased"), writes=_SEVERAL)
    arithmetic = type_name("arithmetic", REQUIRED)
    yield from _fused("quantized_linear", layers, merged, arithmetic, writes=_SEVERAL)
    caches = "key_cache@ value_cache@"
    written = f"{caches} index key value"
    yield from _fused("cache_write", written, work.moved, integer("dim", 2), writes=caches)
    paged = f"query:float {caches} pages attn_mask?"
    yield from _fused("paged_attention", paged, attended_pages, number("scale"))
    yield from _fused(
        "latent_attention",
        "query:float latent:float shared:float weight:float attn_mask?",
        attended_latent,
        number("scale"),
        flag("is_causal"),
    )
    sizes = (integer(name, REQUIRED) for name in ("tokens", "hidden", "inner", "chosen", "experts"))
    yield from _fused("experts", "operands*", by_experts, *sizes, writes=_SEVERAL)
    said = word("dims", REQUIRED), number("operations", REQUIRED), word("of", "")
    for name, unit in (
        ("fused", Unit.PLAIN),
        ("fused_rows", Unit.PLAIN),
        ("fused_products", Unit.MATRIX),
    ):
        yield from _fused(name, "operands*?", stated(unit), *said, writes=_SEVERAL)


def stated(unit: Unit) -> WorkRule:
    """As many operations as the call says."""
    return lambda bound: Work(bound.number("operations"), unit)


def merged(bound: Bound) -> Work:
    """Two operations per element of all results and per step of the inner dimension."""
    results = sum(prod(operand.shape) for _, operand in bound.writes)
    return Work(2.0 * bound.shape("input")[-1] * results, Unit.MATRIX)


def attended_pages(bound: Bound) -> Work:
    """Two products over the tokens of the pages that each sequence has."""
    query = bound.shape("query")
    return Work(4.0 * prod(query) * page_tokens(bound), Unit.MATRIX)


def attended_latent(bound: Bound) -> Work:
    """Queries and results times the weight, and two products over the latent keys."""
    query, (*_, keys, rank) = bound.shape("query"), bound.shape("latent")
    made, shared = bound.writes[0][1].shape[-1], bound.shape("shared")[-1]
    weight = rank * (query[-1] - shared + made)
    return Work(2.0 * prod(query[:-1]) * (weight + keys * (2 * rank + shared)), Unit.MATRIX)


def page_tokens(bound: Bound) -> int:
    """The tokens of a sequence: the pages in its row of the table, times the tokens per page."""
    pages, cache = bound.shape("pages"), bound.shape("key_cache")
    size = cache[1] if len(cache) > 1 else 1
    return size * (pages[-1] if pages else 1)


def by_experts(bound: Bound) -> Work:
    """Three products for each expert that a token is routed to."""
    matrix = 3.0 * bound.integer("hidden") * bound.integer("inner")
    return Work(2.0 * bound.integer("tokens") * bound.integer("chosen") * matrix, Unit.MATRIX)


def _fused(
    name: str,
    reads: str,
    effort: WorkRule,
    *attributes: AttributeSpec,
    function: str = "",
    kinds: Kinds = Kinds.ANY,
    writes: str = "out",
) -> Iterator[Operator]:
    """An entry; its results are those of the operators that it replaces, of any shape."""

    def shapes(bound: Bound) -> tuple[Shape | None, ...]:
        return (None,) * len(bound.writes)

    return forms(
        name,
        reads,
        shapes,
        effort,
        *attributes,
        function=function,
        kinds=kinds,
        writes=writes,
        result=ResultType.FREE,
        namespace=NAMESPACE,
    )
