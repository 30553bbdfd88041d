"""Tensor copies with maps passed by value, against the log of the CPU backend."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.ir.graph.access import AccessKind
from tessera.ir.program.tensor_map import encode_tiled
from tests.helpers.rule_cases import analyse, check, map_argument, run_of, touched
from tests.kernels.case import Launch, Run, Struct

F32, I32 = np.float32, np.int32
FLOAT = 7


def tensor(text: str, dims: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...]):
    content = encode_tiled(data_type=FLOAT, address=0, dims=dims, strides=strides, box=box)
    return map_argument(text, content)


def copy_run(
    width: int, height: int, pitch: int, dx: int, dy: int, grid: tuple[int, int], start: int = 0
) -> Run:
    """`copy_tiles` over tensors of `width` x `height` floats, rows `pitch` bytes apart."""
    size = start + pitch * height
    buffers = {n: np.ones(size // 4, F32) for n in ("out", "in")}
    maps = [tensor(f"{n}+{start}", (width, height), (pitch,), (32, 8)) for n in ("out", "in")]
    return run_of(buffers, Launch("copy_tiles", grid, 256, [*maps, I32(dx), I32(dy)]))


def rows(width: int, height: int, pitch: int, start: int = 0) -> list[tuple[int, int]]:
    if width * 4 == pitch:
        return [(start, start + pitch * height)]
    return [(start + pitch * y, start + pitch * y + 4 * width) for y in range(height)]


def test_a_clipped_copy_is_exact_to_the_byte() -> None:
    run = copy_run(50, 19, 208, 0, 0, (2, 3), start=64)
    program, (step,) = analyse("tensor", run)
    assert not step.pins
    wanted = rows(50, 19, 208, 64)
    assert touched(program, step, "in", AccessKind.READ) == wanted
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == wanted
    check("tensor", run)


@settings(deadline=None, max_examples=15)
@given(
    st.integers(1, 70),
    st.integers(1, 20),
    st.integers(0, 2),
    st.integers(-40, 70),
    st.integers(-10, 20),
    st.integers(1, 3),
    st.integers(1, 3),
)
def test_any_place(w: int, h: int, pad: int, dx: int, dy: int, gx: int, gy: int) -> None:
    pitch = (4 * w + 15) // 16 * 16 + 16 * pad
    check("tensor", copy_run(w, h, pitch, dx, dy, (gx, gy)))


def test_a_store_may_write_the_rest_of_a_piece_of_16_bytes() -> None:
    """As an H200 does behind the end of a row; a load takes the elements alone."""
    program, (step,) = analyse("tensor", copy_run(50, 3, 224, 0, 0, (2, 1), start=64))
    written = [(64 + 224 * y, 64 + 224 * y + 208) for y in range(3)]
    assert touched(program, step, "out", AccessKind.WRITE) == written
    assert touched(program, step, "in", AccessKind.READ) == rows(50, 3, 224, 64)
    program, (step,) = analyse("tensor", copy_run(52, 3, 224, 0, 0, (2, 1), start=64))
    assert touched(program, step, "out", AccessKind.WRITE) == rows(52, 3, 224, 64)


def test_data_dependent_coordinates_may_be_all_of_the_tensor() -> None:
    buffers = {
        "out": np.zeros(32 * 40, F32),
        "in": np.ones(36 * 24, F32),
        "rows": np.array([3, -4, 22, 8, 0], I32),
    }
    maps = [
        tensor("out", (32, 37), (128,), (32, 8)),
        tensor("in", (32, 24), (144,), (32, 8)),
    ]
    run = run_of(buffers, Launch("gather_tiles", 2, 128, [*maps, "rows", I32(5)]))
    program, (step,) = analyse("tensor", run)
    assert not step.pins
    assert touched(program, step, "in", AccessKind.READ) == rows(32, 24, 144)
    assert {a.address.value for a in step.accesses if "tensor" in a.text and a.kind.reads} == {
        "indexed"
    }
    # One elected thread of a warp stores each tile: the last is clipped to the tensor's 37 rows.
    for must in (False, True):
        assert touched(program, step, "out", AccessKind.WRITE, must=must) == [(0, 37 * 128)]
    check("tensor", run, ({"rows": np.array([2**31 - 1, -(2**31), 100, 24, 23], I32)},))


def test_reductions_read_and_write() -> None:
    buffers = {"total": np.zeros(64 * 16, F32), "row": np.zeros(128, F32)}
    total = tensor("total", (40, 10), (256,), (32, 8))
    run = run_of(buffers, Launch("add_tiles", 3, 256, [total, "row", I32(20), I32(4)]))
    program, (step,) = analyse("tensor", run)
    assert not step.pins
    inside = [(256 * y + 80, 256 * y + 160) for y in range(4, 10)]
    assert touched(program, step, "total", AccessKind.ATOMIC) == inside
    assert touched(program, step, "row", AccessKind.ATOMIC) == [(0, 384)]
    assert not touched(program, step, "total", AccessKind.WRITE)
    check("tensor", run)


def test_each_block_picks_its_map() -> None:
    buffers = {n: np.ones(8 * 24 * 3, F32) for n in ("out", "a", "b")}
    maps = [tensor(n, (8, 20, 3), (32, 768), (8, 4, 4)) for n in ("out", "a", "b")]
    run = run_of(buffers, Launch("pick_map", 4, 32, [*maps, I32(1)]))
    program, (step,) = analyse("tensor", run)
    assert not step.pins
    planes = (768, 1536)
    even = [(p + s, p + s + 128) for p in planes for s in (0, 256)]
    odd = [(p + s, p + s + 128) for p in planes for s in (128, 384)]
    assert touched(program, step, "a", AccessKind.READ) == even
    assert touched(program, step, "b", AccessKind.READ) == odd
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == [
        (768, 1280),
        (1536, 2048),
    ]
    check("tensor", run)


def test_past_the_buffer_is_reported() -> None:
    buffers = {"out": np.zeros(32 * 8, F32), "in": np.zeros(32 * 16, F32)}
    maps = [tensor(n, (32, 16), (128,), (32, 8)) for n in ("out", "in")]
    run = run_of(buffers, Launch("copy_tiles", (1, 2), 256, [*maps, I32(0), I32(0)]))
    _, (step,) = analyse("tensor", run)
    (found,) = [d for d in step.diagnostics if d.code == "TSR2004"]
    assert "reaches outside `out`: bytes 0 to 2048 of 1024" in str(found.headline)


def test_a_map_in_memory_is_pinned() -> None:
    buffers = {"maps": np.zeros(256, np.uint8), "out": np.zeros(256, F32)}
    run = run_of(buffers, Launch("map_in_memory", 1, 256, ["maps", "out", I32(1)]))
    _, (step,) = analyse("tensor", run)
    assert [str(pin.reason) for pin in step.pins] == ["its tensor map is in memory"]
    assert step.pins[0].span is not None
    assert "cp.async.bulk.tensor" in step.pins[0].span.source.line_text(step.pins[0].span.start)


def test_bytes_that_are_no_map() -> None:
    """Whatever the bytes say, it stays in the object that they point to; without one, a pin."""
    run = copy_run(32, 8, 128, 0, 0, (1, 1))
    maps = run.launches[0].args[:2]
    other = Struct(bytes(8) + b"\xff" * 120, maps[1].pointers)
    odd = run_of(run.buffers, Launch("copy_tiles", 1, 256, [maps[0], other, I32(0), I32(0)]))
    program, (step,) = analyse("tensor", odd)
    assert not step.pins
    assert touched(program, step, "in", AccessKind.READ) == [(0, 1024)]
    lost = Struct(bytes(128))
    none = run_of(run.buffers, Launch("copy_tiles", 1, 256, [maps[0], lost, I32(0), I32(0)]))
    _, (step,) = analyse("tensor", none)
    assert "holds no address" in str(step.pins[0].reason)


@pytest.mark.parametrize("interleave", [1, 2])
def test_interleaved_layouts_are_all_of_the_object(interleave: int) -> None:
    content = encode_tiled(
        data_type=FLOAT, address=0, dims=(32, 8), strides=(128,), box=(32, 8), interleave=interleave
    )
    run = copy_run(32, 8, 128, 0, 0, (1, 1))
    args = [run.launches[0].args[0], map_argument("in+16", content), I32(0), I32(0)]
    program, (step,) = analyse("tensor", run_of(run.buffers, Launch("copy_tiles", 1, 256, args)))
    assert touched(program, step, "in", AccessKind.READ) == [(0, 1024)]


# --- Triton, with descriptors from the host ------------------------------------------------------

BF16, SWIZZLE_64, SWIZZLE_128 = 9, 2, 3


def described(
    name: str, rows: int, columns: int, box: tuple[int, int], kind: int, swizzle: int
) -> list:
    """A descriptor as Triton passes it: the map, then sizes and strides."""
    width = {FLOAT: 4, BF16: 2}[kind]
    content = encode_tiled(
        data_type=kind,
        address=0,
        dims=(columns, rows),
        strides=(columns * width,),
        box=box[::-1],
        swizzle=swizzle,
    )
    sizes = [I32(rows), I32(columns), np.int64(columns), np.int64(1)]
    return [map_argument(name, content), *sizes]


def test_triton_tiles() -> None:
    rows, columns = 50, 40
    buffers = {n: np.ones(rows * columns + 64, F32) for n in ("out", "x")}
    args = [a for n in buffers for a in described(n, rows, columns, (32, 32), FLOAT, SWIZZLE_128)]
    launch = Launch("double", (2, 2), 128, [*args, np.uint64(0), np.uint64(0)], smem=4104)
    run = run_of(buffers, launch)
    program, (step,) = analyse("triton_tensor_double", run)
    assert not step.pins
    whole = [(0, rows * columns * 4)]
    assert touched(program, step, "x", AccessKind.READ) == whole
    assert touched(program, step, "out", AccessKind.WRITE, must=True) == whole
    check("triton_tensor_double", run)


def test_triton_persistent_matmul() -> None:
    m, n, k = 100, 136, 72
    buffers = {
        "c": np.zeros(m * n + 32, np.uint16),
        "a": np.ones(m * k + 32, np.uint16),
        "b": np.ones(k * n + 32, np.uint16),
    }
    args = [
        *described("c", m, n, (64, 64), BF16, SWIZZLE_128),
        *described("a", m, k, (64, 32), BF16, SWIZZLE_64),
        *described("b", k, n, (32, 64), BF16, SWIZZLE_128),
        I32(m),
        I32(n),
        I32(k),
        np.uint64(0),
        np.uint64(0),
    ]
    run = run_of(buffers, Launch("persistent", 4, 128, args, smem=24592))
    program, (step,) = analyse("triton_tensor_matmul", run)
    assert not step.pins
    assert touched(program, step, "a", AccessKind.READ) == [(0, 2 * m * k)]
    assert touched(program, step, "b", AccessKind.READ) == [(0, 2 * k * n)]
    assert touched(program, step, "c", AccessKind.WRITE, must=True) == [(0, 2 * m * n)]
    check("triton_tensor_matmul", run)
