"""Kernels for GPUs that are not there: a block of a model, as far as PyTorch's results."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.diagnostics import TesseraError
from tessera.driver.load import load
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.driver.run.tolerance import approximations, distance
from tessera.driver.trace.tile_choice import TileChoice
from tessera.frontend.capture.no_gpu import private_names, record, versions
from tessera.frontend.capture.no_gpu.listener import Listener, TritonLaunch
from tessera.frontend.capture.no_gpu.record import NOT_MEASURED, _properties, _ptx_version
from tessera.frontend.capture.products import ProductPrices
from tessera.frontend.machine.gpu_table import find_gpu
from tests.helpers.command import tessc

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

BLOCK = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(64), nn.Linear(64, 64)
        self.register_buffer("cache", torch.zeros(1, 2, 48, 32))

    def forward(self, x, place):
        q = self.norm(x).view(1, 16, 2, 32).transpose(1, 2)
        self.cache.index_copy_(2, place, q)
        seen = torch.nn.functional.scaled_dot_product_attention(q, self.cache, self.cache)
        return x + self.out(seen.transpose(1, 2).reshape(1, 16, 64))

def step():
    x = torch.randn(1, 16, 64).to("cuda", torch.bfloat16)
    return Block().to("cuda", torch.bfloat16), {"x": x, "place": torch.arange(16).cuda()}
"""


