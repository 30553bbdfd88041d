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

from collections import Counter
from dataclasses import replace
from itertools import pairwise

from tessera.diagnostics import TesseraError
from tessera.ir.plan.division import Cut, Division, StepPart, parts_of
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
from tessera.passes.division.cut_calls import call_axes, part_of_call

_AXES = "xyz"


def divide(program: Program, division: Division) -> Program:
    """The program with parts and twins in the place of the steps that are divided."""
    if not division:
        return program
    work = tuple(program.work())
    _check_steps(work, division)
    for cut in division.cuts:
        _check_cut(program, work, division, cut)
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


def work_name(work: Work) -> str:
    """What people call a step: its kernel or operator, or the kind of its record."""
    match work:
        case Launch():
            return work.kernel
        case LibraryCall():
            return work.operator
        case Memset():
            return "memset"
        case Memcpy():
            return "memcpy"


def _check_steps(work: tuple[Work, ...], division: Division) -> None:
    """Every step exists, and is divided in one way."""
    for step in (*(cut.step for cut in division.cuts), *(twin.step for twin in division.twins)):
        if not 0 <= step < len(work):
            headline = f"step #{step} cannot be divided: the trace has {len(work)} steps"
            raise TesseraError.of("TSR3029", headline, hint=f"steps are #0 to #{len(work) - 1}")
    cuts = Counter((cut.step, cut.arch) for cut in division.cuts)
    twins = Counter(twin.step for twin in division.twins)
    for (step, arch), count in cuts.items():
        if count > 1:
            raise _refused(work[step], "it is cut twice" + (f" for `{arch}`" if arch else ""))
        if arch and not cuts[step, ""]:
            raise _refused(work[step], f"it is cut for `{arch}` and not for the launch itself")
        if step in twins:
            raise _refused(work[step], "it is cut and has twins")
    for twin in division.twins:
        if twins[twin.step] > 1:
            raise _refused(work[twin.step], "it has twins twice")
        if twin.count < 2:
            raise _refused(work[twin.step], f"twins are at least 2 steps, not {twin.count}")


def _check_cut(program: Program, work: tuple[Work, ...], division: Division, cut: Cut) -> None:
    """The axis is one of the step's, and the edges go over its extent in legal strides."""
    step = work[cut.step]
    if cut.arch and not (isinstance(step, Launch) and _has_code(program, step, cut.arch)):
        raise _refused(step, f"there is no code for `{cut.arch}`")
    axes = _axes(step, cut.arch)
    if cut.axis not in axes:
        names = ", ".join(f"`{name}`" for name in axes)
        raise _refused(step, f"it has no axis `{cut.axis}`", names and f"its axes are {names}")
    extent, multiple = axes[cut.axis]
    _check_edges(step, cut, extent, multiple)
    first = next(other for other in division.cuts if other.step == cut.step and not other.arch)
    if cut.count != first.count:
        raise _refused(step, f"{cut.count} parts for `{cut.arch}`, and {first.count} otherwise")
    if cut is not first or not isinstance(step, Launch):
        return
    archs = {other.arch for other in division.cuts if other.step == cut.step}
    for variant in step.variants:
        if variant.arch not in archs and for_arch(step, variant.arch).grid != step.grid:
            raise _refused(step, f"the launch for `{variant.arch}` has another grid and no cut")


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
            return {found.axis: (found.extent, found.multiple) for found in call_axes(step)}


def _check_edges(step: Work, cut: Cut, extent: int, multiple: int) -> None:
    edges = cut.edges
    if len(edges) < 3:
        raise _refused(step, "a cut makes at least two parts")
    if edges[0] != 0 or edges[-1] != extent:
        reason = f"the parts go from {edges[0]} to {edges[-1]}, and `{cut.axis}` from 0 to {extent}"
        raise _refused(step, reason)
    for edge, after in pairwise(edges):
        if edge >= after:
            raise _refused(step, f"edge {after} of `{cut.axis}` comes after edge {edge}")
    for edge in edges[1:-1]:
        if edge % multiple:
            nearest = min(extent, (edge + multiple // 2) // multiple * multiple)
            reason = f"edge {edge} of `{cut.axis}` is not a multiple of {multiple}"
            hint = f"the nearest legal edge is {nearest}" if 0 < nearest < extent else None
            raise _refused(step, reason, hint)
