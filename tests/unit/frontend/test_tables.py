"""Tables of measured kernel times: those of the package, columns of others, and broken ones."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tessera
from tessera.diagnostics import TesseraError
from tessera.frontend.machine.tables import packed, read_packaged, read_tables, tables_of
from tessera.ir.plan.tables import TableKind, TableRows

FOLDER = Path(tessera.__file__).parent / "data" / "tables"


def columns(**changed: Any) -> dict[str, list[Any]]:
    made: dict[str, list[Any]] = {
        "version": ["1.0"] * 3,
        "kernel_source": ["fast", "slow", "fast"],
        "gemm_dtype": ["bfloat16"] * 3,
        "m": [1, 1, 8],
        "n": [64, 64, 64],
        "k": [32, 32, 32],
        "latency": [0.002, 0.009, 0.004],
    }
    return {**made, **changed}


def gemms(**changed: Any) -> tuple[TableRows, ...]:
    return tables_of(columns(**changed), "made.parquet", "l40s", "1.0", TableKind.GEMM)


def test_the_package_is_what_its_list_says() -> None:
    listed = json.loads((FOLDER / "SOURCES.json").read_text("utf-8"))
    assert {path.name for path in FOLDER.glob("*.npz")} == set(listed["made"])
    for name, digest in listed["made"].items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest
    assert "Apache License" in (FOLDER / "LICENSE").read_text("utf-8")


@pytest.mark.parametrize("gpu", ["a100-80g-sxm", "l40s"])
@pytest.mark.parametrize("kind", TableKind)
def test_both_gpus_have_all_kinds(gpu: str, kind: TableKind) -> None:
    tables = [rows for rows in read_tables(gpu, kind) if rows.version == "0.14.0"]
    assert {rows.fixed[0] for rows in tables} >= {"bfloat16"}
    assert all(rows.gpu == gpu and rows.origin() == "vllm 0.14.0" for rows in tables)
    assert sum(len(rows.ns) for rows in tables) > 3000


def test_nobody_measured_a_t4() -> None:
    assert read_tables("t4", TableKind.GEMM) == ()


def test_the_fastest_kernel_counts_and_other_versions_do_not() -> None:
    (rows,) = gemms()
    assert rows.sizes == ((1, 64, 32), (8, 64, 32))
    assert rows.ns == pytest.approx((2000.0, 4000.0))
    (fewer,) = gemms(version=["1.0", "1.0", "2.0"])
    assert len(fewer.ns) == 1
    assert gemms(gemm_dtype=["w4afp8"] * 3) == ()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"latency": [0.002, 0.009, float("nan")]}, "is nan ns"),
        ({"latency": [0.002, 0.009, -1.0]}, r"is -1e\+06 ns"),
        ({"latency": [0.002, 0.009, None]}, "is nan ns"),
        ({"m": [1, 1, 0]}, "below 1"),
        ({"m": [1, 1, "x"]}, "below 1"),
        ({"m": [8, 1, 8], "latency": [0.001, 0.009, 0.004]}, "from 1000 to 4000 ns"),
    ],
)
def test_tables_that_make_no_sense_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(TesseraError, match=said) as raised:
        gemms(**changed)
    assert raised.value.diagnostics[0].code == "TSR3015"


def test_missing_columns_are_named() -> None:
    short = {name: column for name, column in columns().items() if name not in ("m", "latency")}
    with pytest.raises(TesseraError, match="columns latency, m"):
        tables_of(short, "made.parquet", "l40s", "1.0", TableKind.GEMM)


def test_what_is_packed_is_read_again(tmp_path: Path) -> None:
    made = gemms()
    np.savez_compressed(tmp_path / "l40s.vllm-1.0.npz", **packed(made))
    assert read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM) == made
    with pytest.raises(TesseraError, match="cannot be read"):
        read_packaged(tmp_path, "l40s", "l40s", TableKind.MOE)
    (tmp_path / "l40s.vllm-1.0.npz").write_bytes(b"PK broken")
    with pytest.raises(TesseraError, match=r"TSR3015|cannot be read"):
        read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM)


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("sizes", lambda old: old[:, :2], r"`gemm.sizes` has shape \(2, 2\)"),
        ("sizes", lambda old: old[:, 0], r"`gemm.sizes` has shape \(2,\)"),
        ("sizes", lambda old: old.astype(str), "type <U"),
        ("sizes", lambda old: old + 0.5, "type float64"),
        ("sizes", lambda old: 0 * old, "sizes are not whole"),
        ("fixed", lambda old: np.c_[old, old], r"`gemm.fixed` has shape \(2, 2\)"),
        ("fixed", lambda old: old + 7, "types without a name"),
        ("names", lambda old: old[:0], "`gemm.names`"),
        ("names", lambda old: old[0], "`gemm.names`"),
        ("ns", lambda old: old[:, None], r"`gemm.ns` has shape \(2, 1\)"),
        ("ns", lambda old: old.astype(str), "type <U"),
        ("ns", lambda old: old[:0], "shape"),
        ("ns", lambda old: -old, "no times"),
    ],
)
def test_tables_of_another_version_are_refused(
    tmp_path: Path, part: str, change: Callable[[Any], Any], said: str
) -> None:
    arrays = packed(gemms())
    arrays[f"gemm.{part}"] = np.asarray(change(arrays[f"gemm.{part}"]))
    np.savez_compressed(tmp_path / "l40s.vllm-1.0.npz", **arrays)
    with pytest.raises(TesseraError, match=said) as raised:
        read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM)
    assert raised.value.diagnostics[0].code == "TSR3015"


def test_damaged_tables_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "l40s.vllm-1.0.npz"
    np.savez_compressed(path, **packed(gemms()))
    whole = path.read_bytes()
    intact = read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM)
    for at in range(0, len(whole), 7):
        for bad in (whole[:at], whole[:at] + b"\xff\xfe\xfd" + whole[at + 3 :]):
            path.write_bytes(bad)
            with suppress(TesseraError):
                assert read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM) == intact
    with path.open("wb") as stream:
        np.save(stream, np.ones(3))
    with pytest.raises(TesseraError, match="no archive"):
        read_packaged(tmp_path, "l40s", "l40s", TableKind.GEMM)
