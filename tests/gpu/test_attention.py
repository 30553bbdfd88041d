"""Attention on a real GPU: our kernels against PyTorch in fp32, and models captured with them.

Right means: an error of at most twice that of PyTorch's own attention in the same type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.driver.trace.capture_trace import TraceOptions, trace
from tessera.ir.program.program import Launch, LibraryCall
from tests.gpu.test_capture import check

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed")

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
sdpa = torch.nn.functional.scaled_dot_product_attention
BF16 = torch.bfloat16
PRODUCTS = {"aten::mm.out", "aten::addmm.out", "aten::bmm.out"}


def rand(*shape: int, dtype: Any = BF16) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def seen_by(tokens: int, keys: int, offset: int, causal: bool, window: int) -> Any:
    row = torch.arange(tokens, device="cuda")[:, None] + offset
    key = torch.arange(keys, device="cuda")[None, :]
    seen = torch.ones(tokens, keys, dtype=torch.bool, device="cuda")
    if causal:
        seen &= key <= row
    if window:
        seen &= key > row - window
    return seen


def plain(
    q: Any, k: Any, v: Any, seen: Any, *, cap: float = 0.0, bias: Any = None, sinks: Any = None
) -> Any:
    """Attention as models write it, in the type of what is given."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    score = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if cap:
        score = cap * torch.tanh(score / cap)
    if bias is not None:
        score = score + bias.to(score.dtype)
    score = score.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        wide = sinks.to(score.dtype)[None, :, None, None].expand(*score.shape[:3], 1)
        score = torch.cat([score, wide], -1)
    weight = torch.softmax(score.float(), -1).to(q.dtype).nan_to_num(0)
    return weight[..., : k.shape[2]] @ v


def check_kernel(q: Any, k: Any, v: Any, seen: Any = None, pages: Any = None, **more: Any) -> None:
    """The operator against fp32; `more` are its arguments, `cap`, `bias`, `sinks` those of both."""
    from tessera.frontend.capture.attention.rewrite import attention

    both = {name: more.pop(name) for name in ("cap", "bias", "sinks") if name in more}
    keys, values = pages or (k, v)
    named = {name: more.pop(name, None) for name in ("position", "lengths", "table")}
    mask = more.pop("mask", both.get("bias"))
    found = attention()(
        q, keys, values, mask, both.get("sinks"), named["position"], named["lengths"],
        named["table"], q.shape[3] ** -0.5, soft_cap=both.get("cap", 0.0), **more,
    )  # fmt: skip
    if seen is None:
        seen = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device="cuda")
    exact = plain(q.float(), k.float(), v.float(), seen, **both)
    usual = plain(q, k, v, seen, **both)
    assert found.shape == exact.shape
    own = float((found.float() - exact).norm() / exact.norm())
    theirs = float((usual.float() - exact).norm() / exact.norm())
    assert own <= 2 * theirs, (own, theirs)
    assert float((found.float() - exact).abs().max()) <= 4 * float(
        (usual.float() - exact).abs().max()
    )


@pytest.mark.parametrize("size", [64, 80, 96, 128, 192, 256])
@pytest.mark.parametrize("tokens", [1, 3, 200])
def test_heads_of_all_sizes_in_groups(size: int, tokens: int) -> None:
    q = rand(2, tokens, 8, size).transpose(1, 2)
    k, v = rand(2, 2, 333, size), rand(2, 333, 2, size).transpose(1, 2)
    seen = seen_by(tokens, 333, 333 - tokens, True, 0)
    check_kernel(q, k, v, seen, causal=True, offset=333 - tokens)


@pytest.mark.parametrize("tokens", [1, 130])
def test_heads_of_mla(tokens: int) -> None:
    q, k, v = rand(2, 16, tokens, 192), rand(2, 16, 257, 192), rand(2, 16, 257, 128)
    seen = seen_by(tokens, 257, 100, True, 0)
    check_kernel(q, k, v, seen, causal=True, offset=100)


@pytest.mark.parametrize("tokens", [1, 96])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_windows_caps_sinks(tokens: int, dtype: Any) -> None:
    q, k, v = (rand(1, h, n, 64, dtype=dtype) for h, n in ((8, tokens), (4, 500), (4, 500)))
    seen = seen_by(tokens, 500, 300, True, 77)
    sinks = torch.randn(8, device="cuda").to(dtype)
    check_kernel(q, k, v, seen, causal=True, offset=300, window=77, cap=5.0, sinks=sinks)


@pytest.mark.parametrize("tokens", [1, 70])
def test_masks(tokens: int) -> None:
    q, k, v = rand(2, 8, tokens, 128), rand(2, 2, 190, 128), rand(2, 2, 190, 128)
    mask = torch.rand(2, 1, tokens, 190, device="cuda") > 0.4
    mask[0, :, 0] = False  # a row that sees nothing is zero
    check_kernel(q, k, v, mask, mask=mask)
    check_kernel(q, k, v, bias=rand(1, 8, tokens, 190, dtype=torch.float32))


def test_positions_and_lengths_come_from_memory() -> None:
    q, k, v = rand(3, 8, 1, 128), rand(3, 2, 2048, 128), rand(3, 2, 2048, 128)
    position = torch.tensor([1234], device="cuda")
    check_kernel(q, k, v, seen_by(1, 2048, 1234, True, 0), causal=True, position=position)
    lengths = torch.tensor([1, 700, 2048], device="cuda", dtype=torch.int32)
    seen = torch.arange(2048, device="cuda") < lengths[:, None, None, None]
    check_kernel(q, k, v, seen, lengths=lengths)


