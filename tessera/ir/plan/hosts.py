"""The hosts that a run is on: which machine starts which processes, and how others reach it.

In: nothing. Out: records that `frontend.machine.hosts_file` makes from a `hosts.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_ADDRESS = "127.0.0.1"
TRANSPORTS = ("tcp", "nixl")
INSTALL_HOSTS = "pip install 'tessera-compiler[hosts]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One host. `command` is put before the command line of every process of it; empty: here.

    `devices` are those of the plan that are on it; empty: those of the node with its name.
    `contents` is a file or a folder of weights that it has itself; empty: they are sent.
    """

    name: str
    command: tuple[str, ...] = ()
    address: str = DEFAULT_ADDRESS
    python: str = ""
    devices: tuple[str, ...] = ()
    contents: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    """All hosts of a run. A device that is silent for `silent_s` has stopped.

    `transport` carries bytes between hosts: one of `TRANSPORTS`; empty: the file does not say.
    """

    name: str
    hosts: tuple[HostEntry, ...]
    heartbeat_s: float = 0.1
    silent_s: float = 1.5
    transport: str = ""
