"""The shape of a step as in tables of measured times: a GEMM, an attention, experts.

In: a library call, or a launch with a hint. Out: a `WorkShape`, or None. The shape of a call
follows from its operands. A hint on a launch is accepted only if the counted work and the bytes
that the step may touch agree with it: a name is not evidence. A launch without a hint may be a GEMM
or an attention by the shapes of the buffers that it reads and writes: if they fit in one way only,
it computes on tensor cores, and the same counts agree. `found_hint` gives that shape as a hint.
A part of a launch has the shape of its share: of the sizes along which it may be cut, the one that
fits the bytes that it touches best is scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import log, prod

from tessera.ir.operators.fused import page_tokens
from tessera.ir.operators.records import Bound, OperatorMismatch
from tessera.ir.operators.table import bind
from tessera.ir.plan.costs import LaunchWork
from tessera.ir.plan.tables import Fixed, Sizes, TableKind, WorkShape
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, Launch, LibraryCall, Operand, Role, Work, WorkHint
from tessera.planning.prices.call_shapes import shared_side, weights_of
from tessera.planning.prices.table_lookup import operations_and_bytes

_TYPES = {DataType.BF16: "bfloat16", DataType.F16: "bfloat16", DataType.E4M3: "fp8"}
_MATRIX_UNITS = ("fp16", "bf16", "fp8")
_CACHE_TYPE = "bfloat16"
_TILE = 128  # results are computed in whole tiles of this side
_QUERIES = 64  # queries per key that fit in a tile of attention
_MOST_CAUSAL = 0.8  # fraction of the work without a mask
_FACTOR = 2.0  # tolerance of counted work


@dataclass(frozen=True, slots=True)
class StepShape:
    """The shape of a step; `own` if its code is what tables measured, that of a library.

    `refused` is the reason why a hint was rejected; there is no shape then.
    """

    shape: WorkShape | None = None
    own: bool = True
    refused: str = ""


def step_shape(
    work: Work,
    counted: LaunchWork | None,
    touched: float,
    read: Sequence[Buffer] = (),
    written: Sequence[Buffer] = (),
) -> StepShape:
    """The shape of a step that touches at most these bytes of these buffers."""
    if isinstance(work, LibraryCall):
        return StepShape(call_shape(work), own=not work.operator.startswith(_NARROW))
    if not isinstance(work, Launch):
        return StepShape()
    share = 1.0 if work.ctas is None else work.grid[work.ctas.axis] / work.ctas.extent
    if work.work is None:
        whole = None if counted is None else _scaled_work(counted, 1 / share)
        found = found_hint(whole, touched / share, read, written)
        return StepShape(None if found is None else _part_shape(found, share, touched), own=False)
    shape = _part_shape(work.work, share, touched)
    if shape is None:
        return StepShape()
    if reason := contradiction(shape, counted, touched):
        return StepShape(refused=reason)
    return StepShape(shape, own=False)


# --- library calls -----------------------------------------------------------------------------


def call_shape(call: LibraryCall) -> WorkShape | None:
    """The shape of a library call; None if no table has it."""
    try:
        bound = bind(call)
    except OperatorMismatch:
        return None
    function = bound.operator.function
    if function == "attention":
        return _attention(bound)
    if function in _FUSED:
        return _FUSED[function](bound)
    left, right = _PRODUCTS.get(function, ("", ""))
    if not left or not bound.has(left) or not bound.has(right):
        return None
    first, second = bound.shape(left), bound.shape(right)
    dtype = _TYPES.get(bound.operand(left).dtype)
    if dtype is None or bound.operand(right).dtype is not bound.operand(left).dtype:
        return None
    if function in ("bmm", "baddbmm"):
        if first[0] != 1 and shared_side(bound) != 1:
            return None
        first, second = (first[0] * first[1], first[2]), second[1:]
    if len(second) != 2 or 0 in first or 0 in second:
        return None
    n = second[0] if function == "linear" else second[1]
    return WorkShape(TableKind.GEMM, (dtype,), (prod(first[:-1]), n, first[-1]))


_NARROW = "aten::_scaled_mm"  # tables measured it with the narrowing of its first operand
_PRODUCTS = {
    "mm": ("self", "mat2"),
    "addmm": ("mat1", "mat2"),
    "addmm_activation": ("mat1", "mat2"),
    "bmm": ("self", "mat2"),
    "baddbmm": ("batch1", "batch2"),
    "scaled_mm": ("self", "mat2"),
    "linear": ("input", "weight"),
}


def _attention(bound: Bound) -> WorkShape | None:
    """A few queries over many keys, or a causal attention without a mask of its own."""
    query, key = bound.shape("query"), bound.shape("key")
    dtype = _TYPES.get(bound.operand("query").dtype)
    if dtype is None or len(query) != 4 or len(key) != 4 or 0 in (*query, *key):
        return None
    batch, heads, length, head_size = query
    kv_heads, context = key[1], key[2]
    if heads % kv_heads or bound.operand("key").dtype is not bound.operand("query").dtype:
        return None
    fixed: Fixed = (dtype, _CACHE_TYPE, head_size, 0)
    is_causal = bound.flag("is_causal")
    if (length == 1 or not is_causal) and _is_generation(length, context, heads // kv_heads):
        return WorkShape(TableKind.GENERATION, fixed, (batch, context, heads * length, kv_heads))
    masked = any(bound.has(name) for name in ("attn_mask", "attn_bias"))
    if length != context or not is_causal or masked:
        return None
    return WorkShape(TableKind.CONTEXT, fixed, (batch, length, heads, kv_heads))


def _is_generation(length: int, context: int, group: int) -> bool:
    """Whether `length` queries of each of a `group` of heads do the work of a decode step.

    One tile holds the queries that share a key (rows of the tables have up to 64), and each key is
    read once for all of them. It does not matter whether these queries are heads of one token (some
    models pack the heads of a group along the axis of tokens) or tokens of one head.
    """
    return length == 1 or (length < context and length * group <= _QUERIES)


def _merged(bound: Bound) -> WorkShape | None:
    """Products of one input, as one product with the weights side by side."""
    first = bound.operand("input")
    dtype, results = _TYPES.get(first.dtype), [operand.shape for _, operand in bound.writes]
    if dtype is None or 0 in first.shape or any(0 in shape or not shape for shape in results):
        return None
    n = sum(shape[-1] for shape in results)
    return WorkShape(TableKind.GEMM, (dtype,), (prod(first.shape[:-1]), n, first.shape[-1]))


def _quantized(bound: Bound) -> WorkShape | None:
    """A product in 8-bit floats; no table has one that widens its weights."""
    made = _merged(bound)
    is_float8 = bound.attribute("arithmetic") == DataType.E4M3.value
    return replace(made, fixed=("fp8",)) if made is not None and is_float8 else None


def _paged(bound: Bound) -> WorkShape | None:
    """One new query per sequence over the pages of a cache."""
    query, key = bound.operand("query"), bound.operand("key_cache")
    dtype = _TYPES.get(query.dtype)
    if dtype is None or len(query.shape) != 4 or len(key.shape) != 4 or query.shape[2] != 1:
        return None
    batch, heads, _, head_size = query.shape
    kv_heads = key.shape[2]
    if 0 in (*query.shape, *key.shape) or heads % kv_heads:
        return None
    fixed: Fixed = (dtype, _CACHE_TYPE, head_size, 0)
    return WorkShape(TableKind.GENERATION, fixed, (batch, page_tokens(bound), heads, kv_heads))


def _experts(bound: Bound) -> WorkShape | None:
    """Experts that tokens are routed to."""
    hidden, inner, chosen, experts = (
        bound.integer(name) for name in ("hidden", "inner", "chosen", "experts")
    )
    dtype = _expert_type(weights_of(bound), experts * hidden * inner)
    if dtype is None:
        return None
    fixed: Fixed = (dtype, hidden, inner, chosen, experts)
    return WorkShape(TableKind.MOE, fixed, (bound.integer("tokens"), 1, 1))


def _expert_type(held: Sequence[Operand], matrix: int) -> str | None:
    """The type that tables have experts in, by how weights are stored; None if none has it.

    `matrix` counts the weights of one of the two or three products of all experts.
    """
    weights = max(held, key=lambda operand: prod(operand.shape), default=None)
    if weights is None:
        return None
    scales = [o.shape for o in held if o.dtype.is_float and o.dtype is not weights.dtype]
    if weights.dtype is DataType.E4M3:
        is_block = any(len(shape) == 3 and min(shape[1:]) > 1 for shape in scales)
        return "fp8_block" if is_block else "fp8"
    if weights.dtype is DataType.U8:
        stored = sum(prod(operand.shape) for operand in held if operand.dtype is DataType.U8)
        if stored >= 2 * matrix:  # a weight to a byte
            return None
        return "int4_wo" if any(len(shape) == 3 for shape in scales) else "w4a16_mxfp4"
    return _TYPES.get(weights.dtype)


_FUSED: dict[str, Callable[[Bound], WorkShape | None]] = {
    "merged_linear": _merged,
    "quantized_linear": _quantized,
    "paged_attention": _paged,
    "experts": _experts,
}


# --- launches ------------------------------------------------------------------------------------


def hint_shape(hint: WorkHint) -> WorkShape | None:
    """The shape that a hint names; None for types that no table has."""
    dtype = _TYPES.get(hint.dtype)
    if dtype is None:
        return None
    kind = TableKind(hint.kind)
    if kind is TableKind.GEMM:
        return WorkShape(kind, (dtype,), hint.sizes)
    if kind is TableKind.MOE:
        tokens, *model = hint.sizes
        return WorkShape(kind, (dtype, *model), (tokens, 1, 1))
    batch, length, heads, kv_heads, head_size = hint.sizes
    if heads % kv_heads:
        return None
    return WorkShape(kind, (dtype, _CACHE_TYPE, head_size, 0), (batch, length, heads, kv_heads))


_CUT_SIZES = {
    "gemm": ((1,), (0,)),
    "context": ((2, 3), (0,), (1,)),
    "generation": ((2, 3), (0,), (1,)),
    "moe": ((0,),),
}
"""The sizes of a hint that shrink together in a part, one line for each way to cut."""


def _part_shape(hint: WorkHint, share: float, touched: float) -> WorkShape | None:
    """The shape of a share of the work that touches these bytes; of all of it, the hint's own."""
    if share == 1:
        return hint_shape(hint)

    def part(places: tuple[int, ...]) -> WorkHint:
        sizes = (
            max(1, round(size * share)) if place in places else size
            for place, size in enumerate(hint.sizes)
        )
        return replace(hint, sizes=tuple(sizes))

    shapes = [hint_shape(part(places)) for places in _CUT_SIZES[hint.kind]]

    def misfit(shape: WorkShape) -> float:
        moved = operations_and_bytes(shape.kind, shape.fixed, shape.sizes)[1]
        return abs(log(max(1.0, touched) / max(1.0, moved)))

    return min((shape for shape in shapes if shape is not None), key=misfit, default=None)


