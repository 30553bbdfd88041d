"""`--hosts` and `--address`: where the processes of a run come from.

In: what was typed. Out: what `hosts=` of a run takes, for as long as the run lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tessera.driver.hosts.kept_hosts import KeptHosts

ADDRESS_HELP = (
    "With `--hosts`: on a Ray cluster that is there, or that `tessc cluster up` wrote to this "
    "file. Nothing of it is ended."
)


@contextmanager
def on_hosts(
    hosts: str | KeptHosts | None, address: str | None
) -> Iterator[str | KeptHosts | None]:
    """The file of hosts, or processes of a cluster, if one is named."""
    if address is None:
        yield hosts
        return
    if not isinstance(hosts, str):
        raise click.UsageError("`--address` goes with `--hosts`, which says what is on which host")
    from tessera.driver.hosts.kept_hosts import KeptHosts

    with KeptHosts(hosts, address=address) as kept:
        yield kept
