"""The clock and the power of a GPU while something runs, by NVML.

In: nothing. Out: medians of samples. Without NVML there are none, and nothing is said of the clock.

Source: NVML API, nvmlDeviceGetClockInfo and nvmlDeviceGetPowerUsage.
"""

from __future__ import annotations

import ctypes
import statistics
import threading
from types import TracebackType

EVERY_S = 0.01
_SM_CLOCK = 1


class ClockWatch:
    """Samples while it is entered: `mhz` and `watts` are medians afterwards, None without NVML."""

    def __init__(self, ordinal: int = 0) -> None:
        self.mhz: float | None = None
        self.watts: float | None = None
        self._samples: list[tuple[int, int]] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        try:
            self._nvml = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return
        self._device = ctypes.c_void_p()
        found = self._nvml.nvmlInit_v2() or self._nvml.nvmlDeviceGetHandleByIndex_v2(
            ordinal, ctypes.byref(self._device)
        )
        if found == 0:
            self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> ClockWatch:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        if self._samples:
            # Work begins and ends within the samples: the middle half is in the steady state.
            quarter = len(self._samples) // 4
            kept = self._samples[quarter : len(self._samples) - quarter]
            self.mhz = statistics.median(clock for clock, _ in kept)
            self.watts = statistics.median(power for _, power in kept) / 1e3

    def _sample(self) -> None:
        clock, power = ctypes.c_uint(), ctypes.c_uint()
        while not self._over.wait(EVERY_S):
            one = self._nvml.nvmlDeviceGetClockInfo(self._device, _SM_CLOCK, ctypes.byref(clock))
            other = self._nvml.nvmlDeviceGetPowerUsage(self._device, ctypes.byref(power))
            if one == 0 and other == 0:
                self._samples.append((clock.value, power.value))
