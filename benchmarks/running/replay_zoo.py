"""Captured models on a GPU: PyTorch's bytes, random placements, command lines, emitted programs.

    python -m benchmarks.running.replay_zoo -o FILE --work FOLDER [--placements 50] [--jobs 8]

For every trace of `examples/traces` that PyTorch's results lie beside:

- the command lines `tessc plan` and `tessc run --verify` (in one process) give, on the whole GPU,
  the bytes that PyTorch recorded
- random placements on two and three slices, 1 to 8 slots, several lanes: every output and state is
  equal to the byte to the whole GPU's (as `cuda_correct`, with guards; every device launches
  something and bytes move). Pins are left aside here: what a pinned step is given goes with it
- on two slices by command line: `tessc run --verify`, a timeline whose rows are in order, and the
  programs of `--emit cuda-python` in a process of their own give the same bytes

Each trace has a process of its own; what fails is in its row.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import copy
from typing import Any

import numpy as np

from benchmarks.cases import parser_of, run_cases
from benchmarks.common import ROOT, TRACES, Row
from benchmarks.running.cuda_bench import facts
from benchmarks.running.cuda_correct import check_model
from tessera.backend.service import Bytes
from tessera.cli import main as cli
from tessera.driver.analyses import analysis_manager
from tessera.driver.load import load
from tessera.frontend.contents.open_contents import open_contents
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import LibraryCall, Program, Role
from tessera.ir.program.seeded import seeded_bytes
from tessera.passes.dependences.dependences import Dependences

LANES = 2
REQUESTS = 12
TWO = "h200:84sm,h200:48sm"
_LIMIT_S = 120


@dataclass(frozen=True)
class ZooModel:
    """A captured trace with its contents, as the benchmarks of placements want it.

    Request 0 in lane 0 is the one that was captured; others have seeded floats.
    """

    name: str
    programs: tuple[Program, ...]
    graphs: tuple[KernelGraph, ...]
    given: Mapping[str, Bytes]

    def weights(self) -> dict[str, Bytes]:
        return self._of(Role.WEIGHT, 0)

    def states(self, lane: int) -> dict[str, Bytes]:
        return self._of(Role.STATE, lane)

    def inputs(self, trace: int, request: int) -> dict[str, Bytes]:
        return self._of(Role.INPUT, request)

    def _of(self, role: Role, seed: int) -> dict[str, Bytes]:
        found = {}
        for buffer in self.programs[0].buffers:
            if buffer.role is role:
                seeded = seeded_bytes(buffer, seed) if seed else self.given[buffer.name]
                found[buffer.name] = seeded if seeded.any() else self.given[buffer.name]
        return found


def zoo_model(name: str) -> ZooModel:
    """A trace of `examples/traces`."""
    program = load(TRACES / f"{name}.ptx")
    graph = analysis_manager(program, str(TRACES)).get(Dependences).graph
    with open_contents(program, TRACES) as contents:
        given = {b.name: np.array(contents.read(b)) for b in program.declared_buffers()}
    return ZooModel(name, (program,), (graph,), given)


# --- one trace -----------------------------------------------------------------------------------


def replay(name: str, placements: int, folder: Path) -> dict[str, object]:
    """Everything about one trace; a part that fails is in the answer as such."""
    for ending in ("ptx", "npz", "ref.npz"):
        copy(TRACES / f"{name}.{ending}", folder)
    model = zoo_model(name)
    pinned = [int(node.id) for node in model.graphs[0].nodes if node.pins]
    found: dict[str, object] = {"steps": len(model.graphs[0].nodes), "pinned": pinned}
    parts: dict[str, Callable[[], dict[str, object]]] = {
        "whole_gpu": partial(whole_gpu, name, folder),
        "two_slices_command": partial(two_slices, name, model, folder),
        "emitted": partial(emitted, name, model, folder),
        "random": partial(check_model, model, placements, lanes=LANES, count=REQUESTS),
    }
    for part, work in parts.items():
        begun = time.perf_counter()
        try:
            found[part] = work()
        except Exception:
            found[part] = {"failed": traceback.format_exc()[-1500:].replace(f"{ROOT}/", "")}
        seconds = time.perf_counter() - begun
        print(f"{name} {part} {seconds:.1f} s", file=sys.stderr, flush=True)
    return found


def whole_gpu(name: str, folder: Path) -> dict[str, object]:
    """Plan and run as by command line, and compare with PyTorch's results here, too."""
    tessc(
        folder,
        "plan",
        f"{name}.ptx",
        "--gpus",
        "h200",
        "--slots",
        "1",
        "--lanes",
        "1",
        "-o",
        "whole.tsp",
    )
    said = tessc(
        folder,
        "run",
        "whole.tsp",
        "--backend",
        "cuda",
        "--requests",
        "1",
        "--verify",
        "--outputs",
        "whole.npz",
        "--json",
    )
    notes = json.loads(said.out)["verified"]["notes"]
    compared = 0
    with np.load(folder / f"{name}.ref.npz") as wanted, np.load(folder / "whole.npz") as got:
        for key in wanted:
            recorded = as_bytes(wanted[key])
            np.testing.assert_array_equal(as_bytes(got[key]), recorded, key)
            compared += len(recorded)
    assert any("recorded to the byte" in note for note in notes), notes
    return {"equals_pytorch_to_the_byte": True, "bytes": compared, "notes": notes}


