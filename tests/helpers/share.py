"""How many random cases a test takes: a share in `make test`, all of them in `make slow`.

In: the cases of a test. Out: those of this run, by the profile of Hypothesis (`tests/conftest.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hypothesis import settings

Case = TypeVar("Case")
ALL = 40  # examples of a property where all are taken


def share(cases: Sequence[Case]) -> Sequence[Case]:
    """The first of some cases, as many of them as examples are taken of every `ALL`, rounded up."""
    return cases[: -(-len(cases) * settings.default.max_examples // ALL)]


def least(of_all: int, of_share: int) -> int:
    """How many have to be seen: of all cases in `make slow`, of the share in `make test`."""
    return of_all if settings.default.max_examples >= ALL else of_share
