"""`tessc doctor`: what this machine has to run plans with."""

from __future__ import annotations

import json
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from tessera.cli.console import Messages, page_width, write_data, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import hosts_options, json_option, output_option
from tessera.diagnostics import ExitCode
from tessera.ir.options import WrongOption
from tessera.ir.version import __version__
from tessera.output import Kind, check_output

if TYPE_CHECKING:
    from tessera.backend.cuda.doctor import Checkup


@click.command(short_help="Report the GPUs, driver and packages of this machine.")
@hosts_options(
    "Examine the hosts in this file instead, and measure every pair; its commands are run."
)
@output_option("With `--hosts`: write what was measured as the `[link_matrix]` of a machine file.")
@json_option
@reads_options
def doctor(messages: Messages, given: Typed) -> int:
    """Report which GPUs this machine has, and whether plans can run on them.

    GPUs with their free memory, the driver and the newest PTX that it reads, which GPUs reach each
    other's memory, Python, and the extras: their versions, or what is missing and what for. Without
    a GPU it says so; plans then run on the CPU backend.

    With `--hosts` it says what each host of the file has, and measures latency and bandwidth
    between all of them.

    \b
    Examples:
      tessc doctor
      tessc doctor --json
      tessc doctor --hosts hosts.toml -o links.toml
      tessc doctor --hosts hosts.toml --address cluster.json
    """
    command = given.record(DoctorCommand)
    if command.hosts is not None:
        return _examine(command.hosts, command)
    from tessera.backend.cuda.doctor import check_machine
    from tessera.report.machine import doctor_text

    checkup = check_machine()
    as_json = json.dumps(_data(checkup), indent=2) + "\n"
    write_text(as_json if command.as_json else doctor_text(checkup, page_width()))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorCommand:
    """The arguments of `tessc doctor`: what it examines, and where measurements go."""

    hosts: str | None = None
    address: str | None = None
    output: str | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        for name, value in (("output", self.output), ("address", self.address)):
            if value is not None and self.hosts is None:
                raise WrongOption(f"{{{name}}} goes with {{hosts}}")


def _examine(path: str, command: DoctorCommand) -> int:
    from tessera.driver.hosts.examine_hosts import examine_hosts
    from tessera.driver.hosts.kept_hosts import KeptHosts
    from tessera.frontend.machine.hosts_file import bad_hosts, read_hosts
    from tessera.report.hosts import hosts_json, hosts_text, matrix_toml

    table, output = read_hosts(path), command.output
    if output is not None:
        check_output(output, Kind.LINKS, [path])
        if not all(host.devices for host in table.hosts):
            raise bad_hosts(
                "a matrix is of devices, and a host lists none",
                "list the names of its devices under `devices` of every host",
            )
    with KeptHosts(path, address=command.address) as kept:
        report = examine_hosts(kept)
    if output is not None:
        write_data(matrix_toml(report).encode(), output, Kind.LINKS)
    write_text(hosts_json(report) if command.as_json else hosts_text(report, page_width()))
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
        "packages": checkup.packages,
        "extras": {extra.name: not extra.missing for extra in checkup.extras},
        "python": platform.python_version(),
        "tessera": __version__,
    }
