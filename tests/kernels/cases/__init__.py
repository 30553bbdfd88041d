"""Every kernel case, in file order; names are unique."""

from __future__ import annotations

from tests.kernels.case import Case
from tests.kernels.cases import (
    atomics,
    bits,
    control,
    elementwise,
    groups,
    handwritten,
    machine,
    math,
    memory,
    model,
    reduce,
    rows,
    shared,
    tensor,
    triton,
    warp,
)

MODULES = (
    elementwise,
    reduce,
    groups,
    shared,
    rows,
    control,
    bits,
    warp,
    memory,
    atomics,
    math,
    tensor,
    model,
    machine,
    triton,
    handwritten,
)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
