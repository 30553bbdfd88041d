"""`tessc trace`: capture one call of a PyTorch model as a trace."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from tessera.diagnostics import TesseraError, error
from tessera.messages import Messages, form_option, write_data

_ROUTES = ("ptx", "library", "eager", "as-is")


@click.command(short_help="Capture a PyTorch model as a trace (needs a GPU).")
@click.argument("model", metavar="FILE.py:FUNCTION")
@click.option(
    "-o", "--output", type=click.Path(), required=True, metavar="PATH",
    help="The trace to write; contents and reference outputs go beside it.",
)  # fmt: skip
@click.option(
    "--route", type=click.Choice(_ROUTES), default="ptx", show_default=True,
    help="Who computes: torch.compile with everything in Triton (ptx), torch.compile with library"
    " calls as `op` records (library), PyTorch without a compiler (eager), or the callable as it"
    " is (as-is).",
)  # fmt: skip
@click.option(
    "--for", "gpus", default="", metavar="GPUS",
    help="Also compile for these GPUs, such as a100,l40s.",
)  # fmt: skip
@click.option("--arch", "archs", default="", metavar="ARCHS", help="Also compile for sm_80,sm_89.")
@click.option(
    "--set", "sizes", multiple=True, metavar="NAME=VALUE",
    help="An argument of FUNCTION: a number, or a word.",
)  # fmt: skip
@click.option("--no-data", is_flag=True, help="Keep sizes only, no contents and no reference.")
@click.option("--dry-run", is_flag=True, help="Load the model and say what would be captured.")
@form_option
@click.pass_obj
def trace(
    messages: Messages,
    model: str,
    output: str,
    route: str,
    gpus: str,
    archs: str,
    sizes: tuple[str, ...],
    no_data: bool,
    dry_run: bool,
    form: str,
) -> int:
    """Run FUNCTION of FILE.py on the GPU and write what it launches as a trace.

    FUNCTION returns a callable and its inputs, or is the callable. The file is Python and runs as
    such; the trace that is made of it never does.

    \b
    Examples:
      tessc trace examples/models/llama.py:decode -o decode.ptx --for a100,l40s
      tessc trace model.py:step -o step.ptx --route library --set layers=4
    """
    messages = replace(messages, form=form)
    try:
        text = _trace(model, output, route, _archs(gpus, archs), sizes, no_data, dry_run, messages)
    except TesseraError as failure:
        messages.show(failure.diagnostics)
        return failure.exit_code
    write_data(text.encode(), "-")
    return 0


def _trace(
    model: str,
    output: str,
    route: str,
    archs: tuple[str, ...],
    sizes: tuple[str, ...],
    no_data: bool,
    dry_run: bool,
    messages: Messages,
) -> str:
    from tessera import tracing
    from tessera.frontend.capture.model_file import find_model, load_model

    place = find_model(model)
    given = dict(_size(text) for text in sizes)
    if dry_run:
        with tracing.without_gpu():
            return _would(*load_model(place, given), route, archs)
    tracing.require_gpu()
    function, inputs = load_model(place, given)
    options = tracing.TraceOptions(route=route, archs=archs)
    found = tracing.trace(function, *inputs, options=options)
    messages.show(found.diagnostics)
    names = tracing.write_trace(found, output, data=not no_data)
    program = found.program
    launches = sum(1 for _ in program.launches())
    others = sum(1 for _ in program.work()) - launches
    lines = [
        f"captured {launches} launches and {others} other steps, {len(program.modules)} kernels"
    ]
    roles: dict[str, int] = {}
    for buffer in program.declared_buffers():
        roles[buffer.role.value] = roles.get(buffer.role.value, 0) + 1
    lines.append("buffers: " + ", ".join(f"{count} {role}" for role, count in roles.items()))
    lines += [f"wrote {name}" for name in names]
    return "\n".join(lines) + "\n"


def _archs(gpus: str, archs: str) -> tuple[str, ...]:
    """The architectures that were asked for, each once."""
    from tessera.frontend.gpus import machine_of

    found = [arch.strip() for arch in archs.split(",") if arch.strip()]
    if gpus:
        found += [card.gpu.arch for card in machine_of(gpus).cards]
    return tuple(dict.fromkeys(found))


def _size(text: str) -> tuple[str, Any]:
    name, mark, value = text.partition("=")
    if not mark or not name.isidentifier():
        raise TesseraError(
            error("TSR6007", f"`--set {text}` is not well formed", hint="write `--set layers=4`")
        )
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def _would(function: Any, inputs: tuple[Any, ...], route: str, archs: tuple[str, ...]) -> str:
    lines = [f"would capture one call of {type(function).__name__} by the route `{route}`"]
    for number, one in enumerate(inputs):
        shape = "x".join(map(str, getattr(one, "shape", ()))) or "a scalar"
        lines.append(f"  input {number}: {getattr(one, 'dtype', type(one).__name__)} {shape}")
    named = getattr(function, "named_parameters", None)
    if named is not None:
        sizes = [tensor.numel() * tensor.element_size() for _, tensor in named()]
        lines.append(f"  {len(sizes)} parameters, {sum(sizes)} bytes")
    if archs:
        lines.append(f"  and compile its Triton kernels for {', '.join(archs)}")
    return "\n".join(lines) + "\n"
