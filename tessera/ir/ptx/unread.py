"""Bodies that are still text: most functions of a large module are never inspected.

The reader of PTX checks that a body is well formed, and leaves it as text. `Function.body` is then
an empty slot: the first access builds the body with `UnreadBody.build()` and keeps it. Equality,
printing and `dataclasses.replace` access it in the same way, so the difference is invisible.

Nobody who only checks or counts need look at every instruction: `UnreadBody.outline` has one text
for all instructions that differ only in registers of one type and in numbers.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

# Statements of `syntax`, which stands above this file.
Statements = tuple[Any, ...]
Defined = TypeVar("Defined")

_ONE_AT_A_TIME = threading.RLock()


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """The variables that a statement declares; equal texts may share the object."""

    variables: Statements


NO_STATEMENT = "\0"
"""What stands in an outline for text that nothing has to check."""


class BodyOutline(NamedTuple):
    """What there is to verify of a well-formed body or block.

    The first declarations stand in front of everything else, the `late` ones behind instructions or
    blocks. A statement is an instruction in which tokens (`ir.verify_ptx.names.kind_token`) stand
    for registers of the body. The `pieces` are all statements in order, with `NO_STATEMENT` between
    them. Each block is there once, with its number, in order of their firsts. The statements that
    are `rare` have operands that only the grammar reads; `targets` are functions that calls through
    registers may go to.
    """

    declarations: tuple[Declaration, ...]
    late: tuple[Declaration, ...]
    labels: tuple[str, ...]
    targets: frozenset[str]
    pieces: tuple[str, ...]
    rare: frozenset[str]
    blocks: tuple[tuple[BodyOutline, int], ...]

    def statements(self) -> Mapping[str, int]:
        """Each text of a statement with the number of its instructions, in order of the firsts."""
        counts = Counter(self.pieces)
        counts.pop(NO_STATEMENT, None)
        return counts


class UnreadBody(Protocol):
    """A body that is well formed and still text."""

    @property
    def outline(self) -> BodyOutline | None:
        """What there is to verify, or None if every statement must be looked at."""

    def build(self) -> Statements:
        """Every statement of the body."""

    def instruction(self, text: str) -> Any:
        """The instruction that a text of the outline stands for."""

    def rename(self, texts: Sequence[str], names: Mapping[str, str]) -> list[str]:
        """Texts of the outline with every name replaced, except for tokens of types."""


class WithUnreadBody:
    """Fills the slot `body` of a function on first access."""

    __slots__ = ("_unread",)
    _unread: UnreadBody | None

    def leave_unread(self, unread: UnreadBody) -> None:
        """Defer building `body` to its first access; for the reader that has just created this."""
        object.__setattr__(self, "_unread", unread)
        object.__delattr__(self, "body")

    @property
    def unread(self) -> UnreadBody | None:
        """The body that has not been accessed yet, if there is one."""
        try:
            return self._unread
        except AttributeError:
            return None

    @property
    def has_body(self) -> bool:
        """Whether this is more than a declaration; does not build the body."""
        return self.unread is not None or self.body is not None

    def __getattr__(self, name: str) -> Any:
        if name != "body":
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        with _ONE_AT_A_TIME:
            unread = self.unread
            if unread is not None:
                object.__setattr__(self, "body", unread.build())
                object.__setattr__(self, "_unread", None)
        return object.__getattribute__(self, "body")


class WithDefinitions(Generic[Defined]):
    """Finds the functions of a module by name; a module may have thousands."""

    __slots__ = ("_definitions",)
    _definitions: dict[str, Defined]

    def definitions(self) -> Mapping[str, Defined]:
        """The functions that have a body, by name."""
        try:
            return self._definitions
        except AttributeError:
            functions = self.functions()  # type: ignore[attr-defined]
            definitions = {function.name: function for function in functions if function.has_body}
            object.__setattr__(self, "_definitions", definitions)
            return definitions
