"""Modules under their old names: the same modules, with a warning, for one release."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from tessera.driver import moved


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Let no test find what another has imported by an old name."""
    yield
    for name in list(sys.modules):
        if name.startswith("tessera.") and moved.new_name(name) is not None:
            del sys.modules[name]


@pytest.mark.parametrize("old", sorted(moved.MOVED))
def test_an_old_name_is_the_module_itself(old: str) -> None:
    new = moved.new_name(old)
    assert new is not None
    real = importlib.import_module(new)
    spec = real.__spec__
    with pytest.warns(DeprecationWarning, match="goes with the next release"):
        assert importlib.import_module(old) is real
    assert real.__spec__ is spec


@pytest.mark.parametrize(
    ("old", "name"),
    [
        ("tessera.planning", "PlanOptions"),
        ("tessera.planning.search", "find_plan"),
        ("tessera.passes.launches.dependences", "Dependences"),
        ("tessera.passes.kernels.register_values", "RegisterValues"),
        ("tessera.ir.plan_text", "print_plan"),
        ("tessera.frontend.tsp", "parse_plan"),
        ("tessera.backend.cpu.device", "Device"),
        ("tessera.running.open_plan", "open_plan"),
    ],
)
def test_names_that_the_docs_had(old: str, name: str) -> None:
    with pytest.warns(DeprecationWarning, match="now"):
        assert hasattr(importlib.import_module(old), name)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_name_breaks_nothing() -> None:
    """Importing a part sets it in what stands for its package, where a function has that name."""
    pipeline = importlib.import_module("tessera.driver.run.run_plan")
    function = pipeline.schedule
    part = importlib.import_module("tessera.running.schedule")
    assert part.schedule is function is pipeline.schedule


def test_what_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("tessera.nowhere")
