"""Products are timed inside graphs, over copies that kernels can read like what was given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.driver.trace.tile_choice import TileChoice, tiles_here
from tessera.frontend.capture import measured
from tessera.frontend.capture.graphs import tuning
from tessera.frontend.capture.products import ProductCut, ProductPrices
from tessera.frontend.machine.gpu_table import find_gpu


def test_copies_have_the_strides_and_gaps_of_what_they_are_copies_of() -> None:
    whole = torch.arange(40.0)
    for tensor in (
        whole.view(5, 8),
        whole.view(5, 8).t(),
        whole.view(5, 8)[1:4, 2:5],
        whole[:4].expand(3, 4),
        whole.view(5, 8)[:, :1].expand(5, 6),
        torch.zeros(0, 3),
        torch.tensor(2.0),
    ):
        copied = tuning._copy(tensor)
        assert copied.stride() == tensor.stride()
        assert torch.equal(copied, tensor)
        assert copied.untyped_storage().nbytes() == 4 * tuning._span(tensor)
        assert copied.untyped_storage().data_ptr() != whole.untyped_storage().data_ptr()


class Selector:
    """As much of the compiler's as is used."""

    @classmethod
    def benchmark_choice(cls, choice: Any, arguments: Any) -> float:
        return 7.0

    @staticmethod
    def _is_extern(choice: Any) -> bool:
        return False


def arguments(output: Any) -> Any:
    tensors = SimpleNamespace(unpack=lambda: ((output,), output))
    return SimpleNamespace(get_benchmark_tensors=lambda is_extern: tensors)


def test_choices_are_timed_in_graphs_and_by_the_compiler_where_that_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu = SimpleNamespace(is_cuda=True, numel=lambda: 1)
    fails = SimpleNamespace(why=None)

    def cold_ms(large: tuple[Any, ...], run: Any) -> float:
        if fails.why is not None:
            raise fails.why
        return 3.0

    monkeypatch.setattr(measured, "cold_ms", cold_ms)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    with measured._timed_in_graphs(Selector):
        assert Selector.benchmark_choice(None, arguments(on_gpu)) == 3.0
        assert Selector.benchmark_choice(None, arguments(torch.ones(2))) == 7.0
        for why in (RuntimeError("not in a graph"), TypeError("no `out`")):
            fails.why = why
            assert Selector.benchmark_choice(None, arguments(on_gpu)) == 7.0
        fails.why = ValueError("does not fit")  # the compiler leaves the choice out
        with pytest.raises(ValueError, match="does not fit"):
            Selector.benchmark_choice(None, arguments(on_gpu))
    assert Selector.benchmark_choice(None, arguments(on_gpu)) == 7.0


def test_a_choice_is_called_on_the_stream_that_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    streams = [1]
    ran: list[tuple[int, int]] = []
    monkeypatch.setattr(
        torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=streams[-1])
    )

    def make_run_fn(*inputs: Any, out: Any) -> Any:
        stream, first = streams[-1], int(inputs[0][0])
        return lambda: ran.append((stream, first))

    choice = SimpleNamespace(bmreq=SimpleNamespace(make_run_fn=make_run_fn))
    call = measured._ChoiceCall(choice, torch.zeros(1))
    one, two = torch.tensor([1]), torch.tensor([2])
    for _ in range(2):
        call(one)
        call(two)
    streams.append(9)
    call(one)
    assert ran == [(1, 1), (1, 2), (1, 1), (1, 2), (9, 1)]

    wrote = torch.zeros(1)
    plain = SimpleNamespace(to_callable=lambda: torch.neg)
    measured._ChoiceCall(plain, wrote)(torch.ones(1))
    assert wrote.item() == -1
    without = SimpleNamespace(
        has_out_variant=False, to_callable=lambda: lambda x: ran.append((0, int(x)))
    )
    measured._ChoiceCall(without, wrote)(torch.ones(1))
    assert ran[-1] == (0, 1)


def template(m: int, n: int, k: int, settings: dict[str, int]) -> Any:
    """A choice of the compiler's, before code is made of it."""
    left, right = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(k, n, dtype=torch.bfloat16)
    nodes = [
        SimpleNamespace(get_size=lambda x=x: x.shape, get_dtype=lambda x=x: x.dtype)
        for x in (left, right)
    ]
    return SimpleNamespace(
        params=SimpleNamespace(to_kwargs=lambda: settings),
        inputs=SimpleNamespace(nodes=lambda: nodes),
        layout=SimpleNamespace(size=(m, n)),
    )


