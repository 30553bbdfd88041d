"""A Ray cluster over namespaces, with tokens and TLS: bytes by NIXL, and who is kept out."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.extras import need_nixl, need_ray
from tests.helpers.host_runs import random_plan
from tests.helpers.namespaces import hosts_in, namespaces, need_namespaces, processes_in

pytestmark = pytest.mark.slow
LIMIT_S = 300
CALLS = """
import sys
import tessera
plan, hosts, cluster, victim = sys.argv[1:5]
with tessera.KeptHosts(hosts, address=cluster) as kept:
    runtime = tessera.Runtime(plan, hosts=kept)
    import os, signal, ray
    from ray.actor import ActorMethod
    from tests.helpers.host_runs import backends_of, fault_of, inputs_of
    calls = []
    for owner, name in ((ray, "get"), (ray, "wait"), (ray, "put"), (ActorMethod, "remote")):
        true = getattr(owner, name)
        def counted(*words, true=true, name=name, **named):
            calls.append(name)
            return true(*words, **named)
        setattr(owner, name, counted)
    for _ in range(20):
        runtime.submit(inputs_of(runtime)).result(60)
    print("calls", len(calls))
    (backend,) = backends_of(runtime)
    victim = backend._links[victim].process.pid
    print("fault", str(fault_of(runtime, lambda: os.kill(victim, signal.SIGKILL))).splitlines()[0])
    runtime.close(wait=False)
print("nodes", sum(node["Alive"] for node in ray.nodes()) if ray.is_initialized() else "left")
"""


def certificates(folder: Path, addresses: list[str]) -> dict[str, str]:
    """A key and a certificate that all nodes share, and that is its own authority."""
    names = ",".join(f"IP:{address}" for address in [*addresses, "127.0.0.1"])
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-keyout", folder / "key.pem", "-out", folder / "cert.pem"),
            *("-subj", "/CN=tessera", "-addext", f"subjectAltName={names}"),
        ],
        check=True,
        capture_output=True,
    )
    return {
        "RAY_USE_TLS": "1",
        "RAY_TLS_SERVER_CERT": str(folder / "cert.pem"),
        "RAY_TLS_SERVER_KEY": str(folder / "key.pem"),
        "RAY_TLS_CA_CERT": str(folder / "cert.pem"),
    }


class Cluster:
    """Two namespaces with a cluster over them, and commands in the first."""

    def __init__(self, folder: Path, places: list[tuple[str, str]], around: dict[str, str]) -> None:
        self.folder, self.places = folder, places
        self.around = {**os.environ, "UCX_TLS": "tcp", **around}
        self.hosts = hosts_in(folder, ["left", "right"], places)
        self.file = str(folder / "cluster.json")

    def run(
        self, *words: str, code: tuple[str, ...] = ("-m", "tessera"), **around: str
    ) -> subprocess.CompletedProcess[str]:
        environment = {n: v for n, v in {**self.around, **around}.items() if v}
        return subprocess.run(
            ["ip", "netns", "exec", self.places[0][0], sys.executable, *code, *words],
            env=environment,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@pytest.fixture(params=[False, True], ids=["tokens", "tokens and TLS"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    need_namespaces()
    need_ray()
    need_nixl()
    if request.param and shutil.which("openssl") is None:
        pytest.skip("there is no `openssl` to make certificates with")
    with namespaces(2) as places:
        around = certificates(tmp_path, [at for _, at in places]) if request.param else {}
        made = Cluster(tmp_path, places, around)
        up = made.run("cluster", "up", made.hosts, "-o", made.file)
        assert up.returncode == 0, up.stderr
        try:
            yield made
        finally:
            down = made.run("cluster", "down", made.file)
            assert down.returncode == 0, down.stderr
            assert not any(processes_in(name) for name, _ in places)


def test_a_plan_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    plan = random_plan(tmp_path, 12, {"a": "left", "b": "right"}, steps=8)
    report = cluster.run("doctor", "--hosts", cluster.hosts, "--address", cluster.file, "--json")
    assert report.returncode == 0, report.stderr
    assert len(json.loads(report.stdout)["ways"]) == 2
    words = ("run", plan, "--hosts", cluster.hosts, "--requests", "6")
    done = cluster.run(*words, "--address", cluster.file, "--verify", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verified"]["requests"] == 6
    if "RAY_USE_TLS" in cluster.around:
        # Who does not speak TLS is kept out.
        plain = cluster.run(*words, "--address", cluster.file, RAY_USE_TLS="")
        assert plain.returncode == 4, plain.stderr
        assert "TSR5071" in plain.stderr
        return
    # No call of Ray belongs to a request; a device that is killed is named.
    done = cluster.run(plan, cluster.hosts, cluster.file, "b", code=("-c", CALLS))
    assert done.returncode == 0, done.stderr
    assert "calls 0\n" in done.stdout
    assert "device `b` on host `right`" in done.stdout
    lines = done.stdout.splitlines()  # standard output is for data: Ray says nothing there
    assert all(line.startswith(("calls ", "fault ", "nodes ")) for line in lines), done.stdout
    # Who does not have the token is kept out; the cluster goes on.
    address = json.loads(Path(cluster.file).read_text())["address"]
    wrong = cluster.run(*words, "--address", address, RAY_AUTH_TOKEN="f" * 64)
    assert wrong.returncode == 4, wrong.stderr
    assert "TSR5071" in wrong.stderr
    assert "Traceback" not in wrong.stderr
