"""Capture a call again with kernels that are tuned for slices of the GPU.

In: a captured call and its program, the slices (`h200:84sm,h200:48sm`), and what captures the call
once more. Out: the program with the code for each slice beside its own (`variants`), and findings.

Every slice is a green context, and everything that is compiled anew is measured there. What was
measured is kept as it comes. A slice that does not work out costs its own code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.driver.card_names import is_card
from tessera.driver.trace.build import draft_program, reread
from tessera.driver.trace.variants import with_code_for
from tessera.frontend.machine.gpus import parse_gpus
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, StageProgress

if TYPE_CHECKING:
    from tessera.backend.cuda.api import Driver
    from tessera.frontend.capture.session import Call
    from tessera.frontend.capture.tuning import TunedSlice

_DEVICE = "tuned"
CaptureOn = Callable[["TunedSlice"], "Call"]


@dataclass(frozen=True, slots=True)
class TunedTrace:
    """A program with code for slices, and what there is to say of them."""

    program: Program
    findings: tuple[Diagnostic, ...] = ()


def slices_of(text: str) -> tuple[int, ...]:
    """The SMs of each slice that is named, each once; the whole GPU is tuned for anyway."""
    if not text:
        return ()
    entries = parse_gpus(text)
    if len({entry.gpu.key for entry in entries}) > 1:
        raise _bad(text, "code is tuned on one GPU, the one that the model runs on")
    named = (entry.sms for entry in entries if entry.sms != entry.gpu.sms)
    return tuple(dict.fromkeys(sms for sms in named if sms is not None))


def _bad(text: str, why: str) -> TesseraError:
    hint = "such as `--tune h200,h200:84sm,h200:48sm`"
    return TesseraError.of("TSR6007", f"`--tune {text}`: {why}", hint=hint)


def check_card(text: str, driver: Driver | None = None) -> None:
    """Raise unless the GPU that is named is the one that PyTorch uses."""
    from tessera.backend.cuda.targets import open_driver

    if not text:
        return
    here = open_driver(driver).gpus()[_ordinal()]
    gpu = parse_gpus(text)[0].gpu
    if not is_card(gpu, here):
        raise _bad(text, f"the model is on a {here.name} ({here.sms} SMs)")


def tuned_for_slices(
    program: Program, call: Call, text: str, again: CaptureOn, tell: OnProgress
) -> TunedTrace:
    """The program with code for every slice."""
    from tessera.frontend.capture.same_results import differing

    findings: list[Diagnostic] = []
    for sms in slices_of(text):
        tell(StageProgress("tuning", note=f"for {sms} SMs"))
        try:
            with opened_slice(sms) as part:
                other = again(part)
                draft = draft_program(other.raw, other.read)
                tuned = with_code_for(program, draft.program, sms)
                problem = tuned.problem
                if tuned.launches and (name := differing(call, other, draft.written)):
                    problem = f"`{name}` holds something else then"
        except TesseraError as refused:
            findings.append(_not_tuned(sms, str(refused.diagnostics[0].headline)))
            continue
        if problem:
            findings.append(_not_tuned(sms, problem))
        else:
            program = reread(tuned.program)
    return TunedTrace(program, tuple(findings))


def _not_tuned(sms: int, problem: str) -> Diagnostic:
    return warning(
        "TSR6006",
        f"there is no code for {sms} SMs: {problem}",
        hint="devices with so many SMs run the code for the whole GPU",
    )


@contextmanager
def opened_slice(sms: int, driver: Driver | None = None) -> Iterator[TunedSlice]:
    """So many SMs of the GPU that PyTorch uses."""
    import torch

    from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
    from tessera.frontend.capture.tuning import TunedSlice

    driver = open_driver(driver)
    (device,) = open_devices(driver, [_DEVICE], {_DEVICE: f"cuda:{_ordinal()}:{sms}sm"})
    stream = driver.stream(0, device.green)
    try:
        yield TunedSlice(torch.cuda.ExternalStream(int(stream)), sms)
    finally:
        torch.cuda.synchronize()
        driver.destroy_stream(stream)
        close_devices(driver, [device])


def _ordinal() -> int:
    import torch

    return int(torch.cuda.current_device())
