"""A running cluster: its address, its token, and the nodes that `tessc cluster up` started.

In: an address as typed, or a file that `tessc cluster up` wrote. Out: a `RunningCluster`, and its
text. The file has the token and commands, so it has to be kept secret, and only a trusted file may
be used.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Literal

import msgspec

from tessera.diagnostics import ExitCode, TesseraError, error
from tessera.frontend.text.readfile import read_source
from tessera.ir.plan.hosts import HostEntry

_ADDRESS = re.compile(r"auto|(\[[0-9A-Fa-f:]+\]|[^\s:/]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """A node that was started: its host, and the process that keeps it."""

    host: HostEntry
    pid: int
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCluster:
    """A cluster. Without a token, Ray looks for one; without nodes, Tessera did not start it."""

    address: str
    token: str = ""
    nodes: tuple[ClusterNode, ...] = ()


def find_cluster(given: str) -> RunningCluster:
    """The cluster of `--address`: `HOST:PORT`, `auto`, or a file of `tessc cluster up`."""
    if os.path.exists(given):
        return parse_cluster(read_source(given).text, given)
    if not _ADDRESS.fullmatch(given):
        raise bad_cluster(
            f"`{given}` is no address of a cluster, and no file",
            "write `HOST:PORT`, `auto`, or the file that `tessc cluster up` wrote",
        )
    return RunningCluster(address=given)


class _NodeRow(msgspec.Struct, frozen=True):
    host: str
    command: tuple[str, ...]
    address: str
    python: str
    pid: int
    mark: str


class _ClusterFile(msgspec.Struct, frozen=True):
    """The format of a cluster file."""

    schema: Literal["tessera-cluster/1"]
    address: str
    token: str
    nodes: tuple[_NodeRow, ...]


def cluster_text(cluster: RunningCluster) -> str:
    """The text of a cluster file."""
    rows = tuple(
        _NodeRow(n.host.name, n.host.command, n.host.address, n.host.python, n.pid, n.mark)
        for n in cluster.nodes
    )
    record = _ClusterFile("tessera-cluster/1", cluster.address, cluster.token, rows)
    return json.dumps(msgspec.to_builtins(record), indent=2) + "\n"


def parse_cluster(text: str, name: str) -> RunningCluster:
    """The cluster that a file describes."""
    try:
        record = msgspec.json.decode(text.encode(), type=_ClusterFile)
    except (ValueError, RecursionError):
        raise bad_cluster(
            f"`{name}` is no file of a cluster", "`tessc cluster up` writes such a file"
        ) from None
    nodes = [
        ClusterNode(
            host=HostEntry(
                name=row.host, command=row.command, address=row.address, python=row.python
            ),
            pid=row.pid,
            mark=row.mark,
        )
        for row in record.nodes
    ]
    return RunningCluster(address=record.address, token=record.token, nodes=tuple(nodes))


def check_free(path: str) -> None:
    """Raise if a file describes a cluster, since only this file can end that cluster."""
    if not os.path.exists(path):
        return
    try:
        parse_cluster(read_source(path).text, path)
    except TesseraError:
        return  # another kind of file; its writer checks whether it may be replaced
    raise bad_cluster(
        f"`{path}` is the file of a cluster that may run",
        f"`tessc cluster down {path}` ends it and removes the file; or write another with `-o`",
    )


def bad_cluster(headline: str, hint: str | None = None) -> TesseraError:
    """The error of a cluster that cannot be used."""
    return TesseraError(error("TSR3005", headline, hint=hint), exit_code=ExitCode.USAGE)
