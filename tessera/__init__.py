"""Tessera: compile one step of a large model into a plan that runs across different GPUs.

The names below are the public ones; they are imported on first use, so that `import tessera`
costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from tessera.ir.notebook_pages import make_pages_with
from tessera.ir.version import __version__

if TYPE_CHECKING:
    from tessera.diagnostics import Diagnostic, TesseraError
    from tessera.driver.analyze import Report, analyze
    from tessera.driver.hosts.kept_hosts import KeptHosts
    from tessera.driver.load import load
    from tessera.driver.plan import PlanOptions, PlanReport, plan
    from tessera.driver.profile.profile_trace import ProfileOptions, profile
    from tessera.driver.run.options import PlanRunOptions
    from tessera.driver.run.run_plan import run_plan
    from tessera.driver.run.runtime import Runtime
    from tessera.driver.serve.engine import Engine
    from tessera.driver.serve.generation import Generation
    from tessera.driver.trace.capture_trace import Trace, TraceOptions, trace, write_trace
    from tessera.ir.plan.plan import Plan
    from tessera.ir.program.program import Program
    from tessera.ir.ptx.syntax import Module
    from tessera.report.page.inputs import read_report
    from tessera.simulation.options import SimulateOptions
    from tessera.simulation.report import SimulationReport
    from tessera.simulation.simulate_plan import simulate

__all__ = [
    "Diagnostic",
    "Engine",
    "Generation",
    "KeptHosts",
    "Module",
    "Plan",
    "PlanOptions",
    "PlanReport",
    "PlanRunOptions",
    "ProfileOptions",
    "Program",
    "Report",
    "Runtime",
    "SimulateOptions",
    "SimulationReport",
    "TesseraError",
    "Trace",
    "TraceOptions",
    "__version__",
    "analyze",
    "load",
    "plan",
    "profile",
    "read_report",
    "run_plan",
    "simulate",
    "trace",
    "write_trace",
]

_HOMES = {
    "Diagnostic": "tessera.diagnostics",
    "Engine": "tessera.driver.serve.engine",
    "Generation": "tessera.driver.serve.generation",
    "KeptHosts": "tessera.driver.hosts.kept_hosts",
    "Module": "tessera.ir.ptx.syntax",
    "Plan": "tessera.ir.plan.plan",
    "PlanOptions": "tessera.driver.plan",
    "PlanReport": "tessera.driver.plan",
    "PlanRunOptions": "tessera.driver.run.options",
    "ProfileOptions": "tessera.driver.profile.profile_trace",
    "Program": "tessera.ir.program.program",
    "Report": "tessera.driver.analyze",
    "Runtime": "tessera.driver.run.runtime",
    "SimulateOptions": "tessera.simulation.options",
    "SimulationReport": "tessera.simulation.report",
    "TesseraError": "tessera.diagnostics",
    "Trace": "tessera.driver.trace.capture_trace",
    "TraceOptions": "tessera.driver.trace.capture_trace",
    "analyze": "tessera.driver.analyze",
    "load": "tessera.driver.load",
    "plan": "tessera.driver.plan",
    "profile": "tessera.driver.profile.profile_trace",
    "read_report": "tessera.report.page.inputs",
    "run_plan": "tessera.driver.run.run_plan",
    "simulate": "tessera.simulation.simulate_plan",
    "trace": "tessera.driver.trace.capture_trace",
    "write_trace": "tessera.driver.trace.capture_trace",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def _notebook_html(record: object) -> str:
    """The page that a notebook shows for a record; `report`, a higher layer, makes it."""
    html: str = importlib.import_module("tessera.report.page.notebook").notebook_html(record)
    return html


make_pages_with(_notebook_html)


def __dir__() -> list[str]:
    return sorted(__all__)
