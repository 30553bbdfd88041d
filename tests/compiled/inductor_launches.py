"""What Inductor makes of PyTorch code, and its launches, for a GPU that is not there.

    PYTHONPATH=. TESSERA_NO_CACHE=1 python tests/compiled/inductor_launches.py OUT [ARCH...]

A Python with PyTorch and Triton. Tensors have no memory (`tessera.frontend.capture.no_gpu`), and
Triton's launches are noted. With dynamic sizes, one compilation serves several calls. Longer than
400 lines because it is one list of calls.
"""

from __future__ import annotations

import hashlib
import math
import sys
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from launch_files import BYTES, Array, Launches

from tessera.frontend.capture.kernels import find_sources
from tessera.frontend.capture.no_gpu.listener import Listener, TritonLaunch
from tessera.frontend.capture.no_gpu.private_names import standing_in
from tessera.frontend.capture.no_gpu.record import _properties
from tessera.frontend.capture.quiet import quiet_compiler
from tessera.frontend.capture.routes import fresh_compiler
from tessera.frontend.capture.stand_in import fake_gpu, numbered_devices
from tessera.frontend.machine.gpu_table import find_gpu

# ruff: noqa: E501

KINDS = {
    "fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64,
    "i64": torch.int64, "i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8,
}  # fmt: skip
NAMES = {kind: name for name, kind in KINDS.items()} | {torch.bool: "u8"}


class Prices:
    """Products by Triton's templates wherever there is one."""

    def times(self, choices: Any, *_: Any) -> dict[Any, float]:
        return {choice: 1.0 + 99.0 * ("triton" not in choice.name) for choice in choices}

    def best_first(self, wanted: Any) -> Any:
        return sorted(
            wanted,
            key=lambda w: math.prod(
                v for k, v in w.params.to_kwargs().items() if k[:6] == "BLOCK_"
            ),
        )[:2]


class Recorder:
    """Launches with their arguments."""

    def __init__(self) -> None:
        self.seen: list[TritonLaunch] = []
        self.content: dict[int, tuple[torch.Tensor, list[int]]] = {}
        self.addresses: dict[int, tuple[torch.Tensor, int]] = {}

    def address_of(self, tensor: torch.Tensor) -> int:
        return (tensor.storage_offset() * tensor.element_size()) + (1 << 40)

    def add_to(self, launches: Launches) -> None:
        """The launches that were seen, with the code of their kernels."""
        sources = find_sources().triton
        for launch in self.seen:
            text = sources[launch.function].asm["ptx"]
            key = hashlib.sha256(text.encode()).hexdigest()
            facts = launch.metadata
            made = launches.module(key, lambda text=text, facts=facts: (text, {
                "kernel": facts.name, "threads": 32 * facts.num_warps, "smem": facts.shared,
                "scratch": getattr(facts, "global_scratch_size", 0)}))  # fmt: skip
            arrays: dict[int, Array] = {}
            values = [
                self._value(kind, launch.arguments[name], arrays)
                for name, kind in launch.parameters.items()
                if kind != "constexpr"
            ]
            launches.add_triton(made, launch.grid, values)
        self.seen.clear()

    def _value(self, kind: str, value: Any, arrays: dict[int, Array]) -> Any:
        if kind[0] != "*":
            return value if kind == "fp32" else ({"i1": "i8", "u1": "u8"}.get(kind, kind), value)
        storage = value.untyped_storage()
        if storage._cdata not in arrays:
            name = NAMES[value.dtype]
            count = storage.nbytes() // BYTES[name]
            content = self.content.get(storage._cdata, (None, None))[1]
            if content is None and value.dtype in (torch.int64, torch.int32, torch.bool):
                content = [
                    i % 2 for i in range(count)
                ]  # of no kernel that ran: an index that is one
            arrays[storage._cdata] = Array(name, count, content)
        return arrays[storage._cdata], value.storage_offset() * value.element_size()


def T(*shape, kind="fp32", content=None):
    """An argument; sizes may be given as a list of contents' values."""
    return shape, kind, content


def gelu_add(x, y):
    return F.gelu(x) * 0.5 + y.to(x.dtype)


def broadcast(x, y):
    return x[:, None] * y[None, :] + x.sum()


def strided(x):
    return x[1:, ::2] - x[:-1, ::2], x.t().contiguous()


def flipped(x):
    return x.flip(0) + x.roll(1, 1)


def soft(x):
    return torch.softmax(x, -1)


def log_soft(x):
    return torch.log_softmax(x.float(), 0)


def layer_norm(x, w, b):
    return F.layer_norm(x, x.shape[-1:], w, b)


def rms_norm(x, w):
    h = x.float()
    return (h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype) * w


def group_norm(x):
    return F.group_norm(x, 2)


def batch_norm(x):
    return F.batch_norm(x, None, None, training=True)


def sums(x):
    return x.sum(), x.sum(0), x.mean(1), x.amax(-1)


def products_of(x):
    return x.prod(-1), x.var(0), x.std(-1)


def extremes(x):
    return x.argmax(-1), x.argmin(0), x.max(1).values


