"""Reading, verifying, printing and summarising PTX takes operations linear in the text."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.ptx import outline
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx.print_ptx import print_module
from tessera.passes.kernel_facts.call_graph import call_reach
from tessera.passes.kernel_facts.summarise_program import summarise_module
from tests.helpers.operations import growth

pytestmark = pytest.mark.slow
MOST = 13.0
"""Ten times the text may take thirteen times the operations: sorting has a logarithm in it."""

LEAST = 400

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def repeated(text: Callable[[int], str], before: str = "", after: str = "") -> Callable[[int], str]:
    return lambda n: HEAD + before + "".join(map(text, range(n))) + after


def in_kernel(text: Callable[[int], str], before: str = "") -> Callable[[int], str]:
    return repeated(text, ".visible .entry k()\n{\n" + before, "ret;\n}\n")


REGISTERS = ".reg .pred %p<4>;\n.reg .b32 %r<9>;\n"
SHAPES: dict[str, Callable[[int], str]] = {
    "declarations": repeated(lambda i: f".global .align 4 .b8 g{i}[4];\n"),
    "initialised": repeated(lambda i: f".global .u32 g{i}[2] = {{{i}, 7}};\n"),
    "pointers": repeated(lambda i: f".global .u64 q{i} = g;\n", ".global .u32 g;\n"),
    "elements": repeated(lambda i: f"{i}, ", ".global .u32 t[] = {", "0};\n"),
    "symbols": repeated(lambda i: "g, ", ".global .u32 g;\n.global .u64 t[] = {", "0};\n"),
    "terms": repeated(lambda i: "1+", ".global .u32 t = ", "0;\n"),
    "instructions": in_kernel(lambda i: f"add.s32 %r{i % 8}, %r1, {i};\n", REGISTERS),
    "one line": in_kernel(lambda i: f"add.s32 %r{i % 8}, %r1, 1; ", REGISTERS),
    "long line": in_kernel(lambda i: "add.s32 %r1, %r1, 1;" + " " * 100, REGISTERS),
    "expressions": in_kernel(lambda i: f"mov.u32 %r1, 1 + {i};\n", REGISTERS),
    "labels": in_kernel(lambda i: f"L{i}: add.s32 %r1, %r1, 1;\n", REGISTERS),
    "branches": in_kernel(lambda i: f"L{i}: @%p1 bra L{i};\n", REGISTERS),
    "registers": in_kernel(lambda i: f".reg .b32 %a{i};\n"),
    "register list": repeated(
        lambda i: f"%a{i}, ", ".visible .entry k() { .reg .b32 ", "%b; ret; }\n"
    ),
    "ranges": in_kernel(lambda i: f".reg .b32 %a{i}_<9>;\nmov.u32 %a{i}_3, 1;\n"),
    "locations": in_kernel(lambda i: f".loc 1 {i} 3\nadd.s32 %r1, %r1, 1;\n", REGISTERS),
    "blocks": in_kernel(lambda i: f"{{ .reg .b32 %t; mov.u32 %t, {i}; }}\n"),
    "comments": in_kernel(lambda i: f"// {i}; }} {{\n"),
    "a comment": repeated(lambda i: f"line {i}; }}\n", "/*", "*/"),
    "files": repeated(lambda i: f'.file {i} "a{i}.cu"\n'),
    "section": repeated(lambda i: f".b8 {i % 256}\n", ".section .debug_info {\n", "}\n"),
    "sections": repeated(lambda i: f".section .debug_{i} {{ .b8 1 }}\n"),
    "functions": repeated(lambda i: f".func f{i}() {{ ret; }}\n"),
    "chain": repeated(
        lambda i: f".func f{i + 1}() {{ call f{i}; ret; }}\n", ".func f0() { ret; }\n"
    ),
    "prototypes": repeated(lambda i: f".extern .func f{i}();\n"),
    "aliases": repeated(lambda i: f".alias a{i}, f;\n", ".func f() { ret; }\n"),
    "parameters": repeated(
        lambda i: f".param .u32 p{i},\n", ".visible .entry k(", ".param .u32 q) { ret; }\n"
    ),
    "pragmas": in_kernel(lambda i: '.pragma "nounroll";\n'),
    "a string": repeated(lambda i: "abc; ", '.file 1 "', '"\n'),
    "faults": in_kernel(lambda i: "add.s32 %r1, %q;\n", REGISTERS),
    "syntax faults": in_kernel(lambda i: "add.s32 %r1,, %r1;\n", REGISTERS),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_reading_is_linear(shape: str) -> None:
    def make(size: int) -> Callable[[], object]:
        text = SHAPES[shape](size)

        def read() -> None:
            outline.forget()
            with contextlib.suppress(TesseraError):
                parse_module(text)

        return read

    assert max(growth(make, LEAST)) < MOST


# Texts with which an expression could look at the same characters again and again.
HOSTILE: dict[str, Callable[[int], str]] = {
    "comments without an end": in_kernel(lambda i: "/* ", REGISTERS),
    "stars": repeated(lambda i: "*", ".func f() { /*"),
    "quotes": in_kernel(lambda i: '"a;', REGISTERS),
    "blanks": repeated(lambda i: " ", ".func f() {"),
    "dollars": in_kernel(lambda i: "$", REGISTERS),
    "digits": in_kernel(lambda i: "9", REGISTERS),
    "colons": in_kernel(lambda i: "a:", REGISTERS),
    "places": in_kernel(lambda i: ".loc 1 2 3 ,", REGISTERS),
    "open braces": repeated(lambda i: "\n{\n", ".func f() {"),
    "closing lines": repeated(lambda i: "\n}\n", ".func f() {"),
    "open vectors": in_kernel(lambda i: "mov.b64 x, {%r1,", REGISTERS),
    "open addresses": repeated(lambda i: ".func f() { x [%r1+4,"),
    "open tables": repeated(lambda i: ".global .u64 t[] = {generic(g)+4,"),
    "open prototypes": in_kernel(lambda i: "p: .callprototype (.param .b32 _, "),
    "open targets": in_kernel(lambda i: "t: .branchtargets a, b, "),
    "open functions": repeated(lambda i: f".func f{i}() {{ {{\n"),
    "functions on one line": repeated(lambda i: f".func f{i}() {{ {{ ret; }} }} ", "", "\n}"),
    "labels in blocks": repeated(lambda i: f"{{ $L{i}: ret; }}", ".func f() {", "}"),
    "late declarations": repeated(
        lambda i: f"mov.b32 %x, 1; .reg .b32 %a{i};", ".func f() { .reg .b32 %x;", "}"
    ),
    "wide ranges": repeated(lambda i: f".reg .b32 %a{i}x<99999999>;", ".func f() {", "}"),
    "blocks in blocks": repeated(lambda i: "{" * 19 + "ret;" + "}" * 19, ".func f() {", "}"),
}


@pytest.mark.parametrize("shape", HOSTILE)
def test_hostile_text_is_read_in_linear_time(shape: str) -> None:
    def took(size: int) -> float:
        text, start = HOSTILE[shape](size), time.process_time()
        with contextlib.suppress(TesseraError):
            parse_module(text)
        return time.process_time() - start

    took(2_000)
    assert took(16_000) < 20 * took(2_000) + 0.2, "eight times the text"


@pytest.mark.parametrize("shape", sorted(set(SHAPES) - {"faults", "syntax faults"}))
def test_printing_and_summarising_are_linear(shape: str) -> None:
    def make(size: int) -> Callable[[], object]:
        module = parse_module(SHAPES[shape](size))
        return lambda: (print_module(module), summarise_module(module))

    assert max(growth(make, 200)) < MOST


def test_what_calls_that_stay_can_touch_is_found_in_linear_time() -> None:
    chain = repeated(
        lambda i: f".func f{i + 1}() {{ call f{i}; ret; }}\n",
        ".func f0();\n",
        ".visible .entry k() { ret; }\n",
    )

    def make(size: int) -> Callable[[], object]:
        from tessera.ir.ptx.flatten import flatten

        module = parse_module(chain(size))
        flat = flatten(next(f for f in module.functions() if f.name == f"f{size}"))
        return lambda: call_reach(module, flat)

    assert max(growth(make, 200)) < MOST
