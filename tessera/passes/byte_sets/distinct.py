"""The distinct numbers of an array, in order.

`numpy.unique` does the same, but loads NumPy's masked arrays, which take longer to import than a
small trace to analyse.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.integer)


def distinct(values: NDArray[T]) -> NDArray[T]:
    """The distinct integers of an array of any shape, in ascending order."""
    ordered = np.sort(values, axis=None)
    is_first = np.ones(ordered.shape, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
