"""`--verify` holds a run against what PyTorch recorded when the trace was captured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers.command import tessc
from tests.helpers.traces import HEADER

TRACE = f"""//! tessera.trace 1
//! buffer x bytes=16 role=input dtype=f32 shape=4
//! buffer y bytes=16 role=output dtype=f32 shape=4
//! buffer s bytes=16 role=state dtype=f32 shape=4
//! resident data=t.npz
//! module m
{HEADER}.visible .entry add(.param .u64 to, .param .u64 of)
{{ .reg .u64 %a<3>; .reg .u32 %t; .reg .f32 %v<3>;
   mov.u32 %t, %tid.x; mul.wide.u32 %a2, %t, 4;
   ld.param.u64 %a0, [to]; add.u64 %a0, %a0, %a2; ld.param.u64 %a1, [of]; add.u64 %a1, %a1, %a2;
   ld.global.f32 %v0, [%a0]; ld.global.f32 %v1, [%a1]; add.f32 %v2, %v0, %v1;
   st.global.f32 [%a0], %v2; ret; }}
//! launch m.add grid=1,1,1 block=4,1,1 smem=0 args=[s, x]
//! memcpy y s bytes=16
"""
X = np.array([1, 2, 3, 4], np.float32)
S = np.array([10, 20, 30, 40], np.float32)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("t.ptx").write_text(TRACE)
    np.savez("t.npz", x=X, s=S)
    assert tessc("plan", "t.ptx", "--gpus", "h200", "--lanes", "2").code == 0
    return tmp_path


def record(values: np.ndarray) -> None:
    np.savez("t.ref.npz", y=values, s=values)


def verify(*more: str) -> tuple[int, str]:
    found = tessc("run", "plan.tsp", "--backend", "cpu", "--verify", *more)
    return found.code, found.text + found.err


@pytest.mark.usefixtures("folder")
def test_equal_to_the_byte() -> None:
    record(X + S)
    code, text = verify("--requests", "2")
    assert code == 0, text
    assert "request 0 equals what PyTorch recorded to the byte (t.ref.npz, 32 bytes)" in text


@pytest.mark.usefixtures("folder")
def test_a_state_that_went_on_is_not_compared() -> None:
    record(X + S)
    code, text = verify("--requests", "4")
    assert code == 0, text
    assert "recorded to the byte (t.ref.npz, 16 bytes)" in text


@pytest.mark.usefixtures("folder")
def test_within_the_tolerance_the_worst_element_is_named() -> None:
    record((X + S) * np.float32(1 + 1e-6))
    code, text = verify("--requests", "1")
    assert code == 0, text
    assert "is what PyTorch recorded within the tolerance" in text
    assert "element" in text


@pytest.mark.usefixtures("folder")
def test_outside_the_tolerance_is_a_difference() -> None:
    record(X + S + np.float32([0, 0, 1, 0]))
    code, text = verify("--requests", "1")
    assert code == 5
    assert "TSR5054" in text
    assert "element 2: 33 instead of 34" in text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("option", [("--seed", "1"), ("--inputs", "i.npz")])
def test_what_starts_from_something_else_is_not_compared(option: tuple[str, str]) -> None:
    record(X + S + 1)
    np.savez("i.npz", x=X)
    code, text = verify("--requests", "1", *option)
    assert code == 0, text
    assert "not compared with PyTorch: the run starts from other contents" in text


def test_contents_elsewhere_have_their_recording_beside_them(folder: Path) -> None:
    record(X + S + 1)  # of other contents
    (folder / "there").mkdir()
    np.savez("there/mine.npz", x=X + 1, s=S)
    _, text = verify("--requests", "1", "--data", "there/mine.npz")
    assert "not compared with PyTorch: there is no `mine.ref.npz`" in text
    np.savez("there/mine.ref.npz", y=X + S + 1, s=X + S + 1)
    code, text = verify("--requests", "1", "--data", "there/mine.npz")
    assert code == 0, text
    assert "equals what PyTorch recorded to the byte (mine.ref.npz" in text
    np.savez("there/mine.ref.npz", y=X + S + 2, s=X + S + 1)
    assert verify("--requests", "1", "--data", "there/mine.npz")[0] == 5


def test_a_link_is_not_followed(folder: Path) -> None:
    record(X + S + 1)
    Path("t.ref.npz").rename(folder / "elsewhere.npz")
    Path("t.ref.npz").symlink_to(folder / "elsewhere.npz")
    code, text = verify("--requests", "1")
    assert code == 0, text
    assert "not compared with PyTorch: there is no `t.ref.npz`" in text


@pytest.mark.usefixtures("folder")
def test_a_recording_of_other_sizes_is_refused() -> None:
    np.savez("t.ref.npz", y=np.zeros(5, np.float32))
    code, text = verify("--requests", "1")
    assert code == 1
    assert "TSR1185" in text
    assert "ran 1 request" not in text  # it is known before


@pytest.mark.usefixtures("folder")
def test_nan_equals_nan_and_nothing_else() -> None:
    wrong = X + S
    wrong[1] = np.nan
    record(wrong)
    code, text = verify("--requests", "1")
    assert code == 5
    assert "element 1: 22 instead of nan" in text
    np.savez("t.npz", x=X, s=np.array([10, np.nan, 30, np.inf], np.float32))
    assert tessc("plan", "t.ptx", "--gpus", "h200", "--lanes", "2").code == 0
    record(np.array([11, -np.nan, 33, np.inf], np.float32))
    code, text = verify("--requests", "1")
    assert code == 0, text


@pytest.mark.usefixtures("folder")
def test_names_that_the_recording_lacks() -> None:
    np.savez("t.ref.npz", s=X + S)
    assert "(t.ref.npz, 16 bytes, without `y`)" in verify("--requests", "1")[1]
    np.savez("t.ref.npz", x=X)
    found = verify("--requests", "1")
    assert found[0] == 0
    assert "not compared with PyTorch: `t.ref.npz` has no result of this run" in found[1]
    np.savez("t.ref.npz", z=X)
    code, text = verify("--requests", "1")
    assert code == 1
    assert "TSR1185" in text


@pytest.mark.usefixtures("folder")
def test_lanes_start_apart_unless_inputs_are_given() -> None:
    """Results of one lane must not pass for those of another; real inputs want the real state."""
    record(S + X)
    code, text = verify("--requests", "2", "--outputs", "o.npz")
    assert code == 0
    assert "request 0 equals what PyTorch recorded to the byte" in text
    np.savez("i.npz", x=X)
    more = ("--requests", "2", "--inputs", "i.npz", "--outputs", "p.npz")
    assert verify(*more)[0] == 0
    with np.load("o.npz") as seeded, np.load("p.npz") as given:
        assert (seeded["s"][0] == S + X).all()
        assert np.abs(seeded["s"][1]).max() < 2
        assert (given["s"] == S + X).all()


def test_what_no_step_writes_is_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gaps of a view that is returned held whatever was there."""
    monkeypatch.chdir(tmp_path)
    text = TRACE.replace("y bytes=16 role=output dtype=f32 shape=4", "y bytes=24 role=output")
    Path("t.ptx").write_text(text.replace("memcpy y s bytes=16", "memcpy y+4 s bytes=16"))
    np.savez("t.npz", x=X, s=S)
    assert tessc("plan", "t.ptx", "--gpus", "h200").code == 0
    garbage = np.concatenate([np.float32([7]), X + S, np.float32([-3])])
    np.savez("t.ref.npz", y=garbage, s=X + S)
    code, text = verify("--requests", "1")
    assert code == 0, text
    assert "recorded to the byte (t.ref.npz, 32 bytes)" in text
    garbage[2] += 1
    np.savez("t.ref.npz", y=garbage, s=X + S)
    code, text = verify("--requests", "1")
    assert code == 5, text
    assert "output `y`" in text


