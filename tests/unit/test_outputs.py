"""Every command that writes a file against everything that may be in the place of that file.

A row of `WRITERS` is a command line that ends with the name of the file to write. A new option
that writes a file belongs there: `test_every_option_that_writes_is_in_the_table` looks for it.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import click
import pytest

from tessera.cli import main as cli
from tessera.diagnostics import TesseraError
from tessera.output import Kind, check_output, mark, write_file
from tests.helpers.command import tessc
from tests.helpers.corpus import ROOT

MLP = ROOT / "examples" / "traces" / "mlp.ptx"
GPUS = ("--gpus", "a100,l40s")
CPU = ("--backend", "cpu", "--requests", "1")

WRITERS: dict[str, tuple[tuple[str, ...], str]] = {
    "analyze": (("analyze", "mlp.ptx", "-o"), ".txt"),
    "analyze json": (("analyze", "mlp.ptx", "--json", "-o"), ".json"),
    "analyze why": (("analyze", "mlp.ptx", "--why", "2:3", "-o"), ".txt"),
    "analyze kernel": (("analyze", "mlp.ptx", "-k", "relu", "-o"), ".txt"),
    "emit ptx": (("analyze", "mlp.ptx", "--emit", "ptx", "-o"), ".ptx"),
    "emit graph": (("analyze", "mlp.ptx", "--emit", "graph", "-o"), ".tsg"),
    "emit dot": (("analyze", "mlp.ptx", "--dot", "-o"), ".dot"),
    "emit html": (("analyze", "mlp.ptx", "--emit", "html", "-o"), ".html"),
    "report": (("report", "mlp.ptx", "-o"), ".html"),
    "diff": (("diff", "plan.tsp", "plan.tsp", "-o"), ".html"),
    "plan": (("plan", "mlp.ptx", *GPUS, "-o"), ".tsp"),
    "emit lp": (("plan", "mlp.ptx", *GPUS, "--emit", "lp", "-o"), ".lp"),
    "emit launch": (("plan", "mlp.ptx", *GPUS, "--emit", "launch", "-o"), ".launch"),
    "run trace": (("run", "mlp.ptx", "--outputs"), ".npz"),
    "run trace safetensors": (("run", "mlp.ptx", "--outputs"), ".safetensors"),
    "run plan": (("run", "plan.tsp", *CPU, "--outputs"), ".npz"),
    "timeline": (("run", "plan.tsp", *CPU, "--timeline"), ".json"),
    "simulated timeline": (("simulate", "plan.tsp", "--timeline"), ".json"),
}
# Without a GPU these end with an error too, but with another one.
NEED_GPU: dict[str, tuple[tuple[str, ...], str]] = {
    "trace": (("trace", "model.py:step", "-o"), ".ptx"),
    "profile": (("profile", "mlp.ptx", "--devices", "h200", "-o"), ".json"),
}
ALL = WRITERS | NEED_GPU
REPORTS = {"analyze", "analyze json", "analyze why", "analyze kernel"}
RESULTS = {"run trace", "run trace safetensors", "run plan"}
TIMELINES = {"timeline", "simulated timeline"}
PAGES = {"diff", "emit html", "report"}
# The table does not fit these: a folder of files, and a file that is gone on with.
ELSEWHERE = {
    ("demo", "-o"),
    ("doctor", "-o"),
    ("fleet", "-o"),
    ("selftest", "-o"),
    ("simulate", "--arrivals-out"),
    ("bench", "--arrivals-out"),
}


def spread(pairs: Iterable[tuple[str, Any, str]]) -> list[Any]:
    """Every third pair, so that each writer and each place is there; `make slow` takes all."""
    return [
        pytest.param(*pair, id=name, marks=[pytest.mark.slow] * (number % 3 > 0))
        for number, (*pair, name) in enumerate(pairs)
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Path) -> Path:
    """A folder with a trace, a plan and a model, in which commands run."""
    for name in ("mlp.ptx", "plan.tsp", "model.py"):
        shutil.copy(made / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one file of every kind that can be written without a GPU."""
    found = tmp_path_factory.mktemp("made")
    shutil.copy(MLP, found / "mlp.ptx")
    (found / "model.py").write_text("def step(): ...\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(found)
        assert tessc("plan", "mlp.ptx", "--gpus", "a100").code == 0
        for name, (command, ending) in WRITERS.items():
            outcome = tessc(*command, _named(name, ending))
            assert (outcome.code, "error[" in outcome.err) == (0, False), name
    return found


def _named(writer: str, ending: str) -> str:
    return writer.replace(" ", "_") + ending


def image(folder: Path) -> dict[str, object]:
    """Everything in a folder: names, kinds, bytes."""
    return {
        str(path.relative_to(folder)): os.readlink(path)
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else None
        for path in sorted(folder.rglob("*"))
    }


def _notes(target: Path) -> None:
    target.write_text("my notes\n")


def _bytes(target: Path) -> None:
    target.write_bytes(bytes(range(256)) * 40)


def _not_a_plan(target: Path) -> None:
    target.write_text("notes on tessera-plan 1, tessera-graph 2 and `digraph kernels`\n")


def _tells_of_marks(target: Path) -> None:
    """A page about such files is none."""
    marks = "".join(f"// {mark(kind)} and more\n{mark(kind)}\n" for kind in Kind)
    target.write_text(f"how to know them:\n{marks}end\n")


def _other_json(target: Path) -> None:
    target.write_text('{"schema": "somebody-elses/1", "about": "tessera-analyze"}\n')


def _link_to_notes(target: Path) -> None:
    target.with_name("notes").write_text("my notes\n")
    target.symlink_to("notes")


def _link_to_input(target: Path) -> None:
    target.symlink_to("mlp.ptx")


def _long_way_to_input(target: Path) -> None:
    (target.parent / "deep").mkdir()
    (target.parent / "deep" / "back").symlink_to("..")
    target.symlink_to("deep/back/mlp.ptx")


def _hard_link_to_input(target: Path) -> None:
    os.link(target.parent / "mlp.ptx", target)


def _folder(target: Path) -> None:
    target.mkdir()


def _loop(target: Path) -> None:
    target.symlink_to(target.name)


HAZARDS: tuple[Callable[[Path], None], ...] = (
    _notes,
    _bytes,
    _not_a_plan,
    _tells_of_marks,
    _other_json,
    _link_to_notes,
    _link_to_input,
    _long_way_to_input,
    _hard_link_to_input,
    _folder,
    _loop,
)


@pytest.mark.parametrize(
    ("writer", "hazard"),
    spread(
        (writer, hazard, f"{writer}-{hazard.__name__.strip('_')}")
        for writer in ALL
        for hazard in HAZARDS
    ),
)
def test_what_is_not_ours_is_never_written_over(
    folder: Path, writer: str, hazard: Callable[[Path], None]
) -> None:
    command, ending = ALL[writer]
    target = folder / f"target{ending}"
    hazard(target)
    before = image(folder)
    outcome = tessc(*command, target.name)
    assert outcome.code == 1
    assert f"error[TSR1911]: cannot write `{target.name}`" in outcome.err
    assert outcome.err.count("error[") == 1
    assert image(folder) == before


@pytest.mark.parametrize(
    ("writer", "name"),
    spread(
        (writer, name, f"{writer}-{name}")
        for writer, (_, ending) in ALL.items()
        if ending not in (".npz", ".safetensors")
        for name in ("mlp.ptx", "./mlp.ptx", "mlp.ptx/../mlp.ptx", ".//mlp.ptx")
    ),
)
def test_an_input_by_another_name(folder: Path, writer: str, name: str) -> None:
    command, _ = ALL[writer]
    before = image(folder)
    outcome = tessc(*command, name)
    assert outcome.code == 1
    assert "error[TSR1911]: cannot write" in outcome.err
    assert image(folder) == before


@pytest.mark.parametrize(
    ("writer", "name"),
    spread(
        (writer, name, f"{writer}-{name[:20]}")
        for writer in ALL
        for name in ("", "nowhere/file", "mlp.ptx/file", "n" * 300)
    ),
)
def test_places_that_cannot_be(folder: Path, writer: str, name: str) -> None:
    command, ending = ALL[writer]
    before = image(folder)
    outcome = tessc(*command, name + ending if name else "")
    assert outcome.code in (1, 2)
    assert "TSR1911" in outcome.err or "TSR1181" in outcome.err or "TSR6007" in outcome.err
    assert "TSR9000" not in outcome.err
    assert image(folder) == before


@pytest.mark.parametrize("writer", ALL)
def test_a_folder_that_cannot_be_written_to(folder: Path, writer: str) -> None:
    command, ending = ALL[writer]
    (folder / "locked").mkdir()
    before = image(folder)
    allowed = os.access

    def access(path: str, mode: int) -> bool:
        return os.path.basename(path) != "locked" and allowed(path, mode)

    with mock.patch("os.access", access):
        outcome = tessc(*command, f"locked/target{ending}")
    assert outcome.code == 1
    assert "`locked` cannot be written to" in outcome.err
    assert image(folder) == before


@pytest.mark.parametrize("writer", WRITERS)
def test_only_the_same_kind_is_replaced(folder: Path, made: Path, writer: str) -> None:
    command, ending = WRITERS[writer]
    same = next((one for one in (REPORTS, RESULTS, TIMELINES, PAGES) if writer in one), {writer})
    for other, (_, its_ending) in WRITERS.items():
        if other in same:
            continue
        shutil.copy(made / _named(other, its_ending), folder / f"target{ending}")
        before = image(folder)
        outcome = tessc(*command, f"target{ending}")
        assert (outcome.code, "TSR1911" in outcome.err) == (1, True), other
        assert image(folder) == before


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_ours_is_replaced(folder: Path, made: Path, writer: str) -> None:
    """And an empty file, as `mktemp` makes it; through links, which stay."""
    command, ending = WRITERS[writer]
    first = (made / _named(writer, ending)).read_bytes()
    target, link = folder / f"target{ending}", folder / f"link{ending}"
    target.touch(mode=0o600)
    link.symlink_to(target.name)
    for name in (target.name, link.name):
        assert tessc(*command, name).code == 0
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    # A run takes another time, and a report says how it was made.
    assert writer in ("timeline", "report") or target.read_bytes() == first
    assert not list(folder.glob(".*"))  # no temporary file stays


@pytest.mark.parametrize("writer", WRITERS)
def test_devices_and_pipes_take_the_bytes(folder: Path, writer: str) -> None:
    command, ending = WRITERS[writer]
    null, pipe = folder / f"null{ending}", folder / f"pipe{ending}"
    null.symlink_to("/dev/null")
    assert tessc(*command, null.name).code == 0
    assert null.is_symlink()
    os.mkfifo(pipe)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert tessc(*command, pipe.name).code == 0
    reader.join(300)
    assert found[0]
    assert pipe.is_fifo()


def test_a_socket_is_an_error(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        outcome = tessc("analyze", "mlp.ptx", "-o", "socket")
    assert (outcome.code, "error[TSR1911]" in outcome.err) == (1, True)


def _shell(command: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    text = command.replace("tessc", f"{sys.executable} -m tessera")
    return subprocess.run(
        ["bash", "-c", text], check=False, capture_output=True, timeout=120, env=environment
    )


@pytest.mark.parametrize(
    "command",
    [
        "tessc analyze mlp.ptx --emit dot -o /dev/stdout",
        "tessc analyze mlp.ptx --emit dot -o /dev/stdout | cat",
        "echo first > out; tessc analyze mlp.ptx --emit dot -o /dev/stdout >> out; cat out",
        "tessc analyze mlp.ptx --emit dot -o /dev/fd/3 3> out; cat out",
        "tessc analyze mlp.ptx --emit dot -o >(cat > out; touch ready) ;"
        " until [ -e ready ]; do sleep 0.05; done; cat out",
    ],
)
def test_descriptors_are_written_to_as_they_are(folder: Path, made: Path, command: str) -> None:
    done = _shell(command)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.removeprefix(b"first\n") == (made / "emit_dot.dot").read_bytes()
    assert done.stdout.startswith(b"first\n") == ("first" in command)


def test_two_outputs_of_one_name(folder: Path) -> None:
    (folder / "sub").mkdir()
    before = image(folder)
    for name in ("mlp.tsg", "./mlp.tsg", "sub/../mlp.tsg", "MLP.tsg"):
        outcome = tessc("analyze", "mlp.ptx", "-o", name)
        assert outcome.code == 1
        assert "this command writes its kernel graph there" in outcome.err
        assert "`--emit graph -o FILE`" in outcome.err
    both = ("--outputs", "o.npz", "--timeline", "sub/../o.npz")
    outcome = tessc("run", "plan.tsp", *CPU, *both)
    assert (outcome.code, "name the same file" in outcome.err) == (2, True)
    assert image(folder) == before
    assert tessc("analyze", "mlp.ptx", "--emit", "graph", "-o", "mlp.tsg").code == 0


def test_a_name_with_a_nul_is_an_error() -> None:
    with pytest.raises(TesseraError, match="TSR1911"):
        check_output("bad\0name", Kind.REPORT, ["other"])
    with pytest.raises(TesseraError, match="TSR1911"):
        write_file("bad\0name", b"", Kind.REPORT)


def test_read_only_files_are_left_alone(folder: Path) -> None:
    assert tessc("analyze", "mlp.ptx", "-o", "out.txt").code == 0
    with mock.patch("os.access", lambda path, mode: not mode & os.W_OK or path != "out.txt"):
        outcome = tessc("analyze", "mlp.ptx", "-o", "out.txt")
    assert (outcome.code, "is read-only" in outcome.err) == (1, True)


# --- the kernel graph of `analyze` ---------------------------------------------------------------


def test_the_graph_is_written_and_said(folder: Path) -> None:
    for _ in range(2):  # its own graph is replaced
        outcome = tessc("analyze", "mlp.ptx")
        assert (outcome.code, outcome.err) == (0, "")
        assert outcome.text.splitlines()[-1] == "wrote mlp.tsg, the kernel graph"
        assert (folder / "mlp.tsg").read_bytes().startswith(b"tessera-graph ")
    outcome = tessc("analyze", "mlp.ptx", "-o", "report.txt")
    assert outcome.text == "wrote mlp.tsg, the kernel graph\n"
    last = (folder / "report.txt").read_text().splitlines()[-1]
    assert last == "wrote mlp.tsg, the kernel graph"
    assert '"graph_file": "mlp.tsg"' in tessc("analyze", "mlp.ptx", "--json").text
    assert tessc("plan", *GPUS, "-o", "other.tsp").code == 0


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda one: one.__name__.strip("_"))
def test_a_graph_that_cannot_be_written_is_a_warning(
    folder: Path, hazard: Callable[[Path], None]
) -> None:
    hazard(folder / "mlp.tsg")
    before = image(folder)
    outcome = tessc("analyze", "mlp.ptx")
    assert outcome.code == 0
    assert "warning[TSR1911]: the kernel graph was not written to `mlp.tsg`: " in outcome.err
    assert "wrote" not in outcome.text
    assert image(folder) == before
    assert tessc("analyze", "mlp.ptx", "--strict").code == 1
    assert '"graph_file": null' in tessc("analyze", "mlp.ptx", "--json").text


def test_a_pipe_in_place_of_the_graph_does_not_hang(folder: Path) -> None:
    os.mkfifo(folder / "mlp.tsg")
    outcome = tessc("analyze", "mlp.ptx")
    assert (outcome.code, "warning[TSR1911]" in outcome.err) == (0, True)


def test_a_folder_without_room_for_the_graph(folder: Path) -> None:
    with mock.patch("os.access", lambda path, mode: not mode & os.W_OK):
        outcome = tessc("analyze", "mlp.ptx")
    assert outcome.code == 0
    assert "warning[TSR1911]" in outcome.err
    assert "cannot be written to" in outcome.err
    assert not (folder / "mlp.tsg").exists()


def test_a_trace_called_a_graph_stays(folder: Path) -> None:
    shutil.move("mlp.ptx", "mlp.tsg")
    before = image(folder)
    outcome = tessc("analyze", "mlp.tsg")
    assert (outcome.code, "it is an input of this command" in outcome.err) == (0, True)
    assert image(folder) == before


# --- the table -----------------------------------------------------------------------------------


def test_every_option_that_writes_is_in_the_table() -> None:
    """Options of the type path are for reading, or are rows of the table."""
    reading = {"data", "data_root", "inputs", "machine", "profiles", "texts", "weights"}
    reading |= {"tokenizer", "api_key_file", "hosts", "ssl_certfile", "ssl_keyfile"}
    writing = set()
    for command in cli.cli.commands.values():
        for option in command.params:
            is_path = isinstance(option, click.Option) and isinstance(option.type, click.Path)
            if is_path and option.name not in reading:
                writing.add((command.name, option.opts[-1]))
    listed = {(command[0], command[-1]) for command, _ in ALL.values()} | ELSEWHERE
    assert {
        (name, option.replace("--output", "-o").replace("-os", "--outputs"))
        for name, option in writing
    } == listed
