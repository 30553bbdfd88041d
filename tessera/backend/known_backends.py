"""The backends that run launch programs: a row each, and nothing else has to know one.

In: a name. Out: how to make it, what `--map` may name for it, and how reports call it. Imported by
`driver.run` and `report`. What a backend needs is imported when one is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tessera.backend.service import Backend, BackendOptions, Model
from tessera.ir.choices import BackendName


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBackend:
    """A backend. `target` is a regular expression of what may stand for a device of a plan."""

    target: str
    shown_as: str
    make: Callable[[Model, BackendOptions], Backend]


def _make_cpu(model: Model, options: BackendOptions) -> Backend:
    from tessera.backend.processes.workers import CpuBackend

    return CpuBackend(model, options)


def _make_cuda(model: Model, options: BackendOptions) -> Backend:
    from tessera.backend.cuda.backend import CudaBackend

    return CudaBackend(model, options)


KNOWN_BACKENDS = {
    BackendName.CPU: KnownBackend(target=r"cpu", shown_as="the CPU backend", make=_make_cpu),
    BackendName.CUDA: KnownBackend(
        target=r"cuda:\d{1,3}(:[1-9]\d{0,3}sm)?", shown_as="GPUs", make=_make_cuda
    ),
}
