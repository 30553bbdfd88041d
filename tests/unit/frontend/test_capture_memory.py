"""Who owns memory: tensors, blocks of the allocator, allocations of others."""

from __future__ import annotations

import sys
import types
from contextlib import nullcontext
from typing import Any

import pytest

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.memory import CapturedMemory, add_strangers, live_tensors
from tessera.ir.program.data_type import DataType
from tessera.ir.program.program import Role

A = 0x7F0000000000


class Tensor:
    """As much of a tensor as is looked at."""

    is_cuda = True

    def __init__(self, address: int, shape: tuple[int, ...], *, storage: int | None = None) -> None:
        self.address, self.shape, self.itemsize, self.dtype = address, shape, 4, "torch.float32"
        self.count = 1
        for extent in shape:
            self.count *= extent
        self.bytes = self.count * 4 if storage is None else storage

    def untyped_storage(self) -> Any:
        return types.SimpleNamespace(data_ptr=lambda: self.address, nbytes=lambda: self.bytes)

    def is_contiguous(self) -> bool:
        return True

    def numel(self) -> int:
        return self.count


def test_tied_weights_and_views_are_one_buffer() -> None:
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, (4, 8)), "head.weight", Role.WEIGHT, lasting=True)
    memory.add_tensor(Tensor(A, (2, 8), storage=128), "tied", Role.WEIGHT, lasting=True)
    memory.add_tensor(Tensor(0, (0,)), "empty", Role.INPUT, lasting=True)
    (only,) = memory.in_order()
    assert (only.name, only.bytes, only.dtype, only.shape) == (
        "head.weight",
        128,
        DataType.F32,
        (4, 8),
    )


@pytest.mark.parametrize(("size", "kind"), [(128, DataType.F32), (130, None)])
def test_a_part_of_a_storage_has_a_type_and_no_shape(size: int, kind: DataType | None) -> None:
    """As `logits[:, -1]`: without a type nobody could say how far off a result may be."""
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, (2, 8), storage=size), "in0", Role.INPUT, lasting=True)
    (only,) = memory.in_order()
    assert (only.bytes, only.dtype, only.shape) == (size, kind, None)


def test_a_single_number_is_a_buffer_without_extents() -> None:
    """`shape=` names extents, and a tensor without dimensions has none."""
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, ()), "count", Role.WEIGHT, lasting=True)
    (only,) = memory.in_order()
    assert (only.bytes, only.dtype, only.shape) == (4, DataType.F32, None)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [("a b", "a_b"), ("0.weight", "b0.weight"), ("", "b"), ("m0.table", "bm0.table")],
)
def test_names_that_a_trace_cannot_hold(wanted: str, expected: str) -> None:
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, (4,)), wanted, Role.WEIGHT, lasting=True)
    memory.add_tensor(Tensor(A + 64, (4,)), wanted, Role.WEIGHT, lasting=True)
    assert [one.name for one in memory.in_order()] == [expected, f"{expected}_2"]


def test_storages_that_overlap_are_one_buffer() -> None:
    """Two imports of one allocation of another library, the later one wider."""
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A + 64, (8,)), "in0", Role.INPUT, lasting=True)
    memory.add_tensor(Tensor(A, (32,)), "in1", Role.INPUT, lasting=True)
    (only,) = memory.in_order()
    assert (only.name, only.address, only.bytes, only.dtype) == ("in0", A, 128, None)
    assert memory.holds(A + 127)
    assert not memory.holds(A + 128)


def test_a_wider_tensor_that_begins_at_the_same_place_is_one_buffer_with_it() -> None:
    """As the owner of memory of which another library has handed out the first part."""
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, (8,)), "in0", Role.INPUT, lasting=True)
    memory.add_tensor(Tensor(A + 64, (8,)), "other", Role.WEIGHT, lasting=True)
    memory.add_tensor(Tensor(A + 16, (16,)), "middle", Role.WEIGHT, lasting=True)
    (only,) = memory.in_order()
    assert (only.name, only.role, only.address, only.bytes) == ("in0", Role.INPUT, A, 96)
    assert only.shape is None


