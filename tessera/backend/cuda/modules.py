"""Modules on a device: loaded once per device and text, with kernels and variables by name.

In: the code that a device needs. Out: handles of kernels and addresses of variables. PTX that is
newer than the driver is refused before it is passed to the driver. If the driver's compiler refuses
a module, its message is reported at the corresponding line of the trace.

Source: PTX ISA, release notes (versions of PTX and CUDA).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import prod

from tessera.backend.cuda.api import Driver, DriverError, Handle
from tessera.backend.cuda.faults import explain, missing
from tessera.backend.cuda.targets import OpenDevice
from tessera.backend.service import Model
from tessera.diagnostics import Span, TesseraError, error
from tessera.ir.plan.launch_program import Run
from tessera.ir.program.program import Launch, ModuleVariant, Program, ProgramModule, Work

# The first CUDA version that accepts each PTX version.
PTX_VERSIONS = (
    ((9, 1), 13010),
    ((9, 0), 13000),
    ((8, 8), 12090),
    ((8, 7), 12080),
    ((8, 6), 12070),
    ((8, 5), 12050),
    ((8, 4), 12040),
    ((8, 3), 12030),
    ((8, 2), 12020),
    ((8, 1), 12010),
    ((8, 0), 12000),
    ((7, 8), 11080),
)
_LOG_LINE = re.compile(r"line (\d+)")
_STORED = ("global", "const")
_NO_CODE = ("CUDA_ERROR_NO_BINARY_FOR_GPU", "CUDA_ERROR_INVALID_SOURCE")


def highest_ptx(cuda: int) -> tuple[int, int]:
    """The newest PTX version that a driver of this CUDA version accepts, by `PTX_VERSIONS`."""
    return next((ptx for ptx, first in PTX_VERSIONS if cuda >= first), (7, 7))


class DeviceModules:
    """The modules of one device."""

    def __init__(self, driver: Driver, device: OpenDevice) -> None:
        self._driver = driver
        self._device = device
        self._loaded: dict[tuple[int, str, str], Handle] = {}
        self._kernels: dict[tuple[int, str, str, str], Handle] = {}
        self._shared: dict[tuple[int, str, str, str], int] = {}

    def load(self, trace: int, module: ProgramModule, arch: str) -> Handle:
        """The module in its variant for `arch`; traces share a module that has no variables."""
        variant = module.variant(arch)
        if variant is None:
            raise ValueError(f"module `{module.name}` has no variant `{arch}`")
        owner = trace if any(v.space in _STORED for v in variant.ptx.variables()) else -1
        key = owner, module.name, variant.text
        if key not in self._loaded:
            self._loaded[key] = self._load(module, variant)
        return self._loaded[key]

    def kernel(self, trace: int, module: ProgramModule, arch: str, launch: Launch) -> Handle:
        """The kernel of a launch, with the shared memory and cluster size of the launch allowed."""
        handle = self.load(trace, module, arch)
        key = trace, module.name, arch, launch.kernel
        if key not in self._kernels:
            self._kernels[key] = self._driver.function(handle, launch.kernel)
        function = self._kernels[key]
        if launch.shared_bytes > self._shared.get(key, 0):
            self._driver.allow_shared(function, launch.shared_bytes)
            self._shared[key] = launch.shared_bytes
        if launch.cluster is not None and prod(launch.cluster) > 8:
            self._driver.allow_large_clusters(function)
        return function

    def variable(self, trace: int, module: ProgramModule, arch: str, symbol: str) -> int:
        """The address of a module variable."""
        return self._driver.variable(self.load(trace, module, arch), symbol)

    def close(self) -> None:
        """Unload everything."""
        for handle in self._loaded.values():
            self._driver.unload(handle)
        self._loaded.clear()

    def _load(self, module: ProgramModule, variant: ModuleVariant) -> Handle:
        self._check_version(module, variant)
        try:
            return self._driver.load(variant.text.encode("utf-8", "surrogateescape"))
        except DriverError as problem:
            raise self._refused(module, variant, problem) from None

    def _check_version(self, module: ProgramModule, variant: ModuleVariant) -> None:
        cuda = self._driver.version()
        newest = highest_ptx(cuda)
        version = variant.ptx.version
        # The table does not say what a newer driver accepts, so the driver decides.
        if version <= newest or cuda > PTX_VERSIONS[0][1]:
            return
        raise missing(
            "TSR5104",
            f"module `{module.name}` is PTX {version[0]}.{version[1]}, newer than the driver reads",
            notes=(
                f"the driver is for CUDA {cuda // 1000}.{cuda % 1000 // 10}, which reads PTX up "
                f"to {newest[0]}.{newest[1]}",
            ),
            hint="update the driver, or compile the kernels with an older CUDA or Triton",
        )

    def _refused(
        self, module: ProgramModule, variant: ModuleVariant, problem: DriverError
    ) -> TesseraError:
        gpu = self._device.gpu
        notes = tuple(line.strip() for line in problem.log.splitlines() if line.strip())[:8]
        diagnostic = error(
            "TSR5104",
            f"the driver cannot load module `{module.name}` ({variant.arch}) on {gpu.name} "
            f"({gpu.arch})",
            _log_span(variant, problem.log),
            notes=(explain(problem), *notes),
            hint="plan for this GPU, or give the trace a variant that it can run"
            if problem.name in _NO_CODE
            else None,
        )
        return TesseraError(diagnostic, 4 if problem.name in _NO_CODE else 1)


def _log_span(variant: ModuleVariant, log: str) -> Span | None:
    """The line of the compiler's first message."""
    match = _LOG_LINE.search(log)
    source = variant.ptx.source
    if match is None or source is None:
        return variant.span
    lines = source.text.splitlines(keepends=True)
    number = min(max(int(match[1]) - 1, 0), max(len(lines) - 1, 0))
    start = sum(map(len, lines[:number]))
    text = lines[number].strip() if lines else ""
    return Span(source, start, start + len(text)) if text else variant.span


def steps_on(model: Model, device: str) -> Iterator[tuple[int, Work, str]]:
    """The steps that a device runs: trace, step and the architecture of its code."""
    for lowered in model.lowered.traces:
        served = model.traces[lowered.trace]
        work = tuple(served.program.work())
        for program in lowered.programs:
            if program.device != device:
                continue
            for queued in program.operations:
                if isinstance(queued.operation, Run):
                    step = queued.operation.step
                    yield lowered.trace, work[step], served.arches[step]


def module_of_variable(program: Program, name: str) -> tuple[ProgramModule, str]:
    """The module and the symbol of a buffer named `MODULE.symbol`."""
    for module in program.modules:
        if name.startswith(module.name + "."):
            symbol = name[len(module.name) + 1 :]
            if any(symbol == v.name for v in module.variants[0].ptx.variables()):
                return module, symbol
    prefix, _, symbol = name.rpartition(".")
    return next(module for module in program.modules if module.name == prefix), symbol
