"""What is shown while a command works: one line on a terminal, nothing in a pipe."""

from __future__ import annotations

import io
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tessera.cli.console import Messages
from tessera.cli.progress import PlanProgress, Progress
from tessera.ir.progress import StageProgress

HIDE_CURSOR = "\x1b[?25l"
ERASE = "\x1b[2K"


class Terminal:
    """A terminal in place of standard error."""

    def __init__(self) -> None:
        self.main, self.side = pty.openpty()
        os.set_blocking(self.main, False)
        self.stream = os.fdopen(os.dup(self.side), "w")

    def take_over(self) -> None:
        """Be standard error from now on; pytest takes it back when the test ends."""
        sys.stderr = self.stream

    def text(self) -> str:
        """What has been written since the last time."""
        self.stream.flush()
        parts = []
        try:
            while part := os.read(self.main, 65536):
                parts.append(part)
        except BlockingIOError:
            pass
        return b"".join(parts).decode()

    def close(self) -> None:
        """Give it back."""
        self.stream.close()
        os.close(self.side)
        os.close(self.main)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    made = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    yield made
    made.close()


def test_a_count_is_shown_and_taken_back(terminal: Terminal) -> None:
    terminal.take_over()
    with Progress(Messages(), "reading") as shown:
        shown.begin()
        first = terminal.text()
        assert "reading" in first
        assert "/" not in first
        shown.hear(StageProgress("running", 3, 8, "steps"))
        _refresh(shown)
        assert "3/8 steps" in terminal.text()
        shown.hear(StageProgress("loading", 1_500_000, 3_000_000_000, "bytes"))
        _refresh(shown)
        assert "1.5 MB of 3.0 GB" in terminal.text()
        shown.hear(StageProgress("proving", note="8 steps"))
        _refresh(shown)
        said = terminal.text()
        assert "proving: 8 steps" in said
        assert "GB" not in said
    last = terminal.text()
    assert last.endswith(ERASE)
    assert HIDE_CURSOR not in first + last


def test_names_are_text_and_fit_one_line(terminal: Terminal) -> None:
    terminal.take_over()
    with Progress(Messages(), "analysing [red]x[/red]\x1b[2J" + "long" * 50) as shown:
        shown.begin()
    written = terminal.text()
    assert "[red]x[/red]\ufffd[2J" in written
    assert "\x1b[2J" not in written
    assert "\x1b[1A" not in written.replace("\x1b[1A" + ERASE, "", 1), "more than a line"


def test_no_colour_where_nobody_wants_it(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.take_over()
    for messages, environment in ((Messages("never"), ""), (Messages(), "1")):
        monkeypatch.setenv("NO_COLOR", environment)
        with Progress(messages, "running") as shown:
            shown.begin()
            shown.hear(StageProgress("running", 3, 8, "steps"))
            _refresh(shown)
        written = terminal.text()
        assert "3/8 steps" in written
        assert "\x1b[3" not in written


@pytest.mark.parametrize("form", ["full", "json"])
def test_nothing_is_shown_in_a_pipe_or_beside_json(
    form: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.take_over()
    stream = terminal.stream if form == "json" else io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr("tessera.cli.progress._DELAY_S", 0.0)
    with Progress(Messages(form=form), "running") as shown:
        assert shown._timer is None
        shown.hear(StageProgress("more", 1, 2))
    assert terminal.text() == ""
    assert form == "json" or stream.getvalue() == ""  # type: ignore[union-attr]


def test_what_ends_at_once_shows_nothing(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.take_over()
    monkeypatch.setattr("tessera.cli.progress._DELAY_S", 3600.0)
    with Progress(Messages(), "running") as shown:
        shown.hear(StageProgress("more", 1, 2))
    shown.begin()  # as a timer that was too late to be stopped
    assert terminal.text() == ""


def test_a_failure_takes_the_line_back(terminal: Terminal) -> None:
    terminal.take_over()
    shown = Progress(Messages(), "running")
    shown.begin()
    with pytest.raises(KeyboardInterrupt), shown:
        signal.raise_signal(signal.SIGINT)
    assert terminal.text().endswith(ERASE)
    assert sys.stderr is terminal.stream


def test_the_search_is_shown(terminal: Terminal) -> None:
    terminal.take_over()
    with PlanProgress(Messages()) as shown:
        shown.begin()
        heard = shown.listen()
        assert not heard.stopped()
        heard.tell_search(0.0, float("inf"))
        _refresh(shown)
        assert "searching: best none yet, bound 0 ns; Ctrl-C" in terminal.text()
        heard.tell_search(100_000.0, 120_000.0)
        _refresh(shown)
        assert "best 120.0 us, bound 100.0 us, gap 20.00%; Ctrl-C keeps" in terminal.text()


def test_the_stage_after_an_interrupt_says_what_another_one_does(terminal: Terminal) -> None:
    terminal.take_over()
    with PlanProgress(Messages()) as shown:
        shown.begin()
        heard = shown.listen()
        assert not heard.stopped()
        heard.tell("proving")
        _refresh(shown)
        assert "proving: Ctrl-C keeps the best" in terminal.text()
        signal.raise_signal(signal.SIGINT)
        _refresh(shown)
        assert "stopping: the best plan so far" in terminal.text()
        assert heard.stopped()
        heard.tell("proving")
        _refresh(shown)
        assert "stopping: proving: Ctrl-C ends without a plan" in terminal.text()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_before_the_search_and_twice() -> None:
    before = signal.getsignal(signal.SIGINT)
    watch = PlanProgress(Messages())
    with pytest.raises(KeyboardInterrupt), watch:
        signal.raise_signal(signal.SIGINT)
    with watch:
        heard = watch.listen()
        assert heard.should_stop is not None
        assert not heard.should_stop()
        signal.raise_signal(signal.SIGINT)
        assert heard.should_stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert watch.interrupted
    assert signal.getsignal(signal.SIGINT) is before


def test_a_plan_that_is_kept_is_not_waited_for() -> None:
    with PlanProgress(Messages()) as watch:
        assert not watch.listen().stopped()
        watch.keep()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert watch.interrupted
    with PlanProgress(Messages()) as watch:
        assert not watch.listen().stopped()
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            watch.keep()


def _refresh(shown: Progress) -> None:
    assert shown._bar is not None
    shown._bar.refresh()


# --- a command ---------------------------------------------------------------------------------

SLOW = """
import sys, time
import tessera.cli.main as main, tessera.driver.analyze as driver
driver.analyze = lambda *given, **named: time.sleep(600)
sys.exit(main.run(["analyze", "slow.ptx"]))
"""


def test_ctrl_c_leaves_a_clean_terminal() -> None:
    main, side = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    command = [sys.executable, "-c", SLOW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=side, env=environment) as slow:
        os.close(side)
        written = b""
        while b"reading slow.ptx" not in written:
            written += os.read(main, 65536)
        slow.send_signal(signal.SIGINT)
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # Linux says that the other side is closed in this way
                break
            if not part:
                break
            written += part
        os.close(main)
        assert slow.stdout is not None
        assert slow.stdout.read() == b""
        assert slow.wait() == 130
    text = written.decode()
    assert text.endswith(ERASE + "\r\n")  # click begins a new line after Ctrl-C
    assert HIDE_CURSOR not in text
    assert "Traceback" not in text
