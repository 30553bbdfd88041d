"""Steps on given GPUs, and attention apart, against plain sums and against all placements."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.planning.serving_traces import ServingStep, serving_trace
from tessera.driver.fleet.attention_ways import attention_ways
from tessera.driver.fleet.kernel_ways import _problem
from tessera.driver.fleet.make_fleet import offered_for, priced_model
from tessera.driver.fleet.model_steps import ModelStep, ServedModel
from tessera.driver.fleet.options import FleetOptions
from tessera.driver.fleet.placed_steps import GpuUnit, Places, held_by, taken_by
from tessera.driver.fleet.ways import WaySearch, placed_way
from tessera.driver.fleet.workload import Workload
from tessera.ir.program.program import Role
from tessera.planning.problem.problem import measure
from tessera.planning.search.attention import attention_layers
from tessera.planning.search.strategies import ATTENTION
from tests.helpers.share import share

LAYERS = 4
WORK = Workload(lengths=((512, 256),))


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("placed")
    made = []
    for phase, batch, tokens in (("decode", 1, 1), ("decode", 64, 1), ("decode", 256, 1),
                                 ("prefill", 1, 512)):  # fmt: skip
        step = ServingStep(model="llama-8b", phase=phase, batch=batch, tokens=tokens,
                           rows=256, capacity=1024)  # fmt: skip
        made.append(folder / f"{step.name}.ptx")
        made[-1].write_text(serving_trace(step, layers=LAYERS))
    return [str(path) for path in made]


@pytest.fixture(scope="module")
def search(paths: list[str]) -> WaySearch:
    options = FleetOptions(gpus="2xh100,2xl40s", tokens=(512, 256))
    offered = offered_for(options)
    return WaySearch(priced_model(paths, options, offered)[0], offered, WORK)


def _with_memory(search: WaySearch, memory: dict[str, int]) -> WaySearch:
    """The same GPUs with so many bytes each."""
    options = FleetOptions(
        gpus="h100,l40s", link="100Gb/s", tokens=(512, 256), memory=tuple(memory.items())
    )
    return replace(search, offered=offered_for(options))


def _summed(step: ModelStep, places: Places, unit: GpuUnit) -> tuple[float, list[float]]:
    """The time of a step and its loads, one task and one tensor after the other."""
    machine = unit.machine
    links = {(k.source, k.target): k for k in machine.links}
    loads = [0.0] * unit.loads()
    total = 0.0
    for times, attends, place in zip(step.ns, step.attends, places, strict=True):
        ns = times[unit.kinds[place]] or 0.0
        ns *= WORK.context / step.context if attends and step.is_decode else 1.0
        loads[place] += ns
        total += ns
    for tensor in step.tensors:
        source = places[tensor.producer]
        for target in {places[n] for n in tensor.consumers} - {source}:
            link, tax = links[source, target], machine.transfer_ns * tensor.count
            loads[source] += tax
            loads[target] += tax
            total += 2 * tax + link.latency_ns + tensor.bytes * 1e9 / link.bytes_per_second
            for number, channel in enumerate(machine.channels, len(unit.kinds)):
                if (source, target) in channel.pairs:
                    loads[number] += tensor.bytes * 1e9 / channel.bytes_per_second
    return total, loads


def _held(model: ServedModel, places: dict[str, Places], device: int) -> list[float]:
    """Bytes of weights, of caches per token, and of states per row on a device."""
    names = {
        role: {
            name
            for step in model.steps
            for name, users in step.users(role).items()
            if any(places[step.name][user] == device for user in users)
        }
        for role in (Role.WEIGHT, Role.STATE)
    }
    tables = ((Role.WEIGHT, model.weight_bytes), (Role.STATE, model.token_bytes),
              (Role.STATE, model.row_bytes))  # fmt: skip
    return [sum(own.get(name, 0.0) for name in names[role]) for role, own in tables]


def test_times_and_bytes_are_those_of_every_step_and_tensor(search: WaySearch) -> None:
    unit = search.unit((2, 2))
    assert unit is not None
    draw = random.Random(3)
    for number in share(range(12)):
        devices = range(1 + number % 4)
        places = {s.name: tuple(draw.choice(devices) for _ in s.ns) for s in search.model.steps}
        for step in search.model.steps:
            taken = taken_by(step, places[step.name], unit, WORK)
            assert taken is not None
            total, loads = _summed(step, places[step.name], unit)
            assert taken.ns == pytest.approx(total)
            assert taken.loads == pytest.approx(loads)
        held = held_by(search.model, places, unit)
        for device in range(4):
            own = [held.weights[device], held.tokens[device], held.rows[device]]
            assert own == pytest.approx(_held(search.model, places, device))


def _all_rates(search: WaySearch) -> dict[tuple[int, ...], float]:
    """Rates of all placements of a decode step's layers: products and caches of each, freely."""
    decode = search.model.decode[-1]
    caches = {n: layer for layer, users in _caches(decode).items() for n in users}
    rates = {}
    unit = search.unit((1, 1))
    assert unit is not None
    for places in itertools.product((0, 1), repeat=2 * LAYERS):
        layer, steps = 0, []
        for number in range(len(decode.ns)):
            if number in caches:
                layer = min(caches[number] + 1, LAYERS - 1)
                steps.append(places[2 * caches[number] + 1])
            else:
                steps.append(places[2 * layer])
        way = placed_way(search, "", (1, 1), unit, search.places(steps))
        rates[places] = 0.0 if way is None else search.rate(way)
    return rates


