"""How far off the model's time of a library call may be, by family.

In: the call, its bytes, its time by the model, a GPU. Out: half the width of a bar, as a logarithm.
It is a quadratic form of how long the call takes and whether bytes or arithmetic decide, for each
family of calls; nine in ten times of three engines on eight GPUs are within it, on GPUs and by
engines that are not among those that it was fitted to (`benchmarks/prediction/model_bars.py`).
"""

from __future__ import annotations

from math import exp, log

from tessera.frontend.machine.tables import bar_constants
from tessera.ir.plan.machine import Gpu
from tessera.planning.prices.call_shapes import operations_of
from tessera.planning.prices.device_model import unit_rate
from tessera.planning.prices.library_calls import Attention, CallShape, Experts, Grouped, Product

_MATRIX = ("bf16", "fp16", "fp8")
_USUAL_NS = 2e4
# Products that widen weights of 4 or 8 bits: few rows, and libraries differ by a factor of two and
# more (`benchmarks/prediction/narrow_products.py`).
_WIDENED = 1.1


def call_family(shape: CallShape) -> str | None:
    """The family of a call as tables name them; None if no table has such calls."""
    match shape:
        case Product(unit=unit) if unit in _MATRIX:
            if unit == "fp8":
                return "gemm fp8"
            return "gemm bfloat16"
        case Attention(unit=unit) if unit in _MATRIX:
            return "context" if shape.causal or shape.queries > 1 else "generation"
        case Grouped() | Experts():
            part = shape.up if isinstance(shape, Experts) else shape
            if part.unit == "fp8":
                return "moe fp8"
            return "moe w4a16_mxfp4" if part.weight_width < part.width else "moe bfloat16"
    return None


def bar_features(shape: CallShape, moved: float, ns: float, gpu: Gpu) -> tuple[float, ...]:
    """What a bar depends on: how long, and bound by what."""
    memory = max(moved, 1.0) / gpu.memory_bandwidth
    arithmetic = sum(count / unit_rate(gpu, unit) for unit, count in operations_of(shape))
    long = min(2.0, max(-2.0, log(ns / _USUAL_NS) / 2))
    bound = min(2.0, max(-2.0, log(memory / max(arithmetic, 1e-12)) / 2))
    return 1.0, long, long * long, bound, bound * bound


def model_bar(shape: CallShape, moved: float, ns: float, gpu: Gpu) -> float | None:
    """Half the width of the bar of a call, as a logarithm; None for a family without rows."""
    if isinstance(shape, Product) and shape.is_widened:
        return _WIDENED
    family = call_family(shape)
    if family is None:
        return None
    *factors, least, most = bar_constants("model_bars")[family]
    features = bar_features(shape, moved, ns, gpu)
    value = sum(factor * x for factor, x in zip(factors, features, strict=True))
    return min(most, max(least, exp(value)))
