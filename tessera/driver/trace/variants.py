"""Code that is tuned for a number of SMs, as further variants of a trace's modules.

In: the program of a captured call, and that of the same call captured again with kernels tuned for
fewer SMs. Out: the first program, whose launches may also be made with the other code. Both must be
the same steps over the same buffers with the same arguments, for a plan chooses the code of every
step by itself; where they are not, nothing is taken, and it is said why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import count

from tessera.driver.trace.codes import agreeing
from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.program import program as ir


@dataclass(frozen=True, slots=True)
class Tuned:
    """A program with code for so many SMs beside its own; `problem` says why there is none."""

    program: ir.Program
    launches: int = 0
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _OtherCode:
    """The code that a launch may also be made with."""

    variant: ir.ModuleVariant
    launch: ir.LaunchVariant

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the code differs."""
        return self.launch == ir.LaunchVariant(arch=self.launch.arch)


def with_code_for(program: ir.Program, other: ir.Program, sms: int) -> Tuned:
    """The program with the code of `other` for so many SMs."""
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
    """Why two programs are not the same steps; empty if they are."""
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
    """The other code of a launch; None where it is the same, or has other parameters."""
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
    """The modules so far. One whose launches take different code becomes several."""

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
