"""The CI workflow, pre-commit and the project agree on versions and commands."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT, read

WORKFLOW = read(ROOT / ".github" / "workflows" / "ci.yml")


def test_the_workflow_has_the_versions_that_the_project_claims() -> None:
    project = tomllib.loads(read(ROOT / "pyproject.toml"))["project"]
    claimed = [c.split(" :: ")[-1] for c in project["classifiers"] if ":: Python :: 3." in c]
    matrix = re.search(r"python: \[(.*)\]", WORKFLOW)
    assert matrix is not None
    assert re.findall(r"[\d.]+", matrix[1]) == claimed


def test_what_the_workflow_runs_exists() -> None:
    makefile = read(ROOT / "Makefile")
    runs = re.findall(r"- run: (.*)", WORKFLOW)
    assert ".ci/run" in runs
    for command in runs:
        if command.startswith("make "):
            assert re.search(rf"^{command.split()[1]}:", makefile, re.MULTILINE), command
        else:
            assert (ROOT / command).is_file(), command


def test_it_says_that_it_has_not_run_on_a_hosted_service() -> None:
    assert "not run on a hosted service" in WORKFLOW


def test_pre_commit_runs_what_make_check_runs() -> None:
    hooks = read(ROOT / ".pre-commit-config.yaml")
    for tool in ("ruff format", "ruff check", "mypy", "lint-imports"):
        assert tool in hooks
