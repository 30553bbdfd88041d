"""Complex numbers of a graph as pairs of real ones, and places where a graph waits for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.frontend.capture import rewrite
from tessera.frontend.capture.complex_pairs import replace_complex
from tessera.frontend.capture.problems import refusal
from tests.helpers.recorded_graphs import recorded, take_as_on_gpu

pytestmark = pytest.mark.filterwarnings("ignore")


def some(*shape: int, dtype: Any = None) -> Any:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape)))


def numbers(*shape: int) -> Any:
    return some(*shape, dtype=torch.complex64)


def rotary(queries: Any, angles: Any) -> Any:
    """As Llama 4 has it."""
    turns = torch.polar(torch.ones_like(angles), angles) * 0.5
    pairs = torch.view_as_complex(queries.float().reshape(*queries.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns[:, :, None, :]).flatten(3).type_as(queries)


def arithmetic(z: Any, w: Any, x: Any) -> Any:
    parts = [z * w, z.conj() - w, -z, z * x, x * z, z / 2, 1 - z, z + x, x - z, z * (2 + 1j)]
    joined = torch.cat(parts).transpose(0, 1)
    return joined, joined.real + joined.imag, (z + w).contiguous()[1:].unsqueeze(0)


def unknown(z: Any, w: Any, x: Any) -> Any:
    """Operators that stay as they are, between others that do not."""
    product = (z * w) @ (w + x).T
    return product * 2, product.abs(), torch.complex(x, x), z.view(torch.int64)


def as_bytes(z: Any, x: Any) -> Any:
    apart = torch.view_as_complex(x)
    twice = (z.view(torch.float32) * 2).view(torch.complex64)
    return twice * z, apart.reshape(-1) * 2, apart.view(12)


def turned(x: Any) -> Any:
    """A result whose strides are not in order, as that of `torch.stft`."""
    made = torch.complex(x, x * 2)
    return made.permute(2, 0, 1), (made * 2).transpose(0, 2)


# By name the call, its inputs, and what of complex numbers is left in its graph.
CALLS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], set[str]]] = {
    "rotary": (rotary, (some(1, 5, 2, 8, dtype=torch.bfloat16), some(1, 5, 4)), set()),
    "turned": (turned, (some(2, 3, 4),), {"view_as_complex", "permute"}),
    "arithmetic": (
        arithmetic,
        (numbers(3, 4), numbers(3, 4), some(3, 4)),
        {"view_as_real", "view_as_complex", "permute", "rsub"},
    ),
    "unknown": (
        unknown,
        (numbers(3, 4), numbers(3, 4), some(3, 4)),
        {"view_as_real", "view_as_complex", "mm", "abs", "view", "permute"},
    ),
    "bytes": (as_bytes, (numbers(3, 4), some(3, 4, 2)), {"view_as_real", "view_as_complex"}),
}


@pytest.mark.parametrize("name", CALLS)
def test_pairs_compute_the_same(name: str) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    function, inputs, left = CALLS[name]
    module = make_fx(function, tracing_mode="fake")(*inputs)
    replace_complex(module.graph)
    module.recompile()
    touching = {
        node.target._schema.name.removeprefix("aten::")
        for node in module.graph.nodes
        if node.op == "call_function"
        and any(n.meta["val"].is_complex() for n in (node, *node.all_input_nodes))
    }
    assert touching == left
    made, wanted = (
        result if isinstance(result, tuple) else (result,)
        for result in (module(*inputs), function(*inputs))
    )
    for ours, theirs in zip(made, wanted, strict=True):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        torch.testing.assert_close(ours, theirs)


def test_a_graph_without_complex_numbers_stays() -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(lambda x: (x + 1).cos(), tracing_mode="fake")(some(3)).graph
    before = str(graph)
    replace_complex(graph)
    assert str(graph) == before


# --- data ---------------------------------------------------------------------------------------


def reads_a_number(x: Any) -> Any:
    return x * x.max().item()


def makes_a_size(x: Any) -> Any:
    return torch.nonzero(x) + 1


@pytest.mark.parametrize(
    ("function", "what"),
    [(reads_a_number, "reads a value"), (makes_a_size, "size depends on data")],
)
def test_the_line_that_waits_for_the_gpu_is_named(
    monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any], what: str
) -> None:
    import torch._dynamo.config as dynamo

    kept = dict.fromkeys(("capture_scalar_outputs", "capture_dynamic_output_shape_ops"), True)
    with dynamo.patch(kept):
        graph = recorded(function, some(4))
    rewrite.refuse_data_dependence(graph)  # on the host there is nothing to wait for
    take_as_on_gpu(monkeypatch, rewrite)
    with pytest.raises(TesseraError, match=rf"TSR6003.*{what}") as caught:
        rewrite.refuse_data_dependence(graph)
    (told,) = caught.value.diagnostics
    assert told.notes[0].startswith(f"in `{function.__name__}`, test_capture_complex.py:")
    # torch.compile raises something of its own on top of it.
    outer = RuntimeError("backend failed")
    outer.__cause__ = caught.value
    assert refusal(outer) is caught.value


def test_what_the_model_raised_is_told_where_the_compiler_hides_it() -> None:
    def refuses(x: Any) -> Any:
        raise ValueError("too many heads")

    with pytest.raises(RuntimeError, match="exception") as caught:
        recorded(refuses, some(3))
    (told,) = refusal(caught.value).diagnostics
    assert any("ValueError('too many heads')" in note for note in told.notes), told.notes
    assert "`refuses`, test_capture_complex.py" in told.notes[-1]
