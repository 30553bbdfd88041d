"""Which calls of mixtures of experts become ours in recorded graphs, and what choices are kept.

What the kernels compute is tested in `tests/kernels/test_experts.py` and `tests/gpu`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture.experts import rewrite
from tessera.frontend.capture.experts.launch import ProductSize, candidates
from tests.helpers.recorded_graphs import recorded, take_as_on_gpu, tensors

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the host count as tensors of a GPU."""
    take_as_on_gpu(monkeypatch, rewrite)


def ours(graph: Any) -> list[Any]:
    rewrite.replace_experts(graph)
    graph.lint()
    return [node for node in graph.nodes if "tessera" in str(node.target)]


def test_a_grouped_product_is_ours() -> None:
    def step(rows: Any, weights: Any, ends: Any) -> Any:
        return torch._grouped_mm(rows, weights.transpose(1, 2), offs=ends) + 1

    rows, weights = tensors((32, 64), (4, 48, 64))
    ends = torch.tensor([8, 8, 20, 32], dtype=torch.int32)
    graph = recorded(step, rows, weights, ends)
    (node,) = ours(graph)
    assert [str(argument) for argument in node.args][2] == "l_ends_"
    assert not any("_grouped_mm" in str(node.target) for node in graph.nodes)


def test_products_of_other_forms_stay() -> None:
    def batches(rows: Any, weights: Any) -> Any:
        return torch._grouped_mm(rows, weights.transpose(1, 2))

    rows, weights = tensors((4, 32, 64), (4, 48, 64))
    assert ours(recorded(batches, rows, weights)) == []


@pytest.mark.parametrize("bins", [2, 3, 8, 64, 129])
def test_a_histogram_of_integers_is_a_sum_of_comparisons(bins: int) -> None:
    """The same counts as PyTorch's, values outside left out."""

    def step(x: Any) -> Any:
        return torch.histc(x, bins=bins, min=0, max=bins - 1)

    torch.manual_seed(0)
    chosen = torch.randint(-2, bins + 3, (500,))
    module = torch.fx.GraphModule({}, recorded_of_integers(step, chosen))
    rewrite.replace_experts(module.graph)
    assert "histc" not in str(module.graph)
    module.recompile()
    (found,) = module(chosen.int())
    assert found.dtype == torch.int32
    wanted = torch.histc(chosen.double(), bins=bins, min=0, max=bins - 1)
    assert found.tolist() == wanted.long().tolist()


def recorded_of_integers(step: Any, chosen: Any) -> Any:
    """A graph whose input is of integers: on the host PyTorch counts floats alone."""
    graph = recorded(step, chosen.double())
    for node in graph.nodes:
        if node.op == "placeholder":
            node.meta["example_value"] = chosen.int()
    return graph


def test_a_histogram_whose_bins_are_no_integers_stays() -> None:
    def step(x: Any) -> Any:
        return torch.histc(x, bins=4, min=0, max=7)

    graph = recorded_of_integers(step, torch.arange(8))
    rewrite.replace_experts(graph)
    assert "histc" in str(graph)


def test_the_greatest_of_rows_are_ours_and_others_are_not() -> None:
    def step(x: Any) -> Any:
        values, places = torch.topk(x, 3, dim=-1, sorted=False)
        return values + 1, places, x.topk(2)[1]

    def others(x: Any) -> Any:
        return torch.topk(x, 3, dim=0)[0], torch.topk(x, 3, largest=False)[0]

    (x,) = tensors((6, 8))
    assert [node.args[1] for node in ours(recorded(step, x))] == [3, 2]
    assert ours(recorded(others, x)) == []
    assert ours(recorded(lambda x: torch.topk(x, 40)[0], torch.randn(2, 64))) == []


def test_tiles_fit_into_shared_memory_and_few_rows_get_small_ones() -> None:
    def size(rows: int, **more: Any) -> ProductSize:
        given = {"experts": 8, "inner": 4096, "columns": 14336, "bytes": 2, "turned": True}
        return ProductSize(rows=rows, **(given | {"shared": 101_376} | more))

    assert next(iter(candidates(size(16)))).rows == 16
    assert next(iter(candidates(size(8192, shared=232_448)))).rows == 128
    for rows in (1, 64, 512, 8192):
        for tiles in candidates(size(rows)):
            blocks = (tiles.rows + tiles.columns) * tiles.inner * 2 * tiles.stages
            assert blocks <= 101_376
    assert list(candidates(size(64, shared=4096)))


def test_a_choice_is_kept_and_a_damaged_one_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tessera.frontend.capture.graphs.tuning import keep_choice, kept_choice

    pytest.importorskip("triton", reason="Triton is not installed")
    folder = tmp_path / "cache"
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(folder))
    device, cuts = torch.device("cpu"), ["a", "b", "c"]
    assert kept_choice("size", cuts, device) is None
    keep_choice("size", cuts, device, 2)
    assert kept_choice("size", cuts, device) == 2
    assert kept_choice("size", ["a", "b"], device) is None
    assert kept_choice("other size", cuts, device) is None
    (file,) = folder.iterdir()
    whole = file.read_bytes()
    for damaged in (whole[:-1] + b"1", whole[:5], b"", whole + b"0"):
        file.write_bytes(damaged)
        assert kept_choice("size", cuts, device) is None
    keep_choice("size", cuts, device, 1)
    assert kept_choice("size", cuts, device) == 1
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    assert kept_choice("size", cuts, device) is None


def test_what_was_measured_on_a_slice_is_kept_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only cuts that leave results of the same form as the whole GPU's are tried there."""
    from tessera.frontend.capture.graphs import tuning

    pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(tuning, "_CHOSEN", {})
    monkeypatch.setattr(tuning, "_may_measure", lambda tensor: True)
    tried: list[list[tuple[int, str]]] = []

    def fastest(cuts: list[Any], large: Any, run: Any) -> int:
        tried.append(cuts)
        return len(cuts) - 1

    monkeypatch.setattr(tuning, "_fastest", fastest)
    cuts = [(1, "a"), (2, "a"), (1, "b"), (2, "b")]
    part = tuning.TunedSlice(None, 48)  # type: ignore[arg-type]

    def chosen() -> Any:
        return tuning.tuned("size", cuts, (torch.ones(1),), lambda cut: cut, lambda cut: cut[0])

    assert chosen() == (2, "b")
    with tuning.tuned_on(part):
        assert chosen() == (2, "a")
        assert chosen() == (2, "a")
        assert tuning.tuned_slice() is part
    assert chosen() == (2, "b")
    assert tuning.tuned_slice() is None
    assert tried == [cuts, [(2, "b"), (2, "a")]]
    monkeypatch.setattr(tuning, "_CHOSEN", {})  # another process: from the disk
    assert chosen() == (2, "b")
    with tuning.tuned_on(part):
        assert chosen() == (2, "a")
    assert len(tried) == 2
