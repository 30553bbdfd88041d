"""The arithmetic of the CPU executor: pure functions on arrays of register bits.

In: register bits, one element per lane, and static modifiers. Out: register bits. Bit-exact where
PTX defines the bits; within the PTX ISA's error bounds otherwise. Deterministic on every CPU:
only exactly rounded operations (+ - * / sqrt, integer operations) in a fixed order, never a
reduction or a transcendental function of NumPy. Imported by the neighbours in `ptx_executor` and
by the source that `emit` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

# In elements. NumPy copies broadcast operands to a buffer if a row is shorter than the buffer.
# With its default of 8192 elements, the copy takes longer than the arithmetic.
_BUFFER = 2048


@contextmanager
def quiet() -> Iterator[None]:
    """A context that silences floating-point exceptions; enter it once per launch."""
    with np.errstate(all="ignore"):
        before = np.setbufsize(_BUFFER)
        try:
            yield
        finally:
            np.setbufsize(before)
