"""The effect of one execution of an instruction: arithmetic, bytes, loads, barriers, waits.

In: an instruction. Out: an `Effect`, for one thread that executes it. Matrix instructions of a warp
count a 32nd for each thread, those of a warp group a 128th; `tcgen05.mma` is issued by one thread
and counts whole: its size is in the instruction descriptor, so it depends on a register (`size`).
An access with four bytes or fewer per lane counts as one of `memory`, since its lanes may conflict
in a bank; wider ones and `ldmatrix` count by their bytes. Bulk copies are counted where their bytes
are announced (`expect_tx`), which is in the same thread. Waits are for asynchronous work: copies,
and matrix instructions of warp groups or of tensor memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from tessera.ir.opcodes import InstructionKind, meaning_of
from tessera.ir.opcodes.extents import matrix_shape
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import VECTOR_COUNTS, is_type, type_width

_MATRIX_UNITS = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "s8": "int8",
    "u8": "int8",
    "f64": "fp64",
}
_BANK = 4
# Of `tcgen05.mma`: the unit and the depth of one instruction.
_TENSOR_KINDS = {
    "kind::f16": ("bf16", 16),
    "kind::tf32": ("tf32", 8),
    "kind::f8f6f4": ("fp8", 32),
    "kind::mxf8f6f4": ("fp8", 32),
    "kind::i8": ("int8", 32),
    "kind::mxf4": ("fp4", 64),
    "kind::mxf4nvf4": ("fp4", 64),
}


@dataclass(frozen=True, slots=True)
class Effect:
    """The counts of one execution.

    `size` is the operand that holds the amount: at most `asked` bytes, or for a `descriptor` the
    rows and columns, by which `operations` (per row and column) are multiplied. `indexed` equals
    `asked` if the address comes from data, and is 0 otherwise.
    """

    instructions: int = 1
    unit: str = ""
    operations: float = 0.0
    asked: float = 0.0
    indexed: float = 0.0
    shared: float = 0.0
    loads: int = 0
    barriers: int = 0
    waits: int = 0
    memory: int = 0
    size: ptx.Operand | None = None
    descriptor: bool = False


def effect_of(statement: ptx.Instruction) -> Effect:
    """The effect of an instruction."""
    meaning = meaning_of(statement)
    kind = None if meaning is None else meaning.kind
    name, modifiers = statement.opcode.name, statement.opcode.modifiers
    if name == "tcgen05":
        return _tensor_memory(statement)
    if name in ("ldmatrix", "stmatrix"):
        count = next((int(m[1:]) for m in modifiers if m in ("x1", "x2", "x4")), 1)
        return Effect(shared=4.0 * count)
    if name == "mbarrier":
        return _transaction(statement)
    if kind is InstructionKind.TENSOR and ("mma" in modifiers or name in ("mma", "wmma", "wgmma")):
        unit, operations = _matrix(statement.opcode)
        waits = int("wait_group" in modifiers)
        return Effect(unit=unit, operations=operations, waits=waits)
    if kind in (InstructionKind.FLOAT, InstructionKind.SPECIAL_FUNCTION):
        unit, operations = _plain(statement.opcode)
        special = kind is InstructionKind.SPECIAL_FUNCTION
        return Effect(unit="special" if special else unit, operations=operations)
    if kind in (InstructionKind.GLOBAL, InstructionKind.GENERIC, InstructionKind.ATOMIC):
        width = _width(modifiers)
        narrow = int(width <= _BANK or kind is InstructionKind.ATOMIC)
        return Effect(asked=width, loads=int(name != "st"), memory=narrow)
    if kind is InstructionKind.ASYNC_COPY:
        return _copy(statement)
    if kind is InstructionKind.SHARED:
        width = _width(modifiers)
        return Effect(memory=int(width <= _BANK), shared=width)
    if kind is InstructionKind.LOCAL:
        return Effect(memory=1)
    if "wait_group" in modifiers:
        return Effect(waits=1)
    if kind is InstructionKind.BARRIER:
        return Effect(barriers=1)
    return Effect()


def _tensor_memory(statement: ptx.Instruction) -> Effect:
    modifiers = statement.opcode.modifiers
    if "mma" not in modifiers:  # loads and stores of tensor memory are short, waits for them too
        return Effect()
    unit, depth = next((_TENSOR_KINDS[m] for m in modifiers if m in _TENSOR_KINDS), ("fp16", 16))
    if "sp" in modifiers:
        depth *= 2
    place = 4 if "sp" in modifiers else 3
    descriptor = statement.operands[place] if len(statement.operands) > place else None
    return Effect(unit=unit, operations=2.0 * depth, size=descriptor, descriptor=True)


def descriptor_shape(bits: int) -> int:
    """Rows times columns of a `tcgen05.mma` by its descriptor (PTX ISA 9.0, 9.7.16.4.2)."""
    return ((bits >> 24 & 31) << 4) * ((bits >> 17 & 63) << 3)


def _transaction(statement: ptx.Instruction) -> Effect:
    modifiers = statement.opcode.modifiers
    if any(m in ("try_wait", "test_wait") for m in modifiers):
        return Effect(waits=1)
    if "expect_tx" in modifiers and statement.operands:
        return Effect(asked=float("inf"), shared=float("inf"), size=statement.operands[-1])
    return Effect()


def _copy(statement: ptx.Instruction) -> Effect:
    modifiers = statement.opcode.modifiers
    if "wait_group" in modifiers or "wait_all" in modifiers:
        return Effect(waits=1)
    if "bulk" in modifiers:
        return Effect()
    operands = statement.operands
    size = operands[2] if len(operands) > 2 else None
    asked = float(size.value) if isinstance(size, ptx.Integer) else 0.0
    fewer = operands[3] if len(operands) > 3 and isinstance(operands[3], ptx.Name) else None
    narrow = int(0 < asked <= _BANK)
    return Effect(asked=asked, shared=asked, memory=narrow, size=fewer)


def _matrix(opcode: ptx.Opcode) -> tuple[str, float]:
    """The unit of a matrix instruction, and its operations per thread that issues it."""
    types = [
        modifier
        for modifier in opcode.modifiers
        if modifier in _MATRIX_UNITS or modifier in ("f32", "s32")
    ]
    unit = _MATRIX_UNITS.get(types[1] if len(types) > 1 else "", "fp16")
    for modifier in opcode.modifiers:
        if shape := matrix_shape(modifier):
            rows, columns, depth = shape
            threads = 128 if opcode.name == "wgmma" else 32
            return unit, 2.0 * rows * columns * depth / threads
    return unit, 0.0


def _plain(opcode: ptx.Opcode) -> tuple[str, float]:
    operations = 2.0 if opcode.name in ("fma", "mad") else 1.0
    kind = opcode.modifiers[-1] if opcode.modifiers else ""
    if kind.endswith("x2"):
        operations *= 2
    return ("fp64" if kind == "f64" else "fp32"), operations


def _width(modifiers: tuple[str, ...]) -> int:
    """Bytes that an instruction moves for one thread."""
    count = next((VECTOR_COUNTS[m] for m in modifiers if m in VECTOR_COUNTS), 1)
    return count * type_width(next((m for m in reversed(modifiers) if is_type(m)), "b32"))
