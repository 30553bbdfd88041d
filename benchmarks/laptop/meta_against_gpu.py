"""Traces on shapes against captures of the same models on a GPU: the same operators, roles, edges?

    python -m benchmarks.laptop.meta_against_gpu -o out/gpu/meta_against_gpu.json --work FOLDER

Needs a GPU, but for `--fake`. Each model is captured on the GPU by the route `eager`, and traced by
`--device meta --no-fuse` in a process that does not see the GPU, at the same time. Compared, in
order: operators with the shapes and types of operands (attention is one operator on both sides,
whatever kernel PyTorch chose; copies by the driver stand for the operator that makes them), the
roles of named buffers, and the edges between steps.

A line per model as soon as it is there. A model that is in the file is not done again; `--seconds`
ends the run early. `--fake` makes the traces on shapes alone, and says which operators of them no
capture on a GPU could hold.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from math import prod
from pathlib import Path
from typing import Any

from benchmarks.cases import parser_of, run_cases, why
from benchmarks.common import ROOT
from benchmarks.laptop.compare import HIDDEN, STEPS, roles
from benchmarks.laptop.no_gpu import maker
from tessera.driver.load import load
from tessera.driver.trace.capture_trace import TraceOptions, trace_call, write_trace
from tessera.driver.trace.meta_trace import OTHER, trace_fake
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.dependences.dependences import Dependences

# Models of the transformers library, of families that `examples/models` does not have first.
LIBRARY = (
    "gpt2",
    "bert",
    "whisper_encoder",
    "resnet",
    "wav2vec2",
    "gemma2",
    "qwen3",
    "siglip_vision",
    "convnext",
    "opt",
    "dinov2",
    "olmo2",
    "swin",
    "falcon",
    "roberta",
    "lfm2",
    "mixtral",
    "modernbert",
    "deepseek_v3",
)


# What PyTorch does on a GPU to give an attention's kernel its mask.
AROUND = ("aten::scalar_tensor", "aten::where", "aten::masked_fill", "aten::constant_pad_nd")
# What an attention is made of where no kernel of PyTorch's takes its mask.
PRODUCT = "aten::bmm"
PARTS = (*AROUND, PRODUCT, "aten::_to_copy", "aten::mul.", "aten::add.", "aten::clone")
PARTS = (*PARTS, "aten::_safe_softmax")


def text_of(step: ir.Work) -> str:
    """A step as text, without the names of buffers; every attention is one."""
    if not isinstance(step, ir.LibraryCall):
        return type(step).__name__
    name = "attention" if "scaled_dot_product" in step.operator else step.operator
    reads = [f"{o.dtype.value}{list(o.shape)}" for o in step.reads]
    writes = [f"{o.dtype.value}{list(o.shape)}" for o in step.writes]
    if name == "attention":
        reads, writes = reads[:3], writes[:1]
    return f"{name} {reads} {writes}"


def matched(fake: list[ir.Work], real: list[ir.Work]) -> tuple[list[int], list[str] | None]:
    """For each step on the GPU the one on shapes, and the first two that differ, as text.

    An operator that copies or clears is copies by the driver on the GPU where memory is in one
    piece: they have to come to as many bytes. An attention has its mask made numbers before it
    there, and its result copied after it, if its kernel wants or gives another form; or it is two
    products with a softmax between them, where no kernel takes its mask.
    """
    places: list[int] = []
    for place, step in enumerate(fake):
        wanted = text_of(step)
        before = AROUND if wanted.startswith("attention") else ()
        last = place > 0 and text_of(fake[place - 1]).startswith("attention")
        after = ("aten::clone",) if last and not wanted.startswith("aten::clone") else ()
        while len(places) < len(real) and text_of(real[len(places)]).startswith((*before, *after)):
            places.append(place if before else place - 1)
        if before and (count := parts_of_attention(real[len(places) :])):
            places += [place] * count
            continue
        theirs = real[len(places)] if len(places) < len(real) else None
        if theirs is None or isinstance(theirs, ir.Memcpy | ir.Memset):
            left = sum(prod(o.shape) * o.dtype.bytes for o in getattr(step, "writes", ()))
            while left > 0 and isinstance(theirs, ir.Memcpy | ir.Memset):
                left -= theirs.bytes
                places.append(place)
                theirs = real[len(places)] if len(places) < len(real) else None
            if left:
                return places, [wanted, "copies of other sizes"]
            continue
        if wanted != text_of(theirs):
            return places, [wanted, text_of(theirs)]
        places.append(place)
    more = real[len(places) :]
    return places, ["nothing", text_of(more[0])] if more else None


def parts_of_attention(steps: list[ir.Work]) -> int:
    """The number of steps of an attention that is taken apart here; 0 if none begins here."""
    products = 0
    for count, step in enumerate(steps):
        name = text_of(step)
        if not name.startswith(PARTS):
            return 0
        products += name.startswith(PRODUCT)
        if products == 2:
            return count + 1
    return 0


def edges(program: ir.Program, places: list[int]) -> set[tuple[int, int]]:
    """Pairs of steps that depend on each other, by their places."""
    graph = AnalysisManager(program).get(Dependences).graph
    pairs = {(places[int(edge.source)], places[int(edge.target)]) for edge in graph.edges}
    return {(source, target) for source, target in pairs if source != target}


def on_shapes(name: str, path: Path) -> dict[str, Any]:
    """The trace without a GPU; what of it a GPU's trace would not hold."""
    program = trace_fake(maker(name), fused=False)
    write_trace(program.trace, path)
    steps = [s for s in program.trace.program.work() if isinstance(s, ir.LibraryCall)]
    others = {str(dict(step.attributes)["name"]) for step in steps if step.operator == OTHER}
    return {"operators": len(steps), "not_in_the_table": sorted(others)}


