"""The targets of `make`: all are in the help, every benchmark is in one."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
# Run by another script of its list.
STARTED_BY = {
    "gain.run": "gain.real",
    "prediction.h200_library": "prediction.h200_rows",
    "planning.real_traces": "planning.promises",
    "running.sampled": "running.full_size",
}
# What others call: the help leaves them out.
PARTS = {"help", "setup", "types", "imports", "pytest", "format-check", "lint", "dead"}


def recipe(target: str) -> str:
    """The lines that `make TARGET` would run."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", MAKEFILE, re.MULTILINE)
    assert found, target
    return found[1]


def scripts(target: str) -> set[str]:
    """The benchmark scripts that a target runs."""
    return set(re.findall(r"-m benchmarks\.([\w.]+)(?= |$)", recipe(target), re.MULTILINE))


def runnable() -> set[str]:
    """The files in `benchmarks` that can be started."""
    found = (ROOT / "benchmarks").glob("*/*.py")
    names = {f"{path.parent.name}.{path.stem}" for path in found if is_script(path)}
    return names - {"kernels.triton_arch"}


def is_script(path: Path) -> bool:
    return '__name__ == "__main__"' in path.read_text("utf-8")


def file_of(script: str) -> Path:
    return ROOT / "benchmarks" / f"{script.replace('.', '/')}.py"


def test_every_benchmark_is_in_exactly_one_target() -> None:
    lists = [scripts("bench"), scripts("bench-gpu"), scripts("corpus")]
    for script in runnable() - set(STARTED_BY):
        assert sum(script in names for names in lists) == 1, script
    assert set().union(*lists) <= runnable()


@pytest.mark.parametrize(("script", "starter"), STARTED_BY.items())
def test_scripts_that_others_start(script: str, starter: str) -> None:
    assert f"benchmarks.{script}" in file_of(starter).read_text("utf-8")


@pytest.mark.parametrize("script", sorted(scripts("bench") | scripts("corpus")))
def test_what_runs_without_a_gpu_imports_no_torch(script: str) -> None:
    text = file_of(script).read_text("utf-8")
    assert not re.search(r"^(import|from) (torch|triton|cuda)\b", text, re.MULTILINE)


def test_every_target_is_in_the_help() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE))
    named = set(re.findall(r'echo "make ([\w-]+)', recipe("help")))
    assert named == targets - PARTS


def test_every_target_is_phony() -> None:
    named = re.findall(r"^(?:\.PHONY:|checks :=)(.*)$", MAKEFILE, re.M)
    phony = set(re.findall(r"[\w-]+", " ".join(named)))
    assert set(re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.MULTILINE)) <= phony


def test_make_knows_the_targets() -> None:
    for target in ("bench", "bench-gpu", "fuzz", "corpus"):
        command = ["make", "-n", target, "VENV=/nonexistent"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "benchmarks").rglob("*.py")), ids=lambda p: p.name)
def test_imports_of_benchmarks_lead_somewhere(path: Path) -> None:
    """Most of them run nowhere in the tests: a module that has moved would not be noticed."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.module is None or node.level:
            continue
        if node.module.split(".")[0] not in ("tessera", "tests", "benchmarks"):
            continue
        place = ROOT / node.module.replace(".", "/")
        assert place.is_dir() or place.with_suffix(".py").is_file(), node.module
        if place.is_dir() and not (place / "__init__.py").is_file():
            names = {alias.name for alias in node.names}
            assert all(
                (place / f"{name}.py").is_file() or (place / name).is_dir() for name in names
            )
