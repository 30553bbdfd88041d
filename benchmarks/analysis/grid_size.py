"""How long the analysis of a launch takes as its grid grows, and whether it stays exact.

    python -m benchmarks.analysis.grid_size [-o FILE]
    python -m benchmarks.analysis.grid_size --build    # needs torch and Triton

Kernels are those of `benchmarks.prediction.h200_cases`, and the attention kernel of the capture
(Llama-3-8B: 32 heads, 8 of keys, size 128, causal), with sizes as arguments, so that one text
serves all grids. A row says the CTAs, the CPU seconds from a program that is read to the regions of
its launch (median), which classes its accesses have, and whether all of them are exact: direct,
writes certain. A gather reads its table at an index, so it is not; its writes are.
"""

from __future__ import annotations

import lzma
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.common import arguments, machine, write
from benchmarks.prediction.h200_cases import parameters_of, read_cases
from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.access import AddressClass, Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.access_regions import AccessRegions

HERE = Path(__file__).resolve().parents[1]
ATTENTION = HERE / "kernels" / "attention_prefill.ptx.xz"
CTAS = (64, 4096, 65536, 1 << 20)
TOKENS = (1024, 4096, 32768)
BUFFER = 1 << 33


@dataclass(frozen=True)
class Launch:
    """A launch of a text of PTX; arguments are numbers, or names of buffers."""

    family: str
    text: str
    entry: str
    grid: tuple[int, int, int]
    threads: int
    arguments: tuple[str, ...]
    note: str = ""

    def trace(self) -> str:
        """As a trace."""
        names = dict.fromkeys(a for a in self.arguments if ":" not in a)
        missing = len(parameters_of(self.text)) - len(self.arguments)
        arguments = [*self.arguments, *["u64:0"] * missing]
        return "\n".join(
            [
                "//! tessera.trace 1",
                *(f"//! buffer {name} bytes={BUFFER} role=state" for name in names),
                "//! module m0",
                self.text,
                f"//! launch m0.{self.entry} grid={','.join(map(str, self.grid))} "
                f"block={self.threads},1,1 smem=0 args=[{', '.join(arguments)}]",
                "",
            ]
        )


def launches() -> Iterator[Launch]:
    """Every kernel at every size."""
    cases, codes = read_cases()

    def kernel(name: str, **constants: int) -> Any:
        for case in cases:
            if case.kernel == name and constants.items() <= case.build["constants"].items():
                return case, codes[case.code]
        raise LookupError(name)

    def made(
        family: str, picked: Any, grid: tuple[int, ...], *numbers: int, note: str = ""
    ) -> Launch:
        case, text = picked
        names = [a.name for a in case.arguments if not isinstance(a, int)]
        arguments = (*names, *(f"u32:{number}" for number in numbers))
        x, y, z = (*grid, 1, 1)[:3]
        return Launch(family, text, case.kernel, (x, y, z), case.threads, arguments, note)

    for ctas in CTAS:
        tiles = 1 << (ctas.bit_length() // 2)
        rows, columns = 32 * tiles, 32 * (ctas // tiles)
        yield made("elementwise", kernel("add", BLOCK=1024), (ctas,), 1024 * ctas - 16)
        yield made("reduction", kernel("softmax", BLOCK=1024), (ctas,), 1000)
        yield made("gather", kernel("gather_rows", BLOCK=1024), (ctas,), 1000)
        yield made("gemm", kernel("gemm", BM=32, BN=32), (ctas,), rows, columns, 4096)
    for tokens in TOKENS:
        tile = kernel("flash_prefill", CAUSAL=True, BM=64)
        yield made(
            "flash", tile, (tokens // 64, 128), tokens, 32, 4, note=f"{tokens} tokens, batch 4"
        )
    text = lzma.decompress(ATTENTION.read_bytes()).decode()
    for tokens in TOKENS:
        yield attention(text, tokens)


def attention(text: str, tokens: int) -> Launch:
    """The capture's kernel on a prompt, one sequence."""
    heads, kv_heads, size = 32, 8, 128
    q = (tokens * heads * size, size, heads * size)
    k = (tokens * kv_heads * size, tokens * size, size)
    numbers = [tokens, tokens, heads, 0, 0]
    scalars = [f"u32:{n}" for n in numbers] + ["f32:0.088388346", "f32:0.0"]
    strides = [f"u32:{n}" for n in (*q, *k, *k, *q, 0, 0, 0, 0, 0)]
    arguments = ("q", "k", "v", "out", *scalars, *strides)
    grid = (heads, tokens // 128, 1)
    return Launch("attention", text, "attention", grid, 256, arguments, f"{tokens} tokens")


def measure(launch: Launch, repeats: int) -> dict[str, Any]:
    """A row of the result."""
    program: ir.Program = read_program(Source("t.ptx", launch.trace()))[0]
    seconds = []
    for _ in range(repeats):
        start = time.process_time()
        (step,) = AnalysisManager(program).get(AccessRegions).steps
        seconds.append(time.process_time() - start)
    counted = Counter(
        f"{a.kind.value} {a.certainty.value} {a.address.value}" for a in step.accesses
    )
    exact = all(a.address is AddressClass.DIRECT for a in step.accesses)
    sure = all(a.certainty is Certainty.MUST for a in step.accesses if a.kind.writes)
    return {
        "kernel": launch.family,
        "note": launch.note,
        "grid": list(launch.grid),
        "ctas": prod(launch.grid),
        "threads": launch.threads,
        "cpu_seconds": round(statistics.median(seconds), 3),
        "repeats": repeats,
        "exact": exact,
        "writes_certain": sure,
        "warnings": [d.code for d in step.diagnostics],
        "accesses": dict(sorted(counted.items())),
    }


def build(target: Path) -> None:
    """Compile the attention kernel as the capture does, for an H200."""
    import torch
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime.driver import driver

    from tessera.frontend.capture.attention import launch as capture
    from tests.data.attention.build import Driver

    class H200(Driver):
        def __getattr__(self, name: str) -> Any:
            values = {"get_current_target": GPUTarget("cuda", 90, 32)}
            return lambda *_: values.get(name, 0)

    texts: list[str] = []
    initial = CompiledKernel.__init__

    def keep(self: Any, *given: Any, **named: Any) -> None:
        initial(self, *given, **named)
        texts.append(self.asm["ptx"])

    CompiledKernel.__init__ = keep
    driver.set_active(H200())
    q, k, v = (torch.empty(1, n, 4096, 128, dtype=torch.bfloat16) for n in (32, 8, 8))
    tiles = capture.Tiles(rows=128, keys=64, warps=8, stages=3)
    q = q.transpose(1, 2).contiguous().transpose(1, 2)
    capture.launch(q, k, v, seen=capture.Seen(causal=True), scale=128**-0.5, tiles=tiles)
    target.write_bytes(lzma.compress(texts[0].encode(), preset=9))


def main() -> None:
    parser = arguments(__doc__, "grid_size.json")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--build", action="store_true")
    options = parser.parse_args()
    if options.build:
        build(ATTENTION)
        return
    measure(next(launches()), 1)  # imports
    rows = []
    for launch in launches():
        rows.append(measure(launch, options.repeats))
        row = rows[-1]
        line = f"{row['kernel']:12} {row['ctas']:8} CTAs {row['cpu_seconds']:8.3f} s"
        sys.stdout.write(f"{line}  exact={row['exact']} certain={row['writes_certain']}\n")
        sys.stdout.flush()
    document = {"schema": "tessera-grid-size/1", "machine": machine(), "rows": rows}
    write(document, options.output)


if __name__ == "__main__":
    main()
