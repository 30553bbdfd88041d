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


_NORM = """
?f = _to_copy(s)
p = pow.Tensor_Scalar(f)
m = mean.dim(p)
e = add.Tensor(m)
q = rsqrt(e)
n = mul.Tensor(f, q)
?c = _to_copy(n)
o = mul.Tensor(c, w)
"""
_ADDED_NORM = f"s = add.Tensor(x, r){_NORM}"
_NORM_EXAMPLE = """aten::_to_copy reads=[s:bf16[4,8]] writes=[f:f32[4,8]] attrs={"dtype":"f32"}
aten::pow.Tensor_Scalar reads=[f:f32[4,8]] writes=[p:f32[4,8]] attrs={"exponent":2}
aten::mean.dim reads=[p:f32[4,8]] writes=[m:f32[4,1]] attrs={"dim":[-1],"keepdim":true}
aten::add.Tensor reads=[m:f32[4,1]] writes=[e:f32[4,1]] attrs={"other":1e-06}
aten::rsqrt reads=[e:f32[4,1]] writes=[q:f32[4,1]]
aten::mul.Tensor reads=[f:f32[4,8], q:f32[4,1]] writes=[n:f32[4,8]]
aten::_to_copy reads=[n:f32[4,8]] writes=[c:bf16[4,8]] attrs={"dtype":"bf16"}
aten::mul.Tensor reads=[w:bf16[8], c:bf16[4,8]] writes=[o:bf16[4,8]]"""
_ADD_EXAMPLE = "aten::add.Tensor reads=[x:bf16[4,8], r:bf16[4,8]] writes=[s:bf16[4,8]]"

PATTERNS: tuple[OperatorPattern, ...] = (
    OperatorPattern(
        name="norm with residual",
        says="a sum, and the root mean square norm of it",
        operator="tessera::add_rms_norm",
        text=_ADDED_NORM,
        make=makers.squared(makers.plain("tessera::add_rms_norm", "x r w", "o s", eps="e")),
        example=f"{_ADD_EXAMPLE}\n{_NORM_EXAMPLE}",
    ),
    OperatorPattern(
        name="norm",
        says="a root mean square norm, written out",
        operator="tessera::rms_norm",
        text=_NORM,
        make=makers.squared(makers.plain("tessera::rms_norm", "s w", "o", eps="e")),
        example=_NORM_EXAMPLE,
    ),
    OperatorPattern(
        name="layer norm with residual",
        says="a sum, and the layer norm of it",
        operator="tessera::add_layer_norm",
        text="s = add.Tensor(x, r)\no = native_layer_norm(s, w?, b?)",
        make=makers.added_layer_norm,
        example=f"""{_ADD_EXAMPLE}
aten::native_layer_norm reads=[s:bf16[4,8], w:bf16[8], b:bf16[8]] writes=[o:bf16[4,8]] \
attrs={{"normalized_shape":[8],"eps":1e-06}}""",
    ),
    OperatorPattern(
        name="rotary embedding",
        says="a tensor times cosines, plus its halves swapped and one negated times sines",
        operator="tessera::rotary",
        text="""a = mul.Tensor(x, c)
n = neg(x)
j = cat(n, x)
b = mul.Tensor(j, s)
o = add.Tensor(a, b)""",
        make=makers.rotary,
        example="""aten::mul.Tensor reads=[x:bf16[4,8], c:bf16[4,8]] writes=[a:bf16[4,8]]
aten::neg reads=[x+8:bf16[4,4]{8,1}] writes=[n:bf16[4,4]]
aten::cat reads=[n:bf16[4,4], x:bf16[4,4]{8,1}] writes=[j:bf16[4,8]] attrs={"dim":-1}
aten::mul.Tensor reads=[j:bf16[4,8], s:bf16[4,8]] writes=[b:bf16[4,8]]
aten::add.Tensor reads=[a:bf16[4,8], b:bf16[4,8]] writes=[o:bf16[4,8]]""",
    ),
    OperatorPattern(
        name="gated activation",
        says="the activation of one half of an MLP times the other half",
        operator="tessera::gated",
        text="s = silu|gelu|sigmoid|relu(g)\no = mul.Tensor(s, u)",
        make=makers.gated,
        example="""aten::silu reads=[g:bf16[4,8]] writes=[s:bf16[4,8]]
aten::mul.Tensor reads=[s:bf16[4,8], u:bf16[4,8]] writes=[o:bf16[4,8]]""",
    ),
    OperatorPattern(
        name="attention written out",
        says="a product, a scale, a mask that is added, a softmax, a product",
        operator=makers.ATTENTION,
        text="""s = bmm(q, k)
?d = mul.Tensor|div.Tensor(s)
?a = add.Tensor(d, mask)
?f = _to_copy(a)
p = _softmax(f)
?c = _to_copy(p)
o = bmm(c, v)""",
        make=makers.written_out,
        example="""aten::bmm reads=[q:bf16[6,4,8], k:bf16[6,8,5]{40,1,8}] writes=[s:bf16[6,4,5]]
aten::mul.Tensor reads=[s:bf16[2,3,4,5]] writes=[d:bf16[2,3,4,5]] attrs={"other":0.25}
aten::add.Tensor reads=[d:bf16[2,3,4,5], mask:bf16[2,1,4,5]] writes=[a:bf16[2,3,4,5]]
aten::_softmax reads=[a:bf16[2,3,4,5]] writes=[p:f32[2,3,4,5]] \
attrs={"dim":-1,"half_to_float":true}
aten::_to_copy reads=[p:f32[2,3,4,5]] writes=[c:bf16[2,3,4,5]] attrs={"dtype":"bf16"}
aten::bmm reads=[c:bf16[6,4,5], v:bf16[6,5,8]] writes=[o:bf16[6,4,8]]""",
    ),
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
        name="rotary embedding of queries and keys",
        says="rotary embeddings by the same cosines and sines",
        operator="tessera::rotary",
        operators=("tessera::rotary",),
        shared=(0, 1),
        make=makers.rotated,
        example="""tessera::rotary reads=[c:bf16[4,8], s:bf16[4,8], x:bf16[4,8]] \
writes=[a:bf16[4,8]]
tessera::rotary reads=[c:bf16[4,8], s:bf16[4,8], y:bf16[4,8]] writes=[b:bf16[4,8]]""",
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
