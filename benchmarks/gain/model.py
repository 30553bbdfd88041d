"""A step of a Llama-like model that serves prompts and answers at once, for `tessc trace`.

    tessc trace benchmarks/gain/model.py:mixed --route as-is --no-data -o mixed.ptx \
        --set prefill=1024 --set decode=128

A request is one step: `decode` sequences get one token each, over a cache of `context` tokens, and
one prompt gets `prefill` more tokens, up to the end of its context. Products are over all rows
together, attention is apart. Sizes of a layer are those of Llama 3 8B. `tiles` says how each
product and attention over caches are cut up: `qkv=128x128x64x4x3,...` (rows x columns x depth x
warps x stages) and `decode=128x4x2` (block x warps x stages).
"""

# torch and Triton have no types here.
# mypy: ignore-errors

from __future__ import annotations

import torch
from torch import nn

from benchmarks.gain import kernels

HIDDEN, KV_HEADS, INNER, VOCABULARY = 4096, 8, 14336, 32768
HEADS = KV_HEADS * kernels.GROUP
QKV = (HEADS + 2 * KV_HEADS) * kernels.HEAD
DEEP = 8


PRODUCTS = {
    "qkv": (QKV, HIDDEN),
    "o": (HIDDEN, HIDDEN),
    "gate_up": (2 * INNER, HIDDEN),
    "down": (HIDDEN, INNER),
    "head": (VOCABULARY, HIDDEN),
}
TILES = dict.fromkeys(PRODUCTS, "128x128x64x4x3") | {"decode": "128x4x2", "prefill": "64x8x3"}


def tile_of(text: str) -> tuple[int, ...]:
    """`128x256x64x8x3` as numbers."""
    return tuple(int(part) for part in text.split("x"))


def tiles_of(text: str) -> dict[str, tuple[int, ...]]:
    """All tiles: those named, and the others as they are by default."""
    named = dict(part.split("=") for part in text.split(",") if part)
    return {name: tile_of(tile) for name, tile in {**TILES, **named}.items()}


class Layer(nn.Module):
    """The weights of a layer and the caches of its sequences."""

    def __init__(self, prefill: int, decode: int, context: int, size: float = 0.02) -> None:
        super().__init__()

        def weight(*shape: int) -> nn.Parameter:
            return nn.Parameter(
                (torch.randn(shape, device="cuda", dtype=torch.bfloat16) * size),
                requires_grad=False,
            )

        def cache(*shape: int) -> torch.Tensor:
            return torch.randn(shape, device="cuda", dtype=torch.bfloat16)

        self.norm1 = nn.Parameter(torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), False)
        self.norm2 = nn.Parameter(torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), False)
        self.qkv = weight(QKV, HIDDEN)
        self.o = weight(HIDDEN, HIDDEN)
        self.gate_up = weight(2 * INNER, HIDDEN)
        self.down = weight(HIDDEN, INNER)
        for name in ("k", "v"):
            if decode:
                self.register_buffer(
                    f"{name}_decode", cache(decode, KV_HEADS, context, kernels.HEAD)
                )
            if prefill:
                self.register_buffer(f"{name}_prefill", cache(KV_HEADS, context, kernels.HEAD))


