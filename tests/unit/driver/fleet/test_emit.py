"""`tessc fleet --emit`: commands that the recorded versions take, GPUs given once, refusals."""

from __future__ import annotations

import json
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.diagnostics import Source, TesseraError
from tessera.driver.fleet.choose_units import FleetChoice
from tessera.driver.fleet.emit import dynamo, vllm
from tessera.driver.fleet.emit.commands import EmittedFleet, StartCommand
from tessera.driver.fleet.emit.deployment import HOST_GPUS, deployment_of
from tessera.driver.fleet.emit.emit_fleet import emit_fleet
from tessera.driver.fleet.engines import EngineRole, EngineStage, UnitEngine
from tessera.driver.fleet.layer_ways import stage_layers
from tessera.driver.fleet.make_fleet import FleetReport, fleet, offered_for
from tessera.driver.fleet.options import FleetOptions
from tessera.frontend.plan.tsp import read_plan
from tessera.ir.program.program import Role
from tests.helpers.command import tessc

TABLE = json.loads((Path(__file__).parents[3] / "data/serving_options.json").read_text())
MODEL = "meta-llama/Llama-3.1-8B"
BOTH, PROMPTS, ANSWERS, _ = EngineRole
PLAIN = (EngineStage(0, 32),)


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("emit")
    steps = [
        ServingStep(model="llama-8b", phase=p, batch=b, tokens=t, rows=8, capacity=1024)
        for p, b, t in (("decode", 8, 1), ("prefill", 1, 512))
    ]
    for step in steps:
        (folder / f"{step.name}.ptx").write_text(serving_trace(step, layers=3))
    return [str(folder / f"{step.name}.ptx") for step in steps]


@pytest.fixture(scope="module")
def report(traces: list[str]) -> FleetReport:
    strategies = ("single", "layers", "phase")
    options = FleetOptions(gpus="2xa100,2xl40s", tokens=(512, 64), strategies=strategies)
    return fleet(traces, options)


def _answer(report: FleetReport, *units: tuple[int, Sequence[UnitEngine]]) -> FleetReport:
    """The report with an answer of these units: counts and engines."""
    plain = next(c for c in report.capacities if c.way.strategy == "single")
    made = []
    for count, engines in units:
        way = replace(plain.way, engines=tuple(engines), role=engines[0].role if engines else BOTH)
        made.append((replace(plain, way=way), count))
    return replace(report, chosen=FleetChoice(name="this mix", units=tuple(made), rate=1.0))


def _emitted(report: FleetReport, system: str) -> EmittedFleet:
    return emit_fleet(report, system, (), MODEL, "folder")


# --- what versions take ---------------------------------------------------------------------------


def _fault(command: StartCommand) -> str | None:
    """What the recorded version of a program does not take in a command."""
    program = next(
        p for p in TABLE["options"] if tuple(p.split()) == command.argv[: p.count(" ") + 1]
    )
    words = list(command.argv[program.count(" ") + 1 :])
    if program == "vllm serve":
        words.pop(0)
    known = TABLE["options"][program]
    while words:
        name = words.pop(0)
        values = []
        while words and not words[0].startswith("--"):
            values.append(words.pop(0))
        kind = known.get(name)
        if kind is None:
            return f"no option {name}"
        wanted = range(1, 99) if str(kind).endswith("...") else [int(kind != "flag")]
        if len(values) not in wanted:
            return f"{name} has {len(values)} values"
        if any(not _is(value, kind) for value in values):
            return f"{name} is {values}"
    return next((f"no variable {n}" for n, _ in command.env if n not in TABLE["environment"]), None)


def _is(value: str, kind: str | list[str]) -> bool:
    if isinstance(kind, list):
        return value in kind
    try:
        if kind in ("int", "float"):
            {"int": int, "float": float}[kind](value)
        elif kind == "json":
            known = TABLE["kv_transfer_config"]
            return all(_is(text, known.get(key, [])) for key, text in json.loads(value).items())
    except ValueError:
        return False
    return True


def _wrong(command: StartCommand) -> Iterator[StartCommand]:
    """Copies of a command, each with a wrong option, a missing value or a value of another type."""
    argv = command.argv
    for n, word in enumerate(argv):
        if word.startswith("--"):
            yield replace(command, argv=(*argv[:n], f"{word}s", *argv[n + 1 :]))
            if [w.startswith("--") for w in (*argv, "--")[n + 1 : n + 3]] == [False, True]:
                yield replace(command, argv=(*argv[: n + 1], *argv[n + 2 :]))
        elif (
            word.replace(".", "").isdigit()
            or word.startswith("{")
            or word in dynamo._MODES.values()
        ):
            yield replace(command, argv=(*argv[:n], f"{word}x", *argv[n + 1 :]))
    for name, value in command.env:
        yield replace(command, env=((f"{name}S", value),))


