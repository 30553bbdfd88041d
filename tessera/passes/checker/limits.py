"""What is too large to be proved: a few lines of a plan may ask for more than any machine has.

In: the sizes of what is about to be looked at. Out: findings. What is not proved does not run.
"""

from __future__ import annotations

from tessera.passes.checker.findings import Findings

MOST_CLOCKS = 1 << 27
"""Numbers in the clocks of all events."""

MOST_ATOMS = 1 << 26
"""Atoms in the memory of all devices."""

MOST_WORK = 4_000_000_000
"""Atoms that operations touch in all."""


def give_up(trace: int, what: str, findings: Findings) -> None:
    """Say that the programs of a trace are too large."""
    findings.add(
        "TSR4015",
        f"the programs of trace {trace} {what} to be proved",
        "what is not proved does not run",
    )
