"""Time kernels that torch.compile tunes at their first run inside CUDA graphs.

In: the compiler's tuner of a kernel, a candidate, and what the kernel is called with. Out:
milliseconds, over copies that L2 does not hold (`tuning`). The compiler itself times calls from the
host: of a short kernel it then sees what the host takes to launch it, and which candidate seems
fastest is up to what else the host does. Where a kernel cannot be timed so, the compiler's way
counts.

Source: PyTorch 2.11, `torch._inductor.runtime.triton_heuristics.CachingAutotuner.bench`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

import torch

from tessera.frontend.capture.graphs.tuning import cold_ms
from tessera.frontend.capture.replaced import replaced

if TYPE_CHECKING:
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

_MOST_SPILLED = 16  # registers; the compiler leaves out what spills more


class KernelCandidate(Protocol):
    """A kernel of one shape, to be launched."""

    n_spills: int | None

    def __call__(self, *given: object, stream: int, **named: object) -> object:
        """Launch it."""


def kernels_timed_in_graphs() -> AbstractContextManager[None]:
    """Time candidates by `cold_ms`; by the compiler if that fails."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    def other(compilers: Callable[..., float]) -> object:
        def timed(
            self: CachingAutotuner, launcher: KernelCandidate, *given: object, **named: object
        ) -> float:
            taken = None if "with_profiler" in named else _graph_ms(self, launcher, given, named)
            return compilers(self, launcher, *given, **named) if taken is None else taken

        return timed

    return replaced(CachingAutotuner, "bench", other)


def _graph_ms(
    tuner: CachingAutotuner,
    launcher: KernelCandidate,
    given: tuple[object, ...],
    named: dict[str, object],
) -> float | None:
    """Milliseconds of a candidate; None if it cannot be timed inside a graph, or must not be."""
    try:
        most = tuner.inductor_meta.get("spill_threshold", _MOST_SPILLED)
        # Kernels of the user's own have hooks; some want memory that is zero before every call.
        if tuner.custom_kernel or tuner.reset_to_zero_arg_names or (launcher.n_spills or 0) > most:
            return None
        first, others = tuner.clone_args(*given, **named)  # what it changes must not change here
        values = [*first, *others.values()]
        places = [n for n, v in enumerate(values) if isinstance(v, torch.Tensor) and v.is_cuda]
        if not places:
            return None

        def run(*tensors: torch.Tensor) -> None:
            taken = list(values)
            for place, tensor in zip(places, tensors, strict=True):
                taken[place] = tensor
            more = dict(zip(others, taken[len(first) :], strict=True))
            stream = torch.cuda.current_stream().cuda_stream
            launcher(*taken[: len(first)], **more, stream=stream)

        return cold_ms(tuple(values[place] for place in places), run)
    except (AttributeError, TypeError, RuntimeError):
        torch.cuda.synchronize()
        return None
