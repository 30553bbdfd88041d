"""The traces of the self-test: small models over the kernels of `data/selftest`.

In: the name of a model and a size. Out: the text of a trace. Nothing outside the package is needed.
The kernels give the same bytes on every GPU, so whatever placement can be compared to the byte
(`kernels.cu` says how). Contents are seeded.

`prefill` reads many tokens through transformer layers; `decode` one token of each of some
sequences, over caches that stay; `towers` two stacks that meet at the end, so that there is work
that can go on side by side.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_KERNELS = Path(__file__).parents[2] / "data" / "selftest" / "kernels.ptx"
_FLOAT = 4
_TILE = 64
_THREADS = 128


class TrialModel(StrEnum):
    """The models by name."""

    PREFILL = "prefill"
    DECODE = "decode"
    TOWERS = "towers"


class TrialSize(StrEnum):
    """How large they are: for GPUs, or for whatever runs PTX by itself."""

    USUAL = "usual"
    SMALL = "small"


def trace_text(model: TrialModel, size: TrialSize) -> str:
    """The trace of a model."""
    draft = _TraceDraft()
    is_small = size is TrialSize.SMALL
    match model:
        case TrialModel.PREFILL:
            _prefill(draft, _SMALL_SHAPE if is_small else _PREFILL_SHAPE)
        case TrialModel.DECODE:
            _decode(draft, _SMALL_DECODE_SHAPE if is_small else _DECODE_SHAPE)
        case TrialModel.TOWERS:
            _towers(draft, 20 if is_small else 384, (32, 48) if is_small else (512, 768))
    return draft.text(model)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """A transformer. `rows` are tokens, or sequences with caches of `context` tokens."""

    layers: int
    rows: int
    heads: int
    head_width: int
    hidden: int
    context: int = 0

    @property
    def width(self) -> int:
        return self.heads * self.head_width


_PREFILL_SHAPE = _Shape(layers=3, rows=128, heads=8, head_width=64, hidden=1408)
_SMALL_SHAPE = _Shape(layers=2, rows=6, heads=2, head_width=16, hidden=48)
_DECODE_SHAPE = _Shape(layers=4, rows=4, heads=12, head_width=64, hidden=2048, context=32)
_SMALL_DECODE_SHAPE = _Shape(layers=2, rows=2, heads=2, head_width=16, hidden=64, context=8)


@dataclass(slots=True)
class _TraceDraft:
    """A trace in the making."""

    buffers: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    def buffer(self, name: str, role: str, *shape: int, dtype: str = "f32") -> str:
        count = _FLOAT
        for extent in shape:
            count *= extent
        extents = "x".join(map(str, shape))
        self.buffers.append(
            f"//! buffer {name} bytes={count} role={role} dtype={dtype} shape={extents}"
        )
        return name

    def launch(
        self, kernel: str, grid: tuple[int, int], block: tuple[int, int], *arguments: object
    ) -> None:
        given = ", ".join(str(a) if isinstance(a, str) else f"u32:{a}" for a in arguments)
        self.steps.append(
            f"//! launch kernels.{kernel} grid={grid[0]},{grid[1]},1 block={block[0]},{block[1]},1"
            f" smem=0 args=[{given}]"
        )

    def text(self, name: str) -> str:
        return "\n".join(
            (
                f"// The model `{name}` of `tessc selftest`. Contents are seeded.",
                "//! tessera.trace 1",
                *self.buffers,
                "//! module kernels",
                _KERNELS.read_text("utf-8").rstrip("\n"),
                *self.steps,
                "",
            )
        )

    # --- the kernels --------------------------------------------------------------------------

    def product(
        self, left: str, right: str, target: str, m: int, n: int, k: int, skip: str = ""
    ) -> None:
        """A product; few rows have a kernel of their own, with the weight the other way round."""
        arguments = (left, right, skip or left, target, m, n, k, int(bool(skip)))
        if m <= 8:
            self.launch("thin_product", (_parts(n, 4), 1), (32, 4), *arguments)
        else:
            grid = (_parts(n, _TILE), _parts(m, _TILE))
            self.launch("product", grid, (16, 16), *arguments)

    def each(self, kernel: str, count: int, *arguments: object) -> None:
        """A kernel with a thread for each of some numbers."""
        self.launch(kernel, (_parts(count, _THREADS), 1), (_THREADS, 1), *arguments)

    def norm(self, source: str, weight: str, target: str, rows: int, width: int) -> None:
        self.launch("row_norm", (rows, 1), (_THREADS, 1), source, weight, target, width)


def _parts(count: int, size: int) -> int:
    return -(-count // size)


def _scale(shape: _Shape) -> str:
    return f"f32:{shape.head_width**-0.5!r}"


def _prefill(draft: _TraceDraft, shape: _Shape) -> None:
    x = draft.buffer("tokens", "input", shape.rows, shape.width)
    for layer in range(shape.layers):
        x = _layer(draft, shape, layer, x, "")
    _last(draft, shape, x)


def _decode(draft: _TraceDraft, shape: _Shape) -> None:
    x = draft.buffer("tokens", "input", shape.rows, shape.width)
    position = draft.buffer("position", "input", shape.rows)
    for layer in range(shape.layers):
        x = _layer(draft, shape, layer, x, position)
    _last(draft, shape, x)


def _layer(draft: _TraceDraft, shape: _Shape, layer: int, x: str, position: str) -> str:
    """Attention and a perceptron, each after a norm and beside what goes in."""
    rows, width, hidden = shape.rows, shape.width, shape.hidden

    def weight(name: str, n: int, k: int) -> str:
        return draft.buffer(f"{name}{layer}", "weight", *((n, k) if rows <= 8 else (k, n)))

    def temp(name: str, columns: int) -> str:
        return draft.buffer(f"{name}{layer}", "temp", rows, columns)

    normed, mixed = temp("normed", width), temp("mixed", 3 * width)
    draft.norm(x, draft.buffer(f"scale{layer}", "weight", width), normed, rows, width)
    draft.product(normed, weight("query", 3 * width, width), mixed, rows, 3 * width, width)
    seen = temp("seen", width)
    heads = (shape.heads, shape.head_width)
    if position:
        extents = (rows, shape.context, 2 * width)
        cache = draft.buffer(f"cache{layer}", "state", *extents)
        grid = (_parts(2 * width, _THREADS), rows)
        draft.launch("keep", grid, (_THREADS, 1), mixed, position, cache, width, shape.context)
        draft.launch(
            "cached_attention",
            (rows, shape.heads),
            (_THREADS, 1),
            *(mixed, cache, seen, *heads, shape.context, _scale(shape)),
        )
    else:
        grid = (rows, shape.heads)
        draft.launch("attention", grid, (_THREADS, 1), mixed, seen, *heads, _scale(shape))
    added = temp("added", width)
    draft.product(seen, weight("out", width, width), added, rows, width, width, skip=x)
    normed = temp("normed_again", width)
    draft.norm(added, draft.buffer(f"scale_again{layer}", "weight", width), normed, rows, width)
    up, gated, y = temp("up", 2 * hidden), temp("gated", hidden), temp("layer", width)
    draft.product(normed, weight("wide", 2 * hidden, width), up, rows, 2 * hidden, width)
    draft.each("gate", rows * hidden, up, gated, hidden, rows * hidden)
    draft.product(gated, weight("narrow", width, hidden), y, rows, width, hidden, skip=added)
    return y


def _last(draft: _TraceDraft, shape: _Shape, x: str) -> None:
    y = draft.buffer("y", "output", shape.rows, shape.width)
    scale = draft.buffer("scale_last", "weight", shape.width)
    draft.norm(x, scale, y, shape.rows, shape.width)


def _towers(draft: _TraceDraft, rows: int, widths: tuple[int, int]) -> None:
    """Stacks of products of two widths; one adds to the other at the end."""
    ends = []
    for tower, width in zip(("left", "right"), widths, strict=True):
        x = draft.buffer(tower, "input", rows, width)
        for layer in range(4):
            name = f"{tower}{layer}"
            normed = draft.buffer(f"{name}_normed", "temp", rows, width)
            draft.norm(x, draft.buffer(f"{name}_scale", "weight", width), normed, rows, width)
            wide = draft.buffer(f"{name}_wide", "temp", rows, 2 * width)
            above = draft.buffer(f"{name}_above", "temp", rows, 2 * width)
            up = draft.buffer(f"{name}_up", "weight", width, 2 * width)
            draft.product(normed, up, wide, rows, 2 * width, width)
            draft.each("positive", rows * 2 * width, wide, above, rows * 2 * width)
            y = draft.buffer(f"{name}_out", "temp", rows, width)
            down = draft.buffer(f"{name}_down", "weight", 2 * width, width)
            draft.product(above, down, y, rows, width, 2 * width, skip=x)
            x = y
        ends.append(x)
    left, right = widths
    y = draft.buffer("y", "output", rows, left)
    found = draft.buffer("found", "output", 1, dtype="u32")
    join = draft.buffer("join", "weight", right, left)
    draft.product(ends[1], join, y, rows, left, right, skip=ends[0])
    draft.steps.append(f"//! memset {found} bytes={_FLOAT} value=0x00")
    draft.each("count_positive", rows * left, y, found, rows * left)
