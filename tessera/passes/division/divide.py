"""The divided program: every cut step replaced by its parts, every twin step by its copies.

In: a program and a `Division`. Out: a program whose steps each run on one device, in the order of
the trace: `ir.plan.division.parts_of` says which step comes from where. A part of a launch has the
code and the arguments of the whole, and a range of its CTAs (`Launch.ctas`), also for each
architecture whose launch has a grid of its own; a part of a library call has ranges of its
operands, and a part of a memset or memcpy fewer bytes.

A division that means nothing for its program gets one error. Whether a cut keeps the results as
they are is not asked here.
"""

from __future__ import annotations

from dataclasses import replace

from tessera.diagnostics import TesseraError
from tessera.ir.plan.division import Cut, Division, StepPart, division_flaws, parts_of
from tessera.ir.program.program import (
    CtaRange,
    Launch,
    LaunchId,
    LaunchVariant,
    LibraryCall,
    Memcpy,
    Memset,
    Pointer,
    Program,
    Step,
    Triple,
    Work,
    for_arch,
)
from tessera.ir.program.step_names import work_name
from tessera.passes.division.cut_calls import call_axes, part_of_call, why_not_axis

_AXES = "xyz"


def divide(program: Program, division: Division) -> Program:
    """The program with parts and twins in the place of the steps that are divided."""
    if not division:
        return program
    work = tuple(program.work())
    _check(program, work, division)
    parts = parts_of(len(work), division)
    groups: list[list[StepPart]] = [[] for _ in work]
    for part in parts:
        groups[part.origin].append(part)
    steps: list[Step] = []
    for step in program.steps:
        match step:
            case Launch() | Memset() | Memcpy() | LibraryCall():
                steps += [_part(step, part) for part in groups[step.id]]
            case _:
                steps.append(step)
    twins = (tuple(LaunchId(part.step) for part in mine) for mine in groups if mine[0].is_twin)
    return replace(program, steps=tuple(steps), twins=tuple(twins), whole=program)


def _part(work: Work, part: StepPart) -> Work:
    mine = LaunchId(part.step)
    bounds = part.range_on()
    if bounds is None:
        return replace(work, id=mine)
    axis, first, end, _ = bounds
    match work:
        case Launch():
            own = dict.fromkeys(v.arch for v in work.variants if v.grid is not None)
            own |= dict.fromkeys(cut.arch for cut in part.cuts if cut.arch)
            known = {variant.arch: variant for variant in work.variants}
            known |= {arch: _part_variant(work, known.get(arch), arch, part) for arch in own}
            grid, ctas = _range(work.grid, part, "")
            return replace(work, id=mine, grid=grid, ctas=ctas, variants=tuple(known.values()))
        case Memset():
            return replace(work, id=mine, target=_after(work.target, first), bytes=end - first)
        case Memcpy():
            target, source = _after(work.target, first), _after(work.source, first)
            return replace(work, id=mine, target=target, source=source, bytes=end - first)
        case LibraryCall():
            return replace(part_of_call(work, axis, first, end), id=mine)


def _part_variant(
    launch: Launch, variant: LaunchVariant | None, arch: str, part: StepPart
) -> LaunchVariant:
    grid, ctas = _range(for_arch(launch, arch).grid, part, arch)
    return replace(variant or LaunchVariant(arch=arch), grid=grid, ctas=ctas)


def _range(grid: Triple, part: StepPart, arch: str) -> tuple[Triple, CtaRange]:
    bounds = part.range_on(arch)
    assert bounds is not None
    name, first, end, extent = bounds
    axis = _AXES.index(name)
    x, y, z = (end - first if at == axis else size for at, size in enumerate(grid))
    return (x, y, z), CtaRange(axis, first, extent)


def _after(pointer: Pointer, count: int) -> Pointer:
    return replace(pointer, offset=pointer.offset + count)


# --- divisions that mean nothing -----------------------------------------------------------


def _refused(work: Work, reason: str, hint: str | None = None) -> TesseraError:
    headline = f"step #{work.id} `{work_name(work)}` cannot be divided so: {reason}"
    return TesseraError.of("TSR3029", headline, work.span, hint=hint)


def _check(program: Program, work: tuple[Work, ...], division: Division) -> None:
    for record, reason in division_flaws(division, len(work)):
        if 0 <= record.step < len(work):
            raise _refused(work[record.step], reason)
        raise TesseraError.of("TSR3029", f"step #{record.step} cannot be divided: {reason}")
    archs: dict[int, set[str]] = {}
    for cut in division.cuts:
        _check_cut(program, work[cut.step], cut)
        archs.setdefault(cut.step, set()).add(cut.arch)
    for number, own in archs.items():
        if isinstance(step := work[number], Launch):
            _check_variants(step, own)


def _check_variants(launch: Launch, archs: set[str]) -> None:
    """Where the grid is another one, so is the cut."""
    for variant in launch.variants:
        if variant.arch not in archs and for_arch(launch, variant.arch).grid != launch.grid:
            raise _refused(launch, f"the launch for `{variant.arch}` has another grid and no cut")


def _check_cut(program: Program, step: Work, cut: Cut) -> None:
    """The axis is one of the step's, and the edges go over its extent in legal strides."""
    if cut.arch and not (isinstance(step, Launch) and _has_code(program, step, cut.arch)):
        raise _refused(step, f"there is no code for `{cut.arch}`")
    axes = _axes(step, cut.arch)
    if cut.axis not in axes:
        names = ", ".join(f"`{name}`" for name in axes)
        refused = why_not_axis(step, cut.axis) if isinstance(step, LibraryCall) else None
        missing = f"it has no axis `{cut.axis}`" if refused is None else f"{refused}"
        raise _refused(step, missing, f"its axes are {names}" if names else None)
    extent, multiple = axes[cut.axis]
    if cut.edges[-1] != extent:
        raise _refused(step, f"its parts go to {cut.edges[-1]}, and `{cut.axis}` to {extent}")
    for edge in cut.edges[1:-1]:
        if edge % multiple:
            nearest = min(extent, (edge + multiple // 2) // multiple * multiple)
            reason = f"edge {edge} of `{cut.axis}` is not a multiple of {multiple}"
            hint = f"the nearest legal edge is {nearest}" if 0 < nearest < extent else None
            raise _refused(step, reason, hint)


def _has_code(program: Program, step: Launch, arch: str) -> bool:
    return program.modules[step.module].variant(arch) is not None


def _axes(step: Work, arch: str) -> dict[str, tuple[int, int]]:
    """The extent of each axis of a step, and what an edge must be a multiple of."""
    match step:
        case Launch():
            launch = for_arch(step, arch)
            sizes = zip(launch.grid, launch.cluster or (1, 1, 1), strict=True)
            return dict(zip(_AXES, sizes, strict=True))
        case Memset():
            return {"bytes": (step.bytes, step.element_bytes)}
        case Memcpy():
            return {"bytes": (step.bytes, 1)}
        case LibraryCall():
            return {known.axis: (known.extent, known.multiple) for known in call_axes(step)}
