"""Ranges and known bits of registers, against the values that launches compute."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import HealthCheck, given, settings

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.passes.dependences.launch_scene import build_setting
from tessera.passes.footprint.machine import SliceMachine
from tessera.passes.footprint.pieces import boxes
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step, prepare_kernel
from tessera.passes.kernel_facts.value_ranges import Place, RangedValue, ValueRanges
from tessera.passes.lane_values.lanes import Lanes
from tessera.passes.lane_values.masks import Mask
from tests.property.kernel_strategies import Kernel, kernels
from tests.property.test_soundness_generated import program_of


class Watched(SliceMachine):
    """A run in which every exact value is held against what is known of it."""

    known: dict[Place, RangedValue]
    checked = 0

    def write(self, step: Step, name: str, value: Lanes, mask: Mask) -> None:
        found = self.known.get((step.index, name))
        width = self.code.widths.get(name, 64)
        assert found is not None, (step.index, name)
        if value.span is None and width > 1:
            here = np.broadcast_arrays(value.low(), mask.strong)
            for number in np.unique(here[0][here[1]]):
                self._check(found, int(number), width, f"{step.instruction.opcode} {name}")
        super().write(step, name, value, mask)

    def _check(self, found: RangedValue, number: int, width: int, where: str) -> None:
        bounds = found.bounds(width)
        if bounds is not None:
            assert (number - bounds[0]) % (1 << width) <= bounds[1] - bounds[0], where
        assert number & found.bits.mask == found.bits.value, where
        self.checked += 1


def watch(code: KernelCode, kernel: Kernel) -> int:
    program = program_of(kernel)
    setting = build_setting(next(program.launches()), code.function, {}, {})
    (box,) = boxes(kernel.grid, math.prod(kernel.grid))
    machine = Watched(code, setting.scene, box, Recorder(setting.scene.zones), 10**10)
    machine.known = ValueRanges(code).run()
    machine.start()
    return machine.checked


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels())
def test_values_are_in_their_ranges(kernel: Kernel) -> None:
    module = parse_module(kernel.text)
    code = prepare_kernel(module, next(module.kernels()))
    assert watch(code, kernel) > 0
