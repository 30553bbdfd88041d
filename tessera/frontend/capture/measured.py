"""What was measured while a call was captured: products by each way to compute them, and kernels.

In: torch.compile at work, and a replay of the captured graph. Out: a `MeasuredProduct` for each
distinct product or convolution, and the time of every kernel. By the route `auto` a short product
that Triton computes as fast as a library (`AS_FAST`) is Triton's, for its kernels have PTX. A long
one is Triton's if it is faster (`FASTER`): the least of many times that were measured once, each in
a moment, is less than that kernel takes in a model that keeps the GPU busy.

Source: PyTorch 2.11, `torch._inductor.select_algorithm.add_feedback_saver`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from torch._inductor.select_algorithm import ChoiceCaller

# So much of a library's time more counts as no slower; in long products so much less as faster.
AS_FAST, FASTER = 1.02, 1.03
LONG_MS = 0.05
# What the compiler calls library functions that are, or are made of, operators of a trace.
_HELD = frozenset(
    {
        "mm",
        "addmm",
        "bias_addmm",
        "bmm",
        "baddbmm",
        "_scaled_mm",
        "convolution",
        "conv1x1_via_mm",
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """The best times of a product by itself; what is fused to it was measured after that.

    `operands` are types and shapes. None: that way does not compute it, or was not tried.
    """

    name: str
    operands: tuple[str, ...]
    library_ns: float | None
    triton_ns: float | None


class _MeasuredOperand(Protocol):
    """What a product reads, as the compiler knows it."""

    def get_size(self) -> Sequence[object]:
        """Its shape."""

    def get_dtype(self) -> object:
        """Its type."""


@contextmanager
def measured_products(products: list[MeasuredProduct]) -> Iterator[None]:
    """Hear what the compiler measures, each distinct product once."""
    from torch._inductor.select_algorithm import ExternKernelCaller, get_algorithm_selector_cache

    def hear(
        timings: MutableMapping[object, float],
        name: str,
        nodes: Sequence[_MeasuredOperand],
        *_: object,
    ) -> None:
        library = [choice for choice in timings if isinstance(choice, ExternKernelCaller)]
        others = [choice for choice in timings if choice not in library]
        product = MeasuredProduct(
            name=name,
            operands=tuple(map(_operand, nodes)),
            library_ns=_least(timings, library),
            triton_ns=_least(timings, others),
        )
        if timings and product not in products:
            products.append(product)
        if library:
            is_long = min(timings[choice] for choice in library) >= LONG_MS
            for choice in others:
                timings[choice] *= FASTER if is_long else 1 / AS_FAST

    def held(choices: list[ChoiceCaller]) -> list[ChoiceCaller]:
        """Those that a trace can hold, if there are any."""
        kept = [c for c in choices if not isinstance(c, ExternKernelCaller) or c.name in _HELD]
        return kept or choices

    cache = get_algorithm_selector_cache()
    functions = getattr(cache, "preprocessing_fns", [])
    cache.add_feedback_saver(hear)
    functions.append(held)
    try:
        yield
    finally:
        cache.feedback_saver_fns.remove(hear)
        functions.remove(held)


def _operand(node: _MeasuredOperand) -> str:
    sizes = "x".join(str(size) for size in node.get_size())
    return f"{str(node.get_dtype()).removeprefix('torch.')} {sizes}"


def _least(timings: MutableMapping[object, float], choices: Sequence[object]) -> float | None:
    """Nanoseconds of the fastest; the compiler counts milliseconds."""
    times = [timings[choice] for choice in choices if isfinite(timings[choice])]
    return round(1e6 * min(times), 1) if times else None


def kernel_times(work: Callable[[], None]) -> tuple[tuple[str, float], ...]:
    """Do some work; names and nanoseconds of what the GPU did, nothing where nobody can tell."""
    import torch

    try:
        kinds = [torch.profiler.ProfilerActivity.CUDA]
        profiler = torch.profiler.profile(activities=kinds, acc_events=True)
        profiler.__enter__()
    except (RuntimeError, AssertionError):  # another profiler has the GPU, or there is none
        work()
        return ()
    try:
        work()
    finally:
        profiler.__exit__(None, None, None)
    on_gpu = torch.autograd.DeviceType.CUDA
    return tuple(
        (event.name, 1e3 * event.time_range.elapsed_us())
        for event in profiler.events()
        if event.device_type == on_gpu
    )
