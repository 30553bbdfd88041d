"""`tessc doctor`: what this machine has to run plans with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tessera.cli.console import Messages, page_width, write_data
from tessera.cli.hosts_given import ADDRESS_HELP
from tessera.diagnostics import ExitCode, TesseraError
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.backend.cuda.doctor import Checkup


@click.command(short_help="Say what this machine has to run plans with.")
@click.option(
    "--hosts",
    type=click.Path(),
    metavar="PATH",
    help="Examine the hosts in this file instead, and measure every pair; its commands are run.",
)
@click.option("--address", metavar="HOST:PORT|PATH", help=ADDRESS_HELP)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    metavar="PATH",
    help="With `--hosts`: write what was measured as the `[link_matrix]` of a machine file.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_obj
def doctor(
    messages: Messages, hosts: str | None, address: str | None, output: str | None, as_json: bool
) -> int:
    """Say which GPUs are there and whether plans can run on them.

    GPUs with their free memory, the driver and the newest PTX that it reads, which GPUs reach each
    other's memory, and the optional packages. Without a GPU it says so; plans then run on the CPU
    backend.

    With `--hosts` it says what each host of the file has, and measures latency and bandwidth
    between all of them.

    \b
    Examples:
      tessc doctor
      tessc doctor --json
      tessc doctor --hosts hosts.toml -o links.toml
      tessc doctor --hosts hosts.toml --address cluster.json
    """
    if hosts is not None:
        try:
            return _examine(hosts, address, output, as_json)
        except TesseraError as failure:
            messages.show(failure.diagnostics)
            return failure.exit_code
    for option, given in (("--output", output), ("--address", address)):
        if given is not None:
            raise click.UsageError(f"`{option}` goes with `--hosts`")
    from tessera.backend.cuda.doctor import check_machine
    from tessera.report.machine import doctor_text

    checkup = check_machine()
    if as_json:
        text = json.dumps(_data(checkup), indent=2) + "\n"
    else:
        text = doctor_text(checkup, page_width())
    write_data(text.encode(errors="replace"), "-")
    return 0


def _examine(path: str, address: str | None, output: str | None, as_json: bool) -> int:
    from tessera.driver.hosts.examine_hosts import examine_hosts
    from tessera.driver.hosts.kept_hosts import KeptHosts
    from tessera.frontend.machine.hosts_file import bad_hosts, read_hosts
    from tessera.report.hosts import hosts_json, hosts_text, matrix_toml

    table = read_hosts(path)
    if output is not None:
        check_output(output, Kind.LINKS, [path])
        if not all(host.devices for host in table.hosts):
            raise bad_hosts(
                "a matrix is of devices, and a host lists none",
                "list the names of its devices under `devices` of every host",
            )
    with KeptHosts(path, address=address) as kept:
        report = examine_hosts(kept)
    if output is not None:
        write_data(matrix_toml(report).encode(), output, Kind.LINKS)
    text = hosts_json(report) if as_json else hosts_text(report, page_width())
    write_data(text.encode(errors="replace"), "-")
    return 0 if report.is_fine else ExitCode.NO_DEVICE


def _data(checkup: Checkup) -> dict[str, object]:
    from tessera.report.machine import cuda_version

    return {
        "schema": "tessera-doctor/1",
        "cuda": None if checkup.cuda is None else cuda_version(checkup.cuda),
        "driver": checkup.driver or None,
        "problem": checkup.problem or None,
        "newest_ptx": None if checkup.newest_ptx is None else "{}.{}".format(*checkup.newest_ptx),
        "gpus": [
            {
                "target": f"cuda:{gpu.facts.ordinal}",
                "name": gpu.facts.name,
                "arch": gpu.facts.arch,
                "sms": gpu.facts.sms,
                "memory_bytes": gpu.facts.memory_bytes,
                "free_bytes": gpu.free_bytes,
                "peers": [f"cuda:{peer}" for peer in gpu.peers],
            }
            for gpu in checkup.gpus
        ],
        "packages": dict(checkup.packages),
    }
