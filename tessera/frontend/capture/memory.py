"""The owners of the memory that a call names.

In: tensors with names and roles; then the addresses that the graph names. Out: `CapturedMemory`:
buffers by address, none inside another, and the bytes of each.

Inputs, parameters and outputs have names. Memory without a name belongs to other live tensors, to
blocks of PyTorch's allocator that no Python object stands for, or to allocations of other
libraries. Tensors that live are all noted, named by the call or not: an address of one may stand in
memory that the call reads. Which buffers a call changes is known by digests of their bytes,
computed where they are: little leaves the device.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import re
import warnings
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tessera.diagnostics import TesseraError
from tessera.frontend.capture.cuda_graph import call
from tessera.frontend.capture.raw import RawBuffer
from tessera.frontend.capture.tensors import data_type
from tessera.ir.program.program import Role

if TYPE_CHECKING:
    import torch

Bytes = npt.NDArray[np.uint8]
_NOT_A_NAME = re.compile(r"[^A-Za-z0-9_$.]")
# Variables of the trace's modules are named like this.
_VARIABLE = re.compile(r"m\d+\.")


class CapturedMemory:
    """Buffers by address; `address_of` is for storages that have no memory."""

    def __init__(self, address_of: Callable[[torch.UntypedStorage], int] | None = None) -> None:
        self._address_of = address_of
        self.buffers: dict[int, RawBuffer] = {}
        self._starts: list[int] = []
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._names: set[str] = set()

    def add_tensor(self, tensor: torch.Tensor, name: str, role: Role, *, lasting: bool) -> None:
        """Note a tensor's memory, as far as it is not known."""
        try:
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            raise TesseraError.of(
                "TSR6002",
                f"the tensor `{name}` is of the layout {tensor.layout}, which a trace cannot hold",
                hint="make it dense (`.to_dense()`)",
            ) from None
        address, size = self._start(storage), storage.nbytes()
        if not address or not size or self.holds(address, size):
            return
        # A view says what the elements of all are, and nothing of its shape.
        is_whole = tensor.is_contiguous() and tensor.numel() * tensor.itemsize == size
        kind = None if size % tensor.itemsize else data_type(tensor.dtype)
        self._storages[address] = storage
        self._add(
            RawBuffer(
                name=self._free_name(name),
                address=address,
                bytes=size,
                role=role,
                lasting=lasting,
                dtype=kind,
                # A single number has no extents to name.
                shape=(tuple(tensor.shape) or None) if kind and is_whole else None,
            )
        )

    def add_block(self, word: int, start: int, size: int, name: str, *, is_temporary: bool) -> None:
        """Note the memory around an address that belongs to no tensor and to no known buffer."""
        place = bisect_right(self._starts, word)
        before = self.buffers[self._starts[place - 1]] if place else None
        first = max(start, before.address + before.bytes) if before is not None else start
        after = self._starts[place] if place < len(self._starts) else start + size
        self._add(
            RawBuffer(
                name=self._free_name(name),
                address=first,
                bytes=min(start + size, after) - first,
                role=Role.TEMP if is_temporary else Role.WEIGHT,
                lasting=not is_temporary,
            )
        )

    def grow(self, buffer: RawBuffer, size: int) -> None:
        """Note that a known buffer has more bytes."""
        if size > buffer.bytes:
            self._add(replace(buffer, bytes=size))

    def holds(self, address: int, size: int = 1) -> bool:
        """Whether `size` bytes from an address are inside a known buffer."""
        place = bisect_right(self._starts, address) - 1
        if place < 0:
            return False
        return address + size <= self._starts[place] + self.buffers[self._starts[place]].bytes

    def in_order(self) -> tuple[RawBuffer, ...]:
        """The buffers as they were noted."""
        return tuple(self.buffers.values())

    def names_of(self, tensors: Iterable[torch.Tensor]) -> frozenset[str]:
        """The buffers that begin where the memory of one of these tensors does."""
        starts = {self._start(tensor.untyped_storage()) for tensor in tensors}
        return frozenset(self.buffers[start].name for start in starts & self.buffers.keys())

    def read(self, buffer: RawBuffer) -> Bytes:
        """The bytes of a buffer, on the host."""
        flat = self.on_gpu(buffer)
        if flat is None:
            return _read_block(buffer.address, buffer.bytes)
        on_host = flat.cpu()
        content: Bytes = on_host.numpy()
        # A view of host memory would change with the model's tensor.
        return content.copy() if on_host.data_ptr() == flat.data_ptr() else content

    def digest(self, buffer: RawBuffer) -> bytes:
        """A digest of a buffer's bytes, computed where they are; it changes with them."""
        flat = self.on_gpu(buffer)
        if flat is None:
            return hashlib.sha256(_read_block(buffer.address, buffer.bytes).tobytes()).digest()
        return digest_of(flat)

    def on_gpu(self, buffer: RawBuffer) -> torch.Tensor | None:
        """The bytes of a buffer as a tensor; None for memory that PyTorch does not know."""
        import torch

        storage = self._storages.get(buffer.address)
        if storage is None or storage.nbytes() != buffer.bytes:
            return None
        return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)

    def _add(self, buffer: RawBuffer) -> None:
        """Note a buffer; known ones that it overlaps become one with it, as the first of them."""
        place = bisect_right(self._starts, buffer.address)
        if self.holds(buffer.address):
            place -= 1
        overlapped = []
        while place < len(self._starts) and self._starts[place] < buffer.address + buffer.bytes:
            overlapped.append(self._starts.pop(place))
        if overlapped:
            known = [self.buffers[start] for start in self.buffers if start in overlapped]
            start = min(buffer.address, overlapped[0])
            end = max(part.address + part.bytes for part in (buffer, *known))
            buffer = replace(
                known[0],
                lasting=any(part.lasting for part in (buffer, *known)),
                address=start,
                bytes=end - start,
                dtype=None,
                shape=None,
            )
        for start in overlapped:
            del self.buffers[start]
        self.buffers[buffer.address] = buffer
        insort(self._starts, buffer.address)

    def _start(self, storage: torch.UntypedStorage) -> int:
        return storage.data_ptr() if self._address_of is None else self._address_of(storage)

    def _free_name(self, wanted: str) -> str:
        name = _NOT_A_NAME.sub("_", wanted) or "b"
        plain = (name[0].isalpha() or name[0] in "_$") and not _VARIABLE.match(name)
        name = name if plain else f"b{name}"
        tried, number = name, 1
        while tried in self._names:
            number += 1
            tried = f"{name}_{number}"
        self._names.add(tried)
        return tried


