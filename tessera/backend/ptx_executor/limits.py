"""Checks of arguments: their types, and the launch sizes that GPUs allow.

In: the arguments of a caller. Out: the same values in the types that the backend expects, or an
error before anything changes.

Source: CUDA programming guide, compute capabilities; PTX ISA 9.0, section 11.4 (directives).
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from math import prod
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.compiled import KernelProgram
from tessera.diagnostics import TesseraError
from tessera.ir.architecture import (
    CLUSTERS_FROM,
    LIMITS,
    NEWER,
    STATIC_SHARED_BYTES,
    THREADS_PER_CTA,
    arch_number,
)
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value

Size = tuple[int, int, int]

_GRID = (2**31 - 1, 65535, 65535)
_BLOCK = (1024, 1024, 64)
_CLUSTER = 16


# --- types ---------------------------------------------------------------------------------


def wrong(what: str, value: object, wanted: str, hint: str | None = None) -> TesseraError:
    """The error for an argument: the value given and the value wanted."""
    text = repr(value)
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return TesseraError.of("TSR5024", f"{what} must be {wanted}: {shown}", hint=hint)


def whole_number(what: str, value: SupportsIndex, least: int, most: int = 2**63 - 1) -> int:
    """A Python or NumPy integer in a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(what, value, "a whole number") from None
    if not least <= number <= most:
        raise wrong(what, value, f"from {least} to {most}")
    return number


def _whole_numbers(value: Any) -> tuple[int, ...] | None:
    """One Python or NumPy integer, or a sequence of them, as a tuple; None for anything else."""
    try:
        return (operator.index(value),)
    except TypeError:
        pass
    try:
        return tuple(operator.index(v) for v in value)
    except TypeError:
        return None


