"""README and docs are true: links lead somewhere, commands run and print what is shown."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import tessera
from benchmarks import accuracy, measured
from benchmarks.gain import picture
from tests.docs.pages import DOCS, FENCE, PAGES, ROOT
from tests.helpers import reference
from tests.helpers.each import each

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
# These run the tests, or take a machine or minutes; that they exist is checked.
NOT_RUN = {
    "make demo",
    "make test",
    "make check",
    "make bench",
    "make slow",
    "make clean",
    "make setup",
}


def anchors(text: str) -> set[str]:
    """The anchors that headings give, as code hosting sites make them."""
    found = set()
    for heading in re.findall(r"^#+ (.*)$", FENCE.sub("", text), re.MULTILINE):
        bare = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(bare.replace(" ", "-"))
    return found


@each(PAGES)
def test_links(page: Path) -> None:
    prose = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text("utf-8")))
    for link in LINK.findall(prose):
        if link.startswith(("http://", "https://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        if anchor:
            assert anchor in anchors(target.read_text("utf-8")), link


def test_every_page_is_in_the_index() -> None:
    index = (DOCS / "README.md").read_text("utf-8")
    for page in DOCS.rglob("*.md"):
        if page != DOCS / "README.md":
            assert f"({page.relative_to(DOCS).as_posix()})" in index


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("reference/cli.md", reference.cli_page),
        ("reference/codes.md", reference.codes_page),
        ("reference/operators.md", reference.operators_page),
        ("measured.md", measured.page),
        ("concepts/accuracy.md", accuracy.page),
        ("images/forms.svg", picture.picture),
    ],
)
def test_generated_page(name: str, make: Callable[[], str], update_golden: bool) -> None:
    page = DOCS / name
    if update_golden:
        page.write_text(make(), "utf-8")
    assert page.read_text("utf-8") == make()


def console_sessions() -> list[tuple[str, str]]:
    """Each command of the README with the output that is shown under it."""
    found = []
    for language, body in FENCE.findall((ROOT / "README.md").read_text("utf-8")):
        if language == "console":
            for session in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = session.partition("\n")
                found.append((command, output))
    return found


def run(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the checkout as a user would, its environment activated."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**environment, "PATH": path, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


@pytest.mark.slow  # half a minute; each of its commands has tests of its own
def test_the_demo() -> None:
    result = run("make demo")
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(("command", "output"), console_sessions())
def test_command_of_the_readme(command: str, output: str, update_golden: bool) -> None:
    if command.split("  #")[0].strip() in NOT_RUN:
        result = run(f"{command.split('  #')[0]} -n")
        assert result.returncode == 0, result.stderr
        return
    result = run(command)
    assert result.returncode == 0, result.stderr
    if command.startswith("tessc "):
        shown = result.stdout + result.stderr
        if update_golden and shown != output:
            page = ROOT / "README.md"
            old, new = (f"$ {command}\n{text}" for text in (output, shown))
            page.write_text(page.read_text("utf-8").replace(old, new), "utf-8")
        else:
            assert shown == output


def test_the_readme_shows_figures_of_the_files() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [row for row in measured.top() if row not in readme] == []
    assert len(readme.splitlines()) <= 120
    assert re.findall(r"tessera_compiler-([\d.]+)-py3", readme) == [tessera.__version__]


def test_the_readme_has_commands() -> None:
    commands = [command for command, _ in console_sessions()]
    assert "make demo" in commands
    assert any(command.startswith("tessc ") for command in commands)


def test_every_code_block_of_the_readme_is_run() -> None:
    languages = [language for language, _ in FENCE.findall((ROOT / "README.md").read_text("utf-8"))]
    assert set(languages) == {"console"}


@each(PAGES)
def test_commands_in_the_docs_exist(page: Path) -> None:
    for name in re.findall(r"\btessc ([a-z]+)\b", page.read_text("utf-8")):
        assert name in reference.cli.cli.commands, f"tessc {name}"
