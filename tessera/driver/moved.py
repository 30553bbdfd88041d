"""Names of modules that have moved: they go on working for one release, with a warning.

`tessera` asks here first: folders of old modules may have been left behind by an update.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

# The longest that fits counts; what follows it stays.
MOVED = {
    "tessera.backend.cpu": "tessera.backend.ptx_executor",
    "tessera.backend.cpu_plan": "tessera.backend.processes",
    "tessera.frontend.contents_write": "tessera.frontend.contents.write",
    "tessera.frontend.tsg": "tessera.frontend.graph.tsg",
    "tessera.frontend.tsp": "tessera.frontend.plan.tsp",
    "tessera.ir.graph_text": "tessera.ir.graph.print_graph",
    "tessera.ir.launch_program": "tessera.ir.plan.launch_program",
    "tessera.ir.machine": "tessera.ir.plan.machine",
    "tessera.ir.plan_text": "tessera.ir.plan.print_plan",
    "tessera.ir.ptx_text": "tessera.ir.ptx.print_ptx",
    "tessera.ir.tensor_map": "tessera.ir.program.tensor_map",
    "tessera.ir.trace_text": "tessera.ir.program.print_trace",
    "tessera.ir.verify_plan": "tessera.ir.plan.verify_plan",
    "tessera.passes.check_plan": "tessera.passes.checker.check_plan",
    "tessera.passes.kernels": "tessera.passes.kernel_facts",
    "tessera.passes.launches": "tessera.passes.dependences",
    "tessera.passes.partition": "tessera.passes.placement",
    "tessera.planning": "tessera.driver.plan",
    "tessera.profiling": "tessera.driver.profile",
    "tessera.running": "tessera.driver.run",
    "tessera.runtime": "tessera.driver.run.runtime",
    "tessera.tracing": "tessera.driver.trace",
}
# Packages whose own names stand in a module now.
_PIPELINES = {
    "tessera.planning": "tessera.driver.plan.make_plan",
    "tessera.running": "tessera.driver.run.run_plan",
    "tessera.tracing": "tessera.driver.trace.capture_trace",
}


def new_name(name: str) -> str | None:
    """Where a module is now; None if it has not moved."""
    if name in _PIPELINES:
        return _PIPELINES[name]
    head, rest = name, ""
    while head:
        if head in MOVED:
            return MOVED[head] + rest
        head, dot, last = head.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return None


def find_moved(name: str) -> ModuleSpec | None:
    """The module that has moved, with a warning."""
    moved = new_name(name)
    if moved is None:
        return None
    text = f"`{name}` is `{moved}` now; the old name goes with the next release"
    warnings.warn(text, DeprecationWarning, stacklevel=2)
    return importlib.util.spec_from_loader(name, _MovedLoader(moved), is_package=True)


class _MovedLoader(Loader):
    """Gives the module itself, and leaves what it says of itself as it was."""

    def __init__(self, name: str) -> None:
        self._module = importlib.import_module(name)
        self._spec = self._module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec
        if module.__name__ in _PIPELINES.values():
            module.__class__ = _Pipeline


class _Pipeline(ModuleType):
    """A module that stands for a package: a part of it does not displace a function of its name.

    `import tessera.running.schedule` would put that module in the place of `run_plan.schedule`.
    """

    def __setattr__(self, name: str, value: object) -> None:
        own = self.__dict__.get(name)
        if own is None or isinstance(own, ModuleType) or not isinstance(value, ModuleType):
            super().__setattr__(name, value)
