"""Names for NumPy arrays by what their elements are.

The names are for annotations: nothing is converted or checked when the program runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
"""True or false, such as which threads are at a place."""
Words = NDArray[np.uint64]
"""64-bit numbers and addresses, one per thread, modulo 2**64."""
Ranges = NDArray[np.int64]
"""Rows of a first byte and the byte after the last one."""
Offsets = NDArray[np.int64]
"""Distances and positions; a negative one may mean none."""
Signed = NDArray[np.signedinteger]
"""Whole numbers with a sign, of any width."""
Indices = NDArray[np.intp]
"""Positions in another array, as NumPy's searches give them."""
Bytes = NDArray[np.uint8]
"""Memory as it is."""
Integers = NDArray[np.integer]
"""Whole numbers of a width and a sign that only a run knows."""
Floats = NDArray[np.floating]
"""Floating-point numbers of a width that only a run knows."""
