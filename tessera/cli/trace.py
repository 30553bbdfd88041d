"""`tessc trace`: capture one call of a PyTorch model as a trace.

Three ways: on a GPU (`--device cuda`), compiled for GPUs that are not there (`--device none`), and
on shapes alone (`--device meta`, `hf:`), which gives a trace of operators.

Longer than 400 lines because all three share the options, the checks and the words of one command.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tessera.cli.console import Messages, page_width, write_text
from tessera.cli.given import Typed, reads_options
from tessera.cli.options import data_root_option, form_option, output_option
from tessera.cli.progress import Progress
from tessera.diagnostics import Diagnostic, TesseraError
from tessera.ir.architecture import sms_of
from tessera.ir.choices import Route
from tessera.ir.options import WrongOption
from tessera.ir.program.routing import LAWS, Routing, parse_routing
from tessera.output import Kind, check_apart, check_output
from tessera.report.diagnostics import safe
from tessera.report.table import Column, Fit, fitted, table

if TYPE_CHECKING:
    from tessera.driver.trace.capture_trace import Trace, TraceOptions
    from tessera.driver.trace.meta_trace import FakeTrace
    from tessera.driver.trace.no_gpu_trace import NoGpuOptions
    from tessera.frontend.capture.inputs import Inputs
    from tessera.frontend.capture.meta.hf import HfConfig, HfStep
    from tessera.ir.program.program import Program

    Maker = Callable[[], tuple[Callable[..., object], Inputs]]

HF = "hf:"
"""Prefix of the name of a config file."""
_WORDS = {"true": True, "false": False}


@click.command(short_help="Capture a PyTorch model as a trace.")
@click.argument("model", metavar="FILE.py:FUNCTION|hf:CONFIG")
@output_option("The trace to write; contents and reference outputs go beside it.", required=True)
@click.option(
    "--route",
    type=click.Choice([choice.value for choice in Route]),
    default=Route.AUTO.value,
    show_default="auto; ptx with --device none",
    help="Who computes: torch.compile with products by Triton or a library, whichever is faster"
    " (auto), with everything in Triton (ptx), with library calls as `op` records (library);"
    " PyTorch without a compiler (eager), or the callable as it is (as-is).",
)
@click.option(
    "--for",
    "gpus",
    default="",
    metavar="GPUS",
    help="Also compile for these GPUs, such as a100,l40s; with --device none: compile for these.",
)
@click.option(
    "--tune",
    default="",
    metavar="GPUS",
    help="Also tune kernels for these slices of the GPU, such as h200:84sm,h200:48sm.",
)
@click.option("--arch", "archs", default="", metavar="ARCHS", help="Also compile for sm_80,sm_89.")
@click.option(
    "--set",
    "sizes",
    multiple=True,
    metavar="NAME=VALUE",
    help="An argument of FUNCTION: a number, true or false, or a word.",
)
@click.option(
    "--ptx",
    "texts",
    multiple=True,
    type=click.Path(),
    metavar="PATH",
    help="PTX of kernels of the model's own, for kernels whose PTX is not found otherwise.",
)
@click.option(
    "--contents",
    type=click.Choice(("npz", "safetensors")),
    default="npz",
    show_default=True,
    help="The format of contents and reference; safetensors files are mapped when they are read.",
)
@click.option(
    "--weights",
    type=click.Path(),
    metavar="FOLDER",
    help="Leave out of the contents what this checkpoint has; `tessc run --weights` takes it from "
    "there.",
)
@data_root_option
@click.option("--no-data", is_flag=True, help="Keep sizes only, no contents and no reference.")
@click.option(
    "--device",
    type=click.Choice(("cuda", "none", "meta")),
    default="cuda",
    show_default=True,
    help="Where the model runs: on the GPU; on none, compiled for the GPUs of --for; or on shapes"
    " alone (meta), without weights: every operator is an `op` record then.",
)
@click.option(
    "--phase",
    type=click.Choice(("prefill", "decode", "encode")),
    default="decode",
    show_default=True,
    help="Of a config file (hf:): read prompts, add a token to each sequence, or encode text,"
    " sound or images.",
)
@click.option(
    "--batch", type=int, default=1, show_default=True, help="Of a config file: how many sequences."
)
@click.option(
    "--context",
    type=int,
    default=1024,
    show_default=True,
    help="Of a config file: tokens of each prompt, or of each sequence with the one that is added.",
)
@click.option(
    "--no-fuse",
    is_flag=True,
    help="With --device meta or hf: leave operators apart that serving engines fuse.",
)
@click.option(
    "--routing",
    metavar="LAW",
    help="How tokens choose experts, for durations: uniform, skew:0.5, or rows:12,7,... with the"
    " rows that each expert had. Without it, plans allow for uniform to skew:0.5.",
)
@click.option("--dry-run", is_flag=True, help="Load the model and show what would be captured.")
@form_option
@reads_options
def trace(messages: Messages, given: Typed) -> int:
    """Run FUNCTION of FILE.py on the GPU and write what it launches as a trace.

    FUNCTION returns a callable and its inputs, or is the callable. The file is Python and runs as
    such; the trace that is made of it never does. `hf:` and a local config.json of a model of the
    transformers library, or its folder, stand for one step of that model, without a GPU: nothing
    is fetched, and no code that comes with a model is run. With `--device none` kernels are
    compiled without a GPU, and their tiles are chosen without measuring.

    \b
    Examples:
      tessc trace examples/models/llama.py:decode -o decode.ptx --for a100,l40s
      tessc trace model.py:step -o step.ptx --route library --set layers=4
      tessc trace model.py:step -o step.ptx --device none --for a100,l40s
      tessc trace model.py:step -o step.ptx --tune h200,h200:84sm,h200:48sm
      tessc trace model.py:step -o step.ptx --device meta
      tessc trace hf:config.json -o decode.ptx --phase decode --batch 32 --context 4096
    """
    if Path(str(given.values["model"]), "config.json").is_file():  # a model folder
        given = given.having(model=f"{HF}{given.values['model']}")
    command = given.record(TraceCommand)
    if "route" not in given.typed and command.device == "none":
        command = replace(command, route=Route.PTX)
    given.refuse_typed(*command.idle())
    from tessera.frontend.cache.kept_bytecode import kept_bytecode

    with kept_bytecode("torch"):
        text = _trace(messages, command)
    write_text(fitted(text, page_width()))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCommand:
    """What `tessc trace` captures, how, and where it goes."""

    model: str
    output: str
    route: str = Route.AUTO
    gpus: str = ""
    archs: str = ""
    tune: str = ""
    sizes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    contents: str = "npz"
    weights: str | None = None
    data_root: str | None = None
    no_data: bool = False
    dry_run: bool = False
    device: str = "cuda"
    phase: str = "decode"
    batch: int = 1
    context: int = 1024
    no_fuse: bool = False
    routing: str | None = None

    def __post_init__(self) -> None:
        if self.routing is not None and self.law is None:
            raise WrongOption(f"{{routing}} is no law by which tokens choose experts: {LAWS}")

    @property
    def law(self) -> Routing | None:
        """How tokens choose experts, if that is given."""
        return None if self.routing is None else parse_routing(self.routing)

    def stated(self, made: Trace) -> Trace:
        """The trace with how its tokens choose experts."""
        return replace(made, program=replace(made.program, routing=self.law))

    @property
    def is_config(self) -> bool:
        """Whether the model is a config file."""
        return self.model.startswith(HF)

    @property
    def model_file(self) -> str:
        """The file that the model is read from."""
        return self.model.removeprefix(HF) if self.is_config else self.model.rpartition(":")[0]

    @property
    def suffix(self) -> str:
        """The ending of the files of contents."""
        return f".{self.contents}"

    @property
    def arguments(self) -> dict[str, object]:
        """The arguments of the function."""
        return dict(_size(text) for text in self.sizes)

    def idle(self) -> tuple[tuple[str, ...], str]:
        """The options that would do nothing for this kind of trace, and why."""
        config = ("phase", "batch", "context")
        kernels = ("route", "gpus", "archs", "texts", "tune")
        contents = ("contents", "weights", "data_root", "no_data")
        match self.device, self.is_config:
            case "none", True:
                names = ("sizes", "dry_run", "no_fuse", "tune", *contents)
                return names, "with a config file: it has sizes alone"
            case _, True:
                reason = "with a config file: without `--device none` there are no kernels"
                return ("sizes", "dry_run", *contents, *kernels), reason
            case "meta", _:
                reason = "with `--device meta`: such a trace has no kernels and no contents"
                return (*config, *kernels, *contents, "dry_run"), reason
            case "none", _:
                reason = "with `--device none` and a Python file"
                return (*config, "weights", "data_root", "no_fuse", "tune"), reason
            case _:
                return (*config, "no_fuse"), "with a Python file on a GPU"

    def no_gpu_options(self, data: bool) -> NoGpuOptions:
        """The options for compiling without a GPU: what, and for which GPUs."""
        from tessera.driver.trace.no_gpu_trace import NoGpuOptions
        from tessera.frontend.machine.gpus import machine_of

        cards = machine_of(self.gpus).cards if self.gpus else ()
        return NoGpuOptions(
            gpus=tuple(dict.fromkeys(card.gpu for card in cards)),
            archs=self.options().archs,
            route=self.route,
            ptx=tuple(map(_text, self.texts)),
            data=data,
        )

    def options(self) -> TraceOptions:
        """The options for the library."""
        from tessera.driver.trace.capture_trace import TraceOptions

        return TraceOptions(
            route=self.route,
            archs=_archs(self.gpus, self.archs),
            ptx=tuple(map(_text, self.texts)),
            data=not self.no_data,
            weights=self.weights,
            data_root=self.data_root,
            tune=self.tune,
        )


def _trace(messages: Messages, command: TraceCommand) -> str:
    """Write the trace; returns a summary."""
    if command.device == "none" and not command.dry_run:
        return _trace_no_gpu(messages, command)
    if command.device == "meta" or (command.is_config and command.device != "none"):
        return _trace_shapes(messages, command)
    return _trace_on_gpu(messages, command)


def _trace_on_gpu(messages: Messages, command: TraceCommand) -> str:
    from tessera.driver.trace import capture_trace as tracing
    from tessera.frontend.capture.dry_run import without_gpu
    from tessera.frontend.capture.model_file import find_model, load_model

    place = find_model(command.model)
    arguments, options = command.arguments, command.options()
    _check_places(command, (str(place[0]), *command.texts), data=options.data)
    if command.dry_run:
        tracing.require_torch()
        with without_gpu():
            return _would(*load_model(place, arguments), options)
    tracing.require_gpu()
    with Progress(messages, f"loading {command.model}") as shown:
        traced = tracing.trace_call(*load_model(place, arguments), options, shown.hear)
    messages.show(traced.diagnostics)
    made = command.stated(traced)
    names = tracing.write_trace(made, command.output, data=options.data, suffix=command.suffix)
    program = traced.program
    lines = [f"captured {_counted(program)}", _roles(program), *_tuned(program)]
    lines += _measured(traced)
    lines += [f"wrote {safe(name)}" for name in names]
    return "\n".join(lines) + "\n"


def _trace_no_gpu(messages: Messages, command: TraceCommand) -> str:
    """A trace compiled for named GPUs."""
    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace import no_gpu_trace

    data = not command.no_data and not command.is_config
    options = command.no_gpu_options(data)
    _check_places(command, (command.model_file, *command.texts), data=data)
    make, notes = _maker(command)
    no_gpu_trace.require_triton()
    with Progress(messages, f"loading {command.model}") as shown:
        traced = no_gpu_trace.trace_no_gpu(make, options, shown.hear)
    messages.show((*notes, *traced.trace.diagnostics))
    has_data = bool(traced.trace.contents)
    made = command.stated(traced.trace)
    names = tracing.write_trace(made, command.output, data=has_data, suffix=command.suffix)
    program = traced.trace.program
    gpus = ", ".join(gpu.key for gpu in options.gpus)
    lines = [f"compiled {_counted(program)}, for {gpus}", _roles(program)]
    if any(program.launches()):
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


def _trace_shapes(messages: Messages, command: TraceCommand) -> str:
    """A trace of operators on fake tensors: of a function of a file, or of a config file's step."""
    from tessera.driver.trace import capture_trace as tracing
    from tessera.driver.trace import meta_trace

    _check_places(command, (command.model_file,), data=False)
    fused = not command.no_fuse
    with Progress(messages, f"loading {command.model}") as shown:
        if command.is_config:
            traced, notes = _trace_config(command, shown)
        else:
            make, notes = _maker(command)
            traced = meta_trace.trace_fake(make, fused=fused, on_progress=shown.hear)
    messages.show((*notes, *traced.trace.diagnostics))
    tracing.write_trace(command.stated(traced.trace), command.output, data=False)
    program = traced.trace.program
    steps = sum(1 for _ in program.work())
    lines = [f"recorded {traced.trace.nodes.others} operators, written as {steps} steps"]
    lines += [f"  {count} x {name}" for name, count in traced.patterns.items()]
    lines += [_roles(program), f"wrote {safe(command.output)}"]
    lines.append(
        "it has no kernels: it can be analysed, planned, simulated and reported, and running it"
        " needs a trace of the model on a GPU"
    )
    return "\n".join(lines) + "\n"


