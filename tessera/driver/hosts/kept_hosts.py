"""`tessera.KeptHosts`: the processes of hosts, kept for several runs.

    with tessera.KeptHosts("hosts.toml") as hosts:
        for plan in plans:
            with tessera.Runtime(plan, hosts=hosts) as runtime:
                ...

In: a hosts file. Out: the value for `hosts=` of runs and runtimes. A run that ends without a fault
returns its processes here, and the next run uses them before it starts others.
"""

from __future__ import annotations

import os
import weakref
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self

from tessera.backend.hosts.launchers import CommandProcess
from tessera.backend.hosts.link_pool import LinkPool
from tessera.driver.hosts.running_cluster import find_cluster
from tessera.frontend.machine.hosts_file import read_hosts

if TYPE_CHECKING:
    from tessera.driver.hosts.ray_launcher import RayLauncher


DEVICE_MODULE = "tessera.driver.hosts.device_process"


def device_pool() -> LinkPool:
    """A pool of device processes, started by the commands of their hosts."""
    return LinkPool(partial(CommandProcess, module=DEVICE_MODULE))


def _leave(pool: LinkPool, launcher: RayLauncher) -> None:
    pool.close()
    launcher.close()


class KeptHosts:
    """Hosts whose processes stay between runs."""

    def __init__(
        self, path: str | os.PathLike[str], *, address: str | os.PathLike[str] | None = None
    ) -> None:
        """Read the file; a process starts when a run needs it.

        With `address`, the process is an actor of that Ray cluster: `HOST:PORT`, `auto`, or a file
        of `tessc cluster up`. The cluster itself is never ended.
        """
        self.table = read_hosts(os.fspath(path))
        if address is None:
            self.pool = device_pool()
            self._close = weakref.finalize(self, self.pool.close)
            return  # no cluster, so its packages are not needed
        from tessera.driver.hosts.ray_launcher import RayLauncher

        launcher = RayLauncher(find_cluster(os.fspath(address)))
        self.table = replace(self.table, transport=self.table.transport or "nixl")
        self.pool = LinkPool(launcher)
        self._close = weakref.finalize(self, partial(_leave, self.pool, launcher))

    def processes(self) -> list[int]:
        """The ids, on this machine, of the processes that wait for a run."""
        return self.pool.processes()

    def close(self) -> None:
        """End the waiting processes; the processes of a current run end with that run."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
