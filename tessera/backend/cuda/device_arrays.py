"""Inputs in GPU memory, read in place once their owner's pending work is done.

In: an array of another library that supports DLPack. Out: `DeviceBytes`. The owner makes a stream
of this backend wait for its work, and the request waits for an event on that stream. No call waits
for the GPU. The owner must not change an array until the request is done.

Source: DLPack 0.8, dlpack.h; the array API standard on `__dlpack__`.
"""

from __future__ import annotations

import ctypes
import math
import threading
from collections.abc import Sequence
from typing import Any

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.targets import OpenDevice, have_peers
from tessera.backend.service import DeviceBytes, EarlierOutput

_CUDA = 2
_KINDS = {0: "int", 1: "uint", 2: "float", 5: "complex", 6: "bool"}


class _DlTensor(ctypes.Structure):
    """`DLTensor`, which is also the beginning of `DLManagedTensor`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class ArrayArrivals:
    """The events that requests wait for before they read arrays of other libraries."""

    def __init__(self, driver: Driver, devices: Sequence[OpenDevice]) -> None:
        self._driver = driver
        self._contexts = {device.gpu.ordinal: device.context for device in devices}
        self._reachable = {
            device.gpu.ordinal
            for device in devices
            if all(have_peers(driver, device, other) for other in devices)
        }
        self._lock = threading.Lock()
        self._streams: dict[int, Handle] = {}
        self._events: dict[int, list[Handle]] = {}
        self._free: dict[int, list[Handle]] = {ordinal: [] for ordinal in self._contexts}

    def take(self, given: Any, size: int) -> DeviceBytes | None:
        """The bytes of an array; None if they are not contiguous, or if a device cannot read them.

        `size` is the expected number of bytes: an array of zero bytes has no address.
        """
        where = getattr(given, "__dlpack_device__", None)
        if where is None or not size:
            return None
        kind, ordinal = where()
        if int(kind) != _CUDA or ordinal not in self._reachable:
            return None
        with self._driver.using(self._contexts[ordinal]):
            return self._take(given, ordinal)

    def _take(self, given: Any, ordinal: int) -> DeviceBytes | None:
        with self._lock:
            stream = self._stream(ordinal)
            capsule = given.__dlpack__(stream=int(stream))
            tensor = _tensor_of(capsule)
            if not _is_in_order(tensor):
                return None
            event = self._event(ordinal)
            self._driver.record(event, stream)
        return DeviceBytes(
            address=(tensor.data or 0) + tensor.byte_offset,
            nbytes=_count(tensor) * tensor.bits * tensor.lanes // 8,
            type_name=_type_name(tensor),
            ready=(ordinal, event),
            keep=(capsule, given),
        )

    def await_in(self, stream: Handle, given: Any) -> None:
        """Let a stream wait until the bytes of an array are ready."""
        if given.ready is not None:
            self._driver.wait(stream, given.ready[1])

    def give_back(self, given: Any) -> None:
        """Release the event of an array that no request waits for any more."""
        if isinstance(given, EarlierOutput):
            return  # it has no event
        ordinal, event = given.ready
        self._free[ordinal].append(event)

    def _stream(self, ordinal: int) -> Handle:
        if ordinal not in self._streams:
            self._streams[ordinal] = self._driver.stream(self._driver.priorities()[0])
        return self._streams[ordinal]

    def _event(self, ordinal: int) -> Handle:
        if self._free[ordinal]:
            return self._free[ordinal].pop()
        made = self._driver.event()
        self._events.setdefault(ordinal, []).append(made)
        return made

    def close(self) -> None:
        """Release streams and events."""
        for ordinal, stream in self._streams.items():
            self._driver.use(self._contexts[ordinal])
            self._driver.destroy_stream(stream)
            for event in self._events.get(ordinal, ()):
                self._driver.destroy_event(event)
        self._streams.clear()
        self._events.clear()


def _tensor_of(capsule: object) -> _DlTensor:
    """The tensor that a capsule describes; the capsule stays the owner of the memory."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return _DlTensor.from_address(get(capsule, b"dltensor"))


def _count(tensor: _DlTensor) -> int:
    return math.prod(tensor.shape[i] for i in range(tensor.dimensions))


def _is_in_order(tensor: _DlTensor) -> bool:
    """Whether the elements are contiguous, with the last dimension varying fastest."""
    if not tensor.strides:
        return True
    wanted = 1
    for i in reversed(range(tensor.dimensions)):
        if tensor.shape[i] != 1 and tensor.strides[i] != wanted:
            return False
        wanted *= tensor.shape[i]
    return True


def _type_name(tensor: _DlTensor) -> str:
    """NumPy's name of the type; empty if NumPy has no such type."""
    kind = _KINDS.get(tensor.code)
    if kind is None or tensor.lanes != 1:
        return ""
    return kind if kind == "bool" else f"{kind}{tensor.bits}"
