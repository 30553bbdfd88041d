"""A fleet as commands of Tessera: a plan of each unit, served by `tessc serve`.

In: a `Deployment`, and the files of the traces. Out: an `EmittedFleet`: `fleet.sh`. A unit is
planned by its own strategy, for one decode step and one prefill step with the same states.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from tessera.driver.fleet.capacity import Capacity
from tessera.driver.fleet.emit.commands import (
    SCRIPT,
    WRITTEN_BY,
    EmittedFleet,
    StartCommand,
    address,
    script,
)
from tessera.driver.fleet.emit.deployment import Deployment, PlacedEngine, cannot
from tessera.driver.fleet.emit.vllm import FRONT_PORT, PORT
from tessera.driver.fleet.engines import EngineRole, EngineStage, UnitEngine
from tessera.driver.fleet.make_fleet import FleetReport
from tessera.driver.fleet.model_steps import ModelStep
from tessera.driver.fleet.offered import Offered
from tessera.driver.fleet.ways import UnitWay
from tessera.ir.program.program import Role
from tessera.ir.version import __version__
from tessera.planning.search.strategies import PHASE, ROLES, SINGLE

NGINX_FILE = "nginx.conf"
_NGINX = ("nginx", "-p", ".", "-c", NGINX_FILE, "-e", "stderr", "-g", "daemon off;")
_CONFIG = """# {words} --emit tessc
pid nginx.pid;
events {{}}
http {{
  access_log off;
  client_body_temp_path tmp;
  proxy_temp_path tmp;
  fastcgi_temp_path tmp;
  uwsgi_temp_path tmp;
  scgi_temp_path tmp;
  upstream units {{
    least_conn;
{units}
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://units;
      proxy_http_version 1.1;
      proxy_buffering off;
      proxy_read_timeout 1h;
    }}
  }}
}}
"""


def obstacle(way: UnitWay) -> str | None:
    """Why `tessc serve` cannot start a unit."""
    if way.role is not EngineRole.BOTH and way.strategy != SINGLE:
        return "in its plans with roles, a GPU has the whole model"
    return None


def joined(report: FleetReport) -> FleetReport:
    """The answer with all pools as one unit: they are the replicas of one plan, with roles."""
    pools = [(c, n) for c, n in report.chosen.units if c.way.role is not EngineRole.BOTH]
    if not pools:
        return report
    makers = [c for c, _ in pools if c.way.role is not EngineRole.PROMPTS]
    shared = any(c.way.role is EngineRole.SHARES for c in makers)
    done = [sum(n * c.served[phase] for c, n in pools) for phase in range(3)]
    gpus = replace(report.chosen, units=tuple(pools)).gpus(len(report.offered.kinds))
    way = replace(
        makers[0].way,
        strategy=ROLES if shared else PHASE,
        gpus=gpus,
        role=EngineRole.BOTH,
        lanes=1,
    )
    rows = max(c.rows for c in makers)
    unit = Capacity(way=way, rate=done[0] + min(done[1:]), rows=rows)
    whole = (row for row in report.chosen.units if row not in pools)
    return replace(report, chosen=replace(report.chosen, units=(*whole, (unit, 1))))


def engines_of(way: UnitWay) -> tuple[UnitEngine, ...]:
    """A unit is one engine, whatever its strategy."""
    stages = (EngineStage(kind, 0) for kind, n in enumerate(way.gpus) for _ in range(n))
    return (UnitEngine(stages=tuple(stages), lanes=way.lanes, rows=way.rows),)


def own_fleet(deployment: Deployment, paths: Mapping[str, str], folder: str) -> EmittedFleet:
    """The fleet as commands of Tessera. `paths` are those of the traces, by name."""
    hosts = deployment.hosts
    plans: dict[tuple[str, ...], StartCommand] = {}
    served = []
    for engine in deployment.engines:
        plan = _plan(deployment, engine, paths, folder, len(plans) + 1)
        plan = plans.setdefault(plan.argv[:-1], plan)
        weights = _weights(deployment, engine, paths, folder)
        served.append(_serve(deployment, engine, plan.argv[-1], weights))
    versions = (f"tessc {__version__}",)
    commands = (*plans.values(), *served)
    steps = [
        *(f"bash {SCRIPT} {plan.name}" for plan in plans.values()),
        *(f"bash {SCRIPT} host_{n}" for n in range(1, len(hosts) + 1)),
    ]
    files, notes = [], []
    if len(served) > 1:
        front = StartCommand(name="router", what="in front of engines", argv=_NGINX)
        files, commands = [(NGINX_FILE, _nginx(deployment))], (*commands, front)
        steps.append(f"bash {SCRIPT} {front.name}")
        notes.append("nginx deals the requests, by the rates of the units and their load")
        if len(hosts) > 1:
            notes.append(f"`{NGINX_FILE}` has hosts by their names: put addresses in their place")
    return EmittedFleet(
        system="tessc",
        versions=versions,
        files=((SCRIPT, script("tessc", versions, hosts, commands)), *files),
        commands=commands,
        hosts=tuple((address(hosts, host), host) for host in hosts),
        steps=tuple(steps),
        notes=tuple(notes),
    )


def _nginx(deployment: Deployment) -> str:
    """Nginx in front of the units; answers are streamed, so nothing is kept back."""
    hosts, rates = deployment.hosts, {id(c.way): c.rate for c, _ in deployment.report.chosen.units}
    least = min(rates.values()) or 1.0
    units = []
    for engine in deployment.engines:
        host = engine.places[0].host if len(hosts) > 1 else "127.0.0.1"
        weight = max(1, round(10 * rates[id(engine.way)] / least))
        units.append(f"    server {host}:{PORT + engine.seat} weight={weight};")
    return _CONFIG.format(words=WRITTEN_BY, units="\n".join(units), port=FRONT_PORT)


def _plan(
    deployment: Deployment,
    engine: PlacedEngine,
    paths: Mapping[str, str],
    folder: str,
    number: int,
) -> StartCommand:
    """`tessc plan` of a unit: as many decode steps to a prefill step as requests have."""
    work, way = deployment.report.work, engine.way
    decode, prefill = _steps(deployment, engine, paths)
    reads = work.prompt / (prefill.rows * prefill.tokens)
    makes = max(work.answer - 1, 1.0) / engine.rows * engine.engine.lanes
    traces = [os.path.relpath(paths[step.name], folder) for step in (prefill, decode)]
    return StartCommand(
        name=f"plan_{number}",
        what=f"{engine.names}, {way.strategy}",
        argv=(
            *("tessc", "plan", f"{traces[0]}:1", f"{traces[1]}:{makes / reads:.6g}"),
            *_given(deployment, engine, folder),
            *("--strategy", str(way.strategy), "--sequences", str(engine.engine.lanes)),
            *("--output", f"unit_{number}.tsp"),
        ),
    )


def _given(deployment: Deployment, engine: PlacedEngine, folder: str) -> list[str]:
    """The GPUs of a unit, and what is given of times and memory, as `tessc plan` takes them."""
    options, offered = deployment.report.options, deployment.report.offered
    kinds = [offered.kinds[stage.kind] for stage in engine.engine.stages]
    names = Counter(kind.gpu.key if options.machine else kind.label for kind in kinds)
    words = ["--gpus", ",".join(f"{n}x{name}" for name, n in names.items())]
    words += ["--link", options.link if not options.machine else _slowest(offered, engine)]
    for size in options.memory:
        words += ["--memory", size if isinstance(size, str) else "{}={}".format(*size)]
    for path in options.profiles:
        words += ["--profile", os.path.relpath(path, folder)]
    if options.library is not None:
        words += ["--library", options.library]
    return words if options.tables else [*words, "--no-tables"]


def _slowest(offered: Offered, engine: PlacedEngine) -> str:
    """The slowest link between GPUs of these kinds in a machine file."""
    kinds = {stage.kind for stage in engine.engine.stages}
    rates = [
        link.bytes_per_second
        for link in offered.machine.links
        if offered.kind_of[link.source] in kinds and offered.kind_of[link.target] in kinds
    ]
    return f"{min(rates) * 8 / 1e9:g}Gb/s" if rates else "none"


def _steps(
    deployment: Deployment, engine: PlacedEngine, paths: Mapping[str, str]
) -> tuple[ModelStep, ModelStep]:
    """The smallest decode step that takes the batch, and a prefill step with the same states."""
    model = deployment.report.model
    rows = engine.rows // engine.engine.lanes
    if not all(step.name in paths for step in model.steps):
        raise cannot(
            "`tessc serve` needs the files of the traces",
            hint="capture the steps with `tessc trace`, and name their files",
        )
    decodes = [step for step in model.decode if step.rows >= rows]
    pairs = product(decodes or model.decode[-1:], reversed(model.prefill))
    chosen = next((pair for pair in pairs if _states(pair[0]) == _states(pair[1])), None)
    if chosen is None:
        raise cannot(
            f"no prefill step has the states of a decode step of {rows} sequences",
            "one plan has both steps, and their states are the same buffers",
            "capture both steps with caches of the same shape, and name these traces",
        )
    return chosen


def _states(step: ModelStep) -> dict[str, int]:
    return {buffer.name: buffer.bytes for buffer in step.buffers(Role.STATE)}


def _weights(
    deployment: Deployment, engine: PlacedEngine, paths: Mapping[str, str], folder: str
) -> list[str]:
    """The checkpoint, or the files of contents that the traces name: plans look beside them."""
    if deployment.model:
        return ["--weights", os.path.relpath(deployment.model, folder)]
    words = []
    for step in _steps(deployment, engine, paths):
        contents = step.trace.program.resident
        if contents is not None:
            place = os.path.relpath(os.path.join(step.trace.folder, contents), folder)
            words += ["--data", f"{step.name}={place}"]
    return words


def _serve(
    deployment: Deployment, engine: PlacedEngine, plan: str, weights: list[str]
) -> StartCommand:
    (place, *others) = engine.places
    if others:
        raise cannot(
            f"`tessc serve` cannot start {engine.names}: its GPUs are in several hosts",
            hint="write a hosts file, and serve the plan with `--hosts` (docs/guides/hosts.md)",
        )
    return StartCommand(
        name=f"engine_{engine.number}",
        what=f"{engine.names}, {engine.way.strategy}",
        argv=(
            *("tessc", "serve", plan, "--host", address(deployment.hosts, place.host)),
            *("--port", str(PORT + engine.seat), *weights),
        ),
        env=(("CUDA_VISIBLE_DEVICES", ",".join(str(gpu) for gpu in place.gpus)),),
        host=place.host,
    )
