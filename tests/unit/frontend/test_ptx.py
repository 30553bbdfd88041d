"""What the PTX reader makes of each form, and how it refuses what is none."""

from __future__ import annotations

import time

import pytest

from tessera.diagnostics import Source, TesseraError, summarise
from tessera.frontend.ptx.read_ptx import parse_module, parse_source
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value
from tessera.ir.ptx.print_ptx import print_module

HEADER = ".version 8.4\n.target sm_90a\n.address_size 64\n"


def statements(text: str, *, with_runs: bool = True) -> tuple[ptx.Statement, ...]:
    source = Source("t.ptx", f"{HEADER}.entry k() {{\n{text}\n}}\n")
    body = next(parse_source(source, with_runs=with_runs).kernels()).body
    assert body is not None
    return body


def instruction(text: str) -> ptx.Instruction:
    (fast,), (slow,) = statements(text), statements(text, with_runs=False)
    assert fast == slow
    assert isinstance(fast, ptx.Instruction)
    return fast


def faults(text: str) -> list[str]:
    with pytest.raises(TesseraError) as caught:
        parse_module(text, "t.ptx")
    return [summarise(diagnostic) for diagnostic in caught.value.diagnostics]


def body_faults(text: str) -> list[str]:
    head = ".entry k() { .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;\n"
    return [fault.removeprefix("t.ptx:") for fault in faults(f"{HEADER}{head}{text}\nret; }}\n")]


NAME = ptx.Name


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("%r1", NAME("%r1")),
        ("%tid.x", NAME("%tid", "x")),
        ("_", ptx.Sink()),
        ("-7", ptx.Integer("-7", -7)),
        ("- 7", ptx.Integer("-7", -7)),
        ("0xFFU", ptx.Integer("0xFFU", 255)),
        ("017", ptx.Integer("017", 15)),
        ("0b101", ptx.Integer("0b101", 5)),
        ("0f3F800000", ptx.Float("0f3F800000", 0x3F800000, 32)),
        ("1.5", ptx.Float("1.5", 0x3FF8000000000000, 64)),
        ("-1e3", ptx.Float("-1e3", 0xC08F400000000000, 64)),
        ("!%p1", ptx.Not(NAME("%p1"))),
        ("! %p1", ptx.Not(NAME("%p1"))),
        ("-%r1", ptx.Negated(NAME("%r1"))),
        ("%p1|%p2", ptx.Pair(NAME("%p1"), NAME("%p2"))),
        ("_ | %p2", ptx.Pair(ptx.Sink(), NAME("%p2"))),
        ("{%r1, _, 3}", ptx.Vector((NAME("%r1"), ptx.Sink(), ptx.Integer("3", 3)))),
        ("{a}|%p", ptx.Pair(ptx.Vector((NAME("a"),)), NAME("%p"))),
        ("[%rd1]", ptx.Address((NAME("%rd1"),))),
        ("[%rd1].unified", ptx.Address((NAME("%rd1"),), "unified")),
        ("[ %rd1 + -8 ]", ptx.Address((ptx.Offset(NAME("%rd1"), ptx.Integer("-8", -8)),))),
        ("[16]", ptx.Address((ptx.Integer("16", 16),))),
        ("[m, {%r1, %r2}]", ptx.Address((NAME("m"), ptx.Vector((NAME("%r1"), NAME("%r2")))))),
        ("a[%r1+4]", ptx.Subscript("a", ptx.Offset(NAME("%r1"), ptx.Integer("4", 4)))),
        ("a+4", ptx.Offset(NAME("a"), ptx.Integer("4", 4))),
    ],
)
def test_operands(text: str, operand: ptx.Operand) -> None:
    assert instruction(f"foo.bar {text}, %r1;").operands == (operand, NAME("%r1"))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("((128>>4)<<16)", 8 << 16),
        ("2*3+4", 10),
        ("2+3*4", 14),
        ("-(4)", -4),
        ("~0", -1),
        ("!5", 0),
        ("1 ? 2 : 3", 2),
        ("0 ? 2 : 0 ? 3 : 4", 4),
        ("(.u64)-1", (1 << 64) - 1),
        ("7 / -2", -3),
        ("-7 % 3", -1),
        ("WARP_SZ - 1", 31),
        ("1 == 1 && 2 < 1", 0),
        ("0xFFFFFFFFFFFFFFFF >> 60", 15),
        ("-1 >> 60", -1),
        ("1 | 2 ^ 3 & 4", 3),
    ],
)
def test_constant_expressions(text: str, value: int) -> None:
    constant = instruction(f"mov.b64 %rd1, {text};").operands[1]
    assert integer_value(constant) == value  # type: ignore[arg-type]


def test_a_float_may_start_with_its_point() -> None:
    operands = instruction("mov.f32 %r1, .5;").operands
    assert operands[1] == ptx.Float("0.5", 0x3FE0000000000000, 64)


