"""Limits on the size of a proof: a few lines of a plan may need more memory than any machine has.

In: the sizes of the arrays that the proof needs. Out: findings. A plan that is not proved does not
run.
"""

from __future__ import annotations

from tessera.passes.checker.findings import Findings

MOST_CLOCKS = 1 << 27
"""Numbers in the clocks of all events."""

MOST_ATOMS = 1 << 26
"""Atoms in the memory of all devices."""

MOST_WORK = 4_000_000_000
"""Atoms that operations touch, summed over all operations."""


def give_up(trace: int, what: str, findings: Findings) -> None:
    """Report that the programs of a trace are too large to prove."""
    findings.add(
        "TSR4015",
        f"the programs of trace {trace} {what} to be proved",
        "what is not proved does not run",
    )
