"""Memory instructions one at a time: bytes moved and bytes touched, worked out by hand.

Executor and analysis read the same opcode table. Here each form that the CPU backend runs is in a
tiny kernel whose result and whose accesses are written down from the ISA; the log of the backend
and the regions of the analysis must both be exactly these. (`test_opcode_memory_rows` does the
same for the table itself, forms that nothing here can run included.)

Buffer `x` holds the bytes 0, 1, 2, ... and `out` is full of 0xEE.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.graph.access import Certainty
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.regions import regions_bytes
from tessera.passes.dependences.access_regions import AccessRegions

SIZE = 1024
FILL = 0xEE
Ranges = tuple[tuple[int, int], ...]

HEAD = """
.version 8.6
.target {target}
.address_size 64
.const .align 16 .b8 table[16] = {{7, 6, 5, 4, 3, 2, 1, 0}};
.visible .entry k(.param .u64 px, .param .u64 pout)
{{
  .reg .b64 %x, %out, %a, %b, %t;
  .reg .b32 %r<16>, %s, %m, %i, %one;
  .reg .b16 %h<4>;
  .reg .f32 %f<16>;
  .reg .pred %p<4>;
  .shared .align 128 .b8 s[1024];
  .shared .align 8 .b64 bar;
  .local .align 16 .b8 l[16];
  ld.param.u64 %x, [px];
  ld.param.u64 %out, [pout];
  mov.u32 %s, s;
  mov.u32 %m, bar;
  mov.u32 %i, %tid.x;
  mov.u32 %one, 1;
{body}
  ret;
}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A kernel body; the bytes it touches; what is in `out` afterwards, by offset."""

    name: str
    body: str
    reads: Ranges = ()
    out_reads: Ranges = ()
    writes: Ranges = ()
    out: dict[int, bytes] = field(default_factory=dict)
    threads: int = 1
    target: str = "sm_90a"


def _load(kind: str, registers: str, width: int, at: int = 16) -> Case:
    """A load from `x + at` and a store of the same type to `out + 32`."""
    return Case(
        name=f"ld.global.{kind}",
        body=f"ld.global.{kind} {registers}, [%x+{at}]; st.global.{kind} [%out+32], {registers};",
        reads=((at, at + width),),
        writes=((32, 32 + width),),
        out={32: bytes(range(at, at + width))},
    )


WAIT = """
W: mbarrier.try_wait.parity.shared.b64 %p0, [%m], 0;
  @!%p0 bra W;
"""
COPY_IN = """
  mbarrier.init.shared.b64 [%m], 1;
  mbarrier.arrive.expect_tx.shared.b64 %t, [%m], 48;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%x+64], 48, [%m];
"""
FILL_SHARED = """
  mul.lo.u32 %r0, %i, 4;
  add.u32 %r1, %s, %r0;
  add.u32 %r2, %i, 256;
  st.shared.b32 [%r1], %r2;
  bar.sync 0;
