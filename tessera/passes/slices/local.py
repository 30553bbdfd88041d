"""Local memory and parameters in a slice.

Local memory and the parameters of inlined calls are kept word by word, under (offset, width), as
long as every thread uses the same address; a store that is not of this kind forgets all words.
Parameters of the kernel are bytes that every thread sees.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING

from tessera.ir import ptx
from tessera.ir.opcodes import type_bits
from tessera.ir.opcodes.types import is_type
from tessera.passes.kernels.kernel_code import Step
from tessera.passes.slices.scene import parameter_bytes
from tessera.passes.slices.zones import LOCAL, PARAMETER
from tessera.passes.threads import lanes
from tessera.passes.threads.lane_ops import extend
from tessera.passes.threads.lanes import MASK, Lanes
from tessera.passes.threads.masks import Mask

if TYPE_CHECKING:
    from tessera.passes.slices.steps import StepRunner


def local_access(runner: StepRunner, step: Step, writes: bool, address: Lanes, mask: Mask) -> None:
    """A load or store of local memory or of a parameter."""
    opcode = step.instruction.opcode
    types = [m for m in opcode.modifiers if is_type(m)]
    if opcode.name not in {"ld", "st"} or len(types) != 1:
        runner.forget_words()
        runner.unknown_results(step, mask)
        return
    width = (type_bits(types[0]) + 7) // 8
    if writes:
        _store_words(runner, step, address, width, mask)
    else:
        _load_words(runner, step, address, types[0], mask)


def _load_words(runner: StepRunner, step: Step, address: Lanes, type: str, mask: Mask) -> None:
    width = (type_bits(type) + 7) // 8
    zones, offsets = runner.scene.zones.decode(address.lo)
    exact = address.span is None
    for place, name in enumerate(step.targets):
        if name not in runner.code.needed:
            continue
        value: Lanes | None = None
        if exact and width <= 8 and (zones == PARAMETER).all():
            found = parameter_bytes(runner.scene, offsets + place * width, width)
            value = None if found is None else Lanes(found)
        elif exact and zones.size == 1 and int(zones.flat[0]) == LOCAL:
            value = runner.registers.get((int(offsets.flat[0]) + place * width, width))
        bits = runner.code.widths.get(name, 64)
        if value is None:
            value = any_of_type(type, bits, step.index)
        elif bits > 8 * width:
            value = lanes.truncate(extend(value, type), bits)
        runner.write(step, name, value, mask)


def _store_words(runner: StepRunner, step: Step, address: Lanes, width: int, mask: Mask) -> None:
    zones, offsets = runner.scene.zones.decode(address.lo)
    in_one_place = address.span is None and zones.size == 1 and int(zones.flat[0]) == LOCAL
    if not in_one_place or width > 8:
        runner.forget_words()
        return
    registers = runner.registers
    source = step.instruction.operands[1]
    elements = source.elements if isinstance(source, ptx.Vector) else (source,)
    for place, element in enumerate(elements):
        start = int(offsets.flat[0]) + place * width
        value = runner.value(element, 8 * width, step.index)
        key = (start, width)
        known = key in registers
        for other in [k for k in registers if not isinstance(k, str) and k != key]:
            if other[0] < start + width and start < other[0] + other[1]:
                del registers[other]
        if known or mask.strong.all():
            runner.assign(key, value, mask)
        else:
            # Words of the other threads are not known.
            nothing = lanes.unknown(8 * width, step.index)
            registers[key] = lanes.merge(mask.strong, value, nothing)


def any_of_type(type: str, bits: int, index: int) -> Lanes:
    """Any value that a load of a type can give."""
    width = type_bits(type)
    if width >= bits or width > 32:
        return lanes.unknown(bits, index)
    if type[0] == "s":
        return lanes.between(-(1 << (width - 1)), (1 << (width - 1)) - 1, bits, index)
    return lanes.between(0, MASK[width] if width in MASK else (1 << width) - 1, bits, index)
