"""What is built is complete: wheel and source archive hold grammars, pages and data, and work.

The archives are made with hatchling itself, without a network and without an environment of
their own. The clean installation at the end takes an index and a minute, so it is slow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from contextlib import chdir
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PTX = ".version 8.0\n.target sm_80\n.visible .entry k()\n{\n    ret;\n}\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the checkout."""
    from hatchling import build

    folder = tmp_path_factory.mktemp("dist")
    with chdir(ROOT):
        return folder / build.build_wheel(str(folder))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source archive of the checkout."""
    from hatchling import build

    folder = tmp_path_factory.mktemp("source")
    with chdir(ROOT):
        return folder / build.build_sdist(str(folder))


def package_files() -> set[str]:
    """Every file of the package in the checkout, and the grammars where a wheel keeps them."""
    tracked = [
        p for p in (ROOT / "tessera").rglob("*") if p.is_file() and "__pycache__" not in p.parts
    ]
    names = {p.relative_to(ROOT).as_posix() for p in tracked}
    names.add("tessera/examples/traces/mlp.ptx")  # for `tessc demo`
    return names | {f"tessera/grammars/{p.name}" for p in (ROOT / "grammars").glob("*.lark")}


def test_wheel_is_complete(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    inside = {name for name in names if name.startswith("tessera/")}
    assert inside == package_files()
    assert "tessera/grammars/ptx.lark" in inside
    assert "tessera/explain/TSR9000.md" in inside
    assert "tessera/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_source_archive_builds_the_same_wheel(wheel: Path, source: Path, tmp_path: Path) -> None:
    from hatchling import build

    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    with chdir(unpacked):
        again = tmp_path / build.build_wheel(str(tmp_path))
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(again) as two:
        assert sorted(one.namelist()) == sorted(two.namelist())


@pytest.mark.slow
def test_source_archive_can_be_tested(source: Path) -> None:
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"Makefile", "README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml"}
    assert wanted <= names
    assert "tests/packaging/test_wheel.py" in names
    assert "grammars/ptx.lark" in names


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["analyze", "k.ptx"], "kernel k (line 3)"),
        (["explain", "TSR9000"], "# TSR9000"),
        # All modules of the package are compiled first.
        pytest.param(
            ["demo"],
            "verified: 6 requests equal the run on one device",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_unpacked_wheel_works(
    wheel: Path, tmp_path: Path, arguments: list[str], words: str
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "k.ptx").write_text(PTX)
    result = run_tessera(arguments, tmp_path, tmp_path / "site")
    assert result.returncode == 0, result.stderr
    assert words in result.stdout


def run_tessera(arguments: list[str], folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Run `python -m tessera` from `site`; a check first makes sure that it is not the checkout."""
    code = (
        "import runpy, sys, tessera; assert tessera.__file__.startswith(sys.argv[1]), "
        "tessera.__file__; del sys.argv[1]; runpy.run_module('tessera', run_name='__main__')"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(site), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(site), "TESSERA_NO_CACHE": "1"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


@pytest.mark.slow
def test_clean_installation(wheel: Path, tmp_path: Path) -> None:
    """`pip install` of the wheel into an empty environment gives a `tessc` that works."""
    venv.create(tmp_path / "env", with_pip=True)
    commands = tmp_path / "env" / "bin"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    subprocess.run(
        [commands / "python", "-m", "pip", "install", "--quiet", str(wheel)],
        check=True,
        timeout=600,
        env=environment,
    )
    (tmp_path / "k.ptx").write_text(PTX)
    result = subprocess.run(
        [commands / "tessc", "analyze", "k.ptx"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "kernel k (line 3)" in result.stdout
