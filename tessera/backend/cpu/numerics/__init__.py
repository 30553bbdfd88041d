"""The arithmetic of the CPU executor: pure functions on arrays of register bits.

In: register bits, one element per lane, and static modifiers. Out: register bits. Bit-exact where
PTX defines the bits; within the PTX ISA's error bounds otherwise. Deterministic on every CPU:
only exactly rounded operations (+ - * / sqrt, integer operations) in a fixed order, never a
reduction or a transcendental function of NumPy.
"""

from __future__ import annotations

import numpy as np


def quiet() -> np.errstate:
    """Context in which floating-point exceptions pass silently; enter it once per launch."""
    return np.errstate(all="ignore")