"""
MINE = "mul.wide.u32 %a, %i, 4; add.u64 %b, %out, %a;"

CASES = [
    _load("b8", "%r0", 1, 5),
    _load("u16", "%h0", 2, 6),
    _load("b32", "%r0", 4),
    _load("f32", "%f0", 4),
    _load("b64", "%a", 8),
    _load("v2.b32", "{%r0, %r1}", 8),
    _load("v2.u16", "{%h0, %h1}", 4),
    _load("v4.b32", "{%r0, %r1, %r2, %r3}", 16),
    _load("v2.b64", "{%a, %b}", 16),
    Case(
        name="ldu and generic store",
        body="ldu.global.b32 %r0, [%x+8]; st.b32 [%out], %r0;",
        reads=((8, 12),),
        writes=((0, 4),),
        out={0: bytes([8, 9, 10, 11])},
    ),
    Case(
        name="generic load",
        body="ld.u8 %r0, [%x+77]; st.global.v2.u8 [%out+2], {%r0, %r0};",
        reads=((77, 78),),
        writes=((2, 4),),
        out={2: bytes([77, 77])},
    ),
    Case(
        name="const and local",
        body="ld.const.u8 %r0, [table+1]; st.local.u32 [l], %r0; ld.local.u32 %r1, [l];"
        " st.global.u32 [%out], %r1;",
        writes=((0, 4),),
        out={0: bytes([6, 0, 0, 0])},
    ),
    Case(
        name="atom.add",
        body="atom.global.add.u32 %r0, [%out+8], 1; st.global.b32 [%out], %r0;",
        out_reads=((8, 12),),
        writes=((0, 4), (8, 12)),
        out={0: b"\xee\xee\xee\xee", 8: b"\xef\xee\xee\xee"},
    ),
    Case(
        name="atom.cas.b64",
        body="mov.b64 %a, 0xEEEEEEEEEEEEEEEE; mov.b64 %b, 5;"
        " atom.global.cas.b64 %t, [%out+16], %a, %b;",
        out_reads=((16, 24),),
        writes=((16, 24),),
        out={16: b"\5\0\0\0\0\0\0\0"},
    ),
    Case(
        name="atom.exch",
        body="atom.exch.b32 %r0, [%out+4], %one;",
        out_reads=((4, 8),),
        writes=((4, 8),),
        out={4: b"\1\0\0\0"},
    ),
    Case(
        name="red.and.b32",
        body="mov.u32 %r0, 0x0000ffff; red.global.and.b32 [%out+12], %r0;",
        out_reads=((12, 16),),
        writes=((12, 16),),
        out={12: b"\xee\xee\0\0"},
    ),
    Case(
        name="red.add.u64",
        body="mov.b64 %a, 1; red.global.add.u64 [%out+8], %a;",
        out_reads=((8, 16),),
        writes=((8, 16),),
        out={8: b"\xef" + b"\xee" * 7},
    ),
    Case(
        name="prefetch",
        body="prefetch.global.L2 [%x]; prefetchu.L1 [%x];",
    ),
    Case(
        name="cp.async 16",
        body="cp.async.cg.shared.global [%s], [%x+48], 16; cp.async.wait_all;"
        " ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%s];"
        " st.global.v4.b32 [%out], {%r0, %r1, %r2, %r3};",
        reads=((48, 64),),
        writes=((0, 16),),
        out={0: bytes(range(48, 64))},
    ),
    Case(
        name="cp.async 8 of which 4 are read",
        body="cp.async.ca.shared.global [%s], [%x+48], 8, 4; cp.async.wait_all;"
        " ld.shared.v2.b32 {%r0, %r1}, [%s]; st.global.v2.b32 [%out], {%r0, %r1};",
        reads=((48, 52),),
        writes=((0, 8),),
        out={0: bytes([48, 49, 50, 51, 0, 0, 0, 0])},
    ),
    Case(
        name="cp.async.bulk in",
        body=COPY_IN + WAIT + "ld.shared.b64 %a, [%s+40]; st.global.b64 [%out], %a;",
        reads=((64, 112),),
        writes=((0, 8),),
        out={0: bytes(range(104, 112))},
    ),
    Case(
        name="cp.async.bulk out",
        body=FILL_SHARED
        + """
  setp.ne.u32 %p1, %i, 0;
  @%p1 ret;
  fence.proxy.async.shared::cta;
  cp.async.bulk.global.shared::cta.bulk_group [%out+16], [%s], 32;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
""",
        threads=32,
        writes=((16, 48),),
        out={16: np.arange(256, 264, dtype=np.uint32).tobytes()},
    ),
    Case(
        name="cp.reduce.async.bulk",
        body=FILL_SHARED
        + """
  setp.ne.u32 %p1, %i, 0;
  @%p1 ret;
  fence.proxy.async.shared::cta;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out+32], [%s], 16;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
