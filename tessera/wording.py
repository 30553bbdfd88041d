"""Texts for people: they can be shown and joined, but no code can decide by them.

In: a text for a person (why a launch is pinned, what a profile leaves out). Out: a value that
prints. A record that holds a `str` invites code to search it for a word; then a change of wording
changes what the program does. A `Wording` has none of the methods of `str`, and `mypy` refuses
`==`, `in` and `startswith` on it (`tests/unit/test_wording.py` tries each). Anything that two
places must agree on is a value with a type of its own, beside the wording.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Never


class Wording:
    """A text for people. `str()` and f-strings show it; `+` and `join` make longer ones.

    It is not a dataclass, because `dataclasses.asdict` would convert it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    @classmethod
    def join(cls, parts: Iterable[Wording | str], between: str = ", ") -> Wording:
        """The parts one after the other, separated by `between`."""
        return cls(between.join(map(str, parts)))

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Wording({self._text!r})"

    def __format__(self, spec: str) -> str:
        return format(self._text, spec)

    def __add__(self, other: Wording | str) -> Wording:
        return Wording(f"{self._text}{other}")

    def __radd__(self, other: str) -> Wording:
        return Wording(f"{other}{self._text}")

    if TYPE_CHECKING:
        # For type checkers `==` calls this class, whose argument no value fits. A method of this
        # name would do as much for `==`, but then mypy would allow `wording in ("a", "b")`.
        class __eq__:
            def __init__(self, other: Never) -> None: ...

    else:
        # Records that hold wordings are compared and hashed; a comparison with a `str` is a fault.
        def __eq__(self, other):
            if isinstance(other, str):
                raise TypeError(f"a wording is compared with a text: {self!r}, {other!r}")
            return isinstance(other, Wording) and self._text == other._text

        def __hash__(self):
            return hash((Wording, self._text))

        def __bool__(self):
            raise TypeError(f"a wording is neither true nor false: {self!r}")
