"""Products of experts on a GPU: times over experts, choices, widths, tokens, and two routings.

    python -m benchmarks.prediction.h200_experts -o FILE [--seconds 200]    # needs a GPU and torch

For each model's sizes: the product into the experts (`up`, gate and up side by side) and the one
out of them (`down`), by `torch._grouped_mm` (CUTLASS) and by the Triton kernel that captures have
(`tessera::grouped_product`, the first of its tiles), and the whole block with its sort, gather and
sum (`block`, by `torch._grouped_mm`). Rows are sorted by expert, as engines do. `uniform`: each
token draws its experts without a preference; `skewed`: with probabilities that fall as 1, 1/2, 1/3
and so on, in a random order. Neither is the routing of a trained model on text: no checkpoint was
at hand. `distinct` is the number of experts that have a row. Calls lie in one CUDA graph, over so
many copies of the weights that L2 does not hold what a call reads. `HELD_OUT` sizes are for
judging, not for fitting.
"""

# torch has no types here.
# mypy: ignore-errors

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from benchmarks.common import ROOT, Row, arguments, write

TOKENS = (1, 4, 16, 64, 256, 1024, 4096)
ROUTINGS = {"uniform": 0.0, "skewed": 1.0}
COLD_BYTES = 240 << 20
REPEATS = 7


@dataclass(frozen=True)
class Sizes:
    """Experts, how many a token goes to, and widths outside and inside."""

    experts: int
    chosen: int
    hidden: int
    inner: int


MODELS = {
    "qwen3-30b": Sizes(128, 8, 2048, 768),
    "mixtral-8x7b": Sizes(8, 2, 4096, 14336),
    "olmoe-7b": Sizes(64, 8, 2048, 1024),
    "gpt-oss-120b": Sizes(128, 4, 2880, 2880),
    "phi-3.5-moe": Sizes(16, 2, 4096, 6400),
    "qwen2-57b": Sizes(64, 8, 3584, 2560),
    "glm-4.5-air": Sizes(128, 8, 4096, 1408),
    "deepseek-v3": Sizes(256, 8, 7168, 2048),
    "gpt-oss-20b": Sizes(32, 4, 2880, 2880),
    "deepseek-v2-lite": Sizes(64, 6, 2048, 1408),
    "llama-4-scout": Sizes(16, 1, 5120, 8192),
    "granite-3-3b": Sizes(40, 8, 1536, 512),
}
HELD_OUT = ("gpt-oss-20b", "deepseek-v2-lite", "llama-4-scout", "granite-3-3b")


def routed(sizes: Sizes, tokens: int, skew: float):
    """The experts of each token, drawn without replacement."""
    import torch

    generator = torch.Generator().manual_seed(tokens)
    weights = torch.arange(1, sizes.experts + 1, dtype=torch.float64) ** -skew
    weights = weights[torch.randperm(sizes.experts, generator=generator)]
    drawn = torch.multinomial(weights.expand(tokens, -1), sizes.chosen, generator=generator)
    return drawn.cuda()


