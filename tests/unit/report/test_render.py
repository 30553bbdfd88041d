"""Diagnostics as people and programs see them."""

from __future__ import annotations

import json
import tracemalloc

import pytest

from tessera.diagnostics import Diagnostic, Label, Severity, Source, Span, error, warning
from tessera.report.diagnostics import full, render_concise, render_full, render_json


def span(source: Source, token: str) -> Span:
    start = source.text.index(token)
    return Span(source, start, start + len(token))


def shown(text: str, token: str) -> list[str]:
    """The excerpt for a token: the line and the marker under it, gutters included."""
    source = Source("k.ptx", text)
    return full(error("TSR0000", "odd", span(source, token))).split("\n")[3:]


def test_the_example_of_the_style_guide() -> None:
    text = "\n" * 36 + "    ld.global.u32 %r7, [%rd4];\n\n\n\n    ld.global.f32 %f1, [%rd9];\n"
    source = Source("trace.ptx", text)
    found = error(
        "TSR2004",
        "load address depends on loaded data",
        span(source, "%rd9"),
        "read of buffer `%b2` has no static bound",
        secondary=(Label(span(source, "%r7"), "`%rd9` is computed from this value"),),
        notes=("treated as a read of all of `%b2` (4194304 bytes)",),
        hint="declare the range with `--assume b2:0..65536` if it is known",
    )
    assert full(found) == (
        "error[TSR2004]: load address depends on loaded data\n"
        "  --> trace.ptx:41:25\n"
        "   |\n"
        "37 |     ld.global.u32 %r7, [%rd4];\n"
        "   |                   --- `%rd9` is computed from this value\n"
        "41 |     ld.global.f32 %f1, [%rd9];\n"
        "   |                         ^^^^ read of buffer `%b2` has no static bound\n"
        "note: treated as a read of all of `%b2` (4194304 bytes)\n"
        "\n"
        "hint: declare the range with `--assume b2:0..65536` if it is known"
    )
    assert render_concise([found]) == (
        "trace.ptx:41:25: error[TSR2004] load address depends on loaded data"
    )


@pytest.mark.parametrize(
    ("text", "token", "line", "marker"),
    [
        ("\tmov\tBAD;", "BAD", "1 |     mov BAD;", "  |         ^^^"),
        ("a\tBAD", "BAD", "1 | a   BAD", "  |     ^^^"),
        ("鍵 BAD", "BAD", "1 | 鍵 BAD", "  |    ^^^"),
        ("e\u0301 BAD", "BAD", "1 | e\u0301 BAD", "  |   ^^^"),
        ("x \udce9 BAD", "BAD", "1 | x � BAD", "  |     ^^^"),
        ("\x1b[31m BAD", "BAD", "1 | �[31m BAD", "  |       ^^^"),
        ("\u202eBAD", "BAD", "1 | �BAD", "  |  ^^^"),
        ("BAD;\r\nx", "BAD", "1 | BAD;", "  | ^^^"),
        ("鍵", "鍵", "1 | 鍵", "  | ^^"),
    ],
    ids=["tabs", "tab", "wide", "combining", "byte", "escape", "bidi", "CRLF", "wide token"],
)
def test_caret_stands_under_the_token(text: str, token: str, line: str, marker: str) -> None:
    assert shown(text, token) == [line, marker]


def test_token_over_several_lines_is_marked_to_the_end_of_the_first() -> None:
    assert shown("a BAD\nWORSE", "BAD\nWORSE") == ["1 | a BAD", "  |   ^^^"]


def test_end_of_text() -> None:
    source = Source("k.ptx", "abc")
    assert full(error("TSR0000", "odd", Span(source, 3, 3))).split("\n")[3:] == [
        "1 | abc",
        "  |    ^",
    ]
    source = Source("k.ptx", "abc\n")
    assert full(error("TSR0000", "odd", Span(source, 4, 9))).split("\n")[1:] == [
        " --> k.ptx:2:1",
        "  |",
        "2 |",
        "  | ^",
    ]


def test_long_line_is_shown_around_the_token() -> None:
    line, marker = shown("x" * 500 + "BAD" + "y" * 500, "BAD")
    assert line == "1 | ..." + "x" * 40 + "BAD" + "y" * 57 + "..."
    assert marker == "  | " + " " * 43 + "^^^"


def test_long_line_with_the_token_near_an_end() -> None:
    line, marker = shown("BAD" + "y" * 500, "BAD")
    assert line == "1 | BAD" + "y" * 97 + "..."
    assert marker == "  | ^^^"
    line, marker = shown("x" * 500 + "BAD", "BAD")
    assert line == "1 | ..." + "x" * 97 + "BAD"
    assert marker == "  | " + " " * 100 + "^^^"


