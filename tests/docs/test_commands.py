"""Commands and code in the docs work: each is run here, or checked against what it names.

A command of `tessc` whose files a reader would bring runs on the files of `FILES`. What needs a GPU
or takes minutes is not run; its options, modules, targets and files must still be there.
"""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from tests.docs import pages
from tests.helpers.command import tessc
from tests.helpers.reference import cli

EXAMPLES = pages.ROOT / "examples" / "traces"
FILES = ("kernel.ptx", "step.ptx", "trace.ptx", "prefill.ptx", "decode.ptx", "FILE")
PLANS = ("plan.tsp", "PLAN", "text.tsp")
TEXTS = {"prefill.ptx": "llama_steps_prefill.ptx", "decode.ptx": "llama_steps_decode.ptx"}
# These measure or capture on a GPU, or read what such a command wrote; a self-test takes minutes.
NEEDS_GPU = re.compile(r"tessc (trace|profile|selftest)\b|--profile\b|--backend cuda|selftest.json")
# A reader's own file of arrivals, model or Ray cluster.
NOT_THERE = re.compile(
    r"--arrivals [\w.]+\.(csv|jsonl)(\.gz)?|hf:|decode-b\d+.ptx,|--address|tessc cluster"
)
# A server goes on until it is ended; hosts are processes, of which one command is run.
GOES_ON = re.compile(r"tessc serve\b|tessc doctor --hosts|--hosts hosts.toml$")
HOSTS = """
[[host]]
name = "left"
devices = ["a100-0"]

[[host]]
name = "right"
devices = ["l40s-0"]
"""
# Shown with its output, which the text around it is about; `tests/golden/verdicts` runs such.
REFUSED = {"tessc check edited.tsp"}
STARTS = re.compile(r"(?:\w+=\S+ )*(tessc|python|make|pytest|\.venv/bin/python) ")


def commands() -> list[str]:
    """Every command line in the docs, once: quoted in prose, or in a block of code."""
    found: dict[str, None] = {}
    for page in pages.PAGES:
        if pages.name(page) in ("docs/reference/cli.md", "CHANGELOG.md"):
            continue
        lines = list(pages.quoted(page))
        for kind in ("", "console"):
            lines += [line for body in pages.blocks(page, kind) for line in body.splitlines()]
        for line in lines:
            text = line.removeprefix("$ ").replace("...", "").strip()
            if STARTS.match(text):
                found[text.removeprefix(".venv/bin/")] = None
    return list(found)


def parsed(text: str) -> tuple[Any, list[str]]:
    """A command of `tessc`, and its arguments; a redirection is left out."""
    words = shlex.split(text)
    ends = (n for n, word in enumerate(words) if word in (">", "2>", "|"))
    words = words[: next(ends, len(words))]
    if words[1].startswith("-"):
        return cli.cli, words[1:]
    command, rest = cli.cli.commands[words[1]], words[2:]
    if isinstance(command, click.Group) and rest and rest[0] in command.commands:
        return command.commands[rest[0]], rest[1:]
    return command, rest


TESSC = [text for text in commands() if text.startswith("tessc ")]