def any_all(x):
    return (x > 0).any(-1), (x > 0).all(0), (x > 0).sum()


def embedding(table, ids):
    return F.embedding(ids, table) * 2


def gathered(x, at):
    return x.gather(1, at), x.index_select(0, at[:, 0])


def indexed(x, at, to):
    return x[at, :, to]


def put(x, at, v):
    return torch.index_put(x, (at,), v)


def accumulated(x, at, v):
    return torch.index_put(x, (at,), v, accumulate=True)


def scattered(x, at, v):
    return x.scatter(1, at, v), x.scatter_add(1, at, v)


def reduced(x, at, v):
    return x.scatter_reduce(1, at, v, "amax")


def cumulated(x):
    return x.cumsum(-1), x.cumsum(0)


def cumulated_more(x):
    return x.cumprod(-1), x.logcumsumexp(1) if x.is_floating_point() else x.cummax(1).values


def joined(x, y):
    return torch.cat([x, y, x * 2], 1), torch.stack([x, x + 1])


def cut(x):
    a, b = x.chunk(2, -1)
    return F.silu(a) * b


def padded(x):
    return F.pad(x, (1, 2, 3, 0)), F.pad(x[None], (1, 1, 1, 1), mode="reflect")


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def cross_entropy(x, y):
    return F.cross_entropy(x, y, ignore_index=-100)


def pooled(x):
    return F.max_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (3, 2))


def resized(x):
    return F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(5, 7))


def triangular(x):
    return x.tril(1) + x.triu(-2), torch.where(x > 0, x, x.T if x.shape[0] == x.shape[1] else -x)


def dropped(x):
    return F.dropout(x, 0.3, True), torch.rand_like(x)


def quantized(x):
    s = x.abs().amax(-1, keepdim=True).clamp(min=1e-5) / 127
    return (x / s).round().clamp(-128, 127).to(torch.int8), s


def unpacked(w, s):
    low = torch.stack([w & 15, w >> 4], -1).flatten(1)
    return (low.to(torch.float32) - 8) * s


def bits(x):
    return (x << 2) ^ (x >> 1), x // 3, x % 7, x & 12


def in_place(x, y):
    x.add_(y)
    x[1:].mul_(2)
    return x.clone()


def cache(x, k, place):
    x.index_copy_(1, place, k)
    return x.sum(1)


def one_hot(x):
    return F.one_hot(x, 7)


def sorted_rows(x):
    return x.sort(-1).values, x.argsort(-1)


def topk(x):
    return x.topk(3, -1).values


def linear(x, w, b):
    return F.relu(F.linear(x, w, b))


def attention(q, k, v):
    s = q @ k.transpose(-1, -2) * 0.25
    return s.softmax(-1) @ v


def masked(x, m):
    return x.masked_fill(m, -1e4).softmax(-1)


def adam(p, g, m, v):
    m.lerp_(g, 0.1)
    v.mul_(0.99).addcmul_(g, g, value=0.01)
    p.addcdiv_(m, v.sqrt() + 1e-8, value=-0.01)


def windows(x):
    return x.unfold(1, 3, 2).sum(-1), F.unfold(x[None, None], (2, 2)).sum(0)


def diagonals(x):
    return x.diagonal() + 1, torch.diag_embed(x), x.rot90()


def einsum(x, y):
    return torch.einsum("ij,kj->ik", x, y), torch.outer(x[0], y[0])


def ids(count, most):
    return [i * 7 % most for i in range(count)]


