"""Packages of the extra `hosts`: skip without them, or fail under `TESSERA_REQUIRE_NETNS=1`."""

from __future__ import annotations

import importlib.util
import os

import pytest

from tessera.backend.transports.nixl import missing_nixl


def need_nixl() -> None:
    """Skip where NIXL is not installed."""
    _need(missing_nixl())


def need_ray() -> None:
    """Skip where Ray is not installed."""
    missing = importlib.util.find_spec("ray") is None
    _need("the package `ray` is not installed" if missing else "")


def _need(why: str) -> None:
    if why and os.environ.get("TESSERA_REQUIRE_NETNS") == "1":
        pytest.fail(why)
    if why:
        pytest.skip(why)
