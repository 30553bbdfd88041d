"""Kernels of parts: the same bytes as the whole launch, and as the text with its numbers in it.

The checker proves them, and refuses any other text in their place.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.driver.traces import proved_kernels
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.passes.checker.part_text import check_part_kernels
from tessera.passes.division.part_kernels import with_part_kernels
from tests.helpers.ptxas import assemble, find_ptxas
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_cta_ranges import as_text, part, ranges
from tests.property.test_soundness_generated import program_of


def left_by(program: ir.Program, seed: int = 7) -> dict[str, bytes]:
    """What a program leaves in its states."""
    rng = np.random.default_rng(seed)
    contents = {b.name: rng.integers(0, 256, b.bytes).astype(np.uint8) for b in program.buffers}
    return {name: value.tobytes() for name, value in run_program(program, contents).buffers.items()}


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels(), st.sampled_from([(7, 3, 2), (12, 1, 1), (1, 5, 2)]), st.data())
def test_any_kernel_of_a_part_does_what_its_text_does(
    kernel: Kernel, grid: ir.Triple, data: st.DataObject
) -> None:
    program = program_of(replace(kernel, grid=grid))
    launch = part(next(program.launches()), *data.draw(ranges(grid)))
    made = proved_kernels(replace(program, steps=(launch,)))
    assert left_by(made) == left_by(as_text(program, launch))


# Every way to read the number of a CTA. Word n of the 16 words of each CTA has what is read.
READS = """.version 8.5
.target sm_90
.address_size 64
.file 1 "k.cu"
.func (.reg .u32 %up) number();
.func (.reg .u32 %row) row() { mov.u32 %row, %ctaid.y; ret; }
.func (.reg .u32 %all) all(.reg .u32 %wide)
{
    .reg .b32 %y, %z, %high;
    call (%y), row, ();
    mov.u32 %z, %ctaid.z;
    mov.u32 %high, %nctaid.y;
    mad.lo.u32 %z, %z, %high, %y;
    call (%y), number, ();
    mad.lo.u32 %all, %z, %wide, %y;
    ret;
}
.func (.reg .u32 %up) number() { mov.u32 %up, %ctaid.x; ret; }
.func (.reg .u32 %same) innocent() { mov.u32 %same, %ntid.x; ret; }
.visible .entry k(.param .u64 out, .param .u64 data, .param .u64 wide, .param .u32 a, .param .u32 b)
.reqnctapercluster 2, 1, 1
{
    .reg .pred %p;
    .reg .b16 %h<3>;
    .reg .v4 .u32 %v;
    .reg .b32 %r<40>;
    .reg .b64 %out, %at;
    .loc 1 1 1
    ld.param.u64 %out, [out];
    mov.u32 %r0, %nctaid.x;
    call (%r1), all, (%r0);
    call (%r2), innocent, ();
    mov.v4.u32 {%r3, %r4, %r5, _}, %ctaid;
    mov.v4.u32 %v, %nctaid;
    mov.u16 %h0, %ctaid.x;
    cvt.u32.u16 %r6, %h0;
    cvt.u32.u16 %r7, %nctaid.y;
    mov.b32 %r8, %clusterid.x;
    {
        .reg .b32 %r8;
        .loc 1 2 1
        setp.ne.u32 %p, %r3, 1;
        @%p mov.u32 %r8, %ctaid.z;
        @!%p mov.u32 %r8, %nclusterid.x;
        mov.u32 %r9, %r8;
    }
    mov.u32 %r10, %cluster_ctaid.x;
    mov.u32 %r11, %nclusterid.y;
    mov.u32 %r12, %clusterid.z;
    mov.u32 %r13, %cluster_nctarank;
    mul.wide.u32 %at, %r1, 64;
    add.u64 %out, %out, %at;
    st.global.v4.u32 [%out], {%r1, %r2, %r3, %r4};
    st.global.v4.u32 [%out+16], {%r5, %v.x, %v.y, %v.z};
    st.global.v4.u32 [%out+32], {%r6, %r7, %r8, %r9};
    st.global.v4.u32 [%out+48], {%r10, %r11, %r12, %r13};
    ret;
}
    .section .debug_str
    {
        .b8 0
    }
