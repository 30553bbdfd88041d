"""`tessc` as a user meets it: output, messages, exit codes."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

import click
import pytest

from tessera.cli import main as cli
from tests.helpers.command import tessc

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 .ptr .global .align 4 x, .param .f32 a)
{
    .reg .b64 %rd<2>;
    .reg .f32 %f<3>;
    ld.param.u64 %rd1, [x];
    ld.param.f32 %f1, [a];
    ld.global.f32 %f2, [%rd1];
    mul.f32 %f2, %f2, %f1;
    st.global.f32 [%rd1], %f2;
    ret;
}
.visible .entry other()
{
    ret;
}
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "saxpy.ptx"
    file.write_text(PTX)
    return str(file)


def test_report(path: str) -> None:
    outcome = tessc("analyze", path)
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.text == (
        f"{path}: PTX 8.0, target sm_80, 64-bit addresses\n"
        "\n"
        "kernel saxpy (line 4)\n"
        "  parameters      x  u64, 8 bytes, pointer to global, align 4\n"
        "                  a  f32, 4 bytes\n"
        "  registers       b64 2, f32 3\n"
        "  shared memory   none\n"
        "  instructions    6: memory global 2, memory param 2, control 1, float 1\n"
        "\n"
        "kernel other (line 15)\n"
        "  parameters      none\n"
        "  registers       none\n"
        "  shared memory   none\n"
        "  instructions    1: control 1\n"
    )


def test_report_of_some_kernels(path: str) -> None:
    assert "kernel other" not in tessc("analyze", path, "-k", "sax*").text
    assert "kernel other" in tessc("analyze", path, "-k", "sax*", "-k", "other").text
    value = json.loads(tessc("analyze", path, "-k", "other", "--json").out)
    assert [kernel["name"] for kernel in value["modules"][0]["kernels"]] == ["other"]


def test_pattern_that_matches_nothing_is_an_error(path: str) -> None:
    outcome = tessc("analyze", path, "-k", "saxpi")
    assert outcome.code == 2
    assert "no kernel or function matches `saxpi`" in outcome.err


def test_standard_input(path: str) -> None:
    assert tessc("analyze", "-", stdin=PTX.encode()).text.startswith("<stdin>: PTX 8.0")


def test_json(path: str) -> None:
    value = json.loads(tessc("analyze", path, "--json").out)
    assert value["schema"] == "tessera-analyze/1"
    assert value["diagnostics"] == []
    kernel = value["modules"][0]["kernels"][0]
    assert kernel["name"] == "saxpy"
    assert kernel["mix"] == {"memory global": 2, "memory param": 2, "control": 1, "float": 1}


def test_json_of_a_file_with_errors(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ptx"
    bad.write_text(PTX.replace("ret;", "ret"))
    outcome = tessc("analyze", str(bad), "--json", "--format", "json")
    value = json.loads(outcome.out)
    assert outcome.code == 1
    assert value["schema"] == "tessera-analyze/1"
    assert value["diagnostics"] == [json.loads(line) for line in outcome.err.splitlines()]
    assert value["diagnostics"][0]["severity"] == "error"


def test_emit_ptx_gives_foreign_bytes_back(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_bytes(PTX.encode().replace(b".visible", b'.file 1 "caf\xe9.cu"\n.visible', 1))
    outcome = tessc("analyze", str(file), "--emit", "ptx")
    assert outcome.code == 0
    assert b'"caf\xe9.cu"' in outcome.out
    assert tessc("analyze", "-", "--emit", "ptx", stdin=outcome.out).out == outcome.out


def test_warnings_count_only_under_strict(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(PTX.replace("mul.f32", "_fnord.f32"))
    assert tessc("analyze", str(file)).code == 0
    outcome = tessc("analyze", str(file), "--strict")
    assert outcome.code == 1
    assert "warning[TSR1025]" in outcome.err
    assert outcome.text.startswith(f"{file}: PTX")


OLD = "old.ptx: PTX 8.0, target sm_80, 64-bit addresses\n"  # a report may be replaced


def test_output_file(path: str, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text(OLD)
    target.chmod(0o640)
    outcome = tessc("analyze", path, "-o", str(target))
    assert (outcome.code, outcome.out) == (0, b"")
    assert target.read_bytes() == tessc("analyze", path).out
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.txt", "saxpy.ptx"]


def test_output_through_a_link_keeps_the_link(path: str, tmp_path: Path) -> None:
    (tmp_path / "real.txt").write_text(OLD)
    (tmp_path / "link.txt").symlink_to("real.txt")
    tessc("analyze", path, "-o", str(tmp_path / "link.txt"))
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "real.txt").read_text() != OLD


def test_a_failed_write_leaves_the_old_file_alone(path: str, tmp_path: Path) -> None:
    target = tmp_path / "report.txt"
    target.write_text(OLD)
    with mock.patch("os.replace", side_effect=OSError(28, "No space left on device")):
        outcome = tessc("analyze", path, "-o", str(target))
    assert outcome.code == 1
    assert "error[TSR1911]" in outcome.err
    assert "no space left on device" in outcome.err
    assert target.read_text() == OLD
    assert sorted(p.name for p in tmp_path.iterdir()) == ["report.txt", "saxpy.ptx"]


def test_an_input_error_writes_no_output_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.ptx"
    bad.write_text("nonsense")
    assert tessc("analyze", str(bad), "-o", str(tmp_path / "out")).code == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("color", ["always", "never", "auto"])
def test_color(color: str) -> None:
    outcome = tessc("--color", color, "analyze", "/nonexistent")
    assert ("\x1b" in outcome.err) == (color == "always")


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    file = tmp_path / "\x1b[31m.ptx"
    file.write_text(PTX)
    assert b"\x1b" not in tessc("analyze", str(file)).out
    assert "\x1b" not in tessc("analyze", str(file) + "x").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["analyse", "x"],
        ["analyze"],
        ["analyze", "x", "--format", "xml"],
        ["--colour", "x"],
        [],
        ["analyze", "x", "--json", "--emit", "ptx"],
    ],
    ids=["command", "no file", "choice", "option", "nothing", "both"],
)
def test_wrong_usage(arguments: list[str]) -> None:
    outcome = tessc(*arguments)
    assert outcome.code == 2
    assert "Traceback" not in outcome.err
    assert "Usage: tessc" in outcome.err


def test_misspelt_command_gets_a_suggestion() -> None:
    assert "analyze" in tessc("analyse", "x").err.split("Usage", 1)[1].split("Try", 1)[1]


def test_every_command_is_in_one_section_of_the_help() -> None:
    named = [name for names in cli.SECTIONS.values() for name in names]
    assert sorted(named) == sorted(cli.cli.commands)


@pytest.mark.parametrize("name", [None, *cli.cli.commands])
def test_help_has_examples(name: str | None) -> None:
    outcome = tessc(*([name] if name else []), "--help")
    assert outcome.code == 0
    assert "Examples:" in outcome.text
    assert all(len(line) <= 100 for line in outcome.text.splitlines())


def test_every_option_has_help() -> None:
    for command in (cli.cli, *cli.cli.commands.values()):
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help


def test_version() -> None:
    assert tessc("--version").text == "tessc 0.1.0\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script(shell: str) -> None:
    outcome = tessc("completion", shell)
    assert outcome.code == 0
    assert "_TESSC_COMPLETE" in outcome.text


def test_completion_of_codes() -> None:
    environment = {
        "_TESSC_COMPLETE": "bash_complete",
        "COMP_WORDS": "tessc explain TSR190",
        "COMP_CWORD": "2",
    }
    result = run_process([], environment=environment)
    assert "plain,TSR1905" in result.stdout.decode().splitlines()


def test_interrupt() -> None:
    with mock.patch("tessera.driver.analyze.analyze", side_effect=KeyboardInterrupt):
        outcome = tessc("analyze", "x")
    assert outcome.code == 130
    assert "Traceback" not in outcome.err


def test_what_a_model_wrote_and_did_not_close_is_in_its_file(tmp_path: Path) -> None:
    lines = (
        "import sys, tessera.cli.main as cli",
        f"kept = [open({str(tmp_path / 'log')!r}, 'w')]",
        "kept.append(kept)",
        "kept[0].write('to the end')",
        "kept = sys.argv[1:] = ['--version']",
        "cli.main()",
    )
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "log").read_text() == "to the end"


def test_out_of_memory() -> None:
    with mock.patch("tessera.driver.analyze.analyze", side_effect=MemoryError):
        outcome = tessc("analyze", "x")
    assert outcome.code == 6
    assert "error[TSR5020]: this machine is out of memory" in outcome.err


def test_traceback_on_request(path: str) -> None:
    with (
        mock.patch("tessera.driver.analyze.analyze", side_effect=RecursionError("deep")),
        mock.patch.dict(os.environ, {"TESSERA_TRACEBACK": "1"}),
    ):
        outcome = tessc("analyze", path)
    assert outcome.code == 70
    assert "Traceback (most recent call last)" in outcome.err
    assert "error[TSR9000]: internal error: RecursionError: deep" in outcome.err


# --- as a process ------------------------------------------------------------------------------


def run_process(
    arguments: list[str], environment: dict[str, str] | None = None, **options: object
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "tessera", *arguments],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        timeout=300,
        check=False,
        **options,
    )


@pytest.mark.parametrize("arguments", [["analyze", "-"], ["explain"], ["explain", "TSR9000"]])
def test_reader_that_stops_early(arguments: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, message = process.communicate(PTX.encode(), timeout=300)
    assert message == b""
    assert process.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_disk(path: str) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "tessera", "analyze", path],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=300,
            check=False,
        )
    assert result.returncode == 1
    assert result.stderr.startswith(b"error[TSR1911]: cannot write standard output")
    assert b"Traceback" not in result.stderr
    assert b"Exception ignored" not in result.stderr


def test_interrupt_of_a_process_that_waits_for_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tessera", "analyze", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=300)
    assert process.returncode == 130
    assert b"Traceback" not in message


def test_ascii_terminal(tmp_path: Path) -> None:
    file = tmp_path / "k.ptx"
    file.write_text(PTX.replace("ret;", "// ключ\nret", 1))
    result = run_process(
        ["analyze", str(file)],
        environment={"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    )
    assert result.returncode == 1
    assert b"Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "redirection", "words"),
    [
        ("-", "<&-", "error[TSR1900]: cannot read standard input: it is closed"),
        ("saxpy.ptx", ">&-", "error[TSR1911]: cannot write standard output: it is closed"),
        ("nothing", "2>&-", ""),
    ],
    ids=["input", "output", "messages"],
)
def test_closed_streams(path: str, arguments: str, redirection: str, words: str) -> None:
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m tessera analyze {arguments} {redirection}"],
        cwd=Path(path).parent,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 1
    assert result.stderr.startswith(words)
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("is_ending", [False, True])
def test_what_fails_while_the_process_ends_is_not_said(is_ending: bool) -> None:
    """Such as a lock of a file, which asks a module that is gone by then."""
    said: list[object] = []
    with (
        mock.patch("gc.disable"),
        mock.patch("gc.freeze"),
        mock.patch.object(sys, "unraisablehook", said.append),
        mock.patch.object(sys, "is_finalizing", return_value=is_ending),
    ):
        cli._let_go()
        sys.unraisablehook("a problem")  # type: ignore[arg-type]
    assert said == ([] if is_ending else ["a problem"])
