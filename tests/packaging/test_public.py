"""The public names, and what importing them costs."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tessera

HEAVY = ("torch", "cuda", "highspy", "networkx", "numpy", "lark")
PLAIN = Path(__file__).parents[1] / "data" / "ptx" / "handwritten" / "conversions.ptx"
DOCS = Path(__file__).parents[2] / "docs"


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running some code."""
    script = f"{code}\nimport json, sys\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    return {name.partition(".")[0] for name in json.loads(result.stderr)}


@pytest.mark.parametrize(
    "code",
    [
        "import tessera",
        "from tessera.cli.main import run; run(['--help'])",
        "from tessera.cli.main import run; run(['analyze', '--help'])",
        "from tessera.cli.main import run; run(['explain', 'TSR9000'])",
        "from tessera.cli.main import run; run(['plan', '--help'])",
        # An ordinary PTX file is read without Lark, and summarised without NumPy.
        f"from tessera.cli.main import run; run(['analyze', {str(PLAIN)!r}])",
    ],
)
def test_start_is_light(code: str) -> None:
    assert modules_after(code).isdisjoint(HEAVY)


def test_analysis_of_ptx_needs_no_solver_and_no_gpu(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(".version 8.0\n.target sm_80\n.visible .entry k()\n{\n    ret;\n}\n")
    loaded = modules_after(f"import tessera; tessera.analyze({str(path)!r})")
    assert loaded.isdisjoint(("torch", "cuda", "highspy", "networkx"))


@pytest.mark.parametrize("name", tessera.__all__)
def test_public_name(name: str) -> None:
    assert getattr(tessera, name) is not None
    assert name in dir(tessera)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tessera.nonsense  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", tessera.__all__)
def test_public_name_is_documented(name: str) -> None:
    assert f"`{name}" in (DOCS / "reference" / "api.md").read_text("utf-8")


def test_every_module_imports() -> None:
    package = Path(tessera.__file__).parent
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        # `emitted_common` is no module of ours but text that goes into programs for GPUs.
        if parts[-1] not in ("__main__", "__init__", "emitted_common"):
            importlib.import_module(".".join(parts))
