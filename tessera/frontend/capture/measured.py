"""What was measured while a call was captured: products by each way to compute them, and kernels.

In: torch.compile at work, and a replay of the captured graph. Out: a `MeasuredProduct` for each
distinct product or convolution, and the time of every kernel. Products are timed inside CUDA graphs
(`tuning`): torch.compile times calls from the host, which is slow while it compiles what it will
time next, and libraries then seem slower than they are. By the route `auto` a short product
that Triton computes as fast as a library (`AS_FAST`) is Triton's, for its kernels have PTX. A long
one is Triton's if it is faster (`FASTER`): the least of many times that were measured once, each in
a moment, is less than that kernel takes in a model that keeps the GPU busy.

Source: PyTorch 2.11, `torch._inductor.select_algorithm.add_feedback_saver` and `benchmark_choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from math import isfinite
from typing import TYPE_CHECKING, Protocol

import torch

from tessera.frontend.capture.graphs.tuning import cold_ms
from tessera.frontend.capture.products import CutPrices, ProductPrices, TemplateChoice
from tessera.frontend.capture.raw import MeasuredProduct
from tessera.frontend.capture.replaced import replaced

if TYPE_CHECKING:
    from torch._inductor.choices import InductorChoices
    from torch._inductor.select_algorithm import (
        AlgorithmSelectorCache,
        AutotuneArgs,
        ChoiceCaller,
    )

# Ratios to the time of a library: up to the first a short product is as fast, and a long product
# counts as faster only if the library takes more than the second.
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


class _MeasuredOperand(Protocol):
    """What a product reads, as the compiler knows it."""

    def get_size(self) -> Sequence[object]:
        """Its shape."""

    def get_dtype(self) -> object:
        """Its type."""


@contextmanager
def measured_products(
    products: list[MeasuredProduct], prices: CutPrices | None = None
) -> Iterator[None]:
    """Collect what the compiler measures, each distinct product once.

    `prices` leave out kernels that cannot be the fastest, before any code is made of them.
    """
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
        """The choices that a trace can hold, if there are any."""
        kept = [c for c in choices if not isinstance(c, ExternKernelCaller) or c.name in _HELD]
        return kept or choices

    cache = get_algorithm_selector_cache()
    functions = getattr(cache, "preprocessing_fns", [])
    cache.add_feedback_saver(hear)
    functions.append(held)
    try:
        with _timed_in_graphs(type(cache)), _fewer_choices(prices):
            yield
    finally:
        cache.feedback_saver_fns.remove(hear)
        functions.remove(held)


@contextmanager
def _fewer_choices(prices: CutPrices | None) -> Iterator[None]:
    """Reduce the kernels that are tried for a product; all are tried if that fails."""
    from torch._inductor.choices import InductorChoices

    if prices is None:
        yield
        return
    known = ProductPrices(prices, lambda told: None)

    def fewer(finalize: Callable[..., Iterable[TemplateChoice]]) -> object:
        def made(self: InductorChoices, *given: object, **named: object) -> list[TemplateChoice]:
            wanted = list(finalize(self, *given, **named))
            try:
                return known.worth_timing(wanted)
            except (AttributeError, TypeError, ValueError, KeyError, IndexError):
                return wanted  # choices of another form

        return made

    with replaced(InductorChoices, "_finalize_template_configs", fewer):
        yield


def _timed_in_graphs(selector: type) -> AbstractContextManager[None]:
    """Time choices by `cold_ms`; by the compiler if that fails."""

    def other(
        compilers: classmethod[AlgorithmSelectorCache, [ChoiceCaller, AutotuneArgs], float],
    ) -> object:
        def timed(
            cls: type[AlgorithmSelectorCache], choice: ChoiceCaller, arguments: AutotuneArgs
        ) -> float:
            taken = _graph_ms(cls, choice, arguments)
            return compilers.__get__(None, cls)(choice, arguments) if taken is None else taken

        return classmethod(timed)

    return replaced(selector, "benchmark_choice", other)


def _graph_ms(
    selector: type[AlgorithmSelectorCache], choice: ChoiceCaller, arguments: AutotuneArgs
) -> float | None:
    """Milliseconds of a choice; None if it cannot be called, or not inside a graph."""
    try:
        inputs, output = arguments.get_benchmark_tensors(selector._is_extern(choice)).unpack()
        if not output.is_cuda or not output.numel():
            return None
        return cold_ms(tuple(inputs), _ChoiceCall(choice, output))
    except (AttributeError, TypeError, RuntimeError):
        torch.cuda.synchronize()
        return None


class _ChoiceCall:
    """Calls a choice with given inputs on the stream that is current."""

    def __init__(self, choice: ChoiceCaller, output: torch.Tensor) -> None:
        self._choice = choice
        self._output = output
        self._made: dict[object, Callable[[], object]] = {}

    def __call__(self, *inputs: torch.Tensor) -> None:
        """Run it; the compiler's calls of its own kernels have a stream in them."""
        request = getattr(self._choice, "bmreq", None)
        if request is None:
            named = {"out": self._output} if getattr(self._choice, "has_out_variant", True) else {}
            self._choice.to_callable()(*inputs, **named)
            return
        key = torch.cuda.current_stream().cuda_stream, *(tensor.data_ptr() for tensor in inputs)
        if key not in self._made:
            self._made[key] = request.make_run_fn(*inputs, out=self._output)
        self._made[key]()


def _operand(node: _MeasuredOperand) -> str:
    sizes = "x".join(str(size) for size in node.get_size())
    return f"{str(node.get_dtype()).removeprefix('torch.')} {sizes}"


def _least(timings: MutableMapping[object, float], choices: Sequence[object]) -> float | None:
    """Nanoseconds of the fastest; the compiler counts milliseconds."""
    times = [timings[choice] for choice in choices if isfinite(timings[choice])]
    return round(1e6 * min(times), 1) if times else None


def kernel_times(work: Callable[[], None]) -> tuple[tuple[str, float], ...]:
    """Do some work; names and nanoseconds of what the GPU did, empty without a profiler."""
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
