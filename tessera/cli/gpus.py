"""`tessc gpus`: the GPUs that can be named, with the figures a plan is made from."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import click

from tessera.cli.complete import complete_gpus
from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import json_option

if TYPE_CHECKING:
    from tessera.ir.plan.machine import Gpu


@click.command(short_help="List the GPUs that a plan can name.")
@click.argument("names", nargs=-1, shell_complete=complete_gpus)
@json_option
@reads_options
def gpus(messages: Messages, given: Typed) -> int:
    """List the GPUs that can be named, or only those of NAMES.

    A short name stands for one of them: `a100` for the 80 GB SXM card. Rates are dense, without
    sparsity. Prices are list prices per hour from the provider named, and only a starting point.

    \b
    Examples:
      tessc gpus
      tessc gpus a100 l40s
      tessc gpus h200 --json
    """
    from tessera.frontend.machine.gpu_table import find_gpu, gpu_table
    from tessera.report.machine import gpus_text

    names = cast("tuple[str, ...]", given.values["names"])
    chosen = [find_gpu(name) for name in names] or list(gpu_table().values())
    write_text(_json(chosen) if given.values["as_json"] else gpus_text(chosen, page_width()))
    return 0


def _json(chosen: list[Gpu]) -> str:
    from tessera.frontend.machine.gpu_table import aliases_of

    rows = [{**asdict(gpu), "aliases": list(aliases_of(gpu.key))} for gpu in chosen]
    return json.dumps({"schema": "tessera-gpus/1", "gpus": rows}, indent=2) + "\n"
