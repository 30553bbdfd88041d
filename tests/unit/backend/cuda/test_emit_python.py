"""The programs that `--emit cuda-python` writes, run against the stand-in driver."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tessera.backend.cuda import slices
from tessera.backend.cuda.api import Driver, DriverError
from tessera.backend.cuda.emitted.emit_python import emit_python, shared_files
from tessera.backend.cuda.slices import split_gpu
from tessera.backend.service import Model
from tessera.diagnostics import TesseraError
from tessera.frontend.trace.read_trace import parse_trace
from tests.helpers.exchanges import exchange_model
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.served import Ask, expected, inputs_of, model_of
from tests.helpers.share import share
from tests.helpers.traces import COPY, trace
from tests.unit.backend.cuda.test_random_placements import GPUS, SLICES, random_model

REQUESTS = 5


def run_files(
    model: Model,
    targets: dict[str, str],
    fake: FakeCuda,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, np.ndarray]:
    """Write the programs, run `run.py` as a user would, and read what it writes."""
    for name, text in emit_python(model.lowered, model.traces, targets).items():
        (folder / name).write_text(text)
    lanes = model.lowered.lanes
    asks = [Ask(i, 0, i % lanes) for i in range(REQUESTS)]
    inputs = {f"{n}@{i}": c for i, a in enumerate(asks) for n, c in inputs_of(model, a).items()}
    states = {f"{n}@{i}": c for i, lane in enumerate(model.states) for n, c in lane.items()}
    np.savez(folder / "data.npz", **model.weights, **states, **model.fillings[0])
    np.savez(folder / "inputs.npz", **inputs)
    options = ["--data", "data.npz", "--inputs", "inputs.npz", "--outputs", "out.npz"]
    run_program(folder, fake, [*options, "--requests", str(REQUESTS)], monkeypatch)
    return dict(np.load(folder / "out.npz"))


def run_program(
    folder: Path, fake: FakeCuda, options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`python run.py`, with the stand-in as the driver."""
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "argv", ["run.py", *options])
    monkeypatch.chdir(folder)
    before = set(sys.modules)
    try:
        runpy.run_path(str(folder / "run.py"), run_name="__main__")
    finally:
        for name in set(sys.modules) - before:
            del sys.modules[name]


