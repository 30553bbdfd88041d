"""Runs launches on a machine and holds what happens to memory against regions.

In: a `Work` (buffers, modules, launches with the bytes that the analysis gives them) and a
`Machine` that runs it. Out: one row per launch. Needs NumPy only, so that it also runs where
Tessera is not installed.

Per launch, from the memory that the launches before it left:
- `outside`: no byte outside the MAY-write regions changes;
- `poison`: with every byte poisoned that is neither READ nor MAY-written but not MUST-written,
  the launch still leaves the same bytes in its MAY-write regions, and nothing else changes. A MUST
  write that leaves bytes alone, or a read that is missing, shows.
A launch whose result differs between two runs from the same memory says so (`unstable`), and only
bytes that were the same both times are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Ranges = Sequence[Sequence[int]]
POISONS = (0xFF, 0x5A)


@dataclass(frozen=True, slots=True)
class Step:
    """A launch, memset or memcpy as JSON values, and its regions per buffer number."""

    value: Mapping[str, Any]
    read: Mapping[int, Ranges] = field(default_factory=dict)
    may: Mapping[int, Ranges] = field(default_factory=dict)
    must: Mapping[int, Ranges] = field(default_factory=dict)

    @property
    def is_checked(self) -> bool:
        """Whether this is a launch that the analysis could follow."""
        return self.value["kind"] == "launch" and not self.value["pinned"]


@dataclass(frozen=True, slots=True)
class Work:
    """One program: PTX texts, the bytes of its buffers, the words that are addresses, steps."""

    name: str
    texts: Sequence[str]
    buffers: Sequence[tuple[str, int]]
    contents: Sequence[Bytes]
    pointers: Sequence[Sequence[int]]
    steps: Sequence[Step]


class Machine(Protocol):
    """Memory and launches of one work."""

    def write(self, memory: Sequence[Bytes], *, places: bool = True) -> None:
        """Fill all buffers; `places`: and put the addresses of this machine into their words."""
        ...

    def run(self, step: Mapping[str, Any]) -> None:
        """Run one step to its end."""
        ...

    def read(self) -> list[Bytes]:
        """The bytes of all buffers."""
        ...


def mask_of(ranges: Ranges, size: int) -> NDArray[np.bool_]:
    """Which bytes of a buffer are in some ranges."""
    found = np.zeros(size, np.bool_)
    for start, end in ranges:
        found[start:end] = True
    return found


def check(work: Work, machine: Machine, *, repeats: bool = True) -> Iterator[dict[str, Any]]:
    """One row per launch: what it is, and what is wrong with its regions.

    `repeats`: whether two runs may differ, so that each launch is run once more.
    """
    memory = [np.array(content, np.uint8) for content in work.contents]
    machine.write(memory)
    memory = machine.read()
    for number, step in enumerate(work.steps):
        before = memory
        machine.write(before, places=False)
        machine.run(step.value)
        after = machine.read()
        if step.value["kind"] == "launch":
            row: dict[str, Any] = {
                "work": work.name,
                "step": number,
                "kernel": step.value["kernel"],
                "pinned": step.value["pinned"],
                "wrong": [],
                "unstable": False,
            }
            if step.is_checked:
                _check_launch(work, machine, step, before, after, row, repeats=repeats)
            yield row
        memory = after


def _check_launch(
    work: Work,
    machine: Machine,
    step: Step,
    before: list[Bytes],
    after: list[Bytes],
    row: dict[str, Any],
    *,
    repeats: bool,
) -> None:
    may = [mask_of(step.may.get(i, ()), size) for i, (_, size) in enumerate(work.buffers)]
    for i, (name, _) in enumerate(work.buffers):
        changed = (before[i] != after[i]) & ~may[i]
        if changed.any():
            row["wrong"].append(f"outside: `{name}` byte {int(np.argmax(changed))} changes")
    again = _run(machine, step, before) if repeats else after
    stable = [a == b for a, b in zip(after, again, strict=True)]
    row["unstable"] = not all(bool(same.all()) for same in stable)
    for value in POISONS:
        poisoned = [_poison(work, step, i, content, value) for i, content in enumerate(before)]
        result = _run(machine, step, poisoned)
        given = poisoned
        for i, (name, _) in enumerate(work.buffers):
            expected = np.where(may[i], after[i], given[i])
            compared = ~may[i] | stable[i]
            differs = (result[i] != expected) & compared
            if differs.any():
                at = int(np.argmax(differs))
                kind = "output" if may[i][at] else "outside"
                row["wrong"].append(f"poison {value:#x}: {kind} `{name}` byte {at} differs")


def _run(machine: Machine, step: Step, memory: Sequence[Bytes]) -> list[Bytes]:
    machine.write(memory, places=False)
    machine.run(step.value)
    return machine.read()


def _poison(work: Work, step: Step, buffer: int, content: Bytes, value: int) -> Bytes:
    """The buffer with every byte replaced that the launch cannot depend on."""
    size = work.buffers[buffer][1]
    needed = mask_of(step.read.get(buffer, ()), size)
    loose = mask_of(step.may.get(buffer, ()), size) & ~mask_of(step.must.get(buffer, ()), size)
    return np.where(needed | loose, content, np.uint8(value))


def to_values(work: Work) -> dict[str, Any]:
    """A work without its contents, for JSON."""
    return {
        "name": work.name,
        "texts": list(work.texts),
        "buffers": [list(buffer) for buffer in work.buffers],
        "pointers": [list(word) for word in work.pointers],
        "steps": [
            {
                "value": dict(s.value),
                "read": _keyed(s.read),
                "may": _keyed(s.may),
                "must": _keyed(s.must),
            }
            for s in work.steps
        ],
    }


def from_values(value: Mapping[str, Any], contents: Sequence[Bytes]) -> Work:
    """The work that `to_values` was given."""
    steps = [
        Step(s["value"], *({int(k): v for k, v in s[name].items()} for name in _REGIONS))
        for s in value["steps"]
    ]
    buffers = [(str(name), int(size)) for name, size in value["buffers"]]
    return Work(value["name"], value["texts"], buffers, contents, value["pointers"], steps)


_REGIONS = ("read", "may", "must")


def _keyed(regions: Mapping[int, Ranges]) -> dict[str, list[list[int]]]:
    return {str(buffer): [list(r) for r in ranges] for buffer, ranges in regions.items()}
