"""Sums over GPUs by a model of the link: what holds of them, and the bar that was measured."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import pytest

from tessera.frontend.machine.collectives import host_link, modelled_all_reduce
from tessera.frontend.machine.gpu_table import find_gpu
from tessera.frontend.machine.gpus import parse_link
from tests.helpers.share import share

RESULT = Path(__file__).parents[3] / "benchmarks" / "results" / "all_reduce.json"


def test_sums_take_longer_with_more_bytes_or_gpus_and_a_slower_link() -> None:
    for seed in share(range(200)):
        draw = random.Random(seed)
        gpu = find_gpu(draw.choice(("a100", "h100", "h20", "l4", "l40s", "b200")))
        links = [parse_link(name) for name in ("100Gb/s", "400Gb/s", "pcie3", "pcie5")]
        for link in (host_link(gpu), draw.choice(links)):
            count = draw.choice((2, 4, 8))
            sizes = sorted(2 ** draw.uniform(4, 27) for _ in range(2))
            less, more = (modelled_all_reduce(gpu, link, count, n) for n in sizes)
            wider = modelled_all_reduce(gpu, link, 2 * count, sizes[0])
            assert 0 < less.ns <= more.ns <= less.ns * sizes[1] / sizes[0] * 3
            assert less.ns <= wider.ns
            # No faster than every GPU gets what it does not have through its link.
            assert more.ns > 2 * sizes[1] * (count - 1) / count / link.port(gpu) * 1e9
        for slow, fast in itertools.pairwise((links[0:2], links[2:4])[draw.randrange(2)]):
            assert modelled_all_reduce(gpu, slow, 4, sizes[1]).ns > (
                modelled_all_reduce(gpu, fast, 4, sizes[1]).ns
            )


def test_the_bar_of_the_model_is_the_one_that_was_measured() -> None:
    links = json.loads(RESULT.read_text())["links"]
    for name, gpu in (("nvlink", "a100"), ("pcie", "l40s")):
        kind = find_gpu(gpu)
        assert host_link(kind).name == name
        error = modelled_all_reduce(kind, host_link(kind), 4, 1e5).error
        assert links[name]["nine_of_ten_within_factor"] == pytest.approx(1 + error, abs=0.05)
        assert links[name]["nine_of_ten_within_factor"] <= 1 + error
        assert 0.9 < links[name]["median_ratio"] < 1.1