def _trace_config(
    command: TraceCommand, shown: Progress
) -> tuple[FakeTrace, tuple[Diagnostic, ...]]:
    """The step of a config file; layers that are alike are traced once."""
    step, config = _step_of_config(command)
    from tessera.driver.trace.config_trace import ConfigTracer
    from tessera.frontend.capture.meta import hf
    from tessera.frontend.capture.meta.record import among_fakes  # needs PyTorch

    with among_fakes():
        tracer = ConfigTracer(config, fused=not command.no_fuse, on_progress=shown.hear)
        notes = hf.left_wide(config) if command.no_fuse else config.notes
        return tracer.trace(step), notes


def _step_of_config(command: TraceCommand) -> tuple[HfStep, HfConfig]:
    from tessera.frontend.capture.meta import hf

    step = hf.HfStep(phase=command.phase, batch=command.batch, context=command.context)
    config = hf.read_config(hf.find_config(command.model))
    hf.require_transformers()
    return step, config


def _maker(command: TraceCommand) -> tuple[Maker, tuple[Diagnostic, ...]]:
    """What makes the callable and its inputs, with warnings of a config file."""
    if command.is_config:
        from tessera.frontend.capture.meta import hf

        step, config = _step_of_config(command)
        return (lambda: hf.make_step(config, step)), hf.left_wide(config)
    from tessera.driver.trace.capture_trace import require_torch
    from tessera.frontend.capture.model_file import find_model, load_model

    require_torch()
    place, arguments = find_model(command.model), command.arguments
    return (lambda: load_model(place, arguments)), ()