@pytest.fixture(scope="module")
def block(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("no_gpu")
    (folder / "model.py").write_text(BLOCK)
    path = folder / "step.ptx"
    done = tessc(
        "trace",
        f"{folder}/model.py:step",
        "-o",
        str(path),
        "--device",
        "none",
        "--for",
        "l40s,h200",
    )
    assert done.code == 0, done.err
    return path, done.out.decode()


def test_a_block_has_kernels_for_every_gpu(block: tuple[Path, str]) -> None:
    path, said = block
    program = load(path)
    assert "not measured" in said
    assert all(type(step).__name__ == "Launch" for step in program.work())
    assert "attention" in {step.kernel for step in program.launches()}
    for module in program.modules:
        assert [variant.arch for variant in module.variants] == ["sm_89", "sm_90a"]
        for variant in module.variants:
            assert variant.text.startswith(NOT_MEASURED)
            assert re.search(r"^\.version 8\.0$", variant.text, re.MULTILINE)
    roles = {buffer.name: buffer.role.value for buffer in program.declared_buffers()}
    wanted = {"x": "input", "place": "input", "cache": "state", "out.weight": "weight"}
    assert wanted | {"out": "output"} == {name: roles[name] for name in (*wanted, "out")}


def test_it_computes_what_pytorch_does_on_the_host(block: tuple[Path, str]) -> None:
    path, _ = block
    report = run_trace(path, RunOptions())
    widened = approximations(load(path)).widened
    compared = set()
    with np.load(path.with_suffix(".ref.npz"), allow_pickle=False) as recorded:
        for buffer, data in report.kept():
            wanted = recorded[buffer.name].reshape(-1).view(np.uint8)
            assert wanted.any()
            apart = distance(
                buffer.dtype, wanted, np.asarray(data).reshape(-1).view(np.uint8), widened
            )
            assert apart.is_within, apart.text()
            compared.add(buffer.name)
    assert compared == {"out", "cache"}


def test_a_second_capture_sees_all_launches(block: tuple[Path, str], tmp_path: Path) -> None:
    path, _ = block
    again = tmp_path / "again.ptx"
    named = ("--device", "none", "--for", "l40s,h200", "--no-data")
    done = tessc("trace", f"{path.parent}/model.py:step", "-o", str(again), *named)
    assert done.code == 0, done.err
    assert b"a run seeds them" in done.out
    kernels = [[s.kernel for s in load(file).launches()] for file in (path, again)]
    assert kernels[0] == kernels[1]


def test_compiled_graphs_are_kept_for_the_same_gpus(
    block: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)

    def hits(gpus: str, name: str) -> tuple[bool, str]:
        counters.clear()
        place = tmp_path / f"{name}.ptx"
        told = ("-o", str(place), "--device", "none", "--for", gpus, "--no-data")
        done = tessc("trace", f"{block[0].parent}/model.py:step", *told)
        assert done.code == 0, done.err
        return counters["inductor"]["fxgraph_cache_hit"] > 0, place.read_text()

    first, again, other = hits("l40s,h200", "a"), hits("l40s,h200", "b"), hits("l40s,a100", "c")
    assert (first[0], again[0], other[0]) == (False, True, False)
    assert again[1] == first[1]
    monkeypatch.setattr(record, "made_by", lambda *_: "another setting")
    assert hits("l40s,h200", "d") == (False, first[1])


def test_code_for_aligned_memory_is_not_taken_for_other_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    model = tmp_path / "model.py"
    model.write_text(
        "import torch\n"
        "def step(start):\n"
        "    memory = torch.ones(1040, device='cuda')\n"
        "    return torch.exp, (memory[start : start + 1024],)\n"
    )
    for start in (0, 1, 4):
        place = tmp_path / f"{start}.ptx"
        told = ("--set", f"start={start}", "--device", "none", "--for", "h200", "--no-data")
        done = tessc("trace", f"{model}:step", "-o", str(place), *told)
        assert done.code == 0, done.err
        steps = [line for line in place.read_text().splitlines() if line.startswith("//! ")]
        assert not [line for line in steps if line.startswith("//! op")]


def test_a_route_without_a_compiler_notes_operators(
    block: tuple[Path, str], tmp_path: Path
) -> None:
    path = tmp_path / "eager.ptx"
    named = ("--device", "none", "--for", "a100", "--route", "eager", "--no-data")
    done = tessc("trace", f"{block[0].parent}/model.py:step", "-o", str(path), *named)
    assert done.code == 0, done.err
    calls = [step.operator for step in load(path).work()]
    assert "aten::scaled_dot_product_attention" in calls


def test_layers_of_pytorch_numbers_of_the_host_and_autocast(tmp_path: Path) -> None:
    """`TransformerEncoderLayer` is no single operator, kernels take what a tensor of the host
    holds, even if that is nothing, and the reference has the types of the GPU's autocast, and
    results that are expanded, or most of what they lie in."""
    (tmp_path / "model.py").write_text("""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.TransformerEncoderLayer(32, 2, 32), nn.Linear(32, 32)
        self.factor = torch.tensor(2.5)

    def forward(self, x):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            half = self.out(x)
        none = torch.tensor([], device=x.device, dtype=x.dtype)
        more = torch.cat([none, x.flatten()]) + 1
        return self.layer(x)[1:] * self.factor, half, more, x.sum(0).expand(3, 1, 32), (x * 3)[1:]

def step():
    return Model().cuda().eval(), {"x": torch.randn(4, 1, 32).cuda()}
""")
    path = tmp_path / "step.ptx"
    named = ("--device", "none", "--for", "a100")
    done = tessc("trace", f"{tmp_path}/model.py:step", "-o", str(path), *named)
    assert done.code == 0, done.err
    widened = approximations(load(path)).widened
    with np.load(path.with_suffix(".ref.npz"), allow_pickle=False) as recorded:
        for buffer, data in run_trace(path, RunOptions()).kept():
            given = [
                np.asarray(d).reshape(-1).view(np.uint8) for d in (recorded[buffer.name], data)
            ]
            apart = distance(buffer.dtype, *given, widened)
            assert apart.is_within, apart.text()
        assert set(recorded.files) == {"out", "out1", "out2", "out3", "out4"}


@pytest.mark.parametrize(
    ("work", "words"),
    [
        ("x * h.to(x.device)", "copies from the host to the GPU"),
        ("(x + 1).cpu()", "copies from the GPU to the host"),
    ],
)
def test_a_copy_to_or_from_the_host_is_refused(tmp_path: Path, work: str, words: str) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\ndef step():\n    host = torch.randn(4)\n"
        f"    return (lambda x, h: {work}), [torch.ones(8, 4).cuda(), host]\n"
    )
    path = tmp_path / "step.ptx"
    done = tessc(
        "trace", f"{tmp_path}/model.py:step", "-o", str(path), "--device", "none", "--for", "a100"
    )
    assert done.code != 0
    assert words in done.err
    assert not path.exists()


