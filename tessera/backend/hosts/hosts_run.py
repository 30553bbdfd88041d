"""What a run over hosts is made of, for `HostsBackend`.

In: nothing. Out: a record.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tessera.backend.hosts.channel import Head, Part
from tessera.backend.hosts.link_pool import LinkPool
from tessera.backend.service import Model
from tessera.ir.plan.hosts import HostEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class HostsRun:
    """Where devices are, how their processes are watched, and what they are given.

    Processes come from the pool and go back there.
    """

    host_of: Mapping[str, HostEntry]
    describe: Callable[[Model, str], tuple[Head, list[Part]]]
    pool: LinkPool
    heartbeat_s: float = 0.1
    silent_s: float = 1.5
    transport: str = "tcp"
