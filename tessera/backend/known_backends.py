"""The backends that run launch programs: a row each, and nothing else has to know one.

In: a name. Out: how to make it, what `--map` may name for it, and how reports call it. Imported by
`driver.run`, `report` and `cli`. What a backend needs is imported when one is made, so `--help`
costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.backend.service import Backend, BackendOptions, Model


def _make_cpu(model: Model, options: BackendOptions) -> Backend:
    from tessera.backend.processes.workers import CpuBackend

    return CpuBackend(model, options)


def _make_cuda(model: Model, options: BackendOptions) -> Backend:
    from tessera.backend.cuda.backend import CudaBackend
    from tessera.ir.plan.one_host import on_one_host

    return CudaBackend(replace(model, lowered=on_one_host(model.lowered)), options)


def _make_none(model: Model, options: BackendOptions) -> Backend:
    raise ValueError("`auto` is chosen by `driver.run.backends`; it cannot be made")


class BackendName(StrEnum):
    """Where requests run; `AUTO` takes GPUs where they are, else the CPU backend.

    A row: the word for `--backend`; a regular expression of what may stand for a device of a plan
    in `--map`, which begins with that word; whether that is a GPU of this machine; what reports
    call it; what makes it.
    """

    target: str
    is_on_gpus: bool
    shown_as: str
    make: Callable[[Model, BackendOptions], Backend]

    AUTO = "auto", r"(?!)", False, "", _make_none
    CPU = "cpu", r"cpu", False, "the CPU backend", _make_cpu
    CUDA = "cuda", r"cuda:\d{1,3}(:[1-9]\d{0,3}sm)?", True, "GPUs", _make_cuda

    def __new__(
        cls,
        word: str,
        target: str,
        is_on_gpus: bool,
        shown_as: str,
        make: Callable[[Model, BackendOptions], Backend],
    ) -> BackendName:
        """A member is its word, with the rest of its row as attributes."""
        member = str.__new__(cls, word)
        member._value_ = word
        member.target, member.is_on_gpus = target, is_on_gpus
        member.shown_as, member.make = shown_as, make
        return member


def backend_named(word: str) -> BackendName:
    """The backend of a word; `driver.run.backends` has refused all others."""
    return next(name for name in BackendName if name == word)


KNOWN_BACKENDS = tuple(name for name in BackendName if name is not BackendName.AUTO)