def _scaled_work(work: LaunchWork, factor: float) -> LaunchWork:
    """The work of the whole launch, if a part of it does `work`."""
    return replace(
        work,
        asked_bytes=work.asked_bytes * factor,
        units=tuple((unit, count * factor) for unit, count in work.units),
    )


def may_have_hint(read: Sequence[Buffer], written: Sequence[Buffer]) -> bool:
    """False if `found_hint` returns None for a launch with these buffers, whatever its counts."""
    return bool([*_gemms(read, written), *_attention_shapes(read, written)])


def found_hint(
    counted: LaunchWork | None, touched: float, read: Sequence[Buffer], written: Sequence[Buffer]
) -> WorkHint | None:
    """The only shape that fits the buffers of a launch, if its counts agree."""
    if counted is None or not any(u in _MATRIX_UNITS and count for u, count in counted.units):
        return None
    possible = {*_gemms(read, written), *_attentions(counted, read, written)}
    if len(possible) != 1:
        return None
    (hint,) = possible
    shape = hint_shape(hint)
    return None if shape is None or contradiction(shape, counted, touched) else hint


def _gemms(read: Sequence[Buffer], written: Sequence[Buffer]) -> Iterator[WorkHint]:
    """Rows [.., k], a weight [n, k] or [k, n], a result [.., n]."""
    for weight in read:
        if weight.role is not Role.WEIGHT or len(weight.shape or ()) != 2 or not weight.dtype:
            continue
        for rows, result in product(read, written):
            if rows is weight or rows.dtype is not weight.dtype or not rows.shape:
                continue
            k, m = rows.shape[-1], prod(rows.shape[:-1])
            for n, depth in (weight.shape or (), (weight.shape or ())[::-1]):
                if depth == k and result.shape and prod(result.shape) == m * n:
                    yield WorkHint("gemm", (m, n, k), weight.dtype)


