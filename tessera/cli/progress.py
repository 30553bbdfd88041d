"""What a terminal shows while a command works, and what Ctrl-C means while a plan is searched for.

One line on standard error, drawn by rich: what is done now, how much of it, for how long. It comes
only if the command takes a moment, and goes when the work ends, however that ends. In a pipe there
is nothing, and rich is not imported.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import IO, TYPE_CHECKING, Any, Self, cast

from tessera.cli.console import Forgiving, Messages, at_terminal
from tessera.report.diagnostics import safe

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from tessera.driver.plan.make_plan import Watch

_DELAY_S = 0.3  # commands that end before show nothing, and do not wait for rich


class Progress:
    """What is done now; `count` says how much of it, in units that are called `unit`."""

    def __init__(self, messages: Messages, stage: str, unit: str = "") -> None:
        self._visible = at_terminal() and messages.form != "json"
        self._plain = messages.color == "never"
        self._unit = unit
        self._task: dict[str, Any] = {"description": safe(stage), "completed": 0, "total": None}
        self._bar: Bar | None = None
        self._ended = False
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if self._visible:
            self._timer = threading.Timer(_DELAY_S, self._begin_aside)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def _begin_aside(self) -> None:
        """Begin in a thread, which leaves signals to the main one: they have to wake that."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.begin()

    def begin(self) -> None:
        """Show the line from now on, if somebody sees it."""
        if not self._visible:
            return
        bar = _make_bar(self._unit, plain=self._plain)
        with self._lock:
            if not self._ended and self._bar is None:
                bar.add_task(**self._task)
                bar.start()
                self._bar = bar

    def stage(self, text: str) -> None:
        """Say what is done now."""
        self._show(description=safe(text))

    def count(self, done: int, total: int) -> None:
        """Say how much of it is done."""
        self._show(completed=done, total=total)

    def _show(self, **changed: Any) -> None:
        with self._lock:
            self._task.update(changed)
            if self._bar is not None:
                self._bar.update(self._bar.task_ids[0], **changed)


@contextmanager
def counted(messages: Messages, unit: str) -> Iterator[Callable[[int, int], None]]:
    """What hears how many of these units are done."""
    with Progress(messages, "running", unit) as shown:
        yield shown.count


class PlanProgress(Progress):
    """Shows bound and best plan of a search, and listens for Ctrl-C.

    Before the search has begun Ctrl-C ends the command as always. From then on the first one asks
    the search to stop with the best plan so far; a second one ends the command.
    """

    def __init__(self, messages: Messages) -> None:
        super().__init__(messages, "planning")
        self.interrupted = False
        self._searching = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return super().__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        super().__exit__(kind, value, traceback)

    def listen(self) -> Watch:
        """What to hand to the planner."""
        from tessera.driver.plan.make_plan import Watch

        return Watch(on_progress=self.search, should_stop=self._should_stop, on_stage=self.stage)

    def stage(self, text: str) -> None:
        """Say what is done now, and what Ctrl-C does after the first."""
        super().stage(text + self.interrupted * "; Ctrl-C ends without a plan")

    def search(self, bound_ns: float, best_ns: float) -> None:
        """Say how far the search is."""
        self._searching = True
        from tessera.frontend.machine.quantities import format_time

        best = "none yet" if best_ns == float("inf") else format_time(best_ns)
        gap = f", gap {best_ns / bound_ns - 1:.2%}" if bound_ns > 0 and best_ns < 1e300 else ""
        said = f"searching: best {best}, bound {format_time(bound_ns)}{gap}"
        super().stage(f"{said}; Ctrl-C keeps the best")

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._searching or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _should_stop(self) -> bool:
        self._searching = True
        return self.interrupted


def _make_bar(unit: str, *, plain: bool) -> Bar:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        ProgressColumn,
        SpinnerColumn,
        Task,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar
    from rich.progress_bar import ProgressBar
    from rich.table import Column
    from rich.text import Text

    class Shown(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Leave the cursor alone: a command that is killed cannot bring it back."""
            return False

    class Part(BarColumn):
        def render(self, task: Task) -> ProgressBar:
            return cast("ProgressBar", Text()) if task.total is None else super().render(task)

    class Number(TextColumn):
        def render(self, task: Task) -> Text:
            known = task.total is not None
            return Text(f"{task.completed:.0f}/{task.total:.0f} {unit}" if known else "")

    columns: tuple[ProgressColumn, ...] = (
        SpinnerColumn(),
        TextColumn(
            "{task.description}",
            markup=False,
            table_column=Column(no_wrap=True, overflow="ellipsis"),
        ),
        Part(),
        Number("", markup=False),
        TimeElapsedColumn(),
    )
    console = Shown(file=cast("IO[str]", Forgiving()), no_color=plain or None)
    # What the work prints stands above the line; in a pipe it stays as it is.
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    return Bar(*columns, console=console, transient=True, redirect_stdout=is_seen)