def _counted(program: Program) -> str:
    """The numbers of launches, other steps and kernels of a trace."""
    launches = sum(1 for _ in program.launches())
    others = sum(1 for _ in program.work()) - launches
    return f"{launches} launches and {others} other steps, {len(program.modules)} kernels"


def _roles(program: Program) -> str:
    """The number of buffers by role."""
    roles = Counter(buffer.role.value for buffer in program.declared_buffers())
    return "buffers: " + ", ".join(f"{count} {role}" for role, count in roles.items())


def _tuned(program: Program) -> Iterator[str]:
    """The number of launches that have code for a number of SMs."""
    counts = Counter(
        sms
        for launch in program.launches()
        for variant in program.modules[launch.module].variants
        if (sms := sms_of(variant.arch))
    )
    for sms, count in counts.items():
        yield f"code for {sms} SMs: {count} of {sum(1 for _ in program.launches())} launches"


def _measured(traced: Trace) -> Iterator[str]:
    """What products take by a library and by Triton, and what part of the time is in libraries."""
    from tessera.frontend.machine.quantities import format_time

    rows = [
        (
            product.name,
            ", ".join(product.operands),
            format_time(product.library_ns),
            format_time(product.triton_ns),
        )
        for product in traced.products
        if product.library_ns is not None and product.triton_ns is not None
    ]
    titles = ("product", "operands", "library", "Triton")
    fits = (Fit.KEEP, Fit.WRAP, Fit.KEEP, Fit.KEEP)
    columns = [Column(title, fit) for title, fit in zip(titles, fits, strict=True)]
    yield from table(columns, rows, page_width()) if rows else ()
    if traced.times is not None:
        whole = traced.times.calls_ns + traced.times.launches_ns
        yield f"time: {format_time(whole)}, {traced.times.share:.0%} of it in library calls"


