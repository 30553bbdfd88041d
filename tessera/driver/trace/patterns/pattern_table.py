"""The table of patterns: each pattern, its replacement, and an example.

An example is the `op` records of a small program with one match. Docs and tests are made from
these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tessera.driver.trace.patterns import makers
from tessera.ir.program import program as ir


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPattern:
    """Operators that one operator replaces. `says` is for readers of the docs."""

    name: str
    says: str
    operator: str
    text: str
    make: makers.Maker
    example: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Twins:
    """Calls of one kind that share operands (`shared` counts reads) and become one call.

    `most`: the exact number of calls; 0: any number.
    """

    name: str
    says: str
    operator: str
    operators: tuple[str, ...]
    shared: tuple[int, ...]
    make: Callable[[Sequence[ir.LibraryCall]], ir.LibraryCall | None]
    example: str
    most: int = 0


PATTERNS: tuple[OperatorPattern, ...] = (
    OperatorPattern(
        name="product with one weight",
        says="a batch of products with one weight, which is repeated along the batch",
        operator="aten::mm",
        text="o = bmm(x, w)",
        make=makers.one_weight,
        example="aten::bmm reads=[x:bf16[4,1,8], w:bf16[4,8,6]{0,6,1}] writes=[o:bf16[4,1,6]]",
    ),
    OperatorPattern(
        name="attention over shared heads",
        says="attention over keys and values that were repeated for the heads of a group",
        operator=makers.ATTENTION,
        text="""k2 = clone(k)
v2 = clone(v)
o = scaled_dot_product_attention(q, k2, v2, mask?)""",
        make=makers.shared_heads,
        example="""aten::clone reads=[k:bf16[2,3,2,5,8]{120,40,0,8,1}] writes=[k2:bf16[2,3,2,5,8]]
aten::clone reads=[v:bf16[2,3,2,5,8]{120,40,0,8,1}] writes=[v2:bf16[2,3,2,5,8]]
aten::scaled_dot_product_attention reads=[q:bf16[2,6,1,8], k2:bf16[2,6,5,8], v2:bf16[2,6,5,8]] \
writes=[o:bf16[2,6,1,8]]""",
    ),
    OperatorPattern(
        name="attention over a paged cache",
        says="attention over pages that a table picks out of a cache",
        operator="tessera::paged_attention",
        text="""kp = index.Tensor|index_select(kc, pages)
?k2 = clone(kp)
vp = index.Tensor|index_select(vc, pages)
?v2 = clone(vp)
o = scaled_dot_product_attention(q, k2, v2, mask?)""",
        make=makers.paged,
        example="""aten::index.Tensor reads=[kc:bf16[9,4,3,8], pages:s64[2,5]] \
writes=[kp:bf16[2,5,4,3,8]]
aten::index.Tensor reads=[vc:bf16[9,4,3,8], pages:s64[2,5]] writes=[vp:bf16[2,5,4,3,8]]
aten::scaled_dot_product_attention reads=[q:bf16[2,6,1,8], kp:bf16[2,3,20,8]{480,8,24,1}, \
vp:bf16[2,3,20,8]{480,8,24,1}] writes=[o:bf16[2,6,1,8]] attrs={"enable_gqa":true}""",
    ),
)

TWINS: tuple[Twins, ...] = (
    Twins(
        name="projections of one input",
        says="products of one input with several weights (queries, keys and values; gate and up)",
        operator="tessera::merged_linear",
        operators=("aten::mm",),
        shared=(0,),
        make=makers.merged,
        example="""aten::mm reads=[x:bf16[4,8], w:bf16[8,6]{1,8}] writes=[a:bf16[4,6]]
aten::mm reads=[x:bf16[4,8], v:bf16[8,2]{1,8}] writes=[b:bf16[4,2]]""",
    ),
    Twins(
        name="projections of one input, with biases",
        says="likewise, each with a bias",
        operator="tessera::merged_linear",
        operators=("aten::addmm",),
        shared=(1,),
        make=makers.merged,
        example="""aten::addmm reads=[i:bf16[6], x:bf16[4,8], w:bf16[8,6]{1,8}] writes=[a:bf16[4,6]]
aten::addmm reads=[j:bf16[2], x:bf16[4,8], v:bf16[8,2]{1,8}] writes=[b:bf16[4,2]]""",
    ),
    Twins(
        name="keys and values into their caches",
        says="two copies to the same places of two caches",
        operator="tessera::cache_write",
        operators=("aten::index_copy_",),
        shared=(1,),
        make=makers.cached,
        most=2,
        example="""aten::index_copy_ reads=[kc:bf16[2,3,9,8], i:s64[1], k:bf16[2,3,1,8]] \
writes=[kc:bf16[2,3,9,8]] attrs={"dim":2}
aten::index_copy_ reads=[vc:bf16[2,3,9,8], i:s64[1], v:bf16[2,3,1,8]] \
writes=[vc:bf16[2,3,9,8]] attrs={"dim":2}""",
    ),
)