@pytest.mark.parametrize("text", TESSC)
def test_options_exist(text: str) -> None:
    command, words = parsed(text)
    known = {name for parameter in command.params for name in parameter.opts}
    known |= {name for parameter in command.params for name in parameter.secondary_opts}
    options = {word.split("=")[0] for word in words if word.startswith("-") and word != "-"}
    assert options <= known | {"--help", "--version"}, text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the docs speak of."""
    made = tmp_path_factory.mktemp("docs")
    for name in FILES:
        shutil.copy(EXAMPLES / TEXTS.get(name, "mlp.ptx"), made / name)
    shutil.copy(EXAMPLES / "llama_steps.npz", made)
    (made / "hosts.toml").write_text(HOSTS)
    options = ["--gpus", "a100,l40s", "--strategy", "kernel", "-o", str(made / "plan.tsp")]
    done = tessc("plan", str(made / "trace.ptx"), *options)
    assert done.code == 0, done.err
    shutil.copy(made / "plan.tsp", made / "PLAN")
    steps = [f"{made / 'prefill.ptx'}:1", f"{made / 'decode.ptx'}:64", "--sequences", "2"]
    done = tessc("plan", *steps, "--gpus", "a100,l40s", "-o", str(made / "text.tsp"))
    assert done.code == 0, done.err
    (made / "examples").symlink_to(pages.ROOT / "examples")
    return made


def runs(text: str) -> bool:
    """Whether a command has all that it needs: the short form `tessc plan` is a name only."""
    if any(kind.search(text) for kind in (NEEDS_GPU, NOT_THERE, GOES_ON)):
        return False
    if text in REFUSED or re.search(r"\b(FOLDER|NAME)\b", text):
        return False
    command, words = parsed(text)
    given = [word for word in words if not word.startswith("-")]
    needed = [each for each in command.params if each.param_type_name == "argument"]
    is_named = not needed or any(
        word.split(":")[0] in (*FILES, *PLANS) or (pages.ROOT / word.split(":")[0]).is_file()
        for word in given
    )
    return bool(is_named and words) or text in ("tessc gpus", "tessc doctor")


def marked(text: str) -> Any:
    """A command as a case: `make slow` runs those, too, that another one says with more options,
    and all searches for a fleet."""
    words = {*shlex.split(text)}
    is_long = text.startswith("tessc fleet") and "--emit" not in text
    is_part = any(words < {*shlex.split(other)} for other in TESSC if runs(other))
    return pytest.param(text, marks=pytest.mark.slow) if is_long or is_part else text


@pytest.mark.parametrize("text", [marked(text) for text in TESSC if runs(text)])
def test_command_runs(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    _, words = parsed(text)
    name = [] if text.split()[1].startswith("-") else [text.split()[1]]
    if name == ["plan"]:  # other commands read the plans that are there
        made = f"made{TESSC.index(text)}.tsp"
        words = [made if word in PLANS else word for word in words]
        words += ["-o", made] * ("-o" not in words)
    done = tessc(*name, *words)
    assert done.code == 0, f"{text}\n{done.err}"


README = pages.read(pages.ROOT / "README.md")
READERS = re.findall(r"^\*\*(I [^*]+)\*\* (.+)$", README, re.MULTILINE)


@pytest.mark.parametrize(("reader", "path"), READERS)
def test_a_reader_has_three_pages_with_commands_that_run(reader: str, path: str) -> None:
    """Of each page on the way, at least a command or a block of Python runs here."""
    links = re.findall(r"\((docs/[\w/.-]+)\)", path)
    assert 1 <= len(links) <= 3
    for page in ("README.md", *links):
        text = path if page == "README.md" else pages.read(pages.ROOT / page)
        own = [command for command in TESSC if f"`{command}`" in text or f"\n{command}" in text]
        own += [command for command in TESSC if f"$ {command}" in text]
        assert page in CODE or any(map(runs, own)), f"{reader}: {page}"


def test_there_are_four_readers() -> None:
    assert len(READERS) == 4


def test_enough_commands_run() -> None:
    assert sum(map(runs, TESSC)) >= 10


@pytest.mark.parametrize("text", [text for text in commands() if not text.startswith("tessc ")])
def test_other_commands_name_what_exists(text: str) -> None:
    words = [word for word in shlex.split(text) if not re.fullmatch(r"[A-Z_]+=.*", word)]
    if words[0] == "make":
        makefile = pages.read(pages.ROOT / "Makefile")
        for target in words[1:]:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), text
        return
    if words[:3] == ["python", "-m", "pytest"] or words[0] == "pytest":
        files = [word for word in words if "/" in word]
    elif words[:2] == ["python", "-m"]:
        files = [words[2].replace(".", "/") + ".py"] if "." in words[2] else []
    else:
        files = [words[1]]
    for path in files:
        assert (pages.ROOT / path).exists(), text
        source = pages.ROOT / path
        for option in (word for word in words if word.startswith("--") and source.is_file()):
            assert option in source.read_text("utf-8") or words[0] == "pytest", text


CODE = [
    "docs/concepts/access-analysis.md",
    "docs/concepts/cpu-backend.md",
    "docs/concepts/plan-proof.md",
    "docs/guides/library.md",
    "docs/guides/run-a-plan.md",
    "docs/reference/opcodes.md",
]
# What a reader has before the first line of a block.
GIVEN: dict[str, Any] = {"arrays": [np.ones((24, 40), np.float32)] * 3}
# Captures on a GPU.
NOT_RUN = {"docs/guides/capture.md"}


def test_every_page_with_code_is_run() -> None:
    having = {pages.name(page) for page in pages.PAGES if pages.blocks(page, "python")}
    assert having == set(CODE) | NOT_RUN


@pytest.mark.parametrize("page", CODE)
def test_code_runs(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, one after the other, as a reader would type them."""
    monkeypatch.chdir(folder)
    body = next(iter(example_module(folder).kernels())).body
    given = {
        **GIVEN,
        "ptx_text": (folder / "kernel.ptx").read_text("utf-8"),
        "instruction": next(item for item in body if hasattr(item, "opcode")),
    }
    text = "\n".join(pages.blocks(pages.ROOT / page, "python"))
    exec(compile(text, page, "exec", dont_inherit=True), {"__name__": "__main__", **given})


def example_module(folder: Path) -> Any:
    """The module of the example, as read."""
    import tessera

    return tessera.load(folder / "kernel.ptx").modules[0].variants[0].ptx