def _caches(decode: ModelStep) -> dict[int, set[int]]:
    users: dict[int, set[int]] = {}
    for name, own in decode.users(Role.STATE).items():
        users.setdefault(int(name[1 : name.index(".")]), set()).update(own)
    return users


def _is_of_the_form(places: tuple[int, ...]) -> bool:
    """A run of layers on one GPU, one with weights alone there, and the other GPU has the rest."""
    for turn, number in itertools.product((1, -1), (0, 1)):
        products, caches = ([x ^ number for x in places[n::2][::turn]] for n in (0, 1))
        in_runs = products == sorted(products) and caches == sorted(caches)
        if in_runs and sum(products) < sum(caches):
            return True
    return False


def test_attention_apart_is_the_best_of_all_placements_of_its_form(search: WaySearch) -> None:
    """With random memory; and where memory is scarce, it is near the best of all placements."""
    draw = random.Random(11)
    gained = 0
    for _ in share(range(8)):
        memory = {"h100": int(draw.uniform(4.5e9, 6e9)), "l40s": int(draw.uniform(3e9, 8e9))}
        tight = _with_memory(search, memory)
        rates = _all_rates(tight)
        form = max((rate for p, rate in rates.items() if _is_of_the_form(p)), default=0.0)
        ways = [tight.rate(way) for way in attention_ways(tight, fits_alone=True)]
        assert max(ways, default=0.0) == pytest.approx(form)
        assert form >= 0.9 * max(rates.values())
        alone = [rates[(n,) * (2 * LAYERS)] for n in (0, 1)]
        gained += form > 1.1 * sum(alone)
    assert gained


def test_plans_put_attention_apart_as_the_best_of_all_splits_within_memory(
    search: WaySearch,
) -> None:
    """`tessc plan`: with random memory, against every split from both ends on both GPUs."""
    draw = random.Random(7)
    apart = 0
    for _ in share(range(8)):
        memory = {"h100": int(draw.uniform(5e9, 8e9)), "l40s": int(draw.uniform(3e9, 9e9))}
        tight = _with_memory(search, memory)
        unit = tight.unit((1, 1))
        assert unit is not None
        problem = _problem(tight, unit, tight.model.decode[1], 48, 2).problem
        layers = attention_layers(problem)
        assert layers is not None
        assert layers.count == LAYERS
        every = [
            layers.placement((own, n), first, 1 - first, turned)
            for own in range(LAYERS)
            for n in range(1, LAYERS + 1 - own)
            for first in (0, 1)
            for turned in (False, True)
        ]
        whole = [tuple(int((task.kind == "attention") == bool(n)) for task in problem.tasks)
                 for n in (0, 1)]  # fmt: skip
        measured = [measure(problem, placement) for placement in every + whole]
        least = min((m.period_ns for m in measured if m.fits), default=None)
        chosen = ATTENTION.best_placement(problem)
        assert (chosen is None) == (least is None)
        if chosen is not None:
            assert measure(problem, chosen).period_ns == pytest.approx(least)
            apart += chosen not in whole
    assert apart


def test_a_prompt_in_one_step_is_read_where_its_weights_are(search: WaySearch) -> None:
    """In several steps, its attention is where the cache is, which the steps before have filled."""
    decode, prefill = search.model.decode[-1], search.model.prefill[-1]
    caches = {n for own in decode.users(Role.STATE).values() for n in own}
    places = [int(n in caches) for n in range(len(decode.ns))]
    own = {n for users in prefill.users(Role.STATE).values() for n in users}
    attention = {n for n, attends in enumerate(prefill.attends) if attends}
    assert attention
    assert not attention & own
    longer = replace(search, work=Workload(lengths=((512, 256), (513, 256))))
    for tried, there in ((search, own), (longer, own | attention)):
        made = tried.places(places)[prefill.name]
        assert {n for n, place in enumerate(made) if place} == there


def test_other_gpus_may_not_run_a_step(search: WaySearch, tmp_path: Path) -> None:
    step = search.model.decode[-1]
    unit = search.unit((1, 1))
    assert unit is not None
    halved = replace(step, ns=tuple((row[0], None) for row in step.ns))
    assert taken_by(halved, (1,) * len(step.ns), unit, WORK) is None
    assert taken_by(halved, (0,) * len(step.ns), unit, WORK) is not None