def _check_places(command: TraceCommand, inputs: tuple[str, ...], *, data: bool) -> None:
    """Refuse paths that cannot be written or that are inputs, before any work."""
    from tessera.driver.trace.capture_trace import files_beside

    target = Path(command.output)
    beside = files_beside(target, command.suffix) if data else ()
    if target.suffix in (".npz", ".safetensors", ".py") or str(target) == "-":
        raise TesseraError.of(
            "TSR6007", f"`{target}` is no name for a trace", hint="name it `out.ptx`"
        )
    check_output(str(target), Kind.TRACE, inputs)
    for path in beside:
        check_output(str(path), Kind.CONTENTS, inputs)
        check_apart(str(path), str(target), "the trace is to have that name")


def _text(path: str) -> tuple[str, str]:
    """A file of PTX, with its name."""
    from tessera.frontend.text.readfile import read_source

    return path, read_source(path).text


def _archs(gpus: str, archs: str) -> tuple[str, ...]:
    """The requested architectures, each once."""
    from tessera.frontend.machine.gpus import machine_of

    wanted = [arch.strip() for arch in archs.split(",") if arch.strip()]
    if gpus:
        wanted += [card.gpu.arch for card in machine_of(gpus).cards]
    return tuple(dict.fromkeys(wanted))


