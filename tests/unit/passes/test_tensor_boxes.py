"""The bytes of boxes of tensors, element by element, and the maps that kernels make themselves."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from tessera.ir.program.tensor_map import SIZE, TensorMap
from tessera.ir.ptx import syntax as ptx
from tessera.passes.byte_sets import intervals
from tessera.passes.footprint import made_maps, tensor
from tessera.passes.footprint.excerpt_state import MadeMaps
from tessera.passes.footprint.recorder import Key, Recorder, TouchedBytes
from tessera.passes.footprint.tensor import box_bytes, tensor_bytes
from tessera.passes.footprint.zones import FIRST, PARAMETER, Zones
from tests.helpers.excerpts import excerpt, flags, lanes_of

MAP = TensorMap(
    address=0,
    element_bytes=2,
    dims=(5, 4, 3),
    strides=(16, 80),
    box=(2, 2, 1),
    element_strides=(1, 1, 1),
)


def of_elements(tensor_map: TensorMap, boxes: list[tuple[Any, Any]]) -> Any:
    """The bytes of the elements of some boxes that are in the tensor, one by one."""
    steps = (tensor_map.element_bytes, *tensor_map.strides)
    found = set()
    for start, end in boxes:
        ranges = [
            range(max(a, 0), min(b, d)) for a, b, d in zip(start, end, tensor_map.dims, strict=True)
        ]
        for place in product(*ranges):
            first = sum(at * step for at, step in zip(place, steps, strict=True))
            found.update(range(first, first + tensor_map.element_bytes))
    return intervals.union([np.array([(n, n + 1) for n in sorted(found)], np.int64).reshape(-1, 2)])


def test_bytes_of_boxes() -> None:
    rng = random.Random(7)
    for _ in range(60):
        boxes = []
        for _ in range(rng.randint(1, 3)):
            start = [rng.randint(-3, dim + 1) for dim in MAP.dims]
            boxes.append((start, [at + rng.randint(0, 4) for at in start]))
        starts, ends = (np.array(side, dtype=np.int64) for side in zip(*boxes, strict=True))
        found = box_bytes(MAP, starts, ends)
        assert found is not None
        assert found.tolist() == of_elements(MAP, boxes).tolist()
    whole = of_elements(MAP, [((0, 0, 0), MAP.dims)])
    assert tensor_bytes(MAP).tolist() == whole.tolist()


def test_tensors_with_too_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all between the first and the last byte counts."""
    ends = np.array([MAP.dims], dtype=np.int64)
    for most, known in ((12, True), (11, False)):
        monkeypatch.setattr(tensor, "_MOST_ROWS", most)
        tensor._rows.cache_clear()
        assert (box_bytes(MAP, np.zeros_like(ends), ends) is not None) == known
    assert tensor_bytes(MAP).tolist() == [[0, 2 * 80 + 3 * 16 + 10]]
    one_axis = replace(MAP, dims=(5,), strides=(), box=(2,), element_strides=(1,))
    monkeypatch.setattr(tensor, "_MOST_ROWS", 0)
    tensor._rows.cache_clear()
    assert tensor_bytes(one_axis).tolist() == [[0, 10]]
    tensor._rows.cache_clear()


def test_coordinates() -> None:
    one, two = ptx.Name("%r1"), ptx.Name("%r2")
    assert tensor.coordinates_of(ptx.Address((one,))) == ()
    assert tensor.coordinates_of(ptx.Address((one, two))) == (two,)
    assert tensor.coordinates_of(ptx.Address((one, ptx.Vector((two, one))))) == (two, one)


def test_maps_that_are_parameters() -> None:
    run = excerpt("", more=".param .align 64 .b8 m[128]", values=bytes(48) + bytes(range(128)))
    zones, end = run.scene.zones, len(run.scene.parameters)
    assert end == 16 + 48 + 128
    for offset, known in (
        (64, True),
        (63, True),
        (0, True),
        (65, False),
        (-1, False),
        (200, False),
    ):
        content = tensor._map_content(run, zones.address(PARAMETER, offset))
        assert content == (run.scene.parameters[offset : offset + SIZE] if known else None)
        assert content is None or len(content) == SIZE
    assert tensor._map_content(run, run.object(0)) is None
    assert tensor._map_content(run, 0) is None


# --- maps that a kernel makes -----------------------------------------------------------------

FIELDS: dict[tuple[str, int], int] = {
    ("global_address", 0): 4096, ("rank", 0): 1, ("elemtype", 0): 1, ("interleave_layout", 0): 0,
    ("box_dim", 0): 8, ("box_dim", 1): 4, ("global_dim", 0): 32, ("global_dim", 1): 16,
    ("element_stride", 0): 1, ("element_stride", 1): 1, ("global_stride", 0): 64,
}  # fmt: skip


