"""Arrays in the memory of the stand-in GPU that speak DLPack, as other libraries hand them over."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from tessera.backend.cuda.device_arrays import _DlTensor
from tests.helpers.fake_cuda import FakeCuda

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}


class GpuArray:
    """A copy of an array on a GPU; its owner has work under way that writes it.

    The bytes arrive only when the owner's stream gets there: who does not wait reads poison.
    """

    def __init__(
        self, fake: FakeCuda, content: np.ndarray, *, gpu: int = 0, strides: Any = None
    ) -> None:
        self.fake, self.gpu, self.content = fake, gpu, content
        self.strides = strides
        fake.cuCtxSetCurrent(fake.contexts[gpu])
        self.address = fake.cuMemAlloc(content.nbytes)[1]
        fake.view(self.address, content.nbytes)[:] = 0xEE
        self.stream = fake.cuStreamCreateWithPriority(0, 0)[1]
        raw = np.ascontiguousarray(content).view(np.uint8).reshape(-1).copy()

        def arrive() -> None:
            fake.view(self.address, raw.nbytes)[:] = raw

        fake._enqueue(self.stream, "arrive", arrive)
        self.streams_told: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.gpu

    def __dlpack__(self, *, stream: int) -> Any:
        """As the standard says: the stream of the consumer waits for that of the owner."""
        self.streams_told.append(stream)
        consumer = ctypes.cast(stream, ctypes.py_object).value
        event = self.fake.cuEventCreate(2)[1]
        self.fake.cuEventRecord(event, self.stream)
        self.fake.cuStreamWaitEvent(consumer, event, 0)
        dimensions = self.content.ndim
        self._shape = (ctypes.c_int64 * dimensions)(*self.content.shape)
        strides = self.strides
        self._strides = None if strides is None else (ctypes.c_int64 * dimensions)(*strides)
        self._tensor = _DlTensor(
            self.address,
            2,
            self.gpu,
            dimensions,
            _CODES[self.content.dtype.kind],
            8 * self.content.dtype.itemsize,
            1,
            self._shape,
            self._strides,
            0,
        )
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return make(ctypes.addressof(self._tensor), b"dltensor", None)
