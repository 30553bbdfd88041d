"""The choices that users make and files record, as enums with one spelling each.

Members are strings, so they print, compare and serialise as the words that users type. Choices with
behaviour are classes (`Word`): objectives in `ir.objectives`, strategies in
`planning.search.strategies`. Nothing heavy is imported here: the command line takes its choices
from this module. The names of backends are in `backend.known_backends`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Self


class Word(str):
    """A choice with its own behaviour: a class whose one value equals the word that users type.

    Subclasses that have a `word` are the choices, in the order of their definition.
    """

    __slots__ = ()
    word: ClassVar[str]

    def __new__(cls) -> Self:
        """The value of a class that has a word."""
        return super().__new__(cls, cls.word)

    def __getnewargs__(self) -> tuple[()]:  # type: ignore[override]  # a class says its own word
        return ()

    @classmethod
    def every(cls) -> tuple[Self, ...]:
        """One value of each class."""
        return tuple(choice() for choice in cls.__subclasses__())

    @classmethod
    def named(cls, word: str) -> Self:
        """The choice with a word. An unknown word raises `StopIteration`: check `every` first."""
        return next(choice for choice in cls.every() if choice == word)


ADAPTIVE = "adaptive"
"""A value in place of a policy: all policies are ready, and each request gets one on arrival."""


class Ending(StrEnum):
    """Why a search stopped."""

    GAP = "gap"
    NODES = "nodes"
    SEARCH = "search"
    CLOCK = "clock"
    INTERRUPTED = "interrupted"
    GIVEN = "given"

    @property
    def text(self) -> str:
        """The reason for the end of the search, as shown in reports."""
        return _ENDED_BY[self]

    @property
    def is_cut_short(self) -> bool:
        """Whether the user's limits or commands ended the search."""
        return self in (Ending.CLOCK, Ending.INTERRUPTED)

    @property
    def is_search(self) -> bool:
        """Whether a search ran to its own end; a placement given by the user is not a search."""
        return self is not Ending.GIVEN and not self.is_cut_short


_ENDED_BY = {
    Ending.GAP: "the gap",
    Ending.NODES: "the number of nodes",
    Ending.SEARCH: "exhausting local search",
    Ending.CLOCK: "the time limit",
    Ending.INTERRUPTED: "an interrupt",
    Ending.GIVEN: "what was given",
}


class Route(StrEnum):
    """How a model is captured."""

    AUTO = "auto"
    PTX = "ptx"
    LIBRARY = "library"
    EAGER = "eager"
    AS_IS = "as-is"
