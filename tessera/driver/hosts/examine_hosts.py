"""`tessc doctor --hosts`: facts of every host, and the speed of the links between them.

In: `KeptHosts`. Out: a `HostsReport`. Every device that a host lists has a process; a host that
lists none has one process. Every pair of processes is measured in both directions, one pair at a
time. A host that cannot be used has a problem in its row; the others are still measured.
"""

from __future__ import annotations

import queue
import secrets
import time
from collections.abc import Container
from dataclasses import dataclass, replace

from tessera.backend.hosts import host_faults
from tessera.backend.hosts.channel import BadMessage
from tessera.backend.hosts.device_link import DeviceLink, Inbox, stop_links
from tessera.backend.hosts.messages import (
    Examine,
    Hello,
    HostFault,
    Lost,
    MeasureWay,
    Peers,
    ToldFacts,
    WayMeasured,
)
from tessera.backend.processes.messages import DeviceReady
from tessera.backend.transports.transport import TransportPlace
from tessera.diagnostics import TesseraError, in_one_line
from tessera.driver.hosts.kept_hosts import KeptHosts
from tessera.ir.plan.hosts import TRANSPORTS, HostEntry
from tessera.ir.version import __version__

_START_S = 60.0
_MEASURE_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """A process of a host: the facts that it reports, or why it cannot be used.

    `clock_ahead_s` is the number of seconds that its clock is ahead of the driver's; runs do not
    depend on it.
    """

    name: str
    host: str
    problem: str = ""
    version: str = ""
    python: str = ""
    system: str = ""
    cores: int = 0
    free_bytes: int | None = None
    gpus: tuple[str, ...] = ()
    clock_ahead_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredWay:
    """The link from one process to another."""

    source: str
    target: str
    latency_ns: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsReport:
    """The report on all hosts. `has_devices`: the names are names of devices."""

    facts: tuple[HostFacts, ...]
    ways: tuple[MeasuredWay, ...]
    has_devices: bool

    @property
    def is_fine(self) -> bool:
        """Whether every host can take part and reaches every other host."""
        whole = len(self.ways) == len(self.facts) * (len(self.facts) - 1)
        return whole and not any(fact.problem for fact in self.facts)


def examine_hosts(kept: KeptHosts) -> HostsReport:
    """Examine all hosts of a file, by their commands or on their cluster."""
    table = kept.table
    has_devices = all(host.devices for host in table.hosts)
    names = {
        name: host
        for host in table.hosts
        for name in (host.devices if has_devices else (host.name,))
    }
    return _Examination(kept, names).report(has_devices)


class _Examination:
    def __init__(self, kept: KeptHosts, names: dict[str, HostEntry]) -> None:
        self._table = kept.table
        self._pool = kept.pool
        self._names = names
        self._inbox: Inbox = queue.SimpleQueue()
        self._links: dict[str, DeviceLink] = {}
        self._problems: dict[str, str] = {}
        self._told: dict[str, ToldFacts] = {}
        self._ready: set[str] = set()
        self._measured: dict[str, WayMeasured] = {}
        self._ahead_s: dict[str, float] = {}

    def report(self, has_devices: bool) -> HostsReport:
        links = self._links
        try:
            self._start()
            self._await(self._told, _START_S)
            known = [name for name in self._names if name in self._told]
            for name in known:
                others = {other: self._told[other].address for other in known if other != name}
                links[name].tell(Peers(others))
            self._await(self._ready, _START_S)
            ways = tuple(self._measure(known))
        finally:
            stop_links(links)
        facts = tuple(self._facts(name, host) for name, host in self._names.items())
        return HostsReport(facts=facts, ways=ways, has_devices=has_devices)

    def _start(self) -> None:
        token, run = secrets.token_hex(32), secrets.token_hex(8)
        for name, host in self._names.items():
            try:
                self._links[name] = self._pool.take(name, host, self._inbox)
            except TesseraError as fault:
                self._problems[name] = _said(fault)
                continue
            place = TransportPlace(
                kind=self._table.transport or TRANSPORTS[0],
                name=name,
                host=host.name,
                bind=host.address,
                token=token,
                run=run,
                beat_s=self._table.heartbeat_s,
            )
            self._links[name].tell(Examine(place))

    def _await(self, heard: Container[str], limit_s: float) -> None:
        """Wait until every process has answered or has a problem."""
        deadline = time.monotonic() + limit_s
        while True:
            missing = [
                name for name in self._names if name not in self._problems and name not in heard
            ]
            left = deadline - time.monotonic()
            if not missing:
                return
            if left <= 0:
                for name in missing:
                    self._problems[name] = f"it has not answered within {limit_s:.0f} s"
                return
            self._hear(left)

    def _hear(self, limit_s: float) -> None:
        try:
            name, message, _ = self._inbox.get(timeout=limit_s)
        except queue.Empty:
            return
        link = self._links[name]
        match message:
            case None:
                self._problems.setdefault(name, _said(host_faults.not_started(link)))
            case BadMessage():
                self._problems[name] = f"it sent what cannot be read: {message}"
            case Hello(version) if version != __version__:
                self._problems[name] = _said(host_faults.other_version(link, version, __version__))
            case HostFault():
                self._problems[name] = message.headline or "its process failed"
            case Lost(peer, why):
                self._problems[name] = f"it cannot reach `{peer}`: {why}"
            case ToldFacts():
                self._ahead_s[name] = (message.clock_ns - time.time_ns()) / 1e9
                self._told[name] = message
            case DeviceReady():
                self._ready.add(name)
            case WayMeasured():
                self._measured[name] = message
            case _:
                pass  # a greeting, or a beat

    def _measure(self, known: list[str]) -> list[MeasuredWay]:
        ways = []
        able = [name for name in known if name not in self._problems]
        for source in able:
            for target in able:
                if source == target:
                    continue
                self._measured.pop(source, None)
                self._links[source].tell(MeasureWay(target))
                deadline = time.monotonic() + _MEASURE_S
                while source not in self._measured and source not in self._problems:
                    self._hear(0.2)
                    if time.monotonic() > deadline:
                        self._problems[source] = f"`{target}` does not answer"
                way = self._measured.get(source)
                if way is not None:
                    ways.append(
                        MeasuredWay(
                            source=source,
                            target=target,
                            latency_ns=way.latency_ns,
                            bytes_per_s=way.bytes_per_s,
                        )
                    )
        return ways

    def _facts(self, name: str, host: HostEntry) -> HostFacts:
        facts = HostFacts(name=name, host=host.name, problem=self._problems.get(name, ""))
        told = self._told.get(name)
        if told is None:
            return facts
        return replace(
            facts,
            version=told.version,
            python=told.python,
            system=told.system,
            cores=told.cores,
            free_bytes=told.free_bytes,
            gpus=told.gpus,
            clock_ahead_s=self._ahead_s[name],
        )


def _said(failure: TesseraError) -> str:
    return in_one_line(failure.diagnostics[0])
