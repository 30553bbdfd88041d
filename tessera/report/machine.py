"""What `tessc gpus` and `tessc doctor` show: GPUs that can be named, and those that are here."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator

from tessera.backend.cuda.doctor import Checkup
from tessera.frontend.machine.gpu_table import aliases_of
from tessera.ir.plan.machine import Gpu
from tessera.ir.version import __version__
from tessera.report.table import Column, Fit, table

_GPUS = (
    Column("name"),
    Column("also", Fit.WRAP),
    Column("arch"),
    Column("SMs"),
    Column("MHz"),
    Column("GB"),
    Column("GB/s"),
    Column("fp16 TF/s"),
    Column("$/hour", Fit.WRAP),
)
_CHECKUP = (Column(least=7), Column(fit=Fit.WRAP))


def gpus_text(gpus: Iterable[Gpu], width: int | None = None) -> str:
    """A table of GPUs, for a terminal of that width or for a file."""
    return "\n".join(table(_GPUS, map(_gpu_row, gpus), width, indent=0)) + "\n"


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    half, price = gpu.flops("fp16"), gpu.usd_per_hour
    return (
        gpu.key,
        ", ".join(aliases_of(gpu.key)),
        gpu.arch,
        str(gpu.sms),
        f"{gpu.clock_mhz:.0f}",
        f"{gpu.memory_bytes / 1e9:.0f}",
        f"{gpu.memory_bandwidth / 1e9:.0f}",
        "-" if half is None else f"{half / 1e12:.0f}",
        "-" if price is None else f"{price:.2f} {gpu.price_source}",
    )


def doctor_text(checkup: Checkup, width: int | None = None) -> str:
    """What this machine has to run plans with."""
    return "\n".join(table(_CHECKUP, _checkup_rows(checkup), width, indent=0)) + "\n"


def _checkup_rows(checkup: Checkup) -> Iterator[tuple[str, str]]:
    if checkup.cuda is not None:
        number = f" {checkup.driver}" if checkup.driver else ""
        yield "driver", f"NVIDIA{number}, CUDA {cuda_version(checkup.cuda)}"
    if checkup.newest_ptx is not None:
        yield "PTX", "up to {}.{}".format(*checkup.newest_ptx)
    for gpu in checkup.gpus:
        facts = gpu.facts
        free = f"{_gib(gpu.free_bytes)} of {_gib(facts.memory_bytes)} GiB free"
        yield f"cuda:{facts.ordinal}", f"{facts.name}, {facts.arch}, {facts.sms} SMs, {free}"
        if len(checkup.gpus) > 1:
            others = ", ".join(f"cuda:{peer}" for peer in gpu.peers)
            yield "", f"reaches the memory of {others or 'no other GPU'}"
    if not checkup.gpus:
        yield "no GPU", checkup.problem
        yield "", "plans run on the CPU backend: `tessc run plan.tsp --backend cpu`"
    yield "Python", f"{platform.python_version()}, Tessera {__version__}"
    for extra in checkup.extras:
        here = ", ".join(f"{name} {installed}" for name, installed in extra.packages if installed)
        if extra.missing:
            lacks = ", ".join(extra.missing)
            yield f"[{extra.name}]", f"not installed ({lacks}): needed to {extra.purpose}"
        else:
            yield f"[{extra.name}]", f"{here}: can {extra.purpose}"


def cuda_version(number: int) -> str:
    """A version number of the driver as people write it: 12040 is 12.4."""
    return f"{number // 1000}.{number % 1000 // 10}"


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f}"
