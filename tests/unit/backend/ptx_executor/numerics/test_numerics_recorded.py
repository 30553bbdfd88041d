"""`numerics` against results recorded on an H200 (driver 580, `tests/gpu/record_numerics.py`)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

from tessera.backend.ptx_executor.numerics import matrix, quiet
from tessera.backend.ptx_executor.numerics.matrix import wgmma
from tests.helpers import mma_cases, wgmma_cases
from tests.helpers.numerics_cases import all_cases
from tests.helpers.packed_arrays import load_arrays

RECORDED = Path(__file__).parents[4] / "data" / "h200" / "numerics.npz"

# ptxas emulates these old instructions, and differs from the PTX ISA, which is followed here:
# saturation of a negative result to a signed byte, and the maximum of two large unsigned values.
KNOWN_DIFFERENCES = {"vadd.merge", "vsub.merge", "vmin.merge", "vadd.max", "vsub.max"}
# The hardware's sine of tiny angles is zero, within its absolute error.
ABSOLUTE = ("sin", "cos")
FAMILIES = ("add sub mul fma", "div rcp sqrt rsqrt ex2 lg2 sin cos tanh", "min max abs neg", "cvt")


@pytest.fixture(autouse=True)
def _quiet():
    with quiet():
        yield


@lru_cache(maxsize=1)
def recorded():
    return load_arrays(RECORDED)


def family(name):
    head = name.split(".")[0]
    return next((words for words in FAMILIES if head in words.split()), "integer and video")


def floats(t, raw):
    if t == "f16":
        return raw.view(np.float16).astype(np.float64)
    if t == "bf16":
        return (raw.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return raw.view(np.float32 if t == "f32" else np.float64).astype(np.float64)


def approximates(case, got, expected):
    """Special values equal, all others within the bound (or a unit of a subnormal result)."""
    x, y = floats(case.result, got), floats(case.result, expected)
    special = ~np.isfinite(y)
    if not np.array_equal(got[special], expected[special]):
        return False
    error = np.abs(x - y)[~special]
    if case.name.startswith(ABSOLUTE):
        return bool((error <= case.bound).all())
    unit = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-148, "f64": 0.0}[case.result]
    near_one = 2.0**-22 if case.name.startswith("lg2") else 0.0
    return bool((error <= np.maximum(case.bound * np.abs(y[~special]), unit + near_one)).all())


@pytest.mark.parametrize("group", [*FAMILIES, "integer and video"])
def test_instructions(group):
    data, wrong = recorded(), set()
    for case in all_cases():
        if family(case.name) != group:
            continue
        operands = [data[f"in/{kind}/{at}"] for at, kind in enumerate(case.operands)]
        expected = data[f"op/{case.name}"]
        got = case.function(*operands).astype(expected.dtype)
        right = (
            np.array_equal(got, expected)
            if case.bound is None
            else approximates(case, got, expected)
        )
        if not right:
            wrong.add(case.name)
    assert wrong == {name for name in KNOWN_DIFFERENCES if family(name) == group}


@pytest.mark.parametrize("case", mma_cases.cases(), ids=lambda case: case.name)
def test_mma(case):
    data = recorded()
    op = case.suffix.split(".")[1] if case.suffix else None
    types = (case.shape, case.dt, case.at, case.bt, case.ct)
    for spread in (0, 2, 6, *mma_cases.FLAVOURS):
        arrays = {
            key: data[f"mma/{case.name}~{spread}/{key}"]
            for key in ("a", "b", "c", "d", *(["m"] if case.selector is not None else []))
        }
        operands = [list(arrays[key]) for key in "abc"]
        if case.selector is None:
            alayout, blayout = case.layouts
            d = matrix.mma(*types, *operands, alayout=alayout, blayout=blayout, op=op)
        else:
            meta = arrays["m"][0]
            d = matrix.mma_sp(*types, *operands, meta, selector=case.selector)
        if case.shape == "m8n8k4" and case.dt == "f16":
            # An emulated instruction whose order of additions is not known: a last bit may differ.
            found, expected = (np.asarray(x).view(np.uint16).astype(int) for x in (d, arrays["d"]))
            assert np.abs(found - expected).max() <= 1
            continue
        assert np.array_equal(np.stack(d), arrays["d"]), (case.name, spread)


@pytest.mark.parametrize("case", wgmma_cases.cases(), ids=lambda case: case.name)
def test_wgmma(case):
    data = {key: recorded()[f"wgmma/{case.name}/{key}"] for key in ("image", "a", "c", "d")}
    base = int(data["d"][-1, 0])

    def operand(rows, start):
        chunks = data["image"][case.addresses(base, rows, start)]
        return wgmma.elements(case.t, chunks, rows, case.k, mn_major=case.mn_major)

    a = list(data["a"]) if case.from_registers else operand(64, 0)
    b = operand(case.n, wgmma_cases.START_B)
    d = wgmma.mma(f"m64n{case.n}k{case.k}", case.dt, case.t, case.t, list(data["c"]), a, b)
    assert np.array_equal(np.stack(d), data["d"][:-1])
