"""Which launches certificates are tried on: a definition that asks neither analysis nor checker.

A kernel is in the family if it calls nothing and traps nowhere, each circle of its control flow has
one entry, it comes to global memory only by `ld`, `st`, `red`, `atom` and `cp.async` of up to 16
bytes, and every register that decides an address in global memory, the guard or size of such an
access, or a branch is computed by integer instructions from parameters that are numbers or
pointers, constants, and the numbers of the thread and the CTA. Data decides nothing then.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.certificates.ptx_reader import Instruction, Kernel, Launch, Memory, Refused, read_kernel

INTEGER = re.compile(
    "mov|cvta|add|sub|mul|mad|neg|not|and|or|xor|shl|shr|bfe|cvt|div|rem|min|max|setp|selp"
)
ACCESSES = frozenset({"ld", "ldu", "st", "red", "atom", "cp"})
OTHER_WAYS = re.compile(
    "call|brx|trap|tex|tld4|txq|suld|sust|sured|suq|tensormap|multimem|mbarrier|prefetch|"
    "discard|applypriority|clusterlaunchcontrol|elect|tcgen05|mapa|getctarank"
)


def why_not(launch: Launch) -> str | None:
    """Why a launch on one architecture is not in the family; None if it is."""
    if any("{" in argument for argument in launch.args):
        return "a struct"
    try:
        kernel = read_kernel(launch.text, launch.kernel)
    except Refused as refused:
        return {"`.param`": "calls"}.get(str(refused), str(refused))
    code = [i for block in kernel.blocks for i in block.code]
    for instruction in code:
        if OTHER_WAYS.fullmatch(instruction.opcode) or "bulk" in instruction.parts:
            return f"`{instruction.opcode}`"
    return _data(code, kernel)


def _data(code: list[Instruction], kernel: Kernel) -> str | None:
    """An instruction other than those on integers that decides what is touched."""
    writers: dict[str, list[Instruction]] = {}
    for instruction in code:
        results = [operand for operand in instruction.operands[:1] if type(operand) is not Memory]
        for name in _registers(tuple(results), kernel):
            writers.setdefault(name, []).append(instruction)
    needed = dict.fromkeys(name for instruction in code for name in _roots(instruction, kernel))
    pending = list(needed)
    while pending:
        for instruction in writers.get(pending.pop(), ()):
            floats = any(kind.startswith("f") for kind in instruction.types)
            is_parameter = instruction.opcode == "ld" and "param" in instruction.parts
            if not is_parameter and (floats or not INTEGER.fullmatch(instruction.opcode)):
                return f"`{instruction.opcode}` decides"
            for name in _registers(instruction.operands[1:], kernel, instruction):
                if name not in needed:
                    needed[name] = None
                    pending.append(name)
    return None


def _roots(instruction: Instruction, kernel: Kernel) -> Iterator[str]:
    spaces = {part.split("__")[0] for part in instruction.parts}
    is_access = instruction.opcode == "cp" or (
        instruction.opcode in ACCESSES and not spaces & {"shared", "local", "param"}
    )
    if is_access or instruction.opcode in ("bra", "ret", "exit"):
        yield from _registers((), kernel, instruction)
    if not is_access:
        return
    addresses = [operand for operand in instruction.operands if isinstance(operand, Memory)]
    yield from _registers(tuple(addresses[-1:]), kernel)
    if instruction.opcode == "cp":
        yield from _registers(instruction.operands[2:], kernel)


def _registers(
    operands: tuple[object, ...], kernel: Kernel, guarded: Instruction | None = None
) -> Iterator[str]:
    words = [guarded.guard[0]] if guarded is not None and guarded.guard is not None else []
    for operand in operands:
        if isinstance(operand, Memory):
            words.append(operand.base)
        else:
            words.extend([operand] if isinstance(operand, str) else operand)  # type: ignore[arg-type]
    yield from (word.lstrip("!") for word in words if word.lstrip("!") in kernel.widths)
