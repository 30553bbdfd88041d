"""What capture does with PyTorch itself, as far as that needs no GPU."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.frontend.capture import memory, routes, watch
from tessera.frontend.capture.dry_run import without_gpu
from tessera.frontend.capture.inputs import named_parameters
from tessera.frontend.capture.measured import measured_products
from tessera.frontend.capture.model_file import load_model
from tessera.frontend.capture.raw import MeasuredProduct
from tessera.frontend.capture.tensors import raw_tensor, tensors_in
from tessera.ir.program.program import Role
from tests.helpers.command import tessc

pytestmark = pytest.mark.filterwarnings("ignore")
MODELS = Path(__file__).parents[3] / "examples" / "models"


@dataclass
class Node:
    """An operand of a product, as a compiler knows it."""

    shape: tuple[int, ...]

    def get_size(self) -> tuple[int, ...]:
        return self.shape

    def get_dtype(self) -> Any:
        return torch.bfloat16


@dataclass
class Result:
    first: Any
    more: dict[str, Any]


class Slotted:
    __slots__ = ("keys", "values")

    def __init__(self) -> None:
        self.keys, self.values = torch.ones(5), [torch.ones(6)]


def sizes(thing: Any) -> list[int]:
    return [tensor.numel() for tensor in tensors_in(thing)]


def test_tensors_are_found_in_objects_that_refer_to_themselves() -> None:
    made = Result(torch.ones(1), {"a": (torch.ones(2), [torch.ones(3)]), "b": Slotted()})
    made.more["me"] = made
    assert sizes(made) == [1, 2, 3, 5, 6]
    assert sizes((made.first, made.first)) == [1, 1]
    assert sizes([None, 3, "text", torch.nn.Linear(2, 2), len]) == []


def test_a_tensor_that_stands_for_others_is_those() -> None:
    two_tensor = pytest.importorskip(
        "torch.testing._internal.two_tensor", reason="this PyTorch has no TwoTensor"
    )
    both = two_tensor.TwoTensor(torch.ones(4), torch.zeros(4))
    assert sizes([both]) == [4, 4]


def test_parameters_and_buffers_have_their_names() -> None:
    module = torch.nn.BatchNorm1d(3)
    names = [name for name, _ in named_parameters(module)]
    assert names == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    assert [name for name, _ in named_parameters(module.forward)] == names


def test_a_sparse_tensor_is_refused() -> None:
    with pytest.raises(TesseraError) as caught:
        memory.CapturedMemory().add_tensor(
            torch.eye(3).to_sparse(), "in0", Role.INPUT, lasting=True
        )
    assert caught.value.diagnostics[0].code == "TSR6002"


def test_operands_that_no_record_can_say_are_refused() -> None:
    odd = [
        torch.ones(2, dtype=torch.complex64).conj(),
        torch.ones(2, dtype=torch.complex64).conj().imag,
        torch.eye(3).to_sparse(),
    ]
    for tensor in odd:
        with pytest.raises(TesseraError):
            raw_tensor(tensor)


def test_a_number_on_the_host_is_a_number() -> None:
    assert watch._number_of(torch.tensor(3.0)) == 3.0
    assert watch._number_of(7) == 7
    row = torch.ones(1)
    assert watch._number_of(row) is row


def test_what_is_compiled_stays_as_it_is() -> None:
    compiled = torch.compile(torch.nn.Linear(2, 2))
    assert routes.compiled(compiled, "ptx", "TRITON") is compiled
    module = torch.nn.Linear(2, 2)
    module.compile()
    assert routes.compiled(module, "library", "") is module
    plain = torch.nn.Linear(2, 2)
    assert routes.compiled(plain, "ptx", "TRITON") is not plain


def test_captures_for_slices_decide_nothing_about_steps_by_measuring(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: list[dict[str, Any]] = []
    monkeypatch.setattr(torch, "compile", lambda *_, **named: given.append(named["options"]))
    for alike in (False, True):
        routes.compiled(torch.nn.Linear(2, 2), "ptx", "TRITON", alike=alike)
    once, several = given
    changed = {name for name in several if once.get(name) != several[name]}
    assert "benchmark_epilogue_fusion" in changed
    assert not any(several[name] for name in changed)
    assert once["max_autotune"] is several["max_autotune"] is True


def test_the_compiler_is_set_up_and_back_again() -> None:
    from torch._inductor import config

    names = ("allow_buffer_reuse", "memory_planning", "cpp_wrapper", "fx_graph_remote_cache")
    before = [getattr(config, name) for name in names]
    wishes = dict.fromkeys(names, True)  # as an environment may have them
    with config.patch(wishes), routes.fresh_compiler():
        assert not any(getattr(config, name) for name in names)
    assert [getattr(config, name) for name in names] == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
@pytest.mark.parametrize("model", ["llama.py:decode", "moe.py:step", "mmdit.py:step"])
def test_models_are_built_without_a_gpu(model: str) -> None:
    file, _, name = model.partition(":")
    with without_gpu():
        function, inputs = load_model((MODELS / file, name), {})
        assert torch.zeros(2, device="cuda").device.type == "cpu"
        assert torch.zeros(2).to(torch.device("cuda", 0)).device.type == "cpu"
    assert isinstance(function, torch.nn.Module)
    assert {tensor.device.type for tensor in inputs} == {"cpu"}


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_dry_run_names_inputs_and_sizes_and_what_needs_a_gpu(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def lazy():\n"
        "    return torch.nn.LazyLinear(4).cuda(), {'x': [torch.ones(2, 3), torch.tensor(1)]}\n"
        "def generator():\n"
        "    torch.cuda.synchronize()\n"
        "def driver():\n"
        "    raise RuntimeError('Found no NVIDIA driver on your system.')\n"
    )
    done = tessc("trace", f"{model}:lazy", "-o", str(tmp_path / "out.ptx"), "--dry-run")
    assert done.text.splitlines()[1:] == [
        "  input x.0: torch.float32 2x3",
        "  input x.1: torch.int64 a single number",
        "  0 parameters, 0 bytes, and 2 whose sizes the first call decides",
    ]
    for made in ("generator", "driver"):
        done = tessc("trace", f"{model}:{made}", "-o", str(tmp_path / "out.ptx"), "--dry-run")
        assert done.code == 1
        assert "hint: there is no GPU here" in done.err


def test_a_model_on_several_gpus_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from tessera.frontend.capture import session
    from tessera.frontend.capture.inputs import Inputs

    entered: list[int] = []

    class Device:
        def __init__(self, index: int) -> None:
            entered.append(index)

        __enter__ = __exit__ = lambda *_: None

    def places(*indices: int) -> Any:
        made = [SimpleNamespace(is_cuda=True, device=SimpleNamespace(index=i)) for i in indices]
        return lambda thing: iter(made if thing else ())

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(session, "tensors_in", places(1, 1))
    with session.on_one_gpu(torch.nn.Linear(2, 2), Inputs(plain=(0,))):
        assert entered == [1]
    monkeypatch.setattr(session, "tensors_in", places(0, 1))
    with (
        pytest.raises(TesseraError) as caught,
        session.on_one_gpu(torch.nn.Linear(2, 2), Inputs(plain=(0,))),
    ):
        pass
    assert caught.value.diagnostics[0].code == "TSR6002"
    assert "cuda:0, cuda:1" in caught.value.diagnostics[0].notes[0]


@pytest.mark.parametrize(("route", "is_whole"), [("ptx", False), ("library", True)])
def test_attention_is_taken_apart_by_the_route_that_needs_ptx(route: str, is_whole: bool) -> None:
    from torch.fx.experimental.proxy_tensor import make_fx

    def attend(q: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    with torch.no_grad(), routes.plain_attention(route):
        graph = make_fx(attend)(torch.ones(1, 2, 8, 16)).graph
    names = [str(node.target) for node in graph.nodes]
    assert any("_scaled_dot_product" in name for name in names) == is_whole
    assert ("aten.bmm.default" in names) != is_whole


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 64, 1000, 4096])
def test_a_digest_sees_every_byte_and_every_swap(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_DIGEST_WORDS", 16)
    flat = torch.arange(size, dtype=torch.int64).mul(37).to(torch.uint8)
    seen = {memory.digest_of(flat)}
    assert memory.digest_of(flat.clone()) in seen
    changes = range(0, size, max(1, size // 50))
    for at in changes:
        other = flat.clone()
        other[at] += 1
        seen.add(memory.digest_of(other))
    assert len(seen) == 1 + len(changes)
    if size >= 512:
        swapped = torch.cat([flat[8:16], flat[:8], flat[16:]])
        shifted = torch.cat([flat[128:256], flat[:128], flat[256:]])
        assert len({*seen, memory.digest_of(swapped), memory.digest_of(shifted)}) == len(seen) + 2


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_the_same_bit_of_two_words_does_not_cancel_out(bit: int) -> None:
    """The signs of two numbers, say: a sum of words times odd numbers would not see them."""
    words = torch.arange(16) * 0x1234567
    changed = words.clone()
    changed[[3, 10]] ^= -(1 << 63) if bit == 63 else 1 << bit
    both = [memory.digest_of(flat.view(torch.uint8)) for flat in (words, changed)]
    assert both[0] != both[1]
    assert memory._mixed(words).unique().numel() == 16


def test_products_are_measured_once_and_triton_has_those_that_it_does_as_fast() -> None:
    choosing = pytest.importorskip(
        "torch._inductor.select_algorithm", reason="torch is not installed"
    )
    library = object.__new__(choosing.ExternKernelCaller)
    close, slow, broken = "close", "slow", "broken"
    products: list[MeasuredProduct] = []
    nodes = [Node((8, 64)), Node((64, 32))]
    heard = choosing.get_algorithm_selector_cache().feedback_saver_fns
    before = list(heard)
    with measured_products(products):
        (hear,) = [function for function in heard if function not in before]
        times = {library: 0.01, close: 0.0101, slow: 0.015, broken: float("inf")}
        for _ in range(2):
            given = dict(times)
            hear(given, "mm", nodes, list(times), None, {})
            assert min(given, key=lambda choice: given[choice]) == close
        for time, fastest in ((0.98, library), (0.95, close)):  # a long one has to be faster
            given = {library: 1.0, close: time}
            hear(given, "mm", [Node((1, 2))], [], None)
            assert min(given, key=lambda choice: given[choice]) is fastest
        products.clear()
        hear(dict(times), "mm", nodes, list(times), None, {})
        (held,) = [
            f
            for f in choosing.get_algorithm_selector_cache().preprocessing_fns
            if f.__module__ == measured_products.__module__
        ]
        library.name = "mm"
        assert held([library, slow]) == [library, slow]
        library.name = "_int_mm"  # no operator of a trace
        assert held([library, slow]) == [slow]
        assert held([library]) == [library]
        given = {library: 1.0, slow: 1.5}
        hear(given, "mm", [Node((1, 2))], [], None)
        assert min(given, key=lambda choice: given[choice]) is library
    assert heard == before
    assert products == [
        MeasuredProduct(
            name="mm",
            operands=("bfloat16 8x64", "bfloat16 64x32"),
            library_ns=1e4,
            triton_ns=1.01e4,
        ),
        MeasuredProduct(name="mm", operands=("bfloat16 1x2",), library_ns=1e6, triton_ns=1.5e6),
    ]


def test_what_the_command_says_of_measured_products() -> None:
    from tessera.cli.trace import _measured
    from tessera.driver.trace.capture_trace import CallTimes, GraphNodes, Trace
    from tessera.ir.program.program import Program

    known = MeasuredProduct(
        name="mm", operands=("bfloat16 8x64",), library_ns=12_000.0, triton_ns=15_000.0
    )
    only = MeasuredProduct(name="bmm", operands=(), library_ns=None, triton_ns=1.0)
    found = Trace(
        program=Program(),
        contents={},
        reference={},
        diagnostics=(),
        nodes=GraphNodes(kernels=0, memsets=0, copies=0, others=0, in_calls=0, skipped=0),
        products=(known, only),
        times=CallTimes(1_000_000.0, 3_000_000.0),
    )
    text = "\n".join(_measured(found))
    assert "bfloat16 8x64" in text
    assert "bmm" not in text
    assert "75% of it in library calls" in text


@pytest.mark.parametrize("route", ["auto", "ptx"])
@pytest.mark.parametrize(("rows", "is_close"), [(1, True), (8, False)])
def test_kernels_are_tuned_closely_where_products_have_one_row(
    route: str, rows: int, is_close: bool
) -> None:
    from torch._inductor import config

    graphs: list[Any] = []

    def keep(module: Any, _: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    torch._dynamo.reset()
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU())
    with torch.no_grad():
        torch.compile(model, backend=keep, fullgraph=True, dynamic=False)(torch.ones(1, rows, 16))
    before = config.coordinate_descent_tuning
    with routes.own_kernels(route):
        assert config.coordinate_descent_tuning is False
        config.pre_grad_custom_pass(graphs[0])
        assert config.coordinate_descent_tuning is is_close
    assert config.coordinate_descent_tuning is before


def test_a_recurrent_network_and_a_model_that_warns_are_one_graph() -> None:
    """As an LSTM of PyTorch, and the masks of flex attention in the transformers library."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.GRU(4, 8, batch_first=True)

        def forward(self, x: Any) -> Any:
            warnings.warn("slow", DeprecationWarning, stacklevel=2)
            return self.inner(x)[0]

    graphs: list[Any] = []

    def keep(module: Any, _: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    model, x = Model().eval(), torch.randn(1, 3, 4)
    with torch.no_grad(), routes.fresh_compiler():
        found = torch.compile(model, backend=keep, fullgraph=True)(x)
    assert len(graphs) == 1
    torch.testing.assert_close(found, model(x))


def test_attention_of_libraries_returns_its_result_alone_where_sums_were_not_asked_for() -> None:
    """cuDNN's leaves out the sums, others pad them: what is behind it is no sum then."""
    cudnn = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    query, seed = torch.ones(1, 2, 3, 8), torch.tensor(0)
    reads = [raw_tensor(query)]
    found = watch._results(cudnn, (query, None, None, None, 3, 3, seed, seed, None), reads)
    assert sizes(found) == [48]
    sums = torch.ones(1, 2, 3)
    found = watch._results(cudnn, (query, sums, None, None, 3, 3, seed, seed, None), reads)
    assert sizes(found) == [48, 6]
    assert sizes(watch._results(torch.ops.aten.topk.default, (query, seed), reads)) == [48, 1]


def test_what_compilers_measure_is_logged_and_told_and_nothing_is_printed(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    from tessera.frontend.capture.quiet import quiet_compiler

    choosing = pytest.importorskip(
        "torch._inductor.select_algorithm", reason="torch is not installed"
    )
    if not hasattr(choosing, "_log_autotune_choices_stats"):
        pytest.skip("this PyTorch prints nothing")
    before = choosing._log_autotune_choices_stats
    told: list[str] = []
    with caplog.at_level("INFO", "tessera.frontend.capture.quiet"), quiet_compiler(told.append):
        choosing._log_autotune_choices_stats("mm_template_autotuning", {"slow": 2.0, "fast": 1.0})
    assert told == ["mm"]
    assert [record.getMessage() for record in caplog.records] == [
        "mm: 1.0000 ms, fast",
        "mm: 2.0000 ms, slow",
    ]
    assert capsys.readouterr() == ("", "")
    assert choosing._log_autotune_choices_stats is before
