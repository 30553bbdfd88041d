"""The hosts of a run: the machine that starts each process, and how others reach it.

In: nothing. Out: records that `frontend.machine.hosts_file` makes from a `hosts.toml`.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_ADDRESS = "127.0.0.1"
TRANSPORTS = ("tcp", "nixl")
INSTALL_HOSTS = "pip install 'tessera-compiler[hosts]'"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """One host. `command` is put before the command line of each of its processes; empty: local.

    `devices` are its devices in the plan; empty: those of the node with its name. `contents` is a
    file or a folder of weights on the host; empty: the weights are sent.
    """

    name: str
    command: tuple[str, ...] = ()
    address: str = DEFAULT_ADDRESS
    python: str = ""
    devices: tuple[str, ...] = ()
    contents: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTable:
    """All hosts of a run. A device that is silent for `silent_s` seconds has stopped.

    `transport` carries bytes between hosts: one of `TRANSPORTS`; empty: the file does not say.
    """

    name: str
    hosts: tuple[HostEntry, ...]
    heartbeat_s: float = 0.1
    silent_s: float = 1.5
    transport: str = ""