def test_calls_keep_their_groups() -> None:
    operands = instruction("call.uni (r0), f, (3, %r1), proto;").operands
    results = ptx.Group((NAME("r0"),))
    arguments = ptx.Group((ptx.Integer("3", 3), NAME("%r1")))
    assert operands == (results, NAME("f"), arguments, NAME("proto"))
    assert instruction("call f, ();").operands == (NAME("f"), ptx.Group(()))
    assert instruction("call (_), f, (4);").operands[2] == ptx.Group((ptx.Integer("4", 4),))


def test_opcodes_may_be_spaced_and_unknown() -> None:
    guarded = instruction("@ ! %p1 cp .async.bulk.2d . foo::bar::8B.v8 [x];".replace(" . ", " ."))
    assert guarded.guard == ptx.Guard("%p1", True)
    assert guarded.opcode == ptx.Opcode("cp", ("async", "bulk", "2d", "foo::bar::8B", "v8"))


def test_declarations_are_one_record_per_name() -> None:
    registers = statements(".reg .b32 %r<4>, a; .reg .v2 .f32 v;")
    assert [(v.name, v.count, v.vector) for v in registers if isinstance(v, ptx.Variable)] == [
        ("%r", 4, None),
        ("a", None, None),
        ("v", None, 2),
    ]


def test_module_scope() -> None:
    module = parse_module(
        HEADER
        + """
        .file 1 "a b.cu", 1234, 56
        .extern .shared .align 16 .b8 dynamic[];
        .global .u32 q[4];
        .visible .global .attribute(.managed) .align 8 .u64 p[2] = {generic(q)+8, 0};
        .global .samplerref s = { addr_mode_0 = clamp_to_edge, filter_mode = nearest };
        .weak .func (.param .b32 r) f (.param .b32 x) .noreturn ;
        .alias f2, f;
        .pragma "nounroll";
        .section .debug_str { info: .b8 1, 2
        .b32 info + 4 }
        .target sm_90
    """
    )
    kinds = [type(item).__name__ for item in module.items]
    assert kinds == [
        "SourceFile",
        *["Variable"] * 4,
        "Function",
        "Alias",
        "Pragma",
        "Section",
        "Target",
    ]
    p = list(module.variables())[2]
    assert p.attributes == (ptx.Attribute(name="managed"),)
    address = ptx.Binary("+", ptx.Generic(NAME("q")), ptx.Integer("8", 8))
    assert p.initializer == ptx.InitializerList((address, ptx.Integer("0", 0)))


@pytest.mark.parametrize(
    "text",
    [
        ".func f() { ret; }\n.shared .align 4 .b8 tile[128];",
        '.pragma "nounroll";\n.shared .b32 s;\n.entry k() .pragma "x"; { .shared .b32 q; ret; }',
        ".extern .func n .visible .entry k() { ret; }",
        ".extern .func n",
        '@@DWARF .section .debug_info, "", @progbits\n@@DWARF .byte 1\n.func f() { ret; }',
        ".entry k() { .reg .b32 %r<5>, %a1<20>; mov.b32 %r01, %a119; ret; }",
        ".align 16 .global .b32 a;\n.visible .attribute(.managed) .global .b32 b;",
        ".shared .b32 s[4];\n.entry k() { .reg .b32 r; ld.shared.u32 r, s[r]; ret; }",
    ],
)
def test_rare_but_valid(text: str) -> None:
    module = parse_module(HEADER + text)
    assert module == parse_source(Source("t.ptx", HEADER + text), with_runs=False)
    assert parse_module(print_module(module)) == module


def test_several_targets_before_the_address_size() -> None:
    text = ".version 8.5\n.target sm_90\n.target sm_90, debug\n\f.address_size 64\n"
    module = parse_module(text)
    assert (module.target, module.address_size) == (("sm_90",), 64)
    assert module.items == (ptx.Target(("sm_90", "debug")),)
    assert parse_module(print_module(module)) == module


def test_crlf_comments_and_non_ascii_comments() -> None:
    text = HEADER + '/* é */ .entry k() { // ü\n.pragma "ß"; ret; }\n'
    assert parse_module(text.replace("\n", "\r\n")) == parse_module(text)


