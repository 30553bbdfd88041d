"""Calls that are not inlined: what they print, what they pin, what they leave unknown."""

from __future__ import annotations

from typing import Any

from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint import calls
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.lane_values.lanes import MASK
from tests.helpers.excerpts import Excerpt, excerpt, lanes_of

VPRINTF = ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 v);\n"
LOCALS = ".local .align 8 .b8 l[8]; st.local.u64 [l], 5;"


def literal(text: str, name: str = "$str", type: str = ".b8") -> str:
    numbers = ", ".join(str(byte) for byte in text.encode())
    return f".global .align 1 {type} {name}[{len(text)}] = {{{numbers}}};\n"


def printing(name: str = "$str", argument: str = "") -> str:
    given = argument or f"mov.u64 %d1, {name}; cvta.global.u64 %d1, %d1; st.param.b64 [f], %d1;"
    return f"""{LOCALS} {{ .param .b64 f; .param .b64 v; .param .b32 r; {given}
    st.param.b64 [v], 0; call.uni (r), vprintf, (f, v); ld.param.b32 %r9, [r]; }}"""


def printed(text: str, *, name: str = "$str", body: str = "", before: str = "") -> Any:
    """The bytes that are read, by object, or why that is not known."""
    declared = before or literal(text, name) + VPRINTF
    run = excerpt(body or printing(name), before=declared, symbols=[name]).run()
    (index,) = (s.index for s in run.steps("call"))
    if index in run.pins:
        assert not [key for key in run.recorder.touched if key.at == index]
        return str(run.pins[index])
    read = {z: r for (opcode, z), r in run.touched().items() if opcode == "call"}
    assert not any(run.touched(sure=True)[key] for key in run.touched() if key[0] == "call")
    return read


UNKNOWN = "it prints by a format that is not known"
STRINGS = "it prints strings through pointers"


def test_what_a_format_reads() -> None:
    for text, read in (
        ("ab\0", 3),
        ("ab\0cd\0", 3),
        ("\0", 1),
        ("abc", 4),
        ("%d %u %5.3f %%\0", 15),
        ("%ls\0", None),
        ("%s\0", None),
        ("%d %-5.*s\0", None),
        ("%%s\0", 4),
        ("%\0s", 2),
    ):
        assert printed(text) == (STRINGS if read is None else {2: [[0, read]]}), text


def test_which_variables_are_literals() -> None:
    for name, known in (
        ("$str", True),
        ("$str1", True),
        ("$str$12", True),
        ("__unnamed_7", True),
        ("printfFormat_3", True),
        ("_$_str_2", True),
        ("$strings", False),
        ("text", False),
    ):
        assert printed("ab\0", name=name) == ({2: [[0, 3]]} if known else UNKNOWN), name


def test_formats_that_are_not_known() -> None:
    argument = "st.param.b64 [f], %p0;"
    assert printed("", before=literal("a\0") + VPRINTF, body=printing("", argument)) == UNKNOWN
    choice = """mov.u64 %d1, $str; mov.u64 %d2, $str1; setp.lt.u32 %c0, %t, 2;
    selp.b64 %d1, %d1, %d2, %c0; cvta.global.u64 %d1, %d1; st.param.b64 [f], %d1;"""
    two = literal("a\0") + literal("b\0", "$str1") + VPRINTF
    run = excerpt(printing("", choice), before=two, symbols=["$str", "$str1"]).run()
    assert [str(why) for why in run.pins.values()] == [UNKNOWN]
    data = "ld.global.u64 %d1, [%p0]; st.param.b64 [f], %d1;"
    assert printed("", before=literal("a\0") + VPRINTF, body=printing("", data)) == UNKNOWN
    unset = "mov.u64 %d1, $str;"
    assert printed("", before=literal("a\0") + VPRINTF, body=printing("", unset)) == UNKNOWN
    empty = ".global .align 1 .b8 $str[3];\n"
    assert printed("", before=empty + VPRINTF) == UNKNOWN
    some = "mov.u64 %d1, $str; setp.eq.u32 %c0, %t, 0; @!%c0 mov.u64 %d1, %p0;"
    body = printing("", some + "cvta.global.u64 %d1, %d1; st.param.b64 [f], %d1;")
    alone = body.replace("call.uni", "@%c0 call.uni")
    declared = literal("ab\0") + VPRINTF
    assert printed("", before=declared, body=body) == UNKNOWN
    assert printed("", before=declared, body=alone) == {2: [[0, 3]]}


def test_the_text_of_a_literal() -> None:
    def text(declaration: str, name: str = "$str") -> bytes | None:
        return calls._literal(excerpt("", before=declaration), name)

    assert text(literal("ab\0c")) == b"ab"
    assert text(literal("x\0", "$str1") + literal("ab\0")) == b"ab"
    assert text(literal("ab\0"), "$str1") is None
    assert text(literal("ab\0", "other"), "other") is None
    assert text(".global .u16 $str[2] = {255, 0};\n") == b"\xff"
    assert text(".global .u16 $str[2] = {256, 0};\n") is None
    assert text(".global .u16 $str[2] = {-1, 0};\n") is None
    assert text(".global .u32 $str = 5;\n") is None
    assert text(".global .u8 v[4]; .global .u64 $str[2] = {v, 0};\n") is None
    assert text(".global .align 1 .b8 $str[2];\n") is None


