"""Launches that gave other bytes when bytes that they do not need were poisoned: do they race?

    python -m tests.gpu.find_races WORKS generated_gpu.json

A launch whose CTAs write the same bytes in no order gives other bytes in any run, poisoned or not.
For each work that `check_generated` calls wrong, with the same contents on the CPU backend:

- `regions hold`: no access lies outside of the regions, and with both poisons nothing changes;
- `order of CTAs`: with CTAs numbered from the other end, the launch leaves other bytes;
- `writers`: how many CTAs, each run alone, write a byte that differed.

A work with regions that hold, and of which the order matters or several CTAs write the byte, races,
and says nothing of regions. The rows go into the file, as `races`, and the others stay in `wrong`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tests.gpu.check_generated import analysed, contents_of, works_in
from tests.helpers.region_check import Bytes, Work, check, from_values
from tests.helpers.region_cpu import CpuMachine

Row = dict[str, Any]
_BYTE = re.compile(r"`(\w+)` byte (\d+)")
_PLACE = re.compile(r"mov\.(?:u32|s32|b32)\s+(%\w+), %(n?)ctaid\.([xyz]);")


def from_the_end(text: str) -> str:
    """A kernel whose CTAs are numbered from the other end."""

    def turned(found: re.Match[str]) -> str:
        register, is_count, axis = found.groups()
        if is_count:
            return found[0]
        return (
            f"mov.u32 %turned, %ctaid.{axis}; mov.u32 {register}, %nctaid.{axis};"
            f" sub.u32 {register}, {register}, %turned; sub.u32 {register}, {register}, 1;"
        )

    return re.sub(r"(\.entry[^{]*\{)", r"\1\n.reg .b32 %turned;", _PLACE.sub(turned, text))


def left_by(given: Row, texts: list[str]) -> list[Bytes]:
    """What all steps leave, with these texts in place of the modules."""
    work = from_values(given["work"] | {"texts": texts}, contents_of(given))
    machine = CpuMachine(work, Device())
    machine.write([np.array(content, np.uint8) for content in work.contents])
    for step in work.steps:
        machine.run(step.value)
    return machine.read()


def writers(given: Row, buffer: str, byte: int) -> int:
    """How many CTAs of the first launch write a byte, each run alone (none of a cluster is)."""
    if any(".reqnctapercluster" in text for text in given["work"]["texts"]):
        return 0
    launch = given["work"]["steps"][0]["value"]
    grid, count = launch["grid"], 0
    for place in product(*map(range, grid)):

        def fixed(found: re.Match[str]) -> str:
            axis = "xyz".index(found[3])
            return f"mov.u32 {found[1]}, {grid[axis] if found[2] else place[axis]};"  # noqa: B023

        texts = [_PLACE.sub(fixed, text) for text in given["work"]["texts"]]
        work = from_values(given["work"] | {"texts": texts}, contents_of(given))
        machine = CpuMachine(work, Device())
        machine.write([np.array(content, np.uint8) for content in work.contents])
        machine.run(dict(launch) | {"grid": (1, 1, 1)})
        logs = [log for log in machine.accesses if log.buffer == buffer]
        count += any(start <= byte < end for log in logs for start, end in log.writes)
    return count


def row_of(given: Row, said: list[str]) -> Row:
    """What the CPU backend shows of a work; `said` is where its outputs differed first."""
    given = given if "work" in given else given | analysed(given)
    work: Work = from_values(given["work"], contents_of(given))
    rows = check(work, CpuMachine(work, Device()), repeats=False)
    places = {(buffer, int(byte)) for one in said for buffer, byte in _BYTE.findall(one)}
    texts = given["work"]["texts"]
    pairs = zip(left_by(given, texts), left_by(given, [*map(from_the_end, texts)]), strict=True)
    row: Row = {"differs": said, "regions hold": not any(one["wrong"] for one in rows)}
    row["order of CTAs"] = any(bool((a != b).any()) for a, b in pairs)
    return row | {"writers": max(writers(given, *place) for place in places)}


def races(row: Row) -> bool:
    """Whether a work of `row_of` races, and says nothing of regions."""
    return row["regions hold"] and (row["order of CTAs"] or row["writers"] > 1)


def main() -> None:
    """Judge the works that a file calls wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", type=Path)
    parser.add_argument("found", type=Path)
    given = parser.parse_args()
    found = json.loads(given.found.read_text())
    wanted = {**found["wrong"], **{n: r["differs"] for n, r in found.get("races", {}).items()}}
    rows = {
        one["name"]: row_of(one, wanted[one["name"]])
        for one in works_in(given.works)
        if one["name"] in wanted
    }
    racing = {name: row for name, row in rows.items() if races(row)}
    found["races"] = racing
    found["wrong"] = {name: said for name, said in wanted.items() if name not in racing}
    given.found.write_text(json.dumps(found, indent=1) + "\n")
    left = ", ".join(found["wrong"]) or "none"
    sys.stdout.write(f"{len(racing)} of {len(wanted)} race; left: {left}\n")


if __name__ == "__main__":
    main()
