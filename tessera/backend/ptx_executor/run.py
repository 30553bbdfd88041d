"""Run one trace on one virtual device: every launch, memset and memcpy, in file order.

In: a program, and the bytes of its buffers when the request starts. Out: the bytes of its
outputs and states after it, and the bytes that every launch touched. File order is one of the
orders that streams and events allow, so streams and events need no code here.

A module with several variants runs in the variant for the requested architecture, else in the
variant for the oldest architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from tessera.backend.address_words import plain_word
from tessera.backend.ptx_executor.device import Device, DeviceArray
from tessera.backend.ptx_executor.memory.memory import POISON, Array
from tessera.backend.ptx_executor.operators import run as operators
from tessera.backend.ptx_executor.simt.chunk import DEFAULT_STEPS
from tessera.backend.ptx_executor.simt.launch import LaunchResult
from tessera.backend.ptx_executor.steps import LoadedModules, StepExecutor
from tessera.ir.architecture import arch_number, sms_of
from tessera.ir.program import program as ir

_KEPT = (ir.Role.OUTPUT, ir.Role.STATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRecord:
    """A launch or library call that ran: its `LaunchId` in the trace, and its result."""

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
        """The text that the kernels printed."""
        return "".join(record.result.output for record in self.launches)


def run_program(
    program: ir.Program,
    contents: Mapping[str, Array],
    *,
    arch: str | None = None,
    max_steps: int = DEFAULT_STEPS,
    on_step: Callable[[int, int], None] | None = None,
) -> RunResult:
    """Run a trace; buffers that are not in `contents` start poisoned.

    `on_step` is called before each step, with its number and the number of steps, and at the end.
    """
    refuse_library_calls(program)
    machine = OneDevice(program, Device(), variant_choice(program, arch), max_steps)
    machine.fill(contents)
    report = on_step or (lambda done, total: None)
    for number, step in enumerate(program.steps):
        report(number, len(program.steps))
        machine.step(step)
    report(len(program.steps), len(program.steps))
    return RunResult(buffers=machine.kept(), launches=machine.launches)


def refuse_library_calls(program: ir.Program) -> None:
    """Refuse `op` records with operators or types that the CPU backend does not support."""
    for step in program.steps:
        if isinstance(step, ir.LibraryCall):
            operators.check(step)


class OneDevice:
    """A device with the buffers and modules of a program on it."""

    def __init__(
        self,
        program: ir.Program,
        device: Device,
        arch_of: Callable[[ir.Launch], str],
        max_steps: int = DEFAULT_STEPS,
    ) -> None:
        self.program = program
        self.device = device
        self.launches: list[LaunchRecord] = []
        self.modules = LoadedModules(device, program)
        arches = {step.id: arch_of(step) for step in program.launches()}
        for step in program.launches():
            self.modules.load(step.module, arches[step.id])
        for module in program.modules:
            if not self.modules.has(module.id):
                self.modules.load(module.id, oldest(module).arch)
        self.buffers: list[DeviceArray] = [self._place(buffer) for buffer in program.buffers]
        self.steps = StepExecutor(
            device,
            lambda buffer: self.buffers[buffer].address,
            lambda step: self.modules.load(step.module, arches[step.id]),
            max_steps,
        )

    def _place(self, buffer: ir.Buffer) -> DeviceArray:
        if buffer.role is ir.Role.VARIABLE:
            variable = self.modules.variable(buffer)
            if variable is not None:
                return variable
        return self.device.empty(buffer.bytes, np.uint8, buffer.name)

    def poison(self, content_of: Callable[[ir.Buffer], Array] | None = None) -> None:
        """Fill all buffers except module variables with poison, or with `content_of`."""
        for buffer, array in zip(self.program.buffers, self.buffers, strict=True):
            if buffer.role is not ir.Role.VARIABLE:
                array.view()[:] = POISON if content_of is None else content_of(buffer)

    def fill(
        self, contents: Mapping[str, Array], moved: Mapping[str, Set[int]] = MappingProxyType({})
    ) -> None:
        """Write the initial contents, then the device addresses of `pointers` records.

        `moved` holds words of states, by name and offset, that an earlier request has overwritten.
        """
        for buffer, array in zip(self.program.buffers, self.buffers, strict=True):
            given = contents.get(buffer.name)
            if given is not None:
                raw = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
                array.view().reshape(-1)[:] = raw
                self.device.mark_written(array.address, array.nbytes)
        for table in self.program.pointer_tables:
            carried = moved.get(self.program.buffers[table.buffer].name, ())
            words = tuple(word for word in table.words if word.offset not in carried)
            self.steps.write_pointers(replace(table, words=words))

    def moved_words(self) -> dict[str, frozenset[int]]:
        """The words of `pointers` records in states that have been overwritten."""
        states = (
            table
            for table in self.program.pointer_tables
            if self.program.buffers[table.buffer].role is ir.Role.STATE
        )
        moved: dict[str, frozenset[int]] = {}
        for table in states:
            raw = self.buffers[table.buffer].numpy().tobytes()
            name = self.program.buffers[table.buffer].name
            moved[name] = moved.get(name, frozenset()) | {
                word.offset
                for word in table.words
                if int.from_bytes(raw[word.offset : word.offset + ir.POINTER_BYTES], "little")
                != self.steps.address(word.target)
            }
        return moved

    def kept(self) -> dict[str, Array]:
        """The bytes of outputs and states, by buffer name."""
        return {
            buffer.name: self.buffers[buffer.id].numpy().reshape(-1).view(np.uint8)
            for buffer in self.program.buffers
            if buffer.role in _KEPT
        }

    def plain_words(self) -> dict[str, dict[int, bytes]]:
        """The words of `pointers` records by buffer and offset, as `address_words` gives them."""
        buffers = self.program.buffers
        homes = [(b.name, self.buffers[b.id].address, (0, b.bytes)) for b in buffers]
        plain: dict[str, dict[int, bytes]] = {}
        for table in self.program.pointer_tables:
            raw = self.buffers[table.buffer].numpy().tobytes()
            words = plain.setdefault(buffers[table.buffer].name, {})
            for word in table.words:
                held = raw[word.offset : word.offset + ir.POINTER_BYTES]
                words[word.offset] = plain_word(held, self.steps.address(word.target), homes)
        return plain

    def step(self, step: ir.Step) -> LaunchResult | None:
        """Run one record."""
        result = self.steps.do(step)
        if result is not None and isinstance(step, ir.Launch | ir.LibraryCall):
            name = step.kernel if isinstance(step, ir.Launch) else step.operator
            self.launches.append(LaunchRecord(id=int(step.id), kernel=name, result=result))
        return result


def variant_choice(program: ir.Program, arch: str | None) -> Callable[[ir.Launch], str]:
    """A function that picks the variant for `arch`, else that for the oldest architecture."""

    def choose(step: ir.Launch) -> str:
        module = program.modules[step.module]
        return ((module.variant(arch) if arch else None) or oldest(module)).arch

    return choose


def oldest(module: ir.ProgramModule) -> ir.ModuleVariant:
    """The variant for the oldest architecture, which is the most portable."""

    def age(variant: ir.ModuleVariant) -> tuple[int, bool, int]:
        arch = variant.arch.partition(":")[0]
        return arch_number(arch), arch.endswith("a"), sms_of(variant.arch)

    return min(module.variants, key=age)
