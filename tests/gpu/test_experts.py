"""Mixtures of experts on a real GPU: our kernels against PyTorch, models captured with them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.driver.trace.capture_trace import TraceOptions, trace
from tessera.ir.program.program import Launch, LibraryCall

if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
pytest.importorskip("triton", reason="Triton is not installed")

from tests.gpu.test_capture import check

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
BF16 = torch.bfloat16


def rand(*shape: int, dtype: Any = BF16) -> Any:
    return torch.randn(*shape, device="cuda").to(dtype)


def ends_of(rows: int, experts: int) -> Any:
    """Ends of the experts' rows; some have none."""
    chosen = torch.randint(0, max(1, experts - 1), (rows,), device="cuda")
    return torch.cumsum(torch.bincount(chosen, minlength=experts), 0).int()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize(
    ("rows", "experts", "k", "n"), [(16, 8, 512, 768), (300, 32, 136, 200), (2048, 8, 256, 384)]
)
def test_a_product_of_experts(
    rows: int, experts: int, k: int, n: int, dtype: Any, turned: bool
) -> None:
    from tessera.frontend.capture.experts.rewrite import grouped_product

    torch.manual_seed(rows)
    x, ends = rand(rows, k, dtype=dtype), ends_of(rows, experts)
    weights = (
        rand(experts, n, k, dtype=dtype).transpose(1, 2)
        if turned
        else rand(experts, k, n, dtype=dtype)
    )
    found = grouped_product()(x, weights, ends).double()
    begin = 0
    for expert, end in enumerate(ends.tolist()):
        wanted = x[begin:end].double() @ weights[expert].double()
        scale = max(float(wanted.abs().max()) if wanted.numel() else 0.0, 1e-30)
        limit = {torch.float32: 1e-5, torch.float16: 2e-3}.get(dtype, 1e-2)
        assert float((found[begin:end] - wanted).abs().max() if end > begin else 0) <= limit * scale
        begin = end


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_the_greatest_of_rows(dtype: Any) -> None:
    from tessera.frontend.capture.experts.rewrite import greatest

    x = torch.stack([torch.randperm(257, device="cuda") for _ in range(64)]).to(dtype)
    values, places = greatest()(x.view(8, 8, 257), 8)
    wanted, where = torch.topk(x.view(8, 8, 257), 8)
    assert torch.equal(values, wanted)
    if dtype == torch.float32:
        assert torch.equal(places, where)


# --- captured -----------------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["ptx", "library"])
@pytest.mark.parametrize("name", ["mixtral", "gpt_oss", "qwen3_moe", "deepseek_v3"])
def test_captured_a_mixture_of_experts_as_it_comes(name: str, route: str) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    from benchmarks.laptop.models import build

    model, inputs = build(name, "cuda")
    found = trace(model, options=TraceOptions(route=route), **inputs)
    program = check(found)
    kernels = [step.kernel for step in program.steps if isinstance(step, Launch)]
    assert kernels.count("grouped_product") >= 2
    if route == "ptx":
        calls = {step.operator for step in program.steps if isinstance(step, LibraryCall)}
        assert calls <= {"aten::sort.stable", "aten::sort"}


# --- other families -----------------------------------------------------------------------------


@pytest.mark.parametrize("route", ["ptx", "library"])
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_captured_a_recurrent_network(kind: str, route: str) -> None:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = getattr(torch.nn, kind)(64, 128, num_layers=2, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.inner(x)[0]

    program = check(
        trace(Model().to("cuda", BF16).eval(), rand(2, 6, 64), options=TraceOptions(route=route))
    )
    calls = {step.operator for step in program.steps if isinstance(step, LibraryCall)}
    assert bool(calls) == (route == "library")


def test_captured_a_model_with_flex_attention() -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=256, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2,
        intermediate_size=512, vocab_size=512,
    )  # fmt: skip
    torch.manual_seed(0)
    made = transformers.AutoModelForCausalLM.from_config(
        config, attn_implementation="flex_attention"
    )
    ids = torch.randint(0, 511, (1, 128), device="cuda")
    check(trace(made.to("cuda", BF16).eval(), input_ids=ids, use_cache=False))


def test_captured_attention_of_cudnn_by_the_library_route() -> None:
    """Without the sums of a backward pass, whose place seeds would take."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (rand(8, heads, tokens, 128) for heads, tokens in ((32, 1), (8, 1024), (8, 1024)))

    def step(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    program = check(trace(step, q, k, v, options=TraceOptions(route="library")))
    assert any(
        isinstance(step, LibraryCall) and "cudnn_attention" in step.operator
        for step in program.steps
    )
