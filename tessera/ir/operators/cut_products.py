"""Rules by which products, convolutions, attention and norms are cut.

In: a bound call. Out: the names of its dimensions. The tables of `cut_rules` name these rules.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from tessera.ir.operators import shapes
from tessera.ir.operators.cuts import (
    ALONG,
    WHOLE,
    WINDOWS,
    NamedDims,
    Namer,
    Names,
    Resized,
    broadcast_names,
    named,
    numbered,
    result_shape,
    spread,
    uncut,
    written,
)
from tessera.ir.operators.records import Bound

_ALIGNED_BYTES = 16  # fast kernels of products need rows that begin at a multiple of it


# --- products ------------------------------------------------------------------------------


def product(left: str, right: str, *lead: str, added: str = "") -> Namer:
    """[lead, rows, k] times [lead, k, columns], to which `added` broadcasts."""

    def names(bound: Bound) -> NamedDims:
        made = (*lead, "rows", "columns")
        reads = {left: (*lead, "rows", WHOLE), right: (*lead, WHOLE, "columns")}
        if added:
            reads[added] = spread(bound.shape(added), made, result_shape(bound))
        return named(bound, reads, {"out": made}, units=_columns(bound, right))

    return names


def _columns(bound: Bound, weight: str) -> dict[str, int]:
    """Columns are cut where libraries have fast kernels: at aligned elements of every matrix."""
    width = min(bound.operand(weight).dtype.bytes, bound.writes[0][1].dtype.bytes)
    return {"columns": _aligned(result_shape(bound)[-1], width)}


def _aligned(count: int, width: int) -> int:
    """The aligned pieces of `count` elements; each element is one if there are not two."""
    elements = max(1, _ALIGNED_BYTES // width)
    return count if count % elements or count < 2 * elements else count // elements


def scaled(bound: Bound) -> NamedDims:
    """[rows, k] times [k, columns], with scales per matrix, or per row and column."""
    made = ("rows", "columns")
    reads: dict[str, Names] = {"self": ("rows", WHOLE), "mat2": (WHOLE, "columns")}
    for name in ("scale_a", "scale_b", "bias"):
        if bound.has(name):
            reads[name] = spread(bound.shape(name), made, result_shape(bound))
    return named(bound, reads, {"out": made}, units=_columns(bound, "mat2"))


def grouped(bound: Bound) -> NamedDims:
    """Rows in groups, each group times its own matrix [k, columns]."""
    return named(
        bound,
        {"mat2": (WHOLE, WHOLE, "columns")},
        {"out": ("rows", "columns")},
        units=_columns(bound, "mat2"),
        kept={"rows": "the values of `offs` say which rows belong to which matrix"},
    )


def vector(bound: Bound) -> NamedDims:
    """[rows, k] times [k]."""
    return named(bound, {"self": ("rows", WHOLE)}, {"out": ("rows",)})


def linear(bound: Bound) -> NamedDims:
    """[..., k] times the transpose of [columns, k], and a bias."""
    lead = bound.shape("input")[:-1]
    rows = ("rows",) if len(lead) == 1 else numbered(lead)
    reads = {"input": (*rows, WHOLE), "weight": ("columns", WHOLE), "bias": ("columns",)}
    units = _columns(bound, "weight")
    return named(bound, reads, {"out": (*rows, "columns")}, units=units)


def merged(bound: Bound) -> NamedDims:
    """Linear layers side by side with one input: each is cut in the same proportion.

    A weight is inputs by results, or all are results by inputs; biases stand beside or after them.
    """
    lead, inner = bound.shape("input")[:-1], (bound.shape("input") or (0,))[-1]
    rows = ("rows",) if len(lead) == 1 else numbered(lead)
    results = [operand.shape for _, operand in bound.writes]
    given = bound.operands("weights")
    if any(not shape or shape[:-1] != lead for shape in results):
        return uncut("the shapes of its operands are not those of products")(bound)
    widths = [shape[-1] for shape in results]
    weights = [operand for operand in given if len(operand.shape) == 2]
    turned = [operand.shape for operand in weights] == [(width, inner) for width in widths]
    plain = [operand.shape for operand in weights] == [(inner, width) for width in widths]
    if turned and plain:  # as many inputs as results: the inputs of a result are contiguous
        turned = all(operand.strides is None for operand in weights)
        plain = all(operand.element_strides() == (1, inner) for operand in weights)
    if turned == plain:
        return uncut("the shapes of its operands are not those of products")(bound)
    names = named(
        bound,
        {"input": (*rows, WHOLE)},
        written(bound, (*rows, "columns")),
        units={"columns": _aligned(gcd(*widths), bound.operand("input").dtype.bytes)},
    )
    matrix = ("columns", WHOLE) if turned else (WHOLE, "columns")
    made = [matrix if len(operand.shape) == 2 else ("columns",) for operand in given]
    return replace(names, reads=(names.reads[0], *made))


def convolution(bound: Bound) -> NamedDims:
    """Output channels, with the input channels of their groups if there are groups."""
    groups, rest = bound.integer("groups"), numbered(result_shape(bound))[2:]
    inputs = "channels" if groups > 1 else WHOLE
    outputs, width = result_shape(bound)[1], bound.operand("weight").dtype.bytes
    nothing = (WHOLE,) * len(rest)
    return named(
        bound,
        {
            "input": ("batch", inputs, *nothing),
            "weight": ("channels", WHOLE, *nothing),
            "bias": ("channels",),
        },
        {"out": ("batch", "channels", *rest)},
        units={"channels": groups if groups > 1 else _aligned(outputs, width)},
        resized=(Resized("groups", "channels"),) if groups > 1 else (),
        kept=dict.fromkeys(rest, WINDOWS),
    )


def quantized(bound: Bound) -> NamedDims:
    """Likewise; weights, scales, zeros and biases have results in their last dimension, or fewer
    of them: one for as many results as share a scale."""
    lead = bound.shape("input")[:-1]
    rows = ("rows",) if len(lead) == 1 else numbered(lead)
    results = [operand.shape for _, operand in bound.writes]
    if any(not shape or shape[:-1] != lead for shape in results):
        return uncut("the shapes of its operands are not those of products")(bound)
    given = bound.operands("weights")
    counts = [o.shape[-1] for o in given if o.shape and o.shape[-1] > 1]
    pieces = gcd(*counts, *(shape[-1] for shape in results))
    names = named(
        bound,
        {"input": (*rows, WHOLE)},
        written(bound, (*rows, "columns")),
        units={"columns": pieces},
    )
    own = tuple(
        (*(WHOLE,) * (len(o.shape) - 1), "columns" if o.shape[-1] > 1 else WHOLE) if o.shape else ()
        for o in given
    )
    return replace(names, reads=((*rows, WHOLE), *own))


# --- attention -----------------------------------------------------------------------------


def _leading(rank: int) -> Names:
    """The names of the dimensions before the heads: the last of them counts sequences."""
    return (*(f"d{axis}" for axis in range(rank - 1)), "sequences") if rank else ()


def attention(bound: Bound) -> NamedDims:
    """Heads are cut with the keys and values that they share."""
    query, key = bound.shape("query"), bound.shape("key")
    lead = (*_leading(len(query) - 3), "heads")
    keys, scores = (*lead, WHOLE, WHOLE), (*query[:-1], key[-2])
    reads: dict[str, Names] = {"query": (*lead, "queries", WHOLE), "key": keys, "value": keys}
    for name in ("attn_mask", "attn_bias", "sinks"):
        if bound.has(name):
            reads[name] = spread(bound.shape(name), (*lead, "queries", WHOLE), scores)
    last = f"d{len(query) - 1}"
    kept = {last: "each of its elements needs all scores"}
    if bound.flag("is_causal"):
        kept["queries"] = "the causal mask counts queries from the first"
    return named(
        bound,
        reads,
        {"out": (*lead, "queries", last), "logsumexp": (*lead, "queries")},
        once=("seed", "offset", "debug_mask"),
        units={"heads": key[-3]},
        kept=kept,
    )


def paged(bound: Bound) -> NamedDims:
    """Attention over pages [pages, tokens, heads, size]; each sequence has a row of `pages`."""
    query, cache = bound.shape("query"), bound.shape("key_cache")
    pages, value = bound.shape("pages"), bound.shape("value_cache")
    fits = len(query) == len(result_shape(bound)) == len(cache) == len(value) == 4
    if not fits or len(pages) != 2 or pages[0] != query[0] or query[1] % max(cache[2], 1):
        return uncut("the shapes of its operands are not those of pages")(bound)
    caches = (WHOLE, WHOLE, "heads", WHOLE)
    made = ("sequences", "heads", "queries", WHOLE)
    reads = {"query": made, "key_cache": caches, "value_cache": caches, "pages": ("sequences", "")}
    if bound.has("attn_mask"):
        whole = (*query[:3], bound.shape("attn_mask")[-1])
        reads["attn_mask"] = spread(bound.shape("attn_mask"), made, whole)
    return named(bound, reads, {"out": made}, units={"heads": cache[2]})


def latent(bound: Bound) -> NamedDims:
    """Attention over one latent key for all heads; each head has its columns of the weight."""
    query = bound.shape("query")
    if any(len(bound.shape(name)) != 4 for name in ("query", "latent", "shared")):
        return uncut("the shapes of its operands are not those of latent attention")(bound)
    made, keys = ("sequences", "heads", "queries", WHOLE), ("sequences", WHOLE, WHOLE, WHOLE)
    reads = {"query": made, "latent": keys, "shared": keys, "weight": (WHOLE, "heads")}
    if bound.has("attn_mask"):
        whole = (*query[:3], bound.shape("attn_mask")[-1])
        reads["attn_mask"] = spread(bound.shape("attn_mask"), made, whole)
    kept = {}
    if bound.flag("is_causal"):
        kept["queries"] = "the causal mask counts queries from the first"
    return named(bound, reads, {"out": made}, units={"heads": query[1]}, kept=kept)


# --- norms and reductions ------------------------------------------------------------------


def reduced(bound: Bound) -> NamedDims:
    """The dimensions of the result; the reduced dimensions are whole in every part."""
    shape = bound.shape("self")
    gone, keep = shapes.axes_of(bound, len(shape)), bound.flag("keepdim")
    made = numbered(result_shape(bound))
    stay = [axis for axis in range(len(shape)) if axis not in gone]
    places = {axis: axis if keep else place for place, axis in enumerate(stay)}
    own = tuple(made[places[a]] if a in places else WHOLE for a in range(len(shape)))
    return named(bound, {"self": own}, written(bound, made))


def normalised(bound: Bound) -> NamedDims:
    """Rows: the dimensions before those that are normalised."""
    shape, tail = bound.shape("input"), len(bound.integers("normalized_shape") or ())
    names = numbered(shape)
    rows = (*names[: len(shape) - tail], *(WHOLE,) * tail)
    return named(
        bound,
        {"input": names},
        {"out": names, "mean": rows, "rstd": rows},
        kept=dict.fromkeys(names[len(shape) - tail :], ALONG),
    )


def fused_norm(bound: Bound) -> NamedDims:
    """A norm along the last dimension, of a sum or not."""
    shape = bound.shape("input")
    added = bound.shape("residual") if bound.has("residual") else ()
    made = {operand.shape for _, operand in bound.writes}
    if made != {shape} or not max(len(added), 1) <= len(shape):
        return uncut("the shapes of its operands are not those of a norm")(bound)
    names = numbered(shape)
    reads = {"input": names}
    if bound.has("residual"):
        reads["residual"] = spread(added, names, shape)
    return named(bound, reads, written(bound, names), kept={names[-1]: ALONG})


def group_norm(bound: Bound) -> NamedDims:
    """Sequences of the batch, or whole groups of channels."""
    rest = numbered(bound.shape("input"))[2:]
    names = ("batch", "channels", *rest)
    return named(
        bound,
        {"input": names, "weight": ("channels",), "bias": ("channels",)},
        {"out": names, "mean": names[:2], "rstd": names[:2]},
        units={"channels": bound.integer("group")},
        resized=(
            Resized("N", "batch"),
            Resized("C", "channels"),
            Resized("group", "channels"),
        ),
        kept=dict.fromkeys(rest, ALONG),
    )


def batch_norm(bound: Bound) -> NamedDims:
    """An elementwise function with figures per channel, which may be written again."""
    names = ("batch", "channels", *numbered(bound.shape("input"))[2:])
    figures = ("weight", "bias", "running_mean", "running_var")
    count = bound.shape("input")[1]
    kept = {s.name: ("channels",) for s, o in bound.writes[1:] if o.shape == (count,)}
    return named(
        bound,
        {"input": names} | dict.fromkeys(figures, ("channels",)),
        {"out": names} | kept,
    )


def weight_norm(bound: Bound) -> NamedDims:
    """The dimension along which lengths are given."""
    shape = bound.shape("v")
    names, at = numbered(shape), shapes.axis_of(bound.integer("dim"), len(shape))
    lengths = tuple(name if axis == at else WHOLE for axis, name in enumerate(names))
    writes = {"out": names}
    if len(bound.writes) > 1 and bound.writes[1][1].shape == bound.shape("g"):
        writes["norms"] = lengths
    kept = {name: ALONG for axis, name in enumerate(names) if axis != at}
    return named(bound, {"v": names, "g": lengths}, writes, kept=kept)


def gated(bound: Bound) -> NamedDims:
    """An elementwise function of two tensors."""
    if any(bound.shape(name) != result_shape(bound) for name in ("gate", "up")):
        return uncut("the shapes of its operands differ")(bound)
    return broadcast_names(bound)


def rotary(bound: Bound) -> NamedDims:
    """Each tensor is turned by the same angles; tensors are cut in the same proportion."""
    made = [operand.shape for _, operand in bound.writes]
    given = [operand.shape for operand in bound.operands("tensors")]
    ranks = {len(shape) for shape in made}
    most = max(len(bound.shape(name)) for name in ("cos", "sin"))
    if given != made or len(ranks) > 1 or not max(most, 1) <= len(made[0]):
        return uncut("the shapes of its operands are not those of tensors that are turned")(bound)
    names = numbered(made[0])
    angles = {name: bound.shape(name) for name in ("cos", "sin")}
    kept = {names[-1]: ALONG}
    for axis, name in enumerate(names):
        sizes = {shape[axis] for shape in made}
        turned = {(1,) * (len(names) - len(shape)) + shape for shape in angles.values()}
        if len(sizes) > 1 and any(shape[axis] != 1 for shape in turned):
            kept[name] = "tensors of other sizes share the angles along it"
    return named(
        bound,
        {name: spread(shape, names, made[0]) for name, shape in angles.items()}
        | {"tensors": names},
        written(bound, names),
        units={name: gcd(*(shape[axis] for shape in made)) for axis, name in enumerate(names)},
        kept=kept,
    )
