"""How much of a graph is in products with few rows, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture.product_rows import fuse_before_few_rows, share_of_rows

pytestmark = pytest.mark.filterwarnings("ignore")


def share(function: Callable[..., Any], *given: Any) -> float:
    shares = []

    def backend(module: Any, examples: list[Any]) -> Callable[..., Any]:
        shares.append(share_of_rows(module.graph, 1))
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=backend, fullgraph=True)(*given)
    return shares[0]


def test_decoding_is_all_single_rows_and_a_prompt_with_a_head_is_not() -> None:
    wide, head = torch.ones(64, 64), torch.ones(128, 64)

    def decode(x: Any) -> Any:
        return torch.nn.functional.linear(torch.nn.functional.linear(x, wide), head)

    def prompt(x: Any) -> Any:
        for _ in range(8):
            x = torch.nn.functional.linear(x, wide)
        return torch.nn.functional.linear(x[:, -1:], head)

    assert share(decode, torch.ones(1, 1, 64)) == 1.0
    assert share(decode, torch.ones(8, 1, 64)) == 0.0
    assert share(prompt, torch.ones(1, 2000, 64)) == pytest.approx(128 / (128 + 8 * 640))
    assert share(lambda x: x + 1, torch.ones(4)) == 0.0


def test_every_kind_of_product_counts() -> None:
    row, rows, square = torch.ones(16), torch.ones(2, 16), torch.ones(16, 16)
    one, many = torch.ones(3, 1, 16), torch.ones(3, 400, 16)
    squares = torch.ones(3, 16, 16)
    assert share(lambda x: x @ square, row) == 1.0
    assert share(lambda x: x @ square, rows) == 0.0
    assert share(lambda x: torch.addmm(row, x, square), rows[:1]) == 1.0
    assert share(lambda x: torch.bmm(x, squares), one) == 1.0
    assert share(lambda x: torch.bmm(x, squares) + torch.bmm(many, squares), one) == (
        pytest.approx(1 / 3)
    )


def test_nothing_is_fused_in_front_of_products_with_many_rows() -> None:
    from torch._inductor import config

    square = torch.ones(64, 64)
    for rows, fused in ((8, True), (64, True), (65, False), (2000, False)):

        def backend(module: Any, examples: list[Any]) -> Callable[..., Any]:
            fuse_before_few_rows(module.graph)
            return module.forward

        torch._dynamo.reset()
        with config.patch({"prologue_fusion": True}):
            torch.compile(lambda x: x @ square, backend=backend)(torch.ones(rows, 64))
            assert config.prologue_fusion is fused, rows