def _random_engine(draw: random.Random, role: EngineRole, mixed: bool) -> UnitEngine:
    staged = role is BOTH and draw.random() < 0.5
    count = draw.choice((2, 3, 4)) if staged else 1
    kind = draw.randrange(2)
    kinds = [draw.randrange(2) if mixed else kind for _ in range(count)]
    return UnitEngine(
        stages=tuple(EngineStage(k, draw.randint(1, 40)) for k in kinds),
        tensor=draw.choice((1, 1, 2, 4, 8)) if count == 1 else 1,
        role=role,
        lanes=draw.randint(1, 3),
        rows=draw.choice((1, 17, 256)),
    )


@pytest.mark.parametrize("seed", range(12))
def test_commands_of_any_answer_are_taken_and_use_each_gpu_once(
    report: FleetReport, seed: int
) -> None:
    draw = random.Random(seed)
    roles = draw.choice(([BOTH], [PROMPTS, ANSWERS], [BOTH, PROMPTS, ANSWERS]))
    engines = [_random_engine(draw, role, mixed=seed % 2 == 0) for role in roles]
    units = [(draw.randint(1, 12), [engine]) for engine in engines]
    answer = _answer(report, *units)
    emitted = [_emitted(answer, "vllm")]
    if len({s.kind for e in engines for s in e.stages}) < 2 and len(roles) < 3:
        emitted.append(_emitted(answer, "dynamo"))
    for command in (c for each in emitted for c in each.commands):
        assert _fault(command) is None
        for wrong in _wrong(command):
            assert _fault(wrong) is not None, wrong.argv
    placed = deployment_of(answer, MODEL).engines
    gpus = Counter((p.host, gpu) for e in placed for p in e.places for gpu in p.gpus)
    assert set(gpus.values()) == {1}
    assert gpus.total() == sum(n * e.gpus for n, own in units for e in own)
    assert all(gpu < HOST_GPUS for _, gpu in gpus)
    ports = Counter((e.places[0].host, e.seat) for e in placed)
    assert set(ports.values()) == {1}


def test_the_versions_are_those_of_the_table() -> None:
    assert TABLE["versions"] == {
        "vllm": vllm.VLLM,
        "ai-dynamo": dynamo.DYNAMO,
        "vllm-router": vllm.ROUTER,
    }


# --- the values of an answer ----------------------------------------------------------------------


def _options(command: StartCommand) -> dict[str, str]:
    words = command.argv
    return {w: words[n + 1] for n, w in enumerate(words[:-1]) if w.startswith("--")}


