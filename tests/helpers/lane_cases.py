"""Values by hand: intervals, numbers that grow with a digit, and what they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from tessera.ir.ptx import syntax as ptx
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.digits import Digit, Split
from tessera.passes.lane_values.lanes import (
    NUMBER,
    U64,
    Lanes,
    scalar,
    sloped,
)

DIGIT = Digit(0, 1, 5)


def opcode(text: str) -> ptx.Opcode:
    name, *modifiers = text.split(".")
    return ptx.Opcode(name, tuple(modifiers))


def open_(low: int, span: int) -> Lanes:
    return Lanes(scalar(low).low(), scalar(span).low(), 7)


def grown(start: int, slope: int, bits: int = 32, digit: Digit = DIGIT) -> Lanes:
    return sloped(scalar(start, bits), {digit: np.array([[slope]], dtype=U64)}, bits)


def row(*numbers: int, kind: Any = U64) -> np.ndarray:
    return np.array([numbers], dtype=kind)


def parts(value: Lanes) -> tuple[int, int]:
    """The least number, and the unknown part."""
    return value.start.item(), lanes.spans(value).item()


def splits(compute: Any) -> Split | None:
    try:
        compute()
    except Split as split:
        return split
    return None


def apart_by(count: int, kind: int = NUMBER) -> list[Lanes]:
    """Numbers too far from each other for one object."""
    return [lanes.of_kind(scalar((place + 1) << 44), kind) for place in range(count)]
