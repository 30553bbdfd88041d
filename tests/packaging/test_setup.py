"""`make setup` installs what the lock says, no more; `make test` runs and reports every part.

The distributions that the project and its tools need are found by what the installed ones declare,
so one that the lock lacks is noticed as soon as it is installed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
LOCK = "requirements-dev.lock"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PYTHONS = [
    found[1]
    for row in PROJECT["project"]["classifiers"]
    if (found := re.search(r":: (3\.\d+)$", row))
]
# A stand-in for the tools of an environment: notes how it is called, and fails where it is told to.
STUB = """#!/bin/sh
echo "${0##*/} $*" >> "$CALLS"
for word in $FAIL; do case "$*" in *"$word"*) exit 1;; esac; done
"""


def locked(python: str | None = None) -> list[Requirement]:
    """The rows of the lock that this Python, or another version of it, takes."""
    place: dict[str, str] = dict(default_environment())  # type: ignore[arg-type]
    if python is not None:
        place |= {"python_version": python, "python_full_version": f"{python}.0"}
    lines = (ROOT / LOCK).read_text("utf-8").splitlines()
    rows = [Requirement(line) for line in lines if not line.startswith("#")]
    return [row for row in rows if row.marker is None or row.marker.evaluate(place)]


def needed(requirements: list[str], seen: set[tuple[str, str]], extra: str = "") -> Iterator[str]:
    """The names that the requirements lead to in this environment, their own included."""
    for text in requirements:
        row = Requirement(text)
        if row.marker is not None and not row.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(row.name)
        yield name
        for inner in ("", *row.extras):
            if (name, inner) not in seen:
                seen.add((name, inner))
                yield from needed(distribution(name).requires or [], seen, inner)


def test_the_lock_is_complete_and_has_nothing_else() -> None:
    made_with = Path(sys.prefix, ".ready")
    if not made_with.is_file() or made_with.read_text("utf-8").strip() != LOCK:
        pytest.skip(f"this environment was not made from {LOCK}, by `make setup`")
    roots = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    roots += PROJECT["build-system"]["requires"]
    assert sorted(row.name for row in locked()) == sorted(set(needed(roots, set())))


@pytest.mark.parametrize("python", PYTHONS)
def test_the_lock_has_one_version_of_everything_for_each_python(python: str) -> None:
    rows = locked(python)
    assert all(re.fullmatch(r"==[\w.]+", str(row.specifier)) for row in rows)
    assert [row.name for row in rows] == sorted({row.name for row in rows})
    allowed = [*PROJECT["project"]["dependencies"], *PROJECT["dependency-groups"]["dev"]]
    versions = {row.name: str(row.specifier)[2:] for row in rows}
    for row in map(Requirement, allowed):
        assert row.specifier.contains(versions[canonicalize_name(row.name)]), row


def make(
    target: str, folder: Path, *arguments: str, fail: str = ""
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run a target with stand-ins for Python and its tools: what it said, and their calls."""
    for name in ("python", "lint-imports"):
        stub = folder / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        stub.write_text(STUB)
        stub.chmod(0o755)
    calls = folder / "calls"
    calls.write_text("")
    done = subprocess.run(
        ["make", target, f"VENV={folder}", f"PYTHON={sys.executable}", *arguments],
        cwd=ROOT,
        env={**os.environ, "CALLS": str(calls), "FAIL": fail, "MAKEFLAGS": "", "PYTEST_ARGS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done, calls.read_text().splitlines()


@pytest.mark.parametrize("lock", [LOCK, ""], ids=["locked", "newest"])
def test_setup_gives_pip_the_lock_every_time(lock: str, tmp_path: Path) -> None:
    done, calls = make("setup", tmp_path, f"LOCK={lock}")
    assert done.returncode == 0, done.stderr
    assert [call.rsplit(maxsplit=1)[-1] for call in calls] == ["pip", "dev", "."]
    assert all((f"--constraint {LOCK}" in call) == bool(lock) for call in calls)
    assert "--no-build-isolation" in calls[-1]  # a build of its own would take the newest backend
    assert make("setup", tmp_path, f"LOCK={lock}")[1] == []
    os.utime(tmp_path / ".ready", (0, 0))
    assert make("setup", tmp_path, f"LOCK={lock}")[1] == calls


def test_setup_is_due_when_the_lock_is_newer(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    lock.write_text("")
    assert make("setup", tmp_path, f"LOCK={lock}")[1]
    later = (tmp_path / ".ready").stat().st_mtime + 1
    os.utime(lock, (later, later))
    assert make("setup", tmp_path, f"LOCK={lock}")[1]


@pytest.mark.parametrize(
    ("fail", "named"),
    [
        ("mypy", "types"),
        ("pytest", "pytest"),
        ("mypy pytest", "types pytest"),
        ("format dead", "format-check dead"),
    ],
)
def test_every_part_runs_and_the_failed_ones_are_named_last(
    fail: str, named: str, tmp_path: Path
) -> None:
    make("setup", tmp_path)
    done, calls = make("test", tmp_path, fail=fail)
    words = ["ruff format", "ruff check", "mypy", "lint-imports", "dead_definitions", "pytest"]
    assert len(calls) == len(words)
    assert all(any(word in call for call in calls) for word in words)
    summary, end = done.stderr.splitlines()[-2:]
    assert summary.startswith(f"make test: failed: {named} (")
    assert done.returncode != 0
    assert "Error" in end


def test_parts_that_pass_leave_no_summary(tmp_path: Path) -> None:
    make("setup", tmp_path)
    for target in ("check", "test"):
        done, _ = make(target, tmp_path)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_fresh_setup_installs_exactly_the_lock(tmp_path: Path) -> None:
    """Takes an index and a minute."""
    command = ["make", "setup", f"VENV={tmp_path / 'env'}", f"PYTHON={sys.executable}"]
    environment = {**os.environ, "MAKEFLAGS": ""}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=600)
    list_all = [tmp_path / "env/bin/python", "-m", "pip", "list", "--format=freeze"]
    found = subprocess.run(list_all, capture_output=True, text=True, check=True).stdout.split()
    installed = {canonicalize_name(row.split("==")[0]): row.split("==")[1] for row in found}
    del installed[PROJECT["project"]["name"]]
    assert installed == {row.name: str(row.specifier)[2:] for row in locked()}


@pytest.mark.parametrize("extra", PROJECT["project"]["optional-dependencies"])
def test_an_extra_allows_only_what_lies_between_two_versions_that_were_tried(extra: str) -> None:
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        assert {row.operator for row in Requirement(text).specifier} == {">=", "<"}, text
