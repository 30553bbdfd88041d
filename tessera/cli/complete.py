"""Completions of the shell: GPUs, steps, kernels.

In: the command line typed so far. Out: completions. A named file that cannot be read gives none:
completion must neither fail nor print anything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from tessera.diagnostics import TesseraError

if TYPE_CHECKING:
    from tessera.ir.program.program import Program

_MOST = 200
_COUNTED = re.compile(r"[0-9]+x")


def complete_gpus(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """GPUs in a list such as `2xa100,l40s`."""
    before, comma, last = incomplete.rpartition(",")
    count = _COUNTED.match(last)
    lead = before + comma + (count[0] if count else "")
    return _gpus(lead, last[count.end() :] if count else last)


def complete_price(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The GPU of `GPU=VALUE`; the value is not completed."""
    if "=" in incomplete:
        return []
    return [CompletionItem(f"{item.value}=", help=item.help) for item in _gpus("", incomplete)]


def complete_step(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Steps of the named trace, such as `k17`."""
    steps = ((f"k{n}", name) for n, name in enumerate(_steps(context)))
    items = [CompletionItem(step, help=name) for step, name in steps if step.startswith(incomplete)]
    return items[:_MOST]


def complete_rule(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """`STEP=GPU`: steps of the trace by number or name, then the GPUs that were named."""
    step, equals, gpu = incomplete.partition("=")
    if not equals:
        names = dict.fromkeys(_steps(context))
        steps = [item.value for item in complete_step(context, parameter, incomplete)]
        steps += [name for name in names if name.startswith(incomplete)]
        return [CompletionItem(f"{name}=") for name in steps[:_MOST]]
    named = str(context.params.get("gpus") or "").split(",")
    kinds = dict.fromkeys(_COUNTED.sub("", name, count=1) for name in named if name)
    return [CompletionItem(f"{step}={kind}") for kind in kinds if kind.startswith(gpu)]


def complete_kernel(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Kernels of the named file."""
    program = _program(context)
    if program is None:
        return []
    names = dict.fromkeys(
        function.name
        for module in program.modules
        for variant in module.variants
        for function in variant.ptx.kernels()
    )
    return [CompletionItem(name) for name in names if name.startswith(incomplete)][:_MOST]


def _gpus(lead: str, incomplete: str) -> list[CompletionItem]:
    from tessera.frontend.machine.gpu_table import aliases_of, gpu_table

    return [
        CompletionItem(lead + name, help=gpu.name)
        for gpu in gpu_table().values()
        for name in (gpu.key, *aliases_of(gpu.key))
        if name.startswith(incomplete)
    ]


def _steps(context: click.Context) -> list[str]:
    """The names of all steps of the named trace, in order."""
    program = _program(context)
    if program is None:
        return []
    from tessera.ir.program.program import Launch

    return [
        f"{program.modules[step.module].name}.{step.kernel}"
        if isinstance(step, Launch)
        else type(step).__name__.lower()
        for step in program.work()
    ]


def _program(context: click.Context) -> Program | None:
    """The trace or PTX file that was typed, if it can be read."""
    from tessera.driver.load import load

    # While an option lacks its value, click has not turned the arguments into parameters yet.
    given = context.params.get("traces") or context.params.get("file") or tuple(context.args)
    first = given if isinstance(given, str) else next(iter(given), None)
    if first is None or first == "-":
        return None
    for path in (first, first.rpartition(":")[0]):
        try:
            return load(path)
        except (TesseraError, OSError, ValueError):
            continue
    return None
