"""Steps of four models at real width, as traces that are made without a GPU.

    python -m benchmarks.prediction.h200_models    # needs Triton

`decode8b`: a token for each of 8 sequences with 4096 tokens of context, 8 layers with the sizes of
Llama 3 8B. `prefill8b`: a prompt of 2048 tokens through 4 of them. `mmdit`: 4 blocks with an image
stream of 4096 tokens and a text stream of 512, 3072 wide, attention over both. `experts`: 256
tokens through 4 layers of 8 experts each, all of which are used. Writes the archive of results.
"""

from __future__ import annotations

import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, arguments
from benchmarks.prediction.h200_cases import Compiler, parameters_of
from benchmarks.prediction.h200_shapes import WIDTHS

MODELS = ("decode8b", "prefill8b", "mmdit", "experts")
ARCHIVE = RESULTS / "h200_models.tar.xz"
HEADS, HIDDEN, INNER = 8, 4096, 14336  # of Llama 3 8B


@dataclass
class Builder:
    """A trace as it grows."""

    compiler: Compiler
    buffers: dict[str, tuple[int, str]] = field(default_factory=dict)
    modules: dict[str, tuple[str, str]] = field(default_factory=dict)
    launches: list[str] = field(default_factory=list)

    def buffer(self, name: str, elements: int, role: str = "temp", kind: str = "bf16") -> str:
        """A buffer; temporary ones have numbers of their own."""
        if role == "temp":
            name = f"{name}{len(self.buffers)}"
        self.buffers[name] = (elements * WIDTHS[kind], role)
        return name

    def launch(
        self,
        function: Any,
        grid: Sequence[int],
        arguments: Sequence[str | int],
        constants: dict[str, Any],
        warps: int,
        stages: int,
        *,
        kinds: dict[int, str] | None = None,
    ) -> None:
        """A launch; arguments are buffers of bf16, or of `kinds`, and whole numbers."""
        kinds = kinds or {}
        types = [
            f"*{kinds.get(n, 'bf16')}" if isinstance(a, str) else "i32"
            for n, a in enumerate(arguments)
        ]
        runtime = [name for name in function.arg_names if name not in constants]
        plain = [
            n for n, a in zip(runtime, arguments, strict=True) if isinstance(a, int) and a % 16
        ]
        code = self.compiler.code(
            function, types, constants, warps=warps, stages=stages, plain=tuple(plain)
        )
        name, _ = self.modules.setdefault(code.digest, (f"m{len(self.modules)}", code.text))
        given = [a if isinstance(a, str) else f"u32:{a}" for a in arguments]
        given += ["u64:0"] * (len(parameters_of(code.text)) - len(given))
        size = ",".join(map(str, (*grid, 1, 1)[:3]))
        self.launches.append(
            f"//! launch {name}.{code.entry} grid={size} block={code.threads},1,1 "
            f"smem={code.shared} args=[{', '.join(given)}]"
        )

    def text(self) -> str:
        lines = ["//! tessera.trace 1"]
        lines += [f"//! buffer {n} bytes={s} role={r}" for n, (s, r) in self.buffers.items()]
        for name, text in self.modules.values():
            lines += [f"//! module {name}", text]
        return "\n".join([*lines, *self.launches, ""])


