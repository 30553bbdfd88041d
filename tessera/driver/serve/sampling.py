"""How the next token is chosen from logits, and what the chances of tokens were.

In: the logits of a row, and a `Sampling`. Out: a token, and if asked for its `TokenChances`. Draws
depend only on the seed of the request: not on its row, nor on the other answers of its batch.
Without a seed they are independent of all others.

The order is that of the transformers library: penalties, bias, what a `Constraint` allows, the
temperature, `top_k`, `top_p`, `min_p`. Chances are those that the model gives, before all of this.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.ir.arrays import Floats

LIMITS = ("top_k", "top_p", "min_p")
"""Which tokens may be drawn: fields of `Sampling`, and inputs of steps that draw tokens."""
NO_CHANCES = -1
MOST_CHANCES = 20
"""Most alternatives that are named for a token."""


class Constraint(Protocol):
    """What an answer may consist of, such as JSON; it follows one answer."""

    def allowed(self, size: int) -> npt.NDArray[np.bool_]:
        """Which of `size` tokens may come next; raises `TesseraError` if that cannot be told."""

    def accept(self, token: int) -> bool:
        """Note the next token; returns whether nothing can follow it, or raises `TesseraError`."""


@dataclass(frozen=True, slots=True)
class TokenChances:
    """The log of a token's probability, and the most likely tokens in its place with theirs."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen: a temperature of 0 takes the most likely one.

    `top_k` keeps that many of the most likely tokens (0: all), `top_p` the fewest whose shares add
    up to it, `min_p` those with at least this part of the share of the most likely one. `presence`
    and `frequency` are taken from the logits of tokens that the answer has, once or for each time;
    those of tokens that prompt or answer have are made less likely by the factor `repetition`.
    `bias` is added to the logits of tokens. `chances` is how many alternatives to name for each
    token (-1: not even its own chances).
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    bias: tuple[tuple[int, float], ...] = ()
    chances: int = NO_CHANCES

    def __post_init__(self) -> None:
        for name, is_right, wanted in (
            ("temperature", _is_within(self.temperature, 0, 1e9), "0 or more"),
            ("top_k", isinstance(self.top_k, int) and self.top_k >= 0, "0 or more"),
            ("top_p", _is_within(self.top_p, 0, 1) and self.top_p > 0, "above 0 and at most 1"),
            ("min_p", _is_within(self.min_p, 0, 1), "from 0 to 1"),
            (
                "seed",
                self.seed is None or (isinstance(self.seed, int) and self.seed >= 0),
                "a whole number, 0 or more",
            ),
            ("presence", _is_within(self.presence, -2, 2), "from -2 to 2"),
            ("frequency", _is_within(self.frequency, -2, 2), "from -2 to 2"),
            ("repetition", _is_within(self.repetition, 0.01, 100), "from 0.01 to 100"),
            (
                "chances",
                isinstance(self.chances, int) and NO_CHANCES <= self.chances <= MOST_CHANCES,
                f"from {NO_CHANCES} to {MOST_CHANCES}",
            ),
        ):
            if not is_right:
                message = f"`{name}` must be {wanted}, not {getattr(self, name)!r}"
                raise TesseraError.of("TSR5064", message)

    @property
    def is_greedy(self) -> bool:
        """Whether nothing is drawn."""
        return self.temperature == 0 or self.top_k == 1

    def needs_logits(self, roles: Container[str]) -> str:
        """The first field that only logits can serve, rather than a step with inputs of these roles
        that draws tokens."""
        plain = Sampling()
        names = ("presence", "frequency", "repetition", "bias", "chances")
        limits = () if self.is_greedy else (name for name in LIMITS if name not in roles)
        differing = (n for n in (*limits, *names) if getattr(self, n) != getattr(plain, n))
        return next(differing, "")

    def draws(self) -> np.random.Generator:
        """The random numbers of one request; without a seed, from fresh entropy."""
        return np.random.Generator(np.random.PCG64(self.seed))

    def reseeded(self, place: int) -> Sampling:
        """The same for the answer at another place of a request, drawn by another seed."""
        return self if self.seed is None or not place else replace(self, seed=self.seed + place)


def _is_within(value: object, least: float, most: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return is_number and least <= value <= most  # type: ignore[operator]


@dataclass(slots=True)
class TokenChooser:
    """Chooses the tokens of one answer to `prompt`."""

    sampling: Sampling
    prompt: Sequence[int]
    constraint: Constraint | None = None
    draws: np.random.Generator = field(init=False)
    is_over: bool = False
    """Whether the constraint lets nothing follow the last token."""

    def __post_init__(self) -> None:
        self.draws = self.sampling.draws()

    def choose(self, logits: Floats, tokens: Sequence[int]) -> int:
        """The token after those that the answer has."""
        changed = self._changed(logits, tokens)
        if self.sampling.is_greedy:
            token = int(np.argmax(changed))
        else:
            token = draw_token(changed, self.sampling, self.draws)
        self.is_over = self.constraint is not None and self.constraint.accept(token)
        return token

    def _changed(self, logits: Floats, tokens: Sequence[int]) -> Floats:
        """The logits after penalties, bias and constraint."""
        own = self.sampling
        is_plain = not (own.presence or own.frequency or own.bias) and own.repetition == 1
        if is_plain and self.constraint is None:
            return logits
        changed = np.array(logits, np.float64)
        if own.repetition != 1:
            seen = np.unique(np.array([*self.prompt, *tokens], np.int64))
            held = changed[seen]
            changed[seen] = np.where(held > 0, held / own.repetition, held * own.repetition)
        if tokens and (own.presence or own.frequency):
            known, counts = np.unique(np.array(tokens, np.int64), return_counts=True)
            changed[known] -= own.presence + own.frequency * counts
        for token, added in own.bias:
            changed[token] += added
        if self.constraint is not None:
            changed[~self.constraint.allowed(len(changed))] = -np.inf
        return changed


def chances_of(logits: Floats, token: int, count: int) -> TokenChances:
    """The chances of a token by the model's own logits, and of the `count` most likely ones."""
    wide = np.asarray(logits, np.float64)
    least = wide.max()
    logs = wide - least - np.log(np.exp(wide - least).sum())
    top = np.argsort(-logs, kind="stable")[:count] if count else ()
    return TokenChances(float(logs[token]), tuple((int(t), float(logs[t])) for t in top))


def draw_token(logits: Floats, sampling: Sampling, draws: np.random.Generator) -> int:
    """A token drawn by its probability from those that `top_k`, `top_p` and `min_p` leave."""
    wide = np.asarray(logits, np.float64)
    with np.errstate(over="ignore"):  # far below the most likely, at a temperature near 0
        scaled = (wide - wide.max()) / sampling.temperature
    order = np.argsort(-wide, kind="stable")
    if sampling.top_k:
        order = order[: sampling.top_k]
    shares = np.exp(scaled[order])
    shares /= shares.sum()
    if sampling.top_p < 1:
        left = int(np.searchsorted(np.cumsum(shares), sampling.top_p)) + 1
        order, shares = order[:left], shares[:left] / shares[:left].sum()
    if sampling.min_p > 0:
        left = max(int((shares >= sampling.min_p * shares[0]).sum()), 1)
        order, shares = order[:left], shares[:left] / shares[:left].sum()
    drawn = int(np.searchsorted(np.cumsum(shares), draws.random(), side="right"))
    return int(order[min(drawn, len(order) - 1)])
