"""Layers of models from nvcc, NVRTC and Triton, in odd shapes, for the tightness of regions.

In: the PTX of `tests/data/tightness`. Out: `LAYERS`, cases without expected results: what counts
is which bytes they touch. Each has the class of layer that it stands for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import Argument, Case, Launch, Run, Shape
from tests.kernels.rng import Rng

DATA = Path(__file__).resolve().parent.parent / "data" / "tightness"
FACTS: dict[str, dict[str, Any]] = json.loads((DATA / "triton.json").read_text())
I32, F32, F16 = np.int32, np.float32, np.float16


@dataclass(frozen=True, slots=True)
class Layer(Case):
    """A case of a layer; `compiler` made its PTX."""

    kind: str = ""
    compiler: str = ""

    @property
    def ptx(self) -> Path:
        """The PTX file."""
        return DATA / "ptx" / f"{self.module}.ptx"


def _zeros(*shape: int, dtype: Any = F32) -> NDArray:
    return np.zeros(shape, dtype)


def _cuda(
    kind: str,
    kernel: str,
    grid: Shape,
    block: Shape,
    args: Sequence[Argument],
    buffers: Callable[[Rng], Mapping[str, NDArray]],
) -> list[Layer]:
    """The kernel by both compilers."""

    def build(rng: Rng) -> Run:
        return Run(buffers(rng), [Launch(kernel, grid, block, args)], {})

    return [
        Layer(f"{kernel}_{compiler}", f"layers_{compiler}", build, kind, compiler)
        for compiler in ("nvcc", "nvrtc")
    ]


def _triton(
    kind: str,
    name: str,
    grid: Shape,
    args: Sequence[Argument],
    buffers: Callable[[Rng], Mapping[str, NDArray]],
) -> Layer:
    facts = FACTS[f"triton_{name}"]

    def build(rng: Rng) -> Run:
        full = [*args, np.uint64(0), np.uint64(0)]
        launch = Launch(facts["kernel"], grid, facts["threads"], full, smem=facts["smem"])
        return Run(buffers(rng), [launch], {})

    return Layer(f"triton_{name}", f"triton_{name}", build, kind, "triton")


def _floats(**shapes: tuple[int, ...]) -> Callable[[Rng], Mapping[str, NDArray]]:
    return lambda rng: {name: rng.f32(*shape) for name, shape in shapes.items()}


def _whole(
    kinds: Mapping[str, type], **shapes: tuple[int, ...]
) -> Callable[[Rng], Mapping[str, NDArray]]:
    """Small whole numbers, whose sums do not depend on the order of atomics."""
    return lambda rng: {
        name: rng.integers(-3, 3, *shape).astype(kinds.get(name, F32))
        for name, shape in shapes.items()
    }


def _halves(**shapes: tuple[int, ...]) -> Callable[[Rng], Mapping[str, NDArray]]:
    return lambda rng: {name: rng.f16(*shape) for name, shape in shapes.items()}


def _slots(count: int, most: int) -> Callable[[Rng], Mapping[str, NDArray]]:
    return lambda rng: {
        "cache": _zeros(most, 100, dtype=F16),
        "k": rng.f16(count, 100),
        "slots": rng.permutation(most)[:count].astype(I32),
    }


def _mixed(
    halves: Mapping[str, tuple[int, ...]], floats: Mapping[str, tuple[int, ...]]
) -> Callable[[Rng], Mapping[str, NDArray]]:
    return lambda rng: {
        **{name: rng.f32(*shape) for name, shape in floats.items()},
        **{name: rng.f16(*shape) for name, shape in halves.items()},
    }


def _rotary() -> list[Layer]:
    return [
        *_cuda(
            "rotary",
            "rope_pairs",
            3,
            128,
            ["x", "c", "s", I32(3), I32(22), I32(9)],
            _floats(x=(9, 3, 22), c=(9, 11), s=(9, 11)),
        ),
        *_cuda(
            "rotary",
            "rope_halves",
            (7, 3),
            16,
            ["out", "x", "a", I32(38)],
            lambda rng: {
                "out": _zeros(7, 3, 38, dtype=F16),
                "x": rng.f16(7, 3, 38),
                "a": rng.f32(7, 19),
            },
        ),
        *_cuda(
            "rotary",
            "rope_partial",
            5,
            (48, 3),
            ["out", "x", "c", "s", I32(3), I32(40), I32(24)],
            _floats(out=(5, 3, 40), x=(5, 3, 40), c=(5, 12), s=(5, 12)),
        ),
        _triton(
            "rotary",
            "rope",
            (5, 3),
            ["x", "c", "s", I32(3)],
            _floats(x=(5, 3, 40), c=(5, 20), s=(5, 20)),
        ),
        _triton(
            "rotary",
            "rope_rows",
            3,
            ["out", "x", "c", "s", I32(19)],
            _floats(out=(19, 3, 32), x=(19, 3, 32), c=(19, 16), s=(19, 16)),
        ),
    ]


def _transposes() -> list[Layer]:
    return [
        *_cuda(
            "transpose",
            "transpose_tiled",
            (3, 2),
            (32, 8),
            ["out", "x", I32(45), I32(70)],
            _floats(out=(70, 45), x=(45, 70)),
        ),
        *_cuda(
            "transpose",
            "transpose_plain",
            7,
            128,
            ["out", "x", I32(27), I32(31)],
            _halves(out=(31, 27), x=(27, 31)),
        ),
        *_cuda(
            "transpose",
            "swap_heads",
            (9, 3, 2),
            32,
            ["out", "x", I32(9), I32(3), I32(20)],
            _floats(out=(2, 3, 9, 20), x=(2, 9, 3, 20)),
        ),
        *_cuda(
            "transpose",
            "transpose_slice",
            (2, 3),
            (16, 8),
            ["out", "qkv", I32(25), I32(19)],
            _floats(out=(19, 25), qkv=(25, 57)),
        ),
        _triton(
            "transpose",
            "transpose_blocks",
            (2, 3),
            ["out", "x", I32(45), I32(70)],
            _floats(out=(70, 45), x=(45, 70)),
        ),
        _triton(
            "transpose",
            "permute_heads",
            (3, 4),
            ["out", "x", I32(37)],
            _halves(out=(4, 37, 32), x=(37, 4, 32)),
        ),
    ]


def _caches() -> list[Layer]:
    whole = _halves(kcache=(2, 40, 100), vcache=(2, 40, 100), k=(2, 3, 100), v=(2, 3, 100))
    names: list[Argument] = ["kcache", "vcache", "k", "v"]
    return [
        *_cuda("kv-write", "kv_append", (3, 2), 64, [*names, I32(17), I32(40), I32(100)], whole),
        *_cuda(
            "kv-write",
            "kv_heads",
            (5, 2),
            32,
            ["cache", "k", I32(11), I32(5), I32(16), I32(52)],
            _floats(cache=(2, 5, 16, 52), k=(2, 5, 52)),
        ),
        *_cuda(
            "kv-write",
            "kv_bytes",
            3,
            64,
            ["cache", "scales", "k", I32(6), I32(77)],
            lambda rng: {
                "cache": _zeros(12, 77, dtype=np.int8),
                "scales": _zeros(12),
                "k": rng.f32(3, 77),
            },
        ),
        *_cuda(
            "kv-write",
            "kv_ring",
            5,
            32,
            ["cache", "k", I32(13), I32(16), I32(50)],
            _floats(cache=(16, 50), k=(5, 50)),
        ),
        *_cuda("kv-write", "kv_slots", 6, 64, ["cache", "k", "slots", I32(100)], _slots(6, 20)),
        _triton("kv-write", "kv_write", (3, 2), [*names, I32(17), I32(40), I32(100)], whole),
        _triton("kv-write", "kv_paged", 6, ["cache", "k", "slots", I32(100)], _slots(6, 20)),
    ]


def _splits() -> list[Layer]:
    sizes: list[Argument] = [I32(37), I32(45), I32(100)]
    cuda: dict[str, tuple[int, ...]] = {"a": (37, 100), "b": (100, 45)}
    return [
        *_cuda(
            "split-k",
            "splitk_partial",
            (3, 5, 3),
            (16, 8),
            ["work", "a", "b", *sizes],
            _floats(work=(3, 37, 45), **cuda),
        ),
        *_cuda(
            "split-k",
            "splitk_sum",
            7,
            128,
            ["c", "work", I32(3), I32(1665)],
            _floats(c=(1665,), work=(3, 1665)),
        ),
        *_cuda(
            "split-k",
            "splitk_atomic",
            (1, 37, 3),
            64,
            ["c", "a", "b", *sizes],
            _whole({}, c=(37, 45), **cuda),
        ),
        *_cuda(
            "split-k",
            "splitk_vector",
            9,
            96,
            ["y", "a", "x", I32(201)],
            _mixed({"a": (9, 201), "x": (201,)}, {"y": (9,)}),
        ),
        _triton(
            "split-k",
            "splitk_partial",
            (4, 3),
            ["c", "a", "b", *sizes],
            _mixed(cuda, {"c": (3, 37, 45)}),
        ),
        _triton(
            "split-k",
            "splitk_atomic",
            (4, 3),
            ["c", "a", "b", *sizes],
            _whole({"a": F16, "b": F16}, c=(37, 45), **cuda),
        ),
        _triton(
            "split-k", "splitk_sum", 7, ["c", "work", I32(1665)], _floats(c=(1665,), work=(3, 1665))
        ),
    ]


def _others() -> list[Layer]:
    sizes: list[Argument] = [I32(70), I32(90), I32(50)]
    halves = _halves(c=(70, 90), a=(70, 50), b=(50, 90))
    small: list[Argument] = [I32(37), I32(45), I32(20), I32(2)]
    return [
        *_cuda(
            "elementwise",
            "persistent_scale",
            3,
            64,
            ["out", "x", F32(2), I32(1000)],
            _floats(out=(1000,), x=(1000,)),
        ),
        *_cuda(
            "gemm",
            "persistent_gemm",
            4,
            (16, 16),
            ["c", "a", "b", *small],
            _floats(c=(37, 45), a=(37, 20), b=(20, 45)),
        ),
        *_cuda(
            "softmax",
            "softmax_loop",
            5,
            96,
            ["out", "x", I32(203)],
            _floats(out=(5, 203), x=(5, 203)),
        ),
        *_cuda(
            "scan",
            "scan_chunks",
            4,
            256,
            ["out", "sums", "x", I32(1000)],
            _floats(out=(1000,), sums=(4,), x=(1000,)),
        ),
        *_cuda(
            "convolution",
            "conv1d_causal",
            (2, 9),
            32,
            ["out", "x", "w", I32(9), I32(50), I32(4)],
            _floats(out=(9, 50), x=(9, 50), w=(50, 4)),
        ),
        _triton("gemm", "persistent_matmul", 4, ["c", "a", "b", *sizes], halves),
        _triton("gemm", "block_matmul", (3, 3), ["c", "a", "b", *sizes], halves),
        _triton(
            "softmax",
            "softmax_online",
            5,
            ["out", "x", I32(333)],
            _floats(out=(5, 333), x=(5, 333)),
        ),
        _triton("scan", "scan_loop", 3, ["out", "x", I32(301)], _floats(out=(3, 301), x=(3, 301))),
        _triton(
            "convolution",
            "conv1d",
            (2, 2),
            ["out", "x", "w", I32(19), I32(50)],
            _floats(out=(19, 50), x=(19, 50), w=(50, 4)),
        ),
        _triton(
            "norm",
            "rmsnorm",
            4,
            ["out", "x", "gain", I32(300)],
            _floats(out=(4, 300), x=(4, 300), gain=(300,)),
        ),
    ]


LAYERS: tuple[Layer, ...] = (*_rotary(), *_transposes(), *_caches(), *_splits(), *_others())
