"""Which calls of attention become ours, and what masks say, in recorded graphs.

What the kernels compute is tested in `tests/kernels/test_attention.py` and `tests/gpu`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture.attention import launch as launching
from tessera.frontend.capture.attention import rewrite
from tessera.frontend.capture.attention.choose import AttentionSize, candidates
from tessera.frontend.capture.attention.launch import Nothing
from tessera.frontend.capture.attention.masks import KeyRange, read_mask
from tessera.frontend.capture.graphs.graph_nodes import changed_memory, shape_of
from tests.helpers.recorded_graphs import recorded, take_as_on_gpu, tensors

pytestmark = pytest.mark.filterwarnings("ignore")


def mask_of(function: Callable[..., Any], tokens: int, keys: int, *inputs: Any) -> KeyRange | None:
    graph = recorded(function, *inputs)
    (result,) = next(node for node in graph.nodes if node.op == "output").args[0]
    return read_mask(result, tokens, keys, changed_memory(graph))


def ranges(tokens: int, keys: int) -> tuple[Any, Any]:
    return torch.arange(tokens)[None, None, :, None], torch.arange(keys)[None, None, None, :]


def test_causal_masks_and_windows_are_read() -> None:
    def causal(x: Any) -> Any:
        q, k = ranges(8, 8)
        return (k <= q) & x.new_ones((), dtype=torch.bool)

    def window(x: Any) -> Any:
        q, k = ranges(8, 24)
        return (k <= q + 16) & (q + 16 - 5 < k) & (k < 24)

    def shifted(x: Any) -> Any:
        q, k = ranges(8, 24)
        return (q + 3 > k).expand(2, -1, 8, 24)

    x = torch.ones(1)
    assert mask_of(causal, 8, 8, x) == KeyRange(offset=0)
    assert mask_of(window, 8, 24, x) == KeyRange(offset=16, window=5)
    assert mask_of(shifted, 8, 24, x) == KeyRange(offset=2)


def causal() -> Any:
    return torch.arange(8)[None, :] <= torch.arange(8)[:, None]


def set_first(mask: Any) -> None:
    mask[:, :2] = True


def changing(made: Any, change: Callable[[Any], Any]) -> Any:
    """A tensor that is changed after it was made."""
    change(made)
    return made


def test_triangles_of_what_is_true_everywhere_are_read() -> None:
    def banded(x: Any) -> Any:
        return causal() & torch.ones(8, 8, dtype=torch.bool).triu(-3)

    def below(x: Any) -> Any:
        return torch.tril(torch.ones(8, 12, dtype=torch.bool), diagonal=4)

    assert mask_of(banded, 8, 8, torch.ones(1)) == KeyRange(offset=0, window=4)
    assert mask_of(below, 8, 12, torch.ones(1)) == KeyRange(offset=4)


def test_a_row_that_is_repeated_is_the_same_everywhere() -> None:
    """One number of a range is no range, though it was taken from one."""

    def part(x: Any) -> Any:
        row = torch.arange(12)[None, :]
        return row <= row[:, 4:5]

    assert mask_of(part, 1, 12, torch.ones(1)) == KeyRange(offset=4)


@pytest.mark.parametrize("method", [False, True])
def test_sequences_that_are_not_packed_are_seen_not_to_be(method: bool) -> None:
    """The models of transformers look for several sequences in one row, by their positions.

    PyTorch 2.11 records a comparison of tensors as a method.
    """

    def step(x: Any, positions: Any = None) -> Any:
        positions = (torch.arange(8) + 0).unsqueeze(0) if positions is None else positions
        positions = positions.expand(2, -1)
        before = positions[:, :1] - 1
        numbers = (torch.diff(positions, prepend=before, dim=-1) != 1).cumsum(-1)
        rows = torch.arange(2)[:, None, None, None]
        q, k = ranges(8, 8)
        return (k <= q) & (numbers[rows, q] == numbers[rows, k])

    def read(*inputs: Any) -> KeyRange | None:
        graph = recorded(step, *inputs)
        for node in graph.nodes:
            if method and node.target in (operator.eq, operator.ne, operator.le):
                node.op, node.target = "call_method", f"__{node.target.__name__}__"
        (result,) = next(node for node in graph.nodes if node.op == "output").args[0]
        return read_mask(result, 8, 8, changed_memory(graph))

    assert read(torch.ones(1)) == KeyRange(offset=0)
    assert read(torch.ones(1), torch.arange(8)[None]) is None


def test_masks_that_are_changed_together_are_seen_to_be() -> None:
    def step(x: Any) -> Any:
        m, n = ranges(8, 8)
        mask = n <= m
        torch._foreach_zero_([mask, x])
        return mask

    assert mask_of(step, 8, 8, torch.ones(3)) is None


def test_masks_that_are_changed_inside_of_a_function_over_functions_are_seen_to_be() -> None:
    """As FlexAttention makes the blocks of its masks."""

    def cleared(row: Any) -> Any:
        row[:2] = True
        return row

    def others(x: Any) -> Any:
        torch.vmap(torch.vmap(cleared))(x)
        q, k = ranges(8, 8)
        return k <= q

    def the_mask(x: Any) -> Any:
        q, k = ranges(8, 8)
        mask = k <= q
        torch.vmap(torch.vmap(cleared))(mask[0])
        return mask

    x = torch.zeros(1, 3, 5)
    assert mask_of(others, 8, 8, x) == KeyRange(offset=0)
    assert mask_of(the_mask, 8, 8, x) is None


def test_a_position_is_the_value_where_the_mask_used_it() -> None:
    def step(length: Any) -> Any:
        q = torch.arange(1) + length
        seen = torch.arange(32)[None, None, None, :] <= q[None, None, :, None]
        length.add_(1)
        return seen

    found = mask_of(step, 1, 32, torch.tensor(7))
    assert found is not None
    assert found.offset == 0
    assert found.position is not None
    assert found.position.value.op == "placeholder"
    assert found.position.used.name.startswith("q")


@pytest.mark.parametrize(
    "mask",
    [
        lambda x: torch.arange(8)[None, :] == torch.arange(8)[:, None],
        lambda x: torch.arange(8)[None, :] <= 2 * torch.arange(8)[:, None],
        lambda x: (torch.arange(8)[None, :] <= torch.arange(8)[:, None]) | (x > 0),
        lambda x: (torch.arange(8)[None, :] <= torch.arange(8)[:, None]) & (x > 0),
        lambda x: torch.arange(8)[None, :] > torch.arange(8)[:, None] - 3,
        lambda x: torch.arange(8)[None, :] <= torch.arange(8).flip(0)[:, None],
        lambda x: torch.arange(8)[None, :] <= x.long(),
        lambda x: causal() & torch.ones(8, 8, dtype=torch.bool).logical_not(),
        lambda x: causal() & torch.ones(8, 8, dtype=torch.bool).roll(1, 0),
        lambda x: torch.arange(8)[None, :] <= torch.add(torch.arange(8)[:, None], 1, alpha=-2),
        lambda x: changing(causal(), lambda mask: mask.logical_and_(x > 0)),
        lambda x: changing(causal(), lambda mask: mask.view(-1)[3:5].fill_(True)),
        lambda x: changing(causal(), set_first),
        lambda x: changing(causal(), lambda mask: torch.logical_or(mask, x > 0, out=mask)),
        lambda x: changing(causal(), lambda mask: torch.ops.aten.fill_.Scalar(mask, True)),
        lambda x: torch.arange(8) <= changing(torch.arange(8), lambda row: row.add_(1))[:, None],
        lambda x: torch.arange(8, dtype=torch.uint8) - torch.arange(8)[:, None].byte() < 4,
    ],
)
def test_other_masks_are_not(mask: Callable[[Any], Any]) -> None:
    assert mask_of(mask, 8, 8, torch.ones(8, 8)) is None


@pytest.fixture
def anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of the host count as tensors of a GPU."""
    take_as_on_gpu(monkeypatch, rewrite)