def test_pools_with_a_free_ratio_have_their_roles_limits_and_router(report: FleetReport) -> None:
    reader = UnitEngine(stages=(EngineStage(1, 32),), role=PROMPTS, rows=5)
    writer = UnitEngine(stages=(EngineStage(0, 32),), role=ANSWERS, tensor=2, lanes=2)
    answer = _answer(report, (14, [reader]), (5, [writer]))
    batch, chunk = answer.chosen.units[0][0].rows, answer.chosen.units[0][0].way.chunk
    emitted = _emitted(answer, "vllm")
    *served, router = emitted.commands
    assert len(served) == 19
    assert Counter(command.host for command in served) == {
        "host-1": 8, "host-2": 6, "host-3": 4, "host-4": 1
    }  # fmt: skip
    reads, makes = _options(served[0]), _options(served[-1])
    assert json.loads(reads["--kv-transfer-config"])["kv_role"] == "kv_producer"
    assert json.loads(makes["--kv-transfer-config"])["kv_role"] == "kv_consumer"
    assert (reads["--max-num-seqs"], reads["--max-num-batched-tokens"]) == ("5", str(chunk))
    assert makes["--max-num-seqs"] == str(2 * batch)
    assert makes["--max-num-batched-tokens"] == str(chunk + 2 * batch)
    assert makes["--tensor-parallel-size"] == "2"
    assert makes["--max-model-len"] == str(512 + 64)
    assert makes["--dtype"] == "bfloat16"
    assert 0.5 < float(makes["--gpu-memory-utilization"]) <= 0.95
    assert dict(served[-1].env)["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert Counter(router.argv)["--prefill"] == 14
    assert Counter(router.argv)["--decode"] == 5
    front, first, second = _emitted(answer, "dynamo").commands
    assert (front.count, first.count, second.count) == (1, 14, 5)
    assert _options(first)["--disaggregation-mode"] == "prefill"


@pytest.mark.parametrize("gpus", ["a100,l40s", pytest.param("a100", marks=pytest.mark.slow)])
def test_pools_of_a_real_answer_are_started(traces: list[str], gpus: str) -> None:
    options = FleetOptions(gpus=gpus, tokens=(512, 64), demand=1e3, strategies=("phase",))
    answer = fleet(traces, options)
    roles = Counter(dict.fromkeys((PROMPTS, ANSWERS), 0))
    for capacity, count in answer.chosen.units:
        roles[capacity.way.role] += count
        assert [e.role for e in capacity.way.engines] == [capacity.way.role]
    assert roles[PROMPTS]
    assert roles[ANSWERS]
    emitted = [_emitted(answer, system) for system in ("vllm", "dynamo")]
    for command in (c for each in emitted for c in each.commands):
        assert _fault(command) is None
        assert all(_fault(wrong) is not None for wrong in _wrong(command))
    router = emitted[0].commands[-1]
    assert Counter(router.argv)["--prefill"] == roles[PROMPTS]
    assert Counter(router.argv)["--decode"] == roles[ANSWERS]
    counts = Counter(c.name.split("-")[0] for c in emitted[1].commands for _ in range(c.count))
    assert counts == {"frontend": 1, "prefill": roles[PROMPTS], "decode": roles[ANSWERS]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "gpus"),
    [
        ("phase", "1xa100,1xl40s"),
        ("phase", "2xa100,2xl40s"),
        ("roles", "2xa100,2xl40s"),
    ],
)
def test_tessc_serves_pools_by_one_plan_with_roles(
    traces: list[str], tmp_path: Path, strategy: str, gpus: str
) -> None:
    options = FleetOptions(gpus=gpus, tokens=(512, 64), strategies=("phase", "single"))
    report = fleet(traces, options)
    row = next(row for row in report.rivals if row.name == strategy)
    roles = Counter(dict.fromkeys(EngineRole, 0))
    for capacity, count in row.units:
        roles[capacity.way.role] += count
    answer = replace(report, chosen=row)
    plan, serve = emit_fleet(answer, "tessc", traces, None, str(tmp_path)).commands
    assert serve.argv[:3] == ("tessc", "serve", "unit_1.tsp")
    assert dict(serve.env)["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"[: 2 * int(gpus[0]) * 2 - 1]
    assert _options(plan)["--strategy"] == strategy
    assert _options(plan)["--gpus"] == gpus
    words = [str(tmp_path / w) if w.endswith(".tsp") or ".ptx:" in w else w for w in plan.argv[1:]]
    assert tessc(*words).code == 0
    file = tmp_path / "unit_1.tsp"
    planned = read_plan(Source(file.name, file.read_text())).plan
    assert len(planned.replicas) > 1
    assert any(0.0 in replica.shares for replica in planned.replicas)
    if strategy == "phase":  # the planner finds the pools of the fleet
        assert sum(not r.serves(1) for r in planned.replicas) == roles[PROMPTS]
        assert sum(not r.serves(0) for r in planned.replicas) == roles[ANSWERS]


def test_stages_of_a_pipeline_have_the_layers_of_the_answer(report: FleetReport) -> None:
    ways = [c.way for c in report.capacities if c.way.strategy == "layers"]
    assert {sum(stage.layers for stage in way.engines[0].stages) for way in ways} == {0, 3}
    step = report.model.decode[-1]
    assert {name.partition(".")[0] for name in step.users(Role.STATE)} == {"l0", "l1", "l2"}
    for cut in range(len(step.ns)):
        places = [int(n >= cut) for n in range(len(step.ns))]
        ends = [max(max(users) for name, users in step.users(Role.STATE).items() if layer in name)
                for layer in ("l0.", "l1.", "l2.")]  # fmt: skip
        before = sum(end < cut for end in ends)
        assert stage_layers(step, places, [0, 1]) == (
            [before, 3 - before] if 0 < before < 3 else [0, 0]
        )
    assert stage_layers(step, [1] * len(step.ns), [1, 0]) == [0, 0]
    stages = tuple(EngineStage(kind, n) for kind, n in ((0, 20), (0, 8), (1, 4)))
    command = _emitted(_answer(report, (1, [UnitEngine(stages=stages)])), "vllm").commands[0]
    assert dict(command.env)[vllm.LAYER_PARTITION] == "20,8,4"
    assert dict(command.env)["CUDA_VISIBLE_DEVICES"] == "0,1,2"
    assert _options(command)["--pipeline-parallel-size"] == "3"


def test_an_engine_over_two_hosts_is_a_command_in_each(report: FleetReport) -> None:
    engine = UnitEngine(stages=tuple(EngineStage(0, 2) for _ in range(16)))
    first, second = _emitted(_answer(report, (1, [engine])), "vllm").commands
    assert _options(first)["--node-rank"] == "0"
    assert _options(second)["--node-rank"] == "1"
    assert "--headless" in second.argv
    assert "--headless" not in first.argv
    two = _emitted(_answer(report, (2, [engine])), "vllm").commands
    assert len([word for word in two[-1].argv if word.startswith("http")]) == 2


def test_hosts_and_numbers_of_gpus_are_those_of_the_machine_file(
    report: FleetReport, tmp_path: Path
) -> None:
    file = tmp_path / "hosts.toml"
    file.write_text(
        'link = "100Gb/s"\n[[node]]\nname = "left"\nlink = "pcie4"\n[[node.card]]\ngpu = "a100"\n'
        'count = 2\n[[node.card]]\ngpu = "l40s"\n[[node]]\nname = "right"\nlink = "pcie4"\n'
        '[[node.card]]\ngpu = "l40s"\ncount = 2\n'
    )
    options = replace(report.options, machine=str(file), gpus=None)
    first = UnitEngine(stages=(EngineStage(1, 32),))
    second = UnitEngine(stages=(EngineStage(0, 20), EngineStage(2, 12)))
    known = replace(report, options=options, offered=offered_for(options))
    answer = _answer(known, (1, [first]), (2, [second]))
    emitted = _emitted(answer, "vllm")
    where = [(c.host, dict(c.env)["CUDA_VISIBLE_DEVICES"]) for c in emitted.commands[:-1]]
    assert where == [("left", "2"), ("left", "0"), ("right", "0"), ("left", "1"), ("right", "1")]
    assert "the address of right" in dict(emitted.files)["fleet.sh"]


# --- files ----------------------------------------------------------------------------------------


def test_the_script_starts_every_command_with_its_variables(
    report: FleetReport, tmp_path: Path
) -> None:
    pools = [(5, [UnitEngine(stages=PLAIN, role=role)]) for role in (PROMPTS, ANSWERS)]
    emitted = emit_fleet(_answer(report, *pools), "vllm", (), "it's $HOME", "folder")
    (tmp_path / "fleet.sh").write_text(dict(emitted.files)["fleet.sh"])
    for name in ("vllm", "vllm-router"):
        stub = tmp_path / name
        stub.write_text('#!/bin/bash\nprintf "%s\\0" "$CUDA_VISIBLE_DEVICES" "$0" "$@"\n')
        stub.chmod(0o755)
    hosts = {f"HOST_{n}": f"10.0.0.{n}" for n in range(1, 3)}
    for command in emitted.commands:
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": "-", **hosts}
        words = ["bash", "fleet.sh", command.name]
        done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, check=True)
        said = done.stdout.decode()
        gpus, program, *words = said.split("\0")[:-1]
        assert gpus == dict(command.env).get("CUDA_VISIBLE_DEVICES", "-")
        wanted = [_at(word, hosts) for word in command.argv]
        assert [Path(program).name, *words] == wanted
    together = subprocess.run(
        ["bash", "fleet.sh", "host_1"], cwd=tmp_path, env=env, capture_output=True, check=True
    )
    assert b"serve" in together.stdout
    missing = subprocess.run(
        ["bash", "fleet.sh", "router"], cwd=tmp_path, capture_output=True, check=False
    )
    assert b"the address of host-1" in missing.stderr