class Mixed(nn.Module):
    """The step. Rows: decode tokens, then the chunk."""

    def __init__(self, prefill: int, decode: int, layers: int, context: int, tiles: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.prefill, self.decode, self.context = prefill, decode, context
        self.rows = prefill + decode
        self.tiles = tiles_of(tiles)
        self.table = nn.Parameter(
            torch.randn((VOCABULARY, HIDDEN), device="cuda", dtype=torch.bfloat16), False
        )
        self.norm = nn.Parameter(torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), False)
        angle = torch.outer(
            torch.arange(context, device="cuda").float(),
            500000.0 ** -(torch.arange(0, 64, device="cuda").float() / 64),
        )
        self.register_buffer("cos", angle.cos().contiguous())
        self.register_buffer("sin", angle.sin().contiguous())
        self.layers = nn.ModuleList(Layer(prefill, decode, context) for _ in range(layers))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.empty(HIDDEN)
        kernels.embed[(self.rows,)](tokens, self.table, x, SIZE=HIDDEN, num_warps=4)
        for layer in self.layers:
            x = self.mlp(layer, self.attention(layer, x))
        # What is asked for next: a token for every sequence, or for the end of the prompt.
        asked = x[: self.decode] if self.decode else x[-128:]
        scores = self.project("head", self.normed(asked, self.norm), self.table)
        out = torch.empty(len(asked), device="cuda", dtype=torch.int32)
        kernels.most_likely[(len(asked),)](scores, out, SIZE=VOCABULARY, BLOCK=2048, num_warps=4)
        return out

    def attention(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        qkv = self.project("qkv", self.normed(x, layer.norm1), layer.qkv)
        out = self.empty(HIDDEN)
        self.attend_decode(layer, qkv, out)
        self.attend_prefill(layer, qkv, out)
        return self.project("o", out, layer.o, x)

    def attend_decode(self, layer: Layer, qkv: torch.Tensor, out: torch.Tensor) -> None:
        if not self.decode:
            return
        queries = torch.empty((self.decode, HIDDEN), device="cuda", dtype=torch.bfloat16)
        grid = (self.decode, KV_HEADS)
        sizes = {"CONTEXT": self.context, "HEADS": KV_HEADS}
        block, warps, stages = self.tiles["decode"]
        kernels.rotate_decode[grid](
            qkv,
            self.cos,
            self.sin,
            queries,
            layer.k_decode,
            layer.v_decode,
            0,
            self.context - 1,
            **sizes,
            num_warps=1,
        )
        kernels.attention_decode[grid](
            queries,
            layer.k_decode,
            layer.v_decode,
            out,
            0,
            **sizes,
            BLOCK=block,
            num_warps=warps,
            num_stages=stages,
        )

    def attend_prefill(self, layer: Layer, qkv: torch.Tensor, out: torch.Tensor) -> None:
        if not self.prefill:
            return
        queries = torch.empty((self.prefill, HIDDEN), device="cuda", dtype=torch.bfloat16)
        first = self.context - self.prefill
        block, warps, stages = self.tiles["prefill"]
        sizes = {"CONTEXT": self.context, "HEADS": KV_HEADS}
        kernels.rotate_prefill[(self.prefill, KV_HEADS)](
            qkv,
            self.cos,
            self.sin,
            queries,
            layer.k_prefill,
            layer.v_prefill,
            self.decode,
            first,
            **sizes,
            num_warps=1,
        )
        kernels.attention_prefill[(self.prefill // 128, HEADS)](
            queries,
            layer.k_prefill,
            layer.v_prefill,
            out,
            self.decode,
            first,
            **sizes,
            BM=128,
            BLOCK=block,
            num_warps=warps,
            num_stages=stages,
        )

    def mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        both = self.project("gate_up", self.normed(x, layer.norm2), layer.gate_up)
        inner = self.empty(INNER)
        kernels.silu_mul[(self.rows, INNER // 2048)](
            both, inner, SIZE=INNER, BLOCK=2048, num_warps=4
        )
        return self.project("down", inner, layer.down, x)

    def normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        kernels.rms_norm[(len(x),)](x, weight, out, SIZE=HIDDEN, num_warps=8)
        return out

    def project(
        self,
        name: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        residual: torch.Tensor | None = None,
    ) -> torch.Tensor:
        columns, depth = PRODUCTS[name]
        rows = len(x)
        bm, bn, bk, warps, stages = self.tiles[name]
        bm = min(bm, rows)
        out = torch.empty((rows, columns), device="cuda", dtype=torch.bfloat16)
        kernels.gemm[(rows // bm * (columns // bn),)](
            x,
            weight,
            x if residual is None else residual,
            out,
            rows,
            columns,
            depth,
            ADD=residual is not None,
            BM=bm,
            BN=bn,
            BK=bk,
            DEEP=DEEP,
            num_warps=warps,
            num_stages=stages,
        )
        return out

    def empty(self, columns: int) -> torch.Tensor:
        return torch.empty((self.rows, columns), device="cuda", dtype=torch.bfloat16)


def mixed(
    prefill: int = 896, decode: int = 128, layers: int = 4, context: int = 4096, tiles: str = ""
) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """The step and its tokens."""
    model = Mixed(prefill, decode, layers, context, tiles).eval()
    tokens = torch.randint(0, VOCABULARY, (prefill + decode,), device="cuda", dtype=torch.int32)
    return model, (tokens,)
