"""Plans on hosts in network namespaces: bytes over TCP, and a cable that is cut."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pytest

from benchmarks.hosts.fresh_faults import copies, tool
from tessera.backend.service import ServiceFault
from tessera.driver.run.runtime import Runtime
from tessera.frontend.trace.read_trace import parse_trace
from tests.helpers.command import tessc
from tests.helpers.extras import need_nixl
from tests.helpers.fake_gpu_python import assert_bytes_of_one_device, fake_gpu_python
from tests.helpers.host_runs import backends_of, fault_of, inputs_of, random_plan
from tests.helpers.namespaces import (
    hosts_in,
    ip,
    namespaces,
    need_namespaces,
    of_six,
    processes_in,
)
from tests.helpers.plan_files import plan_of, write_plan

pytestmark = pytest.mark.slow


NIXL = 'transport = "nixl"\n'


@pytest.fixture(params=["tcp", "nixl"])
def head(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The head of a file of hosts. Without its variable UCX takes shared memory here."""
    need_namespaces()
    if request.param == "tcp":
        return ""
    need_nixl()
    monkeypatch.setenv("UCX_TLS", "tcp")
    return NIXL


@pytest.mark.parametrize("count", [2, 3])
def test_the_bytes_of_one_device(count: int, tmp_path: Path, head: str) -> None:
    hosts = ["left", "right", "third"][:count]
    plan = random_plan(tmp_path, 12, dict(zip("abc", [*hosts, "left"], strict=False)), steps=8)
    with namespaces(count) as places:
        path = hosts_in(tmp_path, hosts, places, head)
        done = tessc("run", plan, "--hosts", path, "--requests", "6", "--verify", "--json")
        assert done.code == 0, done.err
        assert json.loads(done.text)["verified"]["requests"] == 6
        assert not any(processes_in(name) for name, _ in places)


def test_gpus_of_two_hosts(tmp_path: Path, head: str) -> None:
    """Stand-ins for the driver in two namespaces: bytes go through pinned memory."""
    plan = random_plan(tmp_path, 12, {"a": "left", "b": "right"}, steps=8)
    with namespaces(2) as places:
        rows = hosts_in(tmp_path, ["left", "right"], places, head + 'silent = "5s"\n')
        python = fake_gpu_python(tmp_path)
        path = Path(rows)
        path.write_text(path.read_text().replace("address =", f'python = "{python}"\naddress ='))
        with Runtime(plan, hosts=rows, backend="cuda") as runtime:
            assert_bytes_of_one_device(runtime, backends_of(runtime)[0].model)
        assert not any(processes_in(name) for name, _ in places)


def test_addresses_of_six(tmp_path: Path) -> None:
    need_namespaces()
    plan = random_plan(tmp_path, 12, {"a": "left", "b": "right"}, steps=8)
    with namespaces(2) as places:
        path = hosts_in(tmp_path, ["left", "right"], of_six(places))
        done = tessc("run", plan, "--hosts", path, "--requests", "2", "--verify")
        assert done.code == 0, done.err


def test_a_cut_cable(tmp_path: Path, head: str) -> None:
    plan = random_plan(tmp_path, 12, {"a": "left", "b": "right"}, steps=8)
    with namespaces(2) as places:
        runtime = Runtime(plan, hosts=hosts_in(tmp_path, ["left", "right"], places, head))
        cable = places[1][0]
        problem = fault_of(runtime, lambda: ip("-n", cable, "link", "set", "eth0", "down"))
        runtime.close(wait=False)
        assert isinstance(problem, ServiceFault)
        (found,) = problem.diagnostics
        assert found.code == "TSR5072"
        assert "has lost device" in str(found.headline)
        assert "host `left`" in str(found.headline)
        assert "host `right`" in str(found.headline)
        assert not any(processes_in(name) for name, _ in places)


def test_a_slow_link_is_no_fault(tmp_path: Path, head: str) -> None:
    """Acknowledgements wait behind bytes for longer than a cut takes to be noticed."""
    if shutil.which("tc") is None:
        pytest.skip("there is no `tc` to make a link slow with")
    program = parse_trace(copies(), "copies.ptx")
    steps = ["ab"[n % 2] for n in range(len(program.steps))]
    plan = write_plan(tmp_path, plan_of([program], [steps], hosts={"a": "left", "b": "right"}))
    with (
        namespaces(2) as places,
        Runtime(plan, hosts=hosts_in(tmp_path, ["left", "right"], places, head)) as runtime,
    ):
        inputs = inputs_of(runtime)
        wanted = dict(runtime.submit(inputs).result(60))["y"]
        slow = ["rate", "800kbit", "burst", "4kb", "limit", "1mb"]
        tool(places[0][0], "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *slow)
        handles = [runtime.submit(inputs, sequence=n % 2) for n in range(2)]
        time.sleep(2.0)
        tool(places[0][0], "tc", "qdisc", "del", "dev", "eth0", "root")
        for handle in handles:
            assert np.array_equal(dict(handle.result(60))["y"], wanted)