@dataclass
class Block:
    """Weights of some layers of one model, and what one call computes with them."""

    sizes: Sizes
    copies: int

    def __post_init__(self) -> None:
        import torch

        s = self.sizes
        made = torch.empty
        self.up = [
            made(s.experts, 2 * s.inner, s.hidden, dtype=torch.bfloat16, device="cuda").normal_()
            for _ in range(self.copies)
        ]
        self.down = [
            made(s.experts, s.hidden, s.inner, dtype=torch.bfloat16, device="cuda").normal_()
            for _ in range(self.copies)
        ]

    def calls(self, tokens: int, skew: float) -> Iterator[tuple[str, str, Callable[[int], object]]]:
        """What is timed: its name, its way, and a call over the weights of one number."""
        import torch

        from tessera.frontend.capture.experts.launch import candidates, launch, size_of

        s = self.sizes
        chosen = routed(s, tokens, skew)
        x = torch.randn(tokens, s.hidden, dtype=torch.bfloat16, device="cuda")
        share = torch.full((tokens * s.chosen, 1), 1 / s.chosen, dtype=torch.bfloat16).cuda()
        everyone = torch.arange(s.experts, device="cuda")

        def sorted_rows():
            order = chosen.flatten().argsort()
            counts = (chosen.flatten()[:, None] == everyone).sum(0)
            return order, counts.cumsum(0).to(torch.int32)

        order, ends = sorted_rows()
        rows = x[order // s.chosen]
        inside = torch.randn(len(order), s.inner, dtype=torch.bfloat16, device="cuda")
        self.distinct = int((ends.diff(prepend=ends.new_zeros(1)) > 0).sum())

        def tiled(given, weights):
            turned = weights.transpose(1, 2)
            return launch(given, turned, ends, next(candidates(size_of(given, turned))))

        def block(number: int) -> object:
            order, ends = sorted_rows()
            wide = torch._grouped_mm(
                x[order // s.chosen], self.up[number].transpose(1, 2), offs=ends
            )
            gate, up = wide.chunk(2, 1)
            given = torch.nn.functional.silu(gate) * up
            made = torch._grouped_mm(given, self.down[number].transpose(1, 2), offs=ends)
            return torch.zeros_like(x).index_add_(0, order // s.chosen, made * share)

        for name, given, weights in (("up", rows, self.up), ("down", inside, self.down)):
            yield name, "tessera::grouped_product", lambda n, a=given, w=weights: tiled(a, w[n])
            yield (
                name,
                "torch._grouped_mm",
                lambda n, a=given, w=weights: torch._grouped_mm(a, w[n].transpose(1, 2), offs=ends),
            )
        yield "block", "torch._grouped_mm", block


def copies_of(sizes: Sizes) -> int:
    """Copies of the weights such that what a call reads is not in L2 when it comes again.

    A call of one token reads the weights of few experts: with two copies, the same ones come again
    after as many bytes as both calls read.
    """
    least = 2 * sizes.chosen * sizes.hidden * sizes.inner  # bytes of `down`, one token
    fits = (60 << 30) // (6 * sizes.experts * sizes.hidden * sizes.inner)
    return max(1, min(-(-COLD_BYTES // least), fits, 32))


def timed(call: Callable[[int], object], copies: int) -> tuple[float, float]:
    """Nanoseconds of one call, and the spread of the repeats."""
    import torch

    stream = torch.cuda.Stream()
    with torch.inference_mode(), torch.cuda.stream(stream):
        for _ in range(2):
            call(0)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        count = max(copies, 4)
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            for number in range(count):
                call(number % copies)
        finally:
            graph.capture_end()
        found = []
        for _ in range(REPEATS + 1):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record(stream)
            graph.replay()
            end.record(stream)
            end.synchronize()
            found.append(begin.elapsed_time(end) * 1e6 / count)
    graph.reset()
    middle = statistics.median(found[1:])
    return middle, statistics.mean(abs(ns - middle) for ns in found[1:]) / middle


def rows_of(name: str, until: float, *, dry: bool) -> Iterator[Row]:
    """All rows of a model; `dry` only compiles."""
    sizes = MODELS[name]
    copies = 1 if dry else copies_of(sizes)
    block = Block(sizes, copies)
    for tokens, (routing, skew) in product(TOKENS, ROUTINGS.items()):
        if dry and skew:
            continue
        for what, way, call in block.calls(tokens, skew):
            if time.monotonic() > until:
                return
            if dry:
                if way.startswith("tessera"):
                    call(0)
                continue
            ns, spread = timed(call, copies)
            yield {
                "model": name,
                "experts": sizes.experts,
                "chosen": sizes.chosen,
                "hidden": sizes.hidden,
                "inner": sizes.inner,
                "tokens": tokens,
                "routing": routing,
                "distinct": block.distinct,
                "what": what,
                "way": way,
                "copies": copies,
                "ns": round(ns, 1),
                "spread": round(spread, 4),
                "held_out": name in HELD_OUT,
            }


def main() -> None:
    import torch

    parser = arguments(__doc__)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--compile", default="", help="compile for this model, and end")
    options = parser.parse_args()
    until = time.monotonic() + options.seconds
    if options.compile:
        list(rows_of(options.compile, until, dry=True))
        return
    here = [sys.executable, "-m", "benchmarks.prediction.h200_experts", "--compile"]
    compilers = [subprocess.Popen([*here, name], cwd=ROOT) for name in MODELS]
    for compiler in compilers:
        compiler.wait()
    print("compiled", round(options.seconds - until + time.monotonic()), "s", flush=True)
    about = f"{torch.cuda.get_device_name()}, torch {torch.__version__}"
    rows: list[Row] = []
    for name in MODELS:
        rows += rows_of(name, until, dry=False)
        torch.cuda.empty_cache()
        write({"schema": "tessera-h200-experts/1", "machine": about, "rows": rows}, options.output)
        print(name, len(rows), "rows", flush=True)


if __name__ == "__main__":
    main()
