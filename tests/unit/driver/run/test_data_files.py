"""`--data` for plans of several traces: each trace's own file, or one for all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tessera
from tessera.diagnostics import TesseraError
from tests.helpers.command import tessc

TRACE = """//! tessera.trace 1
//! buffer w bytes=16 role=weight dtype=f32 shape=4
//! buffer x bytes={bytes} role=input dtype=f32 shape={count}
//! buffer y bytes={bytes} role=output dtype=f32 shape={count}
//! buffer z bytes=16 role=output dtype=f32 shape=4
//! memcpy y x bytes={bytes}
//! memcpy z w bytes=16
"""
WEIGHTS = np.arange(4, dtype=np.float32) + 1
RUN = ("run", "plan.tsp", "--backend", "cpu", "--requests", "8", "--outputs", "o.npz")


def values(count: int, first: float) -> np.ndarray:
    return np.arange(count, dtype=np.float32) + np.float32(first)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two traces that share a weight; their inputs have one name and two sizes."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("prefill", 8), ("decode", 2)):
        Path(f"{name}.ptx").write_text(TRACE.format(bytes=4 * count, count=count))
        np.savez(f"{name}.npz", w=WEIGHTS, x=values(count, 10 * count))
    np.savez("all.npz", w=WEIGHTS)
    assert tessc("plan", "prefill.ptx", "decode.ptx", "--gpus", "a100").code == 0
    return tmp_path


def outputs(*data: str) -> dict[str, np.ndarray]:
    options = [word for one in data for word in ("--data", one)]
    outcome = tessc(*RUN, *options)
    assert outcome.code == 0, outcome.err
    return dict(np.load("o.npz"))


def test_each_trace_has_its_own_file(folder: Path) -> None:
    found = outputs("prefill=prefill.npz", "decode=decode.npz")
    assert np.array_equal(found["prefill/y"][0], values(8, 80))
    for name in ("prefill/z", "decode/z"):
        assert np.array_equal(found[name][0], WEIGHTS)


def test_a_file_of_one_trace_alone(folder: Path) -> None:
    """Its input goes to the trace whose input has that size; the weight is of both."""
    found = outputs("prefill.npz")
    assert np.array_equal(found["prefill/y"][0], values(8, 80))
    assert np.array_equal(found["decode/z"][0], WEIGHTS)
    found = outputs("decode=decode.npz")
    assert np.array_equal(found["prefill/z"][0], WEIGHTS)
    assert np.array_equal(outputs("all.npz")["prefill/z"][0], WEIGHTS)


def test_a_file_may_have_such_a_name(folder: Path) -> None:
    Path("prefill.npz").rename("prefill=x.npz")
    assert np.array_equal(outputs("prefill=x.npz")["prefill/y"][0], values(8, 80))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (["prefill=decode.npz"], "has 8 bytes, but its buffer has 32"),
        (["prefill=none.npz"], "does not exist: `none.npz`"),
        (["other=prefill.npz"], "names no trace of the plan"),
        (["prefill.npz", "decode.npz"], "array `w` is in `prefill.npz` and in `decode.npz`"),
        (["wrong.npz"], "has 12 bytes, but its buffer has 8 or 32"),
        (["strange.npz"], "array `q` in `strange.npz` belongs to no buffer"),
        (["prefill=decode-only.npz"], "belongs to no buffer"),
    ],
)
def test_what_does_not_fit(folder: Path, data: list[str], words: str) -> None:
    np.savez("wrong.npz", x=values(3, 0))
    np.savez("strange.npz", q=values(3, 0))
    np.savez("decode-only.npz", v=values(3, 0))
    outcome = tessc(*RUN, *(word for one in data for word in ("--data", one)))
    assert outcome.code == 1
    assert words in outcome.err
    assert outcome.err.count("error[") == 1
    assert not Path("o.npz").exists()


def test_outputs_never_replace_such_a_file(folder: Path) -> None:
    assert tessc(*RUN).code == 0
    Path("o.npz").rename("mine.npz")
    before = Path("mine.npz").read_bytes()
    outcome = tessc(*RUN[:-1], "mine.npz", "--data", "prefill=mine.npz")
    assert (outcome.code, "it is an input of this command" in outcome.err) == (1, True)
    assert Path("mine.npz").read_bytes() == before


def test_check_and_the_library(folder: Path) -> None:
    data = ["prefill=prefill.npz", "decode=decode.npz"]
    assert tessc("check", "plan.tsp", *(w for one in data for w in ("--data", one))).code == 0
    with tessera.Runtime("plan.tsp", backend="cpu", data=data) as runtime:
        found = runtime.submit({"x": values(2, 7)}, trace="decode").result()
        assert np.array_equal(found["z"], WEIGHTS)
    with pytest.raises(TesseraError, match="TSR1185"):
        tessera.Runtime("plan.tsp", backend="cpu", data=["decode=prefill.npz"])


def test_a_trace_has_one_file(folder: Path) -> None:
    outcome = tessc("run", "prefill.ptx", "--data", "prefill.npz", "--data", "all.npz")
    assert (outcome.code, "give `--data` once" in outcome.err) == (2, True)
