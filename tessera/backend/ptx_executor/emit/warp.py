"""Source for warp-wide instructions; see `warp`."""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.integer import Handler, bits, call, last_type, write_pair
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind
from tessera.ir.ptx import syntax as ptx

_ALL_LANES = 0xFFFFFFFF


def member_operand(e: Emitter, i: ptx.Instruction, place: int) -> str:
    """The member mask. Forms for targets below sm_70 have none and mean all lanes."""
    if len(i.operands) > place:
        return e.value(i.operands[place], "b32")
    return e.program.constant(_ALL_LANES, ValueKind("u", 4))


def _emit_shfl(e: Emitter, i: ptx.Instruction) -> None:
    mode = next(m for m in ("up", "down", "bfly", "idx") if m in i.opcode.modifiers)
    value, b, c = (e.value(o, "b32") for o in i.operands[1:4])
    both = e.temporary(f"shfl(cx, {mode!r}, {value}, {b}, {c})")
    write_pair(e, i.operands[0], "b32", f"{both}[0]", f"{both}[1]")


def _emit_vote(e: Emitter, i: ptx.Instruction) -> None:
    mode = next(m for m in ("all", "any", "uni", "ballot") if m in i.opcode.modifiers)
    predicate = e.value(i.operands[1], "pred")
    mask = member_operand(e, i, 2)
    call(e, i, f"vote(cx, {mode!r}, {predicate}, {mask})", "b32" if mode == "ballot" else "pred")


def _emit_activemask(e: Emitter, i: ptx.Instruction) -> None:
    call(e, i, "activemask(cx)", "b32")


def _emit_match(e: Emitter, i: ptx.Instruction) -> None:
    value = e.value(i.operands[1], bits(last_type(i)))
    mask = e.value(i.operands[2], "b32")
    if "any" in i.opcode.modifiers:
        call(e, i, f"match_any(cx, {value}, {mask})", "b32")
        return
    both = e.temporary(f"match_all(cx, {value}, {mask})")
    write_pair(e, i.operands[0], "b32", f"{both}[0]", f"{both}[1]")


def _emit_redux(e: Emitter, i: ptx.Instruction) -> None:
    op = next(m for m in ("add", "min", "max", "and", "or", "xor") if m in i.opcode.modifiers)
    t = last_type(i)
    mask = e.value(i.operands[2], "b32")
    if t == "f32":
        modifiers = i.opcode.modifiers
        value = e.value(i.operands[1], "b32")
        tail = f"{'NaN' in modifiers}, {'abs' in modifiers}"
        call(e, i, f"redux_float(cx, {op!r}, {value}, {mask}, {tail})", "b32")
        return
    call(e, i, f"redux(cx, {op!r}, {e.value(i.operands[1], t)}, {mask})", t)


def _emit_elect(e: Emitter, i: ptx.Instruction) -> None:
    both = e.temporary(f"elect(cx, {e.value(i.operands[1], 'b32')})")
    target = i.operands[0]
    if not isinstance(target, ptx.Pair):
        raise Unsupported("elect without two destinations")
    e.write(target.first, "b32", f"{both}[0]")
    e.write(target.second, "pred", f"{both}[1]")


HANDLERS: dict[str, Handler] = {
    "shfl": _emit_shfl,
    "vote": _emit_vote,
    "activemask": _emit_activemask,
    "match": _emit_match,
    "redux": _emit_redux,
    "elect": _emit_elect,
}