def _size(text: str) -> tuple[str, object]:
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise TesseraError.of(
            "TSR6007", f"`--set {text}` is not well formed", hint="write `--set layers=4`"
        )
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, _WORDS.get(value.lower(), value)


def _would(function: Any, inputs: Inputs, options: TraceOptions) -> str:
    from torch.nn import Module
    from torch.nn.parameter import is_lazy

    lines = [f"would capture one call of {type(function).__name__} by the route `{options.route}`"]
    rows = (
        (
            f"input {name}:",
            f"{tensor.dtype} {'x'.join(map(str, tensor.shape)) or 'a single number'}",
        )
        for name, tensor in inputs.tensors(function)
    )
    lines += table((Column(fit=Fit.CUT), Column(fit=Fit.WRAP)), rows, page_width(), gap=1)
    if isinstance(function, Module):
        parameters = list(function.parameters())
        known = [parameter for parameter in parameters if not is_lazy(parameter)]
        size = sum(parameter.numel() * parameter.element_size() for parameter in known)
        late = len(parameters) - len(known)
        more = f", and {late} whose sizes the first call decides" if late else ""
        lines.append(f"  {len(known)} parameters, {size} bytes{more}")
    if options.archs:
        lines.append(f"  and compile its Triton kernels for {', '.join(options.archs)}")
    return "\n".join(lines) + "\n"