def _attentions(
    counted: LaunchWork, read: Sequence[Buffer], written: Sequence[Buffer]
) -> Iterator[WorkHint]:
    """Attention by the shapes of buffers; a prompt is read with a causal mask, by the counts."""
    for query, hint in _attention_shapes(read, written):
        if hint.kind == "generation" or _is_causal(counted, query):
            yield hint


def _attention_shapes(
    read: Sequence[Buffer], written: Sequence[Buffer]
) -> Iterator[tuple[Buffer, WorkHint]]:
    """Queries [batch, heads, length, size], keys and values [batch, fewer, context, size]."""
    wide = [b for b in read if len(b.shape or ()) == 4 and b.dtype is not None]
    for query, key in product(wide, wide):
        batch, heads, length, size = query.shape or (0, 0, 0, 0)
        also, kv_heads, context, depth = key.shape or (0, 0, 0, 0)
        values = [b for b in wide if b is not query and b.shape == key.shape]
        if query is key or len(values) != 2 or (also, depth) != (batch, size):
            continue
        if not kv_heads or heads % kv_heads or query.dtype is not key.dtype or not query.dtype:
            continue
        if not any(prod(b.shape or ()) == prod(query.shape or ()) for b in written):
            continue
        if _is_generation(length, context, heads // kv_heads):
            sizes = (batch, context, heads * length, kv_heads, size)
            yield query, WorkHint("generation", sizes, query.dtype)
        elif length == context:
            yield query, WorkHint("context", (batch, context, heads, kv_heads, size), query.dtype)


def _is_causal(counted: LaunchWork, query: Buffer) -> bool:
    """Whether a launch does about half of the work of all queries with all keys."""
    batch, heads, length, size = query.shape or (0, 0, 0, 0)
    done = sum(count for unit, count in counted.units if unit in _MATRIX_UNITS)
    return done < _MOST_CAUSAL * 4.0 * batch * heads * length * length * size


def contradiction(shape: WorkShape, counted: LaunchWork | None, touched: float) -> str:
    """Why a launch contradicts its hint; empty if it does not.

    Operations lie between those of the sizes and those of whole tiles, each within a factor. The
    step touches and requests at least the operands.
    """
    operations, moved = operations_and_bytes(shape.kind, shape.fixed, shape.sizes)
    if counted is None:
        return "its work cannot be counted"
    done = sum(count for unit, count in counted.units if unit != "special")
    most = _padded(shape)
    if not operations / _FACTOR <= done <= most * _FACTOR:
        return f"it does {done:.3g} operations, and its hint means {operations:.3g} to {most:.3g}"
    for what, count in (("may touch", touched), ("asks for", counted.asked_bytes)):
        if count < moved / _FACTOR:
            return f"it {what} {count:.3g} bytes, and its hint means {moved:.3g} at least"
    return ""


def _padded(shape: WorkShape) -> float:
    """Operations if tiles are computed whole and masked elements cost as much as visible ones."""
    if shape.kind is TableKind.GEMM:
        m, n, k = (-(-size // _TILE) * _TILE for size in shape.sizes)
        return operations_and_bytes(shape.kind, shape.fixed, (m, n, k))[0]
    if shape.kind is TableKind.MOE:
        tokens, *parts = shape.sizes
        experts = int(shape.fixed[4])
        padded: Sizes = (tokens + experts * _TILE, *parts)
        return operations_and_bytes(shape.kind, shape.fixed, padded)[0]
    batch, length, heads, kv_heads = shape.sizes
    whole = -(-length // _TILE) * _TILE
    if shape.kind is TableKind.CONTEXT:
        return 2 * operations_and_bytes(shape.kind, shape.fixed, (batch, whole, heads, kv_heads))[0]
    rows = kv_heads * max(heads // kv_heads, _QUERIES)
    return operations_and_bytes(shape.kind, shape.fixed, (batch, whole, rows, kv_heads))[0]
