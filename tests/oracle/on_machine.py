"""Oracle cases on a machine that runs PTX: result bytes, and what lies outside the regions.

In: cases with the regions that the analysis stated, and a `Machine` (`tests/helpers/region_check`).
Out: one row per case. Needs NumPy only, so that it runs where Tessera is not installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tests.helpers.region_check import Bytes, Machine, Step, Work, check
from tests.oracle.recorded import Case
from tests.oracle.subset import At, Run, contents, packed

# The contents with which regions are tried, each with two poisons.
TRIED = ("first", "second")


class Placed(Machine, Protocol):
    """A machine that says where its buffers are."""

    def address(self, buffer: int, offset: int) -> int:
        """The address of a byte of a buffer."""
        ...

    def close(self) -> None:
        """Give the memory back."""
        ...


def work_of(case: Case, run: Run, regions: Mapping[str, Any]) -> Work:
    """A case with some contents, for `region_check`; `regions` as `stated_values` has them."""

    def nothing(_: At) -> int:
        return 0

    args = []
    for argument in case.args:
        raw = packed(argument, nothing)
        words = (
            [[0, argument.buffer, argument.offset]]
            if isinstance(argument, At)
            else [
                [w.offset, w.target.buffer, w.target.offset] for w in getattr(argument, "words", ())
            ]
        )
        args.append({"bytes": raw.hex(), "addresses": words})
    value = {
        "kind": "launch",
        "pinned": regions["pinned"],
        "text": 0,
        "kernel": "k",
        "grid": case.grid,
        "block": case.block,
        "smem": 0,
        "cluster": None,
        "cooperative": False,
        "args": args,
    }
    read, may, must = (
        {int(k): v for k, v in regions[name].items()} for name in ("read", "may", "must")
    )
    return Work(
        name=f"{case.id} {run.data}",
        texts=[case.ptx.rstrip("\0")],
        buffers=[(b.name, b.bytes) for b in case.buffers],
        contents=contents(case.name, case.buffers, run.data),
        pointers=[[b, w.offset, w.target.buffer, w.target.offset] for b, w in case.tables],
        steps=[Step(value, read, may, must)],
    )


def expected(case: Case, run: Run, address: Callable[[int, int], int]) -> list[Bytes]:
    """What the host left, where buffers have these addresses."""
    made = contents(case.name, case.buffers, run.data)
    for buffer, start, left in run.left:
        made[buffer][start : start + len(left)] = np.frombuffer(left, np.uint8)
    for buffer, word in run.words:
        value = np.array([address(word.target.buffer, word.target.offset)], np.uint64)
        made[buffer][word.offset : word.offset + 8] = value.view(np.uint8)
    return made


def check_case(
    case: Case, regions: Mapping[str, Any], machine_of: Callable[[Work], Placed]
) -> dict[str, Any]:
    """Run a case with all its contents; what is wrong with bytes and regions."""
    wrong: list[str] = []
    machine = machine_of(work_of(case, case.runs[0], regions))
    for run in case.runs:
        work = work_of(case, run, regions)
        machine.write(work.contents)
        machine.run(work.steps[0].value)
        wrong += _differences(case, run, machine)
        if run.data in TRIED:
            for row in check(work, machine):
                wrong += [f"{run.data}: {text}" for text in row["wrong"]]
                if row["unstable"]:
                    wrong.append(f"{run.data}: two runs differ")
    machine.close()
    return {"case": case.id, "pinned": regions["pinned"], "runs": len(case.runs), "wrong": wrong}


def _differences(case: Case, run: Run, machine: Placed) -> list[str]:
    found = []
    wanted = expected(case, run, machine.address)
    for buffer, got, want in zip(case.buffers, machine.read(), wanted, strict=True):
        if not np.array_equal(got, want):
            at = int(np.argmax(got != want))
            found.append(
                f"{run.data}: {buffer.name} byte {at} is {got[at]:#x}, the host has {want[at]:#x}"
            )
    return found


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts, and everything that is wrong."""
    return {
        "cases": len(rows),
        "runs": sum(row["runs"] for row in rows),
        "regions_checked": sum(not row["pinned"] for row in rows),
        "pinned": sum(bool(row["pinned"]) for row in rows),
        "wrong": [row for row in rows if row["wrong"]],
    }