"""


def program_of_reads(grid: ir.Triple) -> ir.Program:
    kernel = Kernel(text=READS, grid=grid, block=(1, 1, 1), scalars=(0, 0), offset=0)
    program = program_of(kernel)
    variant = replace(program.modules[0].variants[0], arch="sm_90")
    buffers = (replace(program.buffers[0], bytes=32 * 64), *program.buffers[1:])
    modules = (replace(program.modules[0], variants=(variant,)),)
    return replace(program, buffers=buffers, modules=modules)


@pytest.mark.parametrize("axis", range(3))
@pytest.mark.parametrize("edges", [(0, 2, 8), (0, 4, 6, 8)])
def test_every_way_to_read_the_number_of_a_cta(axis: int, edges: tuple[int, ...]) -> None:
    x, y, z = (8 if at == axis else 2 for at in range(3))
    program = program_of_reads((x, y, z))
    (launch,) = program.launches()
    steps = [part(launch, axis, first, end) for first, end in pairwise(edges)]
    twice = (replace(step, id=ir.LaunchId(n)) for n, step in enumerate(2 * steps))
    made = proved_kernels(replace(program, steps=tuple(twice)))
    whole = left_by(program)
    assert left_by(made) == whole
    assert list(np.frombuffer(whole["out"], np.uint32)[::16]) == list(range(32))
    module = made.modules[0].variants[0].ptx
    name = f"k__{'xyz'[axis]}{edges[1]}of8"
    assert [launch.kernel for launch in made.launches()].count(name) == 2
    copied = [f.name for f in module.functions() if f.name.endswith(f"__of_{name}")]
    assert [f.partition("__")[0] for f in copied] == ["number", "row", "all", "number"]
    assert not any(isinstance(item, ptx.Section) for item in module.items)
    if find_ptxas():
        assert assemble(made.modules[0].variants[0].text).accepted


def parts_of_reads() -> tuple[ir.Program, ir.Program]:
    """A divided program, and the same with kernels for its parts."""
    program = program_of_reads((8, 2, 2))
    (launch,) = program.launches()
    steps = (part(launch, 0, 0, 2), replace(part(launch, 0, 2, 8), id=ir.LaunchId(1)))
    divided = replace(program, steps=steps)
    return divided, with_part_kernels(divided)


DIVIDED, MADE = parts_of_reads()
TEXT = MADE.modules[0].variants[0].text


def is_refused(text: str) -> bool:
    """Whether code is refused, by the reader or the checker, in the place of that of the parts."""
    try:
        code = parse_module(text, "other.ptx")
    except TesseraError:
        return True
    (module,) = MADE.modules
    variant = replace(module.variants[0], text=text, ptx=code)
    other = replace(MADE, modules=(replace(module, variants=(variant,)),))
    return bool(check_part_kernels(DIVIDED, other)) or code == module.variants[0].ptx


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("%tessera_ctaid.x, 2;", "%tessera_ctaid.x, 3;"),
        ("%tessera_ctaid.x, 2;", "%tessera_ctaid.y, 2;"),
        ("add.u32 %tessera_ctaid.x, %tessera_ctaid.x, 2;", "mov.u32 %tessera_ctaid.x, 2;"),
        ("mov.u32 %tessera_nctaid.x, 8;", "mov.u32 %tessera_nctaid.x, 6;"),
        ("mov.u32 %tessera_nctaid.x, 8;", "mov.u32 %tessera_nctaid.y, 8;"),
        ("mov.u32 %tessera_nclusterid.x, 4;", "mov.u32 %tessera_nclusterid.x, 8;"),
        ("add.u32 %tessera_clusterid.x, %tessera_clusterid.x, 1;", ""),
        ("mov.v4.u32 %tessera_ctaid, %ctaid;", "mov.v4.u32 %tessera_ctaid, %tid;"),
        ("}, %tessera_ctaid;", "}, %ctaid;"),
        ("}, %tessera_ctaid;", "}, %tessera_nctaid;"),
        ("cvt.u16.u32 %h0, %tessera_ctaid.x", "cvt.u16.u32 %h0, %tessera_ctaid.y"),
        ("cvt.u16.u32 %h0, %tessera_ctaid.x", "mov.u16 %h0, %ctaid.x"),
        ("%r1), all__of_k__x2of8", "%r1), all"),
        ("%r1), all__of_k__x2of8", "%r1), all__of_k__x0of8"),
        (".entry k__x2of8", ".entry k__x3of8"),
        ('.file 1 "k.cu"', ".func other() { ret; }"),
        (".reqnctapercluster 2, 1, 1", ".reqnctapercluster 1, 1, 1"),
    ],
)
def test_wrong_kernels_of_parts_are_refused(old: str, new: str) -> None:
    before, found, after = TEXT.rpartition(old)  # the second part stands behind the first
    assert found
    assert is_refused(before + new + after)


LINES = TEXT.splitlines(keepends=True)
INSIDE = [number for number, line in enumerate(LINES) if line.startswith("\t")]


@settings(deadline=None)
@given(st.sampled_from(INSIDE), st.data())
def test_any_other_text_is_refused(number: int, data: st.DataObject) -> None:
    line = LINES[number]
    digits = [at for at, letter in enumerate(line) if letter.isdigit()]
    changed = [
        "",
        2 * line,
        *(line[:at] + str((int(line[at]) + 1) % 10) + line[at + 1 :] for at in digits),
    ]
    other = data.draw(st.sampled_from([*changed, LINES[data.draw(st.sampled_from(INSIDE))]]))
    assert is_refused("".join([*LINES[:number], other, *LINES[number + 1 :]]))


def test_a_part_with_the_kernel_of_another_is_refused() -> None:
    assert not check_part_kernels(DIVIDED, MADE)
    first, second = MADE.launches()
    others = [
        (first, replace(second, kernel=first.kernel)),
        (first, replace(second, kernel="k")),
        (first, replace(second, grid=(5, 2, 2))),
        (first, replace(second, arguments=second.arguments[::-1])),
        (first, replace(second, block=(2, 1, 1))),
        (first,),
        (second, first),
    ]
    for steps in others:
        assert check_part_kernels(DIVIDED, replace(MADE, steps=steps))


def test_parts_that_cut_a_cluster_are_refused() -> None:
    """`%clusterid` of such a part is no number that is added: half of a cluster runs elsewhere."""
    program = program_of_reads((8, 2, 2))
    (launch,) = program.launches()
    steps = (part(launch, 0, 0, 3), replace(part(launch, 0, 3, 8), id=ir.LaunchId(1)))
    text = TEXT.replace(
        "%tessera_ctaid.x, %tessera_ctaid.x, 2;", "%tessera_ctaid.x, %tessera_ctaid.x, 3;"
    )
    assert text != TEXT
    text = text.replace("k__x2of8", "k__x3of8")
    (module,) = MADE.modules
    variant = replace(module.variants[0], text=text, ptx=parse_module(text, "other.ptx"))
    launches = zip(MADE.launches(), steps, strict=True)
    made = replace(
        MADE,
        modules=(replace(module, variants=(variant,)),),
        steps=tuple(
            replace(one, kernel=one.kernel.replace("x2of8", "x3of8"), grid=step.grid)
            for one, step in launches
        ),
    )
    assert check_part_kernels(replace(program, steps=steps), made)


def test_functions_that_call_themselves_are_compared_once() -> None:
    again = "mov.u32 %up, %ctaid.x; @%no call (%up), number, (); ret; }"
    text = READS.replace("mov.u32 %up, %ctaid.x; ret; }", f".reg .pred %no; {again}")
    assert text != READS
    kernel = Kernel(text=text, grid=(8, 2, 2), block=(1, 1, 1), scalars=(0, 0), offset=0)
    program = program_of(kernel)
    (launch,) = program.launches()
    divided = replace(
        program, steps=(part(launch, 0, 0, 2), replace(part(launch, 0, 2, 8), id=ir.LaunchId(1)))
    )
    assert check_part_kernels(divided, with_part_kernels(divided)) == ()
