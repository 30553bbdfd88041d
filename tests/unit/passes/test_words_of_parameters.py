"""Which words of parameters a kernel uses as addresses, stores, compares, reads or hides."""

from __future__ import annotations

import pytest

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.base_words import base_words, stored_words
from tessera.passes.kernel_facts.hidden_addresses import HiddenAddresses, hidden_addresses
from tessera.passes.kernel_facts.inline_calls import inline_calls
from tessera.passes.kernel_facts.kernel_code import prepare_kernel
from tessera.passes.kernel_facts.operand_names import known_meaning
from tessera.passes.kernel_facts.unneeded_parameters import unneeded_parameters

KERNEL = """.version 9.9
.target sm_90a
.address_size 64
.extern .func takes(.param .b64 a);
.extern .func vprintf(.param .b64 a);
.visible .entry k(.param .u64 y, .param .u64 x, .param .u32 n, .param .align 64 .b8 map[128])
{{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<20>;
    .reg .b64 %d<20>;
    .reg .f32 %f<4>;
    .reg .b128 %q<2>;
    .param .b64 a;
    .shared .align 16 .b8 sh[512];
    .local .align 16 .b8 own[64];
    ld.param.u64 %d1, [y];
    ld.param.u32 %r9, [n];
    {body}
    ret;
}}
"""


def of(body: str) -> tuple[ptx.Module, ptx.Function]:
    module = parse_module(KERNEL.format(body=body), "k.ptx")
    return module, module.definitions()["k"]


