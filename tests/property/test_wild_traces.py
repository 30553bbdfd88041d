"""Traces with everything in them, over random placements: proved, and equal to one device."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tessera.backend.processes.inline import InlineBackend
from tessera.frontend.trace.read_trace import parse_trace
from tessera.passes.checker.check_plan import check_replica
from tests.helpers.plan_races import races
from tests.helpers.served import Ask, assert_equal, expected, graph_of, model_of, serve
from tests.helpers.share import least
from tests.helpers.wild_traces import shared_buffers, wild_trace


def check_traces(seed: int, placements: int, seen: Counter[str]) -> None:
    rng = random.Random(seed)
    shared = shared_buffers(rng)
    texts = [wild_trace(seed + 1_000_000 * n, shared) for n in range(rng.choice([1, 1, 2]))]
    programs = [parse_trace(text, "trace.ptx") for text in texts]
    graphs = [graph_of(program) for program in programs]
    for kind in ("memcpy", "memset", "op", "pointers", "event", "@{", "u32:0]", "follow"):
        seen[kind] += any(f"//! {kind}" in text or kind in text for text in texts)
    for _ in range(placements):
        devices = "abc"[: rng.choice([2, 3])]
        places = [[rng.choice(devices) for _ in graph.nodes] for graph in graphs]
        lanes = rng.choice([1, 2])
        model = model_of(
            programs,
            places,
            slots=rng.choice([1, 2, 3]),
            lanes=lanes,
            graphs=graphs,
            filled=rng.random() < 0.5,
        )
        assert check_replica(model.lowered, programs, graphs, places) == (), seed
        assert races(model.lowered, programs, graphs) == "", seed
        asks = [Ask(n, rng.randrange(len(programs)), rng.randrange(lanes)) for n in range(3)]
        done, states = serve(InlineBackend(model, seed=rng.randrange(1 << 30)), model, asks)
        assert_equal(model, asks, expected(model, asks), done, states)
        seen["moved"] += any(
            "host" not in (t.source, t.target)
            for one in model.lowered.traces
            for t in one.transfers
        )


def test_equal_to_one_device() -> None:
    seen: Counter[str] = Counter()
    for seed in range(least(24, 4)):
        check_traces(seed, 2, seen)
    assert min(seen.values()) > least(2, 0)
    assert seen["moved"] > least(12, 4)


@pytest.mark.slow
def test_equal_to_one_device_at_length() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100, 400):
        check_traces(seed, 6, seen)
