"""Plans on processes that stand for hosts: bytes, and every fault by name."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import stat
import sys
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import Severity, TesseraError
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.run.open_plan import open_plan
from tessera.driver.run.runtime import Runtime
from tessera.frontend.machine.hosts_file import parse_hosts
from tests.helpers.command import tessc
from tests.helpers.host_runs import (
    LIMIT_S,
    backends_of,
    fault_of,
    hosts_file,
    inputs_of,
    random_plan,
)

HOSTS = {"a": "left", "b": "left", "c": "right"}
TWO = ('name = "left"', 'name = "right"')


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> str:
    return random_plan(tmp_path_factory.mktemp("plan"), 12, HOSTS, steps=8)


def test_the_bytes_of_one_device(plan: str, tmp_path: Path) -> None:
    """Three devices on two hosts, puts between them and sends inside one; states too.

    One host has an odd name and an address of IPv6, the other a clock that is ten minutes ahead.
    """
    assert " put " in Path(plan).read_text()
    odd = f'name = "le ft`\'é $(id) ../"\ndevices = ["a", "b"]\naddress = "{loopback()}"'
    late = f'name = "right"\npython = "{script(tmp_path, CLOCK_AHEAD)}"\naddress = "{loopback()}"'
    hosts = hosts_file(tmp_path, odd, late)
    events = tmp_path / "events.json"
    words = ("--requests", "5", "--verify", "--json", "--timeline", str(events))
    done = tessc("run", plan, "--hosts", hosts, *words)
    assert done.code == 0, done.err
    assert json.loads(done.text)["verified"]["requests"] == 5
    ends = [e["ts"] + e["dur"] for e in json.loads(events.read_text())["traceEvents"] if "dur" in e]
    assert ends
    assert max(ends) < 500e6, "the clocks are aligned"


@pytest.mark.slow
def test_a_plan_without_nodes_goes_where_devices_are_listed(tmp_path: Path) -> None:
    plan = random_plan(tmp_path, 9, {"a": "", "b": ""})
    assert " put " not in Path(plan).read_text()
    hosts = hosts_file(tmp_path, 'name = "x"\ndevices = ["a"]', 'name = "y"\ndevices = ["b"]')
    with Runtime(plan, hosts=hosts) as runtime:
        (backend,) = backends_of(runtime)
        assert backend.model.lowered.landings
        assert runtime.plan.cards[0].node == "x"
        runtime.submit(inputs_of(runtime)).result(LIMIT_S)


STOP = pytest.param(signal.SIGSTOP, "has not answered", marks=pytest.mark.slow)


@pytest.mark.parametrize(("how", "words"), [(signal.SIGKILL, "ended by signal 9"), STOP])
def test_a_process_that_is_gone_or_stopped(
    plan: str, tmp_path: Path, how: signal.Signals, words: str
) -> None:
    # One that is killed is missed at once; a busy machine keeps the others silent for a while.
    silent = "600ms" if how is signal.SIGSTOP else "60s"
    hosts = KeptHosts(hosts_file(tmp_path, *TWO, head=f'silent = "{silent}"\n'))
    runtime = Runtime(plan, hosts=hosts)
    (backend,) = backends_of(runtime)
    processes = {device: link.process for device, link in backend._links.items()}
    inputs = inputs_of(runtime)
    before = [dict(runtime.submit(inputs).result(LIMIT_S)) for _ in range(3)]
    problem = fault_of(runtime, lambda: os.kill(processes["c"].pid, how))
    runtime.close(wait=False)
    assert isinstance(problem, ServiceFault)
    (found,) = problem.diagnostics
    assert found.code == "TSR5072"
    assert "device `c` on host `right`" in str(found.headline)
    assert words in str(found.headline)
    assert any("queue" in note or "request" in note for note in found.notes)
    # The others stay for the next run, with nothing of this one.
    kept = sorted(processes[device].pid for device in "ab")
    assert sorted(hosts.processes()) == kept
    with Runtime(plan, hosts=hosts) as again:
        for known in before:
            result = again.submit(inputs).result(LIMIT_S)
            assert all(np.array_equal(result[name], known[name]) for name in known)
    assert set(kept) < set(hosts.processes())
    ended = [link.process for link in hosts.pool._idle]
    hosts.close()
    assert all(process.poll() is not None for process in [*processes.values(), *ended])


def loopback() -> str:
    """The address of this machine, of IPv6 where it has one."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return "::1"
    except OSError:
        return "127.0.0.1"


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


