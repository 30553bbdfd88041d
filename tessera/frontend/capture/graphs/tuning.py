"""Chooses how one of our kernels is cut: by measuring, once for calls of the same kind.

In: a record of the sizes that determine the best cut, candidates with the best by rule first, and a
function that runs one of them. Out: a candidate. On a GPU each is timed inside a CUDA graph, over
copies of the large operands that do not fit into L2. Without a GPU the function of `chosen_by`
chooses. Otherwise, and while a graph is being captured, the first is taken. Measurements are stored
on disk at once (`keep_choice`), in a file for each call, so an interrupted capture loses nothing. A
file that is damaged or not ours counts as absent, so a capture never fails because of it.

Inside `tuned_on` measurements are made on a slice of the GPU. A call is then cut so that its
intermediate results in memory have the same form as with the best cut for the whole GPU.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tessera.frontend.cache.code_digest import code_digest
from tessera.frontend.cache.private_files import cache_file, keep_checked, read_checked
from tessera.frontend.capture.graphs.into_graph import captured_into

if TYPE_CHECKING:
    import torch

Cut = TypeVar("Cut", bound=Hashable)

_COLD = 160_000_000  # bytes of copies: more than the L2 of any GPU holds
_FREE = 0.25  # the fraction of free memory that copies may take
_CALLS = 16  # approximate number of calls in a measured graph
_ENOUGH_MS = 100.0
# By size, device and number of SMs; 0 means all SMs.
_CHOSEN: dict[tuple[Hashable, str, int], Hashable] = {}


Chooser = Callable[[Hashable, list[Any]], Any]
# The last function chooses cuts in place of measurements.
_CHOOSERS: list[Chooser] = []


@contextmanager
def chosen_by(choose: Chooser) -> Iterator[None]:
    """Choose cuts by a function of sizes, without measuring."""
    _CHOOSERS.append(choose)
    try:
        yield
    finally:
        _CHOOSERS.pop()


@dataclass(frozen=True, slots=True)
class TunedSlice:
    """SMs of a GPU that kernels are measured on, and a stream that is limited to them."""

    stream: torch.cuda.Stream
    sms: int


_SLICES: list[TunedSlice] = []


@contextmanager
def tuned_on(part: TunedSlice | None) -> Iterator[None]:
    """Measure on a slice; None: on the whole GPU."""
    if part is None:
        yield
        return
    _SLICES.append(part)
    try:
        yield
    finally:
        _SLICES.pop()


def tuned_slice() -> TunedSlice | None:
    """The slice for measurements, if there is one."""
    return _SLICES[-1] if _SLICES else None


def tuned(
    size: Hashable,
    cuts: list[Cut],
    large: tuple[torch.Tensor, ...],
    run: Callable[..., torch.Tensor],
    form: Callable[[Cut], Hashable] = lambda cut: None,
) -> Cut:
    """The cut for a call; `run(cut, *large)` runs it. Measured for the first call of each kind.

    `form` is the part of a cut that determines the form of its intermediate results in memory.
    """
    if _CHOOSERS:
        chosen: Cut = _CHOOSERS[-1](size, cuts)
        return chosen
    where = large[0].device
    sms = _SLICES[-1].sms if _SLICES else 0
    if sms:
        whole = _CHOSEN.get((size, str(where), 0))
        first = next((cut for cut in cuts if cut == whole), cuts[0])
        cuts = [first, *(c for c in cuts if c != first and form(c) == form(first))]
    for known in cuts:
        if _CHOSEN.get((size, str(where), sms)) == known:
            return known
    if not _may_measure(large[0]):
        return cuts[0]
    number = kept_choice(size, cuts, where, sms)
    if number is None:
        number = _fastest(cuts, large, run)
        keep_choice(size, cuts, where, number, sms)
    _CHOSEN[size, str(where), sms] = cuts[number]
    return cuts[number]


def _may_measure(tensor: torch.Tensor) -> bool:
    import torch

    return tensor.is_cuda and not torch.cuda.is_current_stream_capturing()


def _fastest(
    cuts: list[Cut], large: tuple[torch.Tensor, ...], run: Callable[..., torch.Tensor]
) -> int:
    """The fastest candidate; candidates that do not compile or fit are left out."""
    import torch

    torch.cuda.current_stream().synchronize()
    sets = _cold_sets(large)
    times: dict[int, float] = {}
    problems: list[Exception] = []
    for number, cut in enumerate(cuts):
        try:
            times[number] = _time([lambda s=s, cut=cut: run(cut, *s) for s in sets])  # type: ignore[misc]
        except Exception as problem:  # the compiler's errors are of many kinds
            problems.append(problem)
    if not times:
        raise problems[0]
    return min(times, key=lambda number: times[number])


def cold_ms(large: tuple[torch.Tensor, ...], run: Callable[..., object]) -> float:
    """The time of `run(*large)` in ms, inside a graph: the load of the host does not count."""
    sets = _cold_sets(large)
    calls: list[Callable[[], object]] = [partial(run, *operands) for operands in sets]
    return _time(calls) / _repeated(calls)


def _cold_sets(large: tuple[torch.Tensor, ...]) -> list[tuple[torch.Tensor, ...]]:
    """The operands, and enough copies of them to exceed L2."""
    import torch

    size = max(1, sum(_span(tensor) * tensor.element_size() for tensor in large))
    room = int(torch.cuda.mem_get_info()[0] * _FREE)
    count = max(1, min(math.ceil(_COLD / size), 8, room // size))
    return [large] + [tuple(map(_copy, large)) for _ in range(count - 1)]


def _span(tensor: torch.Tensor) -> int:
    """The number of elements from the first to the last in memory."""
    if not tensor.numel():
        return 0
    last = 0
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        last += (size - 1) * stride
    return last + 1


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, gaps and repeated elements: kernels depend on them."""
    whole = tensor.as_strided((_span(tensor),), (1,), tensor.storage_offset()).clone()
    return whole.as_strided(tensor.shape, tensor.stride(), 0)


