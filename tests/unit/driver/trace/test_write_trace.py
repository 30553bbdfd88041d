"""A trace as files: contents in either format, addresses left out, nothing but sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.run_trace import RunOptions, run_trace
from tessera.driver.trace.capture_trace import (
    GraphNodes,
    Trace,
    _without_addresses,
    files_beside,
    write_trace,
)
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.program import Role

TEXT = """//! tessera.trace 1
//! buffer x bytes=128 role=input dtype=f32 shape=4x8
//! buffer table bytes=16 role=weight
//! buffer total bytes=128 role=state dtype=f32 shape=32
//! buffer y bytes=128 role=output dtype=f32 shape=32
//! pointers table @{8:x+64}
//! memcpy y x bytes=128
//! memcpy total x bytes=128
"""
X = np.arange(32, dtype=np.float32).view(np.uint8)


def captured() -> Trace:
    return Trace(
        program=parse_trace(TEXT, "t.ptx"),
        contents={"x": X, "table": np.arange(16, dtype=np.uint8), "total": np.zeros(128, np.uint8)},
        reference={"y": X, "total": X},
        diagnostics=(),
        nodes=GraphNodes(kernels=0, memsets=0, copies=2, others=0, in_calls=0, skipped=0),
    )


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_contents_are_read_back(tmp_path: Path, suffix: str) -> None:
    names = write_trace(captured(), tmp_path / "t.ptx", suffix=suffix)
    assert [Path(name).name for name in names] == ["t.ptx", f"t{suffix}", f"t.ref{suffix}"]
    assert f"//! resident data=t{suffix}\n" in (tmp_path / "t.ptx").read_text()
    report = run_trace(tmp_path / "t.ptx", RunOptions())
    found = {buffer.name: data.reshape(-1).view(np.uint8) for buffer, data in report.kept()}
    assert found["y"].tolist() == found["total"].tolist() == X.tolist()


def test_sizes_only(tmp_path: Path) -> None:
    assert write_trace(captured(), tmp_path / "t.ptx", data=False) == [str(tmp_path / "t.ptx")]
    assert "resident" not in (tmp_path / "t.ptx").read_text()
    assert len(list(tmp_path.iterdir())) == 1


def test_a_trace_never_shares_a_name_with_its_contents() -> None:
    for name in ("a.ptx", "a", "a.trace", "a.b.ptx"):
        beside = files_beside(Path(name), ".npz")
        assert Path(name) not in beside
        assert len(set(beside)) == 2


def test_words_that_are_pointers_are_left_out() -> None:
    found = captured()
    kept = _without_addresses(found.program, found.contents, (Role.WEIGHT,))
    assert kept.keys() == {"table"}
    assert kept["table"].tolist() == [*range(8), *[0] * 8]
    assert found.contents["table"].tolist() == list(range(16))


@pytest.mark.parametrize("blocked", ["t.ptx", "t.npz", "t.ref.npz"])
def test_where_one_file_cannot_be_written_none_is_left(tmp_path: Path, blocked: str) -> None:
    (tmp_path / blocked).mkdir()
    with pytest.raises(TesseraError, match="TSR1911"):
        write_trace(captured(), tmp_path / "t.ptx")
    assert [place.name for place in tmp_path.iterdir()] == [blocked]