# fmt: off
def calls(run):
    """Every function with its arguments: alternatives are sizes of one compilation if dynamic."""
    shapes = ((4, 32), (5, 33), (1, 7), (17, 130), (3, 1))
    for kind in ("fp32", "bf16"):
        two = [(T(m, n, kind=kind),) for m, n in shapes]
        for function in (soft, log_soft, sums, extremes, flipped, cumulated, quantized, strided):
            run(function, two)
        run(gelu_add, [(T(m, n, kind=kind), T(m, n)) for m, n in shapes])
        run(layer_norm, [(T(m, n, kind=kind), T(n, kind=kind), T(n, kind=kind)) for m, n in shapes])
        run(rms_norm, [(T(m, n, kind=kind), T(n, kind=kind)) for m, n in (*shapes, (2, 1030))])
        run(embedding, [(T(9, n, kind=kind), T(m, kind="i64", content=ids(m, 9))) for m, n in shapes])
        run(put, [(T(9, n, kind=kind), T(5, kind="i64", content=[3, 0, 8, 7, -1]), T(5, n, kind=kind)) for _, n in shapes])
        run(joined, [(T(m, n, kind=kind), T(m, 3, kind=kind)) for m, n in shapes])
        run(cut, [(T(m, 2 * n, kind=kind),) for m, n in shapes])
        run(rope, [(T(2, m, 2 * n, kind=kind), T(m, 2 * n), T(m, 2 * n)) for m, n in shapes])
        run(linear, [(T(m, 64, kind=kind), T(n, 64, kind=kind), T(n, kind=kind)) for m, n in ((16, 32), (33, 48), (5, 17))])
        run(attention, [(T(2, m, 16, kind=kind), T(2, n, 16, kind=kind), T(2, n, 16, kind=kind)) for m, n in ((16, 32), (33, 48), (5, 17))])
    plain = [(T(m, n),) for m, n in shapes]
    for function in (products_of, any_all, cumulated_more, triangular, dropped, windows, diagonals, sorted_rows, topk, padded):
        run(function, [(T(m, n),) for m, n in shapes if m > 1 and n > 3] if function not in (products_of, any_all, dropped) else plain)
    for kind in ("i32", "i64", "i8", "i16"):
        run(bits, [(T(m, n, kind=kind),) for m, n in shapes])
        run(cumulated, [(T(m, n, kind=kind),) for m, n in shapes])
        run(sums if kind == "i16" else any_all, [(T(m, n, kind=kind),) for m, n in shapes[:3]] if kind != "i16" else [])
    run(broadcast, [(T(m), T(n)) for m, n in shapes])
    run(group_norm, [(T(2, 4, m, n),) for m, n in shapes])
    run(batch_norm, [(T(3, 4, m, n),) for m, n in shapes[:3]])
    run(gathered, [(T(19, n), T(m, n, kind="i64", content=ids(m * n, min(19, n)))) for m, n in shapes])
    run(indexed, [(T(9, m, n), T(5, kind="i64", content=[3, 0, 8, -9, -1]), T(5, kind="i64", content=ids(5, n))) for m, n in shapes])
    run(accumulated, [(T(9, n), T(5, kind="i64", content=[3, 0, 3, 7, -1]), T(5, n)) for _, n in shapes])
    for function in (scattered, reduced):
        run(function, [(T(m, n), T(m, n, kind="i64", content=ids(m * n, n)), T(m, n)) for m, n in shapes])
    run(cross_entropy, [(T(m, n), T(m, kind="i64", content=[-100, *ids(m, n)][:m])) for m, n in shapes])
    run(pooled, [(T(2, 3, m, n),) for m, n in ((8, 8), (9, 13), (5, 20))])
    run(resized, [(T(2, 3, 4, 4),)])
    run(unpacked, [(T(m, n, kind="u8"), T(m, 1)) for m, n in shapes])
    run(in_place, [(T(m, n), T(m, n)) for m, n in shapes])
    run(cache, [(T(2, 12, n), T(2, 3, n), T(3, kind="i64", content=[4, 0, 11])) for _, n in shapes])
    run(one_hot, [(T(n, kind="i64", content=ids(n, 7)),) for _, n in shapes])
    run(masked, [(T(m, n), T(m, n, kind="bool")) for m, n in shapes])
    run(adam, [(T(m, n),) * 4 for m, n in shapes])
    run(einsum, [(T(m, n), T(m + 2, n)) for m, n in shapes])
# fmt: on


def main(out: str, *names: str) -> None:
    for arch, name in ((int(n), {"80": "a100", "90": "h200"}[n]) for n in names or ("80", "90")):
        launches = Launches(
            out, f"inductor_{torch.__version__.split('+')[0].replace('.', '_')}_{arch}"
        )
        gpu = find_gpu(name)
        recorder = Recorder()
        listener = Listener(
            on_launch=recorder.seen.append, prices=Prices(), address_of=recorder.address_of
        )
        with ExitStack() as stack:
            stack.enter_context(fake_gpu(properties := _properties(gpu, (gpu,))))
            stack.enter_context(torch.no_grad())
            stack.enter_context(standing_in(properties, 80, listener))
            stack.enter_context(fresh_compiler(apart=" for tests"))
            stack.enter_context(quiet_compiler(lambda _: None))
            stack.enter_context(numbered_devices())

            def run(function, sizes, launches=launches, recorder=recorder):
                for dynamic in (False, True):
                    torch._dynamo.reset()
                    call = torch.compile(function, dynamic=dynamic, fullgraph=True, options=OPTIONS)
                    for arguments in sizes if dynamic else sizes[:2]:
                        recorder.content.clear()
                        given = []
                        for shape, kind, content in arguments:
                            tensor = torch.empty(
                                shape, dtype=KINDS.get(kind, torch.bool), device="cuda"
                            )
                            if content is not None:
                                recorder.content[tensor.untyped_storage()._cdata] = tensor, content
                            given.append(tensor)
                        try:
                            call(*given)
                            recorder.add_to(launches)
                        except Exception as error:
                            launches.failed += 1
                            recorder.seen.clear()
                            print(
                                f"{function.__name__} {arguments}: {str(error)[:300]}", flush=True
                            )

            calls(run)
            launches.write()


# As users have it, but for what would be measured on the GPU.
OPTIONS: dict[str, Any] = {
    "allow_buffer_reuse": True,
    "inplace_buffers": True,
    "max_autotune_gemm": True,
    "max_autotune_gemm_backends": "TRITON",
    "benchmark_epilogue_fusion": False,
    "benchmark_fusion": False,
    "shape_padding": False,
    "compile_threads": 1,
}


if __name__ == "__main__":
    main(*sys.argv[1:])
