"""Shared memory and special registers of an excerpt: parts that follow one instruction."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint import shared, shared_access
from tessera.passes.footprint.scene import special_values
from tessera.passes.footprint.shared_access import SharedSpace
from tessera.passes.footprint.zones import SHARED
from tessera.passes.kernel_facts.shared_use import BASE, SPACING
from tessera.passes.lane_values.lanes import HARD, MASK, NUMBER, POINTER, U64, Lanes, unknown
from tests.helpers.excerpts import EVERYBODY, excerpt, flags, lanes_of, told


def test_numbers_that_can_be_anything() -> None:
    for value, wanted in (
        (unknown(64, 1), True),
        (lanes_of(0, 0, span=(MASK[64], MASK[64])), True),
        (lanes_of(0, 0, span=(MASK[64], MASK[64] - 1)), False),
        (lanes_of(0, span=MASK[64], kind=POINTER), False),
        (lanes_of(0, span=MASK[64], kind=HARD), False),
        (lanes_of(5, span=MASK[64]), False),
        (lanes_of(0), False),
    ):
        assert shared._is_anything(value) == wanted


@pytest.mark.parametrize("threads", [32, 40, 64])
def test_warps_of_which_some_threads_are_elsewhere(threads: int) -> None:
    def threads_of(*missing: int) -> Any:
        return flags(*([number not in missing for number in range(threads)],))

    nobody = np.zeros((1, threads), np.bool_)
    assert not shared._split_warps(threads_of(), threads_of())
    assert not shared._split_warps(nobody, nobody)
    assert shared._split_warps(threads_of(), nobody)
    for missing in (0, 31, threads - 1):
        assert shared._split_warps(threads_of(missing), threads_of(missing))
        assert shared._split_warps(threads_of(), threads_of(missing))
    upper = threads_of(*range(32))
    assert not shared._split_warps(upper, upper)


def test_one_or_two_bytes_of_a_cell() -> None:
    cell = lanes_of(0x87654321)

    def piece(place: int, width: int, value: Lanes = cell) -> Any:
        found = shared._piece(value, lanes_of(BASE + place), width, "u8", 7)
        return (*told(found), found.kind, found.why)

    assert [piece(place, 1)[0] for place in range(5)] == [[0x21], [0x43], [0x65], [0x87], [0x21]]
    assert [piece(place, 2)[0] for place in (0, 2)] == [[0x4321], [0x8765]]
    assert piece(0, 1) == ([0x21], None, NUMBER, -1)
    assert piece(0, 1, lanes_of(5, kind=POINTER)) == ([5], None, HARD, -1)
    assert piece(0, 1, lanes_of(5, span=1)) == ([0], [255], NUMBER, 7)
    assert piece(0, 2, lanes_of(5, span=1, kind=POINTER)) == ([0], [65535], HARD, 7)


def space(*sizes: int | None, dynamic: int = 0) -> SharedSpace:
    variables = {
        str(number): SimpleNamespace(base=BASE + number * SPACING, size=size)
        for number, size in enumerate(sizes)
    }
    use, scene = SimpleNamespace(variables=variables), SimpleNamespace(dynamic_shared=dynamic)
    return SharedSpace(use, scene)  # type: ignore[arg-type]


def test_where_variables_of_shared_memory_are() -> None:
    two = space(12, 8)
    assert (two.cells, two.first.tolist()) == (6, [0, 4, 6])

    def place(number: int, width: int, where: SharedSpace = two) -> Any:
        cells, ends, inside = where.place(np.array([number], U64), width)
        return (int(cells[0]), int(ends[0])) if inside[0] else None

    assert place(BASE, 4) == (0, 4)
    assert place(BASE + 8, 4) == (2, 4)
    assert place(BASE + 11, 1) == (2, 4)
    assert place(BASE + 11, 2) is None
    assert place(BASE + 8, 8) is None
    assert place(BASE, 12) == (0, 4)
    assert place(BASE, 13) is None
    assert place(BASE + SPACING, 8) == (4, 6)
    assert place(BASE + SPACING + 4, 4) == (5, 6)
    assert place(BASE + SPACING, 9) is None
    assert place(BASE + 2 * SPACING, 1) is None
    assert place(BASE - 1, 1) is None
    assert place(BASE - SPACING, 1) is None
    assert place(BASE + 4, 4, space(None, dynamic=8)) == (1, 2)
    assert place(BASE + 4, 5, space(None, dynamic=8)) is None
    assert place(BASE, 1, space()) is None
    assert space().cells == 0


def test_addresses_in_brackets() -> None:
    run = excerpt("st.shared.u8 [%r0], 0; st.global.u8 [%d0], 0;")
    run.registers["%r0"], run.registers["%d0"] = lanes_of(7), lanes_of((5 << 32) + 9)

    def at(*parts: Any) -> Any:
        return told(shared_access.shared_address(run, ptx.Address(parts), 3))

    anything = ([0], [MASK[32]])
    assert at(ptx.Name("%r0")) == ([7], None)
    assert at(ptx.Name("%d0")) == ([9], None)
    assert at(ptx.Name("%r0"), ptx.Name("%d0")) == anything
    assert at() == anything
    assert told(shared_access.shared_address(run, ptx.Name("%r0"), 3)) == anything
    assert at(ptx.Not(ptx.Name("%c0"))) == anything
    assert at(ptx.Name("nothing")) == anything


class _Follower:
    def step(self, *_: Any) -> None: ...
    def load(self, *_: Any) -> None: ...
    def call(self) -> None: ...


def converted(body: str, value: Lanes | None, *, follows: bool = True) -> Any:
    run = excerpt(body, needed=["%d0"])
    run.shared = _Follower() if follows else None
    (step,) = run.steps("cvta")
    start = run.scene.zones.address(SHARED)
    if value is not None:
        run.registers["%d1"] = value
    shared_access.convert_shared(run, step, step.instruction.operands[1], EVERYBODY)
    found = run.registers["%d0"]
    low = [(number - start) & MASK[64] for number in found.start[0].tolist()]
    return low, found.start[0].tolist(), found.span is None, found.kind


def test_generic_addresses_of_shared_memory() -> None:
    there, back = "cvta.shared.u64 %d0, %d1;", "cvta.to.shared.u64 %d0, %d1;"
    start = excerpt("").scene.zones.address(SHARED)
    assert converted(there, lanes_of(16, 24))[::2] == ([16, 24], True)
    assert converted(there, lanes_of(16))[3] == POINTER
    low, number, is_exact, kind = converted(there, lanes_of(16, span=4))
    assert (low, is_exact, kind) == ([0], False, POINTER)
    assert converted(there, lanes_of(16), follows=False)[::2] == ([0], False)
    address = lanes_of(start + 16, start + 24, kind=POINTER)
    assert converted(back, address)[1:] == ([16, 24], True, NUMBER)
    anything = ([0], False, NUMBER)
    assert converted(back, address, follows=False)[1:] == anything
    assert converted(back, lanes_of(start + 16, span=4))[1:] == anything
    assert converted(back, lanes_of(16))[1:] == anything
    assert converted(back, lanes_of(excerpt("").object(0)))[1:] == anything
    assert number != [16]


def test_special_registers() -> None:
    run = excerpt("", threads=40, grid=(4, 6, 2), cluster=(2, 3, 1), dynamic_shared=77)
    found = special_values(run.scene, run.piece)

    def row(name: str) -> Any:
        return found[name].low()[..., :].ravel().tolist()

    lanes = [thread % 32 for thread in range(40)]
    assert row("%laneid") == lanes
    for name, number in (
        ("eq", lambda lane: 1 << lane),
        ("lt", lambda lane: (1 << lane) - 1),
        ("le", lambda lane: (2 << lane) - 1),
        ("gt", lambda lane: 0xFFFFFFFF - ((2 << lane) - 1)),
        ("ge", lambda lane: 0xFFFFFFFF - ((1 << lane) - 1)),
    ):
        assert row(f"%lanemask_{name}") == [number(lane) for lane in lanes], name
    for name, value in (
        ("%dynamic_smem_size", 77), ("WARP_SZ", 32), ("%tid.w", 0), ("%ctaid.w", 0), ("%ntid.w", 1),
        ("%nctaid.w", 1), ("%ntid.x", 40), ("%ntid.y", 1), ("%nctaid.x", 4), ("%nctaid.y", 6),
        ("%nctaid.z", 2), ("%tid.y", 0), ("%cluster_nctaid.x", 2), ("%cluster_nctaid.y", 3),
        ("%cluster_nctaid.z", 1), ("%nclusterid.x", 2), ("%nclusterid.y", 2), ("%nclusterid.z", 2),
        ("%cluster_nctarank", 6), ("%cluster_ctaid.z", 0),
    ):  # fmt: skip
        assert set(row(name)) == {value}, name
    assert row("%tid.x") == [*range(40)]
    assert row("%ctaid.x") == [0, 1, 2, 3]
    assert row("%ctaid.y") == [*range(6)]
    assert row("%clusterid.x") == [0, 0, 1, 1]
    assert row("%clusterid.y") == [0, 0, 0, 1, 1, 1]
    assert row("%clusterid.z") == [0, 1]
    assert row("%cluster_ctaid.x") == [0, 1, 0, 1]
    assert row("%cluster_ctaid.y") == [0, 1, 2] * 2
    rank = found["%cluster_ctarank"].low().squeeze()
    assert rank[:3].tolist() == [[0, 1, 0, 1], [2, 3, 2, 3], [4, 5, 4, 5]]
    assert "%envreg1" not in found
    alone = special_values(excerpt("", cluster=None, cooperative=True).scene, None)
    assert "%cluster_ctarank" not in alone
    workspace = run.scene.zones.address(4)
    assert told(alone["%envreg1"]) == ([workspace >> 32], None)
    assert told(alone["%envreg2"]) == ([workspace & MASK[32]], None)
    every = special_values(excerpt("", grid=(4, 6, 1)).scene, None)
    assert told(every["%ctaid.x"]) == ([0], [3])
    assert told(every["%ctaid.y"]) == ([0], [5])


def test_operands_in_brackets() -> None:
    """A variable with an index can be anywhere in it; an address of 32 bits is not followed."""
    run = excerpt("st.global.u8 [%d0], 0;", before=".global .align 8 .u32 v[4];", symbols=["v"])
    v = run.symbols["v"]
    index = ptx.Name("%t")

    def at(operand: Any) -> Any:
        found = run.address(operand, 5)
        return (*told(found), found.why)

    subscript = ptx.Subscript("v", index)
    assert at(subscript) == at(ptx.Address((subscript,))) == ([v], [MASK[64]], 5)
    assert at(ptx.Subscript("w", index)) == ([0], [MASK[64]], 5)
    run.registers["%t"] = lanes_of(8)
    assert at(ptx.Address((ptx.Name("%t"),))) == ([0], [MASK[64]], 5)
    run.registers["%d0"] = lanes_of(8)
    assert at(ptx.Address((ptx.Name("%d0"),))) == ([8], None, -1)
    assert told(run.value(ptx.Name("v"), 32, 5)) == ([0], [MASK[32]])
    assert told(run.value(ptx.Name("%tid", "x"), 32, 5)) == ([0, 1, 2, 3], None)
    assert told(run.value(ptx.Name("%d0", "x"), 64, 5)) == ([0], [MASK[64]])
    assert run.origin((8, 8)) == run.origin("%d0") == -1
    run.write(run.steps("st")[0], "%d0", lanes_of(1), EVERYBODY)
    assert run.origin("%d0") == run.steps("st")[0].index
