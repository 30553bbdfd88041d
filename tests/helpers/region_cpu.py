"""The CPU backend as a machine for `region_check`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tessera.backend.ptx_executor.device import Device
from tessera.backend.ptx_executor.memory.access_log import BufferAccess
from tessera.frontend.ptx.read_ptx import parse_module
from tests.helpers.region_check import Bytes, Work


class CpuMachine:
    """Buffers on one CPU device; module variables are left to the modules.

    `accesses` is the log of the last launch.
    """

    def __init__(self, work: Work, device: Device, max_steps: int = 200_000) -> None:
        self.work = work
        self.max_steps = max_steps
        self.accesses: tuple[BufferAccess, ...] = ()
        self.modules = [device.load(parse_module(text)) for text in work.texts]
        self.arrays = [
            device.array(np.zeros(max(size, 1), np.uint8), name) for name, size in work.buffers
        ]

    def write(self, memory: Sequence[Bytes], *, places: bool = True) -> None:
        """Fill all buffers."""
        for array, content in zip(self.arrays, memory, strict=True):
            array.view().reshape(-1).view(np.uint8)[: content.size] = content
        for buffer, at, target, offset in self.work.pointers if places else ():
            word = np.array([self.address(target, offset)], np.uint64).view(np.uint8)
            self.arrays[buffer].view().reshape(-1).view(np.uint8)[at : at + 8] = word

    def read(self) -> list[Bytes]:
        """The bytes of all buffers."""
        return [
            array.view().reshape(-1).view(np.uint8)[:size].copy()
            for array, (_, size) in zip(self.arrays, self.work.buffers, strict=True)
        ]

    def run(self, step: Mapping[str, Any]) -> None:
        """Run one step."""
        if step["kind"] == "launch":
            self._launch(step)
            return
        buffer, offset = step["target"]
        target = self.arrays[buffer].view().reshape(-1).view(np.uint8)
        if step["kind"] == "memset":
            element = np.frombuffer(bytes.fromhex(step["element"]), np.uint8)
            filled = np.resize(element, step["bytes"])
        else:
            source, start = step["source"]
            filled = self.arrays[source].view().reshape(-1).view(np.uint8)
            filled = filled[start : start + step["bytes"]].copy()
        target[offset : offset + step["bytes"]] = filled

    def address(self, buffer: int, offset: int) -> int:
        """The address of a byte of a buffer."""
        return self.arrays[buffer].address + offset

    def _launch(self, step: Mapping[str, Any]) -> None:
        arguments = []
        for argument in step["args"]:
            raw = bytearray.fromhex(argument["bytes"])
            for at, buffer, offset in argument["addresses"]:
                raw[at : at + 8] = self.address(buffer, offset).to_bytes(8, "little")
            arguments.append(bytes(raw))
        kernel = self.modules[step["text"]][step["kernel"]]
        self.accesses = kernel.launch(
            tuple(step["grid"]),
            tuple(step["block"]),
            arguments,
            shared=step["smem"],
            max_steps=self.max_steps,
        ).accesses
