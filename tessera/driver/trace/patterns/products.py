"""Products that a model writes as others than those that are computed.

In: a `ValueFlow`. Out: groups of calls, each with the call that stands for it. Keys and values that
are products of one cached value with a weight (latent attention) are never made if that is more
work than to multiply queries and results by the weight. A product of two values that were widened
for it is one of the narrow values with a wide result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tessera.driver.trace.patterns.flow import OUTSIDE, ValueFlow
from tessera.driver.trace.patterns.makers import ATTENTION
from tessera.ir.operators.table import work_of
from tessera.ir.program import program as ir

Found = tuple[list[int], ir.LibraryCall]


def find_widened(flow: ValueFlow) -> Iterator[Found]:
    """Products of values that a cast has made of a narrower type."""
    for at, call in enumerate(flow.calls):
        if call.operator != "aten::mm":
            continue
        casts = [_cast(flow, writer) for _, writer in flow.reads[at]]
        if casts[0] is None or casts[1] is None or casts[0].dtype is not casts[1].dtype:
            continue
        if casts[0].dtype.bytes >= call.writes[0].dtype.bytes:
            continue
        reads = [_viewed(cast, o) for cast, o in zip(casts, call.reads, strict=True) if cast]
        if None not in reads:
            own = [
                writer for value, writer in flow.reads[at] if flow.is_private((value, writer), [at])
            ]
            made = replace(
                call,
                operator="aten::mm.dtype",
                reads=tuple(read for read in reads if read),
                attributes=(("out_dtype", call.writes[0].dtype.value),),
            )
            yield sorted({*own, at}), made


def _cast(flow: ValueFlow, writer: int) -> ir.Operand | None:
    """The operand of a cast that keeps the order of its elements."""
    call = flow.calls[writer] if writer != OUTSIDE else None
    if call is None or call.operator != "aten::_to_copy":
        return None
    same = call.reads[0].element_strides() == call.writes[0].element_strides()
    return call.reads[0] if same else None


def _viewed(cast: ir.Operand, view: ir.Operand) -> ir.Operand | None:
    """The operand of a cast as the product reads its result."""
    if prod(cast.shape) != prod(view.shape):
        return None
    return replace(view, pointer=cast.pointer, dtype=cast.dtype)


def find_latent(flow: ValueFlow) -> Iterator[Found]:
    """Attention over keys and values that are products of a cached value."""
    for at, call in enumerate(flow.calls):
        if call.operator != ATTENTION or len(call.reads[0].shape) != 4:
            continue
        product = flow.reads[at][2][1]
        made = flow.calls[product] if product != OUTSIDE else None
        if made is None or made.operator != "aten::mm" or flow.reads[product][1][1] != OUTSIDE:
            continue
        copies = [n for n in flow.writers.get(flow.reads[at][1][0], ()) if product < n < at]
        turned = [
            operand
            for n in copies
            for operand, value in zip(flow.calls[n].reads, flow.reads[n], strict=True)
            if value[1] not in (product, *copies) and value[0] != flow.reads[at][1][0]
        ]
        if not copies or len(turned) != 1 or len(turned[0].shape) != 4:
            continue
        latent = _latent_call(call, made, turned[0])
        work = [work_of(step) for step in (latent, made, call) if step is not None]
        if latent is None or None in work:
            continue
        operations = [own.operations for own in work if own is not None]
        if operations[0] < sum(operations[1:]):
            yield [product, *copies, at], latent


def _latent_call(
    call: ir.LibraryCall, product: ir.LibraryCall, turned: ir.Operand
) -> ir.LibraryCall | None:
    query, cached = call.reads[0], product.reads[0]
    batch, _, _, size = query.shape
    keys, rank = call.reads[1].shape[2], cached.shape[-1]
    step, inner = cached.element_strides()
    if cached.shape[0] != batch * keys or turned.element_strides()[1] != 0:
        return None
    latent = replace(
        cached, shape=(batch, 1, keys, rank), strides=(keys * step, keys * step, step, inner)
    )
    shared = replace(turned, shape=(batch, 1, *turned.shape[2:]))
    if turned.shape[2] != keys or turned.shape[3] >= size:
        return None
    return ir.LibraryCall(
        id=ir.LaunchId(0),
        operator="tessera::latent_attention",
        reads=(query, latent, shared, product.reads[1], *call.reads[3:]),
        writes=call.writes,
        attributes=tuple((k, v) for k, v in call.attributes if k in ("scale", "is_causal")),
    )
