"""The comparison operators of integers in `setp` and `set`: sign, test, opposite and mirror.

The executor has a table of its own, so that tests can compare the two.
Source: PTX ISA 9.0, section 9.3.1 (comparisons of integers and of bit sizes).
"""

from __future__ import annotations

import operator
from collections.abc import Callable

UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
"""Names that only unsigned types have, and their general equivalents."""

_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_TESTS: dict[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
_OPPOSITES = (("eq", "ne"), ("lt", "ge"), ("le", "gt"), ("lo", "hs"), ("ls", "hi"))

COMPARISON_SIGNS = _SIGNS | {name: _SIGNS[same] for name, same in UNSIGNED_NAMES.items()}
COMPARISON_TESTS = _TESTS | {name: _TESTS[same] for name, same in UNSIGNED_NAMES.items()}
INVERSE_COMPARISONS = dict(_OPPOSITES) | {second: first for first, second in _OPPOSITES}
"""The comparison that holds where the given comparison does not."""
MIRRORED_COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""The same comparison with its operands exchanged."""
