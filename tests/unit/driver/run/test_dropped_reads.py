"""`tessc run --verify` on plans made of an analysis that has missed a read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.unwritten import ComparedSide, buffer_key, device_key, unwritten_bytes
from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.program.program import BufferId
from tests.helpers.command import Outcome, tessc
from tests.helpers.dropped_reads import CASES, Case, dropped
from tests.helpers.fake_cuda import FakeCuda
from tests.helpers.plan_files import plan_of, write_plan
from tests.helpers.random_traces import random_program
from tests.helpers.share import share
from tests.helpers.word_traces import word_trace

ON = {"cpu": "a=cpu,b=cpu", "slices": "a=cuda:0:84sm,b=cuda:0:48sm"}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeCuda:
    """The GPUs of this machine."""
    made = FakeCuda()
    monkeypatch.setattr("tessera.backend.cuda.targets.bindings", lambda: made)
    return made


def verified(folder: Path, case: Case, backend: str, *more: str) -> Outcome:
    targets = ",".join(part for part in ON[backend].split(",") if part[0] in case.places)
    path = write_plan(folder, case.plan(slots=2, lanes=2))
    return tessc("run", path, "--requests", "4", "--map", targets, "--verify", *more)


@pytest.mark.parametrize("backend", ON)
@pytest.mark.parametrize("name", CASES)
def test_a_read_that_the_analysis_has_missed_is_found(
    tmp_path: Path, name: str, backend: str
) -> None:
    with dropped(CASES[name]):
        result = verified(tmp_path, CASES[name], backend)
    assert result.code in (5, 6), result.text + result.err
    assert "verified" not in result.text


@pytest.mark.parametrize("name", CASES)
def test_a_read_that_the_analysis_knows_of_is_none(tmp_path: Path, name: str) -> None:
    result = verified(tmp_path, CASES[name], "slices")
    assert result.code == 0, result.err
    assert "verified" in result.text


@pytest.mark.parametrize("backend", ON)
def test_output_bytes_that_no_step_writes_are_left_out_and_counted(
    tmp_path: Path, backend: str
) -> None:
    """By the analysis of 32 threads none may write the second half; odd words decide the rest."""
    words = np.arange(4 * 64, dtype=np.uint32).reshape(4, 64) ** 2 % 7
    inputs, outputs = tmp_path / "in.npz", tmp_path / "out.npz"
    np.savez(inputs, x=words)
    files = ("--inputs", str(inputs), "--outputs", str(outputs), "--json")
    for kernel, threads in (("twice", 32), ("odd", 64)):
        result = verified(
            tmp_path,
            Case(temps="", steps=(f"{kernel}:{threads} y x x",), places="a"),
            backend,
            *files,
        )
        assert result.code == 0, result.err
        written = np.zeros((4, 64), np.bool_)
        written[:, :threads] = words[:, :threads] % 2 == 1 if kernel == "odd" else True
        shown = json.loads(result.text)["verified"]
        assert shown["unwritten_bytes"] == 4 * int((~written).sum())
        assert shown["bytes"] == 4 * int(written.sum())
        with np.load(outputs) as arrays:
            left_alone = arrays["y"][~written]
        assert (left_alone == 0xCBCBCBCB).all(), "patterns do not leave the run"
    plain = verified(
        tmp_path, Case(temps="", steps=("odd y x x",), places="a"), backend, *files[:2]
    )
    assert f"{format_bytes(shown['unwritten_bytes'])} that no step writes left out" in plain.text


@pytest.mark.parametrize("seed", share(range(4)))
def test_patterns_change_nothing_that_a_plan_knows_of(tmp_path: Path, seed: int) -> None:
    """Places that buffers share, states, words for addresses, several slots: bytes are equal."""
    rng = random.Random(seed)
    program = word_trace(seed) if seed % 3 == 2 else random_program(seed, variable=seed == 1)
    places = [rng.choice("ab") for _ in program.work()]
    plan = plan_of([program], [places], slots=1 + seed % 3, lanes=2)
    path = write_plan(tmp_path, plan)
    for backend in ON:
        used = ",".join(part for part in ON[backend].split(",") if part[0] in places)
        result = tessc("run", path, "--requests", "5", "--map", used, "--verify")
        assert result.code == 0, result.err


def test_a_run_that_is_not_verified_writes_no_patterns(tmp_path: Path, fake: FakeCuda) -> None:
    case = CASES["own store"]
    path = write_plan(tmp_path, case.plan())
    for more, wanted in (((), False), (("--verify",), True)):
        fake.launched.clear()
        assert tessc("run", path, "--map", ON["slices"], "--requests", "2", *more).code == 0
        assert any(name == "fill_unwritten" for name, _ in fake.launched) is wanted


def test_patterns_differ_in_every_byte_from_those_they_are_compared_with() -> None:
    made = {
        (request, device, buffer): unwritten_bytes(
            ComparedSide.RUN, request, device_key(device), buffer_key(0, BufferId(buffer)), 0, 4096
        )
        for request in range(3)
        for device in "ab"
        for buffer in range(2)
    }
    for (request, _, buffer), content in made.items():
        other = unwritten_bytes(
            ComparedSide.ONE_DEVICE,
            request,
            device_key("a"),
            buffer_key(0, BufferId(buffer)),
            0,
            4096,
        )
        assert (content != other).all()
        for kind in (np.float16, np.float32, np.float64):
            assert np.isfinite(content.view(kind)).all()
            assert np.isfinite(other.view(kind)).all()
        assert 0.15 < (content == 0).mean() < 0.35
        part = unwritten_bytes(
            ComparedSide.ONE_DEVICE,
            request,
            device_key("a"),
            buffer_key(0, BufferId(buffer)),
            37,
            1029,
        )
        assert np.array_equal(part, other[37:1029])
    keys = list(made)
    for index, one in enumerate(keys):
        for two in keys[index + 1 :]:
            assert (made[one] == made[two]).mean() < 0.4
