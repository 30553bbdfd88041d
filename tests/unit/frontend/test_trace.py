"""Traces read, checked and printed: positions, order, recovery, size, and the bundled examples."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest

from tessera.diagnostics import Diagnostic, Source, TesseraError
from tessera.frontend.trace.read_trace import examine_trace, parse_trace, read_trace
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import (
    NULL_POINTER,
    ByValue,
    Event,
    Launch,
    LibraryCall,
    Memcpy,
    Memset,
    Operand,
    Pointer,
    PointerWord,
    Role,
    Scalar,
    Wait,
    for_arch,
)
from tessera.ir.ptx import syntax as ptx
from tests.helpers.operations import operations
from tests.helpers.ptxas import assemble, find_ptxas

TRACES = Path(__file__).parents[3] / "examples" / "traces"
MODULE = """.version 8.0
.target {arch}
.address_size 64
.global .align 8 .b8 counters[32];
.const .f32 factors[4] = {{1.0, 2.0, 3.0, 4.0}};
.extern .global .u32 elsewhere;
.visible .entry saxpy(
    .param .u64 y,
    .param .u64 x,
    .param .f32 a,
    .param .u32 n
)
{{
    ret;
}}
.visible .entry gather(.param .align 8 .b8 s[24])
{{
    ret;
}}
"""
HEAD = """//! tessera.trace 1
//! buffer x bytes=4096 role=input dtype=f32 shape=1024
//! buffer w bytes=4096 role=weight dtype=f32 shape=1024
//! buffer y bytes=4096 role=output dtype=f32 shape=32x32
"""
LAUNCH = "//! launch m0.saxpy grid=4,1,1 block=256,1,1 smem=0 args=[y, x+0, f32:2.0, u32:1024]\n"


def module(name: str = "m0", arch: str = "sm_80", record: str = "") -> str:
    return f"//! module {name}{record}\n" + MODULE.format(arch=arch)


def faults(text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(TesseraError) as caught:
        parse_trace(text, "t.ptx")
    return caught.value.diagnostics


def shown(diagnostic: Diagnostic) -> str:
    assert diagnostic.primary is not None
    span = diagnostic.primary.span
    return span.source.text[span.start : span.end]


# --- what records mean -------------------------------------------------------------------------


def test_the_records_of_the_design() -> None:
    program = parse_trace(
        HEAD
        + "//! resident data=trace.npz\n"
        + module()
        + module(arch="sm_90a", record=" arch=sm_90a")
        + LAUNCH
        + "//! variant sm_90a smem=24576\n"
        + "//! memset y+0 bytes=4096 value=0x00\n"
        + "//! memcpy y+0 x+0 bytes=4096\n"
        + "//! op aten::mean.dim reads=[w+128:f32[32,16]{1,32}] "
        + 'writes=[y:f32[1,1]] attrs={"dim": [0, -1], "keepdim": true, "dtype": null}\n'
        + "//! pointers y @{0:x,8:y+64}\n"
        + "//! event e stream=s1\n//! wait e stream=2\n"
    )
    assert [b.name for b in program.buffers] == ["x", "w", "y", "m0.counters", "m0.factors"]
    assert [b.id for b in program.buffers] == [0, 1, 2, 3, 4]
    assert program.buffers[2].shape == (32, 32)
    assert program.buffers[3].role is Role.VARIABLE
    assert (program.buffers[3].bytes, program.buffers[4].bytes) == (32, 16)
    assert program.resident == "trace.npz"
    assert [v.arch for v in program.modules[0].variants] == ["sm_80", "sm_90a"]
    launch, memset, memcpy, call, event, wait = program.steps
    assert isinstance(launch, Launch)
    assert launch.arguments == (
        Pointer(program.buffers[2].id),
        Pointer(program.buffers[0].id),
        Scalar(DataType.F32, 0x40000000),
        Scalar(DataType.U32, 1024),
    )
    assert for_arch(launch, "sm_90a").shared_bytes == 24576
    assert for_arch(launch, "sm_80").shared_bytes == 0
    assert isinstance(memset, Memset)
    assert (memset.target.buffer, memset.bytes, memset.value) == (2, 4096, 0)
    assert isinstance(memcpy, Memcpy)
    assert (memcpy.target.buffer, memcpy.source.buffer) == (2, 0)
    assert isinstance(call, LibraryCall)
    assert call.attributes == (("dim", (0, -1)), ("keepdim", True), ("dtype", None))
    assert call.reads[0] == Operand(
        pointer=Pointer(program.buffers[1].id, 128),
        dtype=DataType.F32,
        shape=(32, 16),
        strides=(1, 32),
    )
    assert call.reads[0].extent_bytes() == 4 * (31 * 1 + 15 * 32 + 1)
    assert [step.id for step in (launch, memset, memcpy, call)] == [0, 1, 2, 3]
    assert isinstance(event, Event)
    assert isinstance(wait, Wait)
    assert (event.stream, wait.stream, wait.event) == ("s1", "2", event.id)
    table = program.pointer_tables[0]
    assert table.words[1] == PointerWord(8, Pointer(program.buffers[2].id, 64))


def test_several_records_make_one_table() -> None:
    """Whoever looks for the words of a buffer finds all of them."""
    program = parse_trace(
        "//! tessera.trace 1\n//! buffer x bytes=64 role=input\n//! buffer t bytes=64 role=temp\n"
        "//! pointers t @{16:x}\n//! pointers x @{0:t}\n//! pointers t @{8:x+4,0:t}\n"
    )
    assert [int(table.buffer) for table in program.pointer_tables] == [1, 0]
    words = program.pointer_tables[0].words
    assert [(word.offset, int(word.target.buffer)) for word in words] == [(0, 1), (8, 0), (16, 0)]


def test_struct_arguments() -> None:
    digits = "ff" * 24
    program = parse_trace(
        HEAD
        + module()
        + "//! launch m0.gather grid=1,1,1 block=32,1,1 "
        + f"args=[b8[24]:{digits}@{{16:y+64, 0:x}}]\n"
    )
    (launch,) = program.launches()
    (argument,) = launch.arguments
    assert isinstance(argument, ByValue)
    assert argument.content == bytes(8) + b"\xff" * 8 + bytes(8)
    assert [word.offset for word in argument.pointers] == [0, 16]


def test_null_pointers_and_one_past_the_end() -> None:
    program = parse_trace(
        HEAD
        + module()
        + "//! launch m0.saxpy grid=1,1,1 block=32,1,1 args=[y+4096, u64:0, b32:0x0, s32:-1]\n"
    )
    (launch,) = program.launches()
    assert launch.arguments[0] == Pointer(program.buffers[2].id, 4096)
    assert launch.arguments[1] == NULL_POINTER
    assert launch.arguments[3] == Scalar(DataType.S32, 0xFFFFFFFF)


def test_a_wait_means_the_last_event_of_its_name() -> None:
    program = parse_trace(
        HEAD
        + "//! event e stream=1\n//! wait e stream=2\n//! event e stream=2\n//! wait e stream=1\n"
    )
    waits = [step.event for step in program.steps if isinstance(step, Wait)]
    assert waits == [0, 1]
    assert print_program(program).endswith(
        "//! event e stream=1\n//! wait e stream=2\n//! event e stream=2\n//! wait e stream=1\n"
    )


def test_module_variables_are_addresses() -> None:
    program = parse_trace(
        HEAD + module() + "//! memcpy m0.factors x bytes=16\n//! pointers m0.counters @{8:y}\n"
    )
    assert parse_trace(print_program(program)) == program


def test_plain_ptx_is_a_program_without_steps() -> None:
    text = MODULE.format(arch="sm_80")
    program = parse_trace(text, "k.ptx")
    assert [m.name for m in program.modules] == ["m0"]
    assert program.modules[0].variants[0].text == text
    assert program.steps == ()
    assert parse_trace(print_program(program)) == program


def test_plain_ptx_with_marked_comments_stays_plain() -> None:
    text = "//! Saxpy, in PTX.\n" + MODULE.format(arch="sm_80").replace(
        "    ret;", "    //! launch pad\n    ret;", 1
    )
    program = parse_trace(text)
    assert parse_trace(print_program(program)) == program


def test_identical_modules_are_parsed_once() -> None:
    parsed = []

    def parse(source: Source) -> ptx.Module:
        parsed.append(source)
        return ptx.Module(
            version=(8, 0), target=("sm_80",), address_size=64, items=(), source=source
        )

    program = parse_trace(HEAD + module("a") + module("b") + module("c"), parse_ptx=parse)
    assert len(parsed) == 1
    sources = [m.variants[0].ptx.source for m in program.modules]
    step = module().count("\n")
    assert [source.first_line for source in sources if source] == [6, 6 + step, 6 + 2 * step]


# --- positions ---------------------------------------------------------------------------------


def test_spans_of_records() -> None:
    program = parse_trace(HEAD + module() + LAUNCH, "t.ptx")
    (launch,) = program.launches()
    assert str(launch.span) == "t.ptx:25:1"
    assert str(program.buffers[1].span) == "t.ptx:3:1"
    assert str(program.buffers[3].span) == "t.ptx:9:1"


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_faults_in_ptx_are_at_the_lines_of_the_trace(line_end: str) -> None:
    broken = module().replace("    ret;", "    mov.u32 %r1 %r2;", 1)
    text = (HEAD + module("m1") + "//! buffer z bytes=4 role=temp\n" + broken + LAUNCH).replace(
        "\n", line_end
    )
    (fault,) = faults(text)
    line = text[: text.index("%r1 %r2")].count("\n") + 1
    assert str(fault.primary.span).startswith(f"t.ptx:{line}:")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("record", "token"),
    [
        ("//! buffer z bytes=12x role=temp", "12x"),
        ("//! buffer z bytes=4 role=tmp", "tmp"),
        ("//! buffer z bytes=4 role=temp dtype=f33", "f33"),
        ("//! buffer z bytes=4 role=temp colour=red", "colour"),
        ("//! buffer z bytes=8 role=temp dtype=f32 shape=3", "3"),
        ("//! memset q+8 bytes=4 value=0", "q"),
        ("//! memset y+9999 bytes=4 value=0", "9999"),
        ("//! memset y+4090 bytes=8 value=0", "y+4090"),
        ("//! memcpy y x+4090 bytes=8", "x+4090"),
        ("//! launch m0.saxpi grid=1,1,1 block=1,1,1 args=[]", "saxpi"),
        ("//! launch m7.saxpy grid=1,1,1 block=1,1,1 args=[]", "m7"),
        ("//! launch m0.saxpy grid=1,70000,1 block=1,1,1 args=[]", "70000"),
        ("//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[y, x, f32:1, y+8]", "y+8"),
        ("//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[y, zz+8, f32:1, u32:1]", "zz"),
        ("//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[y, x, f32:1e99, u32:1]", "1e99"),
        ("//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[y, x, f32:1 u32:1]", "u32:1"),
        (
            "//! launch m0.gather grid=1,1,1 block=1,1,1 args=[ b8[8]:0011223344556677 ]",
            "b8[8]:0011223344556677",
        ),
        ("//! pointers y @{0:x,12:x}", "12"),
        ("//! pointers y @{0:x,16:nix}", "nix"),
        ("//! op aten::a reads=[x:f32[4]] writes=[y:q8[4]]", "q8"),
        ('//! op aten::a reads=[] writes=[y:u8[4]] attrs={"a": 1, "b": nan}', "nan"),
        ("//! wait nothing", "nothing"),
        ("//! lunch m0.saxpy", "lunch"),
    ],
)
def test_the_caret_is_under_the_token(record: str, token: str) -> None:
    (fault,) = faults(HEAD + module() + record + "\n")
    assert shown(fault) == token
    (in_crlf,) = faults((HEAD + module() + record + "\n").replace("\n", "\r\n"))
    assert shown(in_crlf) == token


def test_expected_at_the_end_of_a_record() -> None:
    (fault,) = faults(HEAD + "//! buffer z bytes=4   // a comment\n")
    assert fault.primary is not None
    assert str(fault.primary.span) == "t.ptx:5:21"


# --- several faults ----------------------------------------------------------------------------


def test_faults_come_in_file_order_and_each_once() -> None:
    found = faults(
        HEAD
        + module().replace("    ret;", "    mov.u32 %r1 %r2;", 1)
        + "//! memset q bytes=4 value=0\n"
        + LAUNCH
        + "//! memset y bytes=9999 value=0\n"
    )
    places = [d.primary.span.source.position(d.primary.span.start) for d in found if d.primary]
    assert places == sorted(places)
    assert [d.code for d in found][1:] == ["TSR1111", "TSR1136"]


def test_at_most_twenty_errors() -> None:
    found = faults("//! tessera.trace 1\n" + "//! buffer x\n" * 1000)
    assert len(found) == 20


def test_a_broken_launch_does_not_blame_its_variants() -> None:
    found = faults(HEAD + module() + LAUNCH.replace("y,", "q,") + "//! variant sm_80 smem=4\n")
    assert [d.code for d in found] == ["TSR1111"]


def test_a_broken_module_does_not_blame_its_launches() -> None:
    found = faults(HEAD + module(record=" arch=sm80") + LAUNCH + LAUNCH)
    assert [d.code for d in found] == ["TSR1153"]


def test_suggestions() -> None:
    (fault,) = faults(HEAD + module("attention") + LAUNCH.replace("m0", "atention"))
    assert fault.hint == "did you mean `attention`?"


def test_warnings_leave_a_program() -> None:
    text = HEAD + module().replace(".u64 y", ".u64 .ptr .global y")
    launch = LAUNCH.replace("[y", "[u64:16")
    reading = examine_trace(Source("t.ptx", text + launch))
    assert reading.program is not None
    assert [d.code for d in reading.diagnostics] == ["TSR1135"]


# --- where PTX begins and ends -----------------------------------------------------------------


def test_records_inside_and_behind_ptx() -> None:
    ptx_text = MODULE.format(arch="sm_80")
    head, tail = ptx_text.split(".extern", 1)
    text = (
        "// a header\n\n//! tessera.trace 1\n//! module m0\n" + head + "//! buffer x bytes=8 "
        "role=temp\n.extern" + tail + "\n\n//! buffer y bytes=8 role=temp\n\n"
        "//! pointers y @{0:x}\n\n// a comment\n//! memset y bytes=8 value=1\n/* the\n end */\n"
    )
    program = parse_trace(text)
    variant = program.modules[0].variants[0]
    assert variant.text.count("\n") == ptx_text.count("\n") + 1 + 7
    assert "//!" not in variant.text
    assert parse_trace(print_program(program)) == program
    assert print_program(parse_trace(print_program(program))) == print_program(program)


def test_a_last_line_without_end() -> None:
    text = HEAD + module() + LAUNCH
    assert parse_trace(text.rstrip("\n")) == parse_trace(text)
    assert parse_trace((HEAD + module()).rstrip("\n")) == parse_trace(HEAD + module())


def test_crlf_in_records_means_nothing() -> None:
    text = HEAD + "//! memset y bytes=8 value=1\n"
    assert parse_trace(text.replace("\n", "\r\n")) == parse_trace(text)


def test_no_modules_and_no_steps() -> None:
    assert parse_trace("//! tessera.trace 1\n").buffers == ()


@pytest.mark.parametrize("text", ["", "\n\n", "hello", "\x00\x01", "{" * 2000, "//"])
def test_texts_that_are_nothing(text: str) -> None:
    reading = examine_trace(Source("t.ptx", text))
    assert reading.program is None
    assert reading.diagnostics


# --- printing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["dit.ptx", "mlp.ptx"])
def test_bundled_traces_round_trip(name: str) -> None:
    program = read_trace(TRACES / name)
    printed = print_program(program)
    assert parse_trace(printed) == program
    assert print_program(parse_trace(printed)) == printed


def test_the_captured_trace_prints_to_the_same_bytes() -> None:
    path = TRACES / "dit.ptx"
    assert print_program(read_trace(path)) == path.read_text()


@pytest.mark.skipif(find_ptxas() is None, reason="ptxas is not installed")
def test_a_trace_with_one_module_is_a_ptx_file() -> None:
    path = TRACES / "mlp.ptx"
    assert assemble(path.read_text()).accepted
    assert assemble(print_program(read_trace(path))).accepted


def test_clusters_cooperation_streams_and_wide_memsets_are_kept() -> None:
    text = (
        HEAD
        + module()
        + "//! launch m0.saxpy grid=4,2,1 block=256,1,1 cluster=2,2,1 smem=1 cooperative=1 "
        + "args=[y, x, f32:nan, u32:0] stream=side\n"
        + "//! variant sm_80 grid=8,2,1 block=128,1,1 cluster=4,1,1 smem=0 "
        + "args=[x, y, f32:-inf, u32:1]\n"
        + "//! memset y+8 bytes=8 element_bytes=4 value=0x3f800000 stream=side\n"
    )
    assert print_program(parse_trace(text)) == text


# --- size --------------------------------------------------------------------------------------


def long_trace(launches: int) -> str:
    lines = [
        f"//! launch m0.saxpy grid={1 + i % 999},1,1 block=256,1,1 smem=0 "
        f"args=[y+{4 * (i % 1000)}, x, f32:{i % 64}.5, u32:{i}]\n"
        for i in range(launches)
    ]
    return HEAD + module() + "".join(lines)


def test_the_work_for_launches_grows_with_them() -> None:
    parse_trace(long_trace(10))  # what is built once per process
    few, many = (partial(parse_trace, long_trace(launches)) for launches in (400, 1_600))
    assert operations(many) < 4.5 * operations(few)


@pytest.mark.parametrize(
    "line",
    [
        "//! launch " + "m" * 1_000_000,
        "//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[" + "y, " * 200_000,
        "//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[" + "[" * 200_000,
        '//! op aten::a reads=[] writes=[] attrs={"a": ' + "[" * 200_000 + "]" * 200_000 + "}",
        '//! op aten::a reads=[] writes=[] attrs={"a": "' + "\\" * 200_000,
        "//! pointers y @{" + "{" * 200_000,
        "//! buffer " + "\t" * 500_000,
        "//! buffer z bytes=" + "9" * 500_000 + " role=temp",
        "//! launch m0.saxpy grid=1,1,1 block=1,1,1 args=[f32:" + "9" * 500_000 + "]",
        "//! " + "x=1 " * 200_000,
        "//! launch m0.saxpy " + "x=1 " * 200_000,
        "//!" * 300_000,
        "/*" * 300_000,
    ],
    ids=lambda line: line[:40],
)
def test_hostile_lines_are_refused_quickly(line: str) -> None:
    start = time.process_time()
    found = faults(HEAD + module() + "//! memset y bytes=1 value=0\n" + line + "\n")
    assert time.process_time() - start < 30
    assert 1 <= len(found) <= 20
    assert all(len(str(d.headline)) < 500 for d in found)


def test_suggestions_among_many_names_are_quick() -> None:
    buffers = "".join(f"//! buffer activation_{i:05} bytes=4 role=temp\n" for i in range(10_000))
    wrong = "".join(f"//! memset activatoin_{i:05} bytes=4 value=0\n" for i in range(30))
    start = time.process_time()
    found = faults("//! tessera.trace 1\n" + buffers + wrong)
    assert time.process_time() - start < 60
    assert len(found) == 20
    assert (found[0].hint or "").startswith("did you mean `activation_00000` or")