@pytest.mark.parametrize("page", [16, 128])
def test_pages_behind_a_table(page: int) -> None:
    count = 2 * 512 // page
    pages = rand(count, 2, page, 128), rand(count, 2, page, 128)
    table = torch.randperm(count, device="cuda").to(torch.int32).view(2, -1)
    k, v = (x[table.long()].transpose(1, 2).flatten(2, 3) for x in pages)
    lengths = torch.tensor([77, 512], device="cuda")
    seen = torch.arange(512, device="cuda") < lengths[:, None, None, None]
    check_kernel(rand(2, 8, 1, 128), k, v, seen, pages=pages, table=table, lengths=lengths)


# --- captured -----------------------------------------------------------------------------------


def launched(program: Any) -> list[str]:
    return [step.kernel for step in program.steps if isinstance(step, Launch)]


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captures put our kernels in place of attention."""
    from tessera.frontend.capture import routes

    held = routes.plain_attention

    @contextmanager
    def both(route: str) -> Iterator[None]:
        with held(route), routes.own_kernels(route):
            yield

    monkeypatch.setattr(routes, "plain_attention", both)


@pytest.mark.usefixtures("own")
def test_captured_attention_is_our_kernel_and_gives_the_same_bytes() -> None:
    def step(q: Any, k: Any, v: Any) -> Any:
        out = sdpa(q * 2, k, v, is_causal=True, enable_gqa=True)
        return out.transpose(1, 2).reshape(1, 96, -1) + 1

    q, k, v = rand(1, 8, 96, 64), rand(1, 2, 96, 64), rand(1, 2, 96, 64)
    found = trace(step, q, k, v, options=TraceOptions(route="ptx", archs=("sm_80",)))
    program = check(found)
    assert launched(program).count("attention") == 1
    assert not any(isinstance(step, LibraryCall) for step in program.steps)
    assert not any("softmax" in name for name in launched(program))


@pytest.mark.usefixtures("own")
def test_captured_what_the_kernels_do_not_compute_is_taken_apart() -> None:
    q, k, v = (rand(1, 2, 32, 64, dtype=torch.float32) for _ in range(3))
    program = check(trace(lambda q, k, v: sdpa(q, k, v), q, k, v))
    assert "attention" not in launched(program)


@pytest.mark.usefixtures("own")
def test_captured_attention_under_vmap_is_taken_apart() -> None:
    q, k, v = (rand(3, 1, 2, 32, 64) for _ in range(3))
    program = check(trace(lambda q, k, v: torch.vmap(sdpa)(q, k, v), q, k, v))
    assert "attention" not in launched(program)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("tokens", [1, 40])
def test_captured_a_model_with_a_static_cache(tokens: int) -> None:
    """Grouped heads are not repeated, and the mask is a position that the cache counts."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=512, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2,
        intermediate_size=512, vocab_size=512, max_position_embeddings=512,
    )  # fmt: skip
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model = made.to("cuda", BF16).eval()
    ids = torch.randint(0, 511, (2, tokens), device="cuda")
    before = torch.randint(0, 511, (2, 100), device="cuda")

    def cache() -> Any:
        made = transformers.StaticCache(config=config, max_cache_len=512)
        with torch.no_grad():
            model(input_ids=before, past_key_values=made, use_cache=True)
        return made

    used = cache()

    class Step(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, ids: Any) -> Any:
            return self.model(input_ids=ids, past_key_values=used, use_cache=True).logits

    found = trace(Step(), ids)
    program = check(found)
    names = launched(program)
    assert names.count("attention") == 2
    calls = {step.operator for step in program.steps if isinstance(step, LibraryCall)}
    assert calls <= PRODUCTS, "a library may compute products, where it is faster"
    largest = max(b.bytes for b in program.buffers if b.name.startswith("t"))
    assert largest < 2 * 8 * 512 * 64 * 2, "no buffer has the keys of all heads"


def test_captured_the_error_of_a_model_is_that_of_eager() -> None:
    """Against fp32: the compiled call with our kernels errs at most twice as much as eager."""
    from tessera.frontend.capture.routes import compiled, fresh_compiler, own_kernels

    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.MistralConfig(
        hidden_size=512, num_attention_heads=8, num_key_value_heads=2, num_hidden_layers=2,
        intermediate_size=512, vocab_size=512, max_position_embeddings=512, sliding_window=64,
    )  # fmt: skip
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model = made.to("cuda", BF16).eval()
    ids = torch.randint(0, 511, (2, 200), device="cuda")
    with torch.no_grad():
        with fresh_compiler(), own_kernels("ptx"):
            call = compiled(
                lambda ids: model(input_ids=ids, use_cache=False).logits, "ptx", "TRITON"
            )
            found = call(ids).float()
        usual = model(input_ids=ids, use_cache=False).logits.float()
        exact = model.float()(input_ids=ids, use_cache=False).logits
    own, theirs = (float((x - exact).norm() / exact.norm()) for x in (found, usual))
    assert own <= 2 * theirs, (own, theirs)
