"""The analysis against the log of the CPU backend, over generated kernels and launches."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings

from tessera.backend.ptx_executor.device import Device
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.program.data_type import DataType
from tessera.passes.base import AnalysisManager
from tessera.passes.byte_sets import intervals
from tessera.passes.dependences.access_regions import AccessRegions
from tessera.passes.dependences.launch_report import StepAccesses
from tests.helpers.access_oracle import Log, compare
from tests.property.kernel_strategies import WORDS, Kernel, kernels
from tests.property.shared_strategies import warps_apart

SIZES = {"out": 4 * WORDS + 256, "data": 4 * WORDS, "wide": 512}


def program_of(kernel: Kernel) -> ir.Program:
    module = parse_module(kernel.text, "k.ptx")
    buffers = [
        ir.Buffer(id=ir.BufferId(i), name=name, bytes=size, role=ir.Role.STATE)
        for i, (name, size) in enumerate(SIZES.items())
    ]
    launch = ir.Launch(
        id=ir.LaunchId(0),
        module=ir.ModuleId(0),
        kernel="k",
        grid=kernel.grid,
        block=kernel.block,
        arguments=(
            ir.Pointer(ir.BufferId(0), kernel.offset),
            ir.Pointer(ir.BufferId(1)),
            ir.Pointer(ir.BufferId(2)),
            *(ir.Scalar(DataType.U32, value) for value in kernel.scalars),
        ),
    )
    variant = ir.ModuleVariant(arch="sm_80", text=kernel.text, ptx=module)
    return ir.Program(
        buffers=tuple(buffers),
        modules=(ir.ProgramModule(ir.ModuleId(0), "m", (variant,)),),
        steps=(launch,),
    )


def log_of(program: ir.Program, kernel: Kernel, contents: str) -> Log:
    rng = np.random.default_rng(7)
    with Device() as device:
        module = device.load(program.modules[0].variants[0].ptx)
        arrays = {}
        for name, size in SIZES.items():
            values = {
                "zeros": np.zeros(size, np.uint8),
                "ones": np.full(size, 0xFF, np.uint8),
                "random": rng.integers(0, 256, size).astype(np.uint8),
                "small": rng.integers(0, 9, size // 4).astype(np.uint32).view(np.uint8),
            }[contents]
            arrays[name] = device.array(values, name)
        arguments = [arrays["out"].at(kernel.offset), arrays["data"], arrays["wide"]]
        scalars = [np.uint32(value) for value in kernel.scalars]
        launched = module["k"].launch(kernel.grid, kernel.block, [*arguments, *scalars])
        return launched.accesses


@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=3 * settings.default.max_examples,
)
@given(kernels())
def test_logged_bytes_are_in_the_regions(kernel: Kernel) -> None:
    program = program_of(kernel)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    assert not step.pins
    for contents in ("zeros", "ones", "random", "small"):
        check_log(program, step, log_of(program, kernel, contents), contents)


@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    max_examples=2 * settings.default.max_examples,
)
@given(kernels(through_shared=True))
def test_addresses_through_shared_memory_stay_in_the_regions(kernel: Kernel) -> None:
    program = program_of(kernel)
    (step,) = AnalysisManager(program).get(AccessRegions).steps
    for contents in ("zeros", "ones", "random", "small"):
        check_log(program, step, log_of(program, kernel, contents), contents)
    for second in (0, 1):
        other = replace(kernel, text=warps_apart(kernel.text, second))
        check_log(program, step, log_of(program_of(other), other, "random"), f"order {second}")


def check_log(program: ir.Program, step: StepAccesses, log: Log, contents: str) -> None:
    for found in compare(program, step, log):
        where = f"{contents}, buffer {found.buffer.name}"
        assert intervals.covers(found.may_read, found.read), where
        assert intervals.covers(found.may_write, found.written), where
        assert intervals.covers(found.written, found.must_write), where
