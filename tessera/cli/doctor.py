"""`tessc doctor`: what this machine has to run plans with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from tessera.cli.console import write_data

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

    checkup = check_machine()
    text = json.dumps(_data(checkup), indent=2) + "\n" if as_json else _text(checkup)
    write_data(text.encode(errors="replace"), "-")
    return 0


def _text(checkup: Checkup) -> str:
    lines = []
    if checkup.cuda is not None:
        number = f" {checkup.driver}" if checkup.driver else ""
        lines.append(f"driver   NVIDIA{number}, CUDA {_cuda(checkup.cuda)}")
    if checkup.newest_ptx is not None:
        lines.append(f"PTX      up to {checkup.newest_ptx[0]}.{checkup.newest_ptx[1]}")
    for gpu in checkup.gpus:
        facts = gpu.facts
        lines.append(
            f"cuda:{facts.ordinal:<4}{facts.name}, {facts.arch}, {facts.sms} SMs, "
            f"{_gib(gpu.free_bytes)} of {_gib(facts.memory_bytes)} GiB free"
        )
        if len(checkup.gpus) > 1:
            others = ", ".join(f"cuda:{peer}" for peer in gpu.peers)
            lines.append(f"         reaches the memory of {others or 'no other GPU'}")
    if not checkup.gpus:
        lines.append(f"no GPU   {checkup.problem}")
        lines.append("         plans run on the CPU backend: `tessc run plan.tsp --backend cpu`")
    for name, installed in checkup.packages:
        lines.append(f"package  {name} {installed or 'is not installed'}")
    return "\n".join(lines) + "\n"


def _data(checkup: Checkup) -> dict[str, object]:
    return {
        "schema": "tessera-doctor/1",
        "cuda": None if checkup.cuda is None else _cuda(checkup.cuda),
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


def _cuda(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