def ours(graph: Any) -> list[Any]:
    rewrite.replace_attention(graph)
    graph.lint()
    return [node for node in graph.nodes if "tessera" in str(node.target)]


sdpa = torch.nn.functional.scaled_dot_product_attention
CAUSAL = {"causal": True, "offset": 0, "window": 0, "soft_cap": 0.0, "nothing": 0}


@pytest.mark.usefixtures("anywhere")
def test_attention_inside_of_a_function_over_functions_is_left_alone() -> None:
    """There tensors have a dimension more than they show, which an operator of ours cannot take."""
    (x,) = tensors((3, 1, 2, 8, 64))
    assert not ours(recorded(lambda x: torch.vmap(sdpa)(x, x, x), x))
    assert ours(recorded(lambda x: sdpa(x, x, x), x[0]))


@pytest.mark.usefixtures("anywhere")
def test_repeated_heads_are_taken_as_they_were() -> None:
    def step(q: Any, k: Any, v: Any) -> Any:
        wide = [x[:, :, None].expand(1, 2, 4, 16, 64).reshape(1, 8, 16, 64) for x in (k, v)]
        return sdpa(q, *wide, is_causal=True)

    (node,) = ours(recorded(step, *tensors((1, 8, 16, 64), (1, 2, 16, 64), (1, 2, 16, 64))))
    assert [argument.op for argument in node.args[:3]] == ["placeholder"] * 3
    assert node.kwargs == CAUSAL

    def changing(q: Any, k: Any, v: Any) -> Any:
        wide = [x.repeat_interleave(4, 1) for x in (k, v)]
        k.add_(1)
        return sdpa(q, *wide)

    (node,) = ours(recorded(changing, *tensors((1, 8, 16, 64), (1, 2, 16, 64), (1, 2, 16, 64))))
    assert [argument.op for argument in node.args[1:3]] == ["call_method"] * 2


