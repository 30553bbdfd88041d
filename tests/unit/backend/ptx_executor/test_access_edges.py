"""Where accesses begin to be allowed and where they end, in each state space; sizes of none, one
and the most; lists and forms of few lanes, worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory import access_log, host_memory, memory
from tessera.backend.ptx_executor.memory.access import blame, load_vector, split_words
from tessera.backend.ptx_executor.memory.access_log import AccessLog, Direction
from tessera.backend.ptx_executor.memory.faults import AddressFault
from tessera.backend.ptx_executor.memory.global_access import _block_view, gather_global
from tessera.backend.ptx_executor.memory.lanes import LaneSet, blend
from tessera.backend.ptx_executor.memory.memory import (
    GUARD,
    LARGE,
    MOST_DEVICES,
    AddressSpace,
    Allocation,
    describe_place,
)
from tessera.backend.ptx_executor.memory.spaces import (
    LOCAL_BASE,
    PARAM_BASE,
    RANK_SHIFT,
    SHARED_BASE,
    WINDOW,
    WINDOWS_END,
    gather_generic,
    gather_local,
    gather_param,
    gather_shared,
    is_in_space,
    scatter_generic,
)
from tessera.backend.ptx_executor.memory.watch import Checks, Shadow
from tessera.backend.ptx_executor.simt.chunk import Chunk
from tessera.diagnostics import TesseraError
from tests.helpers.cpu_kernels import load

U64 = np.uint64


def chunk_of(ctas: int = 2, threads: int = 4, **given: Any) -> Chunk:
    """CTAs in one cluster, with 64 bytes of shared memory, 32 of each thread's own and 16 of
    parameters, which hold 0, 1, 2 and so on."""
    space = AddressSpace(0, 1 << 16)
    program = SimpleNamespace(
        local_bytes=32, initial_registers=(), parameter_size=16, shared_dynamic=True
    )
    launch: Any = SimpleNamespace(
        program=program, space=space, log=AccessLog(space), block=(threads, 1, 1),
        shared_bytes=64, cluster_size=ctas, dynamic_shared=0, watch=None, has_read_only=False,
        parameter_bytes=np.arange(16, dtype=np.uint8),
    )  # fmt: skip
    vars(launch).update(given)
    chunk = Chunk(launch, np.arange(ctas))
    for own in (chunk.shared, chunk.local):
        own.bytes.reshape(-1)[:] = np.arange(own.bytes.size) % 251
    return chunk


def row(*addresses: int, kind: Any = U64) -> np.ndarray:
    return np.array([addresses], dtype=kind)


def fault_of(gather: Any, chunk: Chunk, address: np.ndarray, width: int) -> str:
    """The code of the fault of a load, or nothing."""
    try:
        gather(chunk.everyone, 0, address, width, None)
    except AddressFault as fault:
        return fault.code
    return ""


@pytest.mark.parametrize(
    ("gather", "size"), [(gather_shared, 64), (gather_local, 32), (gather_param, 16)]
)
def test_spaces_end_with_their_last_byte(gather: Any, size: int) -> None:
    chunk = chunk_of()
    for width in (1, 2, 4, 8, 16):
        for address in range(size + 2):
            inside = address + width <= size
            wanted = ("" if address % width == 0 else "TSR5003") if inside else "TSR5002"
            assert fault_of(gather, chunk, row(address), width) == wanted, (address, width)


def test_loads_of_shared_memory_of_the_own_cta_and_of_others() -> None:
    chunk = chunk_of(ctas=2, threads=2)
    own, lanes = chunk.shared.bytes, chunk.everyone
    assert gather_shared(lanes, 0, row(3, 5), 1, None).tolist() == own[:, [3, 5]].tolist()
    far = row(3, 5) + U64(2 << RANK_SHIFT)  # of the second CTA
    assert gather_shared(lanes, 0, far, 1, None).tolist() == [own[1, [3, 5]].tolist()] * 2
    assert fault_of(gather_shared, chunk, row(3 << RANK_SHIFT), 1) == "TSR5002"


@pytest.mark.parametrize(("dynamic", "hinted"), [(0, True), (16, False)])
def test_the_size_of_dynamic_memory_is_asked_for_where_none_is_given(
    dynamic: int, hinted: bool
) -> None:
    chunk = chunk_of(dynamic_shared=dynamic)
    with pytest.raises(AddressFault) as caught:
        gather_shared(chunk.everyone, 0, row(64), 1, None)
    assert bool(caught.value.hint) is hinted


def test_generic_addresses_at_the_ends_of_windows() -> None:
    chunk = chunk_of(ctas=1, threads=2)
    shared, local = chunk.shared.bytes[0], chunk.local.bytes
    lanes = chunk.everyone
    given = row(SHARED_BASE, LOCAL_BASE)  # one past the window of shared memory is local
    assert gather_generic(lanes, 0, given, 1, None).tolist() == [[shared[0], local[1, 0]]]
    given = row(LOCAL_BASE + 1, PARAM_BASE)
    assert gather_generic(lanes, 0, given, 1, None).tolist() == [[local[0, 1], 0]]
    before = shared.copy(), local.copy()
    scatter_generic(
        lanes, 0, row(SHARED_BASE, LOCAL_BASE), 1, np.array([[7, 9]], dtype=np.uint8), None
    )
    assert (shared[0], local[1, 0]) == (7, 9)
    assert (shared[1:] == before[0][1:]).all()
    assert (np.delete(local, 32) == np.delete(before[1], 32)).all()
    for base in (SHARED_BASE, LOCAL_BASE, PARAM_BASE):
        assert fault_of(gather_generic, chunk, row(base - 1), 1) == "TSR5002"
    assert fault_of(gather_generic, chunk, row(WINDOWS_END), 1) == "TSR5002"


def test_stores_to_one_window_only() -> None:
    chunk = chunk_of(ctas=1, threads=2)
    words = np.array([[7, 9]], dtype=np.uint8)
    for base, held in ((SHARED_BASE, chunk.shared.bytes), (LOCAL_BASE, chunk.local.bytes)):
        before = held.copy()
        scatter_generic(chunk.everyone, 0, row(base + 3, base + 5), 1, words, None)
        rows = [0, 0] if base == SHARED_BASE else [0, 1]
        assert held[rows, [3, 5]].tolist() == [7, 9]
        before[rows, [3, 5]] = 7, 9
        assert (held == before).all()
    with pytest.raises(AddressFault, match="write to a kernel parameter"):
        scatter_generic(chunk.everyone, 0, row(PARAM_BASE, PARAM_BASE + 1), 1, words, None)


def test_generic_addresses_of_rows_and_lists() -> None:
    """One address for each CTA, in two spaces, as they are and for two of the lanes."""
    chunk = chunk_of(ctas=2, threads=2)
    held = chunk.launch.space.allocate(8)
    chunk.launch.space.view(held)[:] = 50
    given = np.array([[SHARED_BASE + 4], [held.address]], dtype=U64)
    shared = int(chunk.shared.bytes[0, 4])
    found = gather_generic(chunk.everyone, 0, given, 1, None)
    assert found.tolist() == [[shared, shared], [50, 50]]
    who = np.array([1, 2])
    found = gather_generic(chunk.everyone, 0, given.reshape(-1), 1, who)
    assert found.tolist() == [shared, 50]
    words = np.array([[1, 2], [3, 4]], dtype=np.uint8)
    scatter_generic(chunk.everyone, 0, given, 1, words, None)  # the later lane wins
    assert (chunk.shared.bytes[0, 4], chunk.launch.space.view(held)[0]) == (2, 4)
    # Local memory of the lanes that are listed, and not of the first ones.
    given = np.array([held.address + 1, LOCAL_BASE + 3], dtype=U64)
    scatter_generic(chunk.everyone, 0, given, 1, np.array([8, 9], dtype=np.uint8), who)
    assert (chunk.launch.space.view(held)[1], chunk.local.bytes[2, 3]) == (8, 9)
    given = np.array([SHARED_BASE + 9, held.address + 2], dtype=U64)
    who = np.array([2, 3])
    scatter_generic(chunk.everyone, 0, given, 1, np.array([6, 7], dtype=np.uint8), who)
    assert (chunk.shared.bytes[1, 9], chunk.launch.space.view(held)[2]) == (6, 7)


def test_what_space_an_address_is_in() -> None:
    chunk = chunk_of()
    constant = chunk.launch.space.allocate(8, read_only=True)
    first, end = constant.address, constant.address + 8
    own = SHARED_BASE + (1 << RANK_SHIFT)
    for space, is_own, inside, outside in (
        ("const", False, (first, end - 1), (first - 1, end)),
        ("global", False, (WINDOWS_END, first), (WINDOWS_END - 1, SHARED_BASE)),
        ("shared", False, (SHARED_BASE, SHARED_BASE + WINDOW - 1), (SHARED_BASE - 1, LOCAL_BASE)),
        ("shared", True, (SHARED_BASE, own - 1), (SHARED_BASE - 1, own)),
        ("local", True, (LOCAL_BASE, own + WINDOW, PARAM_BASE - 1), (LOCAL_BASE - 1, PARAM_BASE)),
        ("param", False, (PARAM_BASE, WINDOWS_END - 1), (PARAM_BASE - 1, WINDOWS_END)),
    ):
        for addresses, wanted in ((inside, True), (outside, False)):
            found = is_in_space(chunk.everyone, space, row(*addresses), is_own)
            assert found.tolist() == [[wanted] * len(addresses)], (space, addresses)


# --- device memory -------------------------------------------------------------------------


def test_room_that_is_used_again() -> None:
    """Fresh room first, to its last byte; then what was freed, from its start, until it is full."""
    space = AddressSpace(0, 256 + 3 * 512)

    def allocated(size: int) -> Allocation:
        return space.allocate(size, "x")

    first, second, third = (allocated(size) for size in (0, 1, 256))
    assert [a.address - space.base for a in (first, second, third)] == [256, 768, 1280]
    with pytest.raises(TesseraError, match="TSR5020"):
        allocated(0)
    space.free(second)
    space.free(second)  # does nothing
    with pytest.raises(TesseraError, match="TSR5020"):
        allocated(512 - GUARD + 1)
    assert allocated(512 - GUARD).address == space.base + 768
    with pytest.raises(TesseraError, match="TSR5020"):
        allocated(0)
    space.free(first)
    assert allocated(256).address == space.base + 256
    large = AddressSpace(0, 256 + 1024)
    large.free(large.allocate(1024 - GUARD))
    assert [large.allocate(n).address - large.base for n in (0, 1)] == [256, 768]
    with pytest.raises(TesseraError, match="TSR5020"):
        large.allocate(0)


def test_the_allocation_of_an_address() -> None:
    space = AddressSpace(0, 1 << 16)
    assert space.find(space.base) is None
    one, two = space.allocate(8, "one"), space.allocate(300, "two")
    for own in (one, two):
        end = own.address + own.size
        assert space.find(own.address - 1) is None
        assert (space.find(own.address), space.find(end - 1)) == (own, own)
        assert space.find(end) is None
        assert describe_place(own, own.address - 1).endswith("1 bytes before it")
        assert describe_place(own, own.address).endswith("0 bytes into it")
        assert describe_place(own, end - 1).endswith(f"{own.size - 1} bytes into it")
        assert describe_place(own, end).endswith("0 bytes past its end")
    assert [array.tolist() for array in space.bounds()] == [space.starts, space.ends]
    places = {owner: (owner + 1) << memory.DEVICE_SHIFT for owner in (0, 1, MOST_DEVICES - 1)}
    assert [space.other_owner(at) for at in places.values()] == [None, 1, MOST_DEVICES - 1]
    assert space.other_owner((MOST_DEVICES + 1) << memory.DEVICE_SHIFT) is None


@pytest.mark.parametrize(
    ("size", "free", "refused"),
    [(LARGE, LARGE - 1, True), (LARGE, LARGE, False), (LARGE - 1, 0, False), (LARGE, None, False)],
)
def test_large_allocations_need_the_memory_of_the_host(
    monkeypatch: pytest.MonkeyPatch, size: int, free: int | None, refused: bool
) -> None:
    monkeypatch.setattr(memory, "available_bytes", lambda: free)
    space = AddressSpace(0, 1 << 16)  # has no room for it either
    with pytest.raises(TesseraError) as caught:
        space.allocate(size, "x")
    assert ("the machine has no memory" in str(caught.value)) is refused


def test_less_is_reserved_where_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(number: int, size: int, **_: int) -> bytes:
        asked.append(size)
        if size > most:
            raise OSError("refused")
        return bytes(number + 2)

    monkeypatch.setattr(memory.mmap, "mmap", refuse)
    most = 1 << 20
    assert memory.reserve(5 << 20) == b"\0"
    assert asked == [5 << 20, 5 << 19, 5 << 18, 5 << 17]
    most = 0
    for first, tried in ((1 << 20, 1), ((1 << 20) + 2, 2), (1 << 21, 2)):
        asked.clear()
        with pytest.raises(OSError, match="refused"):
            memory.reserve(first)
        assert len(asked) == tried


def test_memory_of_a_group_that_is_used_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name, text in (("max", "100"), ("current", "150"), ("memory.stat", "anon 9\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(host_memory, "_GROUPS", ((str(tmp_path), "max", "current"),))
    assert host_memory.available_bytes() == 0


def test_a_library_without_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory.ctypes, "CDLL", lambda _: SimpleNamespace())
    assert host_memory.keep_freed_memory.__wrapped__() is False


def test_rows_of_words_up_to_the_end_of_memory() -> None:
    """The last row may end with its last word; rows may overlap."""
    words = np.arange(10, dtype=np.uint32)
    for start, pitch, step, shape in (
        (2, 4, 1, (2, 4)), (2, 4, 2, (2, 2)), (4, 4, 1, (2, 2)), (0, 9, 1, (2, 1)),
        (1, 2, 1, (3, 4)), (0, 0, 3, (2, 4)), (6, 3, 1, (2, 1)),
    ):  # fmt: skip
        wanted = start + pitch * np.arange(shape[0])[:, None] + step * np.arange(shape[1])
        assert (_block_view(words, (start, pitch, step), shape) == wanted).all()


def test_an_access_at_the_end_of_all_addresses() -> None:
    chunk = chunk_of(ctas=1, threads=2)
    held = chunk.launch.space.allocate(8)
    for address in (2**64 - 1, 2**64 - 4):  # one is past 0 with its end
        for addresses in (row(held.address, address), row(address)):
            assert fault_of(gather_global, chunk, addresses, 4) == "TSR5002"


# --- logs ----------------------------------------------------------------------------------


def logged() -> tuple[AddressSpace, Direction, Allocation, Allocation]:
    space = AddressSpace(0, 1 << 16)
    return space, Direction(space), space.allocate(10), space.allocate(16)


def test_freed_words_are_forgotten_and_others_kept() -> None:
    space, log, one, two = logged()
    first, second = (own.address - space.base for own in (one, two))
    log.add_words(np.array([first, first + 9]), 1, (one.address,))
    log.add_words(np.array([second // 4 + 1]), 4, (two.address,))
    log.forget(one)
    assert log.finish() == [(second + 4, second + 8)]
    log.add_words(np.array([first + 2]), 1, (one.address,))
    assert log.finish() == [(first + 2, first + 3)]
    log.add_words(np.array([first]), 1, (one.address,))
    space.free(one)  # after a fault, without a word to the log
    assert [end - start for start, end in log.finish()] in ([], [0])


def test_words_past_a_size_that_is_no_multiple() -> None:
    space, log, one, _ = logged()
    first = one.address - space.base
    log.add_words(np.array([first // 4 + n for n in range(2)]), 4, (one.address,))
    assert log.finish() == [(first, first + 8)]
    assert log.finish() == []


def test_bytes_of_freed_allocations_are_not_reported() -> None:
    space, _, one, two = logged()
    log = AccessLog(space)
    for own in (one, two):
        log.reads.add_range(own.address - space.base, own.address - space.base + 3)
    space.free(one)
    assert [(a.address, a.reads, a.writes) for a in log.finish()] == [(two.address, ((0, 3),), ())]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_rows_are_merged_where_there_are_many(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(access_log, "_MERGE_ABOVE", 2)
    _, log, _, _ = logged()
    for number in range(count):
        log.add_rows(256 + 2 * number, 16, 2, 2)
    assert len(log.rows) == count % 3
    assert log.finish() == [(256, 256 + 2 * count), (272, 272 + 2 * count)]


def test_a_log_that_the_system_has_no_addresses_for(monkeypatch: pytest.MonkeyPatch) -> None:
    _, log, _, _ = logged()
    monkeypatch.setattr(access_log, "reserve", lambda size: bytes(size - 1))
    with pytest.raises(TesseraError, match="TSR5020"):
        log.map_for(4)
    monkeypatch.setattr(access_log, "reserve", bytes)
    assert len(log.map_for(4)) == 1 << 14


# --- lanes ---------------------------------------------------------------------------------


def test_listed_lanes_of_two_threads() -> None:
    """One lane of the first CTA, another one of the second; of six."""
    chunk: Any = SimpleNamespace(ctas=6, threads=2)
    chosen = np.zeros((6, 2), dtype=np.bool_)
    chosen[0, 0] = chosen[1, 1] = True
    lanes = LaneSet(chunk, chosen.reshape(-1))
    assert lanes.kind == "listed"
    value = np.arange(12, dtype=np.uint32).reshape(6, 2)
    assert lanes.take(value).tolist() == [[0, 3]]
    assert lanes.take(value[:1]).tolist() == [[0, 1]]
    assert lanes.take(value[:, :1]).tolist() == [[0, 2]]


def test_warps_that_begin_in_the_middle() -> None:
    """Threads 16 to 47 are two warps."""
    chunk: Any = SimpleNamespace(ctas=2, threads=64)
    for first, warps in ((16, 4), (32, 2)):
        chosen = np.zeros((2, 64), dtype=np.bool_)
        chosen[:, first : first + 32] = True
        lanes = LaneSet(chunk, chosen.reshape(-1))
        assert (lanes.kind, lanes.warp_count) == ("product", warps)
        wide = lanes.to_warps(np.broadcast_to(lanes.col, lanes.shape))
        flags = np.ones(wide.shape, bool) if lanes.warp_active is None else lanes.warp_active
        place = np.broadcast_to(np.arange(32), wide.shape)
        assert (wide[flags] % 32 == place[flags]).all()
        assert flags.sum() == 64


@pytest.mark.parametrize("size", [8, 4095, 4096, 8192])
@pytest.mark.parametrize(
    "kind", [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.complex128]
)
def test_few_lanes_and_many_are_blended_alike(size: int, kind: Any) -> None:
    rng = np.random.default_rng(size)
    new, old = (
        rng.integers(0, 2 if kind is np.bool_ else 200, (1, size)).astype(kind) for _ in "ab"
    )
    chosen = rng.random((1, size)) < 0.5
    assert (blend(chosen, new, old) == np.where(chosen, new, old)).all()
    assert blend(None, new, old) is new
    assert blend(np.array([[True]]), new, old) is new
    assert blend(np.array([[False]]), new, old) is old


def test_one_number_replaces_a_register_where_nobody_else_needs_it() -> None:
    chunk: Any = SimpleNamespace(ctas=1, threads=4)
    lanes = LaneSet(chunk, np.array([True, False, True, True]))
    one, other = np.array([[5]], dtype=np.uint32), np.array([[6]], dtype=np.uint32)
    for old in (one, other, np.array([[5, 6, 7, 8]], dtype=np.uint32)):
        for dead in (False, True):
            made = np.broadcast_to(lanes.put(old, one, dead), (1, 4))
            kept = 5 if dead else int(np.broadcast_to(old, (1, 4))[0, 1])
            assert made[0, [0, 2, 3]].tolist() == [5, 5, 5]
            assert dead or made[0, 1] == kept


def test_a_word_that_is_not_taken_apart() -> None:
    word = np.array([[1 + 2j]])
    assert split_words(word, 16, 1) == [word]
    assert [w.item() for w in split_words(word, 8, 2)] == word.view(np.uint64)[0].tolist()


def test_vectors_of_most_lanes() -> None:
    """Of seven of eight, as they are and under a guard; the others keep what they had."""
    chunk = chunk_of(ctas=2, threads=4)
    mask = np.ones((2, 4), dtype=np.bool_)
    mask[1, 2] = False
    lanes = LaneSet(chunk, mask.reshape(-1))
    assert lanes.kind == "masked"
    address, words = row(0, 8, 16, 24), chunk.shared.words[4].reshape(2, -1)
    found = load_vector(lanes, gather_shared, 0, address, 4, 2)
    for number, part in enumerate(found):
        wide = np.broadcast_to(part, (2, 4))
        assert (wide[mask] == words[:, number:8:2][mask]).all()
    guard = np.array([[True, False, True, True]])
    olds = [np.full((2, 4), number, dtype=np.uint32) for number in (5, 6)]
    found = load_vector(lanes, gather_shared, 0, address, 4, 2, guard, olds)
    for number, part in enumerate(found):
        wide = np.broadcast_to(part, (2, 4))
        wanted = np.where(guard, words[:, number:8:2], olds[number])
        assert (wide[mask] == wanted[mask]).all()


def test_the_lane_that_is_blamed() -> None:
    chunk = chunk_of(ctas=1, threads=4)
    for address, named, on, lane in (
        (8, row(4, 8, 8, 0), None, 1),
        (8, row(4, 8, 8, 0), [[False, False, True, True]], 2),
        (8, row(4, 5, 6, 7), None, -1),
        (8, row(SHARED_BASE, SHARED_BASE + 8, 0, 0), None, 1),
        (8, row(SHARED_BASE, 0, 0, LOCAL_BASE + 8), None, 3),
        ((1 << 32) + 4, row(0, 4, 5, 6, kind=np.uint32), None, 1),  # of a sum of 64 bits
        ((1 << 32) + 8, row(0, (1 << 32) + 8, 8, 0), None, 1),
        (1 << 31, row(0, 0, 1 << 31, 0, kind=np.uint32), None, 2),
    ):
        fault = AddressFault("TSR5002", "", 0, address)
        before = fault.lane
        flags = None if on is None else np.array(on)
        blame(chunk.everyone, fault, named, flags)
        assert fault.lane == (lane if lane >= 0 else before), (address, named)


def test_bytes_that_have_been_written_and_freed() -> None:
    space = AddressSpace(0, 1 << 12)
    shadow = Shadow(space)
    shadow.written(space.base + 512, 8)
    shadow.forget(space.base + 514, 3)
    assert np.flatnonzero(shadow.flags).tolist() == [512, 513, 517, 518, 519]


def test_races_are_reported_where_they_are_asked_for_only() -> None:
    body = "st.global.u32 [%rd1], %r1;"
    for races in (False, True):
        with Device(checks=Checks(uninitialised=True, races=races)) as device:
            out = device.array(np.zeros(64, np.uint32), "out")
            kernel = load(device, body)["k"]
            if races:
                with pytest.raises(TesseraError, match="TSR5016"):
                    kernel.launch(1, 64, [out])
            else:
                kernel.launch(1, 64, [out])
