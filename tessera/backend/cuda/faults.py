"""Driver errors in words: the meaning of a CUDA error name, and the diagnostic for it."""

from __future__ import annotations

from tessera.backend.cuda.api import DriverError
from tessera.backend.service import ServiceFault
from tessera.diagnostics import ExitCode, Span, TesseraError, error
from tessera.ir.program.program import LaunchId

# Kernel faults: they destroy the context.
KERNEL_FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": "a kernel accessed an address outside every allocation",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "a kernel ran into a trap or an illegal instruction",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "a kernel accessed an address that is not aligned",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": "a kernel accessed an address of the wrong memory",
    "CUDA_ERROR_INVALID_PC": "a kernel jumped to an address without code",
    "CUDA_ERROR_HARDWARE_STACK_ERROR": "the call stack of a kernel is broken or too small",
    "CUDA_ERROR_LAUNCH_FAILED": "a kernel failed",
    "CUDA_ERROR_LAUNCH_TIMEOUT": "a kernel ran longer than the system allows",
    "CUDA_ERROR_ASSERT": "an assertion of a kernel failed",
    "CUDA_ERROR_TENSOR_MEMORY_LEAK": "a kernel ended without giving its tensor memory back",
    "CUDA_ERROR_CONTAINED": "a kernel failed with an error of the memory hardware",
}

_OTHERS = {
    "CUDA_ERROR_OUT_OF_MEMORY": "the GPU has no memory left",
    "CUDA_ERROR_NO_DEVICE": "there is no CUDA GPU",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "the GPU's memory has an error that it cannot correct",
    "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE": "not all blocks of a cooperative launch fit the "
    "device at once",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a block needs more registers or shared memory than "
    "there are",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "a cluster is larger than the device allows",
    "CUDA_ERROR_INVALID_VALUE": "an argument is not allowed",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "driver and libraries are of different versions",
}


def explain(problem: DriverError) -> str:
    """The text `CUDA_ERROR_X: MEANING`."""
    words = KERNEL_FAULTS.get(problem.name) or _OTHERS.get(problem.name)
    return f"{problem.call}: {problem.name}" + (f", {words}" if words else "")


def run_fault(
    problem: DriverError,
    *,
    device: str | None = None,
    request: int | None = None,
    step: LaunchId | None = None,
    name: str = "",
    span: Span | None = None,
    notes: tuple[str, ...] = (),
) -> ServiceFault:
    """The fault of a run that a GPU or driver error ended."""
    if problem.name in KERNEL_FAULTS:
        diagnostic = error(
            "TSR5106",
            KERNEL_FAULTS[problem.name],
            span,
            "launched here" if span else "",
            notes=(f"the driver reports {problem.name}", *notes),
            hint="the CPU backend names the PTX line: run the plan with `--backend cpu`",
        )
    else:
        diagnostic = error(
            "TSR5107", f"the CUDA driver failed: {explain(problem)}", span, notes=notes
        )
    return ServiceFault(diagnostic, device=device, request=request, step=step, name=name)


def start_failed(problem: DriverError, what: str) -> TesseraError:
    """The error of a part that could not be set up."""
    if problem.name == "CUDA_ERROR_OUT_OF_MEMORY":
        diagnostic = error(
            "TSR5102",
            f"the GPU has too little memory for {what}",
            hint="end other programs on the GPU, or plan with less memory (`--memory`) or slots",
        )
        return TesseraError(diagnostic, ExitCode.FAULT)
    diagnostic = error("TSR5107", f"the CUDA driver failed for {what}: {explain(problem)}")
    return TesseraError(diagnostic, ExitCode.FAULT)


def missing(code: str, headline: str, *, notes: tuple[str, ...] = (), hint: str) -> TesseraError:
    """The error of missing hardware, or a missing driver or package."""
    return TesseraError(error(code, headline, notes=notes, hint=hint), ExitCode.NO_DEVICE)
