"""The table of handlers: the function that emits each opcode."""

from __future__ import annotations

from tessera.backend.ptx_executor.emit import asynchronous as emit_async
from tessera.backend.ptx_executor.emit import atomic as emit_atomic
from tessera.backend.ptx_executor.emit import control as emit_control
from tessera.backend.ptx_executor.emit import data as emit_data
from tessera.backend.ptx_executor.emit import float as emit_float
from tessera.backend.ptx_executor.emit import integer as emit_integer
from tessera.backend.ptx_executor.emit import matrix as emit_matrix
from tessera.backend.ptx_executor.emit import video as emit_video
from tessera.backend.ptx_executor.emit import warp as emit_warp
from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.integer import Handler
from tessera.backend.ptx_executor.emit.kinds import Unsupported
from tessera.backend.ptx_executor.emit.lower import is_warp_wide, member_mask
from tessera.backend.ptx_executor.simt.compiled import Members
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.constants import integer_value

TABLE: dict[str, Handler] = {
    **emit_integer.HANDLERS,
    **emit_float.HANDLERS,
    **emit_data.HANDLERS,
    **emit_control.HANDLERS,
    **emit_warp.HANDLERS,
    **emit_atomic.HANDLERS,
    **emit_async.HANDLERS,
    **emit_matrix.HANDLERS,
    **emit_video.HANDLERS,
}

# Members of a block in which lanes wait for all lanes of the warp, or of four warps.
WHOLE_WARP = 0xFFFFFFFF
WARP_GROUP = "group"

_CONTROL = frozenset({"bra", "brx", "ret", "exit"})


def emit(e: Emitter, instruction: ptx.Instruction) -> None:
    """Emit one instruction under its guard."""
    handler = TABLE.get(instruction.opcode.name)
    if instruction.opcode.name == "st" and "async" in instruction.opcode.modifiers:
        handler = emit_async.emit_store_async
    if handler is None:
        raise Unsupported("no such instruction in the executor")
    e.guard = None
    if instruction.guard is not None:
        number, kind = e.register(instruction.guard.register)
        predicate = e.read_number(number, kind)
        e.guard = e.temporary(f"~{predicate}") if instruction.guard.negated else predicate
        # The instruction may set the register that guards it.
        if not instruction.guard.negated and instruction.opcode.name not in _CONTROL:
            e.guard = e.temporary(predicate)
    try:
        handler(e, instruction)
    except (KeyError, IndexError, StopIteration, ValueError) as reason:
        raise Unsupported(f"unexpected form of the instruction ({reason!r})") from None
    e.guard = None


def members(e: Emitter, instruction: ptx.Instruction) -> Members:
    """The lanes that must arrive before the block runs: None, a mask, or a register's number."""
    if not is_warp_wide(instruction):
        return None
    if instruction.opcode.name == "wgmma":
        return WARP_GROUP if "mma_async" in instruction.opcode.modifiers else None
    mask = member_mask(instruction)
    if mask is None:
        aligned = "sync" in instruction.opcode.modifiers
        return WHOLE_WARP if aligned else None
    value = integer_value(mask)
    if value is not None:
        return value & WHOLE_WARP
    if isinstance(mask, ptx.Name) and mask.name in e.layout.registers:
        return ("register", e.register(mask.name)[0])
    return WHOLE_WARP
