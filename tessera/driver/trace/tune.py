"""Captures a call again with kernels that are tuned for slices of the GPU.

In: a captured call and its program, the slices (`h200:84sm,h200:48sm`), and a function that
captures the call again. Out: the program with the code for each slice beside its own, and findings.

Every slice is a green context, in which newly compiled code is measured. Measurements are kept as
they are made. A slice that fails loses only its own code.

The code of a slice is a further variant of the modules of the program (`with_code_for`). Both
captures must have the same steps over the same buffers with the same arguments, because a plan
chooses the code of each step separately; otherwise no code is taken, and the reason is reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from tessera.diagnostics import Diagnostic, TesseraError, warning
from tessera.driver.card_names import is_card
from tessera.driver.trace.build import draft_program, reread
from tessera.driver.trace.codes import agreeing
from tessera.frontend.machine.gpus import parse_gpus
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir
from tessera.ir.program.program import Program
from tessera.ir.progress import OnProgress, StageProgress

if TYPE_CHECKING:
    from tessera.frontend.capture.graphs.tuning import TunedSlice
    from tessera.frontend.capture.session import Call

_DEVICE = "tuned"
CaptureOn = Callable[["TunedSlice"], "Call"]


@dataclass(frozen=True, slots=True)
class TunedTrace:
    """A program with code for slices, and findings about them."""

    program: Program
    findings: tuple[Diagnostic, ...] = ()


def slices_of(text: str) -> tuple[int, ...]:
    """The SMs of each named slice, each once; code for the whole GPU is always tuned."""
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


def check_card(text: str) -> None:
    """Raise unless the named GPU is the one that PyTorch uses."""
    from tessera.backend.cuda.targets import open_driver

    if not text:
        return
    here = open_driver().gpus()[_ordinal()]
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
def opened_slice(sms: int) -> Iterator[TunedSlice]:
    """A slice of `sms` SMs of the GPU that PyTorch uses."""
    import torch

    from tessera.backend.cuda.targets import close_devices, open_devices, open_driver
    from tessera.frontend.capture.graphs.tuning import TunedSlice

    driver = open_driver()
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


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program with code for a number of SMs beside its own; `problem` is the reason if there is
    none."""

    program: ir.Program
    launches: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _OtherCode:
    """Alternative code for a launch."""

    variant: ir.ModuleVariant
    launch: ir.LaunchVariant

    @property
    def is_plain(self) -> bool:
        """Whether only the code differs."""
        return self.launch == ir.LaunchVariant(arch=self.launch.arch)


def with_code_for(program: ir.Program, other: ir.Program, sms: int) -> Tuned:
    """The program with the code of `other` for `sms` SMs."""
    if problem := _apart(program, other):
        return Tuned(program, problem=problem)
    modules = _TunedModules(program)
    steps: list[ir.Step] = []
    launches = 0
    for step, second in zip(program.steps, other.steps, strict=True):
        if isinstance(step, ir.Launch) and isinstance(second, ir.Launch):
            code = _code(program, other, step, second, sms)
            launches += code is not None
            steps.append(modules.with_code(step, code))
        else:
            steps.append(step)
    made = replace(program, modules=tuple(modules.made), steps=tuple(steps))
    return Tuned(made, launches)


def _apart(program: ir.Program, other: ir.Program) -> str:
    """The reason why two programs do not have the same steps; empty if they do."""
    buffers = [[(b.name, b.bytes, b.dtype) for b in one.buffers] for one in (program, other)]
    if buffers[0] != buffers[1]:
        different = [pair for pair in zip(*buffers, strict=False) if pair[0] != pair[1]]
        name = different[0][0][0] if different else "some"
        return f"the call has other buffers (`{name}`)"
    if len(program.steps) != len(other.steps):
        return f"the call has {len(other.steps)} steps, and not {len(program.steps)}"
    for number, (step, second) in enumerate(zip(program.steps, other.steps, strict=True)):
        if isinstance(step, ir.Launch) and isinstance(second, ir.Launch):
            ours, theirs = ((s.arguments, s.stream, s.cooperative) for s in (step, second))
            if ours != theirs:
                return f"step {number} (`{step.kernel}`) has other arguments"
        elif step != second:
            return f"step {number} is another one"
    return ""


def _code(
    program: ir.Program, other: ir.Program, step: ir.Launch, second: ir.Launch, sms: int
) -> _OtherCode | None:
    """The other code of a launch; None if it is the same, or has other parameters."""
    own = program.modules[step.module].variants[0]
    text = other.modules[second.module].variants[0].text
    if second.kernel != step.kernel:
        text = re.sub(rf"(?<![\w$]){re.escape(second.kernel)}(?![\w$])", step.kernel, text)
    arch = f"{own.arch}:{sms}sm"
    sizes = ir.LaunchVariant(
        arch=arch,
        grid=second.grid if second.grid != step.grid else None,
        block=second.block if second.block != step.block else None,
        cluster=(second.cluster or (1, 1, 1)) if second.cluster != step.cluster else None,
        shared_bytes=second.shared_bytes if second.shared_bytes != step.shared_bytes else None,
    )
    variant = ir.ModuleVariant(arch=arch, text=text, ptx=parse_module(text, step.kernel))
    code = _OtherCode(variant, sizes)
    if (text == own.text and code.is_plain) or other.modules[second.module].variants[
        0
    ].arch != own.arch:
        return None
    has_variables = any(v.space in ("global", "const") for v in own.ptx.variables())
    if has_variables or len(agreeing((own, variant))) < 2:
        return None
    return code


class _TunedModules:
    """The modules so far. A module whose launches take different code becomes several."""

    def __init__(self, program: ir.Program) -> None:
        self._originals = program.modules
        self.made = list(program.modules)
        self._of: dict[tuple[ir.ModuleId, str | None], ir.ModuleId] = {}

    def with_code(self, step: ir.Launch, code: _OtherCode | None) -> ir.Launch:
        """A launch with other code beside its own."""
        key = step.module, None if code is None else code.variant.text
        if key not in self._of:
            self._of[key] = self._module(step.module, code)
        more = () if code is None or code.is_plain else (code.launch,)
        return replace(step, module=self._of[key], variants=(*step.variants, *more))

    def _module(self, number: ir.ModuleId, code: _OtherCode | None) -> ir.ModuleId:
        original = self._originals[number]
        variants = original.variants if code is None else (*original.variants, code.variant)
        if all(known != number for known, _ in self._of):
            self.made[number] = replace(original, variants=variants)
            return number
        names = {module.name for module in self.made}
        name = next(name for n in count(len(names)) if (name := f"m{n}") not in names)
        added = ir.ModuleId(len(self.made))
        self.made.append(ir.ProgramModule(added, name, variants))
        return added
