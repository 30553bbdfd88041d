"""The data of the graph: columns that say what the graph says, and layers."""

from __future__ import annotations

from tessera.ir.graph.folding import Fold, fold_steps
from tessera.ir.graph.layers import kernel_family


def covers(folds: tuple[Fold, ...], first: int, end: int) -> bool:
    at = first
    for fold in folds:
        if (
            fold.first < at
            or fold.end > end
            or (fold.inner and not covers(fold.inner, fold.first, fold.end))
        ):
            return False
        at = fold.end
    return at <= end


def test_layers_are_found() -> None:
    names = ["embed", *("norm", "mm", "gelu", "add") * 32, "head"]
    folds = fold_steps(names)
    assert [(fold.first, fold.end) for fold in folds] == [(4 * n + 1, 4 * n + 5) for n in range(32)]
    assert folds[0].label == "layer 1"


def test_a_period_that_no_next_occurrence_has() -> None:
    names = ["a", "b", "b", "a"] * 8
    assert [(fold.first, fold.end) for fold in fold_steps(names)] == [
        (4 * n, 4 * n + 4) for n in range(8)
    ]


def test_very_many_layers_are_bundled() -> None:
    folds = fold_steps(["a", "b", "c", "d"] * 2500)
    assert len(folds) <= 64
    assert covers(folds, 0, 10_000)
    assert folds[0].inner[0].end - folds[0].inner[0].first == 4


def test_steps_that_repeat_nothing() -> None:
    assert fold_steps([f"k{n}" for n in range(20)]) == ()
    folds = fold_steps([f"k{n}" for n in range(5000)])
    assert 1 < len(folds) <= 64
    assert covers(folds, 0, 5000)


def test_families() -> None:
    assert kernel_family("m3.triton_poi_fused_add_7") == "triton_poi_fused_add"
    assert kernel_family("add") == "add"
    assert kernel_family("m0.123") == "123"