@pytest.mark.usefixtures("anywhere")
def test_a_cache_with_a_position_needs_no_mask() -> None:
    def step(q: Any, k: Any, v: Any, length: Any) -> Any:
        seen = torch.arange(32)[None, :] <= (torch.arange(1) + length)[:, None]
        length.add_(1)
        first = sdpa(q, k, v, attn_mask=seen, enable_gqa=True)
        return sdpa(first, k, v, attn_mask=seen, enable_gqa=True)

    graph = recorded(step, *tensors((2, 8, 1, 64), (2, 2, 32, 64), (2, 2, 32, 64)), torch.tensor(5))
    first, second = ours(graph)
    assert first.args[3] is None
    copy = first.args[5]
    assert copy is second.args[5], "one copy for all"
    assert (copy.op, copy.target) == ("call_method", "clone")
    changes = next(node for node in graph.nodes if node.target == "add_")
    assert copy < changes
    assert first.kwargs["causal"] is True


@pytest.mark.usefixtures("anywhere")
def test_a_position_on_the_host_stays_in_the_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def step(q: Any, k: Any, v: Any, length: Any) -> Any:
        return sdpa(q, k, v, attn_mask=torch.arange(32)[None, :] <= length)

    graph = recorded(step, *tensors(*[(2, 2, 1, 64)], *[(2, 2, 32, 64)] * 2), torch.tensor(5))
    on_gpu, length = vars(rewrite)["value_of"], next(n for n in graph.nodes if shape_of(n) == ())
    monkeypatch.setattr(
        rewrite, "value_of", lambda n: n.meta["example_value"] if n is length else on_gpu(n)
    )
    (node,) = ours(graph)
    assert node.args[3] is not None
    assert node.args[5] is None
    assert node.kwargs["causal"] is False