BLOCKS = [
    {"BLOCK_M": rows, "BLOCK_N": columns, "BLOCK_K": inner, "num_stages": 3, "num_warps": 4}
    for rows in (16, 32, 64, 128)
    for columns in (32, 64, 128)
    for inner in (32, 64)
]


def test_of_products_with_many_rows_the_blocks_that_can_be_best_are_timed() -> None:
    prices = ProductPrices(TileChoice((find_gpu("h200"),)), lambda told: None)
    library: dict[str, int] = {}
    few = [template(64, 4096, 4096, settings) for settings in (library, *BLOCKS)]
    assert prices.worth_timing(few) == few
    many = [template(4096, 4096, 4096, settings) for settings in (library, *BLOCKS)]
    timed = prices.worth_timing(many)
    assert timed[0] is many[0]
    assert len(timed) == 9
    blocks = [choice.params.to_kwargs() for choice in timed[1:]]
    assert any(b["BLOCK_M"] == b["BLOCK_N"] == 128 and b["BLOCK_K"] == 64 for b in blocks)
    assert all(b["BLOCK_M"] >= 64 for b in blocks)


def test_what_nobody_can_price_comes_after_what_can_be_priced() -> None:
    """A product of symbolic sizes has no price, and one that does not fit comes last."""
    prices = ProductPrices(TileChoice((find_gpu("a100"),)), lambda told: None)
    priced = [template(512, 512, 512, settings) for settings in BLOCKS[:3]]
    unknown = template(512, 512, 512, BLOCKS[0])
    unknown.layout.size = ("s0", 512)
    huge = template(512, 512, 512, {"BLOCK_M": 1024, "BLOCK_N": 1024, "BLOCK_K": 1024})
    assert prices._best([huge, unknown, *priced], 5)[3:] == [unknown, huge]
    assert unknown not in prices.best_first([huge, unknown, *priced])


@pytest.mark.parametrize(
    "others", [[], [()], [(), ()], [(512, 1), (1, 256)], [(), (), (256,)], ["first", (512, 256)]]
)
def test_the_factors_of_a_product_are_priced_whatever_else_it_reads(others: list[Any]) -> None:
    """Scales come after them (`_scaled_mm`), what is added before (`addmm`), a vector last."""
    heard: list[ProductCut] = []

    class Prices(TileChoice):
        def product_ns(self, cut: ProductCut) -> float:
            heard.append(cut)
            return super().product_ns(cut)

    factors = [torch.empty(512, 1024, dtype=torch.int8), torch.empty(1024, 256, dtype=torch.int8)]
    more = [torch.empty(shape) for shape in others if shape != "first"]
    read = [*more, *factors] if "first" in others else [*factors, *more]
    nodes = [
        SimpleNamespace(get_size=lambda x=x: x.shape, get_dtype=lambda x=x: x.dtype) for x in read
    ]
    choice = SimpleNamespace(
        params=SimpleNamespace(to_kwargs=lambda: BLOCKS[0]),
        inputs=SimpleNamespace(nodes=lambda: nodes),
        layout=SimpleNamespace(size=(512, 256)),
    )
    prices = ProductPrices(Prices((find_gpu("h200"),)), lambda told: None)
    prices.best_first([choice])
    (cut,) = heard
    assert (cut.m, cut.n, cut.k, cut.width, cut.unit) == (512, 256, 1024, 1, "int8")


def test_all_choices_are_tried_where_they_have_another_form() -> None:
    from torch._inductor.choices import InductorChoices

    before = InductorChoices._finalize_template_configs
    prices = TileChoice((find_gpu("h200"),))
    strange = [object()]
    InductorChoices._finalize_template_configs = lambda self, given: given
    try:
        with measured._fewer_choices(prices):
            assert InductorChoices()._finalize_template_configs(strange) == strange
            many = [template(4096, 4096, 4096, settings) for settings in BLOCKS]
            assert len(InductorChoices()._finalize_template_configs(many)) == 8
    finally:
        InductorChoices._finalize_template_configs = before


@pytest.mark.parametrize(
    ("version", "sms", "wanted"), [((9, 0), 0, 132), ((9, 0), 48, 48), ((1, 0), 0, None)]
)
def test_the_gpu_that_is_there_stands_for_the_nearest_of_the_table(
    version: tuple[int, int], sms: int, wanted: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = SimpleNamespace(major=version[0], minor=version[1], multi_processor_count=132)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: here)
    tiles = tiles_here(sms)
    assert (None if tiles is None else tiles._gpus[0].sms) == wanted