PROXY = ".tensormap::generic.release.gpu.sync.aligned"
OWN = "mov.u64 %d2, own; cvta.local.u64 %d2, %d2;"
BLOCK = "mov.u64 %d2, sh; cvta.shared.u64 %d2, %d2;"
USE = "ld.global.u32 %r1, [%d2];"
TENSOR = "cp.async.bulk.tensor.1d.shared::cta.global.tile.mbarrier::complete_tx::bytes"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("", {}),
        (f"ld.param.u64 %d2, [x]; {USE}", {"x": {0}}),
        ("st.global.u64 [%d1], %d1;", {"y": {0}}),
        ("ld.param.u64 %d2, [x]; st.global.u64 [%d1], %d2;", {"y": {0}, "x": {0}}),
        # A word at a place in a structure, the second of a vector, and any word of it.
        (f"ld.param.u64 %d2, [map+64]; {USE}", {"map": {64}}),
        (f"ld.param.v2.u64 {{%d3, %d2}}, [map+16]; {USE}", {"map": {24}}),
        (f"ld.param.v4.u32 {{%r3, %r4, %r5, %r6}}, [map]; cvt.u64.u32 %d2, %r6; {USE}",
         {"map": {12}}),
        (f"ld.param.v2.b16 {{%h1, %h2}}, [map+4]; cvt.u64.u16 %d2, %h2; {USE}", {"map": {6}}),
        (f"mov.u64 %d3, map; ld.param.u64 %d2, [%d3+8]; {USE}", {"map": None}),
        (f"mov.u64 %d3, map; add.u64 %d4, %d3, 8; ld.param.u64 %d2, [%d4]; {USE}", {"map": None}),
        (f"ld.param.u64 %d2, [map+(1/0)]; {USE}", {"map": None}),
        (f"ld.param._odd %d2, [map+8]; {USE}", {"map": None}),
        # A tensor map, by name or from memory.
        (f"{TENSOR} [sh], [map, {{%r1}}], [sh];", {"map": {0}}),
        (f"mov.u64 %d2, map; {TENSOR} [sh], [%d2, {{%r1}}], [sh];", {"map": {0}}),
        (f"ld.param.u64 %d2, [x]; {TENSOR} [sh], [%d2, {{%r1}}], [sh];", {"x": {0}}),
        (f"ld.param.u64 %d2, [map+8]; {TENSOR} [sh], [%d2, {{%r1}}], [sh];", {"map": {8}}),
        (f"ld.param.u32 %r1, [map+8]; {TENSOR} [sh], [map, {{%r1}}], [sh];", {"map": {0}}),
        # Nobody knows what an instruction does with an operand.
        ("ld.param.u64 %d2, [x]; _odd.b64 %d2, 5;", {"x": {0}}),
        ("ld.param.u64 %d2, [x]; cvt.u32.u64 %r1, %d2;", {}),
    ],
)  # fmt: skip
def test_words_that_reach_addresses(body: str, words: dict[str, set[int] | None]) -> None:
    known = dict[str, set[int] | None](y=set(), x=set(), n=set(), map=set()) | words
    if "[%d1]" in body:
        known["y"] = {0}
    assert base_words(*of(body)) == known


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("st.global.u64 [%d1], %d1;", {("y", 0)}),
        ("st.global.u64 [%d1], 5;", set()),
        ("st.global.u32 [%d1], %r9;", set()),
        ("cvt.u64.u32 %d2, %r9; st.global.u64 [%d1], %d2;", {("n", 0)}),
        ("ld.param.b128 %q1, [map]; st.global.b128 [%d1], %q1;", {("map", 0)}),
        ("ld.param.f64 %d2, [x]; st.global.f64 [%d1], %d2;", {("x", 0)}),
        ("cvt.u32.u64 %r1, %d1; st.global.u32 [%d1], %r1;", {("y", 0)}),
        ("cvt.u16.u64 %h1, %d1; st.global.u16 [%d1], %h1;", {("y", 0)}),
        ("cvt.u64.u32 %d2, %r9; st.global.u32 [%d1], %r9;", set()),
        ("ld.param.u16 %h1, [x+6]; st.global.u16 [%d1], %h1;", {("x", 6)}),
        ("ld.param.u8 %h1, [n+1]; st.global.u8 [%d1], %h1;", set()),
        ("ld.param.b32 %r1, [map+4]; st.global.u32 [%d1], %r1;", {("map", 4)}),
        ("atom.global.exch.b64 %d2, [%d1], %d1;", {("y", 0)}),
        ("red.global.add.u64 [%d1], %d1;", {("y", 0)}),
        ("mov.b64 {%r1, %r2}, %d1; st.global.u32 [%d1], %r2;", {("y", 0)}),
        ("st.local.u64 [own], %d1; ld.local.u64 %d2, [own]; st.u64 [%d1], %d2;", {("y", 0)}),
        ("st.shared.u64 [sh], %d1;", set()),
        ("st.param.b64 [a], %d1; call takes, (a);", {("y", 0)}),
        # Forms of a later version: what is loaded may be any part, what is stored may be all.
        ("ld.param._odd %r1, [x+4]; st.global.u32 [%d1], %r1;", {("x", None)}),
        ("cvt._odd %r1, %d1; st.global.u32 [%d4], %r1;", {("y", 0)}),
        (f"tensormap.cp_fenceproxy.global.shared::cta{PROXY} [%d1], [sh], 128;", set()),
        # Through memory: the same space, a generic address, a copy from memory to memory.
        (f"{OWN} st.local.u64 [own], %d1; ld.u64 %d3, [%d2]; st.u64 [%d1], %d3;", {("y", 0)}),
        (
            f"{OWN} st.u64 [%d2], %d1; ld.local.u64 %d3, [own]; st.global.u64 [%d4], %d3;",
            {("y", 0)},
        ),
        (
            f"{BLOCK} st.shared.u64 [sh], %d1; ld.u64 %d3, [%d2]; st.global.u64 [%d4], %d3;",
            {("y", 0)},
        ),
        (
            f"{BLOCK} st.u64 [%d2], %d1; ld.shared.u64 %d3, [sh]; st.global.u64 [%d4], %d3;",
            {("y", 0)},
        ),
        (
            "st.shared.u64 [sh], %d1; cp.async.bulk.global.shared::cta.bulk_group [%d4], [sh], 64;",
            {("y", 0)},
        ),
        (
            "st.shared.u64 [sh], %d1;"
            f"tensormap.cp_fenceproxy.global.shared::cta{PROXY} [%d4], [sh], 128;",
            {("y", 0)},
        ),
        (
            "st.shared.u32 [sh], %r9; cp.async.bulk.global.shared::cta.bulk_group [%d4], [sh], 64;",
            set(),
        ),
        ("st.local.u64 [own], %d1; call takes, (a);", {("y", 0)}),
        ("_odd.b64 %d2, %d1; st.global.u64 [%d4], %d2;", {("y", 0)}),
        ("_odd.b64 [%d4], %d1;", {("y", 0)}),
        ("st._odd [%d4], %d1;", {("y", 0)}),
        ("mul._odd.u64 %d2, %d1, %d1; st.global.u64 [%d4], %d2;", {("y", 0)}),
        ("mad._odd.u64 %d2, %d1, %d5, %d5; st.global.u64 [%d4], %d2;", {("y", 0)}),
        ("mul.lo.u64 %d2, %d1, %d1; st.global.u64 [%d4], %d2;", set()),
        ("mad.lo.u64 %d2, %d1, %d5, %d5; st.global.u64 [%d4], %d2;", set()),
    ],
)
def test_words_that_are_stored(body: str, words: set[tuple[str, int]]) -> None:
    assert {word for _, some in stored_words(*of(body)) for word in some} == words


