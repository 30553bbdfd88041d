"""Options of commands that take a model folder in place of a plan: `serve`, `bench`, `simulate`.

In: the typed command line. Out: the same with the plan of the folder's steps, its weights and its
tokenizer in the place of the folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from tessera.backend.known_backends import BackendName
from tessera.cli.console import Messages
from tessera.cli.given import Typed
from tessera.cli.options import together
from tessera.cli.progress import Progress

_NAMES = ("gpus", "rows", "context", "step_tokens", "logits")
_ON_CPU = {"gpus": "a100", "rows": 8, "context": 256, "route": "library", "draws": False}
"""Small sizes for the CPU backend; the GPU is the one whose code its processes run."""
_ON_GPUS = {"rows": 64}


def _sizes(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    parts = (value or "").split(",")
    if value is None:
        return None
    if not all(part.strip().isdecimal() and 0 < len(part.strip()) < 8 for part in parts):
        raise click.BadParameter("it takes numbers of tokens, such as 64,512")
    return tuple(int(part) for part in parts)


folder_options = together(
    click.option(
        "--gpus", metavar="GPUS", help="Of a model folder: the GPUs to plan for, such as a100,l40s."
    ),
    click.option(
        "--rows",
        type=click.IntRange(1, 4096),
        metavar="N",
        help="Of a model folder: sequences at once.  [default: 64; 8 with --backend cpu]",
    ),
    click.option(
        "--context",
        type=click.IntRange(1),
        metavar="N",
        help="Of a model folder: tokens of a sequence.  [default: 2048; 256 with --backend cpu]",
    ),
    click.option(
        "--step-tokens",
        callback=_sizes,
        metavar="N,N",
        help="Of a model folder: tokens that steps take, of prompts and answers together.  "
        "[default: as many as rows, and four times that]",
    ),
    click.option(
        "--logits/--no-logits",
        default=None,
        help="Of a model folder: steps give logits, which `logprobs`, penalties, `logit_bias` and "
        "JSON need, in place of tokens.  [default: only with --backend cpu]",
    ),
)


def with_folder(messages: Messages, given: Typed) -> Typed:
    """The command line with the plan of a model folder, if it names one."""
    from tessera.driver.folder.model_folder import FolderOptions, is_folder

    file = str(given.values["file"])
    if not is_folder(file):
        given.refuse_typed(_NAMES, "with a plan: they are for model folders")
        return given.having(**dict.fromkeys(_NAMES))
    from tessera.driver.folder.prepare_folder import prepare_folder

    on_cpu = given.values.get("backend") == BackendName.CPU
    has_model = os.path.exists(os.path.join(file, "config.json"))  # if not, that is the fault
    if has_model and not on_cpu and given.values.get("gpus") is None:
        raise click.UsageError(
            "a model folder is planned for GPUs: name them with `--gpus`, or use `--backend cpu`"
        )
    typed = {name: given.values[name] for name in _NAMES if given.values.get(name) is not None}
    defaults: dict[str, object] = dict(_ON_CPU if on_cpu else _ON_GPUS)
    if "logits" in typed:
        typed["draws"] = not typed.pop("logits")
    options = FolderOptions(**(defaults | typed))  # type: ignore[arg-type]
    with Progress(messages, f"preparing {file}") as shown:
        prepared = prepare_folder(file, options, shown.hear)
    messages.show(prepared.folder.config.notes)
    more: dict[str, object] = {"file": prepared.plan, "weights": prepared.weights}
    if "tokenizer" in given.values and given.values["tokenizer"] is None:
        more["tokenizer"] = prepared.folder.tokenizer
    more["model_folder"] = str(prepared.folder.path)
    if "name" in given.values and "name" not in given.typed:
        more["name"] = os.path.basename(Path(file).resolve())
    return given.having(**dict.fromkeys(_NAMES), **more)
