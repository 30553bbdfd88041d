"""Launches of compiled kernels on the CPU backend, held against their regions.

    python -m tests.compiled.check_launches FOLDER ROWS.jsonl COUNTS.json

FOLDER has what `launch_files` wrote. Per launch: the log of a run is inside the regions and every
certain write is in it, for two contents; and no byte outside the regions matters or changes
(`tests.helpers.region_check`, with two poisons). A row is written as soon as a launch is done, and
a second call goes on with those that are missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tessera.backend.ptx_executor.device import Device
from tessera.diagnostics import TesseraError
from tessera.ir.program.program import Program
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import Comparison, compare
from tests.helpers.case_program import case_program
from tests.helpers.region_check import Bytes, Work, check
from tests.helpers.region_cpu import CpuMachine
from tests.helpers.region_work import bytes_of, work_of
from tests.helpers.work_contents import numbers_for
from tests.kernels.case import Case, Launch, Run, Struct

MAX_STEPS = 60_000


def read_rows(folder: Path) -> Iterator[dict[str, Any]]:
    """The launches of a folder, by file."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            yield json.loads(line)


def case_of(folder: Path, row: Mapping[str, Any]) -> Case:
    """A launch as a case; nothing is expected of what it computes."""

    def build(_: object) -> Run:
        buffers = {
            name: numbers_for(f"{row['name']}/{name}", *given)
            for name, given in row["buffers"].items()
        }
        arguments = [
            value
            if isinstance(value, str)
            else Struct(bytes.fromhex(value[0]), {int(at): to for at, to in value[1].items()})
            for value in row["args"]
        ]
        launch = Launch(
            row["kernel"], tuple(row["grid"]), tuple(row["block"]), arguments, row["smem"]
        )
        words = {
            name: {int(at): to for at, to in held.items()} for name, held in row["words"].items()
        }
        return Run(buffers, [launch], {}, words)

    # The folder of a case gives way to an absolute path.
    return Case(row["name"], str((folder / row["ptx"]).resolve()).removesuffix(".ptx"), build)


def prepared(case: Case) -> tuple[Program, Run, Work, StepAccesses]:
    """A launch with its regions."""
    run = case.make()
    program = case_program(case, run)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    contents = [bytes_of(run.buffers[b.name]) for b in program.declared_buffers()]
    work = work_of(case.name, program, [case.ptx.read_text()], contents, [step])
    return program, run, work, step


def problems(program: Program, run: Run, work: Work, step: StepAccesses) -> dict[str, Any]:
    """What is wrong with the regions of a launch on the CPU backend, and their sizes."""
    said = {"pinned": bool(step.pins), "read": 0, "may": 0, "must": 0}
    wrong: list[str] = []
    with Device() as device:
        machine = CpuMachine(work, device, MAX_STEPS)
        machine.write(work.contents)
        machine.run(work.steps[0].value)
        for found in compare(program, step, machine.accesses):
            wrong += _log_problems(found, pinned=said["pinned"])
            said["read"] += _count(found.may_read)
            said["may"] += _count(found.may_write)
            said["must"] += _count(found.must_write)
        wrong += [text for row in check(work, machine, repeats=False) for text in row["wrong"]]
        machine.write(_ones(program, run, work.contents))
        with contextlib.suppress(TesseraError):  # with contents that are none of its own
            machine.run(work.steps[0].value)
            for found in compare(program, step, machine.accesses):
                wrong += _log_problems(found, pinned=said["pinned"])
    return said | {"wrong": sorted({*wrong})}


def _log_problems(found: Comparison, *, pinned: bool) -> Iterator[str]:
    name = found.buffer.name
    if not pinned and not intervals.covers(found.may_read, found.read):
        yield f"`{name}` is read outside"
    if not pinned and not intervals.covers(found.may_write, found.written):
        yield f"`{name}` is written outside"
    if not intervals.covers(found.written, found.must_write):
        yield f"`{name}` is not written though that is certain"


def _count(ranges: NDArray) -> int:
    return int((ranges[:, 1] - ranges[:, 0]).sum())


def _ones(program: Program, run: Run, contents: Sequence[Bytes]) -> list[Bytes]:
    """All ones in the floats, which say nothing of where to go."""
    names = [buffer.name for buffer in program.declared_buffers()]
    return [
        np.full_like(old, 0xFF) if run.buffers[name].dtype.kind == "f" else old
        for name, old in zip(names, contents, strict=True)
    ]


def normalised(text: str) -> str:
    """A digest of a kernel without names, numbers and comments."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/|^\s*\.(loc|file|section)[^\n]*", "", text, flags=re.S | re.M)
    text = re.sub(
        r"%[a-z]*\d+|\$\w+|\b0[fFdDxX][0-9a-fA-F]+\b|\b\d+\b|[A-Za-z_$]\w{24,}", "#", text
    )
    return hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:16]


def counts(folder: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How it stands, by compiler and target."""
    ran = [row for row in rows if "wrong" in row]
    made = Counter(row["name"].split(".")[0] for row in read_rows(folder))
    return {
        "launches": made.total(),
        "by_compiler_and_target": dict(sorted(made.items())),
        "ran": len(ran),
        "kernels": len({row["form"] for row in ran}),
        "pinned": sum(row["pinned"] for row in ran),
        "wrong": {row["name"]: row["wrong"] for row in ran if row["wrong"]},
        "bytes_that_may_be_written": sum(row["may"] for row in ran),
        "of_these_surely": sum(row["must"] for row in ran),
        "not_run": Counter(
            re.findall(r"TSR\d+", row["not_run"])[0] for row in rows if "not_run" in row
        ),
    }


def main() -> None:
    """Tries what has no row yet, and counts."""
    folder, out, summary = map(Path, sys.argv[1:])
    rows = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {row["name"] for row in rows}
    for row in read_rows(folder):
        if row["name"] in done:
            continue
        begun = time.monotonic()
        text = (folder / row["ptx"]).read_text()
        result = {"name": row["name"], "kernel": row["kernel"], "form": normalised(text)}
        try:
            result |= problems(*prepared(case_of(folder, row)))
        except TesseraError as error:
            result["not_run"] = str(error)[:300]
        result["seconds"] = round(time.monotonic() - begun, 2)
        rows.append(result)
        with out.open("a") as file:
            file.write(json.dumps(result) + "\n")
        if result.get("wrong") or len(rows) % 100 == 0:
            print(len(rows), result["name"], result.get("wrong"), flush=True)
    summary.write_text(json.dumps(counts(folder, rows), indent=1) + "\n")


if __name__ == "__main__":
    main()