OWN_KERNELS = """
import torch, triton
import triton.language as tl

@triton.jit
def shifted(values):
    return values - tl.max(values, 0)

@triton.autotune([triton.Config({"WIDTH": 16}), triton.Config({"WIDTH": 32})], key=["n"])
@triton.heuristics({"EVEN": lambda given: given["n"] % 2 == 0})
@triton.jit
def soft(x, out, n, WIDTH: tl.constexpr, EVEN: tl.constexpr):
    row, column = tl.program_id(0), tl.arange(0, WIDTH)
    values = shifted(tl.load(x + row * n + column, mask=column < n, other=-float("inf")))
    powers = tl.exp(values)
    tl.store(out + row * n + column, powers / tl.sum(powers, 0), mask=column < n)

@triton.jit
def odd(x, out):
    value = tl.inline_asm_elementwise("neg.f32 $0, $1;", "=r,r", [tl.load(x)], tl.float32, True, 1)
    tl.store(out, value)

def step(which):
    def run(x):
        out = torch.empty_like(x)
        if which == "soft":
            soft[(x.shape[0],)](x * 2, out, 16)
        else:
            odd[(1,)](x, out)
        return out
    return run, (torch.randn(4, 16).cuda(),)
"""


@pytest.mark.parametrize("which", ["soft", "odd"])
def test_kernels_of_the_models_own_are_interpreted_on_the_host(tmp_path: Path, which: str) -> None:
    (tmp_path / "model.py").write_text(OWN_KERNELS)
    path = tmp_path / "step.ptx"
    told = ("--device", "none", "--for", "a100", "--set", f"which={which}")
    done = tessc("trace", f"{tmp_path}/model.py:step", "-o", str(path), *told)
    assert done.code == 0, done.err
    if which == "odd":
        assert b"are not compared: Triton's interpreter does not run the kernel `odd`" in done.out
        assert not path.with_suffix(".ref.npz").exists()
        return
    assert b"the reference of `soft` is by Triton's interpreter" in done.out
    ((buffer, data),) = run_trace(path, RunOptions()).kept()
    with np.load(path.with_suffix(".ref.npz")) as recorded:
        flat = [np.asarray(d).reshape(-1).view(np.uint8) for d in (recorded["out"], data)]
    assert distance(buffer.dtype, *flat).is_within


def test_nothing_is_said_when_kernels_end(block: tuple[Path, str]) -> None:
    """Triton asks a driver to unload their code, and there is none."""
    import gc

    from triton.compiler.compiler import CompiledKernel

    assert block
    gc.unfreeze()
    kernels = [thing for thing in gc.get_objects() if type(thing) is CompiledKernel]
    assert not [kernel for kernel in kernels if kernel.module is not None]


def test_nothing_is_said_after_the_last_word() -> None:
    """Triton's library reports leaks of its own when the process ends."""
    code = "import sys, triton; sys.argv = ['tessc', '--version']\n"
    code += "from tessera.cli.main import main; main()"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert ended.stderr == b""


def test_the_newest_triton_that_the_extra_allows_was_tried() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    (wanted,) = project["project"]["optional-dependencies"]["triton"]
    oldest, newest = versions.TESTED["triton"]
    major, minor = newest.split(".")
    assert wanted == f"triton>={oldest},<{major}.{int(minor) + 1}"


def test_random_numbers_have_a_seed_and_no_reference(tmp_path: Path) -> None:
    """The host's generator is another one; two runs of the trace draw the same."""
    (tmp_path / "model.py").write_text(
        "import torch\ndef step():\n"
        "    return torch.nn.Dropout(0.5).train(), {'input': torch.ones(64).cuda()}\n"
    )
    path = tmp_path / "step.ptx"
    done = tessc(
        "trace", f"{tmp_path}/model.py:step", "-o", str(path), "--device", "none", "--for", "a100"
    )
    assert done.code == 0, done.err
    assert b"no reference, results of a run are not compared: it draws random" in done.out
    assert not path.with_suffix(".ref.npz").exists()
    runs = [run_trace(path, RunOptions()).kept() for _ in range(2)]
    first, second = ({b.name: np.asarray(data) for b, data in run} for run in runs)
    assert set(np.unique(first["out"].view(np.float32))) == {0.0, 2.0}
    assert np.array_equal(first["out"], second["out"])
    assert tuple(first["random_state"].view(np.uint64)) == (0, 4)


