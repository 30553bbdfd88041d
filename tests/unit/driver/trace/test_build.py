"""From the nodes of a captured graph to a program: buffers, roles, arguments, variants."""

from __future__ import annotations

import dataclasses
import math
import struct

import pytest

from tessera.diagnostics import TesseraError
from tessera.driver.trace.build import build_program
from tessera.frontend.capture.raw import (
    RawBuffer,
    RawCapture,
    RawCode,
    RawLaunch,
    RawMemcpy,
    RawMemset,
    RawOperator,
    RawOther,
    RawTensor,
    RawVariant,
)
from tessera.frontend.trace.read_trace import parse_trace
from tessera.ir.program.data_type import DataType
from tessera.ir.program.print_trace import print_program
from tessera.ir.program.program import ByValue, LibraryCall, Memcpy, Memset, Pointer, Role, Scalar

PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 x, .param .u64 n, .param .align 8 .b8 s[24])
{
    .reg .b64 %rd<12>;
    .reg .b32 %r<4>;
    .reg .f32 %f<4>;
    .reg .pred %p;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [n];
    ld.param.u64 %rd3, [s+8];
    ld.param.u64 %rd9, [s+16];
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd4, %r1;
    setp.ge.u64 %p, %rd4, %rd2;
    @%p ret;
    mul.lo.u64 %rd5, %rd4, 4;
    add.u64 %rd6, %rd1, %rd5;
    add.u64 %rd7, %rd5, %rd3;
    mul.lo.u64 %rd10, %rd9, 0;
    add.u64 %rd7, %rd7, %rd10;
    ld.global.f32 %f1, [%rd6];
    st.global.f32 [%rd7], %f1;
    ret;
}
"""
X, Y, W = 0x7F0000000000, 0x7F0000001000, 0x7F0000002000


def buffer(name: str, address: int, role: Role, *, lasting: bool = False) -> RawBuffer:
    return RawBuffer(
        name=name,
        address=address,
        bytes=128,
        role=role,
        lasting=lasting,
        dtype=DataType.F32,
        shape=(32,),
    )


def launch(source: int, target: int, *, function: int = 7, stride: int = 5) -> RawLaunch:
    inner = struct.pack("<QQQ", X, target, stride)
    return RawLaunch(
        name="scale",
        function=function,
        grid=(1, 1, 1),
        block=(32, 1, 1),
        shared_bytes=0,
        arguments=(struct.pack("<Q", source), struct.pack("<Q", 32), inner),
    )


def code(*, threads: int = 32, text: str = PTX, archs: tuple[str, ...] = ("sm_80",)) -> RawCode:
    return RawCode(
        function=7,
        variants=tuple(
            RawVariant(
                arch=arch,
                text=text.replace("sm_80", arch),
                threads=threads if n else 32,
                shared_bytes=16 * n,
            )
            for n, arch in enumerate(archs)
        ),
    )


def capture(*nodes: object, **more: object) -> RawCapture:
    values: dict[str, object] = {
        "buffers": (buffer("x", X, Role.INPUT, lasting=True), buffer("y", Y, Role.OUTPUT)),
        "nodes": nodes,
        "operators": (),
        "codes": (code(),),
        **more,
    }
    return RawCapture(**values)  # type: ignore[arg-type]


def test_words_are_pointers_by_use_and_by_value() -> None:
    program, _ = build_program(capture(launch(X, Y + 4)))
    (step,) = program.launches()
    source, count, inner = step.arguments
    assert source == Pointer(program.buffers[0].id)
    assert count == Scalar(DataType.U64, 32)
    assert isinstance(inner, ByValue)
    # The word at 0 holds an address, but the kernel never loads it; the one at 16 is a stride.
    assert [(w.offset, w.target.offset) for w in inner.pointers] == [(8, 4)]
    assert inner.content[:8] == struct.pack("<Q", X)
    assert inner.content[16:] == struct.pack("<Q", 5)


def test_a_stride_that_looks_like_an_address_is_a_number() -> None:
    program, _ = build_program(capture(launch(X, Y, stride=X)))
    (step,) = program.launches()
    inner = step.arguments[2]
    assert isinstance(inner, ByValue)
    assert [word.offset for word in inner.pointers] == [8]


def test_roles_come_from_what_is_written() -> None:
    buffers = (
        buffer("x", X, Role.INPUT, lasting=True),
        buffer("y", Y, Role.INPUT, lasting=True),
        buffer("w", W, Role.WEIGHT, lasting=True),
        buffer("unused", W + 4096, Role.TEMP),
    )
    program, _ = build_program(capture(launch(X, Y), launch(W, W), buffers=buffers))
    roles = {b.name: b.role for b in program.declared_buffers()}
    assert roles == {"x": Role.INPUT, "y": Role.STATE, "w": Role.STATE}


def test_rows_become_steps() -> None:
    program, _ = build_program(
        capture(
            RawMemset(address=Y, bytes=8, value=0, element_bytes=4, rows=2, pitch=64),
            RawMemcpy(target=Y, source=X, bytes=4, rows=2, target_pitch=8, source_pitch=32),
        )
    )
    sets = [s.target.offset for s in program.steps if isinstance(s, Memset)]
    copies = [(s.target.offset, s.source.offset) for s in program.steps if isinstance(s, Memcpy)]
    assert (sets, copies) == ([0, 64], [(0, 0), (8, 32)])


def test_variants_carry_their_own_launch() -> None:
    found = capture(launch(X, Y), codes=(code(threads=64, archs=("sm_90a", "sm_80")),))
    program, _ = build_program(found)
    assert [v.arch for v in program.modules[0].variants] == ["sm_90a", "sm_80"]
    (step,) = program.launches()
    (override,) = step.variants
    assert (override.arch, override.block, override.shared_bytes) == ("sm_80", (64, 1, 1), 16)


def test_a_library_call_takes_the_place_of_its_nodes() -> None:
    def tensor(address: int) -> RawTensor:
        return RawTensor(address=address, dtype=DataType.F32, shape=(4, 8), strides=(8, 1))

    call = RawOperator(
        operator="aten::relu",
        reads=(tensor(X),),
        writes=(tensor(Y),),
        attributes=(),
        first=1,
        last=3,
    )
    strange = launch(X, Y, function=99)
    zero = RawMemset(address=Y, bytes=4, value=0, element_bytes=1)
    program, _ = build_program(capture(launch(X, Y), zero, strange, operators=(call,)))
    kinds = [type(step).__name__ for step in program.steps]
    assert kinds == ["Launch", "LibraryCall"]
    last = program.steps[1]
    assert isinstance(last, LibraryCall)
    assert last.operator == "aten::relu"
    # With code for every node, the nodes stay.
    inside = RawOperator(operator="my::op", reads=(), writes=(), attributes=(), first=0, last=1)
    program, _ = build_program(capture(launch(X, Y), operators=(inside,)))
    assert len(list(program.launches())) == 1


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (launch(X, Y, function=99), "TSR6004"),
        (RawMemset(address=W, bytes=4, value=0, element_bytes=1), "TSR6005"),
        (RawMemcpy(target=Y, source=0x10, bytes=4), "TSR6005"),
        (RawOther(what="copies from the host", hint="move the data"), "TSR6002"),
    ],
)
def test_what_nobody_owns_is_refused(node: object, expected: str) -> None:
    with pytest.raises(TesseraError) as caught:
        build_program(capture(node))
    assert caught.value.diagnostics[0].code == expected


def test_a_declared_pointer_is_one_even_if_nothing_uses_it() -> None:
    text = PTX.replace(".param .u64 n", ".param .u64 .ptr n").replace("[n]", "[x]")
    node = launch(X, Y)
    node = dataclasses.replace(
        node, arguments=(node.arguments[0], struct.pack("<Q", Y + 8), node.arguments[2])
    )
    program, _ = build_program(capture(node, codes=(code(text=text),)))
    (step,) = program.launches()
    assert step.arguments[1] == Pointer(program.buffers[1].id, 8)


def test_a_declared_pointer_to_nothing_is_reported() -> None:
    text = PTX.replace(".param .u64 x", ".param .u64 .ptr .global .align 4 x")
    _, findings = build_program(capture(launch(0x1234, Y), codes=(code(text=text),)))
    assert [finding.code for finding in findings] == ["TSR6005"]


def test_the_text_reads_back() -> None:
    program, _ = build_program(capture(launch(X, Y)))
    assert "args=[x, u64:32, b8[24]:" in print_program(program)


def test_an_operator_that_no_trace_can_hold_is_refused() -> None:
    strange = RawOperator(operator="my::op", reads=(), writes=(), attributes=(), first=0, last=1)
    with pytest.raises(TesseraError, match="TSR6002") as refused:
        build_program(capture(launch(X, Y, function=99), operators=(strange,)))
    assert "`my::op`" in str(refused.value)


def test_an_operator_of_the_users_own_is_what_is_inside_of_it() -> None:
    """A launch, a library call and a copy; without the call a node would be left."""
    tensor = RawTensor(address=X, dtype=DataType.F32, shape=(32,), strides=(1,))
    inside = RawOperator(
        operator="aten::relu",
        reads=(tensor,),
        attributes=(),
        first=1,
        last=2,
        writes=(dataclasses.replace(tensor, address=Y),),
    )
    own = RawOperator(operator="my::op", reads=(), writes=(), attributes=(), first=0, last=3)
    strange = launch(X, Y, function=99)
    nodes = (launch(X, Y), strange, RawMemcpy(target=Y, source=X, bytes=4))
    program, _ = build_program(capture(*nodes, operators=(inside, own)))
    kinds = [type(step).__name__ for step in program.work()]
    assert kinds == ["Launch", "LibraryCall", "Memcpy"]
    with pytest.raises(TesseraError, match="`my::op`"):
        build_program(
            capture(*nodes, strange, operators=(inside, dataclasses.replace(own, last=4)))
        )


@pytest.mark.parametrize(
    ("initial", "holds", "is_fine"),
    [
        (" = {1, 2}", struct.pack("<II", 1, 2), True),
        (" = {1, 2}", struct.pack("<II", 1, 3), False),
        ("", bytes(8), True),
        ("", b"\1" + bytes(7), False),
    ],
)
def test_a_module_variable_must_hold_what_its_module_says(
    initial: str, holds: bytes, is_fine: bool
) -> None:
    """A constant that the host has set, or one that calls before this one have changed."""
    head, rest = PTX.split(".visible", 1)
    text = f"{head}.const .align 4 .b32 table[2]{initial};\n.visible{rest}"
    raw = capture(
        launch(X, Y),
        codes=(dataclasses.replace(code(text=text), variables=(("table", holds),)),),
    )
    if is_fine:
        build_program(raw)
        return
    with pytest.raises(TesseraError) as caught:
        build_program(raw)
    assert caught.value.diagnostics[0].code == "TSR6002"
    assert "`table`" in str(caught.value.diagnostics[0].headline)


def test_an_operand_without_elements_may_stand_anywhere() -> None:
    """The allocator gives it no address, and the first buffer need not be one that is used."""
    none = RawTensor(address=0, dtype=DataType.F32, shape=(0, 8), strides=(8, 1))
    given = dataclasses.replace(none, address=X, shape=(4, 8))
    call = RawOperator(
        operator="aten::cat",
        reads=(none, given),
        attributes=(),
        first=0,
        last=1,
        writes=(dataclasses.replace(given, address=Y),),
    )
    buffers = (
        buffer("first", X - 4096, Role.TEMP),
        buffer("x", X, Role.INPUT, lasting=True),
        buffer("y", Y, Role.OUTPUT),
    )
    program, _ = build_program(
        capture(launch(X, Y, function=99), operators=(call,), buffers=buffers)
    )
    (step,) = program.steps
    assert isinstance(step, LibraryCall)
    assert step.reads[0].shape == (0, 8)


def test_an_address_that_is_the_end_of_a_buffer() -> None:
    program, findings = build_program(capture(launch(X + 128, Y)))
    (step,) = program.launches()
    assert step.arguments[0] == Pointer(program.buffers[0].id, 128)
    assert findings == ()


def test_memory_that_nobody_owns_any_more_is_reported_without_a_declaration() -> None:
    gone = 0x7F00DEAD0000
    _, findings = build_program(capture(launch(gone, gone + 8), unowned={gone, gone + 8}))
    assert [finding.code for finding in findings] == ["TSR6005", "TSR6005"]
    assert "the word at 8 of `s`" in str(findings[1].headline)


def test_rows_without_gaps_are_one_step() -> None:
    program, _ = build_program(
        capture(
            RawMemset(address=Y, bytes=8, value=0, element_bytes=4, rows=4, pitch=8),
            RawMemcpy(target=Y, source=X, bytes=8, rows=4, target_pitch=8, source_pitch=8),
        )
    )
    assert [step.bytes for step in program.steps if isinstance(step, Memset | Memcpy)] == [32, 32]


def test_a_variant_with_other_parameters_is_left_out_and_told() -> None:
    both = code(archs=("sm_90a", "sm_80"))
    other = dataclasses.replace(
        both.variants[1], text=both.variants[1].text.replace(".b8 s[24]", ".b8 s[32]")
    )
    raw = capture(
        launch(X, Y), codes=(dataclasses.replace(both, variants=(both.variants[0], other)),)
    )
    program, findings = build_program(raw)
    assert [v.arch for v in program.modules[0].variants] == ["sm_90a"]
    assert [finding.code for finding in findings] == ["TSR6006"]


def test_a_variant_with_instructions_that_its_gpu_lacks_is_left_out_and_told() -> None:
    both = code(archs=("sm_90a", "sm_80"))
    newer = PTX.replace("ret;", "elect.sync _|%p0, -1;\n  ret;").replace(
        ".reg .b64", ".reg .pred %p<2>;\n  .reg .b64", 1
    )
    lacks = code(text=newer, archs=("sm_90a", "sm_80")).variants
    raw = capture(launch(X, Y), codes=(dataclasses.replace(both, variants=lacks),))
    program, findings = build_program(raw)
    assert [v.arch for v in program.modules[0].variants] == ["sm_90a"]
    (finding,) = findings
    assert finding.code == "TSR6006"
    assert str(finding.headline).startswith(
        "`scale` does not compile for sm_80: `elect.sync` needs"
    )
    with pytest.raises(TesseraError, match="TSR1029"):
        build_program(capture(launch(X, Y), codes=(code(text=newer),)))


def test_a_library_may_do_as_it_likes() -> None:
    """Copies from the host and allocations are fine where an operator makes them."""

    def tensor(address: int) -> RawTensor:
        return RawTensor(address=address, dtype=DataType.F32, shape=(4, 8), strides=(8, 1))

    call = RawOperator(
        operator="aten::relu",
        reads=(tensor(X),),
        writes=(tensor(Y),),
        attributes=(),
        first=0,
        last=2,
    )
    other = RawOther(what="launches an allocation inside the graph", hint="")
    program, _ = build_program(capture(other, launch(X, Y, function=99), operators=(call,)))
    assert [type(step) for step in program.steps] == [LibraryCall]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
def test_a_number_of_a_library_call_may_be_infinite(number: float) -> None:
    """As in a causal mask: `masked_fill(mask, -inf)`."""
    tensor = RawTensor(address=X, dtype=DataType.F32, shape=(32,), strides=(1,))
    node = RawLaunch(
        name="library", function=9, grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0, arguments=()
    )
    fill = RawOperator(
        operator="aten::clamp_min",
        reads=(tensor,),
        first=0,
        last=1,
        writes=(dataclasses.replace(tensor, address=Y),),
        attributes=(("min", number),),
    )
    program, _ = build_program(capture(node, operators=(fill,)))
    (call,) = program.work()
    assert isinstance(call, LibraryCall)
    ((_, found),) = call.attributes
    assert repr(found) == repr(number)
    assert parse_trace(print_program(program), "again") == program


HEAD = """.version 8.0
.target sm_80
.address_size 64
.visible .entry scale(.param .u64 a, .param .u64 b, .param .u64 c)
{ .reg .b64 %r<9>; .reg .f32 %f<3>;
  ld.param.u64 %r0, [a]; ld.param.u64 %r1, [b]; ld.param.u64 %r2, [c];
"""
APART = """  sub.s64 %r3, %r1, %r0; shr.s64 %r3, %r3, 2; shl.b64 %r3, %r3, 2; add.s64 %r4, %r0, %r3;
  ld.global.f32 %f0, [%r4]; st.global.f32 [%r2], %f0; ret; }
