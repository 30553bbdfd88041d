"""`tessc trace` without a GPU: traces of operators (`--device meta`, `hf:`), and of kernels that
are compiled for GPUs that are not there (`--device none`)."""

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
    from tessera.driver.trace.no_gpu_trace import NoGpuOptions
    from tessera.frontend.capture.inputs import Inputs
    from tessera.frontend.capture.meta.hf import HfConfig, HfStep
    from tessera.ir.program.program import Program

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

    with Progress(messages, f"loading {command.model}") as shown:
        if command.model.startswith(HF):
            traced, notes = _trace_config(command, shown)
        else:
            make, notes = _maker(command)
            fused = not command.no_fuse
            traced = meta_trace.trace_fake(make, fused=fused, on_progress=shown.hear)
    messages.show((*notes, *traced.trace.diagnostics))
    tracing.write_trace(traced.trace, command.output, data=False)
    return _said(traced, command.output)


def _trace_config(
    command: FakeCommand, shown: Progress
) -> tuple[FakeTrace, tuple[Diagnostic, ...]]:
    """The step of a config file; layers that are alike are traced once."""
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.frontend.capture.meta import hf
    from tessera.frontend.capture.meta.record import among_fakes

    step, config = _step_of_config(command)
    hf.require_transformers()
    with among_fakes():
        tracer = ConfigTracer(config, fused=not command.no_fuse, on_progress=shown.hear)
        return tracer.trace(step), config.notes


def trace_no_gpu(
    messages: Messages, command: FakeCommand, options: NoGpuOptions, suffix: str
) -> str:
    """Write the trace that is compiled for named GPUs; what there is to say about it."""
    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace import no_gpu_trace

    make, notes = _maker(command)
    no_gpu_trace.require_triton()
    with Progress(messages, f"loading {command.model}") as shown:
        traced = no_gpu_trace.trace_no_gpu(make, options, shown.hear)
    messages.show((*notes, *traced.trace.diagnostics))
    has_data = bool(traced.trace.contents)
    names = tracing.write_trace(traced.trace, command.output, data=has_data, suffix=suffix)
    program = traced.trace.program
    launches = sum(1 for _ in program.launches())
    others = sum(1 for _ in program.work()) - launches
    lines = [
        f"compiled {launches} launches and {others} other steps, {len(program.modules)} kernels,"
        f" for {', '.join(gpu.key for gpu in options.gpus)}",
        said_roles(program),
    ]
    if launches:
        lines.append("tiles were chosen by the model of durations, and not measured")
    if not has_data:
        lines.append(f"no contents: {traced.problem}; a run seeds them")
    elif traced.problem:
        lines.append(f"no reference, results of a run are not compared: {traced.problem}")
    elif traced.interpreted:
        kernels = ", ".join(f"`{name}`" for name in traced.interpreted)
        lines.append(f"the reference of {kernels} is by Triton's interpreter on the host")
    lines += [f"wrote {safe(name)}" for name in names]
    return "\n".join(lines) + "\n"


def said_roles(program: Program) -> str:
    """How many buffers there are, by role."""
    roles: dict[str, int] = {}
    for buffer in program.declared_buffers():
        roles[buffer.role.value] = roles.get(buffer.role.value, 0) + 1
    return "buffers: " + ", ".join(f"{count} {role}" for role, count in roles.items())


def _maker(
    command: FakeCommand,
) -> tuple[Callable[[], tuple[Callable[..., object], Inputs]], tuple[Diagnostic, ...]]:
    from tessera.driver.trace.capture_trace import require_torch

    if command.model.startswith(HF):
        return _from_config(command)
    require_torch()
    return _from_file(command), ()


def _from_file(command: FakeCommand) -> Callable[[], tuple[Callable[..., object], Inputs]]:
    from tessera.frontend.capture.model_file import find_model, load_model

    place = find_model(command.model)
    return lambda: load_model(place, command.arguments)


def _from_config(
    command: FakeCommand,
) -> tuple[Callable[[], tuple[Callable[..., object], Inputs]], tuple[Diagnostic, ...]]:
    from tessera.frontend.capture.meta import hf

    step, config = _step_of_config(command)
    hf.require_transformers()
    return (lambda: hf.make_step(config, step)), config.notes


def _step_of_config(command: FakeCommand) -> tuple[HfStep, HfConfig]:
    from tessera.frontend.capture.meta import hf

    step = hf.HfStep(phase=command.phase, batch=command.batch, context=command.context)
    return step, hf.read_config(hf.find_config(command.model))


def _said(traced: FakeTrace, output: str) -> str:
    program = traced.trace.program
    steps = sum(1 for _ in program.work())
    lines = [f"recorded {traced.trace.nodes.others} operators, written as {steps} steps"]
    lines += [f"  {count} x {name}" for name, count in traced.patterns.items()]
    lines.append(said_roles(program))
    lines.append(f"wrote {safe(output)}")
    lines.append(
        "it has no kernels: it can be analysed, planned, simulated and reported, and running it"
        " needs a trace of the model on a GPU"
    )
    return "\n".join(lines) + "\n"
