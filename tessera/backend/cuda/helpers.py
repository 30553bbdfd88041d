"""Kernels of the backend itself, loaded once per GPU: links, many ranges, time stamps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tessera.backend.cuda.api import Driver, Handle
from tessera.backend.cuda.targets import OpenDevice

_PTX = Path(__file__).with_name("helpers.ptx")


class Helpers:
    """The kernels of `helpers.ptx`; all their parameters are 64-bit words."""

    def __init__(self, driver: Driver, devices: Mapping[str, OpenDevice]) -> None:
        self.driver = driver
        self.devices = devices
        self._modules: dict[int, Handle] = {}
        self._functions: dict[tuple[int, str], Handle] = {}

    def function(self, device: str, kernel: str) -> Handle:
        """A kernel on the GPU of a device."""
        gpu = self.devices[device].gpu.ordinal
        if (gpu, kernel) not in self._functions:
            self.driver.use(self.devices[device].context)
            if gpu not in self._modules:
                self._modules[gpu] = self.driver.load(_PTX.read_bytes())
            self._functions[gpu, kernel] = self.driver.function(self._modules[gpu], kernel)
        return self._functions[gpu, kernel]

    def close(self) -> None:
        """Unload the modules."""
        for device in self.devices.values():
            module = self._modules.pop(device.gpu.ordinal, None)
            if module is not None:
                self.driver.use(device.context)
                self.driver.unload(module)
        self._functions.clear()