"""
HIDDEN = """  xor.b64 %r4, %r1, 4095; ld.global.f32 %f0, [%r4]; st.global.f32 [%r2], %f0; ret; }
"""
FLOAT = """  cvt.rn.f32.u64 %f1, %r1; ld.global.f32 %f0, [%r0]; add.f32 %f0, %f0, %f1;
  st.global.f32 [%r2], %f0; ret; }
"""
THREE = (
    buffer("x", X, Role.INPUT, lasting=True),
    buffer("w", W, Role.WEIGHT, lasting=True),
    buffer("y", Y, Role.OUTPUT),
)


@pytest.mark.parametrize(
    ("body", "value", "expected", "codes"),
    [
        # `a[b - a]`: what is subtracted and shifted is an address all the same.
        (APART, W, "w", []),
        # An address that nothing can find is told.
        (HIDDEN, W ^ 4095, None, ["TSR6005"]),
        # A number that is made a float is none, whatever its value.
        (FLOAT, W, None, []),
    ],
)
def test_an_address_that_is_no_base_by_its_looks(
    body: str, value: int, expected: str | None, codes: list[str]
) -> None:
    arguments = tuple(struct.pack("<Q", word) for word in (X, value, Y))
    node = dataclasses.replace(launch(X, Y), arguments=arguments, block=(1, 1, 1))
    raw = capture(node, buffers=THREE, codes=(code(text=HEAD + body),))
    program, findings = build_program(raw)
    (step,) = program.launches()
    names = [
        program.buffers[one.buffer].name if isinstance(one, Pointer) else None
        for one in step.arguments
    ]
    assert names == ["x", expected, "y"]
    assert [finding.code for finding in findings] == codes


def test_a_call_that_gives_nothing_is_no_step() -> None:
    """Also where there is no memory at all in which its operands could stand."""
    none = RawTensor(address=0, dtype=DataType.F32, shape=(0, 4), strides=(4, 1))
    node = dataclasses.replace(launch(X, Y), name="library", function=9)
    empty = RawOperator(
        operator="aten::relu", reads=(none,), writes=(none,), attributes=(), first=0, last=1
    )
    program, _ = build_program(capture(node, operators=(empty,), buffers=(), codes=()))
    assert not list(program.work())
