"""One PTX instruction with the `numerics` call that should give the same bits.

`tests/gpu/record_numerics.py` runs the instructions on a GPU and stores what comes out;
`test_numerics_recorded.py` compares. A body reads `%a`, `%b`, `%c` and writes `%d`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True, slots=True)
class Case:
    """One instruction: operand kinds (see the recorder), result width, and our function.

    `bound` is None for results defined to the bit, else the relative error allowed.
    """

    name: str
    body: str
    operands: tuple[str, ...]
    width: int
    function: Callable[..., Any]
    bound: float | None = None
    result: str = ""


def widths(t: str) -> int:
    """Register width of a type."""
    return {"f16": 16, "bf16": 16, "f32": 32, "f64": 64}.get(t) or (
        64 if t == "f32x2" else 32 if t.endswith("x2") else max(int(t[1:]), 16)
    )


def simple_case(op: str, t: str, arity: int, function: Callable[..., Any], **extra: Any) -> Case:
    names = ", ".join(f"%{name}" for name in "abc"[:arity])
    return Case(op, f"{op} %d, {names};", (t,) * arity, widths(t), function, **extra)