@pytest.mark.usefixtures("anywhere")
def test_other_masks_stay_tensors() -> None:
    q, k, v = tensors((2, 4, 8, 64), (2, 4, 8, 64), (2, 4, 8, 64))
    (node,) = ours(recorded(lambda q, k, v, m: sdpa(q, k, v, m), q, k, v, torch.rand(8, 8) > 0.5))
    assert node.args[3].op == "placeholder"
    assert node.kwargs["causal"] is False


def written(q: Any, k: Any, v: Any, sinks: Any = None, cap: float = 0.0) -> Any:
    """Attention as the models of transformers write it."""
    wide = [x[:, :, None].expand(1, 2, 4, 16, 64).reshape(1, 8, 16, 64) for x in (k, v)]
    scores = torch.matmul(q, wide[0].transpose(2, 3)) * 0.125
    if cap:
        scores = torch.tanh(scores / cap) * cap
    seen = (torch.arange(16)[None, :] <= torch.arange(16)[:, None])[None, None]
    scores = scores + torch.where(seen, torch.tensor(0.0, dtype=q.dtype), torch.finfo(q.dtype).min)
    if sinks is not None:
        more = sinks.reshape(1, -1, 1, 1).expand(1, -1, 16, -1)
        scores = torch.cat([scores, more], dim=-1)
        scores = scores - scores.max(dim=-1, keepdim=True).values
    weights = torch.nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    weights = weights if sinks is None else weights[..., :-1]
    weights = torch.nn.functional.dropout(weights, p=0.0, training=False)
    return torch.matmul(weights, wide[1]).transpose(1, 2).contiguous()


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("cap", [0.0, 30.0])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_attention_that_is_written_out_is_ours(cap: float, has_sinks: bool) -> None:
    q, k, v, sinks = tensors((1, 8, 16, 64), (1, 2, 16, 64), (1, 2, 16, 64), (8,))

    def step(q: Any, k: Any, v: Any, sinks: Any) -> Any:
        return written(q, k, v, sinks if has_sinks else None, cap)

    (node,) = ours(recorded(step, q, k, v, sinks))
    assert [argument.op for argument in node.args[:3]] == ["placeholder"] * 3
    assert (node.args[3], node.args[8]) == (None, 0.125)
    assert (node.args[4] is not None) == has_sinks
    assert node.kwargs == CAUSAL | {"soft_cap": cap}


NEVER = float("-inf")
BELOW = torch.ones(16, 16, dtype=torch.bool).tril()


def soft(scores: Any) -> Any:
    return torch.softmax(scores, -1)


