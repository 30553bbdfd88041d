"""Source for asynchronous copies and mbarriers; see `async_copy`, `mbarrier`, `tensor_copy`."""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import Emitter
from tessera.backend.ptx_executor.emit.data import space_of
from tessera.backend.ptx_executor.emit.integer import Handler, bits, last_type
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind, kind_of
from tessera.ir.program.tensor_map import FIELDS
from tessera.ir.ptx import syntax as ptx

_REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_SPACES = {"global": "global", "shared::cta": "shared", "shared::cluster": "shared"}


def _emit_cp(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if "bulk" in modifiers:
        _emit_bulk(e, i)
    elif modifiers[1] in ("commit_group", "wait_group", "wait_all"):
        return
    elif "mbarrier" in modifiers:
        if "noinc" in modifiers:
            address, _ = e.address(i.operands[0], "shared")
            arrivals = e.program.constant(1, ValueKind("u", 4))
            e.line(f"mbarrier.arrive(cx, {e.site}, {address}, {arrivals}, None, False, {e.guard})")
    else:
        _emit_small(e, i)


def _emit_small(e: Emitter, i: ptx.Instruction) -> None:
    target, _ = e.address(i.operands[0], "shared")
    source, _ = e.address(i.operands[1], "global")
    size = e.integer(i.operands[2])
    hinted = any("cache_hint" in m for m in i.opcode.modifiers)
    extra = list(i.operands[3:])
    if hinted:
        extra.pop()
    from_size = ignore = "None"
    for operand in extra:
        name = operand.operand if isinstance(operand, ptx.Not) else operand
        register = e.layout.registers.get(name.name) if isinstance(name, ptx.Name) else None
        if register is not None and register[1].form == "p":
            ignore = e.value(operand, "pred")
        else:
            from_size = e.value(operand, "u32")
    places = f"{target}, {source}, {size}, {from_size}, {ignore}, {e.guard}"
    e.line(f"copy_small(cx, {e.site}, {places})")


def _spaces_of(i: ptx.Instruction) -> tuple[str, str]:
    """The destination and source spaces of a bulk copy."""
    named = [_SPACES[m] for m in i.opcode.modifiers if m in _SPACES]
    if len(named) < 2:
        raise Unsupported("bulk copy without two state spaces")
    return named[0], named[1]


def _emit_bulk(e: Emitter, i: ptx.Instruction) -> None:
    """cp.async.bulk, and cp.reduce.async.bulk, which combines instead of overwriting."""
    modifiers = i.opcode.modifiers
    if any(m in modifiers for m in ("commit_group", "wait_group", "prefetch")):
        return
    op = next(m for m in _REDUCTIONS if m in modifiers) if "reduce" in modifiers else None
    if "tensor" in modifiers:
        _emit_tensor(e, i, op)
        return
    spaces = _spaces_of(i)
    target, _ = e.address(i.operands[0], spaces[0])
    source, _ = e.address(i.operands[1], spaces[1])
    if "cp_mask" in modifiers:
        raise Unsupported("bulk copy with a byte mask")
    size = e.value(i.operands[2], "u32")
    rest = list(i.operands[3:])
    barrier = mask = "None"
    if any(m.startswith("mbarrier") for m in modifiers):
        barrier, _ = e.address(rest.pop(0), "shared")
    if "multicast::cluster" in modifiers:
        mask = e.value(rest.pop(0), "u16")
    reduction = None if op is None else (op, modifiers[-1])
    places = f"{spaces!r}, {target}, {source}, {size}, {barrier}, {mask}, {reduction!r}, {e.guard}"
    e.line(f"copy_bulk(cx, {e.site}, {places})")


def _emit_tensor(e: Emitter, i: ptx.Instruction, op: str | None = None) -> None:
    """cp.async.bulk.tensor in tile mode, loads and stores, and its reducing form."""
    modifiers = i.opcode.modifiers
    if any(m.startswith("im2col") for m in modifiers) or any("gather4" in m for m in modifiers):
        raise Unsupported("tensor copy that is not in tile mode")
    loads = "global" in modifiers and modifiers.index("global") > min(
        modifiers.index(m) for m in modifiers if m.startswith("shared")
    )
    if loads:
        memory, tensor = i.operands[0], i.operands[1]
    else:
        tensor, memory = i.operands[0], i.operands[1]
    address, _ = e.address(memory, "shared")
    if not isinstance(tensor, ptx.Address) or len(tensor.parts) < 2:
        raise Unsupported("tensor copy without coordinates")
    map_address, space = e.address(ptx.Address(tensor.parts[:1]), "generic")
    place = tensor.parts[1]
    elements = place.elements if isinstance(place, ptx.Vector) else (place,)
    coordinates = ", ".join(e.value(o, "s32") for o in elements)
    rest = list(i.operands[2:])
    barrier = mask = "None"
    if loads:
        barrier, _ = e.address(rest.pop(0), "shared")
        if "multicast::cluster" in modifiers:
            mask = e.value(rest.pop(0), "u16")
        where = f"{address}, {space!r}, {map_address}, [{coordinates}]"
        e.line(f"load_tensor(cx, {e.site}, {where}, {barrier}, {mask}, {e.guard})")
    else:
        where = f"{address}, {space!r}, {map_address}, [{coordinates}]"
        e.line(f"store_tensor(cx, {e.site}, {where}, {op!r}, {e.guard})")


# --- mbarrier ------------------------------------------------------------------------------


def _emit_mbarrier(e: Emitter, i: ptx.Instruction) -> None:
    action = i.opcode.modifiers[0]
    handler = _ACTIONS.get(action)
    if handler is None:
        raise Unsupported(f"mbarrier.{action}")
    handler(e, i)


def _emit_init(e: Emitter, i: ptx.Instruction) -> None:
    address, _ = e.address(i.operands[0], _barrier_space(i))
    count = e.value(i.operands[1], "u32")
    e.line(f"mbarrier.init(cx, {e.site}, {address}, {count}, {e.guard})")


def _barrier_space(i: ptx.Instruction) -> str:
    space = space_of(i)
    return "shared" if space == "shared" else "generic"


def _emit_inval(e: Emitter, i: ptx.Instruction) -> None:
    address, _ = e.address(i.operands[0], _barrier_space(i))
    e.line(f"mbarrier.invalidate(cx, {e.site}, {address}, {e.guard})")


def _emit_arrive(e: Emitter, i: ptx.Instruction) -> None:
    operands = list(i.operands)
    target = operands.pop(0) if not isinstance(operands[0], ptx.Address) else None
    address, _ = e.address(operands[0], _barrier_space(i))
    single = e.program.constant(1, ValueKind("u", 4))
    extra = e.value(operands[1], "u32") if len(operands) > 1 else None
    drop = i.opcode.modifiers[0] == "arrive_drop"
    if "expect_tx" in i.opcode.modifiers:
        count, expect = single, extra or "None"
    else:
        count, expect = extra or single, "None"
    text = f"mbarrier.arrive(cx, {e.site}, {address}, {count}, {expect}, {drop}, {e.guard})"
    if target is None or isinstance(target, ptx.Sink):
        e.line(text)
    else:
        e.write(target, "b64", text)


def _emit_expect(e: Emitter, i: ptx.Instruction) -> None:
    address, _ = e.address(i.operands[0], _barrier_space(i))
    size = e.value(i.operands[1], "u32")
    sign = 1 if i.opcode.modifiers[0] == "expect_tx" else -1
    e.line(f"mbarrier.expect_bytes(cx, {e.site}, {address}, {size}, {sign}, {e.guard})")


def _emit_wait(e: Emitter, i: ptx.Instruction) -> None:
    e.polls = True
    parity = "parity" in i.opcode.modifiers
    address, _ = e.address(i.operands[1], _barrier_space(i))
    state = e.value(i.operands[2], "b32" if parity else "b64")
    text = f"mbarrier.test_wait(cx, {e.site}, {address}, {state}, {parity}, {e.guard})"
    e.write(i.operands[0], "pred", text)


def _emit_pending(e: Emitter, i: ptx.Instruction) -> None:
    e.write(i.operands[0], "b32", f"mbarrier.pending_count({e.value(i.operands[1], 'b64')})")


_ACTIONS: dict[str, Handler] = {
    "init": _emit_init,
    "inval": _emit_inval,
    "arrive": _emit_arrive,
    "arrive_drop": _emit_arrive,
    "expect_tx": _emit_expect,
    "complete_tx": _emit_expect,
    "test_wait": _emit_wait,
    "try_wait": _emit_wait,
    "pending_count": _emit_pending,
}

# --- tensor maps, and stores that signal -----------------------------------------------------


def _emit_tensormap(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if modifiers[0] == "cp_fenceproxy":
        target, _ = e.address(i.operands[0], "global")
        source, _ = e.address(i.operands[1], "shared")
        e.line(f"copy_map(cx, {e.site}, {target}, {source})")
        return
    field = next((m for m in modifiers if m in FIELDS), None)
    if modifiers[0] != "replace" or field is None:
        raise Unsupported(f"tensormap.{modifiers[0]}")
    address, space = e.address(i.operands[0], space_of(i))
    ordinal = e.integer(i.operands[1]) if len(i.operands) == 3 else 0
    value = e.value(i.operands[-1], modifiers[-1])
    places = f"{space!r}, {address}, {field!r}, {ordinal}, {value}, {e.guard}"
    e.line(f"replace_map(cx, {e.site}, {places})")


def emit_store_async(e: Emitter, i: ptx.Instruction) -> None:
    """st.async: store into another CTA's shared memory and signal its mbarrier."""
    t = bits(last_type(i))
    width = kind_of(t).width
    address, _ = e.address(i.operands[0], "shared")
    source = i.operands[1]
    elements = source.elements if isinstance(source, ptx.Vector) else (source,)
    values = ", ".join(e.value(element, t) for element in elements)
    barrier, _ = e.address(i.operands[2], "shared")
    e.line(f"store(cx, scatter_shared, {e.site}, {address}, {width}, [{values}], {e.guard})")
    size = e.program.constant(width * len(elements), ValueKind("u", 4))
    e.line(f"mbarrier.expect_bytes(cx, {e.site}, {barrier}, {size}, -1, {e.guard})")


HANDLERS: dict[str, Handler] = {
    "cp": _emit_cp,
    "mbarrier": _emit_mbarrier,
    "tensormap": _emit_tensormap,
}
