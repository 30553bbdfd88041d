"""The program behind the paper's figures: against all placements, and layers that come again."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.common import RESULTS, ROOT
from benchmarks.paper.split import (
    Held,
    Part,
    Sides,
    best_split,
    bound,
    coarse_splits,
    queued_period,
)
from benchmarks.paper.story import write_page
from tessera.planning.problem.problem import Tensor
from tests.helpers.share import share

HELD = Held(weights=10.0, batch={}, handed={})


def _sides(speed: float = 1e9, memory: float = 1e9) -> Sides:
    return Sides(
        count=1,
        memory=(memory, memory),
        links=1,
        bytes_per_second=speed,
        latency_ns=10.0,
        transfer_ns=5.0,
    )


def _tensor(producer: int, size: float, *consumers: int) -> Tensor:
    return Tensor(name="t", bytes=size, producer=producer, consumers=consumers)


def _part(seed: int, count: int) -> Part:
    draw = random.Random(seed)
    times = tuple((draw.uniform(10, 200), draw.uniform(10, 200)) for _ in range(count))
    tensors = tuple(
        _tensor(n, draw.uniform(1, 60), *range(n + 1, min(count, n + 3))) for n in range(count - 1)
    )
    return Part(ns=times, tensors=tensors, caches={}, attends=(False,) * count, share=1.0)


def _period(part: Part, places: tuple[int, ...], sides: Sides) -> float:
    on, sent, tax = [0.0, 0.0], [0.0, 0.0], 0.0
    for row, place in zip(part.ns, places, strict=True):
        on[place] += row[place]
    for tensor in part.tensors:
        source = places[tensor.producer]
        if any(places[c] != source for c in tensor.consumers):
            tax += sides.transfer_ns
            sent[source] += tensor.bytes * 1e9 / sides.bytes_per_second
    return max(on[0] + tax, on[1] + tax, *sent)


@pytest.mark.parametrize("seed", share(range(12)))
def test_no_placement_beats_the_program_and_it_beats_no_bound(seed: int) -> None:
    part = _part(seed, 6)
    sides = _sides(speed=10 ** random.Random(seed).uniform(8, 10))
    split = best_split([part], sides, HELD)
    assert split is not None
    least = min(_period(part, p, sides) for p in itertools.product((0, 1), repeat=6))
    alone = 1 / sum(1 / sum(row[k] for row in part.ns) for k in (0, 1))
    # A request alone weighs a little in what is made least: it may cost some of the period.
    assert bound([part], 1) <= split.period * (1 + 1e-9)
    assert split.period <= 1.06 * min(least, alone)
    coarse = coarse_splits([part], sides, HELD)
    assert coarse["dp"] == pytest.approx(alone)
    assert split.period <= 1.06 * min(coarse.values())
    waited = queued_period([part], split, sides, by_age=True)
    assert waited >= 0.8 * split.period


def test_memory_keeps_caches_apart() -> None:
    part = Part(
        ns=((100.0, 100.0), (100.0, 100.0)),
        tensors=(_tensor(0, 1.0, 1),),
        caches={"a": [0], "b": [1]},
        attends=(True, True),
        share=1.0,
    )
    held = Held(weights=10.0, batch={"a": 40.0, "b": 40.0}, handed={})
    wide = best_split([part], _sides(memory=1000.0), held)
    tight = best_split([part], _sides(memory=60.0), held)
    assert wide is not None and tight is not None  # noqa: PT018
    assert wide.period == pytest.approx(100.0, rel=0.1)
    assert tight.room < wide.room
    assert best_split([part], _sides(memory=9.0), held) is None


@pytest.mark.parametrize("states", [1, 2])
def test_layers_that_come_again_are_those_of_the_whole_model(states: int) -> None:
    def made(layers: int) -> Part:
        """Two steps a layer, of which the last ones have a cache; a step before and one after."""
        count = 2 * layers + 2
        return Part(
            ns=tuple((float(n % 2 + 1), 3.0) for n in range(count)),
            tensors=tuple(_tensor(n, 4.0, n + 1) for n in range(count - 1)),
            caches={
                f"l{layer}.{state}": [2 * layer + 2 - state]
                for layer in range(layers)
                for state in range(states)
            },
            attends=tuple(n % 2 == 0 for n in range(count)),
            share=0.5,
            sources=(("table", "model"),) * count,
        )

    short, whole = made(4).repeated(3), made(10)
    assert short.ns == whole.ns
    assert sorted((t.producer, t.consumers) for t in short.tensors) == sorted(
        (t.producer, t.consumers) for t in whole.tensors
    )
    assert sorted(short.caches.values()) == sorted(whole.caches.values())
    assert (short.attends, short.sources) == (whole.attends, whole.sources)


def test_the_page_is_that_of_the_files(tmp_path: Path) -> None:
    data = json.loads((RESULTS / "paper.json").read_text("utf-8"))
    (tmp_path / "images").mkdir()
    write_page(data, tmp_path)
    docs = ROOT / "docs" / "concepts"
    page = (docs / "paper.md").read_text("utf-8")
    assert page == (tmp_path / "paper.md").read_text("utf-8")
    assert page.count("\n") <= 150
    pictures = {path.name: path.read_text("utf-8") for path in (tmp_path / "images").iterdir()}
    assert pictures == {p.name: p.read_text("utf-8") for p in (docs / "images").glob("paper-*")}
    for name, text in pictures.items():
        ElementTree.fromstring(text)
        assert f"images/{name}" in page
        assert "prefers-color-scheme: dark" in text
