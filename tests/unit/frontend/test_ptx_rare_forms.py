"""Old and rare PTX that ptxas accepts, and so do we; printed, it reads the same."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.print_ptx import print_module

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
OPAQUE_POINTERS = (
    ".version 4.3\n.target sm_30, texmode_independent\n.address_size 64\n"
    ".visible .entry k(.param .u64 .ptr .texref t, .param .u64 .ptr .samplerref s,\n"
    "  .param .u64 .ptr .surfref u) { ret; }\n"
)
DEBUG_STRING = HEAD + (
    '.file 1 "a.cu"\n.visible .entry k() {\n'
    ".loc 1 4 1, function_name .debug_str+2, inlined_at 1 3 5\nret;\n}\n"
    ".section .debug_str {\n.b8 65,0,102,111,0\n}\n"
)
BANK = (
    ".version 2.1\n.target sm_20\n.extern .const[2] .align 4 .b32 buffer[];\n"
    ".entry k(.param .u32 p) { .reg .b32 r<3>; ld.param.u32 r2, [p];\n"
    "ld.const[2].b32 r1, [buffer+4]; st.global.b32 [r2], r1; exit; }\n"
)


@pytest.mark.parametrize("text", [OPAQUE_POINTERS, DEBUG_STRING, BANK])
def test_it_is_read_and_printed(text: str) -> None:
    module = parse_module(text)
    assert parse_module(print_module(module)) == module


def test_what_the_records_say() -> None:
    kernel = next(parse_module(OPAQUE_POINTERS).kernels())
    spaces = [parameter.pointer_space for parameter in kernel.parameters]
    assert spaces == ["texref", "samplerref", "surfref"]
    statements = next(parse_module(DEBUG_STRING).kernels()).body or ()
    location = statements[0]
    assert isinstance(location, ptx.Location)
    assert (location.function_name, location.function_offset) == (".debug_str", 2)
    load = (next(parse_module(BANK).kernels()).body or ())[2]
    assert isinstance(load, ptx.Instruction)
    assert load.opcode.modifiers == ("const[2]", "b32")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("+".join(["1"] * 5_000), 5_000),
        ("1" + "-1" * 5_000, 1 - 5_000),
        ("-(" * 5_000 + "7" + ")" * 5_000, 7),
        ("(" * 5_000 + "7" + ")" * 5_000, 7),
        ("0 ? 1 : " * 5_000 + "3", 3),
        ("~" * 5_001 + "1", -2),
        ("(.u64)" * 5_000 + "5", 5),
    ],
)
def test_expressions_of_any_depth(expression: str, value: int) -> None:
    from tessera.ir.ptx.constants import integer_value

    module = parse_module(f"{HEAD}.global .u64 x = {expression};\n")
    assert parse_module(print_module(module)) == module
    (variable,) = module.variables()
    assert not isinstance(variable.initializer, ptx.InitializerList | ptx.InitializerField | None)
    assert integer_value(variable.initializer) == value


def test_a_long_sum_on_a_symbol_keeps_the_symbol() -> None:
    module = parse_module(f"{HEAD}.global .u32 w[9];\n.global .u64 x = w{'+1' * 5_000};\n")
    _, variable = module.variables()
    initializer, total = variable.initializer, 0
    while isinstance(initializer, ptx.Binary):
        assert isinstance(initializer.right, ptx.Integer)
        total, initializer = total + initializer.right.value, initializer.left
    assert (initializer, total) == (ptx.Name("w"), 5_000)


def test_marks_and_ends_of_files_in_texts() -> None:
    assert parse_module(f"\ufeff{HEAD}\0\0") == parse_module(HEAD)
    assert parse_trace(f"\ufeff{HEAD}\0").modules == parse_trace(HEAD).modules
