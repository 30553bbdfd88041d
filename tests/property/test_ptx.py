"""Laws of the PTX frontend over generated modules."""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from tessera.diagnostics import Source, TesseraError
from tessera.frontend.cache.cache_codec import (
    decode_body,
    decode_record,
    encode_body,
    encode_record,
)
from tessera.frontend.ptx.read_ptx import parse_source
from tessera.frontend.ptx.scan import scan_module
from tessera.frontend.ptx.statement_runs import RunSplitter
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.locate import locate_parts
from tessera.ir.ptx.print_ptx import print_module, print_operand
from tests.property.ptx_strategies import instructions, modules

VERDICTS = Path(__file__).parents[1] / "data" / "opcodes" / "verdicts.txt"
RECORDED = [line.split(" ", 3)[3] for line in VERDICTS.read_text().splitlines()[1:]]
GAPS = [" ", "\n", "\t\t", " /* c */", ' // c ; { "\n', "\r\n", " /**/ /***/", "  \n \n"]


def parse(text: str, *, with_runs: bool = True) -> ptx.Module:
    return parse_source(Source("generated.ptx", text), with_runs=with_runs)


@given(modules)
def test_parsing_what_was_printed_gives_the_same_module(module: ptx.Module) -> None:
    text = print_module(module)
    assert parse(text) == module
    assert print_module(parse(text)) == text


@given(modules)
def test_the_fast_way_reads_what_the_token_grammar_reads(module: ptx.Module) -> None:
    text = print_module(module)
    fast, slow = parse(text), parse(text, with_runs=False)
    assert fast == slow
    assert positions(fast) == positions(slow)


def outcome(text: str, *, with_runs: bool) -> ptx.Module | list[str]:
    try:
        return parse(text, with_runs=with_runs)
    except TesseraError as failure:
        return [fault.code for fault in failure.diagnostics]


@given(st.lists(st.sampled_from(RECORDED), min_size=1, max_size=20))
def test_the_fast_way_reads_new_forms_as_the_token_grammar_does(statements: list[str]) -> None:
    head = ".version 9.4\n.target sm_107a\n.address_size 64\n.entry kernel() {\n"
    text = head + "\n".join(statements) + "\n}\n"
    assert outcome(text, with_runs=True) == outcome(text, with_runs=False)


TABLES_AND_AIMS = """.version 8.0
.target sm_80
.address_size 64
.global .u32 g;
.global .attribute(.managed) .align 4 .u32 counter = 5;
.global .align 8 .u64 t[6] = {generic(g), generic ( g ) + 8 , g + 4,g,-4, 9223372036854775808};
.global .u64 one = g ;
.weak .global .u64 two = generic(g)+0x10;
.global .f32 three[2] = {0F3F800000, 1e5};
.visible .entry k(.param .b32 n)
{
  P0: .callprototype _ ();
  P1 : .callprototype (.param .align 8 .b8 _[16]) _ (.param .b64 _, .param .b32 y);
  P2: .callprototype ()_;
  P3: .callprototype _;
  T: .branchtargets A, $B ,C;
  L: U: .calltargets A;
  A: $B: C: ret;
}
"""
SPOILT = [*" _,;:(){}+.gx0[=-", '"', "+4", "generic", "()", ".param", "/*c*/", "[4]", "_ ()"]


def test_tables_of_symbols_and_aims_of_calls_need_no_grammar() -> None:
    source = Source("t.ptx", TABLES_AND_AIMS)
    fast = scan_module(source, RunSplitter(), lambda start, end: None)
    slow = parse_source(source, with_runs=False)
    assert fast is not None
    assert fast == slow
    assert positions(fast) == positions(slow)
    aims = [s for s in next(fast.kernels()).body or () if isinstance(s, ptx.CallPrototype)]
    assert [parameter.at for parameter in aims[1].parameters] == [
        TABLES_AND_AIMS.index(word) for word in (".param .b64 _,", ".param .b32 y")
    ]


@given(st.sampled_from(range(50, len(TABLES_AND_AIMS))), st.sampled_from(SPOILT), st.booleans())
def test_what_is_not_quite_a_table_or_an_aim_is_left_to_the_grammar(
    at: int, word: str, replaces: bool
) -> None:
    text = TABLES_AND_AIMS[:at] + word + TABLES_AND_AIMS[at + replaces :]
    fast = scan_module(Source("t.ptx", text), RunSplitter(), lambda start, end: None)
    if fast is not None:
        assert fast == parse(text, with_runs=False)


@given(modules, st.data())
def test_whitespace_and_comments_change_nothing(module: ptx.Module, data: st.DataObject) -> None:
    text = print_module(module)
    noisy = [
        data.draw(st.sampled_from(GAPS)) if part == " " or part == "\n" else part
        for part in re.split(r'("[^"\n]*"|\.version[^\n]*\n| |\n)', text)
    ]
    assert parse("".join(noisy)) == module


@given(modules)
def test_the_cache_gives_back_what_it_was_given(module: ptx.Module) -> None:
    for item in parse(print_module(module)).items:
        if isinstance(item, ptx.Function) and item.body is not None:
            again = decode_body(encode_body(item.body))
            assert again == item.body
            assert [s.at for s in again] == [s.at for s in item.body]
        else:
            assert decode_record(encode_record(item)) == item


@given(instructions)
def test_operands_are_found_again_in_the_text(instruction: ptx.Instruction) -> None:
    module = ptx.Module(
        version=(8, 0),
        target=("sm_80",),
        address_size=64,
        items=(ptx.Function(is_entry=True, name="k", body=(instruction,)),),
    )
    text = print_module(module)
    at = next(parse(text).kernels()).body[0].at  # type: ignore[index, union-attr]
    parts = locate_parts(text, at)
    assert text[slice(*parts.opcode)] == str(instruction.opcode)
    assert [text[slice(*place)] for place in parts.operands] == [
        print_operand(operand) for operand in instruction.operands
    ]


def positions(module: ptx.Module) -> list[int]:
    return [
        statement.at
        for function in module.functions()
        for statement in ptx.walk_statements(function.body or ())
    ]
