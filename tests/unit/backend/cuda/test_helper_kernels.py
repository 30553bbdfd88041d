"""The backend's own kernels, on the CPU executor."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tessera.backend.cuda
from tessera.backend.cuda.loading import _KINDS
from tessera.backend.ptx_executor.device import Device, LoadedModule
from tessera.backend.unwritten import ComparedSide, buffer_key, device_key, unwritten_bytes
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Buffer, BufferId, Role
from tessera.ir.program.seeded import Seeded

PTX = Path(tessera.backend.cuda.__file__).with_name("helpers.ptx")


@pytest.fixture(scope="module")
def loaded() -> LoadedModule:
    return Device().load(parse_module(PTX.read_text()))


def test_every_driver_reads_them() -> None:
    module = parse_module(PTX.read_text())
    assert module.version == (7, 0)
    assert module.target[0] == "sm_75"


@pytest.mark.parametrize("shift", [0, 1, 8])
def test_copy_ranges(loaded: LoadedModule, shift: int) -> None:
    device = loaded.device
    source = device.array(np.arange(600, dtype=np.uint16).view(np.uint8))
    target = device.array(np.zeros(1200, np.uint8))
    rows = [(16, 16 + shift, 100), (400, 700, 33), (301, 3, 1), (512, 1024, 64), (0, 1, 0)]
    table = device.array(np.array(rows, np.uint64))
    loaded["copy_ranges"].launch(3, 128, [target, source, table, len(rows)])
    wanted = np.zeros(1200, np.uint8)
    for start, to, size in rows:
        wanted[to : to + size] = source.numpy()[start : start + size]
    np.testing.assert_array_equal(target.numpy(), wanted)


def test_transfers_take_turns_on_a_link(loaded: LoadedModule) -> None:
    device = loaded.device
    free_at = device.array(np.zeros(1, np.uint64))
    ends = [device.array(np.zeros(1, np.uint64)) for _ in range(2)]
    for end in ends:
        loaded["link_turn"].launch(1, 1, [free_at, 5000, end])
        loaded["link_delay"].launch(1, 1, [end])
    first, second = (int(end.numpy()[0]) for end in ends)
    assert second >= first + 5000
    assert int(free_at.numpy()[0]) == second


def test_stamps_rise(loaded: LoadedModule) -> None:
    words = loaded.device.array(np.zeros(2, np.uint64))
    for number in range(2):
        loaded["stamp"].launch(1, 1, [words.at(8 * number)])
    first, second = words.numpy().tolist()
    assert 0 < first < second


@pytest.mark.parametrize("dtype", sorted(_KINDS, key=str), ids=lambda dtype: dtype.value)
def test_seeded_values_are_those_of_the_host_to_the_byte(
    loaded: LoadedModule, dtype: DataType
) -> None:
    """More values than threads, an odd number of them, and values too small for narrow types."""
    kind, values = _KINDS[dtype]
    elements = 40_001 if dtype is DataType.F16 else 4099  # a few that are subnormal
    size = elements * dtype.bytes
    seeded = Seeded(Buffer(id=BufferId(0), name="w", bytes=size, role=Role.WEIGHT, dtype=dtype), 11)
    wanted = seeded.read()
    target = loaded.device.array(np.full(size + 8, 0xCC, np.uint8))
    state, increment = seeded.generator()
    low = (1 << 64) - 1
    words = [state >> 64, state & low, increment >> 64, increment & low]
    loaded["seed_values"].launch(3, 64, [target, elements * values, kind, *words])
    np.testing.assert_array_equal(target.numpy()[:size], wanted)
    assert (target.numpy()[size:] == 0xCC).all()


@pytest.mark.parametrize("side", ComparedSide)
def test_unwritten_memory_is_the_same_on_a_gpu(loaded: LoadedModule, side: ComparedSide) -> None:
    device = loaded.device
    target = device.array(np.full(1000, 7, np.uint8))
    for request, name, (start, end) in (
        (0, "a", (0, 1000)),
        (9, "b", (3, 778)),
        (2**20, "", (5, 6)),
    ):
        word = device.array(np.array([request], np.uint64))
        key = buffer_key(1, BufferId(4))
        before = target.numpy()
        loaded["fill_unwritten"].launch(
            3, 64, [target, start, end, word, key, device_key(name), int(side)]
        )
        before[start:end] = unwritten_bytes(side, request, device_key(name), key, start, end)
        np.testing.assert_array_equal(target.numpy(), before)