def _repeated(calls: Sequence[object]) -> int:
    """The number of calls in a measured graph."""
    return len(calls) * max(1, _CALLS // len(calls))


@cache
def _own_stream(device: int) -> torch.cuda.Stream:
    """The stream for all timings: libraries keep memory for each stream that they see."""
    import torch

    return torch.cuda.Stream(device)


def _time(calls: list[Callable[[], object]]) -> float:
    """The time of all calls in sequence, as a graph, in ms: the least of a few runs."""
    import torch

    for call in calls:  # compile
        call()
    part = tuned_slice()
    stream = _own_stream(torch.cuda.current_device()) if part is None else part.stream
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # Other threads may load kernels at the same time.
    with captured_into(graph, stream=stream, capture_error_mode="thread_local"):
        for call in calls * (_repeated(calls) // len(calls)):
            call()
    times = []
    with torch.cuda.stream(stream):
        for _ in range(4):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(float(start.elapsed_time(end)))
            if sum(times) > _ENOUGH_MS:
                break
    return min(times[1:] or times)


SUFFIX = ".tuning"


def kept_choice(
    size: object, cuts: Sequence[object], device: torch.device, sms: int = 0
) -> int | None:
    """The number of the fastest candidate, if a stored measurement exists.

    `sms` counts the SMs that it was measured on; 0 means all.
    """
    path = _path(size, cuts, device, sms)
    kept = None if path is None else read_checked(path)
    if kept is None:
        return None
    text = bytes(kept)
    number = int(text) if text.isdigit() else len(cuts)
    return number if number < len(cuts) else None


def keep_choice(
    size: object, cuts: Sequence[object], device: torch.device, number: int, sms: int = 0
) -> None:
    """Store the fastest candidate."""
    path = _path(size, cuts, device, sms)
    if path is not None:
        keep_checked(path, str(number).encode())


def _path(size: object, cuts: Sequence[object], device: torch.device, sms: int) -> Path | None:
    """The file of a choice; None without a cache."""
    part = (f"{sms} SMs",) if sms else ()
    return cache_file("\n".join((repr(size), *map(repr, cuts), *_where(device), *part)), SUFFIX)


def _where(device: torch.device) -> tuple[str, ...]:
    """The GPU, and the versions of its compilers and of our kernels."""
    import torch
    import triton

    versions = (str(torch.__version__), str(triton.__version__), _code())
    if device.type != "cuda":
        return versions
    properties = torch.cuda.get_device_properties(device)
    return (properties.name, str(properties.multi_processor_count), *versions)


@functools.cache
def _code() -> str:
    return code_digest(("frontend/capture/attention", "frontend/capture/experts"))
