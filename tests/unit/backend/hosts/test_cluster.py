"""Clusters without Ray: files, labels, and what cannot be."""

from __future__ import annotations

import importlib.util
import os
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.hosts.cluster import start_cluster
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.driver.hosts.node_process import MARK, _end_all, _members
from tessera.driver.hosts.ray_launcher import RayLauncher, label_of
from tessera.driver.hosts.running_cluster import (
    ClusterNode,
    RunningCluster,
    cluster_text,
    find_cluster,
    parse_cluster,
)
from tessera.frontend.machine.hosts_file import parse_hosts
from tessera.ir.plan.hosts import HostEntry
from tessera.output import Kind, write_file
from tests.helpers.command import tessc
from tests.helpers.host_runs import hosts_file

NODE = ClusterNode(
    host=HostEntry(name="höst 1", command=("ssh", "a b"), address="fd00::1", python="/x/python"),
    pid=7,
    mark="beef",
)
CLUSTER = RunningCluster(address="[fd00::1]:6379", token="secret", nodes=(NODE,))
WITHOUT_RAY = importlib.util.find_spec("ray") is None


def test_a_cluster_is_the_same_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    path.write_text("")
    write_file(str(path), cluster_text(CLUSTER).encode(), Kind.CLUSTER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600  # it has the token
    assert find_cluster(str(path)) == CLUSTER


@pytest.mark.parametrize("given", ["10.0.0.1:6379", "[fd00::1]:6379", "node-1:80", "auto"])
def test_addresses(given: str) -> None:
    assert find_cluster(given) == RunningCluster(address=given)


@pytest.mark.parametrize("given", ["10.0.0.1", "ray://a:1", "a:b", "", "cluster.json", "a b:1"])
def test_what_is_no_address(given: str) -> None:
    with pytest.raises(TesseraError, match="TSR3005"):
        find_cluster(given)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[1]",
        '{"schema": "tessera-cluster/9"}',
        '{"schema": "tessera-cluster/1"}',
        "[" * 9,
    ],
)
def test_what_is_no_file_of_a_cluster(text: str) -> None:
    with pytest.raises(TesseraError, match="no file of a cluster"):
        parse_cluster(text, "x.json")


def test_labels() -> None:
    assert label_of("left-1") == "left-1"
    odd = [label_of(name) for name in ("höst", "a b", "-a", "a" * 80)]
    assert all(name.isalnum() and len(name) < 63 for name in odd)
    assert len(set(odd)) == 4


def node(name: str, address: str, label: str | None, *, alive: bool = True) -> dict[str, object]:
    labels = {} if label is None else {"tessera-host": label}
    return {"NodeID": name, "NodeManagerAddress": address, "Labels": labels, "Alive": alive}


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([node("1", "10.0.0.9", "left"), node("2", "10.0.0.1", "right")], "1"),
        ([node("1", "10.0.0.9", "other"), node("2", "10.0.0.1", None)], "2"),
        ([node("1", "10.0.0.9", "left", alive=False), node("2", "10.0.0.9", "left")], "2"),
        ([node("1", "10.0.0.8", "left"), node("2", "10.0.0.9", "left")], "2 nodes of"),
        ([node("1", "10.0.0.9", None)], "no node of the Ray cluster has the label"),
        ([], "no node of the Ray cluster has the label"),
    ],
)
def test_a_device_goes_to_the_node_with_its_label_or_address(
    nodes: list[dict[str, object]], wanted: str
) -> None:
    launcher = RayLauncher.__new__(RayLauncher)
    launcher._ray = SimpleNamespace(nodes=lambda: nodes)
    host = HostEntry(name="left", address="10.0.0.1")
    if wanted.isdecimal():
        assert launcher._node(host) == wanted
    else:
        with pytest.raises(TesseraError, match=wanted):
            launcher._node(host)


def test_nodes_have_addresses_of_their_own() -> None:
    table = parse_hosts('[[host]]\nname = "a"\n[[host]]\nname = "b"\n')
    with pytest.raises(TesseraError, match="same address"):
        start_cluster(table, lambda text: None)


@pytest.mark.skipif(not WITHOUT_RAY, reason="Ray is installed")
def test_without_the_extra_one_message_says_how_to_get_it(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, 'name = "left"')
    with pytest.raises(TesseraError) as caught:
        KeptHosts(hosts, address="127.0.0.1:1")
    (found,) = caught.value.diagnostics
    assert found.code == "TSR5071"
    assert found.hint == "pip install 'tessera-compiler[hosts]'"
    done = tessc("cluster", "up", hosts, "-o", str(tmp_path / "c.json"))
    assert done.code == 4
    assert "pip install 'tessera-compiler[hosts]'" in done.err
    assert not (tmp_path / "c.json").exists()