@pytest.mark.parametrize(
    ("body", "valued"),
    [
        ("ld.global.u32 %r1, [%d2];", ""),
        ("add.u64 %d3, %d2, 8; st.global.u32 [%d3], 1;", ""),
        ("sub.u64 %d3, %d2, 8; st.global.u32 [%d3], 1;", ""),
        ("sub.u64 %d3, 8, %d2; st.global.u32 [%d3], 1;", "x"),
        ("mad.lo.u64 %d3, %d2, 8, 8; st.global.u32 [%d3], 1;", "x"),
        ("mul.lo.u64 %d3, %d2, 8; st.global.u32 [%d3], 1;", "x"),
        ("selp.b64 %d3, %d2, 8, %p1; st.global.u32 [%d3], 1;", ""),
        ("mov.b64 {%r1, %r2}, %d2;", "x"),
        ("setp.eq.u64 %p1, %d2, 0;", ""),
        ("setp.ne.u64 %p1, 0, %d2;", ""),
        ("setp.ne.u64 %p1, %d2, 4;", "x"),
        ("setp.gt.u64 %p1, %d2, 0;", "x"),
        ("setp.eq.u64 %p1, %d2, %d4;", "x"),
        ("ld.param.u32 %r1, [x];", "x"),
        ("ld.param.v2.u32 {%r1, %r2}, [x];", "x"),
        ("ld.param.v2.u64 {%d3, %d4}, [x];", "x"),
        ("ld.param.u64 %d3, [%d2];", "x"),
    ],
)
def test_parameters_that_are_more_than_bases(body: str, valued: str) -> None:
    module, function = of(f"ld.param.u64 %d2, [x]; {body}")
    found = prepare_kernel(module, function).valued_parameters
    assert found - {"n"} == set(valued.split())


@pytest.mark.parametrize(
    ("body", "unneeded"),
    [
        ("", "y x n map"),
        ("st.global.u32 [%d1], %r9;", "x n map"),
        ("ld.param.u64 %d2, [x]; st.global.u32 [%d2], %r9;", "y n map"),
        ("ld.param.u32 %r1, [x+4]; cvt.u64.u32 %d2, %r1; st.global.u32 [%d2], 1;", "y n map"),
        ("ld.param.u64 %d2, [map+120]; st.global.u32 [%d2], 1;", "y x n"),
        # A load past a parameter may be of any other.
        ("ld.param.u64 %d2, [map+121]; st.global.u32 [%d2], 1;", ""),
        ("ld.param.u64 %d2, [x+4]; st.global.u32 [%d2], 1;", ""),
        ("ld.param.u64 %d2, [x+-4]; st.global.u32 [%d2], 1;", ""),
        ("ld.param.u64 %d2, [n]; st.global.u32 [%d2], 1;", ""),
        ("ld.param.u64 %d2, [x+(1/0)]; st.global.u32 [%d2], 1;", ""),
        ("mov.u64 %d3, x; ld.param.u64 %d2, [%d3]; st.global.u32 [%d2], 1;", ""),
        ("_odd.u64 %d2, [x]; st.global.u32 [%d2], 1;", ""),
        ("ld.odd.u64 %d2, [x]; st.global.u32 [%d2], 1;", ""),
        (f"{TENSOR} [sh], [map, {{%r1}}], [sh];", ""),
    ],
)
def test_parameters_that_no_access_depends_on(body: str, unneeded: str) -> None:
    assert unneeded_parameters(prepare_kernel(*of(body))) == set(unneeded.split())


