"""Laws of the trace format over generated programs and mangled texts."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics import Severity, Source
from tessera.frontend.trace import parse_record as trace_syntax
from tessera.frontend.trace.grammar import parse_by_grammar, trace_parser
from tessera.frontend.trace.parse_record import parse_record, parse_value, plain_argument
from tessera.frontend.trace.read_trace import examine_trace, parse_trace
from tessera.frontend.trace.syntax import AddressSyntax, ScalarSyntax, Token
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import Program, Scalar
from tessera.ir.program.scalar_text import scalar_bits, scalar_text
from tests.property.strategies import programs, scalars

TRACE = (Path(__file__).parents[2] / "examples" / "traces" / "mlp.ptx").read_text()


@given(programs())
def test_reading_what_was_printed_gives_the_same_program(program: Program) -> None:
    text = print_program(program)
    again = parse_trace(text)
    assert again == program
    assert print_program(again) == text


@given(programs())
def test_line_ends_comments_and_space_change_no_record(program: Program) -> None:
    lines = print_program(program).split("\n")
    noisy = [line + " // note" if line.startswith("//!") else line for line in lines]
    noisy = [line.replace("//! ", "//!\t  ", 1) for line in noisy]
    assert parse_trace("\n".join(noisy)) == program
    in_crlf = parse_trace("\r\n".join(lines))
    assert in_crlf.steps == program.steps
    assert in_crlf.buffers == program.buffers


@given(programs())
def test_a_record_is_the_same_by_pattern_and_by_grammar(program: Program) -> None:
    for line in print_program(program).split("\n"):
        if not line.startswith("//! "):
            continue
        names, fields = parse_record(line[3:])
        slow_names, slow_fields = trace_syntax._parse_record_by_grammar(line[3:])
        assert fields == slow_fields
        assert names == slow_names
        assert [n.start_pos for n in names] == [n.start_pos for n in slow_names]


PIECES = [
    "x",
    "y+64",
    "+",
    ":",
    "u32",
    "f32:1.5",
    "b8",
    "[8]",
    "-1",
    "0x10",
    "@{8:x}",
    "$a.b",
    "007",
    "1e5",
    "nan",
    "é",
]
JUNK = [*'=[]{+,\n\0é-x :"', "", "9" * 30, "//", "@{", "\udce4"]


@given(st.lists(st.sampled_from([*PIECES, " "]), min_size=1, max_size=4).map("".join))
def test_an_argument_is_the_same_by_pattern_and_by_grammar(text: str) -> None:
    text = text.strip()
    plain = plain_argument(text)
    if plain is None:
        return
    syntax = parse_value("argument", text)
    if isinstance(syntax, AddressSyntax):
        assert plain == (syntax.buffer, "+", syntax.offset or "0")
    else:
        assert isinstance(syntax, ScalarSyntax)
        assert plain == (syntax.type, ":", syntax.value)


VALUE_PIECES = ["0", "7", "64", "0x10", "-1", "007", "x", ",", "+", "a", "b.c", " ", "é", "//"]


@given(
    st.sampled_from(["integer", "triple", "shape", "address"]),
    st.lists(st.sampled_from(VALUE_PIECES), max_size=6).map("".join),
)
def test_a_value_is_the_same_by_pattern_and_by_grammar(rule: str, text: str) -> None:
    plain = trace_syntax._plain_value(rule, text)
    if plain is not None:
        slow = parse_by_grammar(text, rule)
        assert plain == slow
        assert _places(plain) == _places(slow)


def _places(syntax: object) -> list[tuple[str, int, int]]:
    if isinstance(syntax, Token):
        return [(syntax.type, syntax.start_pos, syntax.end_pos)]
    return [place for part in syntax for place in _places(part)] if syntax else []  # type: ignore[attr-defined]


@given(
    st.sampled_from(
        ["buffer", "launch", "memcpy", "pointers", "resident", "tessera.trace", "wait"]
    ),
    st.lists(
        st.sampled_from(["x", "y+6", "m.k", "1", "@{0:a}", "a=1", "b=[ c ]", "  ", "//", "="]),
        max_size=5,
    ),
    st.sampled_from([" ", ""]),
)
def test_a_line_is_the_same_by_pattern_and_by_grammar(
    word: str, rest: list[str], blank: str
) -> None:
    text = " " + " ".join([word, blank.join(rest)])
    plain = trace_syntax._plain_record(text)
    if plain is not None:
        slow = trace_syntax._parse_record_by_grammar(text)
        assert plain == slow
        assert [_places(name) for name in plain[0]] == [_places(name) for name in slow[0]]


def test_terminals_are_those_that_lark_reads() -> None:
    ours = trace_syntax.terminals()
    for name in ours.keys() - {"STRING"}:  # Lark turns its escapes into characters
        assert trace_parser().get_terminal(name).pattern.to_regexp() == ours[name]


@given(scalars)
def test_scalars_keep_their_bits(scalar: Scalar) -> None:
    assert scalar_bits(scalar.type, scalar_text(scalar.type, scalar.bits)) == scalar.bits


@given(st.data())
def test_mangled_traces_are_read_or_refused_with_places(data: st.DataObject) -> None:
    text = TRACE
    for _ in range(data.draw(st.integers(1, 4))):
        records = [m.span() for m in re.finditer(r"^//![^\n]*", text, re.MULTILINE)]
        if not records:
            break
        start, end = data.draw(st.sampled_from(records))
        at = data.draw(st.integers(start, end))
        length = data.draw(st.integers(0, 6))
        junk = data.draw(st.sampled_from(JUNK))
        text = text[:at] + junk + text[at + length :]
    reading = examine_trace(Source("mangled.ptx", text))
    if reading.program is not None:
        printed = print_program(reading.program)
        assert parse_trace(printed) == reading.program
        return
    for diagnostic in reading.diagnostics:
        assert diagnostic.primary is not None
        span = diagnostic.primary.span
        assert 0 <= span.start <= len(span.source.text)
        assert span.start < span.end


@given(st.text(alphabet='//! \n\tbufermodlanchxy=+,:[]{}@"0123456789.$_-', max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    for candidate in (text, "//! tessera.trace 1\n//! " + text):
        reading = examine_trace(Source("any.ptx", candidate))
        assert (reading.program is None) == any(
            d.severity is Severity.ERROR for d in reading.diagnostics
        )
