"""Random parts and twins on random devices give the bytes of the whole steps on one device."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from tessera.backend.processes.arena import Arena
from tessera.backend.processes.engine import DeviceEngine
from tessera.backend.processes.inline import InlineBackend
from tessera.backend.processes.visits import ReadyOperation
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.checker.check_plan import check_replica
from tessera.passes.division.divide import divide
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.random_divisions import random_devices, random_division
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, graph_of, model_of, serve
from tests.helpers.share import least, share

DEVICES = "abc"


def check_divisions(
    programs: Sequence[ir.Program], seed: int, *, plans: int, filled: bool = False
) -> tuple[int, int]:
    """Returns how many steps were cut, and how many had twins."""
    rng = random.Random(seed)
    cut = twinned = 0
    lanes = rng.choice((1, 2))
    asks = [Ask(n, trace=rng.randrange(len(programs)), lane=rng.randrange(lanes)) for n in range(3)]
    whole = model_of(programs, [["a"] * len(p.steps) for p in programs], lanes=lanes, filled=filled)
    wanted = expected(whole, asks)
    managers = [AnalysisManager(program) for program in programs]
    for _ in range(plans):
        devices = DEVICES[: rng.choice((2, 3))]
        divisions = [random_division(manager, rng, len(devices)) for manager in managers]
        divided = [divide(*pair) for pair in zip(programs, divisions, strict=True)]
        graphs = [graph_of(program) for program in divided]
        placed = [random_devices(program, rng, devices) for program in divided]
        model = model_of(
            [with_part_kernels(program) for program in divided],
            placed,
            slots=rng.choice((1, 2)),
            lanes=lanes,
            graphs=graphs,
            filled=filled,
            roomy=rng.choice(("", devices)),
            hosts=rng.choice(({}, {device: device for device in devices})),
        )
        assert check_replica(model.lowered, divided, graphs, placed) == ()
        done, states = serve(InlineBackend(model, seed=rng.randrange(1 << 30)), model, asks)
        assert_equal(whole, asks, wanted, done, states)
        cut += sum(len(division.cuts) for division in divisions)
        twinned += sum(len(division.twins) for division in divisions)
    return cut, twinned


def test_equal_to_one_device() -> None:
    cut = twinned = 0
    for seed in range(least(9, 4)):
        ctas, wide = (1, 4, 8)[seed % 3], seed % 2 == 1
        program = random_program(seed, ctas=ctas, races=False, wide=wide)
        more = check_divisions([program], seed, plans=2, filled=seed % 2 == 0)
        cut, twinned = cut + more[0], twinned + more[1]
    assert cut > least(30, 10)
    assert twinned > least(30, 10)


def test_two_traces_share_weights_and_states() -> None:
    for seed in share(range(4)):
        pair = [random_program(seed + n, steps=5, ctas=4, races=False) for n in (0, 1)]
        check_divisions(pair, seed, plans=2)


def test_patterns_are_there_when_an_operation_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues run in threads: one must not write a pattern over what another has done since."""
    written: list[object] = []
    running: list[ReadyOperation] = []
    move_in, run = Arena.move_in, DeviceEngine.run

    def noted(arena: Arena, *what: Any) -> None:
        assert not running
        written.append(what)
        move_in(arena, *what)

    def watched(engine: DeviceEngine, task: ReadyOperation) -> None:
        running.append(task)
        run(engine, task)
        running.clear()

    monkeypatch.setattr(Arena, "move_in", noted)
    monkeypatch.setattr(DeviceEngine, "run", watched)
    model = model_of([random_program(1)], ["abababab"])
    serve(InlineBackend(model, seed=1), model, [Ask(0)])
    assert written


@pytest.mark.slow
def test_thousands_of_divisions() -> None:
    for seed in range(1000, 1300):
        check_divisions(
            [random_program(seed, ctas=4, races=False, wide=seed % 2 == 1)], seed, plans=3
        )
        pair = [random_program(seed + n, steps=5, ctas=4, races=False) for n in (0, 1)]
        check_divisions(pair, seed, plans=2)
