"""Every name of a backend leads to a backend of its own."""

from __future__ import annotations

from typing import Any

import pytest

from tessera.backend.cuda import backend as cuda
from tessera.backend.known_backends import KNOWN_BACKENDS
from tessera.backend.processes import workers
from tessera.driver.run.backends import BackendChoice, make_backend
from tessera.ir.choices import BackendName


def test_names(monkeypatch: pytest.MonkeyPatch) -> None:
    made: Any = object()
    monkeypatch.setattr(workers, "CpuBackend", lambda model, options: ("cpu", model, options))
    monkeypatch.setattr(cuda, "CudaBackend", lambda model, options: ("cuda", model, options))
    names = [name for name in BackendName if name is not BackendName.AUTO]
    backends: list[Any] = [
        make_backend(BackendChoice(backend=n, targets={}), made, made) for n in names
    ]
    assert [backend[0] for backend in backends] == names
    assert [*KNOWN_BACKENDS] == names
