"""Tessera: compile one step of a large model into a plan that runs across different GPUs.

The names below are the public ones; they are imported on first use, so that `import tessera`
costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tessera.diagnostics import Diagnostic, TesseraError
    from tessera.driver import Report, analyze, load
    from tessera.ir.plan import Plan
    from tessera.ir.program import Program
    from tessera.ir.ptx import Module
    from tessera.planning import PlanOptions, PlanReport, plan
    from tessera.profiling import ProfileOptions, profile
    from tessera.running import PlanRunOptions, run_plan
    from tessera.runtime import Runtime
    from tessera.tracing import Trace, TraceOptions, trace, write_trace

__version__ = "0.1.0"

__all__ = [
    "Diagnostic",
    "Module",
    "Plan",
    "PlanOptions",
    "PlanReport",
    "PlanRunOptions",
    "ProfileOptions",
    "Program",
    "Report",
    "Runtime",
    "TesseraError",
    "Trace",
    "TraceOptions",
    "__version__",
    "analyze",
    "load",
    "plan",
    "profile",
    "run_plan",
    "trace",
    "write_trace",
]

_HOMES = {
    "Diagnostic": "tessera.diagnostics",
    "Module": "tessera.ir.ptx",
    "Plan": "tessera.ir.plan",
    "PlanOptions": "tessera.planning",
    "PlanReport": "tessera.planning",
    "PlanRunOptions": "tessera.running",
    "ProfileOptions": "tessera.profiling",
    "Program": "tessera.ir.program",
    "Report": "tessera.driver",
    "Runtime": "tessera.runtime",
    "TesseraError": "tessera.diagnostics",
    "Trace": "tessera.tracing",
    "TraceOptions": "tessera.tracing",
    "analyze": "tessera.driver",
    "load": "tessera.driver",
    "plan": "tessera.planning",
    "profile": "tessera.profiling",
    "run_plan": "tessera.running",
    "trace": "tessera.tracing",
    "write_trace": "tessera.tracing",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
