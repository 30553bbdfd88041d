"""Calls that are not inlined in an excerpt: driver functions, and calls that cannot be followed.

- A failed assertion ends the launch; launches end normally, so it never happens.
- `vprintf` reads its format and the values in local memory. If the format is a literal of the
  module without `%s`, it reads nothing else. A string argument is a pointer that `vprintf` follows,
  so it pins the launch.
- A function that touches no memory outside the CTA (`call_reach`) has unknown results.
- Every other call pins the launch, with the reason and the line of the call. If the callee loads no
  pointer, the pin concerns only the buffers that the launch was given.
"""

from __future__ import annotations

import re

from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import size_bytes
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.zones import LOCAL
from tessera.passes.kernel_facts.doomed_blocks import never_returns
from tessera.passes.kernel_facts.inline_calls import call_parts
from tessera.passes.kernel_facts.kernel_code import Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lanes import Lanes
from tessera.passes.lane_values.masks import NONE, Mask, selected
from tessera.wording import Wording

CALL_READ = -1
"""The effect number of the bytes that a call reads; instructions have the number of an effect."""

_PINNED = {
    "malloc": "it allocates memory on the device by `malloc`, which is no buffer of the trace",
    "free": "it frees memory on the device by `free`, which is no buffer of the trace",
    **dict.fromkeys(
        (
            "cudaLaunchDevice",
            "cudaLaunchDeviceV2",
            "cudaLaunchDevice_ptsz",
            "cudaLaunchDeviceV2_ptsz",
            "cudaCDP2LaunchDevice",
            "cudaCDP2LaunchDeviceV2",
            "cudaGetParameterBuffer",
            "cudaGetParameterBufferV2",
            "cudaCDP2GetParameterBufferV2",
            "cudaGraphLaunch",
        ),
        "it launches kernels from the device",
    ),
}
# Names that compilers give to string literals: nothing else can name them, so nothing writes them.
_LITERAL = re.compile(r"\$str(\$?\d+)?|__unnamed_\d+|printfFormat_\d+|_\$_str(_\d+)?")
_CONVERSION = re.compile(rb"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?([a-zA-Z%])")


def run_call(runner: SliceState, step: Step, mask: Mask) -> None:
    """Apply the effect of a call that stayed to registers, local words and memory."""
    callee, results, arguments = call_parts(step.instruction)
    name = callee or "?"
    defined = runner.code.module.definitions()
    if never_returns(step.instruction, defined):
        return
    if name == "vprintf" and name not in defined and arguments:
        why = _print(runner, step, arguments[0], mask)
        if why is None:
            runner.unknown_results(step, mask)
            _forget_results(runner, results)
            return
        runner.pins[step.index] = why
    elif name not in runner.code.calls.quiet:
        runner.pins[step.index] = _reason(runner, name)
        if name in runner.code.calls.bounded:
            runner.recorder.bounded.add(step.index)
    runner.unknown_results(step, mask)
    runner.forget_words()
    if runner.shared is not None:
        runner.shared.call()


def _reason(runner: SliceState, name: str) -> Wording:
    if name in _PINNED and name not in runner.code.module.definitions():
        return Wording(_PINNED[name])
    if name in runner.code.widths:
        return Wording(f"it calls a function through the register `{name}`")
    known = {f.name: f for f in runner.code.module.functions()}
    if name not in known or known[name].body is None:
        return Wording(f"it calls `{name}`, which the module does not define")
    deep = "which calls itself or is too deep to follow, and touches memory"
    return Wording(f"it calls `{name}`, {deep}")


def _print(runner: SliceState, step: Step, argument: ptx.Operand, mask: Mask) -> Wording | None:
    """Record the read of the format; return the reason if more may be read."""
    value = _argument(runner, argument, step.index)
    value = None if value is None else lanes.exact_in(value, mask.may)
    chosen = None if value is None or value.span is not None else selected(mask.may, value.low())[0]
    zone = None if chosen is None else runner.scene.zones.common(chosen)
    names = {z: n for n, z in runner.scene.symbols.items()}
    name = names.get(zone[0], "") if zone is not None else ""
    text = _literal(runner, name)
    if value is None or text is None:
        return Wording("it prints by a format that is not known")
    if any(conversion == b"s" for conversion in _CONVERSION.findall(text)):
        return Wording("it prints strings through pointers")
    runner.recorder.add(step.index, CALL_READ, value, len(text) + 1, mask.may, NONE)
    return None


def _argument(runner: SliceState, operand: ptx.Operand, index: int) -> Lanes | None:
    """The value of an argument; for a parameter variable, the value that was stored there."""
    if isinstance(operand, ptx.Name) and operand.name in runner.symbols:
        base = runner.scene.zones.address(LOCAL)
        return runner.registers.get((runner.symbols[operand.name] - base, 8))
    return runner.value(operand, 64, index)


def _literal(runner: SliceState, name: str) -> bytes | None:
    """The text of a string literal of the module."""
    if not _LITERAL.fullmatch(name):
        return None
    for variable in runner.code.module.variables():
        listed = variable.initializer
        if variable.name != name or not isinstance(listed, ptx.InitializerList):
            continue
        values = [e.value for e in listed.elements if isinstance(e, ptx.Integer)]
        if len(values) == len(listed.elements) and all(0 <= v < 256 for v in values):
            return bytes(values).split(b"\0")[0]
    return None


def _forget_results(runner: SliceState, results: tuple[ptx.Operand, ...]) -> None:
    base = runner.scene.zones.address(LOCAL)
    sizes = {v.name: size_bytes(v) or 64 for v in runner.code.flat.variables}
    for operand in results:
        if not isinstance(operand, ptx.Name) or operand.name not in runner.symbols:
            continue
        start = runner.symbols[operand.name] - base
        end = start + sizes.get(operand.name, 64)
        for key in [k for k in runner.registers if not isinstance(k, str)]:
            if key[0] < end and start < key[0] + key[1]:
                del runner.registers[key]
