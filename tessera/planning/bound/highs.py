"""Types for the part of HiGHS that the planner uses: only some versions of highspy have their own.

In: nothing. Out: protocols. `bound.relax.make_solver` makes a `Highs`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


class SearchState(Protocol):
    """The state of branch and bound, in the unit of the model."""

    mip_dual_bound: float
    mip_primal_bound: float


class SolverEvent(Protocol):
    """A callback in which HiGHS asks whether to continue."""

    data_out: SearchState

    def interrupt(self) -> None:
        """End the run."""


Listener = Callable[[SolverEvent], None]


class EventSource(Protocol):
    """A kind of event with subscribers."""

    def subscribe(self, listener: Listener) -> None:
        """Call a listener for every event from now on."""

    def unsubscribe(self, listener: Listener) -> None:
        """Stop calling a listener."""


class SolverSolution(Protocol):
    """Values of the columns, and prices of the rows."""

    col_value: Sequence[float]
    row_dual: Sequence[float]


class SolverInfo(Protocol):
    """Figures of a run."""

    mip_dual_bound: float
    primal_solution_status: object
    simplex_iteration_count: int


class Highs(Protocol):
    """A solver with a model in it."""

    cbMipInterrupt: EventSource
    cbSimplexInterrupt: EventSource
    cbIpmInterrupt: EventSource

    def setOptionValue(self, name: str, value: object) -> object:
        """Set an option by its name."""

    def passModel(self, model: object) -> object:
        """Take a model."""

    def changeColCost(self, column: int, cost: float) -> object:
        """Change the cost of a column."""

    def addCol(
        self,
        cost: float,
        lower: float,
        upper: float,
        count: int,
        rows: NDArray[np.int32],
        values: NDArray[np.float64],
    ) -> object:
        """Add a column with entries in rows."""

    def setSolution(
        self, count: int, columns: NDArray[np.int32], values: NDArray[np.float64]
    ) -> object:
        """Start from a solution."""

    def setBasis(self, basis: object) -> object:
        """Start from a basis."""

    def changeRowBounds(self, row: int, lower: float, upper: float) -> object:
        """Change the bounds of a row."""

    def writeModel(self, path: str) -> object:
        """Write the model to a file."""

    def run(self) -> object:
        """Solve."""

    def clearSolver(self) -> object:
        """Discard the results of the last run."""

    def getRunTime(self) -> float:
        """Seconds of all runs."""

    def getModelStatus(self) -> object:
        """How the last run ended."""

    def getInfo(self) -> SolverInfo:
        """Figures of the last run."""

    def getSolution(self) -> SolverSolution:
        """The solution of the last run."""

    def getBasis(self) -> object:
        """The basis that the last run ended with."""