@pytest.mark.parametrize("seed", share(range(200, 206)))
def test_streams_may_share_a_hardware_queue(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As streams of a slice do: what waits for something handed over later would wait for ever."""
    model = random_model(seed)
    found = run_files(model, SLICES, FakeCuda(seed=seed, one_queue=True), tmp_path, monkeypatch)
    lanes = model.lowered.lanes
    for number, want in enumerate(expected(model, [Ask(i, 0, i % lanes) for i in range(REQUESTS)])):
        for name, content in want.outputs.items():
            np.testing.assert_array_equal(found[f"{name}@{number}"], content)


def test_outputs_and_temps_that_begin_with_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers = """
    buffer x bytes=64 role=input
    buffer t bytes=128 role=temp
    buffer y bytes=128 role=output
    """
    steps = """
    launch m.copy grid=1,1,1 block=16,1,1 args=[t, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, t+64, u32:16]
    """
    model = model_of([trace(buffers, COPY, steps)], [["a", "b"]], filled=True)
    found = run_files(model, GPUS, FakeCuda(gpus=3), tmp_path, monkeypatch)
    for number, want in enumerate(expected(model, [Ask(i) for i in range(REQUESTS)])):
        np.testing.assert_array_equal(found[f"y@{number}"], want.outputs["y"])
        np.testing.assert_array_equal(want.outputs["y"][:64], model.fillings[0]["t"][64:])
        np.testing.assert_array_equal(want.outputs["y"][64:], model.fillings[0]["y"][64:])


@pytest.mark.parametrize("seed", [*share(range(100, 106)), 12])
def test_the_programs_do_the_same(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    targets = SLICES if seed % 2 else GPUS
    fake = FakeCuda(seed=seed, gpus=1 if seed % 2 else 3)
    is_exchange = seed == 12  # with transfers of several buffers
    model = exchange_model(12) if is_exchange else random_model(seed, variable=seed == 104)
    lanes = model.lowered.lanes
    asks = [Ask(i, 0, i % lanes) for i in range(REQUESTS)]
    wanted = expected(model, asks)
    found = run_files(model, targets, fake, tmp_path, monkeypatch)
    for number, (ask, want) in enumerate(zip(asks, wanted, strict=True)):
        for name, content in want.outputs.items():
            np.testing.assert_array_equal(found[f"{name}@{number}"], content, f"{ask} {name}")
    last = {ask.lane: want.states for ask, want in zip(asks, wanted, strict=True)}
    for lane, states in last.items():
        for name, content in states.items():
            np.testing.assert_array_equal(found[f"{name}@{lane}"], content, f"{lane} {name}")


@pytest.fixture
def common(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[dict[str, Any], FakeCuda]]:
    """What all programs share, and the driver that it calls."""
    fake = FakeCuda()
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = fake  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuda", types.ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    for name, text in shared_files().items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    shared = runpy.run_path(str(tmp_path / "common.py"))
    shared["Device"].driver = Driver(fake)
    yield shared, fake
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_the_programs_cut_gpus_as_the_backend_does(common: tuple[dict[str, Any], FakeCuda]) -> None:
    cut, fake = common[0]["cut"], common[1]
    pairs = [(one, other) for one in range(1, 132, 7) for other in range(1, 140, 3)]
    for sizes in (*((one,) for one in range(1, 140)), *pairs, (44,) * 3, (40, 84, 8), (30, 34, 66)):
        whole = sizes == (fake.sms,)  # which needs no context
        try:
            made = split_gpu(Driver(fake), 0, sizes, range(len(sizes)))
            wanted: list[int] | None = [count for _, count in made]
            assert wanted == [*sizes], "so many SMs, no more"
        except (DriverError, slices.TooFewSms):
            wanted = None
        fake.greens.clear()
        try:
            greens = cut(0, {f"d{i}": size for i, size in enumerate(sizes)})
            found: list[int] | None = [
                fake.sms if whole else greens[f"d{i}"].sms for i in range(len(sizes))
            ]
        except SystemExit:
            found = None
        assert found == wanted, sizes
        taken = fake.sms_in_use()
        assert len(taken) == len(set(taken)) == (0 if whole else sum(wanted or ()))
        fake.greens.clear()


@pytest.mark.parametrize("failing", range(1, 7))
def test_the_programs_leave_nothing_open_that_they_cut_in_vain(
    common: tuple[dict[str, Any], FakeCuda], failing: int
) -> None:
    """The first way may fail at any slice; the second then has all SMs to itself."""
    cut, fake = common[0]["cut"], common[1]
    make, made = fake.cuGreenCtxCreate, 0

    def fails(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return (2, None) if made == failing else make(*arguments)

    fake.cuGreenCtxCreate = fails
    greens = cut(0, {"a": 64, "b": 40, "c": 24})
    assert [greens[name].sms for name in "abc"] == [64, 40, 24]
    assert len(fake.greens) == 3


def test_programs_of_two_replicas_have_slices_of_their_own(
    common: tuple[dict[str, Any], FakeCuda],
) -> None:
    """Each is a process, and cuts the GPU by itself."""
    cut, fake = common[0]["cut"], common[1]
    both = {"a": 48, "b": 48}
    assert [*cut(0, both, ["b"])] == ["a"]
    assert [*cut(0, both, ["a"])] == ["b"]
    taken = fake.sms_in_use()
    assert len(taken) == len(set(taken)) == 96


@pytest.mark.parametrize("target", ["cuda:0:0sm", "cuda:x", "cuda:0:999sm"])
def test_the_programs_say_what_is_no_device(
    common: tuple[dict[str, Any], FakeCuda], target: str
) -> None:
    shared = common[0]
    shared["Device"]("a", {}, {}, {}, 1)
    with pytest.raises(SystemExit, match=r"is no CUDA device|cannot be cut into 999 SMs"):
        shared["open_devices"]({"a": target})


def test_programs_import_nothing_but_their_folder_and_their_packages() -> None:
    """The folder stands alone, also on a machine without Tessera."""
    model = random_model(7)
    files = emit_python(model.lowered, model.traces, SLICES)
    names = {Path(name).stem for name in files} | set(sys.stdlib_module_names) | {"numpy", "cuda"}
    assert {"run.py", "common.py", "api.py", "call_structures.py", "slices.py"} <= set(files)
    for name, text in files.items():
        nodes = list(ast.walk(ast.parse(text))) if name.endswith(".py") else []
        plain = [alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names]
        parts = [n.module or "." for n in nodes if isinstance(n, ast.ImportFrom)]
        assert {one.split(".")[0] for one in plain + parts} <= names, name


def test_one_readable_program_per_device() -> None:
    model = random_model(7)
    files = emit_python(model.lowered, model.traces, SLICES)
    programs = [text for name, text in files.items() if name.startswith("device_")]
    assert len(programs) == len(model.lowered.devices)
    assert not [name for name, text in files.items() if "from tessera" in text]
    for text in programs:
        assert "import tessera" not in text
        assert "def compute_0(d: Device, r: Request) -> Iterator[Need]:" in text
        assert max(map(len, text.splitlines())) < 400
        compile(text, "device.py", "exec")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--inputs", "short.npz"], "is given 7 bytes, and takes 64"),
        (["--data", "short.npz"], "is given 7 bytes, and takes 64"),
        (["--data", "strange.npz"], "`nobody` in strange.npz is no buffer of the plan"),
        (["--data", "run.py"], "run.py is no .npz file that can be read"),
        (["--data", "nothing.npz"], "nothing.npz is no .npz file that can be read"),
        (["--map", "q=cuda:0"], "`q=cuda:0` in --map names none of: a, b"),
        (["--map", "a"], "`a` in --map names none of: a, b"),
        (["--map", "a=cpu"], "cpu is no CUDA device"),
    ],
)
def test_what_a_program_is_given_and_cannot_use(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that is larger than its place gets into memory that belongs to others."""
    buffers = """
    buffer x bytes=64 role=input
    buffer w bytes=64 role=weight
    buffer y bytes=64 role=output
    """
    steps = """
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, x, u32:16]
    launch m.copy grid=1,1,1 block=16,1,1 args=[y, w, u32:16]
    """
    model = model_of([trace(buffers, COPY, steps)], [["a", "b"]])
    for name, text in emit_python(model.lowered, model.traces, GPUS).items():
        (tmp_path / name).write_text(text)
    short = np.zeros(7, np.uint8)
    np.savez(tmp_path / "short.npz", **{"x" if "--inputs" in options else "w": short})
    np.savez(tmp_path / "strange.npz", nobody=short)
    with pytest.raises(SystemExit, match=re.escape(said)):
        run_program(tmp_path, FakeCuda(gpus=3), options, monkeypatch)


def test_no_name_becomes_code() -> None:
    """Traces are called after their files, and files can have any name."""
    evil = 'a"""+print()+"""\\n\nprint()\x85print()\u2028#'
    program = trace(
        "buffer x bytes=4 role=input\nbuffer y bytes=4 role=output",
        COPY,
        "memcpy y x bytes=4\nmemset x bytes=4 value=1\nmemcpy x y bytes=4",
    )
    model = model_of([program], [[evil, "b", evil]])
    named = tuple(replace(one, name=evil) for one in model.traces)
    files = emit_python(model.lowered, named, {})
    calls = [
        node.func.id
        for name, text in files.items()
        if name not in shared_files()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert "print" not in calls
    assert "Device" in calls


def test_without_cuda_python_the_programs_say_so(tmp_path: Path) -> None:
    model = random_model(7)
    for name, text in emit_python(model.lowered, model.traces, GPUS).items():
        (tmp_path / name).write_text(text)
    (tmp_path / "cuda.py").write_text("raise ModuleNotFoundError(\"No module named 'cuda'\")\n")
    found = subprocess.run(
        [sys.executable, str(tmp_path / "run.py")], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert found.stderr.startswith("this program needs the packages `cuda-python` and `numpy`")
    assert "Traceback" not in found.stderr


def test_library_calls_are_refused() -> None:
    program = parse_trace(
        "//! tessera.trace 1\n"
        "//! buffer a bytes=16 role=input dtype=f32 shape=2x2\n"
        "//! buffer c bytes=16 role=output dtype=f32 shape=2x2\n"
        "//! op aten::mm.out reads=[a:f32[2,2], a:f32[2,2]] writes=[c:f32[2,2]] attrs={}\n",
        "op.ptx",
    )
    model = model_of([program], [["a"]])
    with pytest.raises(TesseraError, match="TSR5001"):
        emit_python(model.lowered, model.traces, {"a": "cuda:0"})
