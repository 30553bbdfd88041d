"""Silent processes: which of them stand still."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tessera.backend.processes.pulse import Pulse, can_run

LOOKS = 5

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc")


@contextmanager
def program(text: str) -> Iterator[int]:
    """A Python process that has said that it begins."""
    with subprocess.Popen(
        [sys.executable, "-c", f"print(flush=True)\n{text}"], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def looks(pulse: Pulse, sign: object, count: int) -> list[bool]:
    """What so many looks at the same sign of life say."""
    return [pulse.stands_still(sign) for _ in range(count)]


def wait_until_stopped(process: int) -> None:
    """Wait until the system has stopped all threads of a process."""
    while can_run(process):
        time.sleep(0.01)


def test_a_stopped_process_stands_still_after_some_looks() -> None:
    with program("while True: pass") as process:
        pulse = Pulse(process)
        assert looks(pulse, 1, 1 + LOOKS) == [False] * (1 + LOOKS)
        os.kill(process, signal.SIGSTOP)
        wait_until_stopped(process)
        assert pulse.stands_still(1)
        assert not pulse.stands_still(2), "a sign of life"
        assert looks(pulse, 2, LOOKS) == [False] * (LOOKS - 1) + [True]


def test_a_busy_process_is_alive_however_silent() -> None:
    with program("while True: pass") as process:
        assert not any(looks(Pulse(process), 1, 10 * LOOKS))


def test_a_thread_that_can_run_is_found_among_those_that_sleep() -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,)).start()\n"
    with program(code + "while True: pass") as process:
        assert can_run(process)


def test_a_process_whose_threads_all_sleep_stands_still() -> None:
    with program("import time\ntime.sleep(60)") as process:
        wait_until_stopped(process)
        assert looks(Pulse(process), 1, 1 + LOOKS)[-1]


def test_a_process_that_is_gone_is_left_to_its_pipe() -> None:
    with program("pass") as process:
        os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT)
        pulse = Pulse(process)
    assert not any(looks(pulse, 1, 2 * LOOKS))
