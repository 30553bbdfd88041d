"""Layers of models as they are traced from their config files, beside captures on an H200.

    python -m benchmarks.prediction.derived_steps [--only NAME] [-o FILE]    # needs torch

The captures are those of `unseen_steps`, made on an H200 with torch.compile. Here the same models
are traced from their configs, as `tessc trace hf:` does (`mmdit`, which has none, by
`--device meta`). Of both, the steps from the first that reads a weight of a layer to the last that
does are counted, and the bytes that they read and write as the analysis states them: weights of
layers, caches, and the rest (activations). Weights that belong to no layer are left out: captures
look embeddings up again instead of keeping them. Where addresses come from data (caches, experts),
the bytes are those that the planner counts. The targets are at most 1.5 times the steps of the
capture, and bytes within 10% of the capture's.
"""

# torch has no types here.
# mypy: ignore-errors

from __future__ import annotations

import inspect
import json
import lzma
import re
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.common import MODELS, Row, arguments, machine, tessc, write
from benchmarks.prediction.profiled_steps import unpack
from benchmarks.prediction.unseen_steps import (
    STEPS,
    decode,
    diffusion,
    file_of,
    in_8_bits,
    prompt,
)
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.graph.region import Region
from tessera.ir.program.program import Role
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes

MOST_STEPS, NEAR = 1.5, 0.10
LAYER = re.compile(r"(?:layers?|blocks)\.(\d+)\.")
PARTS = {Role.WEIGHT: "weights", Role.STATE: "caches"}


def derive(name: str, folder: Path) -> Path:
    """The trace of a step of `unseen_steps`, from the sizes alone."""
    step: partial[Any] = STEPS[name]
    trace = file_of(folder, name, ".derived.ptx")
    if step.func is diffusion:
        sizes = [
            text for size in step.keywords.items() for text in ("--set", "{}={}".format(*size))
        ]
        model = f"{MODELS / 'mmdit.py'}:step"
        tessc("trace", model, "-o", str(trace), "--device", "meta", *sizes)
        return trace
    given = inspect.signature(step.func).bind(*step.args, **step.keywords).arguments
    sizes = given.pop("sizes")
    phase = {decode: "decode", in_8_bits: "decode", prompt: "prefill"}.get(step.func, "encode")
    values = config(given.get("kind", "Qwen3Model"), given.get("config", "Qwen3Config"), sizes)
    if step.func is in_8_bits:
        values["quantization_config"] = {"quant_method": "fbgemm_fp8"}
    batch, *more = given.get("shape") or (given["batch"], given.get("context") or given["tokens"])
    file = trace.with_suffix(".json")
    file.write_text(json.dumps(values))
    size = ("--phase", phase, "--batch", str(batch), "--context", str(more[-1]))
    tessc("trace", f"hf:{file}", "-o", str(trace), *size)
    return trace


def config(kind: str, name: str, sizes: Row) -> Row:
    """The values of a config file."""
    import transformers

    made = getattr(transformers, name)(**sizes)
    return {**made.to_dict(), "architectures": [kind], "dtype": "bfloat16"}


def layers_of(trace: Path) -> Row:
    """Steps and bytes per layer of a trace."""
    from tessera.driver.traces import load_traces
    from tessera.frontend.machine.gpus import machine_of
    from tessera.planning.prices.call_shapes import call_shape_of
    from tessera.planning.prices.estimate_costs import estimate_costs
    from tessera.planning.prices.library_calls import Experts

    (loaded,) = load_traces((str(trace),))
    graph = loaded.graph
    costs = estimate_costs(loaded.program, graph, machine_of("h200", "100Gb/s"))
    own: dict[int, list[int]] = {}
    for at, node in enumerate(graph.nodes):
        for access in () if node.pins else node.accesses:
            if layer := LAYER.search(graph.buffers[access.buffer].name):
                own.setdefault(int(layer[1]), []).append(at)
    count, steps = len(own), range(min(map(min, own.values())), max(map(max, own.values())) + 1)
    moved: Counter[str] = Counter()
    for at, work in enumerate(loaded.program.work()):
        if at in steps:
            most = costs.steps[at].memory_bytes
            shape, _ = call_shape_of(work, most)
            inside = shape.inside if isinstance(shape, Experts) else 0.0
            moved["activations"] += round(inside)
            moved.update(bytes_of(graph, graph.nodes[at], most - inside))
    names = Counter(graph.nodes[at].name for at in steps)
    return {
        "steps": round(len(steps) / count, 2),
        **{part: round(size / count) for part, size in sorted(moved.items())},
        "bytes": round(moved.total() / count),
        "kernels": {name: round(some / count, 2) for name, some in names.items()},
    }


def bytes_of(graph: KernelGraph, node: Node, most: float) -> Counter[str]:
    """What a step reads and writes, by what it belongs to.

    `most` is what the planner says it moves. Where that is less than the analysis states, as
    addresses come from data, the difference is taken from the largest buffers.
    """
    touched: Counter[tuple[int, bool]] = Counter()
    both: dict[int, list[Region]] = {}
    for is_write in (False, True):
        regions: dict[int, list[Region]] = {}
        for access in node.accesses:
            if access.kind.writes if is_write else access.kind.reads:
                regions.setdefault(access.buffer, []).append(access.region)
                both.setdefault(access.buffer, []).append(access.region)
        for buffer, some in regions.items():
            touched[buffer, is_write] = size_of(graph, buffer, some)
    distinct = sum(size_of(graph, buffer, some) for buffer, some in both.items())
    left = most if most < distinct - 1 else float(touched.total())
    moved: Counter[str] = Counter()
    for (number, _), count in reversed(touched.most_common()):
        count = round(min(count, left))
        left -= count
        buffer = graph.buffers[number]
        if buffer.role is not Role.WEIGHT or LAYER.search(buffer.name):
            moved[PARTS.get(buffer.role, "activations")] += count
    return moved


def size_of(graph: KernelGraph, buffer: int, regions: list[Region]) -> int:
    """The bytes of regions of a buffer."""
    return intervals.size(regions_bytes(tuple(regions), graph.buffers[buffer].bytes))


def compared(name: str, folder: Path) -> Row:
    """A capture beside the derived trace."""
    packed = file_of(folder, name, ".ptx.xz")
    captured = packed.with_suffix("")
    captured.write_bytes(lzma.decompress(packed.read_bytes()))
    ours, theirs = layers_of(derive(name, folder)), layers_of(captured)
    ratios = {
        key: round(ours.get(key, 0) / theirs[key], 3)
        for key in ("steps", "weights", "caches", "activations", "bytes")
        if theirs.get(key)
    }
    return {
        "ratio": ratios,
        "steps_hold": ratios["steps"] <= MOST_STEPS,
        "bytes_hold": abs(ratios["bytes"] - 1) <= NEAR,
        "derived": ours,
        "captured": theirs,
    }


def main() -> None:
    parser = arguments(__doc__, "derived_steps.json")
    parser.add_argument("--only", action="append", choices=tuple(STEPS))
    options = parser.parse_args()
    rows: Row = {}
    with tempfile.TemporaryDirectory() as place:
        for name in unpack(Path(place)):
            if name in (options.only or STEPS):
                rows[name] = compared(name, Path(place))
                print(name, rows[name]["ratio"], flush=True)
    counts = {key: sum(row[key] for row in rows.values()) for key in ("steps_hold", "bytes_hold")}
    write(
        {"schema": "tessera-derived-steps/1", **machine(), **counts, "rows": rows}, options.output
    )


if __name__ == "__main__":
    main()
