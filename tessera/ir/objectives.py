"""Objectives of planning: each is a class, with its value and its texts.

In: the figures of a plan, of a candidate or of a row of a table (`Predicted`). Out: the value that
an objective minimizes, and its form in reports. An objective is a function of some figures and
grows with each of them. No other part of planning is defined here: the planner searches for each
figure that an objective names, and the value of the least figures is its bound.

A new objective is one more class below (docs/developer/errands/objective.md).
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from tessera.ir.choices import Word

HOUR_NS = 3600e9


class Predicted(Protocol):
    """A record with the figures of a plan."""

    @property
    def period_ns(self) -> float:
        """The time from one request to the next at the full rate, in ns."""

    @property
    def latency_ns(self) -> float:
        """The time of a request that runs alone, in ns."""

    @property
    def usd_per_request(self) -> float:
        """The price of the cards in use for the time of the period, in USD."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """Figures without a plan; in bounds, figures that the objective does not name are 0."""

    period_ns: float = 0.0
    latency_ns: float = 0.0
    usd_per_request: float = 0.0


class Figure(enum.Enum):
    """A figure that a search minimizes. Money is the period times the price of some cards."""

    PERIOD = enum.auto()
    LATENCY = enum.auto()
    MONEY = enum.auto()


class FigureUnit(enum.Enum):
    """The unit in which people read an objective: a shorter period is a higher rate."""

    RATE = "requests/s"
    TIME = "ns"
    USD = "usd"

    def shown(self, value: float) -> float:
        """A value in this unit; the rate is 0 if requests take no time."""
        if self is FigureUnit.RATE:
            return 1e9 / value if value > 0 else 0.0
        return value

    def gain(self, value: float, other: float) -> float:
        """The gain of a value over another, as a fraction; negative if it is worse."""
        if self is FigureUnit.RATE:
            return other / value - 1.0 if value > 0 else 0.0
        return 1.0 - value / other if other > 0 else 0.0


class Objective(Word):
    """The goal of a plan. `better` and `worse` are the words for a gain or a loss."""

    figures: ClassVar[tuple[Figure, ...]]
    unit: ClassVar[FigureUnit]
    better: ClassVar[str]
    worse: ClassVar[str]
    is_single: ClassVar[bool] = True
    """Whether one placement serves it."""

    @abstractmethod
    def value(self, row: Predicted) -> float:
        """The value that the objective minimizes."""

    @property
    def is_rate(self) -> bool:
        """Whether only the period counts."""
        return self.is_single and self.figures == (Figure.PERIOD,)

    @property
    def is_of_one_request(self) -> bool:
        """Whether only a request that runs alone counts, so more slots do not help."""
        return self.figures == (Figure.LATENCY,)


class Throughput(Objective):
    """Requests per second."""

    word = "throughput"
    figures = (Figure.PERIOD,)
    unit = FigureUnit.RATE
    better, worse = "more requests per second", "fewer requests per second"

    def value(self, row: Predicted) -> float:
        """The period."""
        return row.period_ns


class Latency(Objective):
    """The time of a request that runs alone."""

    word = "latency"
    figures = (Figure.LATENCY,)
    unit = FigureUnit.TIME
    better, worse = "lower latency", "higher latency"

    def value(self, row: Predicted) -> float:
        """The latency."""
        return row.latency_ns


class Cost(Objective):
    """Money per request: the price of the cards in use, for the time of the period."""

    word = "cost"
    figures = (Figure.MONEY,)
    unit = FigureUnit.USD
    better, worse = "lower cost", "higher cost"

    def value(self, row: Predicted) -> float:
        """The money."""
        return row.usd_per_request


class LatencyAndThroughput(Objective):
    """Latency and throughput: a placement for each of two policies, which share a machine."""

    word = "latency+throughput"
    figures = (Figure.PERIOD,)
    unit = FigureUnit.RATE
    better, worse = Throughput.better, Throughput.worse
    is_single = False

    def value(self, row: Predicted) -> float:
        """The period: that of the policy for throughput."""
        return row.period_ns


THROUGHPUT, LATENCY, COST, PAIR = Throughput(), Latency(), Cost(), LatencyAndThroughput()
OBJECTIVES = Objective.every()
SINGLE_OBJECTIVES = tuple(objective for objective in OBJECTIVES if objective.is_single)
POLICIES = (LATENCY, THROUGHPUT)