def test_down_ends_what_has_the_mark_and_its_session_and_nothing_else() -> None:
    if not os.path.exists("/proc/self/environ"):
        pytest.skip("there is no /proc")
    words = ["sh", "-c", "env -i sleep 60 & exec sleep 60"]
    ours, other = (
        subprocess.Popen(words, env={**os.environ, MARK: mark}, start_new_session=True)
        for mark in ("beef", "cafe")
    )
    try:
        while len(_members("beef", set())) < 2:
            assert ours.poll() is None
        assert _end_all("beef") == 2
        assert not _members("beef", {ours.pid})
        assert other.poll() is None
    finally:
        _end_all("cafe")
        ours.wait()
        other.wait()


def test_a_node_that_has_not_answered_is_ended_too(tmp_path: Path) -> None:
    python, log = tmp_path / "python", tmp_path / "log"
    python.write_text(f"""#!{sys.executable}
import os, sys
sys.path[:0] = {[p for p in sys.path if p]!r}
from tessera.backend.hosts.messages import Hello
from tessera.driver.hosts.device_process import standard_channel
from tessera.driver.hosts.node_process import TO_NODE, NodeEnded, NodeUp
from tessera.ir.version import __version__
channel = standard_channel(TO_NODE)
channel.start()
channel.send(Hello(__version__, 1))
asked, _ = channel.receive()
with open({str(log)!r}, "a") as stream:
    stream.write(type(asked).__name__ + " " + asked.mark + "\\n")
if isinstance(asked, NodeUp):
    sys.exit("the line is cut")
channel.send(NodeEnded(1))
""")
    python.chmod(0o755)
    hosts = hosts_file(tmp_path, f'name = "left"\npython = "{python}"')
    done = tessc("cluster", "up", hosts, "-o", str(tmp_path / "c.json"))
    assert done.code == 4
    assert "the line is cut" in done.err
    (up, mark), (down, other) = (line.split() for line in log.read_text().splitlines())
    assert (up, down) == ("NodeUp", "NodeDown")
    assert mark == other


def test_bad_commands(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, 'name = "left"\ncommand = "false"')
    output = str(tmp_path / "c.json")
    done = tessc("cluster", "up", hosts, "-o", output)
    assert done.code == 4
    assert "the node of host `left`" in done.err
    assert tessc("cluster", "up", hosts, "-o", hosts).code != 0  # not over an input
    assert "name" in Path(hosts).read_text()
    assert tessc("cluster", "down", hosts).code == 2
    assert tessc("run", "plan.tsp", "--address", "a:1").code == 2


def test_the_file_of_a_cluster_is_kept_until_it_is_ended(tmp_path: Path) -> None:
    hosts = hosts_file(tmp_path, 'name = "left"')
    output = tmp_path / "c.json"
    output.write_text(cluster_text(RunningCluster(address="10.0.0.1:6379", token="t")))
    done = tessc("cluster", "up", hosts, "-o", str(output))
    assert done.code == 2
    assert f"`tessc cluster down {output}` ends it" in done.err
    assert tessc("cluster", "down", str(output)).code == 0
    assert not output.exists()


@pytest.mark.parametrize("fault", ["wrong", "missing", "other"])
def test_a_wrong_token_is_reported_before_ray_is_asked_to_join(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AuthenticationError(Exception):
        pass

    joined: list[object] = []

    def refuse(problem: Exception | None) -> None:
        if problem is not None:
            raise problem

    def client(address: str) -> None:
        refuse({"wrong": AuthenticationError("no"), "other": OSError("slow")}.get(fault))

    missing = AuthenticationError("no token") if fault == "missing" else None
    modules = {
        "ray": SimpleNamespace(
            is_initialized=lambda: False, init=lambda **named: joined.append(named)
        ),
        "ray.exceptions": SimpleNamespace(AuthenticationError=AuthenticationError),
        "ray._raylet": SimpleNamespace(GcsClient=client),
        "ray._private.worker": SimpleNamespace(),
        "ray._private.services": SimpleNamespace(canonicalize_bootstrap_address=str),
        "ray._private.authentication.authentication_token_setup": SimpleNamespace(
            ensure_token_if_auth_enabled=lambda **named: refuse(missing)
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    if fault == "other":  # then joining says what is wrong
        RayLauncher(RunningCluster(address="auto"))
        assert len(joined) == 1
        return
    with pytest.raises(TesseraError, match="refuses the token of this command") as caught:
        RayLauncher(RunningCluster(address="auto"))
    (found,) = caught.value.diagnostics
    assert found.code == "TSR5071"
    assert "RAY_AUTH_TOKEN" in str(found.hint)
    assert not joined
