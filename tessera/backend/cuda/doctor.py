"""Checks a machine for the CUDA backend: GPUs, driver, supported PTX versions, packages.

In: nothing. Out: a `Checkup`. Never raises: missing parts are listed in the result. The newest PTX
version is found by loading a module with one empty kernel in one version after the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tessera.backend.cuda.api import Driver, DriverError, GpuFacts
from tessera.backend.cuda.faults import explain
from tessera.backend.cuda.targets import open_driver
from tessera.diagnostics import TesseraError, in_one_line
from tessera.ir.extras import Extra, installed_extras, installed_version

_TRIED = tuple(
    (major, minor) for major, newest in ((9, 9), (8, 9), (7, 9)) for minor in range(newest, -1, -1)
)
_BEHIND = ("cuda-bindings", "cuda-core")
_KERNEL = ".version {}.{}\n.target sm_75\n.address_size 64\n.visible .entry k() {{ ret; }}\n"
_VERSION = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCheck:
    """A GPU, its free memory in bytes, and the other GPUs whose memory it reaches."""

    facts: GpuFacts
    free_bytes: int
    peers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """`cuda` is the driver's CUDA version (13000 is 13.0); if it is None, `problem` says why."""

    cuda: int | None
    driver: str
    problem: str
    newest_ptx: tuple[int, int] | None
    gpus: tuple[GpuCheck, ...]
    extras: tuple[Extra, ...]

    @property
    def packages(self) -> dict[str, str | None]:
        """The version of each package of the extras, and of those behind `cuda-python`."""
        every = {name: installed for extra in self.extras for name, installed in extra.packages}
        return {name: installed_version(name) for name in _BEHIND} | every


def check_machine(driver: Driver | None = None) -> Checkup:
    """Check everything."""
    extras = installed_extras()
    try:
        driver = open_driver(driver)
        gpus = tuple(_check_gpu(driver, gpu, driver.gpus()) for gpu in driver.gpus())
        newest = _newest_ptx(driver) if gpus else None
        return Checkup(
            cuda=driver.version(),
            driver=driver_version(),
            problem="" if gpus else "no GPU",
            newest_ptx=newest,
            gpus=gpus,
            extras=extras,
        )
    except TesseraError as failure:
        problem = in_one_line(failure.diagnostics[0])
    except DriverError as failure:
        problem = explain(failure)
    return Checkup(
        cuda=None,
        driver=driver_version(),
        problem=problem,
        newest_ptx=None,
        gpus=(),
        extras=extras,
    )


def _check_gpu(driver: Driver, gpu: GpuFacts, gpus: tuple[GpuFacts, ...]) -> GpuCheck:
    driver.use(driver.retain(gpu.ordinal))
    free = driver.free_memory()
    peers = tuple(
        other.ordinal
        for other in gpus
        if other.ordinal != gpu.ordinal and driver.peers(gpu.ordinal, other.ordinal)
    )
    driver.release(gpu.ordinal)
    return GpuCheck(facts=gpu, free_bytes=free, peers=peers)


def _newest_ptx(driver: Driver) -> tuple[int, int] | None:
    driver.use(driver.retain(0))
    try:
        for major, minor in _TRIED:
            try:
                driver.unload(driver.load(_KERNEL.format(major, minor).encode()))
            except DriverError:
                continue
            return major, minor
        return None
    finally:
        driver.release(0)


def driver_version() -> str:
    """The version of the driver as the operating system reports it; empty if it does not."""
    try:
        match = re.search(r"\d+\.\d+(?:\.\d+)?", _VERSION.read_text())
    except OSError:
        return ""
    return match[0] if match else ""