def hidden(body: str) -> tuple[HiddenAddresses, dict[str, int]]:
    """What a body hides, and the instruction that writes each register last."""
    module, function = of(body)
    flat = inline_calls(module, function)
    found = hidden_addresses(module, flat, [known_meaning(i) for i in flat.instructions])
    names = {
        operand.name: index
        for index, instruction in enumerate(flat.instructions)
        for operand in instruction.operands[:1]
        if isinstance(operand, ptx.Name)
    }
    return found, names


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("shr.u64 %d8, %d1, 3;", [("y", 0, 8)]),
        ("ld.param.u64 %d2, [map+16]; shr.u64 %d8, %d2, 3;", [("map", 16, 8)]),
        ("ld.param.v2.u64 {%d2, %d3}, [map+16]; shr.u64 %d8, %d2, 3;", [("map", 16, 16)]),
        ("ld.param.v2.u32 {%r1, %r2}, [map+16]; shr.u32 %d8, %r1, 3;", [("map", 16, 8)]),
        ("ld.param.u8 %h1, [map+16]; shr.u32 %d8, %h1, 3;", [("map", 16, 1)]),
        ("mov.u64 %d2, map; ld.param.u64 %d3, [%d2]; shr.u64 %d8, %d3, 3;", [("map", 0, -1)]),
        ("ld.param.u64 %d2, [map+(1/0)]; shr.u64 %d8, %d2, 3;", [("map", 0, -1)]),
        # Floats of 32 bits from nothing longer are numbers.
        ("ld.param.u64 %d2, [x]; cvt.rn.f32.u64 %f1, %d2; cvt.rni.u64.f32 %d8, %f1;", []),
        ("ld.param.u64 %d2, [x]; cvt.u32.u64 %r1, %d2; cvt.rn.f32.u32 %d8, %r1;", []),
        ("ld.param.u64 %d2, [x]; cvt.rn.f64.u64 %d8, %d2;", [("x", 0, 8)]),
        ("ld.param.u64 %d2, [x]; setp.eq.u64 %p3, %d2, %d1; selp.b64 %d8, 1, 2, %p3;", []),
        # Masks of eight bits on either side.
        ("and.b64 %d8, %d1, 255;", []),
        ("and.b64 %d8, %d1, 256;", [("y", 0, 8)]),
        ("and.b64 %d8, %d1, -256;", []),
        ("and.b64 %d8, %d1, -257;", [("y", 0, 8)]),
        ("and.b64 %d8, %d1, 0xFFFFFFFFFFFFFF00;", []),
        ("and.b64 %d8, %d1, 0xFFFFFFFFFFFFFEFF;", [("y", 0, 8)]),
        # A call may compute anything from what it is given; it prints or does not return if it has
        # the name of a function of the driver and no body.
        ("st.param.b64 [a], %d1; call takes, (a); ld.param.b64 %d8, [a];", [("y", 0, 8)]),
        ("st.param.b64 [a], %d1; call vprintf, (a); ld.param.b64 %d8, [a];", []),
        ("st.local.u64 [own], %d1; call takes, (a); ld.local.u64 %d8, [own];", [("y", 0, 8)]),
        # Addresses as operands of instructions that make other addresses of them.
        ("mapa.shared::cluster.u64 %d8, %d1, 0;", [("y", 0, 8)]),
        ("cvta.global.u64 %d8, %d1;", []),
    ],
)
def test_words_that_a_result_hides(body: str, words: list[tuple[str, int, int]]) -> None:
    found, names = hidden(body)
    bits = found.results.get(names["%d8"], 0)
    assert [word for number, word in enumerate(found.words) if bits >> 2 + number & 1] == words


def test_a_launch_hides_what_lies_at_its_words() -> None:
    words = (("x", 4, 8), ("gone", 0, 8), ("x", 0, -1), ("x", 0, 0))
    every = HiddenAddresses(words, {1: 1, 2: 2, 4: 4, 8: 8, 16: 16, 32: 32})
    assert HiddenAddresses(words).where({"x": 0}, [0], has_tables=True) == frozenset()
    assert every.where({"x": 100}, [], has_tables=False) == {1}
    assert every.where({"x": 100}, [], has_tables=True) == {1, 2}
    for pointer, is_hidden in ((96, False), (97, True), (111, True), (112, False)):
        given = every.where({"x": 100}, [pointer], has_tables=False)
        assert given - {32} == {1, 16} | ({4} if is_hidden else set())
    assert 8 not in every.where({"x": 100}, [0, 4, 100], has_tables=False)


def test_a_function_of_the_module_with_the_name_of_a_printer_does_not_print() -> None:
    own = ".func vprintf(.param .b64 a) {{ call vprintf, (a); }}"
    text = KERNEL.replace(".extern .func vprintf(.param .b64 a);", own)
    body = "st.param.b64 [a], %d1; call vprintf, (a); ld.param.b64 %d8, [a];"
    module = parse_module(text.format(body=body), "k.ptx")
    flat = inline_calls(module, module.definitions()["k"])
    found = hidden_addresses(module, flat, [known_meaning(i) for i in flat.instructions])
    last = max(n for n, i in enumerate(flat.instructions) if i.opcode.name == "ld")
    assert found.results[last] == 1 << 2 + found.words.index(("y", 0, 8))