def block(address: int, size: int, state: str) -> dict[str, Any]:
    return {"address": address, "size": size, "state": state, "requested_size": size - 12}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two segments of PyTorch's allocator, one private; a foreign allocation; host memory."""
    segments = [
        {
            "segment_pool_id": (0, 0),
            "blocks": [
                block(A, 512, "active_allocated"),
                block(A + 512, 512, "inactive"),
                block(A + 1024, 512, "active_allocated"),
            ],
        },
        {"segment_pool_id": (0, 3), "blocks": [block(A + 4096, 256, "active_allocated")]},
    ]
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(memory_snapshot=lambda: segments)  # type: ignore
    torch._C = types.SimpleNamespace(DisableTorchFunctionSubclass=nullcontext)  # type: ignore
    driver = types.ModuleType("cuda.bindings.driver")
    kinds = {A + 8192: 2, A + 8200: 2, A + 8292: 2, A + 9000: 1}
    driver.CUpointer_attribute = types.SimpleNamespace(CU_POINTER_ATTRIBUTE_MEMORY_TYPE=2)  # type: ignore
    driver.CUmemorytype = types.SimpleNamespace(CU_MEMORYTYPE_DEVICE=2)  # type: ignore
    driver.cuPointerGetAttribute = lambda kind, word: (0 if word in kinds else 1, kinds.get(word))  # type: ignore
    driver.cuMemGetAddressRange = lambda word: (0, A + 8192, 800)  # type: ignore
    bindings = types.ModuleType("cuda.bindings")
    bindings.driver = driver  # type: ignore[attr-defined]
    for name, module in (("torch", torch), ("cuda.bindings", bindings)):
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("machine")
def test_memory_that_no_tensor_stands_for() -> None:
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A + 8192, (25,)), "in0", Role.INPUT, lasting=True)
    words = [5, A + 8, A + 600, A + 4100, A + 8292, A + 9000]
    unowned = add_strangers(memory, {A + 1024: Tensor(A + 1024, (8,))}, words)
    found = {one.address: (one.bytes, one.role, one.lasting) for one in memory.in_order()}
    assert found == {
        A + 8192: (100, Role.INPUT, True),
        A + 1024: (500, Role.WEIGHT, True),
        A: (512, Role.WEIGHT, True),
        A + 4096: (256, Role.TEMP, False),
        # What of the allocation is not the tensor's.
        A + 8292: (700, Role.WEIGHT, True),
    }
    # Freed memory, and memory of the host.
    assert unowned == {A + 600, A + 9000}


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("others", [[], [A + 4096], [A, A + 4096]])
def test_names_do_not_depend_on_what_else_lives(others: list[int]) -> None:
    """Else the same call has other names for the same constants when it is captured again."""
    memory = CapturedMemory()
    live = {address: Tensor(address, (8,)) for address in (*others, A + 1024)}
    words = [A + 1024, A + 8192] if A in others else [A + 1024, A + 8192, A]
    assert not add_strangers(memory, live, words)
    found = {one.address: one.name for one in memory.in_order()}
    assert (found[A + 1024], found[A + 8192]) == ("c0", "alloc0")
    assert A in others or found[A] == "block1"


@pytest.mark.usefixtures("machine")
def test_constants_are_numbered_as_the_call_names_them() -> None:
    memory = CapturedMemory()
    live = {address: Tensor(address, (8,)) for address in (A, A + 1024, A + 4096)}
    memory.add_tensor(live[A + 1024], "weight", Role.WEIGHT, lasting=True)
    assert not add_strangers(memory, live, [A + 4100, A + 1030, A + 4])
    found = {one.address: one.name for one in memory.in_order()}
    assert found == {A + 1024: "weight", A + 4096: "c0", A: "c1"}


@pytest.mark.usefixtures("machine")
def test_a_tensor_in_memory_of_another_library_may_be_a_part_of_it() -> None:
    """Kernels may use the whole allocation; a tensor over memory that is gone stands for none."""
    memory = CapturedMemory()
    live = {A + 8200: Tensor(A + 8200, (8,)), A + 100_000: Tensor(A + 100_000, (8,))}
    assert not add_strangers(memory, live, [A + 8192])
    (only,) = memory.in_order()
    assert (only.address, only.bytes, only.role) == (A + 8192, 800, Role.WEIGHT)