CLOCK_AHEAD = """
import time
real_s, real_ns, wall_s = time.monotonic, time.monotonic_ns, time.time
time.monotonic = lambda: real_s() + 600
time.monotonic_ns = lambda: real_ns() + 600 * 10**9
time.time = lambda: wall_s() + 600
from tessera.driver.hosts.device_process import main
main()
"""
OTHER_VERSION = """
import json, struct, sys, time
head = json.dumps({"kind": "hello", "version": "99.1", "pid": 1}).encode()
sys.stdout.buffer.write(b"welcome\\n\\x00tessera-channel/1\\n")
sys.stdout.buffer.write(struct.pack("<II", len(head), 0) + head)
sys.stdout.flush()
time.sleep(60)
"""
NOISE = "print('no such command here'); import sys; sys.exit(3)"
GARBAGE = """
import sys
sys.stdout.buffer.write(b"\\x00tessera-channel/1\\n" + bytes(range(256)) * 64)
"""


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (OTHER_VERSION, "host `right` has version 99.1 of Tessera"),
        (NOISE, "ended with exit code 3"),
        (GARBAGE, "device `c` on host `right` cannot be started"),
    ],
)
def test_what_cannot_take_part(plan: str, tmp_path: Path, text: str, what: str) -> None:
    row = f'name = "right"\npython = "{script(tmp_path, text)}"'
    done = tessc("run", plan, "--hosts", hosts_file(tmp_path, TWO[0], row), "--requests", "1")
    assert done.code == 4
    assert "error[TSR5071]" in done.err
    assert what in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ('name = "right"\npython = "/no/such/python"', "no such file or directory"),
        pytest.param(
            'name = "right"\naddress = "192.0.2.7"', "cannot be set up", marks=pytest.mark.slow
        ),
        ('name = "right"\ncommand = "false"', "ended with exit code 1"),
    ],
)
def test_hosts_that_cannot_be_used(plan: str, tmp_path: Path, row: str, what: str) -> None:
    hosts = hosts_file(tmp_path, TWO[0], row)
    with pytest.raises(TesseraError) as caught:
        Runtime(plan, hosts=hosts)
    (found,) = caught.value.diagnostics
    assert found.code == "TSR5071"
    assert what in str(found.headline)
    assert "right" in str(found.headline) or "right" in str(found.notes)


def test_a_host_that_no_device_uses_is_reported(plan: str, tmp_path: Path) -> None:
    rows = (*TWO, 'name = "rihgt"')
    table = parse_hosts(Path(hosts_file(tmp_path, *rows)).read_text(), "hosts.toml")
    (found,) = open_plan(plan, hosts=table).diagnostics
    assert (found.code, found.severity) == ("TSR5074", Severity.WARNING)
    assert "host `rihgt` of `hosts.toml` has no device" in str(found.headline)
    assert "`left`, `right`" in str(found.hint)
    whole = parse_hosts(Path(hosts_file(tmp_path, *TWO)).read_text(), "hosts.toml")
    assert not open_plan(plan, hosts=whole).diagnostics


@pytest.mark.skipif(importlib.util.find_spec("cuda") is not None, reason="there may be GPUs")
def test_hosts_without_gpus(plan: str, tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, *TWO)
    done = tessc("run", plan, "--hosts", hosts, "--backend", "cuda")
    assert done.code == 4
    assert "TSR5100" in done.err
    assert "on host `" in done.err
