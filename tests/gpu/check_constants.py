"""Scalar instructions whose operands ptxas knows: does a GPU still do what the ISA says?

    python -m tests.gpu.check_constants prepare FOLDER --ptxas PTXAS...    # no GPU
    python -m tests.gpu.check_constants run FOLDER OUT.json

What ptxas knows of an operand (a constant, a range), it folds and rewrites by rules of its own, and
a rule that is not the ISA's makes another address than the analysis says. The first part writes
kernels of single instructions with one operand or more replaced by what is known, and of chains of
two to six instructions with constants, and compiles them with each PTXAS for `sm_90a`. The second
runs them, and counts by instruction where a GPU gave other bits than the CPU backend; the driver's
compiler is one more.
"""

from __future__ import annotations

import argparse
import json
import lzma
import pickle
import random
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.known_operands import (
    BLOCK,
    HEAD,
    LANES,
    Form,
    arrays,
    chain,
    forms,
    kernel,
    variants,
)

PER_KERNEL, PER_MODULE = 40, 25
SHOWN = 3  # statements of each form, with the sources, what the GPU made, and the CPU backend
Work = tuple[Form, Sequence[str]]
Row = dict[str, Any]


def prepare(options: argparse.Namespace) -> None:
    """Write modules and cubins."""
    from tessera.diagnostics import TesseraError
    from tessera.frontend.ptx.read_ptx import parse_module

    rng = random.Random(options.seed)
    works: list[Work] = []
    left_out = set[str]()
    for form in forms():
        if re.search(options.only, form.name):
            known = list(dict.fromkeys(variants(form, rng)))
            try:
                parse_module(HEAD + kernel(0, form, known[:1]))
                works += _shared_out(form, known)
            except TesseraError:
                left_out.add(form.name)
    several = Form("chain", "", ("u32", "u32", "u64", "u16"), 64)
    works += _shared_out(several, [chain(rng) for _ in range(options.chains)])
    packed: list[Row] = []
    for at in range(0, len(works), PER_MODULE):
        some = works[at : at + PER_MODULE]
        text = HEAD + "\n".join(kernel(i, *work) for i, work in enumerate(some))
        images = {_version(ptxas): _compiled(ptxas, text) for ptxas in options.ptxas}
        packed.append({"ptx": text, "works": some, "images": images})
    options.folder.mkdir(parents=True, exist_ok=True)
    data = lzma.compress(pickle.dumps((packed, sorted(left_out))), preset=6)
    (options.folder / "constants.xz").write_bytes(data)
    print(f"{len(works)} kernels, {len(data)} bytes, left out: {sorted(left_out)}")


def _shared_out(form: Form, known: Sequence[str]) -> list[Work]:
    return [(form, known[at : at + PER_KERNEL]) for at in range(0, len(known), PER_KERNEL)]


def _compiled(ptxas: str, text: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path, cubin = Path(folder) / "k.ptx", Path(folder) / "k.cubin"
        path.write_text(text)
        subprocess.run([ptxas, "-arch", "sm_90a", str(path), "-o", str(cubin)], check=True)
        return cubin.read_bytes()


def _version(ptxas: str) -> str:
    said = subprocess.run([ptxas, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release ([\d.]+)", said)
    assert found is not None
    return found[1]


def expected_bits(form: Form, known: Sequence[str]) -> np.ndarray:
    """What the CPU backend makes of a kernel."""
    from tessera.backend.ptx_executor.device import Device
    from tessera.frontend.ptx.read_ptx import parse_module

    with Device() as device:
        given = [device.array(one, f"in{place}") for place, one in enumerate(arrays(form))]
        out = device.array(np.zeros(len(known) * LANES, f"uint{form.width}"), "out")
        module = device.load(parse_module(HEAD + kernel(0, form, known)))
        module["k0"].launch(LANES // BLOCK, BLOCK, [*given, out])
        return out.numpy().copy()


def other_bits(row: Row) -> tuple[Counter[str], Row]:
    """How many statements each compiler's code of a module ran, and those with other bits."""
    from tests.gpu.record_numerics import Gpu

    gpu = Gpu()
    counts: Counter[str] = Counter()
    other: Row = {}
    compilers = row["images"] | {"driver": row["ptx"]}
    handles = {name: gpu.load(image) for name, image in compilers.items()}
    for number, (form, known) in enumerate(row["works"]):
        expected, given = expected_bits(form, known), arrays(form)
        out = np.zeros_like(expected)
        pointers = [gpu.upload(one) for one in (*given, out)]
        for compiler, handle in handles.items():
            gpu.launch(handle, f"k{number}", LANES // BLOCK, BLOCK, pointers)
            found = gpu.download(pointers[-1], out)
            counts[compiler] += len(known)
            wrong = (found != expected).reshape(len(known), LANES)
            for place in map(int, np.flatnonzero(wrong.any(axis=1))):
                lane = int(np.flatnonzero(wrong[place])[0])
                at = place * LANES + lane
                case = other.setdefault(form.name, {}).setdefault(f"{known[place]} {form.body}", {})
                values = [hex(int(one[lane])) for one in given]
                case[compiler] = [values, hex(int(found[at])), hex(int(expected[at]))]
        for pointer in pointers:
            gpu.free(pointer)
    return counts, other


def run(options: argparse.Namespace) -> None:
    """Run what each compiler made, and count the results that are not those of the CPU backend."""
    from tests.gpu.check_regions import gpu_name

    packed, left_out = pickle.loads(lzma.decompress((options.folder / "constants.xz").read_bytes()))
    counts: Counter[str] = Counter()
    other: dict[str, Row] = {}
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for ran, wrong in pool.map(other_bits, packed):
            counts += ran
            for name, cases in wrong.items():
                other.setdefault(name, {}).update(cases)
    result = gpu_name() | {
        "statements": dict(counts),
        "forms": len({form.name for row in packed for form, _ in row["works"]}),
        "left_out": left_out,
        "other_bits": {name: len(cases) for name, cases in sorted(other.items())},
        "examples": {
            name: dict(list(cases.items())[:SHOWN]) for name, cases in sorted(other.items())
        },
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "examples"}, indent=1)[:4000])


def main() -> None:
    """One of the parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--ptxas", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chains", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--only", default="", help="forms of which the name has this pattern")
    options = parser.parse_args()
    {"prepare": prepare, "run": run}[options.part](options)


if __name__ == "__main__":
    main()