@pytest.mark.usefixtures("machine")
def test_a_tensor_of_the_first_part_of_a_block_stands_for_what_was_asked_for() -> None:
    """Whoever has the rest is no tensor: an array of another library, say."""
    memory = CapturedMemory()
    memory.add_tensor(Tensor(A, (8,)), "in0", Role.INPUT, lasting=True)
    memory.add_tensor(Tensor(A + 1024, (125,)), "in1", Role.INPUT, lasting=True)
    assert not add_strangers(memory, {}, [A, A + 300])
    found = [(one.name, one.address, one.bytes, one.shape) for one in memory.in_order()]
    assert found == [("in1", A + 1024, 500, (125,)), ("in0", A, 500, None)]


@pytest.mark.usefixtures("machine")
def test_tensors_whose_memory_is_gone_are_not_alive() -> None:
    """Views of memory that others have freed; of several at an address the largest counts."""
    torch = sys.modules["torch"]
    torch.Tensor = Tensor  # type: ignore
    addresses = [A, A + 512, A + 8200, A + 100_000]
    kept = [[Tensor(address, (count,)) for count in (4, 8, 4)] for address in addresses]
    live = live_tensors()
    assert {address: live[address] for address in live if address in addresses} == {
        A: kept[0][1],
        A + 8200: kept[2][1],
    }


@pytest.mark.usefixtures("machine")
def test_a_tensor_that_lies_inside_a_block_may_be_a_part_of_it() -> None:
    """As one that went to another library, was cut there, and came back: the rest lives on."""
    memory = CapturedMemory()
    assert not add_strangers(memory, {A + 64: Tensor(A + 64, (8,))}, [A, A + 500])
    (only,) = memory.in_order()
    assert (only.address, only.bytes, only.role, only.lasting) == (A, 512, Role.WEIGHT, True)


@pytest.mark.usefixtures("machine")
def test_a_tensor_that_the_call_gives_other_memory() -> None:
    """`p.data = ...`: what it had before counts where it is still there, not what it has now."""
    for before, wanted in ((A + 1024, [(A + 1024, 512)]), (A + 512, [])):
        memory = CapturedMemory()
        add_strangers(memory, {before: Tensor(A + 4096, (8,))}, [])
        assert [(one.address, one.bytes) for one in memory.in_order()] == wanted


@pytest.mark.usefixtures("machine")
def test_tensors_of_subclasses_live_unless_they_stand_for_others_or_are_not_there() -> None:
    class Plain(Tensor):
        pass

    class Wrapper(Tensor):
        def __tensor_flatten__(self) -> Any:
            raise AssertionError("nobody asks")

    class Fake(Tensor):
        def untyped_storage(self) -> Any:
            raise ValueError("there is no storage")

    sys.modules["torch"].Tensor = Tensor  # type: ignore[attr-defined]
    kept = [kind(A + 1024, (4,)) for kind in (Wrapper, Fake, Plain)]
    assert live_tensors()[A + 1024] is kept[2]


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("first", [0, 1])
def test_a_view_of_memory_that_is_gone_does_not_hide_who_has_it_now(first: int) -> None:
    """A tensor over freed memory of another library, larger than the block that is there now."""
    torch = sys.modules["torch"]
    torch.Tensor = Tensor  # type: ignore
    kept = [Tensor(A + 1024, (size,)) for size in ((128, 4096), (4096, 128))[first]]
    assert live_tensors()[A + 1024] is kept[first]


@pytest.mark.usefixtures("machine")
def test_an_allocator_that_does_not_tell_what_is_in_use() -> None:
    def snapshot() -> Any:
        raise RuntimeError("snapshot with backend:cudaMallocAsync is not meaningful.\nMore")

    sys.modules["torch"].cuda = types.SimpleNamespace(memory_snapshot=snapshot)  # type: ignore
    with pytest.raises(TesseraError, match="TSR6002") as caught:
        live_tensors()
    (note,) = caught.value.diagnostics[0].notes
    assert note == "snapshot with backend:cudaMallocAsync is not meaningful."
