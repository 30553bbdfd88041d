"""Arguments of the library that people mix up: refused with a code, before anything is touched.

In: what a caller passed. Out: the same in the type that the rest of the backend expects.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.backend.ptx_executor.simt.faults import refuse
from tessera.diagnostics import TesseraError
from tessera.ir.ptx import syntax as ptx


def wrong(what: str, value: object, wanted: str, hint: str | None = None) -> TesseraError:
    """A refusal that says what was given in place of what."""
    return refuse("TSR5024", f"{what} must be {wanted}: {_short(value)}", hint=hint)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def whole_number(what: str, value: SupportsIndex, least: int, most: int = 2**63 - 1) -> int:
    """A Python or NumPy integer in a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(what, value, "a whole number") from None
    if not least <= number <= most:
        raise wrong(what, value, f"from {least} to {most}")
    return number


def lengths_of(shape: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The shape of an array, from one length or a sequence of them."""
    try:
        if isinstance(shape, SupportsIndex):
            return (operator.index(shape),)
    except TypeError:
        pass
    try:
        if isinstance(shape, Iterable):
            return tuple(operator.index(length) for length in shape)
    except TypeError:
        pass
    raise wrong("the shape of an array", shape, "a whole number or a tuple of them")


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
    """Anything that NumPy makes an array of plain data of."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as reason:
        raise wrong("an array", values, f"what NumPy takes ({reason})") from None
    element_type(array.dtype)
    return array


def module_like(module: object) -> ptx.Module:
    """A parsed module."""
    if isinstance(module, ptx.Module):
        return module
    hint = "`Device(parse=...)` takes the function that reads PTX text"
    raise wrong("what is loaded", module, "a module", hint if isinstance(module, str) else None)


def sequence(args: object) -> Sequence[object]:
    """The arguments of a launch."""
    if isinstance(args, list | tuple):
        return args
    raise wrong("the arguments of a launch", args, "a list or a tuple")
