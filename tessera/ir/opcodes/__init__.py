"""What every PTX opcode means: one table of data, shared by frontend, analysis and executor.

In: an opcode or an instruction. Out: its meaning and its forms. Imported by everything that reads,
analyses or runs PTX.

`meaning_of(instruction)`, or `meaning(opcode, operand_count)` if the operands are not available,
returns a `Meaning`: the role of each operand, the memory behind addresses, control flow, and the
threads that take part. None means that the table lacks the opcode: report it and use
`widened_meaning`. The tables are in `families`, in the notation that `notation` describes. They
also have the forms of each opcode, for the check of modules: see `form_notation` and `form_table`.
"""

from tessera.ir.opcodes.lookup import (
    OPCODES,
    arity,
    meaning,
    meaning_of,
    operand_words,
    takes_shapes,
    widened_meaning,
)
from tessera.ir.opcodes.records import (
    READ_ROLES,
    WRITTEN_ROLES,
    Bytes,
    Extent,
    Flow,
    InstructionKind,
    Matrix,
    Meaning,
    MemoryAction,
    MemoryEffect,
    OperandRole,
    Rows,
    SizeOperand,
    TensorBox,
    ThreadScope,
    UnknownExtent,
)
from tessera.ir.opcodes.special_registers import (
    SPECIAL_REGISTERS,
    SpecialRegister,
    Varies,
    special_register,
)
from tessera.ir.ptx.types import is_type, state_space, type_bits, type_width

__all__ = [
    "OPCODES",
    "READ_ROLES",
    "SPECIAL_REGISTERS",
    "WRITTEN_ROLES",
    "Bytes",
    "Extent",
    "Flow",
    "InstructionKind",
    "Matrix",
    "Meaning",
    "MemoryAction",
    "MemoryEffect",
    "OperandRole",
    "Rows",
    "SizeOperand",
    "SpecialRegister",
    "TensorBox",
    "ThreadScope",
    "UnknownExtent",
    "Varies",
    "arity",
    "is_type",
    "meaning",
    "meaning_of",
    "operand_words",
    "special_register",
    "state_space",
    "takes_shapes",
    "type_bits",
    "type_width",
    "widened_meaning",
]
