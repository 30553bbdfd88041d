"""A recorded sample of the faults that ptxas refused: Tessera refuses them too, on the right line.

`benchmarks/reading/planted.py record` writes the sample and, per kind, how many of it are found
today. A kind may get better, never worse; no ptxas is needed here.
"""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.fuzz.faults.kinds import KINDS
from tests.fuzz.faults.record import FLOORS, RECORDED, Planted, apply, look
from tests.helpers.corpus import corpus_text


def recorded() -> dict[str, list[Planted]]:
    kinds: dict[str, list[Planted]] = {}
    for line in RECORDED.read_text().splitlines()[1:]:
        fault = Planted.from_json(json.loads(line))
        kinds.setdefault(fault.kind, []).append(fault)
    return kinds


FAULTS = recorded()
LEAST = json.loads(FLOORS.read_text())


def outcomes(faults: list[Planted]) -> Counter[str]:
    return Counter(
        fault.outcome(look(apply(corpus_text(fault.file), fault.edit))) for fault in faults
    )


@pytest.mark.parametrize("kind", FAULTS)
def test_faults_of_a_kind_are_found_where_they_are(kind: str) -> None:
    counts = outcomes(FAULTS[kind])
    assert counts["right line"] >= LEAST[kind], counts


def test_the_sample_has_every_kind_and_a_floor_for_each() -> None:
    assert set(FAULTS) == set(KINDS) == set(LEAST)
    assert all(least <= len(FAULTS[kind]) for kind, least in LEAST.items())


def test_a_file_without_its_fault_is_accepted() -> None:
    names = sorted({faults[0].file for faults in FAULTS.values()})
    assert [name for name in names if look(corpus_text(name))[0] is not None] == []