def test_a_map_counts_once_all_its_fields_are_set() -> None:
    content = made_maps._content(FIELDS)
    assert content is not None
    assert len(content) == SIZE
    for field in FIELDS:
        assert made_maps._content({f: v for f, v in FIELDS.items() if f != field}) is None, field
    assert made_maps._content(FIELDS | {("swizzle_mode", 0): 0}) is not None
    for ordinal, known in ((2, True), (3, True), (4, True), (5, False)):
        assert (made_maps._content(FIELDS | {("box_dim", ordinal): 1}) is not None) == known
    for rank, known in ((-1, False), (0, True), (4, True), (5, False)):
        every = {**FIELDS, ("rank", 0): rank}
        for name in ("box_dim", "global_dim", "element_stride", "global_stride"):
            every |= {(name, axis): 16 for axis in range(min(rank + 1, 5))}
        every = {f: v for f, v in every.items() if f[0] != "global_stride" or f[1] < rank}
        assert (made_maps._content(every) is not None) == known, rank


def test_what_stands_between_a_field_and_the_copy() -> None:
    body = """.shared .align 128 .b8 s[128]; .shared .b32 other; mov.u32 %r1, s; bra NEXT; NEXT:
    mov.u32 %r5, 1; mov.u32 %r6, 2; {} mov.u32 %r7, 3; bra END; END: mov.u32 %r8, 4;"""
    for text, fine in (
        ("", True),
        ("mov.u32 %r2, %r1;", True),
        ("st.shared.u32 [other], 0;", False),
        ("ld.shared.u32 %r2, [%r1];", True),
        ("mov.u32 %r1, 5;", False),
        ("add.u32 %r2, %r1, %r1;", True),
        ("st.global.u32 [%p0], %r1;", True),
        ("st.u32 [%p0], %r1;", False),
        ("call g;", False),
    ):
        run = excerpt(body.format(text), before=".extern .func g;\n")
        lines = run.code.flat.instructions
        written = [getattr(line.operands[0], "name", "") if line.operands else "" for line in lines]
        first, last = written.index("%r5"), written.index("%r7")
        names = frozenset({"%r1"})
        assert made_maps._is_undisturbed(run.code, first, last, names) == fine, text
        assert made_maps._is_undisturbed(run.code, first, first + 1, names)
        assert not made_maps._is_undisturbed(run.code, first, first, names)
        assert not made_maps._is_undisturbed(run.code, last, first, names)
        assert not made_maps._is_undisturbed(run.code, first, last + 2, names)
        assert not made_maps._is_undisturbed(run.code, first - 1, last, names)


def test_which_map_a_copy_finds() -> None:
    maps = MadeMaps(first=5, place="s", fields={("rank", 0): 1})
    maps.drop()
    assert (maps.first, maps.place, maps.fields) == (-1, "", {})
    here = flags([1, 1])

    def at(*numbers: int, where: Any = here) -> Any:
        return maps.content_at(lanes_of(*numbers).low(), where)

    assert at(100) is None
    maps.copies.append((lanes_of(100).low(), flags([1]), b"one"))
    assert at(100) == b"one"
    assert at(200) is None
    assert at(100, 200) is None
    assert at(100, 200, where=flags([1, 0])) == b"one"
    maps.copies.append((lanes_of(100).low(), flags([1]), b"two"))
    assert at(100) == b"two"
    maps.copies.append((lanes_of([100], [100]).low(), flags([1], [0]), b"three"))
    assert at(100, where=flags([1, 1], [0, 0])) == b"three"
    assert at(100, where=flags([1, 1], [1, 1])) is None
    assert at(100, where=flags([0, 0], [1, 1])) == b"two"


def test_maps_that_something_else_may_write() -> None:
    lines = "st.global.u8 [%p0], 0; ld.global.u8 %r1, [%p0]; st.global.u8 [%p1], %r1;"
    run = excerpt(lines)
    (store, load, _) = (
        s.index for s in run.steps() if s.effects and s.effects[0].space == "global"
    )
    used = np.array([[64, 192]], dtype=np.int64)

    def spoiled(at: int, effect: int, zone: int, *ranges: Any, whole: int | None = None) -> bool:
        recorder = Recorder(Zones(0))
        recorder.used_maps[9] = (FIRST, used)
        may = np.array(ranges, dtype=np.int64).reshape(-1, 2)
        recorder.touched[Key(at, effect, zone)] = TouchedBytes([may], [may], whole)
        return list(made_maps.spoiled_maps(run.code, recorder)) == [9]

    for pair, wanted in (
        ((0, 64), False),
        ((0, 65), True),
        ((191, 192), True),
        ((192, 200), False),
    ):
        assert spoiled(store, 0, FIRST, pair) == wanted
        assert not spoiled(load, 0, FIRST, pair)
        assert not spoiled(store, 0, FIRST + 1, pair)
        assert not spoiled(store, -1, FIRST, pair)
    assert spoiled(store, 0, FIRST, whole=3)
    assert not spoiled(load, 0, FIRST, whole=3)
    recorder = Recorder(Zones(0))
    recorder.used_maps[9], recorder.map_conflict = (FIRST, used), True
    assert list(made_maps.spoiled_maps(run.code, recorder)) == [9]
    recorder.used_maps.clear()
    assert not made_maps.spoiled_maps(run.code, recorder)
