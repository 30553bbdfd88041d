"""Every name of a backend leads to a backend of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from tessera.backend.cuda import backend as cuda
from tessera.backend.known_backends import KNOWN_BACKENDS, BackendName
from tessera.backend.processes import workers
from tessera.driver.run.backends import BackendChoice, make_backend
from tessera.ir.plan import one_host


@dataclass
class FakeModel:
    """A model of which nobody looks at more than that there are programs."""

    lowered: Any


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = FakeModel(lowered=object())
    monkeypatch.setattr(one_host, "on_one_host", lambda lowered: lowered)
    monkeypatch.setattr(workers, "CpuBackend", lambda model, options: ("cpu", model, options))
    monkeypatch.setattr(cuda, "CudaBackend", lambda model, options: ("cuda", model, options))
    backends: list[Any] = [
        make_backend(BackendChoice(backend=name, targets={}), made, made)
        for name in (BackendName.CPU, BackendName.CUDA)
    ]
    assert [backend[0] for backend in backends] == ["cpu", "cuda"]
    assert [*BackendName] == [BackendName.AUTO, *KNOWN_BACKENDS]


@pytest.mark.parametrize("name", KNOWN_BACKENDS)
def test_rows_are_complete(name: BackendName) -> None:
    """`--map` knows a backend by the first word of what stands for a device."""
    assert name.shown_as
    assert name.target.split(":")[0] == name
    for other in [*BackendName]:
        assert other is name or not re.fullmatch(other.target, name)


def test_auto_is_never_made() -> None:
    made: Any = object()
    with pytest.raises(ValueError, match="auto"):
        make_backend(BackendChoice(backend=BackendName.AUTO, targets={}), made, made)
