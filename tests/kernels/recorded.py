"""The H200's results, and how the CPU backend's differ from them.

In: tests/data/kernels/h200/ (see record_h200.py) and `differences.json`. Out: one `Difference` per
instruction or output buffer whose bits are not the GPU's. Each must stand in `differences.json`
with a reason; `python -m tests.kernels.recorded` writes that file anew from REASONS.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.kernels.case import DATA, Case, Run
from tests.kernels.cases import CASES
from tests.kernels.cpu import case_result
from tests.kernels.probes import Probe, load_probes

LISTED = Path(__file__).with_name("differences.json")
APPROXIMATE = (
    "an approximation: the ISA bounds its error and leaves the bits to the machine"
    " (test_approximations_keep_their_bounds)"
)
USES_APPROXIMATE = "the kernel uses approximate instructions, whose bits are the machine's own"
MAY_FUSE = (
    "products and sums without a rounding modifier, which ptxas may fuse (PTX ISA, 9.7.3); the"
    " same kernel compiled without them, NAME_strict, is compared to the bit"
)
# Reasons by the key of a probe's difference. Those of cases come from the PTX: `case_reason`.
PROBE_REASONS: tuple[tuple[str, str], ...] = (
    (r"^approx_", APPROXIMATE),
    (
        r"^bf[ei]_b64",
        "position or length above 255, which the ISA excludes; ptxas expands the 64-bit forms into"
        " code that does not cut them to 8 bits, unlike the 32-bit instructions",
    ),
    (r"^fns", "a base above 31, which the ISA excludes: there is no such bit to start from"),
    (
        r"cvt\.r[mp]\.ftz\S*\.f16\.f32",
        "a subnormal f32 input: .ftz reads it as zero, the H200 rounds it up or down first",
    ),
    (
        r"div\.r[mp]\.ftz\.f32",
        "a quotient below the smallest normal number that rounds up to it: the ISA does not say"
        " whether .ftz flushes before or after rounding; the H200's code does so before",
    ),
    (
        r"vmad\.[us]32\.u32\.u32",
        "ptxas expands it into code that takes c as signed; the ISA says unsigned, as a and b are",
    ),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """How many elements differ, of how many, and the first of them."""

    key: str
    differs: int
    elements: int
    first: str


@functools.cache
def recording(name: str) -> dict[str, NDArray]:
    """All arrays of `cases` or `probes`."""
    with np.load(DATA / "h200" / f"{name}.npz") as archive:
        return {key: archive[key] for key in archive.files}


@functools.cache
def report() -> dict[str, Any]:
    """recording.json: the machine and a row per item."""
    rows: dict[str, Any] = json.loads((DATA / "h200" / "recording.json").read_text())
    return rows


@functools.cache
def listed() -> dict[str, Any]:
    """The differences that are known, by key."""
    table: dict[str, Any] = json.loads(LISTED.read_text())
    return table


def digest(run: Run) -> str:
    """A digest of all inputs; the recording holds the one it was made with."""
    sha = hashlib.sha256()
    for name in sorted(run.buffers):
        sha.update(name.encode() + np.ascontiguousarray(run.buffers[name]).tobytes())
    return sha.hexdigest()[:16]


def compare(key: str, ours: NDArray, theirs: NDArray) -> Difference | None:
    """None if all bits are equal."""
    unsigned = np.dtype(f"u{ours.dtype.itemsize}")
    got = np.ascontiguousarray(ours).ravel().view(unsigned)
    want = np.ascontiguousarray(theirs).ravel().view(unsigned)
    bad = np.nonzero(got != want)[0]
    if bad.size == 0:
        return None
    at = int(bad[0])
    first = f"[{at}] CPU {got[at]:#x}, H200 {want[at]:#x}"
    return Difference(key, int(bad.size), got.size, first)


def probe_differences(probe: Probe) -> Iterator[Difference]:
    """Instructions of a probe whose results differ."""
    ours = case_result(probe.case).buffers["out"]
    theirs = recording("probes")[probe.name]
    for result in probe.results:
        key = f"{probe.name}: {result.text}"
        found = compare(key, result.view(ours), result.view(theirs))
        if found is not None:
            yield found


def case_differences(case: Case) -> Iterator[Difference]:
    """Output buffers of a case whose bytes differ."""
    ours = case_result(case).buffers
    for name in case.make().expect:
        key = f"{case.name}/{name}"
        found = compare(key, ours[name], recording("cases")[key])
        if found is not None:
            yield found


def probe_reason(key: str) -> str | None:
    """Why a difference is right to have; None if nobody has said."""
    return next((text for pattern, text in PROBE_REASONS if re.search(pattern, key)), None)


def case_reason(case: Case) -> str | None:
    """Why a case may differ: what its kernels leave open; None if they define every bit."""
    text = case.ptx.read_text()
    bodies = [kernel_text(text, launch.kernel) for launch in case.make().launches]
    if any(re.search(r"\.approx|div\.full", body) for body in bodies):
        return USES_APPROXIMATE
    if any(re.search(r"\b(mul|add|sub)(\.ftz)?\.f(32|64)", body) for body in bodies):
        return MAY_FUSE
    return None


def kernel_text(text: str, kernel: str) -> str:
    """The PTX of one kernel."""
    start = text.index(f".entry {kernel}(")
    return text[start : text.index("\n}", start)]


def main() -> None:
    """Write differences.json; name what has no reason."""
    found = [
        (difference, case_reason(case))
        for case in CASES
        if case.name in report()["items"]
        for difference in case_differences(case)
    ]
    found += [
        (difference, probe_reason(difference.key))
        for probe in load_probes()
        for difference in probe_differences(probe)
    ]
    table = {}
    for difference, why in found:
        if why is None:
            sys.stdout.write(f"no reason: {difference}\n")
            continue
        table[difference.key] = {
            "differs": difference.differs,
            "elements": difference.elements,
            "reason": why,
        }
    LISTED.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
