"""Errors go from one process to another whole."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from tessera.backend.service import ServiceFault
from tessera.diagnostics import TesseraError, error
from tessera.driver.load import load
from tessera.ir.program.program import LaunchId


def test_an_error_with_a_place(tmp_path: Path) -> None:
    path = tmp_path / "bad.ptx"
    path.write_text("//! tessera.trace 1\n//! buffer\n")
    with pytest.raises(TesseraError) as caught:
        load(path)
    same = pickle.loads(pickle.dumps(caught.value))
    assert type(same) is TesseraError
    assert str(same) == str(caught.value)
    assert same.exit_code == caught.value.exit_code
    assert same.diagnostics == caught.value.diagnostics


def test_a_fault_of_a_run() -> None:
    fault = ServiceFault(error("TSR5002", "wrong"), device="a", request=3, step=LaunchId(2))
    same = pickle.loads(pickle.dumps(fault))
    assert (same.device, same.request, same.step) == ("a", 3, 2)
    assert same.diagnostics == fault.diagnostics
