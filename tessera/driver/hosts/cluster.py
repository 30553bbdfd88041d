"""`tessc cluster up` and `down`: a Ray cluster on the hosts of a file.

In: a `HostTable`; a `RunningCluster`. Out: the cluster; how many processes were ended. The first
host is the head. Every node is started by the command of its host, and gets the token over standard
input, so that the token is on no command line. After a fault, nodes that were started are ended
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from tessera.backend.hosts.channel import BadMessage, ChannelClosed, ControlChannel
from tessera.backend.hosts.launchers import CommandProcess
from tessera.backend.hosts.messages import Hello
from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.driver.hosts.node_process import (
    FROM_NODE,
    NodeDown,
    NodeEnded,
    NodeFailed,
    NodeRuns,
    NodeUp,
)
from tessera.driver.hosts.ray_launcher import LABEL, label_of
from tessera.driver.hosts.running_cluster import ClusterNode, RunningCluster, bad_cluster
from tessera.ir.plan.hosts import INSTALL_HOSTS, HostEntry, HostTable
from tessera.ir.version import __version__

NODE_MODULE = "tessera.driver.hosts.node_process"
_END_S = 2.0

Tell = Callable[[str], None]


def start_cluster(table: HostTable, tell: Tell, *, tokens: bool = True) -> RunningCluster:
    """Start a node on every host."""
    _check_addresses(table)
    cluster = RunningCluster(address="", token=secrets.token_hex(32) if tokens else "")
    begun: list[ClusterNode] = []
    try:
        for host in table.hosts:
            mark = secrets.token_hex(8)
            begun.append(ClusterNode(host=host, pid=0, mark=mark))
            label = f"{LABEL}={label_of(host.name)}"
            asked = NodeUp(host.address, cluster.address, label, cluster.token, mark)
            answer = _ask(host, asked)
            if isinstance(answer, NodeFailed):
                raise _not_started(host, answer.why, INSTALL_HOSTS if answer.install else None)
            if not isinstance(answer, NodeRuns):
                raise _strange(host, answer)
            node = ClusterNode(host=host, pid=answer.pid, mark=mark)
            cluster = replace(cluster, address=answer.address, nodes=(*cluster.nodes, node))
            tell(f"{host.name}: a node runs at {host.address}")
    except BaseException:
        # Includes the host that has not answered: its node may still start.
        stop_cluster(replace(cluster, nodes=tuple(begun)), tell)
        raise
    return cluster


def stop_cluster(cluster: RunningCluster, tell: Tell) -> list[TesseraError]:
    """End every node, the head last; returns the errors."""
    problems = []
    for node in reversed(cluster.nodes):
        try:
            answer = _ask(node.host, NodeDown(node.mark))
            if not isinstance(answer, NodeEnded):
                raise _strange(node.host, answer)
            tell(f"{node.host.name}: {answer.ended} processes ended")
        except TesseraError as problem:
            problems.append(problem)
    return problems


def _check_addresses(table: HostTable) -> None:
    """Refuse equal addresses, since Ray tells nodes apart by address."""
    seen: dict[str, str] = {}
    for host in table.hosts:
        other = seen.setdefault(host.address, host.name)
        if other != host.name:
            raise bad_cluster(
                f"hosts `{other}` and `{host.name}` have the same address `{host.address}`",
                "every node of a cluster has an `address` of its own",
            )


def _ask(host: HostEntry, asked: NodeUp | NodeDown) -> object:
    """The answer of a host's process."""
    try:
        process = CommandProcess(host, NODE_MODULE)
    except OSError as problem:
        raise _not_started(host, (problem.strerror or str(problem)).lower(), None) from None
    channel = ControlChannel(process.source, process.target, FROM_NODE)
    try:
        channel.await_start()
        hello, _ = channel.receive()
        if not isinstance(hello, Hello):
            raise _strange(host, hello)
        if hello.version != __version__:
            raise _not_started(
                host,
                f"it has version {hello.version} of Tessera, and this is {__version__}",
                "install the same version on every host",
            )
        channel.send(asked)
        answer, _ = channel.receive()
        return answer
    except (ChannelClosed, BadMessage) as problem:
        said = process.said() or str(problem)
        raise _not_started(host, said, None) from None
    finally:
        process.close_target()
        process.end(_END_S)
        process.close_source()


def _strange(host: HostEntry, answer: object) -> TesseraError:
    return _not_started(host, f"it answers with `{type(answer).__name__}`", None)


def _not_started(host: HostEntry, why: str, hint: str | None) -> TesseraError:
    command = " ".join(host.command)
    return TesseraError(
        error(
            "TSR5071",
            f"the node of host `{host.name}` cannot be started or ended: {why}",
            notes=(f"the command of the host is `{command}`",) if command else (),
            hint=hint,
        ),
        ExitCode.NO_DEVICE,
    )