def test_a_line_of_20_megabytes_costs_little() -> None:
    source = Source("k.ptx", "x" * 20_000_000)
    found = [error("TSR0000", "odd", Span(source, n, n + 1)) for n in range(10_000_000, 10_000_020)]
    tracemalloc.start()
    try:
        assert len(render_full(found)) < 10_000
        assert tracemalloc.get_traced_memory()[1] < 2_000_000  # the line is never copied
    finally:
        tracemalloc.stop()


def test_labels_in_other_files_come_after() -> None:
    one, two = Source("one.ptx", "first\n"), Source("two.ptx", "\nsecond\n")
    found = error(
        "TSR0000", "odd", span(one, "first"), secondary=(Label(span(two, "second"), "see here"),)
    )
    assert full(found).split("\n")[1:] == [
        " --> one.ptx:1:1",
        "  |",
        "1 | first",
        "  | ^^^^^",
        " ::: two.ptx:2:1",
        "  |",
        "2 | second",
        "  | ------ see here",
    ]


def test_two_labels_on_a_line_share_it() -> None:
    source = Source("k.ptx", "add a, b;")
    found = error(
        "TSR0000", "odd", span(source, "b"), "this", secondary=(Label(span(source, "a,")),)
    )
    assert full(found).split("\n")[3:] == ["1 | add a, b;", "  |     --", "  |        ^ this"]


def test_lines_of_a_module_inside_a_trace_count_from_its_first_line() -> None:
    source = Source("t.ptx", "x\nBAD", first_line=99)
    assert full(error("TSR0000", "odd", span(source, "BAD"))).split("\n")[1:] == [
        "   --> t.ptx:100:1",
        "    |",
        "100 | BAD",
        "    | ^^^",
    ]


def test_no_place() -> None:
    found = error("TSR0000", "odd", notes=("one\ntwo",))
    assert full(found) == "error[TSR0000]: odd\nnote: one\n      two"
    assert render_concise([found]) == "error[TSR0000] odd"


def test_control_characters_in_messages_are_not_printed() -> None:
    found = error("TSR0000", "odd `\x1b[31m`\nline", notes=("\x07",), hint="\x9b")
    assert "\x1b" not in full(found) + render_concise([found])
    assert "\x07" not in full(found)
    assert "\x9b" not in full(found)
    assert "\n" not in render_concise([found])


def test_sorted_by_position_with_the_placeless_last() -> None:
    source = Source("k.ptx", "a b c")
    found = [
        error("TSR0009", "nowhere"),
        error("TSR0003", "c", span(source, "c")),
        error("TSR0001", "a", span(source, "a")),
        warning("TSR0002", "b", span(source, "b")),
    ]
    codes = [line.split("[")[1][:7] for line in render_concise(found).split("\n")]
    assert codes == ["TSR0001", "TSR0002", "TSR0003", "TSR0009"]


def test_at_most_twenty_and_errors_before_warnings() -> None:
    source = Source("k.ptx", "x" * 100)
    warnings = [warning("TSR0001", "w", Span(source, n, n + 1)) for n in range(30)]
    errors = [error("TSR0002", "e", Span(source, 50 + n, 51 + n)) for n in range(3)]
    lines = render_concise([*errors, *warnings]).split("\n")
    assert len(lines) == 21
    assert lines[-1] == "and 13 more"
    assert sum("TSR0002" in line for line in lines) == 3
    assert render_full(errors * 10).endswith("\n\nand 10 more")


def test_color() -> None:
    source = Source("k.ptx", "BAD")
    found = error("TSR0000", "odd", span(source, "BAD"), "this", hint="do that")
    assert "\x1b" not in full(found)
    assert full(found, color=True).startswith("\x1b[1;31merror[TSR0000]\x1b[0m")


def test_json() -> None:
    source = Source("k.ptx", "one\nBAD \udce9")
    found = Diagnostic(
        code="TSR0000",
        severity=Severity.WARNING,
        headline="odd \udce9",
        primary=Label(span(source, "BAD"), "this"),
        secondary=(Label(span(source, "one")),),
        notes=("a",),
        hint=None,
    )
    assert json.loads(render_json([found])) == {
        "code": "TSR0000",
        "severity": "warning",
        "headline": "odd \udce9",
        "primary": {
            "file": "k.ptx",
            "line": 2,
            "column": 1,
            "end_line": 2,
            "end_column": 4,
            "text": "this",
        },
        "secondary": [
            {
                "file": "k.ptx",
                "line": 1,
                "column": 1,
                "end_line": 1,
                "end_column": 4,
                "text": "",
            }
        ],
        "notes": ["a"],
        "hint": None,
    }
    assert len(render_json([found] * 30).split("\n")) == 30