def run_of(body: str, before: str = "", **given: Any) -> Excerpt:
    return excerpt(body, before=before, **given).run()


def test_calls_that_pin_a_launch() -> None:
    cases = (
        (".extern .func malloc;\n", "call malloc;", "`malloc`, which is no buffer"),
        (".extern .func free;\n", "call free;", "`free`, which is no buffer"),
        (".extern .func cudaLaunchDeviceV2;\n", "call cudaLaunchDeviceV2;", "from the device"),
        (".extern .func g;\n", "call g;", "calls `g`, which the module does not define"),
        (".func malloc { .reg .b64 x; st.global.u8 [x], 0; call malloc; ret; }\n",
         "call malloc;", "`malloc`, which calls itself or is too deep"),
        (".func g { .reg .b64 x; st.global.u8 [x], 0; call g; ret; }\n", "call g;",
         "`g`, which calls itself or is too deep"),
    )  # fmt: skip
    for before, body, why in cases:
        run = run_of(body, before)
        (index,) = (s.index for s in run.steps("call"))
        assert why in str(run.pins[index]), body
    prototype = "P: .callprototype _ (); ld.global.u64 %d1, [%p0]; call %d1, (), P;"
    assert "through the register `%d1`" in str(run_of(prototype).pins.popitem()[1])
    unlisted = Excerpt(*_parts(excerpt("")))
    assert "calls `nowhere`, which the module does not define" in str(
        calls._reason(unlisted, "nowhere")
    )


def _parts(run: Excerpt) -> tuple[Any, ...]:
    return run.code, run.scene, run.piece, Recorder(run.scene.zones)


def test_which_pins_concern_only_own_buffers() -> None:
    plain = ".func g { .reg .b64 x; st.global.u8 [x], 0; call g; ret; }\n"
    loads = ".func g { .reg .b64 x; ld.global.u64 x, [x]; st.global.u8 [x], 0; call g; ret; }\n"
    for before, bounded in ((plain, True), (loads, False)):
        run = run_of("call g;", before)
        (index,) = run.pins
        assert (index in run.recorder.bounded) == bounded


def test_a_quiet_call_leaves_its_results_and_local_memory_unknown() -> None:
    quiet = ".func (.reg .b64 r) g { call (r), g; ret; }\n"
    body = LOCALS + "mov.u64 %d2, 5; ld.local.u64 %d3, [l];"
    body += "call (%d1), g; ld.local.u64 %d4, [l]; add.s64 %d0, %d2, %d3;"
    run = run_of(body, quiet, needed=["%d0", "%d1", "%d4"])
    assert not run.pins
    assert run.registers["%d0"].low().item() == 10
    assert run.registers["%d1"].span is not None
    assert run.registers["%d4"].span is not None


def test_a_call_that_prints_keeps_local_memory() -> None:
    body = printing() + "ld.local.u64 %d3, [l]; cvt.u64.u32 %d4, %r9;"
    run = run_of(body, literal("a\0") + VPRINTF, symbols=["$str"], needed=["%d3", "%d4"])
    assert not run.pins
    assert run.registers["%d3"].low().item() == 5
    assert run.registers["%d4"].span is not None


def test_arguments() -> None:
    run = excerpt(LOCALS)
    place = run.symbols["l"] - run.scene.zones.address(2)
    run.registers[place, 8] = lanes_of(7)
    run.registers["%d1"] = lanes_of(1 << 40)
    held = calls._argument(run, ptx.Name("l"), 3)
    assert held is run.registers[place, 8]
    run = excerpt("st.global.u8 [%d1], 0;")
    run.registers["%d1"] = lanes_of(MASK[64])
    given = calls._argument(run, ptx.Name("%d1"), 3)
    assert given is not None
    assert given.low().item() == MASK[64]
    assert calls._argument(run, ptx.Name("a0"), 3) is None
    some = calls._argument(run, ptx.Not(ptx.Name("%c1")), 3)
    assert some is not None


def test_results_that_are_forgotten() -> None:
    run = excerpt(".local .align 8 .b8 l[8]; .local .align 4 .b8 m[4];")
    base = run.scene.zones.address(2)
    l, m = run.symbols["l"] - base, run.symbols["m"] - base  # noqa: E741
    keys = [
        (l - 8, 8),
        (l - 8, 9),
        (l, 4),
        (l + 7, 1),
        (l + 8, 4),
        (m - 1, 1),
        (m + 3, 1),
        (m + 4, 1),
    ]
    run.registers = {"%t": lanes_of(0), **{key: lanes_of(1) for key in keys}}
    calls._forget_results(run, (ptx.Name("%t"), ptx.Not(ptx.Name("l")), ptx.Name("none")))
    assert [*run.registers] == ["%t", *keys]
    calls._forget_results(run, (ptx.Name("l"), ptx.Name("m")))
    assert [*run.registers] == ["%t", (l - 8, 8), (l + 8, 4), (m - 1, 1), (m + 4, 1)]


def test_a_failed_assertion_does_not_happen() -> None:
    fail = ".extern .func __assertfail (.param .b64 a);\n"
    for name, pinned in (("__assertfail", False), ("assertfail", True)):
        declared = fail.replace("__assertfail", name)
        run = run_of(f"{{ .param .b64 x; call {name}, (x); }}", declared)
        assert bool(run.pins) == pinned
