"""The shape of a library call, as `library_launches` describes it.

In: a step that is not a launch. Out: a `CallShape`, and whether the shape is certain.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import gcd, prod

from tessera.ir.operators.fused import page_tokens
from tessera.ir.operators.records import Bound, OperatorMismatch, Reach, Unit
from tessera.ir.operators.table import bind
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import LibraryCall, Operand, Work
from tessera.planning.prices.library_calls import (
    Attention,
    CallShape,
    Experts,
    Grouped,
    Plain,
    Product,
    RowCall,
    RowKind,
)

_ROWS = {
    "layer_norm": RowKind.NORM,
    "rms_norm": RowKind.NORM,
    "group_norm": RowKind.NORM,
    "fused_norm": RowKind.NORM,
    "fused_rows": RowKind.NORM,
    "var": RowKind.NORM,
    "std": RowKind.NORM,
    "softmax": RowKind.SOFTMAX,
    "log_softmax": RowKind.SOFTMAX,
    "safe_softmax": RowKind.SOFTMAX,
    "cumsum": RowKind.SCAN,
    "cumprod": RowKind.SCAN,
    "sort": RowKind.SCAN,
    "topk": RowKind.SCAN,
    "embedding": RowKind.GATHER,
    "index_select": RowKind.GATHER,
}
_MATRIX_UNITS = {DataType.F16: "fp16", DataType.BF16: "bf16", DataType.E4M3: "fp8"}


def call_shape_of(work: Work, touched: float) -> tuple[CallShape, bool]:
    """The shape of a copy or a library call that touches a number of bytes."""
    if not isinstance(work, LibraryCall):
        return Plain(touched / 4, 0.0, touched), True
    results = work.writes or work.reads
    elements = float(sum(prod(operand.shape) for operand in results))
    made = sum(map(_bytes, work.writes))
    try:
        bound = bind(work)
    except OperatorMismatch:
        return Plain(elements, elements, float(made + sum(map(_bytes, work.reads)))), False
    # Of a table that is looked up, only as much is read as is written.
    read = [
        min(_bytes(operand), made) if spec.reach is Reach.INDEXED else _bytes(operand)
        for spec, operands in bound.reads
        for operand in operands
    ]
    known = bound.operator.work(bound)
    put = put_bytes(bound)
    if put is not None:
        return Plain(put / 2 / results[0].dtype.bytes, 0.0, put), True
    if known.unit is Unit.MATRIX:
        return _routed(bound) or _matrix(bound, known.operations), True
    kind = _ROWS.get(bound.operator.function)
    if kind is not None and elements:
        operand = results[0]
        return RowCall(kind, *_rows(bound, operand), operand.dtype.bytes), True
    call = Plain(elements, known.operations, float(made + sum(read)))
    dims = joined_dims(work) if work.operator.startswith("aten::") else 1
    if dims > 1:
        asked = elements * sum(operand.dtype.bytes for operand in (*work.reads, *work.writes))
        operands = len(work.reads) + len(work.writes)
        call = replace(call, dims=dims, operands=operands, asked=asked)
    return call, True


def joined_dims(call: LibraryCall) -> int:
    """The dimensions of an elementwise call, with those joined that lie together in all operands.

    1 for a call whose operands do not spread over its result.
    """
    shape = call.writes[0].shape
    strides = []
    for operand in (*call.writes, *call.reads):
        sizes = (1,) * (len(shape) - len(operand.shape)) + operand.shape
        if len(sizes) > len(shape) or any(
            a not in (1, b) for a, b in zip(sizes, shape, strict=True)
        ):
            return 1
        own = (0,) * (len(shape) - len(operand.shape)) + operand.element_strides()
        strides.append(
            [0 if size == 1 else stride for size, stride in zip(sizes, own, strict=True)]
        )
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    axes.sort(key=lambda axis: [own[axis] for own in strides], reverse=True)
    return 1 + sum(
        any(own[outer] != own[inner] * shape[inner] for own in strides)
        for outer, inner in pairwise(axes)
    )


Operations = tuple[tuple[str, float], ...]
_FEWEST_CONVOLVED = 1 / 2.25  # of the products of a 3x3 convolution, by Winograd's algorithm


def operations_of(shape: CallShape, work: Work | None = None) -> Operations:
    """Operations that no algorithm of a library does without, by unit: those of matrix units."""
    match shape:
        case Product():
            done = 2.0 * shape.batch * shape.m * shape.n * shape.k
            is_convolution = isinstance(work, LibraryCall) and "conv" in work.operator
            return ((shape.unit, done * (_FEWEST_CONVOLVED if is_convolution else 1.0)),)
        case Attention():
            pairs = float(shape.batch * shape.heads * shape.queries * shape.keys)
            return ((shape.unit, 2.0 * pairs * shape.size),)  # half: a mask may hide the rest
        case Grouped():
            return ((shape.unit, 2.0 * shape.rows * shape.n * shape.k),)
        case Experts(up=up, down=down):
            done = 2.0 * up.rows * (up.n * up.k + down.n * down.k)
            return ((up.unit, done),)
    return ()


def put_bytes(bound: Bound) -> float | None:
    """Twice the bytes written, for a call that changes some elements of a tensor.

    None if unknown: no input has its type, or the input is smaller than the index.
    """
    specs = [spec.reach for spec, _ in bound.writes]
    if not specs or any(reach is not Reach.INDEXED for reach in specs):
        return None
    dtype = bound.writes[0][1].dtype
    given = [op for spec, ops in bound.reads if spec.reach is not Reach.INDEXED for op in ops]
    values = [operand for operand in given if operand.dtype is dtype]
    others = [operand for operand in given if operand.dtype is not dtype]
    places = max((prod(operand.shape) for operand in others), default=1)
    if not values or min(prod(operand.shape) for operand in values) < places:
        return None
    return 2.0 * sum(_bytes(operand) for operand in values)


def weights_of(bound: Bound) -> list[Operand]:
    """The operands of a call that have a part for each expert, if tokens are routed to experts."""
    match bound.operator.function:
        case "experts":
            count = bound.integer("experts")
            given = bound.operands("operands")
            return [o for o in given if len(o.shape) > 1 and o.shape[0] == count]
        case "grouped_mm" if len(bound.shape("mat2")) == 3:
            return [bound.operand("mat2")]
    return []


def routed_bytes(bound: Bound, shape: CallShape) -> float | None:
    """Bytes of a call whose tokens are routed to experts: those of its experts, and all others."""
    if not isinstance(shape, Grouped | Experts):
        return None
    held = weights_of(bound)
    given = [operand for _, operands in bound.reads for operand in operands]
    others = [*(o for o in given if o not in held), *(operand for _, operand in bound.writes)]
    return min(shape.moved, float(sum(map(_bytes, held)))) + sum(map(_bytes, others))


def _bytes(operand: Operand) -> int:
    return prod(operand.shape) * operand.dtype.bytes


def _rows(bound: Bound, operand: Operand) -> tuple[int, int]:
    """Number of rows and their elements, along the dimension that the call names, or the last."""
    shape = operand.shape or (1,)
    given = bound.attribute("dim")
    at = given if isinstance(given, int) and -len(shape) <= given < len(shape) else -1
    along = shape[at]
    tail = bound.attribute("normalized_shape")
    if isinstance(tail, tuple):
        along = prod(shape[-len(tail) :]) if tail else 1
    return max(1, prod(shape) // max(along, 1)), max(along, 1)


def _matrix(bound: Bound, operations: float) -> CallShape:
    """Attention from its operands; any other call is a product of its result's sizes and depth."""
    first = next((operands[0] for _, operands in bound.reads if operands), bound.writes[0][1])
    unit, width = _MATRIX_UNITS.get(first.dtype, "fp32"), first.dtype.bytes
    result = bound.writes[0][1].shape
    if bound.operator.function == "attention" and len(bound.shape("query")) == 4:
        batch, heads, queries, size = bound.shape("query")
        kv_heads, keys = bound.shape("key")[1:3]
        if 0 not in (batch, heads, queries, size, kv_heads, keys):
            return Attention(
                batch=batch,
                heads=heads,
                kv_heads=min(kv_heads, heads),
                queries=queries,
                keys=keys,
                size=size,
                causal=bound.flag("is_causal"),
                unit=unit,
                width=width,
            )
    if bound.operator.function == "paged_attention" and len(bound.shape("query")) == 4:
        batch, heads, queries, size = bound.shape("query")
        return Attention(
            batch=batch,
            heads=heads,
            kv_heads=min(heads, bound.shape("key_cache")[-2]),
            queries=queries,
            keys=max(1, page_tokens(bound)),
            size=size,
            causal=False,
            unit=unit,
            width=width,
        )
    if bound.operator.function == "latent_attention" and len(bound.shape("query")) == 4:
        batch, heads, queries, _ = bound.shape("query")
        *_, keys, size = bound.shape("latent")
        size += bound.shape("shared")[-1]
        return Attention(
            batch=batch,
            heads=heads,
            kv_heads=1,
            queries=queries,
            keys=keys,
            size=size,
            causal=bound.flag("is_causal"),
            unit=unit,
            width=width,
        )
    if 0 in result or not result:
        return Plain(0.0, operations, 0.0)
    depth = max(1, round(operations / (2.0 * prod(result))))
    if bound.operator.function.startswith("conv"):  # pixels by features
        n = result[1] if len(result) > 1 else 1
        return Product(m=max(1, prod(result) // n), n=n, k=depth, unit=unit, width=width)
    step = _step(bound)
    step = 0 if step == gcd(depth, result[-1]) else step
    batch = result[0] if "bmm" in bound.operator.function else 1
    n = result[-1]
    if bound.operator.function in ("merged_linear", "quantized_linear"):  # weights side by side
        rows = prod(result) // n
        n = sum(operand.shape[-1] for _, operand in bound.writes)
        depth = max(1, bound.shape("input")[-1])
        if bound.operator.function == "quantized_linear":  # weights of a byte or less
            step, width = 0, 1
            unit = "fp8" if bound.attribute("arithmetic") in ("e4m3", "s8") else unit
        narrowed = unit == "fp8" and first.dtype.bytes > 1
        sizes = {"m": rows, "n": n, "k": depth, "step": step, "width": width}
        return Product(**sizes, unit=unit, narrowed=narrowed)
    rows = max(1, prod(result) // n // batch)
    shared = shared_side(bound)
    if shared is not None:  # the weights are read once, for the rows of all products
        rows, n, batch = (rows * batch, n, 1) if shared else (rows, n * batch, 1)
    return Product(m=rows, n=n, k=depth, batch=batch, step=step, unit=unit, width=width)


def shared_side(bound: Bound) -> int | None:
    """Which of the two matrices of a batched product is the same for all of them, if one is."""
    if "bmm" not in bound.operator.function:
        return None
    names = ("batch1", "batch2") if bound.operator.function == "baddbmm" else ("self", "mat2")
    for side in (1, 0):
        operand = bound.operand(names[side])
        if operand.shape[0] > 1 and operand.element_strides()[0] == 0:
            return side
    return None


def _step(bound: Bound) -> int:
    """The elements of which rows of all matrices begin at a multiple; 0 if there are no rows."""
    given = [operand for _, operands in bound.reads for operand in operands]
    step = 0
    for operand in (*given, *(operand for _, operand in bound.writes)):
        sizes = zip(operand.shape, operand.element_strides(), strict=True)
        strides = [stride for size, stride in sizes if size > 1 and stride != 1]
        if len(operand.shape) > 1:
            step = gcd(step, operand.pointer.offset // operand.dtype.bytes, *strides)
    return step


def _routed(bound: Bound) -> CallShape | None:
    """The products of experts; None if the call has none."""
    held = weights_of(bound)
    weights = max(held, key=_bytes, default=None)
    if weights is None or not _bytes(weights):
        return None
    unit = _MATRIX_UNITS.get(weights.dtype, "bf16" if weights.dtype.bytes == 1 else "fp32")
    if bound.operator.function == "grouped_mm":
        rows, (experts, k, n) = bound.shape("self")[0], weights.shape
        width = weights.dtype.bytes
        return Grouped(
            tokens=max(1, rows), chosen=1, experts=experts, n=n, k=k, unit=unit,
            width=width, weight_width=float(width),
        )  # fmt: skip
    names = ("tokens", "chosen", "experts", "hidden", "inner")
    tokens, chosen, experts, hidden, inner = (max(1, bound.integer(name)) for name in names)
    stored = sum(map(_bytes, held)) / (experts * hidden * inner)  # bytes for each of 3, or 2
    is_plain = weights.dtype.bytes > 1 and prod(weights.shape) == experts * hidden * inner
    wide = 1 if is_plain and stored < 2.5 * weights.dtype.bytes else 2
    width = max(2, weights.dtype.bytes)
    up = Grouped(
        tokens=tokens, chosen=chosen, experts=experts, n=wide * inner, k=hidden, unit=unit,
        width=width, weight_width=stored / (wide + 1),
    )  # fmt: skip
    return Experts(up, replace(up, n=hidden, k=inner))
