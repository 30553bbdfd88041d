"""Random placements of random traces give the bytes of one device, in any order of operations."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.backend.processes.inline import InlineBackend
from tessera.backend.service import Completion, Model
from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.plan.launch_program import Await, Fill, Queue, Receive
from tessera.ir.program import program as ir
from tests.helpers.exchanges import exchange_model, joined
from tests.helpers.random_traces import random_program
from tests.helpers.served import Ask, assert_equal, expected, graph_of, model_of, serve
from tests.helpers.share import least, share
from tests.helpers.traces import COPY, trace

PLACEMENTS = least(6, 4)
REQUESTS = 3


def check_placements(seed: int, *, variable: bool) -> None:
    rng = random.Random(seed)
    program = random_program(seed, variable=variable, wide=seed % 2 == 0)
    graph = graph_of(program)
    lanes = rng.choice((1, 2))
    asks = [Ask(n, lane=rng.randrange(lanes)) for n in range(REQUESTS)]
    wanted, filled = None, rng.random() < 0.5
    for _ in range(PLACEMENTS):
        devices = rng.sample("abc", rng.choice((2, 3)))
        placement = [*devices, *(rng.choice(devices) for _ in range(8))][: len(program.steps)]
        rng.shuffle(placement)
        slots = rng.choice((1, 2, 3))
        model = model_of(
            [program],
            [placement],
            slots=slots,
            lanes=lanes,
            graphs=[graph],
            filled=filled,
            roomy=devices[: seed % 4],
            hosts=rng.choice(({}, {device: device for device in devices})),
        )
        if wanted is None:
            wanted = expected(model, asks)
        done, states = serve(InlineBackend(model, seed=rng.randrange(1 << 30)), model, asks)
        assert_equal(model, asks, wanted, done, states)
        assert_spread(model, done)


def assert_spread(model: Model, done: list[Completion]) -> None:
    """Every device ran its steps in every request, and every transfer moved its bytes."""
    (lowered,) = model.lowered.traces
    for one in done:
        ran = [(event.device, event.step) for event in one.events if event.step is not None]
        assert {device for device, _ in ran} == set(model.lowered.devices)
        assert sorted(int(step) for _, step in ran) == list(range(len(lowered_steps(model))))
        sent = sum(event.bytes for event in one.events if event.queue is Queue.OUT)
        assert sent == sum(t.size for t in lowered.transfers if t.source != "host")
        taken = sum(event.bytes for event in one.events if event.queue is Queue.IN)
        assert taken == sum(t.size for t in lowered.transfers if t.target != "host")


def lowered_steps(model: Model) -> list[ir.Work]:
    return list(model.traces[0].program.work())


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(st.integers(0, 1 << 30))
def test_equal_to_one_device(seed: int) -> None:
    check_placements(seed, variable=False)


@settings(max_examples=2, deadline=None)
@given(st.integers(0, 1 << 30))
def test_equal_to_one_device_with_a_module_variable(seed: int) -> None:
    check_placements(seed, variable=True)


def check_two_traces(seed: int) -> None:
    """Requests of two traces over the same weights and states, in lanes that they share."""
    rng = random.Random(seed)
    wide = seed % 2 == 0
    programs = [random_program(seed + n, steps=5 - n, wide=wide) for n in range(2)]
    graphs = [graph_of(program) for program in programs]
    placements = [[rng.choice("ab") for _ in program.steps] for program in programs]
    model = model_of(programs, placements, slots=rng.choice((1, 2)), lanes=2, graphs=graphs)
    asks = [Ask(n, trace=rng.randrange(2), lane=rng.randrange(2)) for n in range(6)]
    done, states = serve(InlineBackend(model, seed=seed), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)


@settings(max_examples=settings.default.max_examples, deadline=None)
@given(st.integers(0, 1 << 30))
def test_two_traces_share_weights_and_states(seed: int) -> None:
    check_two_traces(seed)


def check_exchanges(seed: int) -> int:
    """Steps that read several buffers; returns how many transfers carry several."""
    devices = "abc"[: 2 + seed % 2]
    hosts = {device: device for device in devices} if seed % 3 == 0 else {}
    model = exchange_model(seed, devices, hosts=hosts, roomy=devices[: seed % 4])
    asks = [Ask(number) for number in range(REQUESTS)]
    done, states = serve(InlineBackend(model, seed=seed), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
    assert_spread(model, done)
    return joined(model)


def test_transfers_of_several_buffers() -> None:
    assert sum(map(check_exchanges, share(range(20)))) > least(4, 1)


@pytest.mark.slow
def test_thousands_of_placements() -> None:
    for seed in range(500):
        check_placements(seed, variable=seed % 5 == 0)
        check_two_traces(seed)


def test_an_address_that_is_given_and_not_used() -> None:
    """The first launch touches nothing of `t`, whose bytes are still those of `u`."""
    buffers = """
    buffer x bytes=64 role=input
    buffer t bytes=64 role=temp
    buffer u bytes=128 role=temp
    buffer y bytes=64 role=output
    buffer z bytes=64 role=output
    """
    steps = """
    launch m.copy grid=1,1,1 block=16,1,1 args=[t, x, u32:0]
    launch m.copy grid=1,1,1 block=16,1,1 args=[u+64, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, u+64, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[t, y, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[z, t, u32:16]
    """
    model = model_of([trace(buffers, COPY, steps)], [["a"] * 5], slots=1)
    offsets = {int(place.buffer): place.offset for place in model.lowered.places}
    assert offsets[1] == offsets[2]
    asks = [Ask(0), Ask(1)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)


def test_bytes_move_in_most_traces() -> None:
    moved = 0
    for seed in range(5):
        program = random_program(seed)
        model = model_of([program], [["ab"[n % 2] for n in range(len(program.steps))]])
        moved += any(
            t.source != "host" and t.target != "host" for t in model.lowered.traces[0].transfers
        )
    assert moved >= 4


def without(model: Model, kind: type, device: str) -> Model:
    """The model with all operations of a kind left out on one device."""
    (lowered,) = model.lowered.traces
    programs = tuple(
        replace(
            program,
            operations=tuple(
                one
                for one in program.operations
                if program.device != device or not isinstance(one.operation, kind)
            ),
        )
        for program in lowered.programs
    )
    traces = (replace(lowered, programs=programs),)
    return replace(model, lowered=replace(model.lowered, traces=traces))


@pytest.mark.parametrize("kind", [Await, Receive, Fill], ids=lambda kind: kind.__name__)
def test_what_is_left_out_shows(kind: type) -> None:
    """The comparison has teeth: programs without their waits, receives or fills do not pass."""
    caught = 0
    for seed in range(6):
        program = random_program(seed)
        placement = ["ab"[n % 2] for n in range(len(program.steps))]
        model = model_of([program], [placement], slots=1, filled=True)
        asks = [Ask(0), Ask(1)]
        wanted = expected(model, asks)
        broken = without(model, kind, "b")
        if broken == model:
            continue
        for order in range(4):
            try:
                done, states = serve(InlineBackend(broken, seed=order), model, asks)
                assert_equal(model, asks, wanted, done, states)
            except (AssertionError, TesseraError):
                caught += 1
                break
    assert caught >= 2


def test_an_operand_that_gives_only_its_shape_need_not_be_there() -> None:
    """The second device has no place for `t`, of which `zeros_like` reads nothing."""
    buffers = (
        "//! buffer x bytes=64 role=input dtype=f32 shape=16\n"
        "//! buffer t bytes=64 role=temp dtype=f32 shape=16\n"
        "//! buffer y bytes=64 role=output dtype=f32 shape=16\n"
        "//! buffer z bytes=64 role=output dtype=f32 shape=16\n"
    )
    steps = (
        "//! op aten::relu reads=[x:f32[16]] writes=[t:f32[16]]\n"
        "//! op aten::relu reads=[t:f32[16]] writes=[y:f32[16]]\n"
        "//! op aten::zeros_like reads=[t:f32[16]] writes=[z:f32[16]]\n"
    )
    program = parse_trace(f"//! tessera.trace 1\n{buffers}{steps}", "t.ptx")
    model = model_of([program], [["a", "a", "b"]], slots=1)
    assert ("b", 1) not in {(place.device, place.buffer) for place in model.lowered.places}
    asks = [Ask(0)]
    done, states = serve(InlineBackend(model, seed=1), model, asks)
    assert_equal(model, asks, expected(model, asks), done, states)