def test_nothing_stays_patched() -> None:
    from torch._inductor.select_algorithm import AlgorithmSelectorCache
    from torch._subclasses.fake_tensor import FakeTensor
    from triton.backends.nvidia.compiler import CUDABackend

    def names() -> list[Any]:
        guards = torch._C._dynamo.guards
        named = [getattr(guards, "_empty_strided_cuda", None), guards._reinterpret_tensor]
        named += [torch.cuda.device, torch.cuda.current_stream, FakeTensor.data_ptr]
        return [*named, AlgorithmSelectorCache.benchmark, CUDABackend.make_cubin]

    before = names()
    with private_names.standing_in(*_a100()):
        assert not any(new is old for new, old in zip(names(), before, strict=True))
    assert all(new is old for new, old in zip(names(), before, strict=True))


def _a100() -> tuple[SimpleNamespace, int, Listener]:
    listener = Listener(
        on_launch=lambda launch: None,
        prices=ProductPrices(TileChoice((find_gpu("a100"),)), lambda name: None),
        address_of=lambda tensor: 0,
    )
    return _properties(find_gpu("a100"), (find_gpu("a100"),)), 80, listener


def test_code_for_the_host_does_not_run_without_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.async_compile import AsyncCompile
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr(AsyncCompile, "cpp_pybinding", lambda *given: lambda *tensors: "ran")
    with FakeTensorMode():
        fake = torch.ones(4)
    with private_names.standing_in(*_a100()):
        run = AsyncCompile().cpp_pybinding(["float*"], "void kernel(float*) {}")
        assert run(torch.ones(4)) == "ran"
        with pytest.raises(TesseraError, match="on the host"):
            run(torch.ones(4), fake)


def test_a_name_that_a_version_does_not_have_is_named() -> None:
    with pytest.raises(TesseraError, match="TSR6014") as refused:
        versions.find("torch._inductor.select_algorithm:NoSuchClass")
    assert "NoSuchClass" in refused.value.diagnostics[0].notes[0]
    assert versions.TESTED["triton"][0] in str(refused.value.diagnostics[0].hint)


def test_names_that_are_called_elsewhere_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.check_names()
    monkeypatch.delattr(torch._inductor, "compile")
    with pytest.raises(TesseraError, match="TSR6014"):
        versions.check_names()


def test_versions_that_nobody_tried_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "9.9.0")
    (said,) = versions.untested()
    assert said.code == "TSR6014"
    assert "torch 9.9.0" in str(said.headline)


def test_ptx_is_as_old_as_the_newest_gpu_allows() -> None:
    wanted = {("sm_80", "sm_90a"): 80, ("sm_80", "sm_100a"): 86, ("sm_120a",): 87}
    assert {archs: _ptx_version(archs) for archs in wanted} == wanted


def test_arguments_have_the_bytes_of_their_types() -> None:
    from tessera.frontend.capture.no_gpu.record import _Launches

    recording = _Launches()
    recording.is_on = True
    values: dict[str, Any] = {"a": -2, "b": 3, "c": True, "d": 1.5, "e": 1.0, "f": 7}
    kinds = {"a": "i32", "b": "u64", "c": "i1", "d": "fp32", "e": "bf16", "f": "constexpr"}
    metadata = SimpleNamespace(name="k", num_warps=4, shared=0, num_ctas=1, cluster_dims=(1, 1, 1))
    launch = TritonLaunch(
        function=1, grid=(2, 1, 1), parameters=kinds, arguments=values, metadata=metadata
    )
    recording.launch(launch)
    (node,) = recording.nodes
    assert [part.hex() for part in node.arguments] == [
        "feffffff",
        "0300000000000000",
        "01",
        "0000c03f",
        "803f",
    ]