def live_tensors() -> dict[int, torch.Tensor]:
    """A tensor for every storage on the GPU that is alive, by address: the largest there.

    Those that stand for memory that is gone, for others or for none do not count.
    """
    import torch

    gc.unfreeze()  # tensors that a program has frozen are not among all objects
    gc.collect()
    blocks = _Blocks()
    live: dict[int, torch.Tensor] = {}
    # Subclasses of others may have their own ideas of what their attributes are.
    with torch._C.DisableTorchFunctionSubclass(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for thing in gc.get_objects():
            if not issubclass(type(thing), torch.Tensor) or hasattr(thing, "__tensor_flatten__"):
                continue
            try:
                storage = thing.untyped_storage() if thing.is_cuda else None
                address, size = (storage.data_ptr(), storage.nbytes()) if storage else (0, 0)
            except Exception:  # a tensor that is not there, or not any more
                continue
            there = address and blocks.are_there(address, size)
            if there and (address not in live or size > live[address].untyped_storage().nbytes()):
                live[address] = thing
    return live


def add_strangers(
    memory: CapturedMemory, live: dict[int, torch.Tensor], words: Iterable[int]
) -> frozenset[int]:
    """Note memory that has no owner yet; returns the words that are addresses without an owner.

    `live` are the tensors from before the call, `words` what the call's nodes name, in order. A
    tensor in memory of another library, or that another library has cut out of a tensor, may stand
    for a part of what the call uses all of, or for memory that is gone: what counts is the
    allocation. So it is for one that begins where a block of PyTorch's does and ends before what
    was asked for.
    """
    blocks, named = _Blocks(), tuple(dict.fromkeys(word for word in words if word))
    numbers, more = count(), count()
    for address in _as_named(live, named):
        start, size = blocks.allocation(address)
        storage = live[address].untyped_storage()
        # The call may have given the tensor other memory.
        is_whole = start == storage.data_ptr() and blocks.at(address) is not None
        if not size or memory.holds(*((start, storage.nbytes()) if is_whole else (address, 1))):
            continue
        name = f"c{next(numbers)}"
        if is_whole:
            memory.add_tensor(live[address], name, Role.WEIGHT, lasting=True)
        else:
            memory.add_block(address, start, size, name, is_temporary=False)
    for buffer in memory.in_order():
        block = blocks.at(buffer.address)
        if block is not None and block.is_used and block.address == buffer.address:
            memory.grow(buffer, block.asked)
    unknown = set()
    for word in named:
        if memory.holds(word):
            continue
        block = blocks.at(word)
        if block is None:
            start, size = _allocation(word)
            if size:
                name = f"alloc{next(more)}"
                memory.add_block(word, start, size, name, is_temporary=False)
            elif start:
                unknown.add(word)
        elif block.is_used:
            name = f"block{next(more)}"
            memory.add_block(word, block.address, block.bytes, name, is_temporary=block.is_private)
        else:
            unknown.add(word)
    return frozenset(unknown)


def _as_named(live: dict[int, torch.Tensor], words: Iterable[int]) -> Iterator[int]:
    """Addresses of tensors: those that a call names in its order, so that what else lives does
    not change how they are called; then the others."""
    starts = sorted(live)
    first: dict[int, None] = {}
    for word in words:
        place = bisect_right(starts, word) - 1
        if place >= 0 and word < starts[place] + live[starts[place]].untyped_storage().nbytes():
            first[starts[place]] = None
    yield from first
    yield from (address for address in starts if address not in first)


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemoryBlock:
    """A piece of PyTorch's device memory; `is_private`: of a pool of some graph.

    `asked` is how many of its bytes were requested.
    """

    address: int
    bytes: int
    asked: int
    is_used: bool
    is_private: bool


class _Blocks:
    """PyTorch's device memory by address."""

    def __init__(self) -> None:
        blocks = [
            _MemoryBlock(
                address=int(block["address"]),
                bytes=int(block["size"]),
                asked=int(block.get("requested_size", 0)),
                is_used=block["state"] == "active_allocated",
                is_private=tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0),
            )
            for segment in _segments()
            for block in segment["blocks"]
        ]
        self._blocks = sorted(blocks, key=lambda block: block.address)
        self._starts = [block.address for block in self._blocks]

    def at(self, word: int) -> _MemoryBlock | None:
        """The block that an address is in."""
        place = bisect_right(self._starts, word) - 1
        block = self._blocks[place] if place >= 0 else None
        return block if block is not None and word < block.address + block.bytes else None

    def allocation(self, address: int) -> tuple[int, int]:
        """Where memory that is in use begins, and its bytes; none for memory that is not."""
        block = self.at(address)
        if block is None:
            return _allocation(address)
        return block.address, block.bytes if block.is_used else 0

    def are_there(self, address: int, size: int) -> bool:
        """Whether memory is in use, by PyTorch or by another library."""
        start, there = self.allocation(address)
        # Of other libraries it is not known how many allocations lie in a row.
        is_inside = address + size <= start + there or self.at(address) is None
        return there > 0 and is_inside