FAULTS = {
    "add.s32 %r1, %r2, %r3\nmov.b32 %r1, 1;": ["5:21: error[TSR1001] expected `;`"],
    "add.s32 %r1 %r2, %r3;": ["5:13: error[TSR1001] unexpected `%r2`"],
    "ld.global.u32 %r1, [%rd2;": ["5:25: error[TSR1001] unexpected `;`"],
    "mov.b32 %r1, 0x;": ["5:14: error[TSR1007] `0x` is not a number"],
    "mov.b32 %r1, 08;": ["5:14: error[TSR1007] `08` is not a number"],
    "mov.b64 %rd1, 0x11111111111111111;": [
        "5:15: error[TSR1007] integer constant does not fit in 64 bits"
    ],
    "ld.u32 %r1, [%rd2-4];": ["5:14: error[TSR1001] expected `+` after `%rd2`"],
    "mov.b32 %r1, 4*%r2;": ["5:16: error[TSR1001] expected a constant"],
    "mov.f32 %r1, -0f3F800000;": ["5:14: error[TSR1001] `-` cannot stand before `0f3F800000`"],
    "mov.b32 %é, 1;": ["5:10: error[TSR1001] character U+00E9 does not belong here"],
    "mov.b32 %r1, %r9;": ["5:14: error[TSR1020] `%r9` is not declared"],
    "bra nowhere;": ["5:5: error[TSR1020] `nowhere` is not declared"],
    "L: mov.b32 %r1, 1; L:": ["5:20: error[TSR1021] label is declared twice: `L`"],
    ".reg .b32 %r1;": ["5:11: error[TSR1021] name is declared twice: `%r1`"],
    "add.s32 %r1, %r2;": ["5:1: error[TSR1024] `add.s32` takes 3 operands, and has 2"],
    ".reg .u33 x;": ["5:6: error[TSR1013] `.u33` is not a type of a variable"],
    "{ inner: mov.b32 %r1, 1; } bra inner;": ["5:32: error[TSR1020] `inner` is not declared"],
    "mov.b32 %r1,, %r2;\nmov.b32 %r1, ];\n mov.b32 %r1, %q;": [
        "5:13: error[TSR1001] unexpected `,`",
        "6:14: error[TSR1001] unexpected `]`",
    ],
}


@pytest.mark.parametrize("text", FAULTS)
def test_faults_are_reported_at_their_place(text: str) -> None:
    assert body_faults(text) == FAULTS[text]


def test_faults_in_several_functions() -> None:
    text = HEADER + (
        ".entry a() { add.s32 ,; ret; }\n.entry b(.param .u64) { ret; }\n.entry c() { @; ret; }\n"
    )
    assert [fault.split(":")[1] for fault in faults(text)] == ["4", "5", "6"]


def test_no_more_than_twenty_faults() -> None:
    assert len(faults(HEADER + ".entry k() {\n" + "add ,;\n" * 500 + "}\n")) == 20


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", "error[TSR1002] nothing to read"),
        ("// only a comment\n", "error[TSR1002]"),
        ("hello world", "error[TSR1002] missing `.version`"),
        (".version 8.0\n.entry k() {}", "error[TSR1002] missing `.target`"),
        (".version 99.0\n.target sm_80\n", "error[TSR1012] PTX version is not known: 99.0"),
        (HEADER + ".entry k() { ret;", "error[TSR1003] the text ends too early"),
        (HEADER + ".entry k() { ret; } }", "error[TSR1001] unexpected `}`"),
        (HEADER + "/* open", "error[TSR1004]"),
        (HEADER + '.file 1 "open\n', "error[TSR1004]"),
        (HEADER + ".entry k() .foo 3 { ret; }", "error[TSR1025] directive is not known: `.foo`"),
        (HEADER + "\0;", "error[TSR1001]"),
        (HEADER + ".global .align 1.5 .b8 x;", "error[TSR1001] unexpected `1.5`"),
        (HEADER + ".entry k() { .reg .b32 %r<1.5>; }", "error[TSR1001] unexpected `1.5`"),
        (HEADER + ".entry k " + "{" * 50_000, "error[TSR1003]"),
        (HEADER + ".entry k " + "{" * 20_000 + "}" * 20_000, "error[TSR1008]"),
        (HEADER + ".entry k() { mov.b32 a, " + "- " * 20_000 + "1; }", "error[TSR1020]"),
        (
            HEADER + ".global .u32 a[] = " + "{" * 20_000 + "1" + "}" * 20_000 + ";",
            "error[TSR1008]",
        ),
        ("a" * 5_000_000, "error[TSR1002]"),
        (HEADER + ".entry k() { " + "a" * 5_000_000, "error[TSR1003]"),
        (HEADER + " " * 5_000_000 + "?", "error[TSR1001] unexpected `?`"),
    ],
)
def test_hostile_texts_get_one_quick_error(text: str, wanted: str) -> None:
    started = time.process_time()
    found = faults(text)
    assert len(found) == 1
    assert wanted in found[0]
    assert time.process_time() - started < 20


def test_parentheses_nest_freely_where_they_mean_nothing() -> None:
    text = (
        HEADER + ".entry k() { .reg .b32 a; mov.b32 a, " + "(" * 20_000 + "1" + ")" * 20_000 + "; }"
    )
    parse_module(text)


def test_newer_versions_are_read_with_warnings() -> None:
    parse_module(
        ".version 9.9\n.target sm_90\n.entry k() .newdirective { .reg .b32 a;\n"
        "mov.b32 a, %newregister; newop.v3 a, [a]; }"
    )