@dataclass(frozen=True)
class Steps:
    """The kernels of the models on a builder."""

    to: Builder
    rows: int
    hidden: int

    def gemm(self, x: str, name: str, rows: int, columns: int, depth: int, **more: Any) -> str:
        """out = x @ weight^T, with a residual or a gelu."""
        from benchmarks.kernels import h200_triton as kernels

        if rows >= 128 and columns % 128 == 0:
            bm, bn, bk, warps, stages = 128, 128, 64, 8, 3
        else:
            bm, bn, bk, warps, stages = 16, 64, min(128, depth), 4, 4
        weight = self.to.buffer(name, columns * depth, "weight")
        role = more.get("role", "temp")
        out = self.to.buffer("out" if role == "output" else "t", rows * columns, role)
        residual = more.get("residual")
        constants = {
            "ADD": residual is not None,
            "GELU": bool(more.get("gelu")),
            "MASKED": rows % bm != 0,
            "BM": bm,
            "BN": bn,
            "BK": bk,
            "DEEP": 8,
        }
        grid = (-(-rows // bm) * (columns // bn),)
        given = (x, weight, residual or x, out, rows, columns, depth)
        self.to.launch(kernels.gemm, grid, given, constants, warps, stages)
        return out

    def rms_norm(self, x: str, name: str) -> str:
        from benchmarks.kernels import h200_triton as kernels

        weight = self.to.buffer(name, self.hidden, "weight")
        out = self.to.buffer("t", self.rows * self.hidden)
        constants = {"SIZE": self.hidden}
        self.to.launch(kernels.rms_norm, (self.rows,), (x, weight, out), constants, 8, 2)
        return out

    def layer_norm(self, x: str, name: str, rows: int) -> str:
        from benchmarks.kernels import h200_triton as kernels

        weights = [self.to.buffer(f"{name}.{w}", self.hidden, "weight") for w in ("scale", "shift")]
        out = self.to.buffer("t", rows * self.hidden)
        block = 1 << (self.hidden - 1).bit_length()
        given = (x, *weights, out, self.hidden)
        self.to.launch(kernels.layer_norm, (rows,), given, {"BLOCK": block}, 8, 2)
        return out

    def silu_mul(self, both: str, width: int) -> str:
        from benchmarks.kernels import h200_triton as kernels

        out = self.to.buffer("t", self.rows * width)
        block = min(2048, width)
        grid = (self.rows, -(-width // block))
        self.to.launch(kernels.silu_mul, grid, (both, out, width), {"BLOCK": block}, 4, 2)
        return out


def llama(to: Builder, *, prefill: int, decode: int, layers: int, context: int) -> None:
    """Layers of Llama: `prefill` tokens of a prompt, or one token of each of `decode` sequences."""
    kv_heads, hidden, inner = HEADS, HIDDEN, INNER
    rows = prefill or decode
    steps = Steps(to, rows, hidden)
    x = to.buffer("x", rows * hidden, "input")
    cos, sin = (to.buffer(n, context * 64, "weight", "fp32") for n in ("cos", "sin"))
    qkv_columns = 6 * kv_heads * 128
    for number in range(layers):
        name = f"l{number}"
        qkv = steps.gemm(
            steps.rms_norm(x, f"{name}.norm1"), f"{name}.qkv", rows, qkv_columns, hidden
        )
        count = (decode or 1) * kv_heads * context * 128
        caches = [to.buffer(f"{name}.{kind}", count, "state") for kind in ("k", "v")]
        turn = (qkv, cos, sin)
        attend = prompt if prefill else tokens
        mixed = attend(to, rows, kv_heads, context, turn, caches)
        x = steps.gemm(mixed, f"{name}.o", rows, hidden, hidden, residual=x)
        both = steps.gemm(
            steps.rms_norm(x, f"{name}.norm2"), f"{name}.gate_up", rows, 2 * inner, hidden
        )
        last = number == layers - 1
        x = steps.gemm(
            steps.silu_mul(both, inner),
            f"{name}.down",
            rows,
            hidden,
            inner,
            residual=x,
            role="output" if last else "temp",
        )


def prompt(
    to: Builder, rows: int, heads: int, context: int, turn: Sequence[str], caches: Sequence[str]
) -> str:
    """Attention of a prompt that begins its cache."""
    from benchmarks.kernels import h200_triton as kernels

    queries, out = (to.buffer("t", rows * heads * 4 * 128) for _ in range(2))
    sizes = {"CONTEXT": context, "HEADS": heads}
    floats = {1: "fp32", 2: "fp32"}
    given = (*turn, queries, *caches, 0, 0)
    to.launch(kernels.rotate_prefill, (rows, heads), given, sizes, 1, 2, kinds=floats)
    constants = {**sizes, "BM": 128, "BLOCK": 64}
    given = (queries, *caches, out, 0, 0)
    to.launch(kernels.attention_prefill, (rows // 128, heads * 4), given, constants, 8, 3)
    return out


def tokens(
    to: Builder, rows: int, heads: int, context: int, turn: Sequence[str], caches: Sequence[str]
) -> str:
    """Attention of a token of each sequence, in parts."""
    from benchmarks.kernels import h200_triton as kernels

    count = rows * heads * 4
    queries, out = (to.buffer("t", count * 128) for _ in range(2))
    sizes = {"CONTEXT": context, "HEADS": heads}
    given: tuple[str | int, ...] = (*turn, queries, *caches, 0, context - 1)
    floats = {1: "fp32", 2: "fp32"}
    to.launch(kernels.rotate_decode, (rows, heads), given, sizes, 1, 2, kinds=floats)
    parts = max(1, min(context // 256, 264 // (rows * heads)))
    split = to.buffer("t", parts * count * 128)
    sums = to.buffer("t", parts * count, kind="fp32")
    given = (queries, *caches, split, sums, context, context // parts)
    constants = {"GROUP": 4, "WIDTH": 128, "BN": 128}
    grid = (rows * heads, parts)
    to.launch(kernels.flash_decode, grid, given, constants, 4, 2, kinds={4: "fp32"})
    given = (split, sums, out, count, parts)
    to.launch(kernels.join_parts, (count,), given, {"WIDTH": 128}, 4, 1, kinds={1: "fp32"})
    return out


def mmdit(to: Builder, *, image: int, text: int, heads: int, blocks: int) -> None:
    """Blocks with two streams and attention over both."""
    from benchmarks.kernels import h200_triton as kernels

    hidden, length = heads * 128, image + text
    steps = Steps(to, image, hidden)
    rows = {"image": image, "text": text}
    first = {"image": 0, "text": image}
    x = {name: to.buffer(name, count * hidden, "input") for name, count in rows.items()}
    for number in range(blocks):
        q, k, v, mixed = (to.buffer("t", length * hidden) for _ in range(4))
        for name, count in rows.items():
            at = f"b{number}.{name}"
            normed = steps.layer_norm(x[name], f"{at}.norm1", count)
            qkv = steps.gemm(normed, f"{at}.qkv", count, 3 * hidden, hidden)
            given = (qkv, q, k, v, first[name], length)
            to.launch(kernels.place_heads, (count, heads), given, {"HEADS": heads}, 1, 2)
        constants = {"CAUSAL": False, "WIDTH": 128, "BM": 128, "BN": 64}
        sizes = (length, heads, 1)
        given = (q, k, v, mixed, *sizes)
        to.launch(kernels.flash_prefill, (length // 128, heads), given, constants, 8, 3)
        for name, count in rows.items():
            at, last = f"b{number}.{name}", number == blocks - 1
            flat = to.buffer("t", count * hidden)
            given = (mixed, flat, first[name], length)
            to.launch(kernels.merge_heads, (count, heads), given, {"HEADS": heads}, 1, 2)
            x[name] = steps.gemm(flat, f"{at}.o", count, hidden, hidden, residual=x[name])
            normed = steps.layer_norm(x[name], f"{at}.norm2", count)
            wide = steps.gemm(normed, f"{at}.up", count, 4 * hidden, hidden, gelu=True)
            role = "output" if last and name == "image" else "temp"
            if last and name == "text":
                continue  # nobody reads it
            x[name] = steps.gemm(
                wide, f"{at}.down", count, hidden, 4 * hidden, residual=x[name], role=role
            )


def experts(to: Builder, *, rows: int, hidden: int, inner: int, count: int, layers: int) -> None:
    """Layers of experts that are all used, one added to the other."""
    steps = Steps(to, rows, hidden)
    x = to.buffer("x", rows * hidden, "input")
    for number in range(layers):
        normed = steps.rms_norm(x, f"l{number}.norm")
        for expert in range(count):
            at = f"l{number}.e{expert}"
            both = steps.gemm(normed, f"{at}.gate_up", rows, 2 * inner, hidden)
            last = number == layers - 1 and expert == count - 1
            x = steps.gemm(
                steps.silu_mul(both, inner),
                f"{at}.down",
                rows,
                hidden,
                inner,
                residual=x,
                role="output" if last else "temp",
            )


def texts() -> dict[str, str]:
    """All traces by name."""
    compiler = Compiler()
    found = {}
    for name in MODELS:
        to = Builder(compiler)
        if name == "decode8b":
            llama(to, prefill=0, decode=8, layers=8, context=4096)
        elif name == "prefill8b":
            llama(to, prefill=2048, decode=0, layers=4, context=2048)
        elif name == "mmdit":
            mmdit(to, image=4096, text=512, heads=24, blocks=4)
        else:
            experts(to, rows=256, hidden=4096, inner=2048, count=8, layers=4)
        found[name] = to.text()
        print(name, len(to.launches), "launches", len(to.modules), "modules", flush=True)
    return found


def unpack(folder: Path) -> dict[str, Path]:
    """The traces of the archive, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return {name: folder / f"{name}.ptx" for name in MODELS}


def main() -> None:
    arguments(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as name, tarfile.open(ARCHIVE, "w:xz") as archive:
        for model, text in texts().items():
            path = Path(name, f"{model}.ptx")
            path.write_text(text)
            archive.add(path, path.name)


if __name__ == "__main__":
    main()
