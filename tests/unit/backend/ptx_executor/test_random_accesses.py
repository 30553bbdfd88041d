"""Loads and stores of the CPU backend at random addresses, against the same lane by lane.

In: addresses of each lane from tables: grids of rows and columns, nearly grids, and anything, in
several buffers, for all lanes or some of them. What is loaded, stored and logged, the lane that
faults and the pairs of lanes that race are worked out here one lane at a time.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.memory import GUARD
from tessera.backend.ptx_executor.memory.watch import Checks
from tessera.diagnostics import TesseraError
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.cpu_kernels import REGISTERS

SIZE = 2048
HEADER = ".version 8.8\n.target sm_100a\n.address_size 64\n"
ENTRY = """
.visible .entry k(.param .u64 from, .param .u64 to, .param .u64 on)
{{
    {registers}
    .shared .align 16 .b8 area[256];
    ld.param.u64 %rd1, [from]; ld.param.u64 %rd2, [to]; ld.param.u64 %rd3, [on];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r4, %ntid.x;
    mad.lo.s32 %r3, %r2, %r4, %r1;
    mad.wide.u32 %rd4, %r3, 8, %rd1; ld.global.u64 %rd5, [%rd4];
    mad.wide.u32 %rd6, %r3, 8, %rd2; ld.global.u64 %rd7, [%rd6];
    cvt.u64.u32 %rd8, %r3; add.u64 %rd9, %rd3, %rd8; ld.global.u8 %rs1, [%rd9];
    and.b16 %rs2, %rs1, 1; setp.ne.u16 %p1, %rs2, 0;
    and.b16 %rs3, %rs1, 2; setp.ne.u16 %p2, %rs3, 0;
    {body}
END:
    ret;
}}
"""
FORMS = {  # bytes of an access, by the type and the registers
    1: ("u8", "%rs5"),
    2: ("u16", "%rs5"),
    4: ("u32", "%r5"),
    8: ("u64", "%rd15"),
    16: ("v2.u64", "{%rd15, %rd16}"),
    32: ("v4.u64", "{%rd15, %rd16, %rd17, %rd18}"),
}
HOW = {
    "all": "ld.global.{0} {1}, [%rd5]; st.global.{0} [%rd7], {1};",
    "guard": "@%p1 ld.global.{0} {1}, [%rd5]; @%p1 st.global.{0} [%rd7], {1};",
    "branch": "@!%p1 bra END; ld.global.{0} {1}, [%rd5]; st.global.{0} [%rd7], {1};",
    "both": "@!%p2 bra END; @%p1 ld.global.{0} {1}, [%rd5]; @%p1 st.global.{0} [%rd7], {1};",
}


def compiled(device, body):
    return device.load(parse_module(HEADER + ENTRY.format(registers=REGISTERS, body=body)))["k"]


def some_offsets(draw, ctas, threads, width):
    """Offsets of words: a grid, a grid with a change, or anything."""
    words = SIZE // width
    step, pitch = draw.choice((1, 1, 2, 3, -1, 0)), draw.choice((threads, threads + 3, 1, 0, 2))
    pitch = draw.choice((pitch, 3 * threads))
    offsets = np.arange(ctas)[:, None] * pitch + np.arange(threads) * step
    if draw.random() < 0.3:
        offsets = np.array([[draw.randrange(words) for _ in range(threads)] for _ in range(ctas)])
    offsets = (offsets - offsets.min() + draw.randrange(4)) % words
    for _ in range(draw.choice((0, 0, 0, 1, 2))):
        offsets[draw.randrange(ctas), draw.randrange(threads)] = draw.randrange(words)
    return offsets * width


def some_flags(draw, ctas, threads):
    rows = np.array([[draw.random() < 0.6] for _ in range(ctas)])
    cols = np.array([[draw.random() < 0.6 for _ in range(threads)]])
    flags = np.array([[draw.random() for _ in range(threads)] for _ in range(ctas)])
    return draw.choice((flags < 0.2, flags < 0.85, rows & cols, flags < 2, rows | (cols & False)))


def ranges_of(places, width):
    """The bytes of words, as sorted ranges that do not touch."""
    flags = np.zeros(SIZE + 2, np.int8)
    for place in places:
        flags[1 + place : 1 + place + width] = 1
    edges = np.diff(flags)
    return tuple(zip(np.flatnonzero(edges == 1), np.flatnonzero(edges == -1), strict=True))


@pytest.mark.parametrize("how", HOW)
def test_loads_and_stores_lane_by_lane(how):
    draw = random.Random(how)
    for width in FORMS:
        with Device() as device:
            kernel = compiled(device, HOW[how].format(*FORMS[width]))
            for _ in range(40):
                one_launch(draw, device, kernel, how, width)


def one_launch(draw, device, kernel, how, width):
    ctas, threads = draw.choice(((1, 1), (1, 2), (2, 1), (2, 2), (3, 5), (2, 64), (5, 33)))
    offsets = [some_offsets(draw, ctas, threads, width) for _ in range(2)]
    which = [np.full((ctas, threads), 0), np.full((ctas, threads), 0)]
    if draw.random() < 0.3:
        which = [np.array([[draw.randrange(2) for _ in range(threads)] for _ in range(ctas)])] * 2
    first, second = some_flags(draw, ctas, threads), some_flags(draw, ctas, threads)
    runs = {"all": first | True, "both": first & second}.get(how, first)
    data = np.random.default_rng(draw.randrange(1 << 30))
    buffers = [device.array(data.integers(0, 255, SIZE, np.uint8), f"b{n}") for n in range(4)]
    given = [buffer.numpy().copy() for buffer in buffers]
    bases = [np.array([b.address for b in buffers[n : n + 2]], np.uint64) for n in (0, 2)]
    tables = [
        base[chosen] + own.astype(np.uint64)
        for base, chosen, own in zip(bases, which, offsets, strict=True)
    ]
    bad = None
    if draw.random() < 0.4:  # a lane with a bad address; that it is off hides it
        place, side = (draw.randrange(ctas), draw.randrange(threads)), draw.randrange(2)
        wrong = (
            [SIZE, SIZE - width + 1, -width, SIZE + 64] + [1, 16] * (width > 16) + [1] * (width > 1)
        )
        tables[side][place] = np.uint64(int(bases[side][0]) + draw.choice(wrong))
        bad = place if runs[place] else None
    elif draw.random() < 0.4 and ctas * threads * width < SIZE:  # the end of a grid lies outside
        out = draw.randrange(1, min(GUARD // width, ctas * threads) + 1)
        wild = SIZE + (np.arange(ctas * threads).reshape(ctas, -1) - ctas * threads + out) * width
        tables[0] = bases[0][0] + wild.astype(np.uint64)
        which, offsets = [which[1] * 0, which[1]], [wild, offsets[1]]
        outside = [place for place in np.ndindex(ctas, threads) if wild[place] + width > SIZE]
        bad = next((place for place in outside if runs[place]), None)
    flags = (first * 1 + second * 2).astype(np.uint8)
    arguments = [device.array(table) for table in (*tables, flags)]
    if bad is not None:
        with pytest.raises(TesseraError, match=r"TSR500[23]") as caught:
            kernel.launch(ctas, threads, arguments)
        where = f"CTA ({bad[0]}, 0, 0), thread ({bad[1]}, 0, 0)"
        assert where in caught.value.diagnostics[0].notes[0]
        return
    result = kernel.launch(ctas, threads, arguments)
    read, written = ([[], []], [[], []])
    expected = [own.copy() for own in given]
    for place in np.ndindex(ctas, threads):
        if runs[place]:
            source, target = which[0][place], which[1][place]
            start, end = int(offsets[0][place]), int(offsets[1][place])
            expected[2 + target][end : end + width] = given[source][start : start + width]
            read[source].append(start)
            written[target].append(end)
    for own, buffer in zip(expected, buffers, strict=True):
        assert (own == buffer.numpy()).all()
    logged = {a.buffer: a for a in result.accesses}
    for number in range(2):
        source, target = logged.get(f"b{number}"), logged.get(f"b{2 + number}")
        assert (source.reads if source else ()) == ranges_of(read[number], width)
        assert (target.writes if target else ()) == ranges_of(written[number], width)
        assert not (source and source.writes)
        assert not (target and target.reads)


LOADS = {1: ("u8", "%rs5"), 2: ("u16", "%rs5"), 4: ("u32", "%r5"), 8: ("u64", "%rd15")}
STORES = {1: ("u8", "%rs7"), 2: ("u16", "%rs7"), 4: ("u32", "%r3"), 8: ("u64", "%rd8")}


def access(kind, space, width, address, guard):
    type, register = (STORES if kind == "w" else LOADS)[width]
    return (
        f"@{guard} st.{space}.{type} [{address}], {register};"
        if kind == "w"
        else f"@{guard} ld.{space}.{type} {register}, [{address}];"
    )


@pytest.mark.parametrize("space", ["global", "shared"])
def test_races_of_three_accesses(space):
    draw = random.Random(space)
    for _ in range(24):
        kinds, widths = draw.choices("rrw", k=3), draw.choices((1, 2, 4, 8), k=3)
        widths[2] = min(widths[2], widths[0])  # it has the addresses of the first
        barriers = [draw.random() < 0.4 for _ in range(2)]
        between = [*("bar.sync 0;" * barrier for barrier in barriers), ""]
        body = "cvt.u16.u32 %rs7, %r3; and.b16 %rs4, %rs1, 4; setp.ne.u16 %p3, %rs4, 0;" + "".join(
            access(kinds[n], space, widths[n], ("%rd5", "%rd7", "%rd5")[n], f"%p{n + 1}")
            + between[n]
            for n in range(3)
        )
        with Device(checks=Checks(races=True)) as device:
            kernel = compiled(device, body)
            for _ in range(12):
                races(draw, device, kernel, space, (kinds, widths, barriers))


def races(draw, device, kernel, space, steps):
    kinds, widths, barriers = steps
    ctas, threads = draw.choice(((1, 64), (1, 40), (2, 32), (2, 64)))
    flags = np.array([draw.choice((0, 0, 1, 2, 4, 7)) for _ in range(ctas * threads)], np.uint8)
    if draw.random() < 0.8:  # few lanes: races are rare
        flags &= np.array([7 * (draw.random() < 0.1) for _ in flags], np.uint8)
    buffer = device.array(np.zeros(256, np.uint8), "cells")
    base = buffer.address if space == "global" else 0
    room = draw.choice((240, 32))
    offsets = [
        [draw.randrange(0, room // width) * width for _ in range(ctas * threads)]
        for width in widths[:2]
    ]
    tables = [device.array(np.array(own, np.uint64) + np.uint64(base)) for own in offsets]
    made = []
    for step, lane in itertools.product(range(3), range(ctas * threads)):
        if flags[lane] >> step & 1:
            start = offsets[step % 2][lane]
            touched = set(range(start, start + widths[step]))
            epoch = sum(barriers[:step])
            made.append((step, lane // threads, lane % threads // 32, kinds[step], touched, epoch))
    expected = any(
        one[1:3] != other[1:3]
        and "w" in (one[3], other[3])
        and one[4] & other[4]
        and not (one[5] != other[5] and one[1] == other[1])
        and not (space == "shared" and one[1] != other[1])
        for one, other in itertools.combinations(made, 2)
    )
    arguments = [*tables, device.array(flags)]
    if expected and (space == "shared" or not any(barriers)):
        with pytest.raises(TesseraError, match="TSR5016"):
            kernel.launch(ctas, threads, arguments)
    elif not expected:
        kernel.launch(ctas, threads, arguments)
