"""Every kernel case, in file order; names are unique."""

from __future__ import annotations

from tests.kernels.case import Case
from tests.kernels.cases import elementwise, groups, reduce, rows, shared

MODULES = (elementwise, reduce, groups, shared, rows)
CASES: tuple[Case, ...] = tuple(case for module in MODULES for case in module.CASES)