# How people write it: the scores, and what is made of their softmax. Masks: seen, or hidden.
WAYS: dict[str, tuple[Callable[..., Any], str]] = {
    "in fp32": (lambda q, k, v: soft((q @ k.mT).float() * 0.5).to(v.dtype) @ v, ""),
    "a number first": (lambda q, k, v: soft(0.5 * (q @ k.permute(0, 1, 3, 2))) @ v, ""),
    "einsum": (
        lambda q, k, v: torch.einsum(
            "bhij, bhjd -> bhid", soft(torch.einsum("bhid,bhjd->bhij", q, k) / 2), v
        ),
        "",
    ),
    "swapped": (lambda q, k, v: soft((q @ k.swapaxes(-1, -2)).to(torch.float32) / 2).to(v) @ v, ""),
    "filled": (
        lambda q, k, v: soft((q @ k.mT * 0.5).masked_fill(~BELOW.to(q.device), NEVER)) @ v,
        "seen",
    ),
    "filled by number": (
        lambda q, k, v: soft((q @ k.mT / 2).float().masked_fill(BELOW.mT == 0, -1e9)).to(v) @ v,
        "seen",
    ),
    "hidden": (
        lambda q, k, v: soft((q @ k.mT / 2).masked_fill(~BELOW | (q[..., :1] > 9), NEVER)) @ v,
        "hidden",
    ),
}


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("name", WAYS)
def test_however_it_is_written_it_is_ours(name: str) -> None:
    step, mask = WAYS[name]
    q, k, v = tensors(*[(1, 4, 16, 64)] * 3)
    (node,) = ours(recorded(step, q, k, v))
    assert [argument.op for argument in node.args[:3]] == ["placeholder"] * 3
    assert node.args[8] == 0.5
    assert (node.args[3] is not None) == bool(mask)
    assert node.kwargs["causal"] is False


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    "step",
    [
        lambda q, k, v: torch.softmax(q @ k.transpose(2, 3), 2) @ v,
        lambda q, k, v: torch.relu(q @ k.transpose(2, 3)) @ v,
        lambda q, k, v: torch.softmax(q @ k.transpose(1, 2), 3) @ v,
        lambda q, k, v: torch.softmax(-(q @ k.transpose(2, 3)), 3) @ v,
        lambda q, k, v: torch.softmax(-0.5 * (q @ k.transpose(2, 3)), 3) @ v,
        lambda q, k, v: torch.softmax((q @ k.mT).int().float(), 3) @ v.float(),
        lambda q, k, v: soft((q @ k.mT).to(torch.float8_e4m3fn).to(q.dtype)) @ v,
        lambda q, k, v: soft(q @ k.mT).to(torch.float8_e4m3fn).to(q.dtype) @ v,
        lambda q, k, v: torch.softmax((q @ k.mT).masked_fill(q > 0, -1.0), 3) @ v,
        lambda q, k, v: torch.softmax(q @ k.permute(0, 2, 3, 1), 3) @ v,
        lambda q, k, v: torch.softmax(torch.einsum("abcd,abde->abce", q, k), 3) @ v,
        lambda q, k, v: torch.einsum("abcd,abed->abce", torch.softmax(q @ k.mT, 3), v),
        lambda q, k, v: torch.softmax(q @ k.transpose(2, 3), 3)[..., :-1] @ v[:, :, 1:],
        lambda q, k, v: soft(torch.add(q @ k.mT, q, alpha=0.5)) @ v,
        lambda q, k, v: soft(q @ k.mT + (q > 0)) @ v,
        lambda q, k, v: soft(torch.div(q @ k.mT, 2.0, rounding_mode="floor")) @ v,
        lambda q, k, v: soft(torch.where(q > 0, -1e9, q @ k.mT)) @ v,
        lambda q, k, v: soft(changing(q @ k.mT, lambda s: s.masked_fill_(q > 0, -1e9))) @ v,
        lambda q, k, v: soft(changing(q @ k.mT, lambda s: k.relu_())) @ v,
        lambda q, k, v: (
            soft(changing(q @ k.mT, lambda s: torch.nn.functional.relu(k, inplace=True))) @ v
        ),
        lambda q, k, v: soft(changing(q @ k.mT, lambda s: torch.ops.aten.mul_.Tensor(v, q))) @ v,
    ],
)
def test_other_products_are_not(step: Callable[..., Any]) -> None:
    made = tensors(*[(1, 16, 16, 16)] * 3)
    assert ours(recorded(step, *made)) == []