def _segments() -> list[dict[str, Any]]:
    import torch

    try:
        segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()
    except RuntimeError as problem:
        raise TesseraError.of(
            "TSR6002",
            "PyTorch's allocator does not tell what memory is in use",
            notes=(str(problem).splitlines()[0],),
            hint="use its own: unset `PYTORCH_CUDA_ALLOC_CONF`, and plug in no other one",
        ) from None
    return segments


def _allocation(word: int) -> tuple[int, int]:
    """The allocation of another library that an address is in: start and bytes.

    No bytes: there is none, or (the start is not 0) the address is of the host's memory.
    """
    from cuda.bindings import driver

    kind = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_MEMORY_TYPE
    status, where = driver.cuPointerGetAttribute(kind, word)
    if int(status) != 0:
        return 0, 0
    if int(where) != int(driver.CUmemorytype.CU_MEMORYTYPE_DEVICE):
        return word, 0
    status, start, size = driver.cuMemGetAddressRange(word)
    return (int(start), int(size)) if int(status) == 0 else (0, 0)


def _read_block(address: int, size: int) -> Bytes:
    from cuda.bindings import driver

    content = np.empty(size, np.uint8)
    call(driver.cuMemcpyDtoH, ctypes.c_void_p(content.ctypes.data).value, address, size)
    return content


# Words of a digest at a time (32 MiB), and what makes neighbours differ; shifts and factors.
_DIGEST_WORDS = 1 << 22
_SPREAD = 0x9E3779B97F4A7C15 - (1 << 64)
_MIXES = ((30, 0xBF58476D1CE4E5B9 - (1 << 64)), (27, 0x94D049BB133111EB - (1 << 64)), (31, 1))


def digest_of(flat: torch.Tensor) -> bytes:
    """A digest of a tensor of bytes, computed where it is; little leaves the device.

    Words are mixed with their place and added up modulo 2^64: any one word that changes shows, and
    several that change cancel each other with a chance of about 2^-64, whatever changes in them.
    """
    import torch

    whole = flat.numel() // 8 * 8
    words = flat[:whole].view(torch.int64)
    places = torch.arange(min(words.numel(), _DIGEST_WORDS), device=flat.device) * _SPREAD
    digest = hashlib.sha256(flat[whole:].cpu().numpy().tobytes())
    for start in range(0, words.numel(), _DIGEST_WORDS):
        part = words[start : start + _DIGEST_WORDS]
        total = _mixed(part + places[: part.numel()]).sum()
        digest.update(int(total).to_bytes(8, "little", signed=True))
    return digest.digest()


def _mixed(words: torch.Tensor) -> torch.Tensor:
    """Each word as another one, of which every bit depends on all of its bits (splitmix64)."""
    for shift, factor in _MIXES:
        # A shift of a signed number brings copies of its sign, which do not count.
        words = (words ^ (words >> shift & (1 << 64 - shift) - 1)) * factor
    return words
