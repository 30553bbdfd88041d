"""What a kernel case is: buffers, launches of one PTX module, and what must come out.

In: nothing. Out: the records that `cases/*.py` fill in, and the comparison of a result with its
expectation. A case is independent of the machine that runs it: `cpu.py` runs it on the CPU
backend, `gpu.py` on a GPU through the CUDA driver.

Arguments of a launch: a string `"x"` or `"x+16"` is the device address of a buffer, a NumPy
scalar is passed with its own type, and a `Struct` is passed by value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.kernels.formats import DECODE
from tests.kernels.rng import Rng

DATA = Path(__file__).resolve().parent.parent / "data" / "kernels"


@dataclass(frozen=True, slots=True)
class Struct:
    """A parameter passed by value; `pointers` maps byte offsets to buffer addresses."""

    data: bytes
    pointers: Mapping[int, str] = field(default_factory=dict)


Argument = str | np.generic | Struct
Shape = int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch. `smem` is dynamic shared memory in bytes."""

    kernel: str
    grid: Shape
    block: Shape
    args: Sequence[Argument]
    smem: int = 0
    cooperative: bool = False


@dataclass(frozen=True, slots=True)
class Expect:
    """What a buffer must hold: equal to the bit, or within tolerances; `format` as in DECODE."""

    value: NDArray
    rtol: float = 0.0
    atol: float = 0.0
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """A case with its inputs made: ready to run."""

    buffers: Mapping[str, NDArray]
    launches: Sequence[Launch]
    expect: Mapping[str, Expect | NDArray]
    pointers: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    printed: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A named case: one PTX file and a function from a generator to a `Run`.

    Its outputs do not depend on timing: float sums by atomics, for one, are of exact values.
    """

    name: str
    module: str
    build: Callable[[Rng], Run]

    @property
    def ptx(self) -> Path:
        """The PTX file."""
        return DATA / "ptx" / f"{self.module}.ptx"

    def make(self) -> Run:
        """The inputs, launches and expectations; the same on every call."""
        return self.build(Rng(self.name))


def dimensions(shape: Shape) -> tuple[int, int, int]:
    """Grid or block sizes filled up to three."""
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    x, y, z = (*sizes, 1, 1)[:3]
    return x, y, z


def address(text: str) -> tuple[str, int]:
    """`"x+16"` as a buffer name and a byte offset."""
    name, _, offset = text.partition("+")
    return name, int(offset or 0)


def difference(actual: NDArray, expect: Expect | NDArray) -> str | None:
    """None if the contents are as expected, else one line that shows the worst element."""
    if not isinstance(expect, Expect):
        expect = Expect(expect)
    if expect.rtol == 0 and expect.atol == 0:
        return _bit_difference(actual, expect.value)
    if expect.format is not None:
        actual = DECODE[expect.format](actual)
    got = actual.astype(np.float64).ravel()
    want = expect.value.astype(np.float64).ravel()
    if got.shape != want.shape:
        return f"{got.size} elements, expected {want.size}"
    bad = ~np.isclose(got, want, rtol=expect.rtol, atol=expect.atol, equal_nan=True)
    if not bad.any():
        return None
    with np.errstate(invalid="ignore"):
        gap = np.nan_to_num(np.abs(got - want), nan=np.inf) / (
            expect.atol + np.abs(want) * expect.rtol
        )
    worst = int(np.argmax(np.where(bad, gap, -1.0)))
    return (
        f"{int(bad.sum())} of {bad.size} elements differ; worst [{worst}]: "
        f"{got[worst]!r}, expected {want[worst]!r} (rtol {expect.rtol}, atol {expect.atol})"
    )


def _bit_difference(actual: NDArray, wanted: NDArray) -> str | None:
    got = np.ascontiguousarray(actual).ravel()
    want = np.ascontiguousarray(wanted).ravel()
    if got.dtype != want.dtype or got.size != want.size:
        return f"{got.size} x {got.dtype}, expected {want.size} x {want.dtype}"
    width = got.dtype.itemsize
    bad = (got.view(np.uint8).reshape(-1, width) != want.view(np.uint8).reshape(-1, width)).any(1)
    if not bad.any():
        return None
    first = int(np.argmax(bad))
    return (
        f"{int(bad.sum())} of {bad.size} elements differ; first [{first}]: "
        f"{got[first]!r}, expected {want[first]!r}"
    )
