"""Jobs: one prompt and its answer as the scheduler sees them, and their rows on their way.

In: nothing. Out: the records that `scheduler` and `block_cache` change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

Content = Callable[[int, int], Hashable | None]
"""What the tokens of a job from one to another are; None: unknown, or of this job alone."""


@dataclass(slots=True, eq=False)
class PrefixBlock:
    """A whole block: the one before it (or an owner) with its tokens, its place, and its users."""

    key: tuple[Hashable, Hashable]
    block: int
    turn: int
    users: int = 1


class Job:
    """One prompt and the progress of its answer; the one with the lowest `number` came first.

    `content` says which tokens it has, so that blocks of equal prefixes are shared with others of
    the same `owner`. Of its `blocks`, the first are those in `shared`.
    """

    __slots__ = (
        "answer",
        "base",
        "batch",
        "blocks",
        "content",
        "dropped",
        "is_single",
        "is_suspect",
        "joined",
        "keeps",
        "move",
        "number",
        "owner",
        "policy",
        "prefilled",
        "prompt",
        "row",
        "shared",
        "to_prefill",
    )

    def __init__(
        self,
        number: int,
        prompt: int,
        answer: int,
        content: Content | None = None,
        owner: str = "",
        *,
        is_single: bool = False,
    ) -> None:
        """`is_single`: mixed steps take one token of the prompt at a time."""
        self.is_single = is_single
        self.is_suspect = False
        """Whether a step of it has faulted: one such job has a row at a time."""
        self.number = number
        self.prompt = prompt
        self.answer = answer
        self.content = content
        self.owner = owner
        self.shared: list[PrefixBlock] = []
        self.keeps = False
        """Whether its whole blocks may be shared from now on."""
        self.batch = -1
        self.row = -1
        self.blocks: Sequence[int] = ()
        self.to_prefill = 0
        self.prefilled = 0
        self.joined = 0
        self.base = 0
        self.dropped = False
        self.policy = ""
        self.move: RowMove | None = None


@dataclass(slots=True, eq=False, kw_only=True)
class RowMove:
    """A hand-over: the states of a job move from its row to one that is reserved for it.

    The batch `source` owns the job until the move has ended; then the batch `target` does. `tokens`
    is how many tokens of the job the states hold. A side that is lost was started again meanwhile:
    none of its rows belongs to the move any more.
    """

    job: Job
    source: int
    target: int
    row: int
    blocks: Sequence[int]
    tokens: int
    policy: str
    is_begun: bool = False
    source_is_lost: bool = False
    target_is_lost: bool = False
