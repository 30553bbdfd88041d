"""Models as traces for the GPU benchmarks, from the kernels in `kernels/model.ptx`.

In: sizes. Out: programs: a perceptron, a transformer stack at prefill, the same stack decoding one
token over the cache that prefill leaves, a layer of routed experts. Prefill and decode name
weights and caches alike, so that one plan can hold both.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from tessera.backend.service import Bytes
from tessera.diagnostics import Source
from tessera.driver.load import read_program
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import Program, Role
from tessera.ir.program.seeded import seeded_bytes
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences

PTX = Path(__file__).parents[1] / "kernels" / "model.ptx"


@dataclass(slots=True)
class Writer:
    """Collects the records of a trace."""

    buffers: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)

    def buffer(self, name: str, role: str, rows: int, cols: int, dtype: str = "bf16") -> str:
        size = rows * cols * (2 if dtype == "bf16" else 4)
        text = f"buffer {name} bytes={size} role={role} dtype={dtype} shape={rows}x{cols}"
        assert self.buffers.setdefault(name, text) == text
        return name

    def launch(self, kernel: str, grid: tuple[int, ...], block: int, *args: object) -> None:
        sizes = ",".join(map(str, (*grid, 1, 1, 1)[:3]))
        given = ", ".join(f"u32:{a}" if isinstance(a, int) else str(a) for a in args)
        self.steps.append(f"launch m.{kernel} grid={sizes} block={block},1,1 smem=0 args=[{given}]")

    def text(self) -> str:
        records = "".join(f"//! {line}\n" for line in self.buffers.values())
        steps = "".join(f"//! {line}\n" for line in self.steps)
        return f"//! tessera.trace 1\n{records}//! module m\n{PTX.read_text()}{steps}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """`tokens` of a prompt; `length` of the cache; `inner` of the perceptrons."""

    tokens: int = 128
    hidden: int = 256
    inner: int = 512
    layers: int = 2
    length: int = 192
    experts: int = 4


@dataclass(frozen=True, eq=False)
class CudaModel:
    """Traces that share weights and states, with their graphs."""

    name: str
    sizes: Sizes
    programs: tuple[Program, ...]
    graphs: tuple[KernelGraph, ...]

    @cache  # noqa: B019 - a handful of models, each used to the end
    def weights(self) -> dict[str, Bytes]:
        return {n: c for p in self.programs for n, c in _contents(p, Role.WEIGHT, 1).items()}

    @cache  # noqa: B019
    def states(self, lane: int) -> dict[str, Bytes]:
        found = (_contents(p, Role.STATE, 100 + lane).items() for p in self.programs)
        return {n: c for one in found for n, c in one}

    def inputs(self, trace: int, request: int) -> dict[str, Bytes]:
        """Those of a request; a position is somewhere in the cache."""
        found = _contents(self.programs[trace], Role.INPUT, 1000 + request)
        if "position" in found:
            at = np.array([(37 * request + 11) % self.sizes.length], np.int32)
            found["position"] = at.view(np.uint8)
        return found


def _contents(program: Program, role: Role, seed: int) -> dict[str, Bytes]:
    return {b.name: seeded_bytes(b, seed) for b in program.buffers if b.role is role}


def build(name: str, sizes: Sizes) -> CudaModel:
    """`mlp`, `prefill`, `decode`, `serving` (prefill and decode) or `moe`."""
    writers = {
        "mlp": (_mlp,),
        "prefill": (_prefill,),
        "decode": (_decode,),
        "serving": (_prefill, _decode),
        "moe": (_moe,),
        "stack": (_stack,),
    }[name]
    programs, graphs = [], []
    for write in writers:
        writer = Writer()
        write(writer, sizes)
        program = read_program(Source(f"{write.__name__[1:]}.ptx", writer.text()))[0]
        programs.append(program)
        graphs.append(AnalysisManager(program).get(Dependences).graph)
    return CudaModel(name, sizes, tuple(programs), tuple(graphs))


def _linear(w: Writer, s: Sizes, kernel: str, *args: str, inner: int, cols: int) -> None:
    w.launch(kernel, (cols // 64, s.tokens // 64), 128, *args, inner, cols)


def _feed_forward(w: Writer, s: Sizes, layer: int, x: str, y: str) -> None:
    norm = w.buffer(f"l{layer}.norm2", "weight", 1, s.hidden)
    up = w.buffer(f"l{layer}.up", "weight", s.hidden, s.inner)
    down = w.buffer(f"l{layer}.down", "weight", s.inner, s.hidden)
    n = w.buffer("normed", "temp", s.tokens, s.hidden)
    a = w.buffer("active", "temp", s.tokens, s.inner)
    w.launch("rms_norm", (s.tokens,), 128, x, norm, n, s.hidden)
    _linear(w, s, "linear_silu", n, up, a, inner=s.hidden, cols=s.inner)
    _linear(w, s, "linear_add", a, down, x, y, inner=s.inner, cols=s.hidden)


def _mlp(w: Writer, s: Sizes) -> None:
    x = w.buffer("x", "input", s.tokens, s.hidden)
    for layer in range(s.layers):
        last = layer == s.layers - 1
        y = "y" if last else f"h{layer % 2}"
        w.buffer(y, "output" if last else "temp", s.tokens, s.hidden)
        _feed_forward(w, s, layer, x, y)
        x = y


def _stack(w: Writer, s: Sizes) -> None:
    """A perceptron with little to bring and to take away: 64 features in and out."""
    into = w.buffer("into", "weight", 64, s.hidden)
    out_of = w.buffer("out_of", "weight", s.hidden, 64)
    x = w.buffer("x", "input", s.tokens, 64)
    h = w.buffer("h", "temp", s.tokens, s.hidden)
    _linear(w, s, "linear", x, into, h, inner=64, cols=s.hidden)
    for layer in range(s.layers):
        y = w.buffer(f"h{layer % 2}", "temp", s.tokens, s.hidden)
        _feed_forward(w, s, layer, h, y)
        h = y
    _linear(
        w, s, "linear", h, out_of, w.buffer("y", "output", s.tokens, 64), inner=s.hidden, cols=64
    )


def _prefill(w: Writer, s: Sizes) -> None:
    x = w.buffer("x", "input", s.tokens, s.hidden)
    n = w.buffer("normed", "temp", s.tokens, s.hidden)
    parts = [w.buffer(p, "temp", s.tokens, s.hidden) for p in ("q", "k", "v", "mixed", "h")]
    q, k, v, mixed, h = parts
    for layer in range(s.layers):
        norm = w.buffer(f"l{layer}.norm1", "weight", 1, s.hidden)
        w.launch("rms_norm", (s.tokens,), 128, x, norm, n, s.hidden)
        for part in "qkv":
            weight = w.buffer(f"l{layer}.w{part}", "weight", s.hidden, s.hidden)
            _linear(w, s, "linear", n, weight, part, inner=s.hidden, cols=s.hidden)
        for part in "kv":
            cache = w.buffer(f"l{layer}.{part}cache", "state", s.length, s.hidden)
            w.steps.append(f"memcpy {cache} {part} bytes={s.tokens * s.hidden * 2}")
        w.launch("attention", (s.hidden // 64, s.tokens), 64, q, k, v, mixed, s.hidden)
        weight = w.buffer(f"l{layer}.wo", "weight", s.hidden, s.hidden)
        _linear(w, s, "linear_add", mixed, weight, x, h, inner=s.hidden, cols=s.hidden)
        last = layer == s.layers - 1
        x = w.buffer("y", "output", s.tokens, s.hidden) if last else f"x{layer % 2}"
        if not last:
            w.buffer(x, "temp", s.tokens, s.hidden)
        _feed_forward(w, s, layer, h, x)


def _decode(w: Writer, s: Sizes) -> None:
    def row(name: str, role: str = "temp", cols: int = s.hidden) -> str:
        return w.buffer(name, role, 1, cols)

    def linear(x: str, weight: str, y: str, inner: int, cols: int) -> None:
        w.buffer(weight, "weight", inner, cols)
        w.launch("row_linear", (-(-cols // 256),), 128, x, weight, y, inner, cols)

    x = row("token", "input")
    position = w.buffer("position", "input", 1, 1, "s32")
    for name in ("tn", "tq", "tk", "tv", "tmixed", "tout", "th"):
        row(name)
    row("tactive", cols=s.inner)
    blocks = (-(-s.hidden // 256),)
    for layer in range(s.layers):
        norm = row(f"l{layer}.norm1", "weight")
        w.launch("rms_norm", (1,), 128, x, norm, "tn", s.hidden)
        for part in "qkv":
            linear("tn", f"l{layer}.w{part}", f"t{part}", s.hidden, s.hidden)
        caches = [w.buffer(f"l{layer}.{p}cache", "state", s.length, s.hidden) for p in "kv"]
        w.launch("store_token", blocks, 256, "tk", "tv", *caches, position, s.hidden)
        w.launch(
            "decode_attention", (s.hidden // 64,), 64, "tq", *caches, "tmixed", position, s.hidden
        )
        linear("tmixed", f"l{layer}.wo", "tout", s.hidden, s.hidden)
        w.launch("add_rows", blocks, 256, x, "tout", "th", s.hidden)
        norm = row(f"l{layer}.norm2", "weight")
        w.launch("rms_norm", (1,), 128, "th", norm, "tn", s.hidden)
        linear("tn", f"l{layer}.up", "tactive", s.hidden, s.inner)
        w.launch("silu_rows", (-(-s.inner // 256),), 256, "tactive", s.inner)
        linear("tactive", f"l{layer}.down", "tout", s.inner, s.hidden)
        last = layer == s.layers - 1
        y = row("next", "output") if last else row(f"tx{layer % 2}")
        w.launch("add_rows", blocks, 256, "th", "tout", y, s.hidden)
        x = y


def _moe(w: Writer, s: Sizes) -> None:
    x = w.buffer("x", "input", s.tokens, s.hidden)
    n = w.buffer("normed", "temp", s.tokens, s.hidden)
    norm = w.buffer("norm", "weight", 1, s.hidden)
    router = w.buffer("router", "weight", s.hidden, 64)
    logits = w.buffer("logits", "temp", s.tokens, 64)
    order = w.buffer("order", "temp", 1, s.tokens, "s32")
    starts = w.buffer("starts", "temp", 1, s.experts + 1, "s32")
    active = w.buffer("active", "temp", s.tokens, s.inner)
    mixed = w.buffer("mixed", "temp", s.tokens, s.hidden)
    w.launch("rms_norm", (s.tokens,), 128, x, norm, n, s.hidden)
    _linear(w, s, "linear", n, router, logits, inner=s.hidden, cols=64)
    w.launch("route", (1,), 256, logits, order, starts, s.tokens, s.experts, 64)
    for expert in range(s.experts):
        up = w.buffer(f"e{expert}.up", "weight", s.hidden, s.inner)
        down = w.buffer(f"e{expert}.down", "weight", s.inner, s.hidden)
        for source, weight, target, inner, cols, silu in (
            (n, up, active, s.hidden, s.inner, 1),
            (active, down, mixed, s.inner, s.hidden, 0),
        ):
            w.launch(
                "expert_linear",
                (cols // 128, s.tokens),
                128,
                source,
                weight,
                target,
                order,
                starts,
                expert,
                inner,
                cols,
                silu,
            )
    y = w.buffer("y", "output", s.tokens, s.hidden)
    count = s.tokens * s.hidden
    w.launch("add_rows", (-(-count // 256),), 256, x, mixed, y, count)
