"""A fleet as a deployment of NVIDIA Dynamo on Kubernetes, with vLLM as its engine.

In: a `Deployment`. Out: an `EmittedFleet`: `deployment.yaml`, a DynamoGraphDeployment. Fields are
those of the version below, options those of the vLLM that it comes with
(`tests/data/serving_options.json`). Engines that are alike are the replicas of one component.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from tessera.driver.fleet.emit import vllm
from tessera.driver.fleet.emit.commands import WRITTEN_BY, EmittedFleet, StartCommand
from tessera.driver.fleet.emit.deployment import Deployment, PlacedEngine, cannot
from tessera.driver.fleet.engines import EngineRole
from tessera.driver.fleet.ways import UnitWay

DYNAMO = "1.4.1"
FILE = "deployment.yaml"
LABEL = "tessera-gpu"
"""The label of nodes that says which GPUs they have."""
_IMAGE = f"nvcr.io/nvidia/ai-dynamo/vllm-runtime:{DYNAMO}"
_SECRET = "hf-token-secret"
_MOST_COMPONENTS = 25
_MODES = {EngineRole.PROMPTS: "prefill", EngineRole.ANSWERS: "decode"}
_HANDED = vllm.handed_over("kv_both")

_OPTIONS: tuple[vllm.Option, ...] = (
    ("--model", lambda d, _: d.model),
    *vllm.LIMITS,
    ("--disaggregation-mode", lambda _, e: _MODES.get(e.role)),
    ("--kv-transfer-config", lambda _, e: _HANDED if e.role in _MODES else None),
)

Field = dict[str, "Field"] | list["Field"] | str | int | bool


def obstacle(way: UnitWay) -> str | None:
    """Why Dynamo cannot start a unit."""
    if any(len({stage.kind for stage in engine.stages}) > 1 for engine in way.engines):
        return "an engine has GPUs of several kinds, and a node of Kubernetes has one kind"
    return vllm.obstacle(way)


def dynamo_fleet(deployment: Deployment) -> EmittedFleet:
    """The fleet as a deployment of Dynamo."""
    if 0 < len(deployment.of(EngineRole.BOTH)) < len(deployment.engines):
        raise cannot(
            "Dynamo cannot start this answer: some units read prompts apart from answers, and some "
            "do not",
            "all workers of one model are pools, or none are",
            "add `--strategies phase`, or leave it out: `--strategies single,layers,tensor`",
        )
    groups = list(_groups(deployment))
    if len(groups) >= _MOST_COMPONENTS:
        raise cannot(
            f"Dynamo cannot start this answer: it has {len(groups) + 1} components",
            f"a deployment has {_MOST_COMPONENTS} at most",
        )
    front = StartCommand(
        name="frontend",
        what="in front of the workers",
        argv=("python3", "-m", "dynamo.frontend", "--router-mode", "least-loaded"),
    )
    workers = [_worker(deployment, group, number) for number, group in enumerate(groups, 1)]
    kinds = {_label(deployment, group[0]) for group in groups}
    components: list[Field] = [_component(front, "frontend", {}, {}, {})]
    for command, (first, *_) in zip(workers, groups, strict=True):
        label: Field = {LABEL: _label(deployment, first)}
        nodes = len(first.places)
        components.append(
            _component(
                command,
                _MODES.get(first.role, "worker"),
                {"multinode": {"nodeCount": nodes}} if nodes > 1 else {},
                {"nodeSelector": label} if len(kinds) > 1 else {},
                {
                    "resources": {"limits": {"nvidia.com/gpu": str(len(first.places[0].gpus))}},
                    "envFrom": [{"secretRef": {"name": _SECRET, "optional": True}}],
                },
            )
        )
    document: Field = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": "tessera-fleet"},
        "spec": {"backendFramework": "vllm", "components": components},
    }
    versions = (f"Dynamo {DYNAMO}", f"vLLM {vllm.VLLM}")
    first_line = f"# {WRITTEN_BY} --emit dynamo: {', '.join(versions)}\n"
    notes = [f"a token for the model's checkpoint is taken from the secret `{_SECRET}`"]
    if len(kinds) > 1:
        said = ", ".join(f"`kubectl label node NODE {LABEL}={kind}`" for kind in sorted(kinds))
        notes.insert(0, f"label the nodes with the GPUs that they have: {said}")
    return EmittedFleet(
        system="Dynamo",
        versions=versions,
        files=((FILE, first_line + "".join(yaml_lines(document))),),
        commands=(front, *workers),
        steps=(f"kubectl apply -f {FILE}",),
        notes=tuple(notes),
    )


def _groups(deployment: Deployment) -> Iterator[list[PlacedEngine]]:
    """Engines that are alike but for their hosts."""
    groups: dict[tuple[object, ...], list[PlacedEngine]] = {}
    for engine in deployment.engines:
        vllm.check_hosts(engine)
        options = vllm.options_of(_OPTIONS, deployment, engine)
        key = (*options, engine.names, engine.engine.stages, len(engine.places))
        groups.setdefault(key, []).append(engine)
    yield from groups.values()


def _worker(deployment: Deployment, group: list[PlacedEngine], number: int) -> StartCommand:
    first = group[0]
    options = vllm.options_of(_OPTIONS, deployment, first)
    return StartCommand(
        name=f"{_MODES.get(first.role, 'worker')}-{number}",
        what=f"{first.names}, {first.role}",
        argv=("python3", "-m", "dynamo.vllm", *options),
        env=vllm.layer_partition(first.engine),
        count=len(group),
    )


def _label(deployment: Deployment, engine: PlacedEngine) -> str:
    """The kind of an engine's GPUs, as a value that labels allow."""
    name = deployment.report.offered.kinds[engine.engine.stages[0].kind].label
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in name)