def as_bytes(array: np.ndarray) -> Bytes:
    """The bytes of an array of any type and shape."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


SPLIT = ("--gpus", TWO, "--placement", "random:1", "--slots", "3", "--lanes", str(LANES))


def two_slices(name: str, model: ZooModel, folder: Path) -> dict[str, object]:
    """A plan on two slices, every request verified; the timeline is in order."""
    inputs = [model.inputs(0, number) for number in range(REQUESTS)]
    save(folder / "in.npz", {k: np.concatenate([one[k] for one in inputs]) for k in inputs[0]})
    tessc(folder, "plan", f"{name}.ptx", *SPLIT, "-o", "two.tsp")
    said = tessc(
        folder,
        "run",
        "two.tsp",
        "--backend",
        "cuda",
        "--requests",
        str(REQUESTS),
        "--verify",
        "--inputs",
        "in.npz",
        "--outputs",
        "two.npz",
        "--timeline",
        "two.json",
        "--json",
    )
    found = json.loads(said.out)
    assert found["verified"]["requests"] == REQUESTS
    if not any(node.pins for node in model.graphs[0].nodes):
        # A pinned step keeps all that it may touch on its device.
        assert found["bytes_between"] > 0
        assert len(found["busy"]) == 2
    assert all(share > 0 for share in found["busy"].values()), found["busy"]
    events = check_timeline(json.loads((folder / "two.json").read_text()))
    return {
        "requests": REQUESTS,
        "how": found["verified"]["how"],
        "devices": len(found["busy"]),
        "bytes_between": found["bytes_between"],
        "timeline_events": events,
    }


def check_timeline(data: Mapping[str, Any]) -> int:
    """Events that lie one after the other on every row: no end before its start, no overlap."""
    rows: dict[tuple[object, object], list[tuple[float, float]]] = {}
    for event in data["traceEvents"]:
        if event["ph"] == "X":
            assert event["dur"] >= 0, event
            rows.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["dur"]))
    assert rows
    for row in rows.values():
        row.sort()
        for (start, length), (later, _) in itertools.pairwise(row):
            assert later >= start + length - 0.5, (start, length, later)
    return sum(map(len, rows.values()))


def emitted(name: str, model: ZooModel, folder: Path) -> dict[str, object]:
    """The same plan as Python programs, in a process that has cuda-python alone."""
    arguments = ("plan", f"{name}.ptx", *SPLIT, "--emit", "cuda-python", "-o", "programs")
    if any(isinstance(step, LibraryCall) for step in model.programs[0].work()):
        return {"refused": "TSR5001" in tessc(folder, *arguments, fails=True).err}
    tessc(folder, *arguments)
    states = {f"{n}@{lane}": c for lane in range(LANES) for n, c in model.states(0).items()}
    save(folder / "data.npz", {**model.weights(), **states})
    given = {f"{n}@{i}": c for i in range(REQUESTS) for n, c in model.inputs(0, i).items()}
    save(folder / "requests.npz", given)
    command = [
        sys.executable,
        "programs/run.py",
        "--data",
        "data.npz",
        "--inputs",
        "requests.npz",
        "--outputs",
        "emitted.npz",
        "--requests",
        str(REQUESTS),
    ]
    ran = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert not ran.returncode, ran.stderr[-1500:]
    compared = 0
    with np.load(folder / "emitted.npz") as got, np.load(folder / "two.npz") as wanted:
        for buffer in model.programs[0].buffers:
            if buffer.role in (Role.OUTPUT, Role.STATE):
                rows = as_bytes(wanted[buffer.name]).reshape(-1, buffer.bytes)
                for number, content in enumerate(rows):
                    key = f"{buffer.name}@{number}"
                    np.testing.assert_array_equal(got[key], content, key)
                    compared += len(content)
    return {"equal_to_the_byte": True, "bytes": compared, "requests": REQUESTS}


def save(path: Path, arrays: Mapping[str, Bytes]) -> None:
    """An `.npz` file."""
    given: dict[str, Any] = dict(arrays)
    np.savez(path, **given)


@dataclass(frozen=True)
class Said:
    """What a command line printed."""

    out: str
    err: str


def tessc(folder: Path, *arguments: str, fails: bool = False) -> Said:
    """A command line of `tessc` in this process, in the folder."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    before = Path.cwd()
    os.chdir(folder)
    try:
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = cli.run(list(arguments))
    finally:
        os.chdir(before)
    texts = []
    for stream in streams:
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())
    assert bool(code) == fails, f"{arguments}: exit code {code}\n{texts[1][-1500:]}"
    return Said(*texts)


# --- all of them ---------------------------------------------------------------------------------


def names() -> Iterator[str]:
    """The traces with PyTorch's results."""
    for path in sorted(TRACES.glob("*.ref.npz")):
        yield path.name.removesuffix(".ref.npz")


def one(name: str, placements: int) -> Row:
    """One trace, in a process of its own, since a fault costs it its context."""
    machine = facts()  # contexts of what follows are made only once
    with tempfile.TemporaryDirectory() as folder:
        row: Row = {"machine": machine, **replay(name, placements, Path(folder))}
    bad = [part for part, found in row.items() if isinstance(found, dict) and "failed" in found]
    return row | ({"failed": ", ".join(bad)} if bad else {})


def main() -> None:
    parser = parser_of(__doc__, seconds=1800.0, jobs=6)
    parser.add_argument("--placements", type=int, default=50)
    given = parser.parse_args()
    run_cases(
        "benchmarks.running.replay_zoo",
        tuple(names()),
        given,
        lambda name: one(name, given.placements),
        more=("--placements", str(given.placements)),
    )


if __name__ == "__main__":
    main()
