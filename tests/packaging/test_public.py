"""The public names, and what importing them costs."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import tessera

HEAVY = ("torch", "cuda", "highspy", "networkx", "numpy", "lark", "msgspec")
PLAIN = Path(__file__).parents[1] / "data" / "ptx" / "handwritten" / "conversions.ptx"
TRACE = Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx"
DOCS = Path(__file__).parents[2] / "docs"


def all_modules_after(code: str) -> set[str]:
    """The modules that a fresh interpreter holds after running some code."""
    script = f"{code}\nimport json, sys\nsys.stderr.write(json.dumps(sorted(sys.modules)))"
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    return set(json.loads(result.stderr))


def modules_after(code: str) -> set[str]:
    """The top-level modules that a fresh interpreter holds after running some code."""
    return {name.partition(".")[0] for name in all_modules_after(code)}


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


def test_analysis_of_a_trace_needs_no_parser_tables(tmp_path: Path) -> None:
    """Common records are matched by patterns; operators, plans and pages are for those who ask."""
    (tmp_path / "t.ptx").write_text(TRACE.read_text("utf-8"), "utf-8")
    enter = f"import os; os.chdir({str(tmp_path)!r})"
    loaded = all_modules_after(
        f"{enter}; from tessera.cli.main import run; run(['analyze', 't.ptx'])"
    )
    loaded.remove("tessera.backend.known_backends")  # the words for `--backend`, and nothing else
    assert "numpy" in loaded
    for prefix in ("torch", "cuda", "highspy", "networkx", "lark", "rich", "numpy.ma", "zipfile"):
        assert not {name for name in loaded if name == prefix or name.startswith(f"{prefix}.")}
    for prefix in ("ir.operators", "ir.plan", "frontend.contents", "planning", "backend"):
        assert not {name for name in loaded if name.startswith(f"tessera.{prefix}.")}, prefix


def test_what_the_cache_remembers_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "t.ptx").write_text(TRACE.read_text("utf-8"), "utf-8")
    enter = f"import os; os.chdir({str(tmp_path)!r}); os.environ['TESSERA_CACHE_DIR'] = 'kept'"
    enter += "; os.environ.pop('TESSERA_NO_CACHE', None)"
    code = f"{enter}; from tessera.cli.main import run; run(['analyze', 't.ptx'])"
    first, second = all_modules_after(code), all_modules_after(code)
    for name in ("frontend.ptx.scan", "ir.verify_ptx.module", "passes.kernel_facts.kernel_code"):
        assert f"tessera.{name}" in first - second


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
    """Those of `frontend.capture` may need PyTorch; all others are read without it."""
    package = Path(tessera.__file__).parent
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        if parts[-1] in ("__main__", "__init__"):
            continue
        try:
            importlib.import_module(".".join(parts))
        except ModuleNotFoundError as missing:
            if missing.name != "torch" or parts[:3] != ("tessera", "frontend", "capture"):
                raise
            _assert_names_are_there(path, package.parent)


def _assert_names_are_there(path: Path, root: Path) -> None:
    """What a module that cannot be imported here takes from ours is defined there, by its text."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tessera"):
            home = root / str(node.module).replace(".", "/")
            text = (
                home.with_suffix(".py")
                if home.with_suffix(".py").is_file()
                else home / "__init__.py"
            )
            defined = {path.stem for path in home.glob("*")} | _defined(text)
            assert {alias.name for alias in node.names} <= defined, (path, node.lineno)


def _defined(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.FunctionDef(name) | ast.ClassDef(name) | ast.Name(name, ast.Store()):
                names.add(name)
            case ast.Import(aliases) | ast.ImportFrom(names=aliases):
                names |= {alias.asname or alias.name for alias in aliases}
    return names