Fields = dict[str, "Field"]


def _component(
    command: StartCommand, kind: str, own: Fields, pod: Fields, container: Fields
) -> Fields:
    """A component, with more fields of it, of its pods, and of their container."""
    argv = list(command.argv)
    started: Fields = {"name": "main", "image": _IMAGE, "command": [*argv[:3]], "args": [*argv[3:]]}
    if command.env:
        started["env"] = [{"name": name, "value": value} for name, value in command.env]
    spec: Fields = {**pod, "containers": [started | container]}
    template: Fields = {"spec": spec}
    named: Fields = {"name": command.name, "type": kind, "replicas": command.count}
    return {**named, **own, "podTemplate": template}


def yaml_lines(field: Field, indent: str = "") -> Iterator[str]:
    """A document as lines of YAML; texts are quoted as in JSON, which YAML reads alike."""
    rows = field.items() if isinstance(field, dict) else [("-", f) for f in _listed(field)]
    for key, value in rows:
        head = f"{indent}{key}" if key == "-" else f"{indent}{_scalar(key)}:"
        if not isinstance(value, dict | list):
            yield f"{head} {_scalar(value)}\n"
        elif not value:
            yield f"{head} {'{}' if isinstance(value, dict) else '[]'}\n"
        elif key == "-":
            deeper = list(yaml_lines(value, f"{indent}  "))
            yield f"{head} {deeper[0].lstrip()}"
            yield from deeper[1:]
        else:
            yield f"{head}\n"
            yield from yaml_lines(value, f"{indent}  ")


def _listed(field: Field) -> list[Field]:
    assert isinstance(field, list)
    return field


_WORD = re.compile(r"-{0,2}[A-Za-z][A-Za-z_-]*")
_OTHER = ("true", "false", "yes", "no", "on", "off", "null", "y", "n")
"""Words that YAML does not read as texts."""


def _scalar(value: str | int | bool) -> str:
    plain = isinstance(value, str) and _WORD.fullmatch(value) and value.lower() not in _OTHER
    return str(value) if plain else json.dumps(value)
