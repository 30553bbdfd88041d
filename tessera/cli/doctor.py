"""`tessc doctor`: what this machine has to run plans with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tessera.cli.console import page_width, write_data

if TYPE_CHECKING:
    from tessera.backend.cuda.doctor import Checkup


@click.command(short_help="Say what this machine has to run plans with.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
def doctor(as_json: bool) -> int:
    """Say which GPUs are there and whether plans can run on them.

    GPUs with their free memory, the driver and the newest PTX that it reads, which GPUs reach each
    other's memory, and the optional packages. Without a GPU it says so; plans then run on the CPU
    backend.

    \b
    Examples:
      tessc doctor
      tessc doctor --json
    """
    from tessera.backend.cuda.doctor import check_machine
    from tessera.report.machine import doctor_text

    checkup = check_machine()
    if as_json:
        text = json.dumps(_data(checkup), indent=2) + "\n"
    else:
        text = doctor_text(checkup, page_width())
    write_data(text.encode(errors="replace"), "-")
    return 0


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