def _at(word: str, hosts: dict[str, str]) -> str:
    for name, value in {**hosts, "FRONT": "127.0.0.1"}.items():
        word = word.replace(f"${{{name}}}", value)
    return word


def test_a_deployment_has_the_fields_of_its_version(report: FleetReport) -> None:
    wide = UnitEngine(stages=tuple(EngineStage(0, 2) for _ in range(16)))
    small = UnitEngine(stages=(EngineStage(1, 32),), tensor=4)
    emitted = _emitted(_answer(report, (2, [wide]), (1, [small])), "dynamo")
    document = _read_yaml(dict(emitted.files)["deployment.yaml"])
    _check_fields(document, "")
    front, first, second = document["spec"]["components"]
    assert (front["type"], first["type"], first["replicas"]) == ("frontend", "worker", 2)
    assert first["multinode"]["nodeCount"] == 2
    spec = second["podTemplate"]["spec"]
    assert spec["nodeSelector"] == {dynamo.LABEL: "l40s"}
    container = spec["containers"][0]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    assert tuple(container["command"] + container["args"]) == emitted.commands[2].argv


def _check_fields(field: Any, place: str) -> None:
    names = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
    for key, value in field.items():
        known = TABLE["deployment"][place][key]
        assert value in known if isinstance(known, list) else isinstance(value, names[known])
        deeper = f"{place}.{key}".strip(".")
        for part in value if isinstance(value, list) else [value]:
            own = f"{deeper}[]" if isinstance(value, list) else deeper
            if own in TABLE["deployment"]:
                _check_fields(part, own)