@pytest.mark.usefixtures("anywhere")
def test_heads_that_are_picked_are_not_taken_as_they_were() -> None:
    def step(q: Any, k: Any, v: Any, order: Any) -> Any:
        wide = [x[order, :, None].expand(2, 2, 4, 16, 64).reshape(2, 8, 16, 64) for x in (k, v)]
        return sdpa(q, *wide)

    made = tensors((2, 8, 16, 64), (2, 2, 16, 64), (2, 2, 16, 64))
    (node,) = ours(recorded(step, *made, torch.tensor([1, 0])))
    assert [argument.op for argument in node.args[1:3]] == ["call_method"] * 2


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("hide", "nothing"),
    [
        (lambda s, hidden: s.masked_fill(hidden, -1e9), Nothing.MEAN),
        (lambda s, hidden: torch.where(~hidden, s, torch.finfo(s.dtype).min), Nothing.MEAN),
        (lambda s, hidden: s.masked_fill(hidden, NEVER), Nothing.NAN),
        (lambda s, hidden: torch.where(~hidden, s, NEVER), Nothing.NAN),
        (lambda s, hidden: s + torch.where(hidden, NEVER, 0.0).to(s.dtype), Nothing.NAN),
    ],
)
def test_a_token_that_sees_nothing_gets_what_a_softmax_makes_of_it(
    hide: Callable[..., Any], nothing: Nothing
) -> None:
    def step(q: Any, k: Any, v: Any) -> Any:
        hidden = torch.arange(16)[None, :] >= torch.arange(16)[:, None]
        return soft(hide(q @ k.mT, hidden)) @ v

    (node,) = ours(recorded(step, *tensors(*[(1, 4, 16, 64)] * 3)))
    assert node.args[3] is not None
    assert node.kwargs["nothing"] == nothing


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("dtype", "size", "dropout"),
    [(torch.float32, 64, 0.0), (torch.bfloat16, 264, 0.0), (torch.bfloat16, 64, 0.5)],
)
def test_what_the_kernels_do_not_compute_stays(dtype: Any, size: int, dropout: float) -> None:
    made = tensors(*[(1, 2, 8, size)] * 3, dtype=dtype)
    assert ours(recorded(lambda q, k, v: sdpa(q, k, v, dropout_p=dropout), *made)) == []


@pytest.mark.parametrize("tokens", [1, 4, 512])
@pytest.mark.parametrize("size", [16, 64, 128, 192, 256])
@pytest.mark.parametrize("shared", [99_000, 232_448])
def test_there_is_always_a_way_to_cut(tokens: int, size: int, shared: int) -> None:
    problem = AttentionSize(
        batch=2,
        heads=32,
        kv_heads=8,
        tokens=tokens,
        keys=777,
        size=size,
        v_size=size,
        bytes=2,
        causal=True,
        window=0,
        plain=True,
        paged=False,
        sms=132,
        shared=shared,
    )
    found = list(candidates(problem))
    assert found
    for tiles in found:
        assert tiles.rows & (tiles.rows - 1) == 0 <= tiles.rows - 16
        assert tiles.splits == 1 or tiles.packed
        assert tiles.splits * tiles.keys <= 777 + tiles.keys


@pytest.mark.parametrize(
    ("keys_lie", "mask", "is_long"),
    [
        ("batch first", None, False),
        ("token first", None, True),
        ("batch first", (1, 1, 8192, 8192), False),
        ("batch first", (1, 32, 8192, 8192), True),
    ],
)
def test_places_that_32_bits_do_not_hold_have_64(
    keys_lie: str, mask: Any, is_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *given, **named: told.append(named)

    monkeypatch.setattr(launching, "_kernels", lambda: (Kernel(), Kernel()))
    batch, heads, size, tokens = 64, 32, 128, 8192
    q = torch.empty(batch, heads, tokens, size, device="meta", dtype=torch.bfloat16)
    if keys_lie == "batch first":
        k = torch.empty(batch, 8, tokens, size, device="meta", dtype=torch.bfloat16)
    else:
        k = torch.empty(40_000, batch, 8, size, device="meta", dtype=torch.bfloat16)
        k = k.permute(1, 2, 0, 3)
    seen = None if mask is None else torch.empty(mask, device="meta", dtype=torch.bool)
    tiles = launching.Tiles(rows=64, keys=64, warps=4, stages=2)
    launching.launch(q, k, k, seen=launching.Seen(), scale=1.0, mask=seen, tiles=tiles)
    assert told[0]["LONG"] is is_long
