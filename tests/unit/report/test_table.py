"""Tables fit a terminal, and are whole in a file."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len

from tessera.report.diagnostics import columns_of
from tessera.report.table import Column, Fit, fitted, item, shortened, table, wrapped

COLUMNS = (
    Column("name", Fit.CUT),
    Column("steps", right=True),
    Column("usd per million", right=True),
    Column("on", Fit.WRAP),
)
NAMES = {
    "short": "a",
    "long": "m9.triton_tem_fused__softmax__to_copy__unsafe_view_bmm_clone_div_mul_split_sub_9" * 3,
    "wide": "\N{CJK UNIFIED IDEOGRAPH-5927}" * 60,
    "mixed": "kernel_\N{CJK UNIFIED IDEOGRAPH-5927}_" * 12 + "e\N{COMBINING ACUTE ACCENT}",
    "markup": "[red]x[/red] [bold]y :smile: [link=a]b[/link]",
    "control": "a\x1b[31mb\x07c",
}


def rows(name: str) -> list[tuple[str, ...]]:
    return [
        (name, "12", "0.0133", "a100-0 12, l40s-0 1"),
        ("other", "123456", "1234.5678", ", ".join(f"gpu-{number} 1" for number in range(12))),
    ]


@pytest.mark.parametrize("kind", NAMES)
@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_line_is_wider_than_the_terminal(kind: str, width: int) -> None:
    lines = table(COLUMNS, rows(NAMES[kind]), width)
    assert max(map(cell_len, lines)) <= width
    words = " ".join(lines).split()
    for number in ("12", "123456", "0.0133", "1234.5678"):
        assert number in words, "a number that is cut would be a wrong one"


@pytest.mark.parametrize("kind", NAMES)
def test_in_a_file_every_row_is_a_line_and_nothing_is_cut(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = table(COLUMNS, rows(NAMES[kind]))
    assert len(whole) == 3
    if kind != "control":
        assert NAMES[kind] in whole[1]
    ends = {cell_len(line[: line.index(cell) + len(cell)]) for line, cell in _steps(whole)}
    assert len(ends) == 1, "columns are aligned by what a terminal shows"
    monkeypatch.setenv("COLUMNS", "30")
    assert table(COLUMNS, rows(NAMES[kind])) == whole


def _steps(lines: list[str]) -> list[tuple[str, str]]:
    return list(zip(lines, ("steps", " 12 ".rstrip(), "123456"), strict=True))


def test_names_are_text_and_cannot_steer_the_terminal() -> None:
    (line,) = table((Column(),), [(NAMES["markup"],)], 80)
    assert line == "  " + NAMES["markup"]
    (line,) = table((Column(),), [(NAMES["control"],)], 80)
    assert line == "  a\ufffd[31mb\ufffdc"
    assert "\t" not in "".join(table((Column(), Column()), [("a\tb", "c")]))


def test_a_name_loses_its_middle_and_texts_are_wrapped() -> None:
    lines = table(COLUMNS, rows(NAMES["long"]), 80)
    first = next(line for line in lines if line.startswith("  m9."))
    assert "..." in first
    assert first.split()[0].endswith("sub_9")
    assert len(lines) > 4
    assert shortened("abcdefghijklmnop", 9) == "abc...nop"
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("abcdefgh", 3) == ["abc", "def", "gh"]
    assert wrapped("a\N{CJK UNIFIED IDEOGRAPH-5927}b", 2) == ["a", "\u5927", "b"]


def test_titles_are_wrapped_before_names_are_cut() -> None:
    columns = (Column("name", Fit.CUT), Column("usd per million", right=True))
    assert table(columns, [("a" * 20, "1.5")], 31) == [
        "  name                  usd per",
        "                        million",
        "  aaaaaaaaaaaaaaaaaaaa      1.5",
    ]


def test_a_table_that_is_too_wide_is_a_list() -> None:
    columns = (Column("name", Fit.CUT), *(Column(f"figure{n}", right=True) for n in range(4)))
    lines = table(columns, [("some name", "1", "22", "", "4444")], 30)
    assert lines == ["  some name", "    figure0: 1", "    figure1: 22", "    figure3: 4444"]


def test_a_table_without_rows() -> None:
    assert table((Column(), Column()), []) == []
    assert table((Column("a"), Column("b")), []) == ["  a  b"]
    assert table((Column("a"), Column("b")), [], 20) == ["  a  b"]


def test_long_lines_go_on_further_right() -> None:
    assert item("one two three four", 20, indent=10) == [
        "          one two",
        " " * 14 + "three",
        " " * 14 + "four",
    ]
    text = "head\n  #0 kernel: reads alpha 12, beta 13\n\nend\n"
    assert fitted(text) == text
    assert fitted(text, 24) == "head\n  #0 kernel: reads alpha\n      12, beta 13\n\nend\n"
    assert fitted("a\x1bb\n") == "a\ufffdb\n"
    assert fitted("a\x1bb\n", 80) == "a\ufffdb\n"


def test_columns_of_a_text() -> None:
    assert columns_of("abc") == 3
    assert columns_of("\u5927") == 2
    assert columns_of("e\u0301") == 1


# --- commands ----------------------------------------------------------------------------------


def on_terminal(*arguments: str, columns: str) -> str:
    """What a command prints where standard output is a terminal."""
    main, side = pty.openpty()
    environment = {**os.environ, "COLUMNS": columns, "TERM": "xterm"}
    command = [sys.executable, "-m", "tessera", *arguments]
    with subprocess.Popen(command, stdout=side, stderr=subprocess.DEVNULL, env=environment) as one:
        os.close(side)
        parts = []
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # Linux says that the other side is closed in this way
                break
            if not part:
                break
            parts.append(part)
        os.close(main)
        assert one.wait() == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.parametrize(
    "columns", ["40", *(pytest.param(each, marks=pytest.mark.slow) for each in ("80", "200"))]
)
@pytest.mark.parametrize("command", [("gpus",), ("explain",), ("doctor",)], ids=lambda c: c[0])
def test_commands_fit_the_terminal(command: tuple[str, ...], columns: str) -> None:
    shown = on_terminal(*command, columns=columns)
    assert max(map(cell_len, shown.splitlines())) <= int(columns)
    assert "\x1b" not in shown


def test_a_pipe_has_the_whole_report_whatever_the_terminal(tmp_path: Path) -> None:
    name = "k_" + "x" * 150
    source = tmp_path / "long.ptx"
    source.write_text(
        ".version 8.0\n.target sm_80\n.address_size 64\n"
        f".visible .entry {name}(.param .u64 p)\n{{\n  ret;\n}}\n"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-m", "tessera", "analyze", str(source)],
            capture_output=True,
            check=True,
            env={**os.environ, "COLUMNS": columns},
        ).stdout
        for columns in ("40", "200")
    }
    (text,) = outputs
    assert f"kernel {name} (line 4)" in text.decode()
    shown = on_terminal("analyze", str(source), columns="40")
    assert max(map(len, shown.splitlines())) <= 40
    assert name in shown.replace("\n    ", "")