""",
        threads=32,
        out_reads=((32, 48),),
        writes=((32, 48),),
        out={32: (np.arange(256, 260, dtype=np.uint32) + np.uint32(0xEEEEEEEE)).tobytes()},
    ),
    Case(
        name="ldmatrix",
        body=FILL_SHARED + "shl.b32 %r3, %i, 4; and.b32 %r3, %r3, 127; add.u32 %r3, %r3, %s;"
        " ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r4}, [%r3];"
        + MINE
        + " st.global.b32 [%b], %r4;",
        threads=32,
        writes=((0, 128),),
        out={0: np.arange(256, 288, dtype=np.uint32).tobytes()},
    ),
    Case(
        name="stmatrix",
        body="shl.b32 %r3, %i, 4; and.b32 %r3, %r3, 127; add.u32 %r3, %r3, %s;"
        " add.u32 %r4, %i, 512; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r3], {%r4};"
        " bar.sync 0; shl.b32 %r5, %i, 2;"
        " add.u32 %r5, %r5, %s; ld.shared.b32 %r6, [%r5];" + MINE + " st.global.b32 [%b], %r6;",
        threads=32,
        writes=((0, 128),),
        out={0: np.arange(512, 544, dtype=np.uint32).tobytes()},
    ),
    Case(
        name="wmma.load and wmma.store",
        body="wmma.load.c.sync.aligned.row.m16n16k16.global.f32"
        " {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%x], 16;"
        " mov.u32 %r0, 20; wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%out],"
        " {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, %r0;",
        threads=32,
        reads=((0, 1024),),
        writes=tuple((80 * row, 80 * row + 64) for row in range(16)),
        out={},
    ),
    Case(
        name="st.async",
        body="""
  mbarrier.init.shared.b64 [%m], 1;
  mbarrier.arrive.expect_tx.shared.b64 %t, [%m], 8;
  mov.b64 %a, 0x0807060504030201;
  st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%s], %a, [%m];
"""
        + WAIT
        + "ld.shared.b64 %b, [%s]; st.global.b64 [%out+8], %b;",
        writes=((8, 16),),
        out={8: bytes(range(1, 9))},
    ),
]


def _sizes(case: Case) -> tuple[int, int]:
    return SIZE, max([SIZE, *(end for _, end in case.writes)])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bytes_moved_and_touched(case: Case) -> None:
    module = parse_module(HEAD.format(target=case.target, body=case.body))
    in_bytes, out_bytes = _sizes(case)
    with Device() as device:
        x = device.array((np.arange(in_bytes) % 256).astype(np.uint8), "x")
        out = device.array(np.full(out_bytes, FILL, np.uint8), "out")
        log = device.load(module)["k"].launch(1, case.threads, [x, out]).accesses
        result = out.view().reshape(-1).view(np.uint8).copy()
    expected = np.full(out_bytes, FILL, np.uint8)
    for offset, content in case.out.items():
        expected[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
    if case.out:
        assert result.tobytes() == expected.tobytes()
    logged = {entry.buffer: entry for entry in log}
    for name, reads, writes in (("x", case.reads, ()), ("out", case.out_reads, case.writes)):
        entry = logged.get(name)
        assert (tuple(entry.reads) if entry else ()) == reads
        assert (tuple(entry.writes) if entry else ()) == writes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_regions_are_exactly_these_bytes(case: Case) -> None:
    module = parse_module(HEAD.format(target=case.target, body=case.body))
    sizes = _sizes(case)
    variant = ir.ModuleVariant(arch=case.target, text="", ptx=module)
    program = ir.Program(
        buffers=(
            ir.Buffer(id=ir.BufferId(0), name="x", bytes=sizes[0], role=ir.Role.STATE),
            ir.Buffer(id=ir.BufferId(1), name="out", bytes=sizes[1], role=ir.Role.STATE),
            ir.Buffer(id=ir.BufferId(2), name="m.table", bytes=16, role=ir.Role.VARIABLE),
        ),
        modules=(ir.ProgramModule(ir.ModuleId(0), "m", (variant,)),),
        steps=(
            ir.Launch(
                id=ir.LaunchId(0),
                module=ir.ModuleId(0),
                kernel="k",
                grid=(1, 1, 1),
                block=(case.threads, 1, 1),
                arguments=(ir.Pointer(ir.BufferId(0), 0), ir.Pointer(ir.BufferId(1), 0)),
            ),
        ),
    )
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.pins

    def found(buffer: int, *, reads: bool = False, must: bool = False) -> Ranges:
        chosen = [
            access.region
            for access in step.accesses
            if access.buffer == buffer
            and (access.kind.reads if reads else access.kind.writes)
            and (not must or access.certainty is Certainty.MUST)
        ]
        return intervals.pairs(regions_bytes(chosen, sizes[buffer])) if chosen else ()

    assert found(0, reads=True) == case.reads
    assert found(0) == ()
    assert found(1, reads=True) == case.out_reads
    assert found(1) == case.writes
    certain = tuple(range_ for range_ in case.writes if range_ not in case.out_reads)
    assert found(1, must=True) == certain
