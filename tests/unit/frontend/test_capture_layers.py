"""Sections of a recorded graph: equal ones are compiled once, and the whole computes the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch import nn

from tessera.frontend.capture.layers import compile as layers
from tessera.frontend.capture.layers import sections
from tessera.frontend.capture.layers.sections import sections_of

LAYERS = 5


@pytest.fixture(autouse=True)
def small_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut graphs of a few calls, too."""
    monkeypatch.setattr(sections, "LEAST_SPARED", 0)


class Layer(nn.Module):  # type: ignore[misc]
    """A layer with a cache that it writes in place; `kind` is a constant of its own."""

    def __init__(self, kind: float = 1.0) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.kind = kind
        self.register_buffer("cache", torch.zeros(4, 16))

    def forward(self, x: Any, place: Any) -> Any:
        hidden = torch.relu(self.first(x * self.kind))
        self.cache.index_copy_(0, place, hidden)
        return x + self.second(hidden + self.cache.sum(0))


class Stack(nn.Module):  # type: ignore[misc]
    """Layers, with something before them that all of them use."""

    def __init__(self, kinds: list[float], carry: Callable[[Any], Any] | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, kinds))
        self.head = nn.Linear(8, 4)
        self.carry = carry

    def forward(self, x: Any, place: Any) -> Any:
        shared = place + 1
        carried = None if self.carry is None else self.carry(x)
        for layer in self.layers:
            x = layer(x, shared - 1)
        if carried is not None:
            x = x + carried[0].abs().sum() + carried[-1].abs().sum()
        return self.head(x)


def compiled(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[int]]:
    """A model by sections that are not compiled, and how many calls each different section has."""
    sizes: list[int] = []

    def as_it_is(module: Any, examples: Any, options: Any) -> Any:
        sizes.append(sum(node.op.startswith("call_") for node in module.graph.nodes))
        return module.forward

    monkeypatch.setattr(torch._inductor, "compile", as_it_is)
    torch._dynamo.reset()
    return torch.compile(
        model, backend=layers.in_sections({}), fullgraph=True, dynamic=False
    ), sizes


def check(model: Stack, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Results and caches are those of the model itself, in two calls; sizes of sections."""
    torch.manual_seed(0)
    inputs = [(torch.randn(2, 8), torch.tensor([at, at + 1])) for at in (0, 2)]
    with torch.no_grad():
        wanted = [model(*given) for given in inputs]
        caches = [layer.cache.clone() for layer in model.layers]
        for layer in model.layers:
            layer.cache.zero_()
        function, sizes = compiled(model, monkeypatch)
        for given, result in zip(inputs, wanted, strict=True):
            assert torch.equal(function(*given), result)
    for layer, cache in zip(model.layers, caches, strict=True):
        assert cache.any()
        assert torch.equal(layer.cache, cache)
    return sizes


def test_equal_layers_are_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few = check(Stack([1.5] * LAYERS), monkeypatch)
    many = check(Stack([1.5] * (LAYERS + 3)), monkeypatch)
    assert few == many
    assert 1 < len(few) <= 4


def test_a_small_graph_is_compiled_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sections, "LEAST_SPARED", 200)
    assert len(check(Stack([1.5] * LAYERS), monkeypatch)) == 1


def test_layers_of_two_kinds_are_compiled_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    few = check(Stack([1.5, 1.5, 2.5] * 3), monkeypatch)
    many = check(Stack([1.5, 1.5, 2.5, 1.5] * 4), monkeypatch)
    assert 3 < len(few) <= 7
    assert sum(many) <= sum(few) + 7


def test_layers_that_all_differ_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = check(Stack([1.0 + number for number in range(LAYERS)]), monkeypatch)
    assert len(sizes) == 1


@pytest.mark.parametrize(
    "carry",
    [
        pytest.param(lambda x: torch.complex(x, x), id="complex"),
        pytest.param(lambda x: (x[:1], x[1:]), id="the same memory"),
    ],
)
def test_what_cannot_be_handed_on_is_not_cut(
    carry: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(check(Stack([1.5] * LAYERS, carry), monkeypatch)) == 1


def test_functions_over_functions_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside of `vmap` tensors have no memory that could be compared, and outside they have."""

    def step(x: Any, weights: Any) -> Any:
        for weight in weights:
            x = torch.vmap(lambda a, b: torch.relu(a @ b) @ b)(x, weight)
        for weight in 4 * weights:
            x = x + torch.relu(x @ weight[0])
        return x

    inputs = torch.randn(3, 8, 8), [torch.randn(3, 8, 8) for _ in range(LAYERS)]
    function, sizes = compiled(step, monkeypatch)
    assert torch.equal(function(*inputs), step(*inputs))
    assert 2 <= len(sizes) <= 4
    assert sizes[0] >= 8 * LAYERS


def graph_of(function: Callable[..., Any], *given: Any) -> Any:
    graphs: list[Any] = []

    def keep(module: Any, examples: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    torch._dynamo.reset()
    torch.compile(function, backend=keep, fullgraph=True, dynamic=False)(*given)
    return graphs[0]


def test_parts_are_equal_only_if_memory_is_shared_alike() -> None:
    def step(x: Any, weights: Any, pairs: Any) -> Any:
        for weight, (written, read) in zip(weights, pairs, strict=True):
            x = (x @ weight).relu()
            written.add_(x)
            x = x + read
        return x

    x, weights = torch.randn(2, 8), [torch.randn(8, 8) for _ in range(LAYERS)]
    pairs = [(torch.randn(2, 8), torch.randn(2, 8)) for _ in range(LAYERS)]
    apart = sections_of(graph_of(step, x, weights, pairs))
    both = torch.randn(3, 8)
    pairs[3] = both[:2], both[1:]
    shared = sections_of(graph_of(step, x, weights, pairs))
    kinds = [len({section.key for section in sections}) for sections in (apart, shared)]
    assert kinds[1] == kinds[0] + 1
    assert len(apart) == len(shared) > LAYERS - 1
