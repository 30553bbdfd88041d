"""Run one trace on one virtual device: every launch, memset and memcpy, in file order.

In: a program, and the bytes of its buffers when the request starts. Out: the bytes of its
outputs and states after it, and what every launch touched. File order is one of the orders
that streams and events allow, so they need no more than that.

A module that exists for several architectures runs in the variant that is asked for, else in
the one for the oldest architecture.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from tessera.backend.cpu.device import Device, DeviceArray, LoadedModule, Place
from tessera.backend.cpu.faults import refuse
from tessera.backend.cpu.launch import DEFAULT_STEPS, LaunchResult
from tessera.backend.cpu.memory import Array
from tessera.ir import program as ir

_KEPT = (ir.Role.OUTPUT, ir.Role.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """One launch that ran: its number among the work of the trace, and its result."""

    id: int
    kernel: str
    result: LaunchResult


@dataclass(slots=True, kw_only=True)
class RunResult:
    """Bytes of outputs and states by buffer name, and the launches in order."""

    buffers: dict[str, Array]
    launches: list[LaunchRecord]

    @property
    def output(self) -> str:
        """What the kernels printed."""
        return "".join(record.result.output for record in self.launches)


def run_program(
    program: ir.Program,
    contents: Mapping[str, Array],
    *,
    device: Device | None = None,
    arch: str | None = None,
    max_steps: int = DEFAULT_STEPS,
    on_step: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Run a trace; buffers that `contents` does not name start out poisoned.

    `on_step` is called before each step with its number and the number of steps, and at the end.
    """
    refuse_library_calls(program)
    machine = _Machine(program, device or Device(), arch, max_steps)
    machine.fill(contents)
    report = on_step or (lambda done, total: None)
    for number, step in enumerate(program.steps):
        report(number, len(program.steps))
        machine.step(step)
    report(len(program.steps), len(program.steps))
    return RunResult(buffers=machine.kept(), launches=machine.launches)


def refuse_library_calls(program: ir.Program) -> None:
    """`op` records name operators that the CPU backend does not have."""
    for step in program.steps:
        if isinstance(step, ir.LibraryCall):
            raise refuse(
                "TSR5022",
                f"the CPU backend cannot run the operator `{step.operator}`",
                step.span,
                notes=("`op` records are not supported yet; launches, memset and memcpy are",),
            )


class _Machine:
    """A device with the buffers and modules of a program on it."""

    def __init__(
        self, program: ir.Program, device: Device, arch: str | None, max_steps: int
    ) -> None:
        self.program = program
        self.device = device
        self.max_steps = max_steps
        self.launches: list[LaunchRecord] = []
        self.modules = [self._load(module, arch) for module in program.modules]
        self.buffers: list[DeviceArray] = [self._place(buffer) for buffer in program.buffers]

    def _load(self, module: ir.Module, arch: str | None) -> tuple[LoadedModule, str]:
        variant = (module.variant(arch) if arch else None) or oldest(module)
        loaded = LoadedModule(self.device, variant.ptx, prefix=f"{module.name}.")
        return loaded, variant.arch

    def _place(self, buffer: ir.Buffer) -> DeviceArray:
        if buffer.role is ir.Role.VARIABLE:
            name, _, symbol = buffer.name.rpartition(".")
            for module, (loaded, _) in zip(self.program.modules, self.modules, strict=True):
                if module.name == name and symbol in loaded.variables:
                    return loaded.variables[symbol]
        return self.device.empty(buffer.bytes, np.uint8, buffer.name)

    def fill(self, contents: Mapping[str, Array]) -> None:
        """Write the initial contents, then the device addresses of `pointers` records."""
        for buffer, array in zip(self.program.buffers, self.buffers, strict=True):
            given = contents.get(buffer.name)
            if given is not None:
                raw = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
                array.view().reshape(-1)[:] = raw
                self.device.mark_written(array.address, array.nbytes)
        for table in self.program.pointer_tables:
            view = self.buffers[table.buffer].view().reshape(-1)
            for word in table.words:
                view[word.offset : word.offset + 8] = _word(self.address(word.target))

    def address(self, pointer: ir.Pointer) -> int:
        """Where a pointer of the trace points on this device."""
        return self.buffers[pointer.buffer].address + pointer.offset

    def kept(self) -> dict[str, Array]:
        """The bytes that outlive the request."""
        return {
            buffer.name: self.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in self.program.buffers
            if buffer.role in _KEPT
        }

    def step(self, step: ir.Step) -> None:
        """Do one record."""
        match step:
            case ir.Launch():
                self._launch(step)
            case ir.Memset():
                self._memset(step)
            case ir.Memcpy():
                self._bytes(step.target, step.bytes)[:] = self._bytes(step.source, step.bytes)
                self.device.mark_written(self.address(step.target), step.bytes)
            case ir.LibraryCall() | ir.Event() | ir.Wait():
                pass
            case _:
                assert_never(step)

    def _bytes(self, pointer: ir.Pointer, count: int) -> Array:
        view = self.buffers[pointer.buffer].view().reshape(-1)
        return view[pointer.offset : pointer.offset + count]

    def _memset(self, step: ir.Memset) -> None:
        pattern = step.value.to_bytes(step.element_bytes, "little")
        view = self._bytes(step.target, step.bytes).reshape(-1, step.element_bytes)
        view[:] = np.frombuffer(pattern, dtype=np.uint8)
        self.device.mark_written(self.address(step.target), step.bytes)

    def _launch(self, step: ir.Launch) -> None:
        loaded, arch = self.modules[step.module]
        launch = ir.for_arch(step, arch)
        result = loaded[launch.kernel].launch(
            launch.grid,
            launch.block,
            [self._argument(a) for a in launch.arguments],
            shared=launch.shared_bytes,
            cluster=launch.cluster,
            max_steps=self.max_steps,
        )
        record = LaunchRecord(id=int(step.id), kernel=step.kernel, result=result)
        self.launches.append(record)

    def _argument(self, argument: ir.Argument) -> Any:
        match argument:
            case ir.Pointer():
                return Place(self.address(argument))
            case ir.Scalar():
                return argument.bits.to_bytes(argument.type.bytes, "little")
            case ir.ByValue():
                content = bytearray(argument.content)
                for word in argument.pointers:
                    content[word.offset : word.offset + 8] = _word(
                        self.address(word.target)
                    ).tobytes()
                return bytes(content)
            case _:
                assert_never(argument)


def oldest(module: ir.Module) -> ir.ModuleVariant:
    """The variant for the oldest architecture, which is the most portable one."""

    def age(variant: ir.ModuleVariant) -> tuple[int, bool]:
        found = re.match(r"sm_(\d+)", variant.arch)
        return (int(found.group(1)) if found else 0, variant.arch.endswith("a"))

    return min(module.variants, key=age)


def _word(address: int) -> Array:
    return np.frombuffer(address.to_bytes(8, "little"), dtype=np.uint8)
