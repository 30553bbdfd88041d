"""Imported by the process of a replica in tests: a stand-in for the driver, of its own."""

from __future__ import annotations

from tessera.backend.cuda import backend, targets
from tests.helpers.fake_cuda import FakeCuda

_FAKE = FakeCuda()
setattr(targets, "bindings", lambda: _FAKE)  # noqa: B010
setattr(backend, "_LOOK_S", 1e-4)  # noqa: B010
