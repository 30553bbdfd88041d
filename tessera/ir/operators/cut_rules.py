"""The rules by which calls of operators are cut: one for each rule of shapes.

In: a bound call. Out: the names of its dimensions (`cuts.NamedDims`). `rule_of` finds the rule of
an operator; an operator without a rule is an error of the table, and one that cannot be cut has a
rule that says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd

from tessera.ir.operators import cut_products, shapes, shapes_moved
from tessera.ir.operators.cuts import (
    ALONG,
    WHOLE,
    WINDOWS,
    CutRule,
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
from tessera.ir.operators.notation import ShapeRule
from tessera.ir.operators.records import Bound, Operator
from tessera.wording import Wording


def rule_of(operator: Operator) -> CutRule:
    """The rule of an operator of the table."""
    return _BY_FUNCTION.get(operator.function) or _BY_SHAPES[operator.shapes]


def dims_of(bound: Bound) -> NamedDims:
    """The names of the dimensions of a call."""
    return rule_of(bound.operator).names(bound)


# --- elementwise ---------------------------------------------------------------------------


def _same(why: str = ALONG, *kept: Callable[[Bound], tuple[int, ...]]) -> Namer:
    """Results with the dimensions of `self`, of which some are not cut."""

    def names(bound: Bound) -> NamedDims:
        listed = numbered(bound.shape("self"))
        reasons = {listed[axis]: why for rule in kept for axis in rule(bound) if listed}
        return named(bound, {"self": listed}, written(bound, listed), kept=reasons)

    return names


def _dim(bound: Bound) -> tuple[int, ...]:
    return (shapes.axis_of(bound.integer("dim"), len(bound.shape("self"))),)


def _dims(bound: Bound) -> tuple[int, ...]:
    return shapes.axes_of(bound, len(bound.shape("self")), "dims")


def _padded_dims(bound: Bound) -> tuple[int, ...]:
    pad, rank = bound.integers("pad") or (), len(bound.shape("self"))
    pairs = zip(pad[::2], pad[1::2], strict=True)
    return tuple(rank - 1 - place for place, pair in enumerate(pairs) if any(pair))


def _last_two(bound: Bound) -> tuple[int, ...]:
    rank = len(bound.shape("self"))
    return (rank - 2, rank - 1)


# --- copies and indices --------------------------------------------------------------------


def _cat(bound: Bound) -> NamedDims:
    names = numbered(result_shape(bound))
    kept = {}
    if names:
        at = shapes.axis_of(bound.integer("dim"), len(names))
        kept[names[at]] = "the tensors are joined along it"
    made = named(bound, {}, written(bound, names), kept=kept)
    own = tuple(
        names if len(operand.shape) == len(names) else (WHOLE,)
        for operand in bound.operands("tensors")
    )
    return replace(made, reads=own)


def _stack(bound: Bound) -> NamedDims:
    names = numbered(result_shape(bound))
    at = shapes.axis_of(bound.integer("dim"), len(names))
    own = (*names[:at], *names[at + 1 :])
    return named(
        bound, {"tensors": own}, {"out": names}, kept={names[at]: "the tensors are joined along it"}
    )


def _repeated(bound: Bound) -> NamedDims:
    shape, counts = bound.shape("self"), bound.integers("repeats") or ()
    names = numbered(counts)
    wide = (1,) * (len(counts) - len(shape)) + shape
    own = tuple(name if size != 1 else WHOLE for name, size in zip(names, wide, strict=True))
    sizes = list(zip(names, wide, counts, strict=True))
    return named(
        bound,
        {"self": own[len(counts) - len(shape) :]},
        {"out": names},
        resized=tuple(
            Resized("repeats", name, at) for at, (name, size, _) in enumerate(sizes) if size == 1
        ),
        kept={n: "the tensor is repeated along it" for n, size, c in sizes if size != 1 != c},
    )


def _sized(bound: Bound) -> NamedDims:
    names = numbered(result_shape(bound))
    resized: tuple[Resized, ...] = ()
    if bound.integers("size") is not None:
        resized = tuple(Resized("size", name, at) for at, name in enumerate(names))
    return named(bound, {}, {"out": names}, resized=resized)


def _index_select(bound: Bound) -> NamedDims:
    names = numbered(bound.shape("self"))
    if not names:
        return named(bound, {}, {})
    (at,) = _dim(bound)
    own = (*names[:at], WHOLE, *names[at + 1 :])
    picked = (names[at],) * len(bound.shape("index"))
    return named(bound, {"self": own, "index": picked}, {"out": names})


def _index_names(bound: Bound, names: Names) -> tuple[Names, Names, int]:
    """The names of `self`, those of what the indices choose, and where their own begin."""
    axes = shapes_moved.indexed_axes(bound)
    at = axes[0] if axes and axes[-1] - axes[0] == len(axes) - 1 else 0
    count = len(names) - (len(bound.shape("self")) - len(axes))
    rest = iter((*names[:at], *names[at + count :]))
    own = tuple(WHOLE if n in axes else next(rest) for n in range(len(bound.shape("self"))))
    return own, names[at : at + count], at


def _index_tensor(bound: Bound) -> NamedDims:
    whole = result_shape(bound)
    names = numbered(whole)
    own, common, at = _index_names(bound, names)
    made = named(bound, {"self": own}, {"out": names})
    picked = tuple(
        spread(operand.shape, common, whole[at : at + len(common)])
        for operand in bound.operands("indices")
    )
    return replace(made, reads=(own, *picked))


def _index_put(bound: Bound) -> NamedDims:
    names, axes = numbered(bound.shape("self")), shapes_moved.indexed_axes(bound)
    chosen = shapes_moved.index_tensor(bound)[0] or ()
    at = axes[0] if axes and axes[-1] - axes[0] == len(axes) - 1 else 0
    rest = tuple(name for axis, name in enumerate(names) if axis not in axes)
    picked = (*rest[:at], *(WHOLE,) * (len(chosen) - len(rest)), *rest[at:])
    return named(
        bound,
        {"self": names, "values": spread(bound.shape("values"), picked, chosen)},
        {"out": names},
        kept={names[axis]: "the values of `indices` say what is written" for axis in axes},
    )


def _embedding(bound: Bound) -> NamedDims:
    names = numbered(result_shape(bound))
    return named(bound, {"weight": (WHOLE, names[-1]), "indices": names[:-1]}, {"out": names})


def _gather(bound: Bound) -> NamedDims:
    names, kept = _beside(bound)
    (at,) = _dim(bound) if names else (0,)
    own = tuple(WHOLE if axis == at else name for axis, name in enumerate(names))
    if names:
        kept.pop(names[at], None)
    return named(bound, {"self": own, "index": names}, {"out": names}, kept=kept)


def _scatter(bound: Bound) -> NamedDims:
    names, kept = _beside(bound)
    if names:
        kept[names[_dim(bound)[0]]] = "the values of `index` say what is written"
    return named(bound, dict.fromkeys(("self", "index", "src"), names), {"out": names}, kept=kept)


def _beside(bound: Bound) -> tuple[Names, dict[str, str]]:
    """Dimensions in which `self`, `index` and `src` have one size; the others are not cut."""
    whole = bound.shape("self")
    given = [bound.shape(name) for name in ("index", "src") if bound.has(name)]
    names = numbered(whole)
    other = {
        name: "`self`, `index` and `src` have other sizes"
        for axis, name in enumerate(names)
        if any(shape[axis] != whole[axis] for shape in given)
    }
    return names, other


def _index_rows(bound: Bound) -> NamedDims:
    names = numbered(bound.shape("self"))
    if not names:
        return named(bound, {}, {})
    at = names[_dim(bound)[0]]
    reads = {"self": names, "source": names}
    return named(
        bound, reads, {"out": names}, kept={at: "the values of `index` say what is written"}
    )


def _cache_write(bound: Bound) -> NamedDims:
    """Keys and values are written into their caches along `dim`."""
    cache, dim = bound.shape("key_cache"), bound.integer("dim")
    caches = [bound.shape("key_cache"), bound.shape("value_cache")]
    given = [bound.shape("key"), bound.shape("value")]
    if any(len(shape) != len(cache) for shape in (*caches, *given)) or not cache:
        return uncut("the shapes of its operands are not those of caches")(bound)
    names = numbered(cache)
    at = shapes.axis_of(dim, len(cache))
    kept = {
        name: "caches, keys and values have other sizes"
        for axis, name in enumerate(names)
        if any(shape[axis] != cache[axis] for shape in (*caches, *given))
    }
    kept[names[at]] = "the values of `index` say what is written"
    operands = ("key_cache", "value_cache", "key", "value")
    return named(bound, dict.fromkeys(operands, names), written(bound, names), kept=kept)


def _stated(bound: Bound) -> NamedDims:
    """As the call says: a letter for each dimension, `_` for one that every part has whole."""
    given = [operand for _, operands in bound.reads for operand in operands]
    made = [operand for _, operand in bound.writes]
    texts = str(bound.attribute("dims")).replace("->", "," if given else "").split(",")
    ranks = [len(operand.shape) for operand in (*given, *made)]
    if [len(text) for text in texts] != ranks:
        return uncut("`dims` does not name the dimensions of its operands")(bound)
    names = [tuple(WHOLE if letter == "_" else letter for letter in text) for text in texts]
    sizes: dict[str, int] = {}
    for operand, own in zip((*given, *made), names, strict=True):
        for size, name in zip(operand.shape, own, strict=True):
            sizes[name] = gcd(sizes.get(name, 0), size)
    sizes.pop(WHOLE, None)
    results = names[len(given) :]
    return NamedDims(
        reads=tuple(names[: len(given)]),
        writes=tuple(results),
        units=tuple(sizes.items()),
        kept=tuple(
            (name, Wording("a result has all of it"))
            for name in sizes
            if any(name not in own for own in results)
        ),
    )


# --- the tables ----------------------------------------------------------------------------


_ALL = "every dimension"
_OTHERS = "every dimension but `dim`"
_BY_SHAPES: dict[ShapeRule, CutRule] = {
    shapes.elementwise: CutRule(_ALL, broadcast_names),
    shapes.same_as_self: CutRule(_ALL, _same()),
    shapes.mm: CutRule("rows, columns", cut_products.product("self", "mat2")),
    shapes.bmm: CutRule("batch, rows, columns", cut_products.product("self", "mat2", "batch")),
    shapes.addmm: CutRule("rows, columns", cut_products.product("mat1", "mat2", added="self")),
    shapes.baddbmm: CutRule(
        "batch, rows, columns", cut_products.product("batch1", "batch2", "batch", added="self")
    ),
    shapes.scaled_mm: CutRule("rows, columns", cut_products.scaled),
    shapes.grouped_mm: CutRule("columns", cut_products.grouped),
    shapes.mv: CutRule("rows", cut_products.vector),
    shapes.dot: CutRule("none: the result is one sum", uncut("the result is one sum")),
    shapes.linear: CutRule("rows, columns", cut_products.linear),
    shapes.convolution: CutRule("batch, channels", cut_products.convolution),
    shapes.attention: CutRule("sequences, heads, queries", cut_products.attention),
    shapes.reduced: CutRule("every dimension of the result", cut_products.reduced),
    shapes.chosen: CutRule("every dimension of the result", cut_products.reduced),
    shapes.single: CutRule("none: one element", uncut("there is one element")),
    shapes.bins: CutRule(
        "none: each bin counts all elements", uncut("each bin counts all elements")
    ),
    shapes.along: CutRule(_OTHERS, _same(ALONG, _dim)),
    shapes.topk: CutRule(_OTHERS, _same(ALONG, _dim)),
    shapes.normalised: CutRule("every dimension that is not normalised", cut_products.normalised),
    shapes.group_norm: CutRule("batch, channels (whole groups)", cut_products.group_norm),
    shapes_moved.like_self: CutRule(_ALL, broadcast_names),
    shapes_moved.written_over: CutRule(_ALL, broadcast_names),
    shapes_moved.flipped: CutRule("every dimension that is not flipped", _same(ALONG, _dims)),
    shapes_moved.rolled: CutRule("every dimension that is not rolled", _same(ALONG, _dims)),
    shapes_moved.triangle: CutRule(
        "every dimension but the last two",
        _same("the diagonal counts from the first row and column", _last_two),
    ),
    shapes_moved.cat: CutRule(_OTHERS, _cat),
    shapes_moved.stack: CutRule(_OTHERS, _stack),
    shapes_moved.repeated: CutRule("every dimension that is not repeated", _repeated),
    shapes_moved.padded: CutRule("every dimension that is not padded", _same(ALONG, _padded_dims)),
    shapes_moved.arange: CutRule(
        "none: values count from `start`", uncut("its values count from `start`")
    ),
    shapes_moved.sized: CutRule(_ALL, _sized),
    shapes_moved.index_select: CutRule(_ALL, _index_select),
    shapes_moved.index_tensor: CutRule(_ALL, _index_tensor),
    shapes_moved.embedding: CutRule(_ALL, _embedding),
    shapes_moved.gather: CutRule(_ALL, _gather),
    shapes_moved.scatter: CutRule(_OTHERS, _scatter),
    shapes_moved.index_rows: CutRule(_OTHERS, _index_rows),
    shapes_moved.index_put: CutRule("every dimension without an index", _index_put),
}
_UNKNOWN = "what it computes is not known"
_ROUTED = "tokens choose their experts, and the results of the experts are summed"
_STATED = CutRule("what `dims` names", _stated)
_BY_FUNCTION: dict[str, CutRule] = {
    **dict.fromkeys(("fused", "fused_rows", "fused_products"), _STATED),
    "batch_norm": CutRule(_ALL, cut_products.batch_norm),
    "max_pool2d": CutRule("every dimension but the last two", _same(WINDOWS, _last_two)),
    "weight_norm": CutRule("`dim`", cut_products.weight_norm),
    "other": CutRule(f"none: {_UNKNOWN}", uncut(_UNKNOWN)),
    "fused_norm": CutRule("every dimension but the last", cut_products.fused_norm),
    "gated": CutRule(_ALL, cut_products.gated),
    "rotary": CutRule("every dimension but the last", cut_products.rotary),
    "merged_linear": CutRule("rows, columns (of each in proportion)", cut_products.merged),
    "quantized_linear": CutRule("rows, columns (in proportion)", cut_products.quantized),
    "cache_write": CutRule(_OTHERS, _cache_write),
    "paged_attention": CutRule("sequences, heads, queries", cut_products.paged),
    "latent_attention": CutRule("sequences, heads, queries", cut_products.latent),
    "experts": CutRule(f"none: {_ROUTED}", uncut(_ROUTED)),
}
