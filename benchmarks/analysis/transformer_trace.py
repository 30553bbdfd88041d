"""A transformer trace of any length, from the Triton kernels of the corpus.

In: how many layers. Out: the text of a trace. A layer launches the same 40 kernels: norms,
projections in several types, attention, rotary-like element-wise code, gated experts, a paged
decode step, softmax, loss. Every layer has weights and caches of its own; activations are shared,
so that layers depend on each other as they do in a model.

Sizes are those of a model of some billion parameters at 1024 tokens. The PTX is about 1 MB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tests.helpers.corpus import corpus_text

TOKENS, HIDDEN, INNER, HEADS, HEAD = 1024, 2048, 5504, 32, 64
PAGES, PAGE, SEQUENCES, EXPERTS = 256, 16, 16, 8
_ENTRY = re.compile(r"\.entry (\w+)\((.*?)\)", re.DOTALL)
_THREADS = re.compile(r"\.(?:req|max)ntid (\d+)")


@dataclass(slots=True)
class Layer:
    """Gives out buffers as a layer asks for them; those with a number belong to one layer."""

    number: int
    buffers: dict[str, tuple[int, str]] = field(default_factory=dict)

    def weight(self, name: str, size: int) -> str:
        """A weight of this layer."""
        return self._declare(f"{name}.{self.number}", size, "weight")

    def cache(self, name: str, size: int) -> str:
        """A state of this layer."""
        return self._declare(f"{name}.{self.number}", size, "state")

    def given(self, name: str, size: int) -> str:
        """An input of the whole step."""
        return self._declare(name, size, "input")

    def shared(self, name: str, size: int) -> str:
        """An activation, the same in every layer."""
        return self._declare(name, size, "input" if name == "x" else "temp")

    def _declare(self, name: str, size: int, role: str) -> str:
        known = self.buffers.setdefault(name, (size, role))
        if known[0] < size:
            self.buffers[name] = (size, role)
        return name


@dataclass(frozen=True, slots=True)
class Use:
    """One kernel of a layer: its file, and its grid and arguments in a given layer."""

    file: str
    launch: Callable[[Layer], tuple[tuple[int, ...], list[str]]]


def _up(size: int, block: int) -> int:
    return -(-size // block)


def _i(value: int) -> str:
    return f"u32:{value}"


def _add(block: int, x: str, y: str, out: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        count = TOKENS * HIDDEN
        names = [layer.shared(name, 4 * count) for name in (x, y, out)]
        return (_up(count, block),), [*names, _i(count)]

    return launch


def _matmul(
    tile: tuple[int, int], widths: tuple[int, int], a: str, b: str, c: str, n: int, k: int
) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        names = [
            layer.shared(a, widths[0] * TOKENS * k),
            layer.weight(b, widths[0] * k * n),
            layer.shared(c, widths[1] * TOKENS * n),
        ]
        sizes = [_i(v) for v in (TOKENS, n, k, k, n, n)]
        return (_up(TOKENS, tile[0]) * _up(n, tile[1]),), [*names, *sizes]

    return launch


def _norm(x: str, y: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        size = 2 * TOKENS * HIDDEN
        args = [layer.shared(x, size), layer.shared(y, size)]
        args += [layer.weight("gain", 2 * HIDDEN), layer.weight("bias", 2 * HIDDEN)]
        args += [layer.shared("mean", 4 * TOKENS), layer.shared("rstd", 4 * TOKENS)]
        return (TOKENS,), [*args, _i(HIDDEN), _i(HIDDEN), "f32:1e-5"]

    return launch


def _attention(q: str, out: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        size = 2 * TOKENS * HIDDEN
        args = [layer.shared(q, size), layer.shared("k", size), layer.shared("v", size)]
        args += [layer.shared(out, size), layer.shared("lse", 4 * HEADS * TOKENS)]
        return (TOKENS // 128, HEADS), [*args, "f32:0.125", _i(HEADS), _i(TOKENS)]

    return launch


def _softmax(width: int, cols: int, x: str, out: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        size = width * TOKENS * cols
        return (TOKENS,), [layer.shared(out, size), layer.shared(x, size), _i(cols), _i(cols)]

    return launch


def _dropout(x: str, out: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        count = TOKENS * HIDDEN
        args = [layer.shared(x, 4 * count), layer.shared(out, 4 * count)]
        return (_up(count, 256),), [*args, _i(count), "f32:0.1", _i(layer.number)]

    return launch


def _paged(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
    pool = 2 * PAGES * PAGE * 8 * 128
    args = [layer.shared("q", 2 * TOKENS * HIDDEN)]
    args += [layer.cache("kcache", pool), layer.cache("vcache", pool)]
    args += [layer.given("table", 4 * SEQUENCES * 64), layer.given("lengths", 4 * SEQUENCES)]
    args += [layer.shared("decoded", 4 * SEQUENCES * 8 * 128), "f32:0.088", _i(64)]
    return (SEQUENCES, 8), args


def _moe(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
    args = [layer.shared("h", 2 * TOKENS * HIDDEN)]
    args += [layer.weight("experts", 2 * EXPERTS * HIDDEN * HIDDEN)]
    args += [layer.shared("mixed", 2 * TOKENS * HIDDEN), layer.given("expert", 4 * TOKENS)]
    args += [layer.given("token", 4 * TOKENS), layer.given("gate", 4 * TOKENS)]
    return (TOKENS // 32, HIDDEN // 64), [*args, _i(HIDDEN), _i(HIDDEN), _i(TOKENS)]


def _transpose(x: str, y: str) -> Callable[[Layer], object]:
    def launch(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
        size = 4 * TOKENS * HIDDEN
        args = [layer.shared(x, size), layer.shared(y, size), _i(TOKENS), _i(HIDDEN)]
        return (TOKENS // 64, HIDDEN // 64), args

    return launch


def _loss(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
    size = 2 * TOKENS * 8192
    args = [layer.shared("loss", 4 * TOKENS), layer.shared("grad", size)]
    args += [layer.shared("logits", size), layer.given("target", 8 * TOKENS)]
    return (TOKENS,), [*args, _i(8192), _i(8192)]


def _conv(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
    args = [layer.shared("h", 2 * 32 * 32 * 64), layer.weight("taps", 2 * 9 * 64 * 128)]
    args += [layer.shared("patch", 2 * 32 * 32 * 128), *map(_i, (64, 32, 32, 128))]
    return (1024 // 64, 2), args


def _quantize(layer: Layer) -> tuple[tuple[int, ...], list[str]]:
    count = TOKENS * HIDDEN
    args = [layer.shared("h", 2 * count), layer.shared("quantized", count)]
    return (_up(count, 1024),), [*args, layer.shared("scales", 4 * _up(count, 1024)), _i(count)]


def _uses() -> Iterator[tuple[str, Callable[[Layer], object]]]:
    fp16, bf16, fp32, i8 = (128, 128), (64, 64), (64, 64), (64, 64)
    halves, mixed, words, bytes_ = (2, 2), (2, 4), (4, 4), (1, 4)
    new, old, first = "triton-3.6.0", "triton-3.2.0", "triton-3.0.0"
    yield f"{new}/layer_norm.sm_80", _norm("x", "h")
    yield f"{new}/matmul_fp16.sm_80", _matmul(fp16, halves, "h", "wq", "q", HIDDEN, HIDDEN)
    yield f"{old}/matmul_fp16.sm_80", _matmul(fp16, halves, "h", "wk", "k", HIDDEN, HIDDEN)
    yield f"{first}/matmul_fp16.sm_80", _matmul(fp16, halves, "h", "wv", "v", HIDDEN, HIDDEN)
    yield f"{new}/transpose.sm_80", _transpose("wide", "turned")
    yield f"{new}/add1024.sm_80", _add(1024, "turned", "wide", "rotated")
    yield f"{new}/attention_1.sm_80", _attention("q", "context")
    yield f"{new}/attention_0.sm_90", _attention("q", "crossed")
    yield f"{new}/paged.sm_80", _paged
    yield f"{first}/paged.sm_80", _paged
    yield f"{new}/matmul_bf16.sm_80", _matmul(bf16, mixed, "context", "wo", "wide", HIDDEN, HIDDEN)
    yield f"{first}/matmul_bf16.sm_90", _matmul(bf16, mixed, "crossed", "wx", "y", HIDDEN, HIDDEN)
    yield f"{new}/add128.sm_80", _add(128, "wide", "y", "z")
    yield f"{new}/dropout.sm_80", _dropout("z", "dropped")
    yield f"{old}/dropout.sm_80", _dropout("y", "dropped2")
    yield f"{first}/dropout.sm_80", _dropout("wide", "dropped3")
    yield f"{old}/layer_norm.sm_80", _norm("dropped", "h")
    yield f"{first}/layer_norm.sm_80", _norm("dropped2", "h2")
    yield f"{first}/matmul_fp16.sm_90", _matmul(fp16, halves, "h", "up", "inner", INNER, HIDDEN)
    yield f"{first}/matmul_fp16.sm_75", _matmul(fp16, halves, "h2", "side", "inner2", INNER, HIDDEN)
    yield f"{new}/softmax_bf16.sm_80", _softmax(2, 512, "inner", "probabilities")
    yield f"{old}/softmax_bf16.sm_80", _softmax(2, 500, "inner2", "probabilities2")
    yield f"{new}/softmax.sm_80", _softmax(4, 2000, "z", "routed")
    yield f"{old}/softmax.sm_80", _softmax(4, 1999, "z", "routed2")
    yield f"{first}/softmax.sm_80", _softmax(4, 1000, "z", "routed3")
    yield f"{new}/quantize.sm_89", _quantize
    yield f"{old}/quantize.sm_90", _quantize
    yield f"{new}/matmul_i8.sm_80", _matmul(i8, bytes_, "quantized", "w8", "q32", HIDDEN, HIDDEN)
    yield f"{first}/matmul_i8.sm_90", _matmul(i8, bytes_, "quantized", "v8", "p32", HIDDEN, HIDDEN)
    yield f"{new}/moe.sm_80", _moe
    yield f"{first}/moe.sm_80", _moe
    yield f"{new}/matmul_fp32.sm_90", _matmul(fp32, words, "z", "down", "y", HIDDEN, HIDDEN)
    yield f"{first}/matmul_fp32.sm_90", _matmul(fp32, words, "y", "mix", "z", HIDDEN, HIDDEN)
    yield f"{first}/transpose.sm_80", _transpose("z", "turned")
    yield f"{first}/add1024.sm_80", _add(1024, "turned", "y", "wide")
    yield f"{first}/add128.sm_80", _add(128, "z", "wide", "x")
    yield f"{first}/cross_entropy.sm_80", _loss
    yield f"{new}/cross_entropy.sm_80", _loss
    yield f"{old}/transpose.sm_80", _transpose("x", "turned")
    yield f"{old}/add1024.sm_80", _add(1024, "turned", "z", "x")


USES: tuple[Use, ...] = tuple(Use(f"{name}.ptx", launch) for name, launch in _uses())  # type: ignore[arg-type]


def module_texts() -> list[str]:
    """The PTX of every kernel, in the order of a layer."""
    return [corpus_text(use.file) for use in USES]


def trace_text(layers: int) -> str:
    """A trace of some layers."""
    texts = module_texts()
    layer = Layer(0)
    launches: list[str] = []
    for number in range(layers):
        layer.number = number
        for index, (use, text) in enumerate(zip(USES, texts, strict=True)):
            launches.append(_record(index, use, text, layer))
    buffers = [
        f"//! buffer {name} bytes={size} role={role}"
        for name, (size, role) in layer.buffers.items()
    ]
    modules = [part for i, text in enumerate(texts) for part in (f"//! module m{i}", text.strip())]
    return "\n".join(["//! tessera.trace 1", *buffers, *modules, *launches, ""])


def _record(index: int, use: Use, text: str, layer: Layer) -> str:
    entry = _ENTRY.search(text)
    threads = _THREADS.search(text)
    assert entry is not None
    assert threads is not None
    grid, args = use.launch(layer)
    grid = (*grid, 1, 1)[:3]
    missing = entry[2].count(".param") - len(args)
    args = [*args, *["u64:0"] * missing]
    sizes = f"grid={grid[0]},{grid[1]},{grid[2]} block={threads[1]},1,1 smem=49152"
    return f"//! launch m{index}.{entry[1]} {sizes} args=[{', '.join(args)}]"
