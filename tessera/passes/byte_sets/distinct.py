"""The distinct numbers of an array, in order.

`numpy.unique` does the same, but loads NumPy's masked arrays, which take longer to import than a
small trace to analyse.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(values: NDArray[Any]) -> NDArray[Any]:
    """The distinct integers of an array of any shape, in ascending order."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
