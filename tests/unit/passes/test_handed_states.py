"""What devices hold of states, and which bytes of a row a request reads as it finds them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.region import Interval
from tessera.ir.plan.launch_program import AreaKind, Home
from tessera.ir.program import program as ir
from tessera.passes.checker.bytes import NOTHING, Array, ranges_of
from tessera.passes.checker.handed_states import SharedState, first_reads, read_in_row, states_held
from tests.unit.passes.test_check_hand_over import Pair, program


def test_states_that_devices_hold() -> None:
    pair = Pair(program("memcpy x k+8 bytes=4", "buffer w bytes=64 role=weight"))
    (place,) = pair.replicas[0].places
    weight = replace(place, buffer=pair.programs[0].buffers[2].id)
    kept = (replace(place, device="b", first=16, end=64), place)
    homes = (
        Home(trace=0, buffer=place.buffer, device="b", bytes=((20, 30),)),
        Home(trace=1, buffer=place.buffer, device="a", bytes=((0, 9),)),
    )
    others = (weight, replace(place, kind=AreaKind.SLOT, device="c"))
    held = states_held(
        replace(pair.replicas[0], places=(*others, *kept), homes=homes), pair.programs
    )
    assert list(held) == ["k"]
    assert held["k"][0] is pair.programs[0].buffers[1]
    assert {device: own.tolist() for device, own in held["k"][1].items()} == {
        "a": [[0, 20], [30, 128]],
        "b": [[16, 64]],
    }


READ, WRITE, ATOMIC = AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC
MUST, MAY = Certainty.MUST, Certainty.MAY


@pytest.mark.parametrize(
    ("nodes", "wanted"),
    [
        ([[(READ, MAY, 8, 12)]], [[8, 12]]),
        ([[(READ, MUST, 120, 140)], [(ATOMIC, MAY, 8, 12)]], [[8, 12], [120, 128]]),
        ([[(WRITE, MUST, 0, 10)], [(READ, MAY, 8, 12)]], [[10, 12]]),
        ([[(WRITE, MUST, 0, 10)], [(WRITE, MUST, 10, 12)], [(READ, MAY, 8, 16)]], [[12, 16]]),
        ([[(WRITE, MUST, 0, 9), (WRITE, MUST, 10, 12)], [(READ, MAY, 8, 16)]], [[9, 10], [12, 16]]),
        ([[(WRITE, MAY, 0, 10)], [(READ, MAY, 8, 12)]], [[8, 12]]),
        ([[(ATOMIC, MUST, 0, 10)], [(READ, MAY, 8, 12)]], [[0, 12]]),
        ([[(READ, MUST, 0, 10)], [(READ, MAY, 8, 12)]], [[0, 12]]),
        # A step may read before it writes; and reads of an earlier step stay.
        ([[(WRITE, MUST, 0, 10), (READ, MAY, 8, 12)]], [[8, 12]]),
        ([[(READ, MAY, 8, 12)], [(WRITE, MUST, 0, 128)], [(READ, MAY, 0, 128)]], [[8, 12]]),
        ([[(WRITE, MUST, 0, 10)]], None),
    ],
)
def test_bytes_that_a_request_reads_as_it_finds_them(
    nodes: list[list[tuple[AccessKind, Certainty, int, int]]], wanted: list[list[int]] | None
) -> None:
    own = program()
    other = [(READ, MUST, 0, 4), (WRITE, MUST, 0, 128)]

    def accesses(buffer: int, listed: Sequence[tuple[AccessKind, Certainty, int, int]]) -> list:
        return [
            Access(
                buffer=ir.BufferId(buffer),
                kind=kind,
                certainty=certainty,
                address=AddressClass.DIRECT,
                region=Interval(start, end),
            )
            for kind, certainty, start, end in listed
        ]

    listed = [SimpleNamespace(accesses=accesses(0, other) + accesses(1, node)) for node in nodes]
    graph: KernelGraph = SimpleNamespace(nodes=listed)  # type: ignore[assignment]
    found = {
        name: (buffer, own.tolist()) for name, (buffer, own) in first_reads(own, graph).items()
    }
    assert found == ({} if wanted is None else {"k": (own.buffers[1], wanted)})


def buffer(size: int, shape: tuple[int, ...] | None) -> ir.Buffer:
    return ir.Buffer(id=ir.BufferId(0), name="k", bytes=size, role=ir.Role.STATE, shape=shape)


@pytest.mark.parametrize(
    ("pairs", "own", "held", "wanted"),
    [
        ([(8, 12)], (128, (4, 32)), (128, (4, 32)), [[8, 12]]),
        ([(8, 12), (41, 45)], (128, (4, 32)), (128, (4, 32)), [[8, 13]]),
        ([(96, 127)], (128, (4, 32)), (128, (4, 32)), [[0, 31]]),
        ([(33, 64)], (128, (4, 32)), (128, (4, 32)), [[1, 32]]),
        ([(31, 33)], (128, (4, 32)), (128, (4, 32)), [[0, 1], [31, 32]]),
        ([(30, 60)], (128, (4, 32)), (128, (4, 32)), [[0, 28], [30, 32]]),
        ([(32, 64)], (128, (4, 32)), (128, (4, 32)), [[0, 32]]),
        ([(33, 65)], (128, (4, 32)), (128, (4, 32)), [[0, 32]]),
        ([(2, 70)], (128, (4, 32)), (128, (4, 32)), [[0, 32]]),
        ([(100, 104)], (128, (4, 32)), (64, (2, 32)), [[4, 8]]),
        ([(8, 12)], (128, (4, 32)), (128, (4, 4, 8)), [[0, 32]]),
        ([(8, 12)], (128, None), (128, (4, 32)), [[0, 32]]),
        ([(8, 12)], (128, (4, 32)), (128, None), [[0, 128]]),
        ([(8, 12)], (128, None), (128, None), [[8, 12]]),
        ([(8, 12)], (16, (16,)), (16, None), [[8, 12]]),
        ([(8, 12)], (16, None), (16, (16,)), [[0, 1]]),
        ([(8, 9)], (16, (16,)), (16, (16,)), [[0, 1]]),
        ([], (128, (4, 32)), (128, (4, 32)), None),
    ],
)
def test_bytes_of_a_row(
    pairs: list[tuple[int, int]],
    own: tuple[int, tuple[int, ...] | None],
    held: tuple[int, tuple[int, ...] | None],
    wanted: list[list[int]] | None,
) -> None:
    found = read_in_row((buffer(*own), ranges_of(pairs)), buffer(*held))
    assert (found if found is None else found.tolist()) == wanted
    assert read_in_row(None, buffer(*held)) is None


def test_states_with_one_form_are_alike() -> None:
    row: Array = np.array([[8, 12]])
    device = {"a": np.array([[0, 128]])}
    plain = SharedState(
        "k", (buffer(128, (4, 32)), device), (buffer(128, (4, 32)), device), row, row, False
    )
    assert replace(plain, name="v", source=(buffer(128, (4, 32)), dict(device))).form == plain.form
    others = [
        replace(plain, source=None),
        replace(plain, has_words=True),
        replace(plain, live=NOTHING),
        replace(plain, needed=NOTHING),
        replace(plain, source=(buffer(64, (4, 32)), device)),
        replace(plain, source=(buffer(128, (2, 64)), device)),
        replace(plain, source=(buffer(128, (4, 32)), {"b": device["a"]})),
        replace(plain, source=(buffer(128, (4, 32)), {"a": row})),
        replace(plain, target=(buffer(128, (4, 32)), {"a": row})),
    ]
    assert len({plain.form, *(other.form for other in others)}) == 10