def _read_yaml(text: str) -> Any:
    """The document of block lists, block maps and scalars, by its indents."""
    lines = [line for line in text.splitlines() if not line.startswith("#")]

    def scalar(word: str) -> Any:
        quoted = word[0] in '"{[' or word in ("true", "false") or word.isdigit()
        return json.loads(word) if quoted else word

    def block(indent: int) -> Any:
        made: Any = None
        while lines and len(lines[0]) - len(lines[0].lstrip()) == indent:
            line = lines.pop(0).strip()
            if line.startswith("- "):
                made = made or []
                key, colon, rest = line[2:].partition(":")
                if colon and not line[2:].startswith(('"nvcr', '"{')):
                    lines.insert(0, " " * (indent + 2) + line[2:])
                    made.append(block(indent + 2))
                else:
                    made.append(scalar(line[2:]))
                continue
            made = made or {}
            key, _, rest = line.partition(":")
            deeper = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
            made[scalar(key)] = scalar(rest.strip()) if rest.strip() else block(deeper)
        return made

    return block(0)


def test_the_command_writes_a_folder_and_replaces_only_its_own(
    traces: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ("fleet", *traces, "--gpus", "a100", "--tokens", "512:64", "--strategies", "single")
    refused = tessc(*words, "--emit", "vllm")
    assert refused.code == 1
    assert "TSR3030" in refused.err
    assert "--model" in refused.err
    assert not list(tmp_path.iterdir())
    told = tessc(*words, "--emit", "vllm", "--model", MODEL, "--json")
    start = json.loads(told.text)["start"]
    assert start["commands"][0]["argv"][:3] == ["vllm", "serve", MODEL]
    files = {path.name: path.read_text() for path in Path("fleet_vllm").iterdir()}
    assert set(files) == {"fleet.sh", "README.md"}
    again = tessc(*words, "--emit", "vllm", "--model", MODEL)
    assert again.code == 0
    assert f"vllm serve {MODEL}" in again.text
    assert f"vllm serve {MODEL}" in files["README.md"]
    Path("fleet_vllm/README.md").write_text("mine")
    kept = tessc(*words, "--emit", "vllm", "--model", "other")
    assert kept.code == 1
    assert "TSR1911" in kept.err
    assert Path("fleet_vllm/README.md").read_text() == "mine"
    assert Path("fleet_vllm/fleet.sh").read_text() == files["fleet.sh"]
    assert tessc(*words, "--model", MODEL).code == 2


def test_tessc_plans_and_serves_each_unit(
    report: FleetReport, traces: list[str], tmp_path: Path
) -> None:
    folder = str(tmp_path)
    single = next(c for c in report.capacities if c.way.strategy == "single")
    layers = next(c for c in report.capacities if c.way.strategy == "layers")
    chosen = FleetChoice(name="", units=((single, 2), (layers, 1)), rate=1.0)
    emitted = emit_fleet(replace(report, chosen=chosen), "tessc", traces, None, folder)
    plans = [c for c in emitted.commands if c.argv[:2] == ("tessc", "plan")]
    serves = [c for c in emitted.commands if c.argv[:2] == ("tessc", "serve")]
    assert [_options(plan)["--strategy"] for plan in plans] == ["single", "layers"]
    assert [serve.argv[2] for serve in serves] == ["unit_1.tsp", "unit_1.tsp", "unit_2.tsp"]
    assert len({dict(serve.env)["CUDA_VISIBLE_DEVICES"] for serve in serves}) == 3
    front = dict(emitted.files)["nginx.conf"]
    weights = [int(n) for n in re.findall(r"server 127\.0\.0\.1:81\d\d weight=(\d+);", front)]
    assert weights[0] == weights[1] == 10
    assert weights[2] == round(10 * layers.rate / single.rate)
    words = [
        str(tmp_path / word) if word.endswith(".tsp") or ".ptx:" in word else word
        for word in plans[1].argv[1:]
    ]
    assert tessc(*words).code == 0
    assert (tmp_path / "unit_2.tsp").read_text().startswith("tessera-plan")


@pytest.mark.slow
def test_tessc_serves_with_the_contents_of_its_traces(tmp_path: Path) -> None:
    folder = Path(__file__).parents[4] / "examples/traces"
    steps = [str(folder / f"llama_steps_{phase}.ptx") for phase in ("decode", "prefill")]
    options = FleetOptions(gpus="a100", tokens=(16, 8), context=32, strategies=("single",))
    emitted = emit_fleet(fleet(steps, options), "tessc", steps, None, str(tmp_path))
    plan, serve = emitted.commands
    data = [word.partition("=") for word in serve.argv if ".npz" in word]
    assert [name for name, _, _ in data] == ["llama_steps_decode", "llama_steps_prefill"]
    assert {(tmp_path / path).resolve() for _, _, path in data} == {folder / "llama_steps.npz"}
    shares = {word.partition(":")[2] for word in plan.argv if ".ptx" in word}
    assert shares == {"1", "0.583333"}  # four chunks of a prompt, 7 / 3 decode steps


# --- refusals -------------------------------------------------------------------------------------


def _refused(report: FleetReport, system: str, model: str | None = MODEL) -> str:
    with pytest.raises(TesseraError) as caught:
        emit_fleet(report, system, (), model, "folder")
    finding = caught.value.diagnostics[0]
    assert finding.code == "TSR3030"
    return " ".join((str(finding.headline), *map(str, finding.notes), str(finding.hint)))


def test_what_a_system_cannot_start_is_refused_with_what_it_can(report: FleetReport) -> None:
    for strategy, why in (("kernel", "kernels one by one"), ("attention", "different GPUs")):
        unplaced = _answer(report, (1, []))
        capacity, count = unplaced.chosen.units[0]
        units = ((replace(capacity, way=replace(capacity.way, strategy=strategy)), count),)
        answer = replace(report, chosen=FleetChoice(name="", units=units, rate=9.0))
        said = _refused(answer, "vllm")
        assert why in said
        assert "can be started" in said
        assert "--strategies" in said
    two = (EngineStage(0, 30), EngineStage(1, 2))
    odd = UnitEngine(stages=tuple(EngineStage(0, 2) for _ in range(9)))
    pools = [UnitEngine(stages=PLAIN, role=PROMPTS), UnitEngine(stages=PLAIN, role=ANSWERS)]
    cases = [
        ("vllm", [UnitEngine(stages=(EngineStage(0, 32), EngineStage(0, 0)))], "or one has none"),
        ("vllm", [UnitEngine(stages=two, role=ANSWERS), pools[0]], "NixlConnector"),
        ("vllm", [odd], "8 in host-1, 1 in host-2"),
        ("dynamo", [UnitEngine(stages=two)], "several kinds"),
        ("dynamo", [*pools, UnitEngine(stages=PLAIN)], "some units read prompts apart"),
        ("tessc", [UnitEngine(stages=PLAIN)], "files of the traces"),
    ]
    for system, engines, why in cases:
        assert why in _refused(_answer(report, (1, engines)), system), (system, why)
    for system, strategy, role, why in (
        ("tessc", "layers", PROMPTS, "a GPU has the whole model"),
        ("vllm", "single", EngineRole.SHARES, "separate shares"),
    ):
        unit = next(c for c in report.capacities if c.way.strategy == strategy)
        units = ((replace(unit, way=replace(unit.way, role=role)), 1),)
        answer = replace(report, chosen=FleetChoice(name="", units=units, rate=9.0))
        assert why in _refused(answer, system)
    nothing = replace(report, chosen=FleetChoice(name=""))
    assert "nothing to start" in _refused(nothing, "vllm")
    assert "--model" in _refused(_answer(report, (1, [UnitEngine(stages=PLAIN)])), "dynamo", None)
