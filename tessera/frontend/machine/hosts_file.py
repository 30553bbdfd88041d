"""The hosts of a run from a TOML file.

    heartbeat = "100ms"             # how often processes say that they are alive
    silent = "1.5s"                 # a process that is silent this long has stopped
    transport = "nixl"              # between hosts; without it "tcp", on a Ray cluster "nixl"

    [[host]]
    name = "a"                      # the node of the plan, unless `devices` says otherwise
    command = "ssh a"               # what starts a process there; without it: this machine
    address = "10.66.0.1"           # of the network for transfers, where others reach it
    python = "/opt/venv/bin/python" # with Tessera; without it: the one that runs here
    devices = ["a100-0"]
    contents = "/data/model.npz"    # weights that the host has, a file or a folder of them;
                                    # without it: they are sent

In: the file's text. Out: a `HostTable`. Unknown keys are errors. The file is trusted: its commands
are run.
"""

from __future__ import annotations

import ipaddress
import shlex
import tomllib
from collections.abc import Iterable

from msgspec import Struct

from tessera.diagnostics import ExitCode, TesseraError
from tessera.frontend.machine.quantities import parse_time_ns
from tessera.frontend.text.readfile import read_source
from tessera.frontend.text.shapes import shaped
from tessera.ir.plan.hosts import DEFAULT_ADDRESS, TRANSPORTS, HostEntry, HostTable

_MOST_HOSTS = 256
_LEAST_S, _MOST_S = 0.01, 600.0


class _HostEntryTable(Struct, forbid_unknown_fields=True):
    name: str
    command: str = ""
    address: str = DEFAULT_ADDRESS
    python: str = ""
    devices: tuple[str, ...] = ()
    contents: str = ""


class _HostsTables(Struct, forbid_unknown_fields=True):
    host: list[_HostEntryTable] = []
    heartbeat: str = "100ms"
    silent: str = "1.5s"
    transport: str = ""


def read_hosts(path: str) -> HostTable:
    """The hosts in a file."""
    return parse_hosts(read_source(path).text, path)


def parse_hosts(text: str, name: str = "<hosts>") -> HostTable:
    """The hosts that a TOML text describes."""
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise bad_hosts(f"`{name}` is not TOML: {problem}") from None
    file = shaped(
        data,
        _HostsTables,
        lambda why, hint: bad_hosts(f"`{name}`: {why}", hint),
        (_HostsTables, _HostEntryTable),
    )
    if not file.host:
        raise bad_hosts(f"`{name}` has no `[[host]]`", "write a `[[host]]` for every host")
    if len(file.host) > _MOST_HOSTS:
        raise bad_hosts(f"`{name}` has {len(file.host)} hosts, and at most {_MOST_HOSTS} are read")
    hosts = tuple(map(_entry, file.host))
    _check_once((host.name for host in hosts), "host")
    _check_once((device for host in hosts for device in host.devices), "device")
    heartbeat_s, silent_s = _seconds("heartbeat", file.heartbeat), _seconds("silent", file.silent)
    if silent_s < 3 * heartbeat_s:
        raise bad_hosts("`silent` is at least three times `heartbeat`")
    if "transport" in data and file.transport not in TRANSPORTS:
        raise bad_hosts(f"`transport` is one of: {', '.join(TRANSPORTS)}")
    return HostTable(
        name=name,
        hosts=hosts,
        heartbeat_s=heartbeat_s,
        silent_s=silent_s,
        transport=file.transport,
    )


def _entry(host: _HostEntryTable) -> HostEntry:
    if not host.name or not host.name.isprintable():
        raise bad_hosts("a host has a `name` that can be printed")
    if not _is_of_a_host(host.address):
        raise bad_hosts(
            f"`{host.address}` of host `{host.name}` is no IP address by which others reach it",
            "write that of the network for transfers, such as `10.66.0.1` or `fd00::1`, without "
            "a zone (`%eth0`)",
        )
    try:
        command = tuple(shlex.split(host.command))
    except ValueError as problem:
        raise bad_hosts(f"the command of host `{host.name}` cannot be split: {problem}") from None
    return HostEntry(
        name=host.name,
        command=command,
        address=host.address,
        python=host.python,
        devices=host.devices,
        contents=host.contents,
    )


def _is_of_a_host(address: str) -> bool:
    """Whether an address stands for one host and means the same on all hosts."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    return "%" not in address and not parsed.is_unspecified and not parsed.is_multicast


def _seconds(key: str, text: str) -> float:
    parsed = parse_time_ns(text)
    if parsed is None or not _LEAST_S <= parsed / 1e9 <= _MOST_S:
        raise bad_hosts(f"`{key}` is a time such as `100ms`, {_LEAST_S} s to {_MOST_S:.0f} s")
    return parsed / 1e9


def _check_once(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise bad_hosts(
                f"{what} `{name}` is there twice",
                "hosts have names of their own, and a device is on one host",
            )
        seen.add(name)


def bad_hosts(headline: str, hint: str | None = None) -> TesseraError:
    """A file of hosts that cannot be used."""
    return TesseraError.of("TSR3005", headline, hint=hint, exit_code=ExitCode.USAGE)
