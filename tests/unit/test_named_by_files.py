"""Files that other files name: what may be read on their word, and what an error may tell of it.

A graph names its trace, a trace and a plan name files of contents. None of them is the user's
choice, so nothing of what is in such a file gets into a message, and nothing waits for a pipe.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.command import Outcome, tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
GPUS = ("--gpus", "a100", "-o", "/dev/null")
SECRET = "hunter2-token"
TEXTS = {
    "a secret": f"{SECRET}\n",
    "PTX with a secret": f".version 8.0\n.target sm_80\n.address_size 64\n{SECRET} = 1;\n",
    "a trace with a secret": f"//! tessera.trace 1\n//! {SECRET} x\n",
    "a value": f"//! tessera.trace 1\n//! buffer x bytes={SECRET} role=input\n",
    "CUDA": f"#include <{SECRET}>\n__global__ void k() {{}}\n",
    "binary": f"{SECRET}\0\1\2\3",
    "another graph": f'tessera-graph 2\nnode 0 "{SECRET}"\n',
    "PTX": f".version 8.0\n.target sm_80\n.address_size 64\n// {SECRET}\n.global .u32 a;\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder; what hangs in it ends the test."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def hangs(number: int, frame: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(600)
    yield tmp_path / "here"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def graph_of(name: str) -> None:
    """A graph in this folder that names a trace."""
    shutil.copy(MLP, "mlp.ptx")
    assert tessc("analyze", "mlp.ptx").code == 0
    text = Path("mlp.tsg").read_text()
    Path("mlp.ptx").unlink()
    Path("mlp.tsg").write_text(text.replace('trace "mlp.ptx"', f'trace "{name}"'))


def refused(outcome: Outcome) -> str:
    assert outcome.code == 1
    assert outcome.err.count("error[TSR3007]") == 1
    assert "-->" not in outcome.err
    for word in (SECRET, SECRET[:7]):
        assert word not in outcome.err
        assert word not in outcome.text
    return outcome.err


@pytest.mark.parametrize("place", ["other.txt", "../other.txt", "sub/../../other.txt", "ABSOLUTE"])
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_no_error_tells_what_is_in_a_file_that_a_graph_names(
    folder: Path, text: str, place: str
) -> None:
    (folder / "sub").mkdir()
    for target in (folder / "other.txt", folder.parent / "other.txt"):
        target.write_text(text)
    graph_of(str(folder.parent / "other.txt") if place == "ABSOLUTE" else place)
    for form in ("full", "concise", "json"):
        outcome = tessc("plan", *GPUS, "--format", form)
        assert outcome.code == 1
        assert "TSR3007" in outcome.err
        assert SECRET not in outcome.err + outcome.text
        assert SECRET[:7] not in outcome.err + outcome.text


def _pipe() -> None:
    os.mkfifo("mlp.ptx")


def _link_to_a_pipe() -> None:
    os.mkfifo("pipe")
    Path("mlp.ptx").symlink_to("pipe")


def _device() -> None:
    Path("mlp.ptx").symlink_to("/dev/zero")


def _folder() -> None:
    Path("mlp.ptx").mkdir()


def _link() -> None:
    Path("elsewhere").write_text(SECRET)
    Path("mlp.ptx").symlink_to("elsewhere")


def _nothing() -> None:
    pass


def _huge() -> None:
    with open("mlp.ptx", "wb") as stream:
        stream.write(SECRET.encode() + b"\n" * 70000)
        stream.truncate(1 << 26)


def _unreadable() -> None:
    Path("mlp.ptx").symlink_to("mlp.ptx")


HAZARDS = (_pipe, _link_to_a_pipe, _device, _folder, _link, _nothing, _huge, _unreadable)


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda one: one.__name__.strip("_"))
def test_what_is_no_plain_file_is_not_a_trace(folder: Path, hazard: Callable[[], None]) -> None:
    graph_of("mlp.ptx")
    hazard()
    if hazard is _huge:
        # Reading stops at the limit; a gigabyte is too much for a test.
        from tessera.frontend.text import readfile

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(readfile.read_stream, "__defaults__", (1 << 20,))
            refused(tessc("plan", *GPUS))
        return
    refused(tessc("plan", *GPUS))


def test_another_trace_is_refused_before_anything_is_said_about_it(folder: Path) -> None:
    graph_of("other.ptx")
    text = MLP.read_text().replace("scale_rows", SECRET[:7])
    Path("other.ptx").write_text(text)
    assert "has changed since" in refused(tessc("plan", *GPUS))


@pytest.mark.parametrize("where", ["sub/mlp.ptx", "../mlp.ptx"])
def test_traces_elsewhere_are_found_again(folder: Path, where: str) -> None:
    """By the way from the graph, through the links that were there when it was made."""
    (folder / "sub").mkdir()
    shutil.copy(MLP, where)
    assert tessc("analyze", where).code == 0
    assert tessc("plan", *GPUS).code == 0
    (folder / "link.ptx").symlink_to(where)
    Path("mlp.tsg").unlink()
    assert tessc("analyze", "link.ptx").code == 0
    assert tessc("plan", *GPUS).code == 0


# --- contents ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
@pytest.mark.parametrize("hazard", HAZARDS[:-1], ids=lambda one: one.__name__.strip("_"))
def test_contents_that_are_no_plain_file(
    folder: Path, hazard: Callable[[], None], ending: str
) -> None:
    hazard()
    if Path("mlp.ptx").is_symlink() or os.path.lexists("mlp.ptx"):
        os.rename("mlp.ptx", f"data{ending}")
    shutil.copy(MLP, "mlp.ptx")
    head = "//! tessera.trace 1\n"
    text = Path("mlp.ptx").read_text()
    Path("mlp.ptx").write_text(text.replace(head, f"{head}//! resident data=data{ending}\n"))
    outcome = tessc("run", "mlp.ptx")
    assert outcome.code == 1
    assert "error[TSR118" in outcome.err
    assert SECRET not in outcome.err
    assert tessc("plan", "mlp.ptx", *GPUS).code == 0  # it needs none of them


def test_plain_ptx_gets_a_hint(folder: Path) -> None:
    Path("k.ptx").write_text(".version 8.0\n.target sm_80\n.address_size 64\n")
    outcome = tessc("plan", "k.ptx", *GPUS)
    assert (outcome.code, "error[TSR3013]" in outcome.err) == (1, True)
    assert "`tessc trace model.py:step -o step.ptx`" in outcome.err
