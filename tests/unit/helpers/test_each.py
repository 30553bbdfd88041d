"""A test of many cases fails if one of them does, and says which."""

from __future__ import annotations

import pytest

from tests.helpers.each import each


def test_every_case_that_fails_is_named() -> None:
    seen = []

    @each([(1, 2), (3, 3), (5, 4)])
    def is_less(one: int, other: int) -> None:
        seen.append(one)
        assert one < other

    with pytest.raises(ExceptionGroup, match="2 of 3 cases") as caught:
        is_less()
    assert seen == [1, 3, 5]
    notes = [note for error in caught.value.exceptions for note in error.__notes__]
    assert [note for note in notes if "case" in note] == ["the case: (3, 3)", "the case: (5, 4)"]


def test_no_cases_are_no_test() -> None:
    with pytest.raises(AssertionError):
        each([])(print)()