def lengths_of(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an array, from one length or a sequence of lengths."""
    lengths = _whole_numbers(shape)
    if lengths is None:
        raise wrong("the shape of an array", shape, "a whole number or a tuple of them")
    return lengths


def element_type(dtype: DTypeLike) -> np.dtype[np.generic]:
    """A NumPy type whose elements are plain bytes."""
    try:
        kind: np.dtype[np.generic] = np.dtype(dtype)
    except TypeError:
        raise wrong("the type of an array", dtype, "one of NumPy's") from None
    if kind.hasobject:
        raise wrong("the type of an array", dtype, "plain data, not Python objects")
    return kind


def plain_array(values: ArrayLike) -> Array:
    """The array of plain data that NumPy makes of a value."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as reason:
        raise wrong("an array", values, f"what NumPy takes ({reason})") from None
    element_type(array.dtype)
    return array


def module_like(module: object) -> ptx.Module:
    """The argument, checked to be a parsed module."""
    if isinstance(module, ptx.Module):
        return module
    hint = "`Device(parse=...)` takes the function that reads PTX text"
    raise wrong("what is loaded", module, "a module", hint if isinstance(module, str) else None)


def sequence(args: object) -> Sequence[object]:
    """The arguments of a launch, checked to be a sequence."""
    if isinstance(args, list | tuple):
        return args
    raise wrong("the arguments of a launch", args, "a list or a tuple")


# --- sizes of launches ---------------------------------------------------------------------


def as_size(value: int | tuple[int, ...], what: str) -> Size:
    """A size with one to three axes."""
    given = _whole_numbers(value)
    if given is None:
        raise TesseraError.of(
            "TSR5008", f"{what} must be a whole number or a tuple of them: {value!r}"
        )
    if not 1 <= len(given) <= 3 or any(v < 1 for v in given):
        raise TesseraError.of("TSR5008", f"{what} must have 1 to 3 positive sizes: {given}")
    return (*given, *(1,) * (3 - len(given)))  # type: ignore[return-value]


def check_sizes(program: KernelProgram, grid: Size, block: Size) -> None:
    """Refuse grids and blocks that exceed the limits of PTX or of the kernel."""
    name = program.kernel.name
    for what, size, limits in (("grid", grid, _GRID), ("block", block, _BLOCK)):
        for axis, value, limit in zip("xyz", size, limits, strict=True):
            if value > limit:
                raise TesseraError.of(
                    "TSR5008", f"{what}.{axis} of `{name}` is beyond the limit of {limit}: {value}"
                )
    threads = prod(block)
    if threads > THREADS_PER_CTA:
        most = THREADS_PER_CTA
        raise TesseraError.of(
            "TSR5008", f"block of `{name}` has more than {most} threads: {threads}"
        )
    for directive in program.kernel.directives:
        values = _integers(directive)
        if directive.name == "maxntid" and values and threads > prod(values):
            most = prod(values)
            raise TesseraError.of(
                "TSR5008", f"block of `{name}` has {threads} threads, `.maxntid` allows {most}"
            )
        if directive.name == "reqntid" and values:
            asked = (*values, 1, 1)[:3]
            if tuple(asked) != block:
                raise TesseraError.of("TSR5008", f"block of `{name}` must be {asked}: {block}")


def cluster_of(program: KernelProgram, grid: Size, cluster: Size | None) -> Size:
    """The cluster size of a launch: the kernel's own, or the requested size."""
    own = next(
        (_integers(d) for d in program.kernel.directives if d.name == "reqnctapercluster"), None
    )
    if own:
        _check_target(program)
        asked = (*own, 1, 1)[:3]
        cluster = cluster or (asked[0], asked[1], asked[2])
    if cluster is None:
        return (1, 1, 1)
    size = prod(cluster)
    name = program.kernel.name
    if size > _CLUSTER:
        raise TesseraError.of(
            "TSR5008", f"cluster of `{name}` has more than {_CLUSTER} CTAs: {size}"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise TesseraError.of(
            "TSR5008", f"grid {grid} of `{name}` is no multiple of its cluster {cluster}"
        )
    return cluster


def _check_target(program: KernelProgram) -> None:
    """Clusters that the code itself asks for; a launch may ask for them with older code."""
    number = _target_number(program.module.target)
    if 0 < number < CLUSTERS_FROM:
        raise TesseraError.of(
            "TSR5008",
            f"`{program.kernel.name}` requires clusters: {program.module.target[0]} has none",
            hint=f"they exist from sm_{CLUSTERS_FROM} on",
        )


def check_shared(program: KernelProgram, dynamic: int) -> None:
    """Refuse more shared memory than the kernel's target has."""
    if _whole_numbers(dynamic) is None:
        raise TesseraError.of(
            "TSR5008", f"dynamic shared memory must be a whole number: {dynamic!r}"
        )
    limit = shared_limit(program.module.target)
    total = program.shared_static + dynamic
    name = program.kernel.name
    if program.shared_static > STATIC_SHARED_BYTES:
        raise TesseraError.of(
            "TSR5008",
            f"`{name}` declares {program.shared_static} bytes of static shared memory: "
            f"{STATIC_SHARED_BYTES} at most",
            hint="more than that has to be dynamic: `.extern .shared` and the launch's `shared`",
        )
    if dynamic < 0:
        raise TesseraError.of("TSR5008", f"dynamic shared memory cannot be negative: {dynamic}")
    if total > limit:
        raise TesseraError.of(
            "TSR5008",
            f"`{name}` needs {total} bytes of shared memory: {limit} exist",
            notes=(f"{program.shared_static} static and {dynamic} dynamic bytes",),
        )


def shared_limit(target: tuple[str, ...]) -> int:
    """The shared memory that a block may use on a target, in bytes."""
    # Code for older GPUs than those of the table is compiled for the GPU that there is.
    limits = LIMITS.get(_target_number(target), NEWER)
    return max(limits.cta_shared_bytes, STATIC_SHARED_BYTES)


def _target_number(target: tuple[str, ...]) -> int:
    return arch_number(target[0]) if target else 0


def _integers(directive: ptx.Directive) -> list[int]:
    values = (integer_value(v) for v in directive.values if not isinstance(v, str))
    return [v for v in values if v is not None]
