"""`emit_fleet`: the files that start an answer with a system, or why it cannot start it.

In: a `FleetReport`, the name of a system, the model's checkpoint. Out: an `EmittedFleet`. Raises
`TesseraError` (TSR3030) for what a system cannot start, with what it can.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tessera.driver.fleet.config_steps import CONFIG
from tessera.driver.fleet.emit import dynamo, own, vllm
from tessera.driver.fleet.emit.commands import EmittedFleet
from tessera.driver.fleet.emit.deployment import cannot, check_choice, deployment_of
from tessera.driver.fleet.make_fleet import FleetReport

_WEIGHTS = (".safetensors", ".bin")


def emit_fleet(
    report: FleetReport, system: str, traces: Sequence[str], model: str | None, folder: str
) -> EmittedFleet:
    """The answer as files for a system. `folder` is where they will be."""
    name = model or _checkpoint(traces)
    if system == "tessc":
        check_choice(report, "`tessc serve`", own.obstacle)
        paths = {} if _is_config(traces) else _paths(report, traces)
        deployment = deployment_of(own.joined(report), model or "", own.engines_of)
        return own.own_fleet(deployment, paths, folder)
    if name is None:
        raise cannot(
            "the commands need the model's checkpoint",
            hint="name it: `--model meta-llama/Llama-3.1-8B`, or the folder that has its weights",
        )
    label, obstacle, write = {
        "vllm": ("vLLM", vllm.obstacle, vllm.vllm_fleet),
        "dynamo": ("Dynamo", dynamo.obstacle, dynamo.dynamo_fleet),
    }[system]
    check_choice(report, label, obstacle)
    return write(deployment_of(report, name))


def _is_config(traces: Sequence[str]) -> bool:
    return any(name.startswith(CONFIG) for name in traces)


def _checkpoint(traces: Sequence[str]) -> str | None:
    """The folder of a config file, if the weights are there, too."""
    if not _is_config(traces):
        return None
    path = Path(traces[0].removeprefix(CONFIG))
    folder = path if path.is_dir() else path.parent
    has_weights = any(file.suffix in _WEIGHTS for file in folder.iterdir())
    return os.path.abspath(folder) if has_weights else None


def _paths(report: FleetReport, traces: Sequence[str]) -> dict[str, str]:
    """The file of each step, which is named after it; several of one name are numbered."""
    names, paths = Counter[str](), {}
    for path in traces:
        name = Path(path).stem
        names[name] += 1
        paths[name if names[name] == 1 else f"{name}-{names[name]}"] = path
    return {step.name: paths[step.name] for step in report.model.steps if step.name in paths}