@pytest.mark.parametrize(
    ("given", "expected"),
    [(np.float32(3), [3, 3]), (np.float32([3]), [3, 3]), (np.float32([3, 4]), [3, 4])],
)
def test_a_single_number_is_given_as_one_or_one_per_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: np.ndarray, expected: list[int]
) -> None:
    """As capture writes tensors without dimensions: with a type and without a shape."""
    monkeypatch.chdir(tmp_path)
    Path("t.ptx").write_text(
        "//! tessera.trace 1\n//! buffer k bytes=4 role=input dtype=f32\n"
        "//! buffer y bytes=4 role=output dtype=f32\n//! memcpy y k bytes=4\n"
    )
    assert tessc("plan", "t.ptx", "--gpus", "h200").code == 0
    np.savez("in.npz", k=given)
    code, text = verify("--requests", "2", "--inputs", "in.npz", "--outputs", "out.npz")
    assert code == 0, text
    assert np.load("out.npz")["y"].reshape(-1).tolist() == expected
    np.savez("in.npz", k=np.ones((2, 2), np.float32))
    code, text = verify("--inputs", "in.npz")
    assert code == 1
    assert "input `k` is f32 of shape (1,), 4 bytes" in text


def test_steps_that_approximate_are_known() -> None:
    from tessera.driver.load import load
    from tessera.driver.run.tolerance import approximations
    from tessera.ir.program.data_type import DataType

    traces = Path(__file__).parents[4] / "examples" / "traces"
    found = approximations(load(traces / "llama_prefill.ptx"))
    assert found.widened is DataType.BF16
    opcodes = {opcode for _, some in found.kernels for opcode in some}
    assert "ex2.approx" in opcodes
    assert "`" in found.text()
    plain = approximations(load(traces / "mlp.ptx"))
    assert (plain.kernels, plain.calls, plain.widened) == ((), 0, None)
    assert plain.text() == "no step approximates"


@pytest.mark.parametrize(("found", "code"), [([0, 1, 2, 3], 0), ([2, 0, 1, 3], 5)])
def test_an_order_may_differ_among_values_that_are_nearly_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: list[int], code: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.ptx").write_text(
        "//! tessera.trace 1\n"
        "//! buffer x bytes=16 role=input dtype=f32 shape=4\n"
        "//! buffer k bytes=32 role=input dtype=s64 shape=4\n"
        "//! buffer y bytes=16 role=output dtype=f32 shape=4\n"
        "//! buffer i bytes=32 role=output dtype=s64 shape=4\n"
        "//! resident data=t.npz\n//! memcpy y x bytes=16\n//! memcpy i k bytes=32\n"
    )
    values = np.array([0.4, 0.3000001, 0.3, 0.1], np.float32)
    np.savez("t.npz", x=values, k=np.array(found))
    assert tessc("plan", "t.ptx", "--gpus", "h200").code == 0
    np.savez("t.ref.npz", y=values, i=np.array([0, 2, 1, 3]))
    done, text = verify("--requests", "1")
    assert done == code, text
    wanted = ["2 of 4 elements are not equal", "return the values"]
    if not code:
        wanted = ["`i` has another order in 2 of 4 places", "values of `y`"]
    assert all(words in text for words in wanted), text
