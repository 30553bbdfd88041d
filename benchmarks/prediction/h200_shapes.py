"""Which kernels at which sizes `h200_cases` compiles: launches of real models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

WIDTHS = {"bf16": 2, "fp32": 4, "fp16": 2, "i32": 4}
VOCABULARY = 128256


@dataclass(frozen=True)
class Tensor:
    """A buffer: its elements and type; whole numbers are below `below`."""

    name: str
    elements: int
    kind: str = "bf16"
    role: str = "input"
    below: int = 0

    @property
    def bytes(self) -> int:
        return self.elements * WIDTHS[self.kind]


@dataclass(frozen=True)
class Case:
    """A launch. `code` is the digest of its PTX, `scalars` are 32-bit arguments."""

    family: str
    name: str
    kernel: str
    grid: tuple[int, ...]
    arguments: tuple[Tensor | int, ...]
    shape: Mapping[str, int]
    build: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    threads: int = 0
    shared: int = 0

    @property
    def tensors(self) -> list[Tensor]:
        return [one for one in self.arguments if isinstance(one, Tensor)]


# --- which -----------------------------------------------------------------------------------


LINEAR = {  # columns, depth of the linear layers of models with 8 and 70 billion parameters
    "8b_qkv": (6144, 4096),
    "8b_o": (4096, 4096),
    "8b_gate_up": (28672, 4096),
    "8b_down": (4096, 14336),
    "70b_qkv": (10240, 8192),
    "70b_o": (8192, 8192),
    "70b_gate_up": (57344, 8192),
    "70b_down": (8192, 28672),
}
ROWS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
# rows, columns and depth of a tile, warps, stages
TILES = {
    16: ((16, 64, 128, 4, 4), (16, 128, 128, 4, 3)),
    32: ((32, 64, 128, 4, 4), (32, 128, 64, 4, 4)),
    64: ((64, 128, 64, 4, 4), (64, 64, 128, 4, 3)),
    128: ((128, 128, 64, 8, 3), (128, 256, 64, 8, 3)),
}


def gemm_case(
    name: str, rows: int, columns: int, depth: int, tile: Sequence[int], **more: Any
) -> Case:
    """out[rows, columns] = a[rows, depth] @ b[columns, depth]^T."""
    bm, bn, bk, warps, stages = tile
    kind = more.pop("kind", "bf16")
    constants = {
        "ADD": False,
        "GELU": False,
        "MASKED": rows % bm != 0,
        "BM": bm,
        "BN": bn,
        "BK": bk,
        "DEEP": 8,
    }
    a, b = Tensor("a", rows * depth, kind), Tensor("b", columns * depth, kind, "weight")
    residual = Tensor("residual", rows * columns, kind)
    out = Tensor("out", rows * columns, kind, "output")
    return Case(
        family="gemm",
        name=f"{name} m={rows} {bm}x{bn}x{bk}{'' if kind == 'bf16' else ' ' + kind}",
        kernel="gemm",
        grid=(-(-rows // bm) * (columns // bn),),
        arguments=(a, b, a if not more.get("add") else residual, out, rows, columns, depth),
        shape={"m": rows, "n": columns, "k": depth},
        build={"constants": constants, "warps": warps, "stages": stages, "plain": ("rows",)},
    )


def gemm_cases() -> Iterator[Case]:
    for choice in (0, 1):
        for rows in ROWS:
            height = next((h for h in TILES if rows <= h), 128)
            for name, (columns, depth) in LINEAR.items():
                large = rows * columns * depth > 4096 * 57344 * 8192
                if choice and (name.startswith("70b") or rows in (8, 32, 256, 2048)):
                    continue
                if not large:
                    yield gemm_case(name, rows, columns, depth, TILES[height][choice])
    for rows, columns, depth in ((512, 4096, 4096), (4096, 4096, 4096), (2048, 8192, 2048)):
        yield gemm_case("fp32", rows, columns, depth, (128, 64, 32, 4, 3), kind="fp32")
        yield gemm_case("square", rows, columns, depth, (64, 64, 32, 4, 3))
        yield gemm_case("square", rows, columns, depth, (32, 32, 64, 4, 3))


def prefill_cases() -> Iterator[Case]:
    for length in (1024, 2048, 4096, 8192, 16384):
        for heads, group, width, causal, tile in (
            (32, 4, 128, True, (128, 64, 8, 3)),
            (32, 4, 128, True, (64, 64, 4, 2)),
            (64, 8, 128, True, (128, 128, 8, 2)),
            (24, 1, 128, False, (128, 64, 8, 3)),
            (16, 1, 64, True, (128, 64, 4, 3)),
        ):
            for batch in (1, 4) if length <= 4096 else (1,):
                bm, bn, warps, stages = tile
                many, few = batch * heads * length * width, batch * heads // group * length * width
                yield Case(
                    family="prefill",
                    name=f"b={batch} h={heads}/{group} d={width} {length} "
                    f"{'causal' if causal else 'full'} {bm}x{bn}",
                    kernel="flash_prefill",
                    grid=(length // bm, batch * heads),
                    arguments=(
                        Tensor("queries", many),
                        Tensor("keys", few),
                        Tensor("values", few),
                        Tensor("out", many, role="output"),
                        length,
                        heads,
                        group,
                    ),
                    shape={
                        "batch": batch,
                        "heads": heads,
                        "group": group,
                        "length": length,
                        "width": width,
                        "causal": int(causal),
                    },
                    build={
                        "constants": {"CAUSAL": causal, "WIDTH": width, "BM": bm, "BN": bn},
                        "warps": warps,
                        "stages": stages,
                        "plain": ("heads", "group"),
                    },
                )


def decode_cases() -> Iterator[Case]:
    for batch in (1, 4, 8, 16, 32, 64):
        for context in (1024, 4096, 8192, 16384, 32768):
            for group, splits, tile in (
                (4, 0, (128, 4, 2)),
                (8, 0, (64, 4, 3)),
                (4, 1, (64, 2, 3)),
            ):
                heads = 8
                if batch * context > 32 * 32768 or (splits and batch < 16):
                    continue
                wanted = splits or max(1, min(context // 256, 264 // (batch * heads)))
                parts = 1 << (wanted.bit_length() - 1)
                block, warps, stages = tile
                count = batch * heads * group
                yield Case(
                    family="decode",
                    name=f"b={batch} h={heads}*{group} {context} parts={parts} {block}",
                    kernel="flash_decode",
                    grid=(batch * heads, parts),
                    arguments=(
                        Tensor("queries", count * 128),
                        Tensor("keys", batch * heads * context * 128, role="state"),
                        Tensor("values", batch * heads * context * 128, role="state"),
                        Tensor("out", parts * count * 128, role="output"),
                        Tensor("sums", parts * count, "fp32", "output"),
                        context,
                        context // parts,
                    ),
                    shape={
                        "batch": batch,
                        "heads": heads,
                        "group": group,
                        "context": context,
                        "parts": parts,
                    },
                    build={
                        "constants": {"GROUP": group, "WIDTH": 128, "BN": block},
                        "warps": warps,
                        "stages": stages,
                    },
                )
    for count, parts in ((32, 32), (256, 8), (512, 4), (2048, 2)):
        yield Case(
            family="decode",
            name=f"join {count} of {parts}",
            kernel="join_parts",
            grid=(count,),
            arguments=(
                Tensor("parts", parts * count * 128),
                Tensor("sums", parts * count, "fp32"),
                Tensor("out", count * 128, role="output"),
                count,
                parts,
            ),
            shape={"rows": count, "parts": parts},
            build={"constants": {"WIDTH": 128}, "warps": 4, "stages": 1, "plain": ("splits",)},
        )


def row_case(
    family: str, kernel: str, rows: int, width: int, block: int, warps: int, **more: Any
) -> Case:
    """A kernel over rows; `more` says what it reads and whether blocks are parts of rows."""
    before: tuple[Tensor, ...] = more.get("before", ())
    reads: tuple[Tensor, ...] = more.get("reads", ())
    wide = more.get("wide", 1)
    parts = -(-width // block) if more.get("parts") else 1
    size = rows * width
    x = () if more.get("no_x") else (Tensor("x", wide * size),)
    constants = {"SIZE": width} if kernel == "rms_norm" else {"BLOCK": block}
    scalars = () if kernel == "rms_norm" else (size if more.get("flat") else width,)
    out = Tensor("out", size, more.get("out", "bf16"), "output")
    return Case(
        family=family,
        name=f"{kernel} {rows}x{width} {block}",
        kernel=kernel,
        grid=(-(-size // block),) if more.get("flat") else (rows, parts),
        arguments=(*before, *x, *reads, out, *scalars),
        shape={"rows": rows, "width": width},
        build={"constants": constants, "warps": warps, "stages": 2},
    )


def weights(width: int, *names: str) -> tuple[Tensor, ...]:
    return tuple(Tensor(name, width, role="weight") for name in names)


def norm_cases() -> Iterator[Case]:
    for rows in (1, 16, 128, 1024, 4096, 16384):
        for width, warps in ((4096, 8), (8192, 8), (16384, 16)):
            if rows * width <= 1 << 27:
                yield row_case(
                    "norm", "rms_norm", rows, width, width, warps, reads=weights(width, "weight")
                )
        for width, block in ((1536, 2048), (3072, 4096), (5120, 8192)):
            reads = weights(width, "weight", "bias")
            yield row_case("norm", "layer_norm", rows, width, block, 8, reads=reads)


def softmax_cases() -> Iterator[Case]:
    for rows in (1, 32, 1024, 8192, 32768):
        for width in (1024, 4096, 8192):
            if rows * width <= 1 << 27:
                yield row_case("softmax", "softmax", rows, width, width, 4 if width < 4096 else 8)
        for width in (32768, VOCABULARY):
            if rows <= 1024:
                yield row_case("softmax", "softmax_long", rows, width, 2048, 8)


def gather_cases() -> Iterator[Case]:
    for rows in (1, 16, 128, 1024, 8192, 32768):
        for width, block in ((4096, 4096), (8192, 2048), (1024, 1024)):
            before = (
                Tensor("index", rows, "i32", below=VOCABULARY),
                Tensor("table", VOCABULARY * width, role="weight"),
            )
            yield row_case(
                "gather", "gather_rows", rows, width, block, 4, before=before, no_x=True, parts=True
            )


def plain_cases() -> Iterator[Case]:
    for rows in (1, 16, 128, 1024, 4096, 16384):
        for width in (14336, 28672):
            if rows * width <= 1 << 27:
                yield row_case("elementwise", "silu_mul", rows, width, 2048, 4, wide=2, parts=True)
        for width in (4096, 8192):
            other = (Tensor("y", rows * width),)
            yield row_case("elementwise", "add", rows, width, 1024, 4, reads=other, flat=True)
        yield row_case("elementwise", "gelu", rows, 12288, 1024, 4, flat=True)
        yield row_case("elementwise", "gelu", rows, 4096, 256, 1, flat=True)


def scan_cases() -> Iterator[Case]:
    for rows in (1, 64, 1024, 8192):
        for width, block in ((1024, 1024), (4096, 1024), (16384, 2048), (65536, 4096)):
            if rows * width <= 1 << 26:
                yield row_case("scan", "scan_rows", rows, width, block, 4, out="fp32")


def convolution_cases() -> Iterator[Case]:
    for side, channels, features in (
        (128, 320, 320),
        (64, 320, 640),
        (64, 640, 640),
        (32, 1280, 1280),
        (32, 640, 1280),
        (16, 1280, 1280),
        (256, 128, 128),
        (512, 128, 128),
    ):
        for batch, (bm, bn, bk, warps, stages) in (
            (1, (128, 64, 64, 4, 3)),
            (2, (64, 64, 32, 4, 3)),
        ):
            pixels = batch * side * side
            yield Case(
                family="convolution",
                name=f"{batch}x{side}x{side} {channels}->{features} {bm}x{bn}x{bk}",
                kernel="conv3x3",
                grid=(pixels // bm, features // bn),
                arguments=(
                    Tensor("x", pixels * channels),
                    Tensor("weight", 9 * features * channels, role="weight"),
                    Tensor("out", pixels * features, role="output"),
                    side,
                    side,
                    channels,
                    features,
                ),
                shape={
                    "batch": batch,
                    "height": side,
                    "width": side,
                    "channels": channels,
                    "features": features,
                },
                build={
                    "constants": {"BM": bm, "BN": bn, "BK": bk},
                    "warps": warps,
                    "stages": stages,
                },
            )


FAMILIES = {
    "gemm": gemm_cases,
    "prefill": prefill_cases,
    "decode": decode_cases,
    "norm": norm_cases,
    "softmax": softmax_cases,
    "gather": gather_cases,
    "elementwise": plain_cases,
    "scan": scan_cases,
    "convolution": convolution_cases,
}
