"""How long a second capture of a model takes, without a GPU, and what bounds it.

    python -m benchmarks.laptop.second_capture [-o FILE] [--seconds 900] [MODEL...]

Each model of `examples/models` is captured with `--device none`, in processes of their own: once
with an empty cache, then twice from what was kept; the quicker of these two counts. Seconds of the
clock and of the processor are of the whole command; those of the clock mean little where the
machine had other work (`load`). `imports` is what it takes to import PyTorch, its compiler and what
the model file imports, without Tessera. The traces must be equal. A model that is in the output is
not done again, and none begins after `--seconds`. Needs torch and triton, and no GPU.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.common import MODELS, TESSC, Row, arguments, cost_of, kept, machine, write

CASES = {
    "llama_decode": "llama.py:decode",
    "moe": "moe.py:step",
    "mamba": "mamba.py:step",
    "hf_llama": "huggingface.py:llama",
}
_IMPORTS = (
    "import runpy, sys, torch, torch._dynamo, torch._inductor.compile_fx;"
    "sys.path.insert(0, {folder!r}); runpy.run_path({file!r})"
)


def main() -> None:
    parser = arguments(__doc__, "second_capture.json")
    parser.add_argument("models", nargs="*", choices=(*CASES, []), default=[])
    parser.add_argument("--seconds", type=float, default=900)
    given = parser.parse_args()
    until = time.monotonic() + given.seconds
    there: Row = kept(given.output) or {"models": {}}
    about = machine() | {name: version(name) for name in ("torch", "triton")}
    there |= {"schema": "tessera-second-capture/2", "machine": about}
    for name in given.models or CASES:
        if name in there["models"] or time.monotonic() > until:
            continue
        with tempfile.TemporaryDirectory() as folder:
            there["models"][name] = row(CASES[name], Path(folder))
        print(name, json.dumps(there["models"][name]), flush=True)
        write(there, given.output)


def row(model: str, folder: Path) -> Row:
    """One model, captured three times."""
    file = MODELS / model.partition(":")[0]
    told = ("--device", "none", "--for", "h200", "--no-data")
    captures = [
        timed([*TESSC, "trace", f"{MODELS}/{model}", "-o", f"{folder}/{n}.ptx", *told], folder)
        for n in range(3)
    ]
    # Of the two from what was kept the quicker one: whatever else runs only adds time.
    first, second = captures[0], min(captures[1:], key=lambda own: own["processor_s"])
    code = _IMPORTS.format(folder=str(file.parent), file=str(file))
    traces = {(folder / f"{number}.ptx").read_bytes() for number in range(3)}
    return {
        "load": machine()["load"],
        "first": first,
        "second": second,
        "share": round(second["processor_s"] / first["processor_s"], 3),
        "imports": timed([sys.executable, "-c", code], folder),
        "same": len(traces) == 1,
    }


def timed(command: Sequence[str], folder: Path) -> dict[str, float]:
    """Seconds of the clock and of the processor that a process takes; its cache is in `folder`."""
    own = {"TESSERA_CACHE_DIR": str(folder / "cache"), "TESSERA_NO_CACHE": ""}
    cost = cost_of(command, settings=own)
    if cost.code:
        raise RuntimeError(f"{command[2:5]} ended with {cost.code}")
    return {"seconds": round(cost.seconds, 2), "processor_s": round(cost.processor_s, 2)}


if __name__ == "__main__":
    main()
