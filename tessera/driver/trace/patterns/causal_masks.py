"""Attention whose mask compares the places of keys with those of queries, as causal attention.

In: the calls of a program. Out: calls in which such an attention says `is_causal` and reads no
mask. A model may build that mask from counters, with the length of its cache as an offset. Where
there are as many queries as keys, every offset but 0 would put a query behind the last key. So the
mask is the triangle that `is_causal` means.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.driver.trace.patterns.flow import OUTSIDE, Value, ValueFlow
from tessera.driver.trace.patterns.makers import ATTENTION
from tessera.ir.program import program as ir

_AT_MOST = {"aten::le.Tensor": (0, 1), "aten::ge.Tensor": (1, 0)}  # which reads are keys, queries


def find_causal(flow: ValueFlow) -> dict[int, ir.LibraryCall]:
    """The calls that are causal attention with a mask, by place, without their masks."""
    causal = {}
    for at, call in enumerate(flow.calls):
        if call.operator != ATTENTION or len(call.reads) != 4:
            continue
        length, context = call.reads[0].shape[-2:][0], call.reads[1].shape[-2:][0]
        if length == context > 1 and _is_triangle(flow, flow.reads[at][3], length):
            attributes = dict(call.attributes) | {"is_causal": True}
            causal[at] = replace(call, reads=call.reads[:3], attributes=tuple(attributes.items()))
    return causal


def _is_triangle(flow: ValueFlow, mask: Value, length: int) -> bool:
    """Whether a value is `place of the key <= place of the query`, for that many of both."""
    writer = flow.calls[mask[1]] if mask[1] != OUTSIDE else None
    if writer is None or writer.operator not in _AT_MOST or len(writer.reads) != 2:
        return False
    keys, queries = _AT_MOST[writer.operator]
    along_keys = writer.reads[keys].shape[-2:] == (1, length)
    along_queries = writer.reads[queries].shape[-2:] == (length, 1)
    values = flow.reads[mask[1]]
    return (
        along_keys
        and along_queries
        and _counts(flow, values[keys], length, moved=False)
        and _counts(flow, values[queries], length, moved=True)
    )


def _counts(flow: ValueFlow, value: Value, length: int, *, moved: bool) -> bool:
    """Whether a value is 0, 1, 2 and so on, plus one number for all of them where `moved`."""
    if value[1] == OUTSIDE:
        return False
    call = flow.calls[value[1]]
    attributes = dict(call.attributes)
    if call.operator == "aten::arange":
        steps = (attributes.get("start", 0), attributes.get("step", 1))
        return not call.reads and steps == (0, 1) and attributes.get("end") == length
    if call.operator != "aten::add.Tensor" or attributes.get("alpha", 1) != 1:
        return False
    if len(call.reads) == 1:
        is_number = attributes.get("other") == 0 or moved
        return is_number and _counts(flow, flow.reads[value[1]][0], length, moved=moved)
    single = [n for n, operand in enumerate(call.reads) if operand.shape in ((), (1,))]
    if not moved or len(call.reads) != 2 or len(single) != 1:
        return False
    return _counts(flow, flow.reads[value[1]][1 - single[0]], length, moved=moved)
