"""What a terminal shows while a plan is searched for, and what Ctrl-C means then.

Before the search has begun Ctrl-C ends the command as always. From then on the first one asks the
search to stop with the best plan so far; a second one ends the command.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

if TYPE_CHECKING:
    from tessera.driver.plan.make_plan import Watch

_EVERY_S = 0.1


class PlanWatch:
    """Shows bound and best plan on standard error, and listens for Ctrl-C."""

    def __init__(self, *, visible: bool) -> None:
        self.interrupted = False
        self._visible = visible
        self._searching = False
        self._shown = False
        self._last = 0.0
        self._before: Any = None

    def listen(self) -> Watch:
        """What to hand to the planner."""
        from tessera.driver.plan.make_plan import Watch

        return Watch(
            on_progress=self._show, should_stop=self._should_stop, on_stage=self._show_stage
        )

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False, color=True)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if not self._searching or self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True

    def _should_stop(self) -> bool:
        self._searching = True
        return self.interrupted

    def _show_stage(self, stage: str) -> None:
        if self._visible:
            self._write(f"{stage} ..." + self.interrupted * " Ctrl-C ends without a plan")

    def _write(self, text: str) -> None:
        self._shown = True
        click.echo(f"\r\x1b[K{text}", err=True, nl=False, color=True)

    def _show(self, bound_ns: float, best_ns: float) -> None:
        self._searching = True
        now = time.monotonic()
        if not self._visible or now - self._last < _EVERY_S:
            return
        self._last = now
        best = "none yet" if best_ns == float("inf") else f"{best_ns / 1e3:.1f} us"
        gap = f", gap {best_ns / bound_ns - 1:.2%}" if bound_ns > 0 and best_ns < 1e300 else ""
        text = f"searching: best {best}, bound {bound_ns / 1e3:.1f} us{gap}; Ctrl-C keeps the best"
        self._write(text)
