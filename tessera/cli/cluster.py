"""`tessc cluster`: a Ray cluster on the hosts of a file; up, and down again."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from tessera.cli.console import Messages, write_data
from tessera.cli.run import terminable
from tessera.diagnostics import TesseraError
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
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="PATH",
    default="cluster.json",
    show_default=True,
    help="Write where the cluster is, its token and how to end it. Only you can read the file.",
)
@click.option(
    "--no-token",
    is_flag=True,
    help="Start it without a token: everyone who reaches it can run code on every host.",
)
@click.pass_obj
def up(messages: Messages, hosts: str, output: str, no_token: bool) -> int:
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

    try:
        with terminable():
            table = read_hosts(hosts)
            check_output(output, Kind.CLUSTER, [hosts])
            check_free(output)
            running = start_cluster(table, _say, tokens=not no_token)
            try:
                write_file(output, cluster_text(running).encode(), Kind.CLUSTER)
            except BaseException:
                stop_cluster(running, _say)
                raise
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    count = len(running.nodes)
    text = f"a cluster of {count} nodes runs at {running.address}; its token is in {output}\n"
    write_data(text.encode(errors="replace"), "-")
    return 0


@cluster.command(short_help="End the nodes that `up` has started.")
@click.argument("file", type=click.Path())
@click.pass_obj
def down(messages: Messages, file: str) -> int:
    """End the nodes that `tessc cluster up` has started and written to FILE, and nothing else.

    FILE is removed once all have ended.

    \b
    Examples:
      tessc cluster down cluster.json
    """
    from tessera.driver.hosts.cluster import stop_cluster
    from tessera.driver.hosts.running_cluster import parse_cluster
    from tessera.frontend.text.readfile import read_source

    try:
        problems = stop_cluster(parse_cluster(read_source(file).text, file), _say)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    for problem in problems:
        messages.show(problem.diagnostics)
    if not problems:
        with suppress(OSError):
            os.unlink(file)
    return problems[0].exit_code if problems else 0


def _say(text: str) -> None:
    click.echo(text, err=True)
