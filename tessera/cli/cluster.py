"""`tessc cluster`: a Ray cluster on the hosts of a file; up, and down again."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from tessera.cli.console import Messages, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import output_option
from tessera.cli.run import terminable
from tessera.output import Kind, check_output, write_file


@click.group(short_help="Start a Ray cluster on the hosts of a file, or end it.")
def cluster() -> None:
    """Start a Ray cluster on the hosts of a file, or end it.

    `tessc run plan.tsp --hosts hosts.toml --address cluster.json` then runs plans on it.

    \b
    Examples:
      tessc cluster up hosts.toml -o cluster.json
      tessc cluster down cluster.json
    """


@cluster.command(short_help="Start a node on every host of a file.")
@click.argument("hosts", type=click.Path())
@output_option(
    "Write where the cluster is, its token and how to end it. Only you can read the file.",
    "cluster.json",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Start it without a token: everyone who reaches it can run code on every host.",
)
@reads_options
def up(messages: Messages, given: Typed) -> int:
    """Start a node of a Ray cluster on every host of HOSTS; the first one is the head.

    The commands of the file are run. Every node has the label `tessera-host` with the name of its
    host, and a token that is new for this cluster. The nodes go on until `tessc cluster down`.

    \b
    Examples:
      tessc cluster up hosts.toml
      tessc cluster up hosts.toml -o cluster.json
    """
    from tessera.driver.hosts.cluster import start_cluster, stop_cluster
    from tessera.driver.hosts.running_cluster import check_free, cluster_text
    from tessera.frontend.machine.hosts_file import read_hosts

    hosts, output = str(given.values["hosts"]), str(given.values["output"])
    with terminable():
        table = read_hosts(hosts)
        check_output(output, Kind.CLUSTER, [hosts])
        check_free(output)
        running = start_cluster(table, _say, tokens=not given.values["no_token"])
        try:
            write_file(output, cluster_text(running).encode(), Kind.CLUSTER)
        except BaseException:
            stop_cluster(running, _say)
            raise
    where = f"{len(running.nodes)} nodes runs at {running.address}"
    write_text(f"a cluster of {where}; its token is in {output}\n")
    return 0


@cluster.command(short_help="End the nodes that `up` has started.")
@click.argument("file", type=click.Path())
@reads_options
def down(messages: Messages, given: Typed) -> int:
    """End the nodes that `tessc cluster up` has started and written to FILE, and nothing else.

    FILE is removed once all have ended.

    \b
    Examples:
      tessc cluster down cluster.json
    """
    from tessera.driver.hosts.cluster import stop_cluster
    from tessera.driver.hosts.running_cluster import parse_cluster
    from tessera.frontend.text.readfile import read_source

    file = str(given.values["file"])
    problems = stop_cluster(parse_cluster(read_source(file).text, file), _say)
    for problem in problems:
        messages.show(problem.diagnostics)
    if not problems:
        with suppress(OSError):
            os.unlink(file)
    return problems[0].exit_code if problems else 0


def _say(text: str) -> None:
    click.echo(text, err=True)
