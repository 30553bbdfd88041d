"""The progress line of a command, and the meaning of Ctrl-C during the search for a plan.

One line on standard error, drawn by rich: the current stage, its progress, and the elapsed time. It
appears only if the command takes a moment, and disappears when the work ends, however that ends. In
a pipe nothing is shown, and rich is not imported.
"""

from __future__ import annotations

import signal
import sys
import threading
from dataclasses import replace
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, Self, cast

from tessera.cli.console import Forgiving, Messages, at_terminal
from tessera.ir.progress import StageProgress
from tessera.report.diagnostics import safe

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from tessera.driver.plan import Watch

_DELAY_S = 0.3  # commands that end earlier show nothing, and do not wait for rich


class Progress:
    """The current stage, in words and in numbers."""

    def __init__(self, messages: Messages, stage: str) -> None:
        self._visible = at_terminal() and messages.form != "json"
        self._plain = messages.color == "never"
        self._task: dict[str, Any] = {
            "description": safe(stage),
            "completed": 0,
            "total": None,
            "unit": "",
        }
        self._bar: Bar | None = None
        self._ended = False
        self._lock = threading.RLock()  # a signal may arrive while it is held
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if self._visible:
            self._timer = threading.Timer(_DELAY_S, self._begin_aside)
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            self._ended = True
            if self._bar is not None:
                self._bar.stop()

    def _begin_aside(self) -> None:
        """Begin in a thread that blocks signals: these have to wake the main thread."""
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        self.begin()

    def begin(self) -> None:
        """Show the line from now on, if standard error is a terminal."""
        if not self._visible:
            return
        bar = _make_bar(plain=self._plain)
        with self._lock:
            if not self._ended and self._bar is None:
                bar.add_task(**self._task)
                bar.start()
                self._bar = bar

    def stage(self, text: str) -> None:
        """Show the current stage."""
        self.hear(StageProgress(text))

    def hear(self, told: StageProgress) -> None:
        """Show the progress of a pipeline, as its listener."""
        said = f"{told.stage}: {told.note}" if told.note else told.stage
        self._show(said, told.done, told.total, told.unit)

    def _show(self, said: str, done: int = 0, total: int | None = None, unit: str = "") -> None:
        changed: dict[str, Any] = {"description": safe(said), "completed": done, "unit": unit}
        with self._lock:
            self._task.update(changed, total=total)
            if self._bar is not None:
                self._bar.tasks[0].total = total  # for `update` None means "as it was"
                self._bar.update(self._bar.task_ids[0], **changed)


class PlanProgress(Progress):
    """Shows the progress of the planner, and listens for Ctrl-C.

    Before the search begins, Ctrl-C ends the command as always. From then on, the first Ctrl-C asks
    the search to stop with the best plan so far, which still has to be proved; a second one ends
    the command. Once a plan is kept, nothing can be lost, and the first one ends it at once.
    """

    def __init__(self, messages: Messages) -> None:
        super().__init__(messages, "planning")
        self.interrupted = False
        self._searching = False
        self._kept = False
        self._before: Any = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        super().__exit__()

    def listen(self) -> Watch:
        """The listener to give to the planner."""
        from tessera.driver.plan import Watch

        return Watch(on_progress=self.hear, should_stop=self._should_stop)

    def hear(self, told: StageProgress) -> None:
        """Show the current stage, and what Ctrl-C does."""
        if self._kept:
            what = "the plan is written; Ctrl-C leaves this out"
        elif self.interrupted:
            what = "Ctrl-C ends without a plan"
        else:
            what = "Ctrl-C keeps the best" if self._searching else ""
        note = "; ".join(filter(None, (told.note, what)))
        stage = f"stopping: {told.stage}" if self.interrupted else told.stage
        super().hear(replace(told, stage=stage, note=note))

    def keep(self) -> None:
        """Note that a plan is written; if Ctrl-C was already pressed, end now."""
        self._kept = True
        if self.interrupted:
            raise KeyboardInterrupt

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self.interrupted or not self._searching:
            raise KeyboardInterrupt
        self.interrupted = True
        if self._kept:
            raise KeyboardInterrupt
        self._show("stopping: the best plan so far has to be proved; Ctrl-C ends without a plan")

    def _should_stop(self) -> bool:
        self._searching = True
        return self.interrupted


def _make_bar(*, plain: bool) -> Bar:
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

    from tessera.frontend.machine.quantities import format_bytes

    class Shown(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Leave the cursor alone: a command that is killed cannot bring it back."""
            return False

    class Part(BarColumn):
        def render(self, task: Task) -> ProgressBar:
            return cast("ProgressBar", Text()) if task.total is None else super().render(task)

    class Number(TextColumn):
        def render(self, task: Task) -> Text:
            if task.total is None:
                return Text("")
            done, total = round(task.completed), round(task.total)
            if task.fields["unit"] == "bytes":
                return Text(f"{format_bytes(done)} of {format_bytes(total)}")
            return Text(f"{done}/{total} {task.fields['unit']}")

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
    # Output of the work appears above the line; output to a pipe is not changed.
    is_seen = sys.stdout is not None and sys.stdout.isatty()
    return Bar(*columns, console=console, transient=True, redirect_stdout=is_seen)