def compared(name: str, folder: Path) -> dict[str, Any]:
    """Capture one model on the GPU and trace it on shapes, and compare."""
    path = folder / f"{name.replace('.py:', '_')}_meta.ptx"
    command = [sys.executable, "-m", "benchmarks.laptop.meta_against_gpu", "--one", name, "--fake"]
    hidden = subprocess.Popen(
        [*command, "--work", str(folder)],
        cwd=ROOT,
        env=os.environ | HIDDEN,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        options = TraceOptions(route="eager", data=False)
        real = trace_call(*maker(name)(), options).program
    except BaseException as problem:
        hidden.communicate()
        return {"failed": f"on the GPU: {why(problem)}"}
    said = json.loads(hidden.communicate()[0].splitlines()[-1])
    if "failed" in said:
        return said
    fake = load(path)
    mine, theirs = list(fake.work()), list(real.work())
    places, differ = matched(mine, theirs)
    return {
        "operators": [len(mine), len(theirs)],
        "same_operators": differ is None,
        "first_difference": differ,
        "same_roles": roles(fake) == roles(real),
        "other_roles": sorted(set(roles(fake).items()) ^ set(roles(real).items()))[:6],
        "same_edges": None
        if differ
        else edges(fake, list(range(len(mine)))) == edges(real, places),
    }


def one(name: str, folder: Path, *, fake: bool) -> dict[str, Any]:
    if not fake:
        return compared(name, folder)
    try:
        return on_shapes(name, folder / f"{name.replace('.py:', '_')}_meta.ptx")
    except BaseException as problem:
        return {"failed": f"on shapes: {why(problem)}"}


def main() -> None:
    parser = parser_of(__doc__, seconds=300.0, jobs=14)
    parser.add_argument("--fake", action="store_true", help="traces on shapes alone")
    options = parser.parse_args()
    run_cases(
        "benchmarks.laptop.meta_against_gpu",
        (*STEPS[:6], *LIBRARY, *STEPS[6:]),
        options,
        lambda name: one(name, options.work, fake=options.fake),
        more=("--fake",) if options.fake else (),
    )


if __name__ == "__main__":
    main()
