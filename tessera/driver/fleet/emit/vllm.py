"""A fleet as commands of vLLM, with its router in front of the engines.

In: a `Deployment`. Out: an `EmittedFleet`: `fleet.sh`. The options are those of the versions below
(`tests/data/serving_options.json` has their tables, by `tools/serving_options.py`). Engines that
only read prompts hand the caches over by NixlConnector.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from tessera.driver.fleet.emit.commands import (
    FRONT,
    SCRIPT,
    EmittedFleet,
    StartCommand,
    address,
    script,
)
from tessera.driver.fleet.emit.deployment import Deployment, PlacedEngine, cannot
from tessera.driver.fleet.engines import EngineRole, UnitEngine
from tessera.driver.fleet.ways import UnitWay

VLLM = "0.26.0"
ROUTER = "0.1.16"
LAYER_PARTITION = "VLLM_PP_LAYER_PARTITION"
PORT = 8100
_CHANNEL, _MASTER = 5600, 29501
FRONT_PORT = 8000
_POOLS, _METRICS = 8001, 29000

_UNPLACED = {
    "attention": "it has attention and the rest of a layer on different GPUs",
    "kernel": "it places kernels one by one",
}
ROLES = {EngineRole.PROMPTS: "kv_producer", EngineRole.ANSWERS: "kv_consumer"}


def obstacle(way: UnitWay) -> str | None:
    """Why vLLM cannot start a unit."""
    if way.role is EngineRole.SHARES:
        return "its router does not deal prompts and answers by separate shares"
    if not way.engines:
        return _UNPLACED.get(way.strategy, "its GPUs do not have whole layers")
    return next(filter(None, map(_engine_obstacle, way.engines)), None)


def _engine_obstacle(engine: UnitEngine) -> str | None:
    staged = len(engine.stages) > 1
    if staged and not all(stage.layers for stage in engine.stages):
        return "it is not known which whole layers each of its GPUs has, or one has none"
    if staged and engine.role is not EngineRole.BOTH:
        return "NixlConnector hands no caches over between pipeline stages"
    return None


def handed_over(role: str) -> str:
    """`--kv-transfer-config` of an engine with a role."""
    return json.dumps({"kv_connector": "NixlConnector", "kv_role": role}, separators=(",", ":"))


Value = int | float | str | None
Option = tuple[str, Callable[[Deployment, PlacedEngine], Value]]

LIMITS: tuple[Option, ...] = (
    ("--tensor-parallel-size", lambda _, e: e.engine.tensor),
    ("--pipeline-parallel-size", lambda _, e: len(e.engine.stages)),
    ("--max-model-len", lambda d, _: d.longest),
    ("--max-num-seqs", lambda _, e: e.rows),
    ("--max-num-batched-tokens", lambda _, e: e.tokens),
    ("--gpu-memory-utilization", lambda _, e: e.share),
    ("--dtype", lambda d, _: d.dtype),
    ("--quantization", lambda d, _: "fp8" if d.fp8 else None),
    ("--kv-cache-dtype", lambda d, _: "fp8" if d.fp8_cache else None),
)
"""The limits of an engine as options, for whatever starts it. None: the option is left out."""

_SERVE: tuple[Option, ...] = (
    ("--host", lambda d, e: address(d.hosts, e.places[0].host)),
    ("--port", lambda _, e: PORT + e.seat),
    *LIMITS,
    ("--kv-transfer-config", lambda _, e: handed_over(ROLES[e.role]) if e.role in ROLES else None),
)


def options_of(
    options: tuple[Option, ...], deployment: Deployment, engine: PlacedEngine
) -> list[str]:
    """The options of an engine that have a value."""
    pairs = ((name, value(deployment, engine)) for name, value in options)
    return [word for name, value in pairs if value is not None for word in (name, str(value))]


def layer_partition(engine: UnitEngine) -> tuple[tuple[str, str], ...]:
    """The layers of pipeline stages, as a variable of the environment."""
    if len(engine.stages) < 2:
        return ()
    return ((LAYER_PARTITION, ",".join(str(stage.layers) for stage in engine.stages)),)


def check_hosts(engine: PlacedEngine) -> None:
    """Refuse an engine over several hosts that have unequal numbers of its GPUs."""
    counts = [len(place.gpus) for place in engine.places]
    if len(set(counts)) > 1:
        said = ", ".join(f"{len(place.gpus)} in {place.host}" for place in engine.places)
        raise cannot(
            f"vLLM cannot start {engine.names} as one engine: its GPUs are {said}",
            "an engine over several hosts has as many GPUs in each",
            "leave out GPUs with `--most`, or take another arrangement with `--strategies`",
        )


def vllm_fleet(deployment: Deployment) -> EmittedFleet:
    """The fleet as commands of vLLM."""
    hosts, fronts = deployment.hosts, _routers(deployment)
    versions = (f"vLLM {VLLM}", *([f"vllm-router {ROUTER}"] if fronts else []))
    commands = [c for e in deployment.engines for c in _commands(deployment, e)]
    notes = [
        f"install `vllm=={VLLM}` on every host"
        + (f", and `vllm-router=={ROUTER}` where the router runs" if fronts else "")
    ]
    if deployment.of(EngineRole.PROMPTS):
        notes.append("caches are handed over by NIXL: `nixl` has to be installed on every host")
    return EmittedFleet(
        system="vLLM",
        versions=versions,
        files=((SCRIPT, script("vllm", versions, hosts, (*commands, *fronts))),),
        commands=(*commands, *fronts),
        hosts=tuple((address(hosts, host), host) for host in hosts),
        steps=(
            *(f"bash {SCRIPT} host_{n}" for n in range(1, len(hosts) + 1)),
            *(f"bash {SCRIPT} {front.name}" for front in fronts),
        ),
        notes=tuple(notes),
    )


def _commands(deployment: Deployment, engine: PlacedEngine) -> list[StartCommand]:
    """The commands of an engine: one for each of its hosts."""
    check_hosts(engine)
    hosts, nodes = deployment.hosts, engine.places
    serve = ["vllm", "serve", deployment.model, *options_of(_SERVE, deployment, engine)]
    made = []
    for rank, place in enumerate(nodes):
        env = [("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in place.gpus))]
        env += layer_partition(engine.engine)
        if engine.role in ROLES:
            env.append(("VLLM_NIXL_SIDE_CHANNEL_HOST", address(hosts, place.host)))
            env.append(("VLLM_NIXL_SIDE_CHANNEL_PORT", str(_CHANNEL + engine.seat)))
        argv = list(serve)
        if len(nodes) > 1:
            argv += ["--nnodes", str(len(nodes)), "--node-rank", str(rank)]
            argv += ["--master-addr", address(hosts, nodes[0].host)]
            argv += ["--master-port", str(_MASTER + engine.seat)]
        made.append(
            StartCommand(
                name=f"engine_{engine.number}" + (f"_node_{rank}" if rank else ""),
                what=f"{engine.names}, {engine.role}",
                argv=(*argv, "--headless") if rank else tuple(argv),
                env=tuple(env),
                host=place.host,
            )
        )
    return made


def _routers(deployment: Deployment) -> list[StartCommand]:
    """The router of the pools, if there are any, and the one in front of several engines."""
    pools = deployment.of(EngineRole.PROMPTS, EngineRole.ANSWERS)
    whole = deployment.of(EngineRole.BOTH)
    made = []
    if pools:
        argv = ["--vllm-pd-disaggregation"]
        for engine in pools:
            option = "--prefill" if engine.role is EngineRole.PROMPTS else "--decode"
            argv += [option, _url(deployment, engine)]
        # Behind the front router, if there is one: both run on one host.
        made.append(
            _router("pools", argv, _POOLS) if whole else _router("router", argv, FRONT_PORT)
        )
    if whole and len(deployment.engines) > 1:
        urls = [_url(deployment, engine) for engine in whole]
        urls += [f"http://{FRONT}:{_POOLS}"] if pools else []
        made.append(_router("router", ["--worker-urls", *urls], FRONT_PORT))
    return made


def _router(name: str, argv: list[str], port: int) -> StartCommand:
    at = ["--host", FRONT, "--port", str(port), "--policy", "power_of_two"]
    at += ["--prometheus-port", str(_METRICS + port - FRONT_PORT)]
    return StartCommand(name=name, what="in front of engines", argv=("vllm-router", *argv, *at))


def _url(deployment: Deployment, engine: PlacedEngine) -> str:
    return f"http://{address(deployment.hosts, engine.places[0].host)}:{PORT + engine.seat}"
