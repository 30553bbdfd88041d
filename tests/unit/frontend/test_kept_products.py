"""Names of graphs, and what was measured when they were compiled."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from tessera.frontend.capture import kept_products as kept
from tessera.frontend.capture.raw import MeasuredProduct
from tessera.frontend.capture.routes import CallsReplaced
from tests.helpers.recorded_graphs import recorded

pytestmark = pytest.mark.filterwarnings("ignore")


def scaled(x: Any) -> Any:
    return x * 2 + 1


def scaled_otherwise(x: Any) -> Any:
    return x * 3 + 1


def test_a_graph_has_another_name_where_anything_differs_that_decides_its_code() -> None:
    made = kept.made_by("auto", "ATEN,TRITON", 0)
    graph = recorded(scaled, torch.ones(4, 8))
    names = [
        kept.name_of_graph(graph, made),
        kept.name_of_graph(recorded(scaled_otherwise, torch.ones(4, 8)), made),
        kept.name_of_graph(recorded(scaled, torch.ones(8, 8)), made),
        kept.name_of_graph(recorded(scaled, torch.ones(8, 4).T), made),
        kept.name_of_graph(recorded(scaled, torch.ones(4, 8).half()), made),
        kept.name_of_graph(graph, kept.made_by("ptx", "ATEN,TRITON", 0)),
        kept.name_of_graph(graph, kept.made_by("auto", "TRITON", 0)),
        kept.name_of_graph(graph, kept.made_by("auto", "ATEN,TRITON", 48)),
    ]
    assert len(set(names)) == len(names)
    assert kept.name_of_graph(recorded(scaled, torch.ones(4, 8)), made) == names[0]
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("high" if before != "high" else "highest")
        assert kept.made_by("auto", "ATEN,TRITON", 0) != made
    finally:
        torch.set_float32_matmul_precision(before)


_TOLD = """
import torch
from tessera.frontend.capture.kept_products import made_by
names = [made_by("auto", "TRITON", 0)]
torch.backends.cuda.matmul.fp32_precision = "tf32"
names.append(made_by("auto", "TRITON", 0))
torch.backends.cudnn.conv.fp32_precision = "ieee"
names.append(made_by("auto", "TRITON", 0))
assert len(set(names)) == 3, names
"""


def test_rounding_may_be_set_by_younger_names_too() -> None:
    """Then PyTorch raises where it is asked by the older ones, for as long as the process lasts."""
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this version of PyTorch has the older names alone")
    done = subprocess.run([sys.executable, "-c", _TOLD], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_products_are_kept_by_graph_and_damaged_files_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TESSERA_NO_CACHE", raising=False)
    monkeypatch.setenv("TESSERA_CACHE_DIR", str(tmp_path / "cache"))
    rows = [
        MeasuredProduct(
            name="mm", operands=("bf16 4x8", "bf16 8x4"), library_ns=5.0, triton_ns=4.0
        ),
        MeasuredProduct(name="bmm", operands=("bf16 2x4x8",), library_ns=None, triton_ns=1.5),
    ]
    assert kept.with_kept(["a"], []) == ()
    assert kept.with_kept(["a"], rows) == tuple(rows)
    assert kept.with_kept(["a"], []) == tuple(rows)
    assert kept.with_kept(["b"], []) == kept.with_kept([], []) == ()
    (file,) = (tmp_path / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:-3])
    assert kept.with_kept(["a"], []) == ()
    monkeypatch.setenv("TESSERA_NO_CACHE", "1")
    assert kept.with_kept(["a"], rows) == tuple(rows)


def test_the_pass_of_kernels_is_named_by_what_decides_the_code() -> None:
    """PyTorch 2.11 pickles it for the name of what is kept."""

    def packed(route: str, made: str) -> bytes:
        return pickle.dumps(CallsReplaced(route, made, lambda name: None))

    own = CallsReplaced("ptx", "a", None)
    assert copy.deepcopy(own) is own
    assert packed("ptx", "a") == packed("ptx", "a")
    assert len({packed("ptx", "a"), packed("ptx", "b"), packed("auto", "a")}) == 3
