"""Addresses that go through shared memory: followed where that is safe, and only there.

Two CTAs of 64 threads. Thread t of CTA c has an address in `a` and one in `b`, at 512c + 8t, which
is in `%rd5` and `%rd6`; its own place in `smem` is `%r4`, that of its partner t^32, in the other
warp, `%r5`. `%r6` is a number from `data`, and `%p1` whether it is even.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tessera.backend.ptx_executor.run import run_program
from tessera.diagnostics import TesseraError
from tessera.ir.graph.access import AddressClass
from tessera.ir.program import program as ir
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tessera.passes.footprint import footprint
from tests.helpers.access_oracle import compare
from tests.helpers.traces import trace

BUFFERS = """
buffer a bytes=2048 role=input
buffer b bytes=2048 role=input
buffer out bytes=4096 role=output
buffer data bytes=512 role=input
"""
HEAD = """
.extern .shared .align 16 .b8 dynamic[];
.extern .shared .align 16 .b8 again[];
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 out, .param .u64 data)
{
    .reg .pred %p<9>;
    .reg .b16 %h<4>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<40>;
    .shared .align 16 .b8 smem[1024];
    .shared .align 16 .b8 more[1024];
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [out];
    ld.param.u64 %rd4, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    shl.b32 %r30, %r2, 6;
    add.s32 %r31, %r30, %r1;
    mul.wide.u32 %rd30, %r31, 8;
    add.s64 %rd5, %rd1, %rd30;
    add.s64 %rd6, %rd2, %rd30;
    mul.wide.u32 %rd31, %r31, 4;
    add.s64 %rd7, %rd4, %rd31;
    ld.global.u32 %r6, [%rd7];
    and.b32 %r32, %r6, 1;
    setp.eq.u32 %p1, %r32, 0;
    xor.b32 %r3, %r1, 32;
    mov.u32 %r33, smem;
    shl.b32 %r34, %r1, 3;
    add.s32 %r4, %r33, %r34;
    shl.b32 %r35, %r3, 3;
    add.s32 %r5, %r33, %r35;
    mul.wide.u32 %rd32, %r31, 16;
    add.s64 %rd8, %rd3, %rd32;
"""
BAR = "bar.sync 0;"
PUT_A, PUT_B = "st.shared.b64 [%r4], %rd5;", "st.shared.b64 [%r4], %rd6;"
GET, READ = "ld.shared.b64 %rd10, [%r5];", "ld.global.u32 %r10, [%rd10];"
NEXT = "xor.b32 %r11, %r1, 1; shl.b32 %r12, %r11, 3; add.s32 %r13, %r33, %r12;"
HALVES = "mov.b64 {%r11, %r12}, %rd5;"
WORDS = [(8 * i, 8 * i + 4) for i in range(128)]
WHOLE = [(0, 2048)]
Expected = dict[str, list[tuple[int, int]]]

# What is followed to the byte.
FOLLOWED: dict[str, tuple[str, Expected]] = {
    "a layout change": (f"{PUT_A} {BAR} {GET} {READ}", {"a": WORDS}),
    "two tables, one after the other": (
        f"{PUT_A} {BAR} {GET} {READ} {BAR} {PUT_B} {BAR} ld.shared.b64 %rd11, [%r5];"
        "ld.global.u32 %r10, [%rd11+4];",
        {"a": WORDS, "b": [(s + 4, e + 4) for s, e in WORDS]},
    ),
    "a thread's own word needs no barrier": (
        f"{PUT_A} ld.shared.b64 %rd10, [%r4]; {READ}",
        {"a": WORDS},
    ),
    "a barrier with all threads counted": (f"{PUT_A} bar.sync 3, 64; {GET} {READ}", {"a": WORDS}),
    "a barrier that reduces": (
        f"{PUT_A} bar.red.and.pred %p5, 0, %p1; {GET} {READ}",
        {"a": WORDS},
    ),
    "two words of 4 bytes": (
        f"{HALVES} st.shared.b32 [%r4], %r11; st.shared.b32 [%r4+4], %r12; {BAR} {GET} {READ}",
        {"a": WORDS},
    ),
    "stored whole, loaded in halves": (
        f"{PUT_A} {BAR} ld.shared.v2.b32 {{%r11, %r12}}, [%r5]; mov.b64 %rd10, {{%r11, %r12}};"
        f"{READ}",
        {"a": WORDS},
    ),
    "the low half is replaced": (
        f"{PUT_B} {BAR} {HALVES} st.shared.b32 [%r5], %r11; st.shared.b32 [%r5+4], %r12; {BAR}"
        f"{GET} {READ}",
        {"a": WORDS},
    ),
    "vectors": (
        "shl.b32 %r11, %r1, 4; add.s32 %r12, %r33, %r11; st.shared.v2.b64 [%r12], {%rd5, %rd6};"
        f"{BAR} xor.b32 %r13, %r11, 512; add.s32 %r14, %r33, %r13;"
        "ld.shared.v2.b64 {%rd10, %rd11}, [%r14];"
        f"{READ} ld.global.u32 %r15, [%rd11];",
        {"a": WORDS, "b": WORDS},
    ),
    "other data before": (
        "cvt.rn.f32.u32 %r11, %r6; st.shared.b32 [%r4], %r11; st.shared.b32 [%r4+4], %r6;"
        f"{BAR} ld.shared.b32 %r12, [%r5]; {BAR} {PUT_A} {BAR} {GET} {READ}",
        {"a": WORDS},
    ),
    "other data in between": (
        f"{PUT_A} {BAR} {GET} {READ} {BAR} st.shared.v2.b32 [%r4], {{%r6, %r6}}; {BAR}"
        f"ld.shared.b32 %r12, [%r5]; {BAR} {PUT_B} {BAR} {GET} {READ}",
        {"a": WORDS, "b": WORDS},
    ),
    "a matrix store before": (
        "and.b32 %r11, %r1, 63; shl.b32 %r12, %r11, 4; add.s32 %r13, %r33, %r12;"
        "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [smem], "
        "{%r6, %r6, %r6, %r6, %r6, %r6, %r6, %r6}, 16;"
        f"{BAR} {PUT_A} {BAR} {GET} {READ}",
        {"a": WORDS},
    ),
    "all threads store the same word": (
        f"st.shared.b64 [smem+512], %rd1; {BAR} ld.shared.b64 %rd10, [smem+512]; {READ}",
        {"a": [(0, 4)]},
    ),
    "four threads store to one word": (
        "shr.u32 %r11, %r1, 2; shl.b32 %r12, %r11, 3; add.s32 %r13, %r33, %r12;"
        f"st.shared.b64 [%r13], %rd5; {BAR} ld.shared.b64 %rd10, [%r13]; {READ}",
        # Any of the four, or what lies between.
        {"a": [(32 * i, 32 * i + 28) for i in range(32)]},
    ),
    "a join of two places in one table": (
        f"{PUT_A} add.s64 %rd11, %rd5, 4; @%p1 st.shared.b64 [%r4], %rd11; {BAR} {GET}"
        "ld.global.u8 %r10, [%rd10];",
        {"a": [(8 * i, 8 * i + 5) for i in range(128)]},
    ),
    "a store on one side of a branch that data decides": (
        f"{PUT_A} add.s64 %rd11, %rd5, 4; @%p1 bra S; st.shared.b64 [%r4], %rd11; S: {BAR} {GET}"
        "ld.global.u8 %r10, [%rd10];",
        {"a": [(8 * i, 8 * i + 5) for i in range(128)]},
    ),
    "a store by one warp": (
        f"{PUT_A} {BAR} setp.lt.u32 %p2, %r1, 32; @%p2 st.shared.b64 [%r4], %rd6; {BAR} {GET}"
        f"{READ}",
        {
            "a": [w for i, w in enumerate(WORDS) if i % 64 >= 32],
            "b": [w for i, w in enumerate(WORDS) if i % 64 < 32],
        },
    ),
    "a store by one CTA": (
        f"{PUT_A} {BAR} setp.eq.u32 %p2, %r2, 1; @%p2 st.shared.b64 [%r4], %rd6; {BAR} {GET}{READ}",
        {"a": WORDS[:64], "b": WORDS[64:]},
    ),
    "CTAs with different numbers of rounds": (
        f"mov.u32 %r11, 0; mov.u64 %rd12, %rd5; L: st.shared.b64 [%r4], %rd12; {BAR} {GET}"
        f"ld.global.u8 %r10, [%rd10]; {BAR} add.s64 %rd12, %rd12, 1; add.s32 %r11, %r11, 1;"
        "setp.le.u32 %p2, %r11, %r2; @%p2 bra L;",
        {
            "a": [(8 * i, 8 * i + 1) for i in range(64)]
            + [(8 * i, 8 * i + 2) for i in range(64, 128)]
        },
    ),
    "a loop of layout changes": (
        f"mov.u32 %r11, 0; mov.u64 %rd12, %rd5; L: st.shared.b64 [%r4], %rd12; {BAR} {GET}"
        f"ld.global.u8 %r10, [%rd10]; {BAR} add.s64 %rd12, %rd12, 1; add.s32 %r11, %r11, 1;"
        "setp.lt.u32 %p2, %r11, 4; @%p2 bra L;",
        {"a": WORDS},
    ),
    "round and round, from shared memory to itself": (
        f"{PUT_A} {BAR} mov.u32 %r11, 0; L: {GET} {BAR} add.s64 %rd10, %rd10, 1;"
        f"st.shared.b64 [%r4], %rd10; {BAR} add.s32 %r11, %r11, 1; setp.lt.u32 %p2, %r11, 4;"
        f"@%p2 bra L; {GET} ld.global.u8 %r10, [%rd10];",
        {"a": [(8 * i + 4, 8 * i + 5) for i in range(128)]},
    ),
    "dynamic memory, by two names": (
        "mov.u32 %r11, dynamic; add.s32 %r12, %r11, %r34; st.shared.b64 [%r12], %rd5;"
        f"{BAR} mov.u32 %r13, again; add.s32 %r14, %r13, %r35; ld.shared.b64 %rd10, [%r14]; {READ}",
        {"a": WORDS},
    ),
    "generic addresses": (
        "mov.u64 %rd11, smem; cvta.shared.u64 %rd12, %rd11; cvt.u64.u32 %rd13, %r34;"
        f"add.s64 %rd14, %rd12, %rd13; st.b64 [%rd14], %rd5; {BAR} cvt.u64.u32 %rd15, %r35;"
        f"add.s64 %rd16, %rd12, %rd15; ld.b64 %rd10, [%rd16]; {READ}",
        {"a": WORDS},
    ),
    "generic address of another buffer": (
        f"{PUT_A} {BAR} mov.u64 %rd11, smem; cvta.shared.u64 %rd12, %rd11; st.u32 [%rd8], %r1;"
        f"{GET} {READ}",
        {"a": WORDS},
    ),
    "low bits of an aligned address": (
        "shl.b32 %r11, %r1, 4; add.s32 %r12, %r33, %r11; or.b32 %r13, %r12, 8;"
        f"st.shared.b64 [%r13], %rd5; {BAR} ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WORDS},
    ),
    "a copy that is over": (
        f"cp.async.ca.shared.global [%r4], [%rd5], 8; cp.async.commit_group;"
        f"cp.async.wait_group 0; {BAR} {PUT_A} {BAR} {GET} {READ}",
        {"a": [(0, 1024)]},
    ),
    "a barrier of the warp": (
        f"{NEXT} {PUT_A} bar.warp.sync -1; ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WORDS},
    ),
    "the address of an unknown element": (
        "and.b32 %r11, %r6, 63; mul.wide.u32 %rd11, %r11, 8; add.s64 %rd12, %rd1, %rd11;"
        f"st.shared.b64 [%r4], %rd12; {BAR} {GET} {READ}",
        {"a": [(0, 508)]},
    ),
    "before a loop that data ends": (
        f"{PUT_A} {BAR} {GET} {READ} {BAR} ld.global.u32 %r14, [%rd4]; and.b32 %r15, %r14, 3;"
        f"mov.u32 %r13, 0; L: st.shared.b32 [%r4], %r6; {BAR} ld.shared.b32 %r12, [%r5]; {BAR}"
        "add.s32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, %r15; @%p3 bra L;",
        {"a": WORDS},
    ),
    "a write through an address": (
        f"st.shared.b64 [%r4], %rd8; {BAR} {GET} st.global.u32 [%rd10], %r1;",
        {"out": [(16 * i, 16 * i + 4) for i in range(128)]},
    ),
    "an index": (
        "shl.b32 %r11, %r1, 2; add.s32 %r12, %r33, %r11; st.shared.b32 [%r12], %r31;"
        f"{BAR} shl.b32 %r13, %r3, 2; add.s32 %r14, %r33, %r13; ld.shared.b32 %r15, [%r14];"
        f"mul.wide.u32 %rd11, %r15, 8; add.s64 %rd10, %rd1, %rd11; {READ}",
        {"a": WORDS},
    ),
    "half an index": (
        "shl.b32 %r11, %r1, 2; add.s32 %r12, %r33, %r11; st.shared.b32 [%r12], %r31;"
        f"{BAR} shl.b32 %r13, %r3, 2; add.s32 %r14, %r33, %r13; ld.shared.u8 %r15, [%r14];"
        f"mul.wide.u32 %rd11, %r15, 8; add.s64 %rd10, %rd1, %rd11; {READ}",
        {"a": WORDS},
    ),
}

# What is only known to be in some buffers.
JOINED: dict[str, tuple[str, Expected]] = {
    "past the end of a variable, into the next": (
        f"st.shared.b64 [more], %rd1; {BAR} st.shared.b64 [smem+1024], %rd2; {BAR}"
        f"ld.shared.b64 %rd10, [more]; {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "an index past the end of a variable": (
        f"st.shared.b32 [more], %r2; {BAR} mov.u32 %r11, 77; st.shared.b32 [smem+1024], %r11; {BAR}"
        "ld.shared.b32 %r12, [more]; mul.wide.u32 %rd11, %r12, 4; add.s64 %rd10, %rd1, %rd11;"
        f"{READ}",
        {"a": WHOLE},
    ),
    "no barrier": (f"{PUT_B} {BAR} {PUT_A} {GET} {READ}", {"a": WHOLE, "b": WHOLE}),
    "no barrier before the next store": (
        f"{PUT_A} {BAR} {GET} {READ} {PUT_B} {BAR} ld.shared.b64 %rd11, [%r5];"
        "ld.global.u32 %r10, [%rd11];",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier of the other warp's threads only": (
        f"{PUT_B} {BAR} {PUT_A} bar.warp.sync -1; {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier for half of the threads": (
        f"{PUT_B} {BAR} {PUT_A} shr.u32 %r11, %r1, 5; add.s32 %r12, %r11, 1; bar.sync %r12, 32;"
        f"{GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier that each warp passes at another place": (
        f"{PUT_B} {BAR} setp.lt.u32 %p2, %r1, 32; @%p2 bra F; {BAR} {PUT_A} {BAR} bra E;"
        f"F: {PUT_A} {BAR} {BAR} E: {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    # Warp 0 is one barrier ahead: it passes the second one when warp 1 passes the first.
    "a barrier that one warp passed before": (
        f"{PUT_B} {BAR} setp.lt.u32 %p2, %r1, 32; @%p2 bar.sync 0; {PUT_A} {BAR} {GET} {READ}"
        "@!%p2 bar.sync 0;",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier of each warp for itself": (
        f"{PUT_B} {BAR} {PUT_A} bar.sync 1, 32; {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier on one side of a branch that data decides": (
        f"{PUT_B} {BAR} {PUT_A} ld.global.u32 %r11, [%rd4]; setp.eq.u32 %p2, %r11, 0; @%p2 bra S;"
        f"{BAR} S: {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "an arrival": (
        f"{PUT_B} {BAR} {PUT_A} bar.arrive 1, 64; {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier of single threads": (
        f"{NEXT} {PUT_B} {BAR} {PUT_A} mov.u32 %r14, %lanemask_eq; bar.warp.sync %r14;"
        f"ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a barrier of the warp that some threads passed before": (
        f"{NEXT} {PUT_B} {BAR} and.b32 %r14, %r1, 1; setp.eq.u32 %p2, %r14, 0;"
        f"@%p2 bar.warp.sync -1; {PUT_A} bar.warp.sync -1; ld.shared.b64 %rd10, [%r13]; {READ}"
        "@!%p2 bar.warp.sync -1;",
        {"a": WHOLE, "b": WHOLE},
    ),
    "an address that a loop moves, as often as data says": (
        f"{PUT_A} and.b32 %r11, %r6, 63; mov.u32 %r12, 0; L: ld.shared.b64 %rd10, [%r4];"
        "add.s64 %rd11, %rd10, 1; st.shared.b64 [%r4], %rd11; add.s32 %r12, %r12, 1;"
        f"setp.lt.u32 %p2, %r12, %r11; @%p2 bra L; {BAR} ld.shared.b64 %rd12, [%r5];"
        "ld.global.u8 %r10, [%rd12];",
        {"a": WHOLE},
    ),
    "a loop in which only shared memory changes": (
        f"{PUT_A} L: ld.shared.b64 %rd10, [%r4]; {READ} {PUT_B}"
        "atom.global.add.u32 %r11, [%rd7], 1;"
        "and.b32 %r11, %r11, 3; setp.lt.u32 %p2, %r11, 3; @%p2 bra L;",
        {"a": WHOLE, "b": WHOLE},
    ),
    "an arrival without waiting": (
        f"{PUT_B} {BAR} {PUT_A} bar.arrive 1, 128; bar.sync 1, 128; {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "stores of two tables that data chooses": (
        f"{PUT_A} @%p1 st.shared.b64 [%r4], %rd6; {BAR} {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "two threads store to one word": (
        "shr.u32 %r11, %r1, 1; shl.b32 %r12, %r11, 3; add.s32 %r13, %r33, %r12;"
        "and.b32 %r14, %r1, 1; setp.eq.u32 %p2, %r14, 0; selp.b64 %rd11, %rd5, %rd6, %p2;"
        f"st.shared.b64 [%r13], %rd11; {BAR} ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a store at an unknown place": (
        f"{PUT_A} {BAR} and.b32 %r11, %r6, 127; shl.b32 %r12, %r11, 3; add.s32 %r13, %r33, %r12;"
        f"st.shared.b64 [%r13], %rd6; {BAR} {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a load from an unknown place": (
        f"{PUT_A} st.shared.b64 [%r4+512], %rd6; {BAR} and.b32 %r11, %r6, 127;"
        f"shl.b32 %r12, %r11, 3; add.s32 %r13, %r33, %r12; ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "a loop that data ends": (
        f"mov.u32 %r11, 0; L: {PUT_A} {BAR} {GET} {READ} {BAR} add.s32 %r11, %r11, 1;"
        "and.b32 %r12, %r6, 1; setp.lt.u32 %p2, %r11, 2; @%p2 bra L; ld.global.u32 %r14, [%rd4];"
        f"mov.u32 %r13, 0; M: {PUT_B} {BAR} ld.shared.b64 %rd11, [%r5];"
        f"ld.global.u32 %r10, [%rd11]; {BAR} add.s32 %r13, %r13, 1;"
        "and.b32 %r15, %r14, 3; setp.lt.u32 %p3, %r13, %r15; @%p3 bra M;",
        {"a": WHOLE, "b": WHOLE},
    ),
    "the number of the address matters": (
        "shl.b32 %r11, %r1, 4; add.s32 %r12, %r33, %r11; xor.b32 %r13, %r12, 64;"
        f"st.shared.b64 [%r13], %rd5; {BAR} ld.shared.b64 %rd10, [%r13]; {READ}",
        {"a": WHOLE},
    ),
    "the number of the address is compared": (
        f"{PUT_A} {BAR} setp.lt.u32 %p2, %r4, 4096; @%p2 st.shared.b64 [%r4], %rd6; {BAR} {GET}"
        f"{READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "the number of the address, from local memory, is compared": (
        f".local .align 4 .b32 kept; {PUT_A} {BAR} st.local.u32 [kept], %r4;"
        "ld.local.u32 %r11, [kept]; setp.lt.u32 %p2, %r11, 4096;"
        f"@%p2 st.shared.b64 [%r4], %rd6; {BAR} {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "generic addresses, one of them unknown": (
        "mov.u64 %rd11, smem; cvta.shared.u64 %rd12, %rd11; and.b32 %r11, %r6, 63;"
        f"mul.wide.u32 %rd13, %r11, 8; add.s64 %rd14, %rd12, %rd13; {PUT_A} {BAR}"
        f"st.b64 [%rd14], %rd6; {BAR} {GET} {READ}",
        {"a": WHOLE, "b": WHOLE},
    ),
    "other variables do not matter": (
        f"{PUT_B} {BAR} {PUT_A} {GET} {READ} st.shared.b64 [more], %rd3;st.shared.b32 [more+8], 1;",
        {"a": WHOLE, "b": WHOLE},
    ),
    "threads that left": (
        f"setp.eq.u32 %p2, %r1, 63; @%p2 ret; {PUT_A} {BAR} setp.lt.u32 %p3, %r3, 63;"
        f"@!%p3 bra E; {GET} {READ} E:",
        {"a": WHOLE},
    ),
}

# What may be anything.
LOST: dict[str, str] = {
    "data past the end of a variable, over an address in the next": (
        f"st.shared.b64 [more], %rd1; {BAR} atom.shared.exch.b32 %r11, [smem+1024], %r6; {BAR}"
        f"ld.shared.b64 %rd10, [more]; {READ}"
    ),
    "a copy past the end of a variable": (
        f"st.shared.b64 [more], %rd1; {BAR} cp.async.ca.shared.global [smem+1024], [%rd7], 4;"
        f"cp.async.wait_all; {BAR} ld.shared.b64 %rd10, [more]; {READ}"
    ),
    "nothing was stored": f"{BAR} {GET} {READ}",
    "nothing was stored there": (
        f"{PUT_B} {BAR} {PUT_A} {GET} {READ} ld.shared.b64 %rd11, [more];"
        "ld.global.u32 %r10, [%rd11];"
    ),
    "data over an address, in a loop that data ends": (
        f"{PUT_A} {BAR} ld.global.u32 %r14, [%rd4]; and.b32 %r15, %r14, 3; mov.u32 %r13, 0;"
        f"L: ld.shared.b32 %r12, [%r4]; {BAR} st.shared.b32 [%r5], %r12; {BAR}"
        f"add.s32 %r13, %r13, 1; setp.lt.u32 %p3, %r13, %r15; @%p3 bra L; {BAR} {GET} {READ}"
    ),
    "data over an address": f"{PUT_A} {BAR} st.shared.b32 [%r4], %r6; {BAR} {GET} {READ}",
    "a byte over an address": (
        f"{PUT_A} {BAR} cvt.u16.u32 %h1, %r6; st.shared.u8 [%r4+1], %h1; {BAR} {GET} {READ}"
    ),
    "an atomic over an address": (
        f"{PUT_A} {BAR} cvt.u64.u32 %rd11, %r6; red.shared.add.u64 [%r4], %rd11; {BAR} {GET} {READ}"
    ),
    "a copy over an address": (
        f"{PUT_A} {BAR} cp.async.ca.shared.global [%r4], [%rd7], 4; cp.async.wait_all; {BAR}"
        f"{GET} {READ}"
    ),
    "a copy that may still land": (
        f"cp.async.ca.shared.global [%r4], [%rd6], 8; {BAR} {PUT_A} {BAR} {GET} {READ}"
    ),
    "a copy in no group": (
        f"cp.async.ca.shared.global [%r4], [%rd6], 8; cp.async.wait_group 0; {BAR} {PUT_A} {BAR}"
        f"{GET} {READ}"
    ),
    "a copy that some wait for": (
        f"cp.async.ca.shared.global [%r4], [%rd6], 8; setp.lt.u32 %p2, %r1, 32;"
        f"@%p2 cp.async.wait_all; {BAR} {PUT_A} {BAR} {GET} {READ}"
    ),
    "a matrix store over an address": (
        f"{PUT_A} {BAR} wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [smem], "
        "{%r6, %r6, %r6, %r6, %r6, %r6, %r6, %r6}, 16;"
        f"{BAR} {GET} {READ}"
    ),
    "a pointer from memory": (
        f"ld.global.u64 %rd11, [%rd8]; st.shared.b64 [%r4], %rd11; {BAR} {GET} {READ}"
    ),
    "a pointer from memory at an unknown place": (
        f"{PUT_A} {BAR} ld.global.u64 %rd11, [%rd8]; and.b32 %r11, %r6, 63; shl.b32 %r12, %r11, 3;"
        f"add.s32 %r13, %r33, %r12; st.shared.b64 [%r13], %rd11; {BAR} {GET} {READ}"
    ),
    "data at an unknown place": (
        f"{PUT_A} {BAR} and.b32 %r11, %r6, 127; shl.b32 %r12, %r11, 2; add.s32 %r13, %r33, %r12;"
        f"st.shared.b32 [%r13], %r6; {BAR} {GET} {READ}"
    ),
    "an address of shared memory": (
        f"cvt.u64.u32 %rd11, %r4; st.shared.b64 [%r4], %rd11; {BAR} {GET} {READ}"
    ),
    "a place that is no variable": (
        f"mov.u32 %r11, 64; {PUT_A} {BAR} st.shared.b32 [%r11], %r6; {BAR} {GET} {READ}"
    ),
}


def program(body: str, smem: int = 512) -> ir.Program:
    steps = f"launch m.k grid=2,1,1 block=64,1,1 smem={smem} args=[a, b, out, data]\n"
    return trace(BUFFERS, f"{HEAD}{body}\nret;\n}}\n", steps)


def analysed(given: ir.Program) -> StepAccesses:
    (step,) = AnalysisManager(given).get(AccessRegions).steps
    return step


def check(given: ir.Program, step: StepAccesses) -> int:
    """Hold the regions against runs; how many ran to their end."""
    rng = np.random.default_rng(3)
    done = 0
    for data in (np.zeros(512), np.ones(512), rng.integers(0, 256, 512)):
        contents = {"data": data, "a": np.zeros(2048), "b": np.zeros(2048)}
        try:
            filled = {name: array.astype(np.uint8) for name, array in contents.items()}
            (record,) = run_program(given, filled, max_steps=20_000).launches
        except TesseraError:
            continue
        done += 1
        for found in compare(given, step, record.result.accesses):
            assert intervals.covers(found.may_read, found.read), found.buffer.name
            assert intervals.covers(found.may_write, found.written), found.buffer.name
            assert intervals.covers(found.written, found.must_write), found.buffer.name
    return done


def touched(given: ir.Program, step: StepAccesses) -> dict[str, list[tuple[int, int]]]:
    """The bytes that may be read or written, without those that every kernel here touches."""
    found = {}
    for one in compare(given, step, ()):
        both = intervals.union([one.may_read, one.may_write])
        if one.buffer.name in ("a", "b") or (one.buffer.name == "out" and len(one.may_write)):
            found[one.buffer.name] = list(intervals.pairs(both))
    return found


def merged(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return list(intervals.pairs(intervals.union([intervals.from_pairs(pairs)])))


@pytest.mark.parametrize("name", FOLLOWED)
def test_followed_to_the_byte(name: str) -> None:
    body, expected = FOLLOWED[name]
    given = program(body)
    step = analysed(given)
    assert not step.pins
    found = touched(given, step)
    for buffer, pairs in expected.items():
        assert found[buffer] == merged(pairs), buffer
    assert {"a", "b"} & found.keys() <= expected.keys()
    assert check(given, step) == 3


@pytest.mark.parametrize("name", JOINED)
def test_known_to_be_in_some_buffers(name: str) -> None:
    body, expected = JOINED[name]
    given = program(body)
    step = analysed(given)
    assert not step.pins
    assert touched(given, step) == expected
    assert check(given, step) == 3


@pytest.mark.parametrize("name", LOST)
def test_pinned_where_anything_may_be_there(name: str) -> None:
    given = program(LOST[name])
    step = analysed(given)
    assert step.pins
    assert "comes from memory (loaded by `ld." in str(step.pins[0].reason)
    check(given, step)


@pytest.mark.parametrize("name", [*FOLLOWED, *JOINED])
def test_one_row_of_threads_for_all_ctas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    coarse = partial(footprint.find_footprint, exact_budget=0)
    monkeypatch.setattr(footprint, "find_footprint", coarse)
    given = program({**FOLLOWED, **JOINED}[name][0])
    step = analysed(given)
    assert not step.pins
    assert "TSR2006" in [d.code for d in step.diagnostics]
    assert check(given, step) == 3


def test_an_index_through_shared_memory_is_direct() -> None:
    step = analysed(program(FOLLOWED["an index"][0]))
    assert {a.address for a in step.accesses} == {AddressClass.DIRECT}


def test_writes_through_followed_addresses_are_certain() -> None:
    given = program(FOLLOWED["a write through an address"][0])
    (out,) = [c for c in compare(given, analysed(given), ()) if c.buffer.name == "out"]
    assert np.array_equal(out.must_write, out.may_write)


def test_dynamic_memory_that_the_launch_does_not_give() -> None:
    body, _ = FOLLOWED["dynamic memory, by two names"]
    step = analysed(program(body, smem=256))
    given = program(body, smem=256)
    assert touched(given, step) == {"a": WHOLE}
