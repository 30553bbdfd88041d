"""What `tessc run` refuses before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.run.run_trace import RunOptions, run_trace

TRACE = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"


def test_nothing_to_run(tmp_path: Path) -> None:
    path = tmp_path / "kernels.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n")
    with pytest.raises(TesseraError, match="TSR3013"):
        run_trace(path)


def test_no_such_variant() -> None:
    with pytest.raises(TesseraError, match="TSR5014") as failure:
        run_trace(TRACE, RunOptions(arch="sm_89"))
    assert failure.value.diagnostics[0].hint == "choose one of: sm_80"
