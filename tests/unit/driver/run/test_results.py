"""Results as a file: names that stay apart, and bytes that need not be joined first."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tessera.driver.run.keep_run import _prefixes
from tessera.frontend.contents.write import has_type, write_contents
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role


def entry(dtype: DataType | None, shape: tuple[int, ...] | None, size: int) -> Buffer:
    return Buffer(id=BufferId(0), name="y", bytes=size, role=Role.OUTPUT, dtype=dtype, shape=shape)


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
@pytest.mark.parametrize(
    ("dtype", "shape"),
    [(DataType.F32, (3, 4)), (DataType.U8, None), (None, None), (DataType.BF16, (3, 8))],
)
def test_parts_are_written_as_if_they_were_one(
    tmp_path: Path, ending: str, dtype: DataType | None, shape: tuple[int, ...] | None
) -> None:
    whole = np.arange(48, dtype=np.uint8)
    buffer = entry(dtype, shape, 48)
    one, other = tmp_path / f"one.{ending}", tmp_path / f"other.{ending}"
    write_contents(one, [(buffer, whole)])
    write_contents(other, [(buffer, [whole[:16], whole[16:16], whole[16:]])])
    assert one.read_bytes() == other.read_bytes()
    if ending == "npz":
        with np.load(one) as found:
            assert found["y"].tobytes() == whole.tobytes()
            assert found["y"].shape == (shape if dtype is DataType.F32 else (48,))


def test_no_results_at_all(tmp_path: Path) -> None:
    write_contents(tmp_path / "none.npz", [(entry(DataType.F32, (0, 4), 0), [])])
    with np.load(tmp_path / "none.npz") as found:
        assert found["y"].shape == (0, 4)


def test_which_types_a_file_keeps() -> None:
    kept = {
        ending: [one for one in DataType if not has_type(f"o.{ending}", entry(one, None, 16))]
        for ending in ("npz", "safetensors")
    }
    assert kept == {
        "npz": [DataType.BF16, DataType.E4M3, DataType.E5M2],
        "safetensors": [DataType.C128],
    }


def test_traces_whose_names_would_be_the_same() -> None:
    assert _prefixes(["only"]) == [""]
    assert _prefixes(["a.b", "a/b", "a_b", "c"]) == ["a_b/", "a_b_/", "a_b__/", "c/"]
