"""Type aliases for NumPy arrays, named by the meaning of their elements.

The aliases are for annotations: nothing is converted or checked at run time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
"""Bools, such as flags of the threads at an instruction."""
Words = NDArray[np.uint64]
"""64-bit numbers and addresses, one per thread, modulo 2**64."""
Ranges = NDArray[np.int64]
"""Rows of a start byte and an end byte (exclusive)."""
Offsets = NDArray[np.int64]
"""Distances and positions; a negative value may mean none."""
Signed = NDArray[np.signedinteger]
"""Signed integers of any width."""
Indices = NDArray[np.intp]
"""Positions in another array, as returned by the searches of NumPy."""
Bytes = NDArray[np.uint8]
"""Raw memory."""
Integers = NDArray[np.integer]
"""Integers whose width and signedness are known only at run time."""
Floats = NDArray[np.floating]
"""Floating-point numbers whose width is known only at run time."""
