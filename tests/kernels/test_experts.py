"""Kernels of mixtures of experts, as Triton compiled them for a capture: results and regions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tessera.driver.analyze import analyze
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.ir.graph.access import AddressClass, Certainty
from tests.kernels.formats import from_bf16

DATA = Path(__file__).parents[1] / "data" / "experts"


def ran(case: str) -> NDArray[np.uint8]:
    report = run_trace(DATA / f"{case}.ptx", RunOptions(data=str(DATA / f"{case}.npz")))
    (out,) = [data for buffer, data in report.kept() if buffer.name == "out"]
    return np.asarray(out).reshape(-1).view(np.uint8)


def numbers(case: str, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    with np.load(DATA / f"{case}.npz", allow_pickle=False) as held:
        return from_bf16(held[name].view(np.uint16)).astype(np.float64).reshape(shape)


def test_every_row_is_multiplied_with_the_weights_of_its_expert() -> None:
    rows = numbers("product", "rows", (24, 48))
    weights = numbers("product", "weights", (5, 72, 48))
    wanted, begin = np.zeros((24, 72)), 0
    for expert, end in enumerate((7, 7, 19, 20, 22)):
        wanted[begin:end] = rows[begin:end] @ weights[expert].T
        begin = end
    found = from_bf16(ran("product").view(np.uint16)).reshape(24, 72)
    assert np.linalg.norm(found - wanted) <= 0.003 * np.linalg.norm(wanted)
    assert np.abs(found - wanted).max() <= 0.005 * np.abs(wanted).max()
    assert not found[22:].any()


def test_the_greatest_of_a_row_come_in_order_the_first_of_equals_first() -> None:
    rows = numbers("greatest", "rows", (6, 40))
    wanted = np.argsort(-np.where(np.isnan(rows), np.inf, rows), axis=1, kind="stable")[:, :5]
    np.testing.assert_array_equal(ran("greatest").view(np.int64).reshape(6, 5), wanted)


@pytest.mark.parametrize(
    ("case", "indexed"), [("product", {"rows", "weights", "ends"}), ("greatest", set())]
)
def test_no_launch_is_pinned_and_results_are_certain(case: str, indexed: set[str]) -> None:
    """Which weights are read is for the data to say; what is written is not."""
    report = analyze(DATA / f"{case}.ptx")
    assert report.diagnostics == ()
    assert report.graph is not None
    names = [buffer.name for buffer in report.graph.buffers]
    (node,) = report.graph.nodes
    assert node.pins == ()
    by_data = set()
    for access in node.accesses:
        assert not access.kind.writes or access.certainty is Certainty.MUST
        assert not access.kind.writes or access.address is AddressClass.DIRECT
        if access.address is AddressClass.INDEXED:
            by_data.add(names[access.buffer])
    assert by_data == indexed
