"""Makes the calls that replace matches: operands and attributes, if they fit.

In: a `Match`, or calls that share operands. Out: a call, or None if the match computes something
else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tessera.driver.trace.patterns.flow import OUTSIDE
from tessera.driver.trace.patterns.match import Match
from tessera.ir.program import program as ir

Maker = Callable[[Match], ir.LibraryCall | None]
ATTENTION = "aten::scaled_dot_product_attention"


def _call(
    operator: str,
    reads: Sequence[ir.Operand],
    writes: Sequence[ir.Operand],
    **attributes: ir.AttributeValue,
) -> ir.LibraryCall:
    return ir.LibraryCall(
        id=ir.LaunchId(0),
        operator=operator,
        reads=tuple(reads),
        writes=tuple(writes),
        attributes=tuple(attributes.items()),
    )


def _attribute(call: ir.LibraryCall, name: str) -> ir.AttributeValue:
    return dict(call.attributes).get(name)


def _split_heads(operand: ir.Operand, batch: int) -> ir.Operand:
    """The operand with the heads of one sequence as heads of several sequences."""
    _, heads, *rest = operand.shape
    _, step, *steps = operand.element_strides()
    own = heads // batch
    return replace(operand, shape=(batch, own, *rest), strides=(own * step, step, *steps))


def shared_heads(match: Match) -> ir.LibraryCall | None:
    """Attention that reads keys and values in place: once for all heads of a group."""
    kept = [_unrepeated(match.calls[name].reads[0]) for name in ("k2", "v2")]
    if kept[0] is None or kept[1] is None:
        return None
    root = match.calls["o"]
    query, made = match.operands["q"], root.writes[0]
    batch, heads = kept[0].shape[:2]
    if query.shape[0] != batch and query.shape[0] == 1:
        query, made = _split_heads(query, batch), _split_heads(made, batch)
    if query.shape[0] != batch or query.shape[1] % heads:
        return None
    attributes = dict(root.attributes) | {"enable_gqa": True}
    mask = [match.operands["mask"]] if "mask" in match.operands else []
    return _call(ATTENTION, (query, kept[0], kept[1], *mask), (made,), **attributes)


def _unrepeated(operand: ir.Operand) -> ir.Operand | None:
    """Keys without the dimension that repeats them."""
    strides = operand.element_strides()
    if len(operand.shape) != 5 or strides[2] != 0:
        return None
    shape = (*operand.shape[:2], *operand.shape[3:])
    return replace(operand, shape=shape, strides=(*strides[:2], *strides[3:]))


def paged(match: Match) -> ir.LibraryCall | None:
    """Attention over pages: [pages, tokens of a page, heads, size] each."""
    caches = [match.operands["kc"], match.operands["vc"]]
    if any(len(cache.shape) != 4 for cache in caches):
        return None
    root = match.calls["o"]
    reads = [match.operands["q"], *caches, match.operands["pages"]]
    reads += [match.operands["mask"]] if "mask" in match.operands else []
    scale = _attribute(root, "scale")
    return _call("tessera::paged_attention", reads, root.writes, scale=scale)


def one_weight(match: Match) -> ir.LibraryCall | None:
    """A batch of products with one matrix on the right, as one product.

    The matrix must exist from the start, as weights do: with a batch of 1, a product of two
    computed values would look like a product with a weight, but with larger batches it is not.
    """
    rows, weight, made = (match.operands[name] for name in ("x", "w", "o"))
    is_repeated = weight.element_strides()[0] == 0 or weight.shape[0] == 1
    if not is_repeated or match.values["w"][1] != OUTSIDE:
        return None
    folded = [_folded(operand) for operand in (rows, made)]
    if folded[0] is None or folded[1] is None:
        return None
    matrix = replace(weight, shape=weight.shape[1:], strides=weight.element_strides()[1:])
    return _call("aten::mm", (folded[0], matrix), (folded[1],))


def _folded(operand: ir.Operand) -> ir.Operand | None:
    """The operand with its first two axes as one; None if no single stride covers both."""
    batch, rows, *rest = operand.shape
    outer, inner, *steps = operand.element_strides()
    if batch != 1 and rows != 1 and outer != rows * inner:
        return None
    step = outer if rows == 1 else inner
    return replace(operand, shape=(batch * rows, *rest), strides=(step, *steps))


def merged(calls: Sequence[ir.LibraryCall]) -> ir.LibraryCall | None:
    """Products of one input as one call; each weight is followed by its bias, if it has one."""
    biased = calls[0].operator == "aten::addmm"
    if biased and any(
        dict(c.attributes).get(n) not in (None, 1) for c in calls for n in ("beta", "alpha")
    ):
        return None
    at = 1 if biased else 0
    reads = [calls[0].reads[at]]
    for call in calls:
        reads += [call.reads[at + 1], *([call.reads[0]] if biased else [])]
    writes = [call.writes[0] for call in calls]
    return _call("tessera::merged_linear", reads, writes, biased=biased)


def cached(calls: Sequence[ir.LibraryCall]) -> ir.LibraryCall | None:
    """Writes of keys and values to their caches; `index_copy_` reads its target, index and
    source."""
    key, value = calls
    reads = (key.reads[0], value.reads[0], key.reads[1], key.reads[2], value.reads[2])
    dim = _attribute(key, "dim")
    return _call("tessera::cache_write", reads, (key.writes[0], value.writes[0]), dim=dim)
