"""`tessc trace --device meta` and `tessc trace hf:...`: a trace of operators, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tessera.cli.console import Messages
from tessera.cli.progress import Progress
from tessera.diagnostics import Diagnostic
from tessera.report.diagnostics import safe

if TYPE_CHECKING:
    from tessera.driver.trace.meta_trace import FakeTrace
    from tessera.frontend.capture.inputs import Inputs

HF = "hf:"


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeCommand:
    """What is traced on fake tensors: a function of a file, or a step of a config file."""

    model: str
    output: str
    arguments: dict[str, object]
    phase: str
    batch: int
    context: int
    no_fuse: bool


def trace_fake(messages: Messages, command: FakeCommand) -> str:
    """Write the trace; what there is to say about it."""
    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace import meta_trace

    notes: tuple[Diagnostic, ...] = ()
    warm_ups = 1
    if command.model.startswith(HF):
        make, notes = _from_config(command)
        warm_ups = 0
    else:
        tracing.require_torch()
        make = _from_file(command)
    with Progress(messages, f"loading {command.model}") as shown:
        traced = meta_trace.trace_fake(
            make, fused=not command.no_fuse, warm_ups=warm_ups, on_progress=shown.hear
        )
    messages.show((*notes, *traced.trace.diagnostics))
    tracing.write_trace(traced.trace, command.output, data=False)
    return _said(traced, command.output)


def _from_file(command: FakeCommand) -> Callable[[], tuple[Callable[..., object], Inputs]]:
    from tessera.frontend.capture.model_file import find_model, load_model

    place = find_model(command.model)
    return lambda: load_model(place, command.arguments)


def _from_config(
    command: FakeCommand,
) -> tuple[Callable[[], tuple[Callable[..., object], Inputs]], tuple[Diagnostic, ...]]:
    from tessera.frontend.capture.meta import hf

    step = hf.HfStep(phase=command.phase, batch=command.batch, context=command.context)
    config = hf.read_config(hf.find_config(command.model))
    hf.require_transformers()
    return (lambda: hf.make_step(config, step)), config.notes


def _said(traced: FakeTrace, output: str) -> str:
    program = traced.trace.program
    steps = sum(1 for _ in program.work())
    lines = [f"recorded {traced.trace.nodes.others} operators, written as {steps} steps"]
    lines += [f"  {count} x {name}" for name, count in traced.patterns.items()]
    roles: dict[str, int] = {}
    for buffer in program.declared_buffers():
        roles[buffer.role.value] = roles.get(buffer.role.value, 0) + 1
    lines.append("buffers: " + ", ".join(f"{count} {role}" for role, count in roles.items()))
    lines.append(f"wrote {safe(output)}")
    lines.append(
        "it has no kernels: it can be analysed, planned, simulated and reported, and running it"
        " needs a trace of the model on a GPU"
    )
    return "\n".join(lines) + "\n"
