"""Slices of a GPU in processes that die, and requests that are canceled, on a real GPU.

`check_deaths` does it in a process of its own, which is killed if it hangs: its processes of
devices end with it. `TESSERA_RANDOM_SECONDS` says how long random requests go on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tessera.backend.cuda.doctor import check_machine

MACHINE = check_machine()
SECONDS = float(os.environ.get("TESSERA_RANDOM_SECONDS", "10"))

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not MACHINE.gpus, reason=f"no GPU: {MACHINE.problem}"),
]


def checked(*options: str, limit_s: float) -> dict[str, int]:
    """What `check_deaths` has seen."""
    command = [sys.executable, "-m", "tests.gpu.check_deaths", *options]
    with subprocess.Popen(
        command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            said, _ = process.communicate(timeout=limit_s)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0
    seen: dict[str, int] = json.loads(said.splitlines()[-1])["seen"]
    return seen


@pytest.mark.parametrize(("way", "count"), [((), 20), (("--far",), 8)])
def test_deaths(way: tuple[str, ...], count: int) -> None:
    seen = checked("deaths", "--count", str(count), *way, limit_s=120 + 30 * count)
    assert sum(seen.values()) == count
    assert seen.get("fault, fault", 0) == count // 4
    assert seen.get("kill, fault", 0) + seen.get("stop, fault", 0) > 0


@pytest.mark.parametrize("way", [(), ("--far",)])
def test_random_requests_and_cancellations(way: tuple[str, ...]) -> None:
    seconds = SECONDS if not way else min(SECONDS, 10.0)
    seen = checked("requests", "--seconds", str(seconds), *way, limit_s=180 + 2 * seconds)
    assert seen["right"] > 10
    assert seen["canceled"] > 0
