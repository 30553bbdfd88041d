"""Random calls of every operator of the table: shapes that fit, strided operands, contents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.operators.run import run
from tessera.backend.ptx_executor.operators.values import round_to, storage
from tessera.ir.operators import shapes, shapes_moved
from tessera.ir.operators.records import AttributeKind, Kinds, Operator, ResultType
from tessera.ir.operators.table import table
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import (
    AttributeValue,
    BufferId,
    LaunchId,
    LibraryCall,
    Operand,
    Pointer,
)

Shape = tuple[int, ...]
FLOATS = (DataType.F32, DataType.BF16, DataType.F16, DataType.F64)


@dataclass
class Fit:
    """Shapes of operands by name, attributes, and the limits of integers."""

    reads: dict[str, Shape | list[Shape]]
    out: Shape
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    more: dict[str, Shape] = field(default_factory=dict)
    below: int = 4
    types: dict[str, DataType] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """A call and the bytes of its buffers."""

    call: LibraryCall
    contents: tuple[np.ndarray, ...]

    def run(self, *calls: LibraryCall) -> tuple[list[bytes], list[set[tuple[str, int]]]]:
        """What calls leave in the buffers, and the places that each of them writes."""
        device = Device()
        arrays = [device.array(bytes_, f"b{n}") for n, bytes_ in enumerate(self.contents)]
        written = []
        for call in calls:
            log = run(device, call, lambda buffer: arrays[buffer].address).accesses
            written.append(
                {
                    (access.buffer, place)
                    for access in log
                    for start, end in access.writes
                    for place in range(start, end)
                }
            )
        return [array.view().tobytes() for array in arrays], written


def _shape(rng: Random, least: int = 1, most: int = 4, size: int = 5) -> Shape:
    return tuple(rng.randint(1, size) for _ in range(rng.randint(least, most)))


def _smaller(rng: Random, shape: Shape) -> Shape:
    """A shape that broadcasts to another."""
    kept = shape[rng.randint(0, len(shape)) :] if rng.random() < 0.3 else shape
    return tuple(1 if rng.random() < 0.3 else size for size in kept)


def _elementwise(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    reads: dict[str, Shape | list[Shape]] = {}
    attributes: dict[str, AttributeValue] = {}
    first = operator.reads[0].name
    for spec in operator.reads:
        reads[spec.name] = out if spec.name == first else _smaller(rng, out)
        if spec.name != first and spec.or_number and rng.random() < 0.4:
            del reads[spec.name]
            attributes[spec.name] = rng.choice([1, 2])
    return Fit(reads, out, attributes)


def _same(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    return Fit({spec.name: out for spec in operator.reads}, out)


def _along(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    return Fit({"self": out}, out, {"dim": rng.randrange(-len(out), len(out))})


def _topk(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng)
    dim = rng.randrange(len(shape))
    k = rng.randint(1, shape[dim])
    return Fit({"self": shape}, (*shape[:dim], k, *shape[dim + 1 :]), {"dim": dim, "k": k})


def _product(left: str, right: str, batch: bool = False, added: str = "") -> Callable:
    def make(rng: Random, operator: Operator) -> Fit:
        lead = (rng.randint(1, 3),) if batch else ()
        m, k, n = (rng.randint(1, 20) for _ in range(3))
        out = (*lead, m, n)
        reads: dict[str, Shape | list[Shape]] = {left: (*lead, m, k), right: (*lead, k, n)}
        if added:
            is_whole = operator.name.partition(".")[0].endswith("_")
            reads = {added: out if is_whole else _smaller(rng, out)} | reads
        return Fit(reads, out)

    return make


def _scaled(rng: Random, operator: Operator) -> Fit:
    m, k, n = rng.randint(1, 5), rng.randint(1, 9), 16 * rng.randint(1, 3)
    reads: dict[str, Shape | list[Shape]] = {"self": (m, k), "mat2": (k, n)}
    reads["scale_a"] = rng.choice([(), (1,), (m, 1)])
    reads["scale_b"] = rng.choice([(), (1,), (1, n)])
    if rng.random() < 0.5:
        reads["bias"] = (n,)
    types = dict.fromkeys(("self", "mat2"), DataType.E4M3)
    return Fit(reads, (m, n), types=types)


def _grouped(rng: Random, operator: Operator) -> Fit:
    groups, k, n, m = (rng.randint(1, 4), rng.randint(1, 5), 8 * rng.randint(1, 3), 6)
    return Fit({"self": (m, k), "mat2": (groups, k, n), "offs": (groups,)}, (m, n), below=m)


def _linear(rng: Random, operator: Operator) -> Fit:
    lead, k, n = _shape(rng, 0, 3, 3), rng.randint(1, 6), rng.randint(1, 9)
    reads: dict[str, Shape | list[Shape]] = {"input": (*lead, k), "weight": (n, k)}
    return Fit(reads | ({"bias": (n,)} if rng.random() < 0.5 else {}), (*lead, n))


def _convolution(rng: Random, operator: Operator) -> Fit:
    rank = rng.randint(1, 2)
    groups, inputs, outputs = (rng.randint(1, 3) for _ in range(3))
    kernel = tuple(rng.randint(1, 3) for _ in range(rank))
    sizes = tuple(rng.randint(3, 6) for _ in range(rank))
    pad, batch = rng.randint(0, 1), rng.randint(1, 3)
    out = tuple(s + 2 * pad - k + 1 for s, k in zip(sizes, kernel, strict=True))
    reads: dict[str, Shape | list[Shape]] = {
        "input": (batch, groups * inputs, *sizes),
        "weight": (groups * outputs, inputs, *kernel),
    }
    if rng.random() < 0.5 and any(spec.name == "bias" for spec in operator.reads):
        reads["bias"] = (groups * outputs,)
    attributes: dict[str, AttributeValue] = {"padding": (pad,) * rank, "groups": groups}
    return Fit(reads, (batch, groups * outputs, *out), attributes)


def _attention(rng: Random, operator: Operator) -> Fit:
    lead = _shape(rng, 0, 2, 3)
    heads, group, queries, keys, size, width = (rng.randint(1, 4) for _ in range(6))
    query = (*lead, heads * group, queries, size)
    reads: dict[str, Shape | list[Shape]] = {
        "query": query,
        "key": (*lead, heads, keys, size),
        "value": (*lead, heads, keys, width),
    }
    mask = next((s.name for s in operator.reads if s.name.startswith("attn")), "")
    if mask and rng.random() < 0.5:
        reads[mask] = _smaller(rng, (*query[:-1], keys))
    more = {"logsumexp": query[:-1], "seed": (), "offset": (), "debug_mask": (0,)}
    attributes: dict[str, AttributeValue] = {"enable_gqa": True, "is_causal": rng.random() < 0.3}
    if any(spec.name == "sinks" for spec in operator.reads):
        if rng.random() < 0.7:
            reads["sinks"] = (heads * group, 1, 1)
        attributes["softcap"] = rng.choice([None, 2.0])
    return Fit(reads, (*query[:-1], width), attributes, more)


def _reduced(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng)
    known = {spec.name: spec for spec in operator.attributes}
    if "dim" not in known:
        return Fit({"self": shape}, (), more={"indices": ()})
    axes = sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape))))
    if known["dim"].kind is AttributeKind.INTEGER:
        axes = axes[:1]
    keep = rng.random() < 0.5
    left = tuple(1 if n in axes else s for n, s in enumerate(shape) if keep or n not in axes)
    dim = axes[0] if known["dim"].kind is AttributeKind.INTEGER else tuple(axes)
    return Fit({"self": shape}, left, {"dim": dim, "keepdim": keep})


def _normalised(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 1, 4)
    tail = shape[rng.randrange(len(shape)) :]
    rows = (*shape[: -len(tail)], *(1 for _ in tail))
    reads: dict[str, Shape | list[Shape]] = {"input": shape}
    reads |= {spec.name: tail for spec in operator.reads[1:] if rng.random() < 0.8}
    more = {"mean": rows, "rstd": rows}
    return Fit(reads, shape, {"normalized_shape": tail}, more)


def _group_norm(rng: Random, operator: Operator) -> Fit:
    groups, own = rng.randint(1, 4), rng.randint(1, 3)
    shape = (rng.randint(1, 3), groups * own, *_shape(rng, 0, 2, 3))
    reads: dict[str, Shape | list[Shape]] = {"input": shape}
    reads |= dict.fromkeys(("weight", "bias"), (shape[1],))
    more = {"mean": (shape[0], groups), "rstd": (shape[0], groups)}
    given: dict[str, AttributeValue] = {"N": shape[0], "C": shape[1], "group": groups}
    return Fit(reads, shape, given | {"HxW": math.prod(shape[2:])}, more)


def _batch_norm(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 2, 4)
    figures = ("weight", "bias", "running_mean", "running_var")
    reads: dict[str, Shape | list[Shape]] = {"input": shape}
    reads |= dict.fromkeys(figures, (shape[1],))
    given = {"training": False} if operator.name[6:] == "native_batch_norm" else {}
    kept = rng.choice([(0,), (shape[1],)])
    return Fit(reads, shape, given, {"mean": kept, "rstd": kept})


def _pool(rng: Random, operator: Operator) -> Fit:
    shape = (*_shape(rng, 1, 2, 3), rng.randint(2, 6), rng.randint(2, 6))
    out = (*shape[:-2], shape[-2] // 2, shape[-1] // 2)
    return Fit({"self": shape}, out, {"kernel_size": (2, 2)}, {"indices": out})


def _weight_norm(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 1, 3)
    dim = rng.randrange(len(shape))
    lengths = tuple(s if n == dim else 1 for n, s in enumerate(shape))
    return Fit({"v": shape, "g": lengths}, shape, {"dim": dim}, {"norms": lengths})


def _over(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    reads: dict[str, Shape | list[Shape]] = {}
    attributes: dict[str, AttributeValue] = {}
    for spec in operator.reads:
        if spec.name == "src":
            reads["src"] = _smaller(rng, out)
        elif spec.name == "value" and "self" in reads and rng.random() < 0.5:
            attributes["value"] = 3
        elif spec.name == "value":
            reads["value"] = ()
        elif operator.is_in_place or rng.random() < 0.7:
            reads["self"] = out
        else:
            attributes["self"] = None
    return Fit(reads, out, attributes)


def _sized(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    reads: dict[str, Shape | list[Shape]] = {"self": (2,)} if operator.reads else {}
    return Fit(reads, out, {"size": out} if rng.random() < 0.8 else {})


def _flipped(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng)
    dims = tuple(sorted(rng.sample(range(len(out)), rng.randint(1, len(out)))))
    attributes: dict[str, AttributeValue] = {"dims": dims}
    if operator.function == "roll":
        attributes["shifts"] = tuple(rng.randint(-3, 3) for _ in dims)
    return Fit({"self": out}, out, attributes)


def _triangle(rng: Random, operator: Operator) -> Fit:
    out = _shape(rng, 2, 4)
    return Fit({"self": out}, out, {"diagonal": rng.randint(-2, 2)})


def _cat(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng)
    dim = rng.randrange(len(shape))
    sizes = [rng.randint(0, 3) for _ in range(3)]
    parts: list[Shape] = [(*shape[:dim], size, *shape[dim + 1 :]) for size in sizes]
    out = (*shape[:dim], sum(sizes), *shape[dim + 1 :])
    return Fit({"tensors": [*parts, (0,)]}, out, {"dim": dim})


def _stack(rng: Random, operator: Operator) -> Fit:
    shape, count = _shape(rng, 0, 3), rng.randint(1, 3)
    dim = rng.randint(0, len(shape))
    return Fit({"tensors": [shape] * count}, (*shape[:dim], count, *shape[dim:]), {"dim": dim})


def _repeated(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 0, 3, 3)
    counts = tuple(rng.randint(1, 3) for _ in range(len(shape) + rng.randint(0, 2)))
    wide = (1,) * (len(counts) - len(shape)) + shape
    out = tuple(size * count for size, count in zip(wide, counts, strict=True))
    return Fit({"self": shape}, out, {"repeats": counts})


def _padded(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 1, 3)
    pad = [rng.randint(0, 2) for _ in range(2 * rng.randint(0, len(shape)))]
    out = list(shape)
    for place in range(0, len(pad), 2):
        out[-1 - place // 2] += pad[place] + pad[place + 1]
    return Fit({"self": shape}, tuple(out), {"pad": tuple(pad), "value": 1.5})


def _arange(rng: Random, operator: Operator) -> Fit:
    return Fit({}, (5,), {"end": 5})


def _index_select(rng: Random, operator: Operator) -> Fit:
    shape, count = _shape(rng), rng.randint(1, 5)
    dim = rng.randrange(len(shape))
    out = (*shape[:dim], count, *shape[dim + 1 :])
    return Fit({"self": shape, "index": (count,)}, out, {"dim": dim}, below=shape[dim])


def _indices(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 1, 4)
    axes = sorted(rng.sample(range(len(shape)), rng.randint(1, min(2, len(shape)))))
    common = _shape(rng, 0, 2, 4)
    rest = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    at = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    chosen = (*rest[:at], *common, *rest[at:])
    below = min(shape[axis] for axis in axes)
    listed: list[Shape] = [common, *(_smaller(rng, common) for _ in axes[1:])]
    reads: dict[str, Shape | list[Shape]] = {"self": shape, "indices": listed}
    given: dict[str, AttributeValue] = {"indices_at": tuple(axes)}
    if operator.function != "index_put":
        return Fit(reads, chosen, given, below=below)
    reads["values"] = _smaller(rng, chosen)
    return Fit(reads, shape, given | {"accumulate": rng.random() < 0.5}, below=below)


def _embedding(rng: Random, operator: Operator) -> Fit:
    rows, width, places = rng.randint(1, 6), rng.randint(1, 6), _shape(rng, 0, 3, 3)
    return Fit({"weight": (rows, width), "indices": places}, (*places, width), below=rows)


def _beside(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng)
    dim = rng.randrange(len(shape))
    index = tuple(
        rng.randint(1, size) if n == dim or rng.random() < 0.2 else size
        for n, size in enumerate(shape)
    )
    reads: dict[str, Shape | list[Shape]] = {"self": shape, "index": index}
    given: dict[str, AttributeValue] = {"dim": dim}
    if operator.function == "gather":
        return Fit(reads, index, given, below=shape[dim])
    if any(spec.name == "src" for spec in operator.reads):
        reads["src"] = index
    if any(spec.name == "value" for spec in operator.attributes):
        given["value"] = 2
    if operator.function == "scatter_reduce":
        given["reduce"] = rng.choice(["sum", "prod", "amax", "amin", "mean"])
        given["include_self"] = rng.random() < 0.5
    return Fit(reads, shape, given, below=shape[dim])


def _index_rows(rng: Random, operator: Operator) -> Fit:
    shape, count = _shape(rng), rng.randint(1, 4)
    dim = rng.randrange(len(shape))
    source = (*shape[:dim], count, *shape[dim + 1 :])
    reads: dict[str, Shape | list[Shape]] = {"self": shape, "index": (count,), "source": source}
    return Fit(reads, shape, {"dim": dim}, below=shape[dim])


# --- operators that nothing runs -----------------------------------------------------------


def _merged(rng: Random, operator: Operator) -> Fit:
    lead, k = _shape(rng, 1, 2, 3), rng.choice([1, 3, 5])
    widths = [rng.choice([2, 4, 8]) for _ in range(rng.randint(1, 3))]
    turned = rng.random() < 0.5
    weights: list[Shape] = [(width, k) if turned else (k, width) for width in widths]
    more = {f"out{n}": (*lead, width) for n, width in enumerate(widths) if n}
    return Fit({"input": (*lead, k), "weights": weights}, (*lead, widths[0]), more=more)


def _rotary(rng: Random, operator: Operator) -> Fit:
    batch, heads, group, tokens, size = (rng.randint(1, 4) for _ in range(5))
    tensors: list[Shape] = [
        (batch, heads * group, tokens, 2 * size),
        (batch, heads, tokens, 2 * size),
    ]
    angles = rng.choice(
        [(batch, 1, tokens, 2 * size), (1, 1, tokens, 2 * size), (tokens, 2 * size)]
    )
    reads: dict[str, Shape | list[Shape]] = {"cos": angles, "sin": angles, "tensors": tensors}
    return Fit(reads, tensors[0], more={"out1": tensors[1]})


def _cache_write(rng: Random, operator: Operator) -> Fit:
    cache = (rng.randint(1, 3), rng.randint(1, 4), 6, 3)
    given = (*cache[:2], 2, 3)
    reads: dict[str, Shape | list[Shape]] = {"key_cache": cache, "value_cache": cache}
    reads |= {"index": (2,), "key": given, "value": given}
    return Fit(reads, cache, {"dim": 2}, {"value_cache": cache})


def _paged(rng: Random, operator: Operator) -> Fit:
    batch, heads, group, pages = (rng.randint(1, 4) for _ in range(4))
    cache, query = (9, 2, heads, 3), (batch, heads * group, 1, 3)
    reads: dict[str, Shape | list[Shape]] = {"query": query, "key_cache": cache}
    reads |= {"value_cache": cache, "pages": (batch, pages)}
    return Fit(reads, query)


def _fused_norm(rng: Random, operator: Operator) -> Fit:
    shape = _shape(rng, 1, 3)
    reads: dict[str, Shape | list[Shape]] = {spec.name: shape for spec in operator.reads[:2]}
    reads |= {spec.name: shape[-1:] for spec in operator.reads if spec.is_optional}
    return Fit(reads, shape, more={"sum": shape})


def _experts(rng: Random, operator: Operator) -> Fit:
    sizes = ("tokens", "hidden", "inner", "chosen", "experts")
    return Fit({"operands": [(4, 2), (3, 2, 5)]}, (4, 2), dict.fromkeys(sizes, 2))


def _quantized(rng: Random, operator: Operator) -> Fit:
    lead, k = _shape(rng, 1, 2, 3), rng.choice([2, 4])
    width = rng.choice([2, 4, 8])
    weights: list[Shape] = [(k, width), rng.choice([(1, width), (1, width // 2)]), (width,)]
    reads: dict[str, Shape | list[Shape]] = {"input": (*lead, k), "weights": weights}
    return Fit(reads, (*lead, width), {"arithmetic": "bf16"})


def _latent(rng: Random, operator: Operator) -> Fit:
    batch, heads, queries, keys, latent, turned, size, wide = (rng.randint(1, 4) for _ in range(8))
    reads: dict[str, Shape | list[Shape]] = {
        "query": (batch, heads, queries, size + turned),
        "latent": (batch, 1, keys, latent),
        "shared": (batch, 1, keys, turned),
        "weight": (latent, heads * (size + wide)),
    }
    if rng.random() < 0.5:
        reads["attn_mask"] = _smaller(rng, (batch, heads, queries, keys))
    return Fit(reads, (batch, heads, queries, wide), {"is_causal": rng.random() < 0.3})


def _stated(rng: Random, operator: Operator) -> Fit:
    """Two operands and a result whose dimensions have letters, or are whole in every part."""
    sizes = {"a": 4, "b": 6, "_": 3}
    made = rng.choice(["ab", "ab_", "a_b"])
    given = ["".join(rng.sample("ab_", rng.randint(1, 3))) for _ in range(2)]
    shape = {text: tuple(sizes[letter] for letter in text) for text in (*given, made)}
    dims = f"{','.join(given)}->{made}"
    operands: list[Shape] = [shape[text] for text in given]
    return Fit({"operands": operands}, shape[made], {"dims": dims, "operations": 10})


_BY_FUNCTION: dict[str, Callable[[Random, Operator], Fit]] = {
    "batch_norm": _batch_norm,
    "max_pool2d": _pool,
    "weight_norm": _weight_norm,
    "fused_norm": _fused_norm,
    "gated": _same,
    "rotary": _rotary,
    "merged_linear": _merged,
    "quantized_linear": _quantized,
    "latent_attention": _latent,
    **dict.fromkeys(("fused", "fused_rows", "fused_products"), _stated),
    "cache_write": _cache_write,
    "paged_attention": _paged,
    "experts": _experts,
    "other": lambda rng, operator: Fit({"operands": [(3, 2)]}, (3, 2)),
    "dot": lambda rng, operator: Fit({"self": (5,), "tensor": (5,)}, ()),
    "mv": lambda rng, operator: Fit({"self": (5, 3), "vec": (3,)}, (5,)),
    "scalar": lambda rng, operator: Fit({}, (), {"s": 3}),
    "histc": lambda rng, operator: Fit({"self": (9,)}, (4,), {"bins": 4}),
}
_BY_SHAPES: dict[Callable, Callable[[Random, Operator], Fit]] = {
    shapes.elementwise: _elementwise,
    shapes.same_as_self: _same,
    shapes.mm: _product("self", "mat2"),
    shapes.bmm: _product("self", "mat2", batch=True),
    shapes.addmm: _product("mat1", "mat2", added="self"),
    shapes.baddbmm: _product("batch1", "batch2", batch=True, added="self"),
    shapes.scaled_mm: _scaled,
    shapes.grouped_mm: _grouped,
    shapes.linear: _linear,
    shapes.convolution: _convolution,
    shapes.attention: _attention,
    shapes.reduced: _reduced,
    shapes.chosen: _reduced,
    shapes.along: _along,
    shapes.topk: _topk,
    shapes.normalised: _normalised,
    shapes.group_norm: _group_norm,
    shapes_moved.like_self: _over,
    shapes_moved.written_over: _over,
    shapes_moved.flipped: _flipped,
    shapes_moved.rolled: _flipped,
    shapes_moved.triangle: _triangle,
    shapes_moved.cat: _cat,
    shapes_moved.stack: _stack,
    shapes_moved.repeated: _repeated,
    shapes_moved.padded: _padded,
    shapes_moved.arange: _arange,
    shapes_moved.sized: _sized,
    shapes_moved.index_select: _index_select,
    shapes_moved.index_tensor: _indices,
    shapes_moved.embedding: _embedding,
    shapes_moved.gather: _beside,
    shapes_moved.scatter: _beside,
    shapes_moved.index_rows: _index_rows,
    shapes_moved.index_put: _indices,
}


def random_case(name: str, rng: Random) -> Case:
    """A call of an operator with operands of random shapes, types, strides and contents."""
    operator = table()[name]
    maker = _BY_FUNCTION.get(operator.function) or _BY_SHAPES[operator.shapes]
    fit = maker(rng, operator)
    attributes = dict(fit.attributes)
    for spec in operator.attributes:
        if spec.is_required and spec.kind is AttributeKind.NUMBER:
            attributes.setdefault(spec.name, 2)
    base = _base(rng, operator)
    contents: list[np.ndarray] = []
    reads: list[Operand] = []
    first: DataType | None = None
    for spec in operator.reads:
        given = fit.reads.get(spec.name)
        if given is None:
            if spec.is_optional and spec.name not in attributes:
                attributes[spec.name] = None
            continue
        dtype = fit.types.get(spec.name) or _type(spec.kinds, base)
        first = first or dtype
        for shape in given if isinstance(given, list) else [given]:
            written = operator.is_in_place and not reads
            reads.append(_place(rng, contents, dtype, shape, fit.below, loose=not written))
    writes = _writes(rng, operator, fit, contents, reads, first or base)
    kind = next((s for s in operator.attributes if s.name == "out_dtype"), None)
    if kind is not None and kind.is_required:
        attributes["out_dtype"] = writes[0].dtype.value
    call = LibraryCall(
        id=LaunchId(0),
        operator=name,
        reads=tuple(reads),
        writes=tuple(writes),
        attributes=tuple(attributes.items()),
    )
    return Case(call, tuple(contents))


def _writes(
    rng: Random,
    operator: Operator,
    fit: Fit,
    contents: list[np.ndarray],
    reads: list[Operand],
    first: DataType,
) -> list[Operand]:
    names = {spec.name: spec for spec in operator.reads}
    made: list[Operand] = []
    for number, spec in enumerate(operator.writes):
        if number and spec.is_optional and spec.name not in fit.more:
            continue
        in_place = operator.is_in_place and number == 0 and "self" in fit.reads
        if in_place or (spec.name in names and spec.name in fit.reads):
            made.append(reads[number])
            continue
        shape = fit.out if number == 0 else fit.more.get(spec.name, fit.out)
        is_same = operator.result is ResultType.SAME
        wide = first if is_same or first.is_float else _type(spec.kinds, DataType.F32)
        dtype = wide if spec.kinds.holds(wide) else _type(spec.kinds, wide)
        if first is DataType.E4M3:
            dtype = DataType.BF16
        made.append(_place(rng, contents, dtype, shape, 2, loose=False))
    return made


def _base(rng: Random, operator: Operator) -> DataType:
    """The type of operands of any type: one that the first operand and the result can have."""
    if operator.is_in_place and operator.writes[0].kinds is Kinds.BOOL:
        return DataType.BOOL
    if operator.reads and not operator.reads[0].kinds.holds(DataType.F32):
        return DataType.S64 if operator.result is ResultType.PROMOTED else rng.choice(FLOATS)
    return rng.choice(FLOATS)


def _type(kinds: Kinds, base: DataType) -> DataType:
    return next(dtype for dtype in (base, DataType.S64, DataType.BOOL) if kinds.holds(dtype))


def _place(
    rng: Random,
    contents: list[np.ndarray],
    dtype: DataType,
    shape: Shape,
    below: int,
    *,
    loose: bool,
) -> Operand:
    """An operand in a buffer of its own: its dimensions in any order, padded, or repeated."""
    order = list(range(len(shape)))
    strides = [0] * len(shape)
    step = 1
    plain = rng.random() < 0.4
    if not plain:
        rng.shuffle(order)
    for axis in reversed(order):
        strides[axis] = step
        step *= max(1, shape[axis] + (0 if plain else rng.randint(0, 2)))
        if loose and not plain and rng.random() < 0.1:
            strides[axis] = 0
    ahead = 0 if plain else rng.randint(0, 3)
    count = ahead + 1 + sum((size - 1) * s for size, s in zip(shape, strides, strict=True) if size)
    contents.append(_values(rng, dtype, count + 2, below))
    return Operand(
        pointer=Pointer(BufferId(len(contents) - 1), ahead * dtype.bytes),
        dtype=dtype,
        shape=shape,
        strides=None if plain else tuple(strides),
    )


def _values(rng: Random, dtype: DataType, count: int, below: int) -> np.ndarray:
    made = np.random.default_rng(rng.getrandbits(32))
    if not dtype.is_float:
        values = made.integers(0, max(1, below), count)
        return round_to(dtype, values).astype(storage(dtype))
    values = made.normal(size=count) * 4
    values[made.random(count) < 0.1] = 0.0
    values[made.random(count) < 0.1] = -0.0
    values[made.random(count) < 0.03] = np.inf
    values[made.random(count) < 0.03] = np.nan
    return round_to(dtype, values.astype(np.float32))
