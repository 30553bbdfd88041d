"""Source for branches, calls, barriers and exits.

The scheduler decides control flow. A block only computes the values for that decision: a predicate,
an index, the operands of a barrier. Calls pass parameters through the lanes' local memory, see
`layout`.

Source: PTX ISA 9.0, sections 7 (calling convention), 9.7.12 (control flow), 9.7.13 (barriers).
"""

from __future__ import annotations

from tessera.backend.ptx_executor.emit.block import EXIT, Control, Emitter
from tessera.backend.ptx_executor.emit.integer import Handler
from tessera.backend.ptx_executor.emit.kinds import Unsupported, ValueKind
from tessera.backend.ptx_executor.emit.layout import FunctionLayout, formal_offsets
from tessera.backend.ptx_executor.simt.builtins import BUILTINS
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import branch_targets

_WIDE = ValueKind("u", 8)
_DEVICE_RUNTIME = ("__cudaCDP2", "cudaGetParameterBuffer", "cudaLaunchDevice")


def _emit_bra(e: Emitter, i: ptx.Instruction) -> None:
    target = i.operands[0]
    if not isinstance(target, ptx.Name) or target.name not in e.labels:
        raise Unsupported("branch to something that is not a label")
    finish(e, Control("goto", (e.labels[target.name],)))


def finish(e: Emitter, control: Control) -> None:
    """End the block; a guard sends the other lanes on to the next block."""
    if e.guard is None:
        e.control = control
        return
    if control.kind in ("goto", "exit"):
        there = control.targets[0] if control.targets else EXIT
        e.control = Control("branch", (there, e.after), e.guard)
        return
    if control.kind == "table":
        index = f"np.where({e.guard}, {control.value}, {len(control.targets)})"
        e.control = Control("table", (*control.targets, e.after), index)
        return
    raise Unsupported(f"guarded `{control.kind}`")


def _emit_brx(e: Emitter, i: ptx.Instruction) -> None:
    names = branch_targets(e.layout.flat, i)
    if not names:
        raise Unsupported("table branch without a list of targets")
    index = e.temporary(f"{e.value(i.operands[0], 'u32')}.astype(i8)")
    e.line(f"check_table(cx, {e.site}, {index}, {len(names)}, {e.guard})")
    finish(e, Control("table", tuple(e.labels[name] for name in names), index))


def _emit_ret(e: Emitter, i: ptx.Instruction) -> None:
    if e.layout.is_entry:
        finish(e, Control("exit", (EXIT,)))
        return
    back = e.temporary(f"load(cx, gather_local, {e.site}, {e.frame_address(0)}, 4).astype(i8)")
    if e.guard is None:
        e.control = Control("return", (), back)
    else:
        following = e.program.block_constant(e.after)
        mixed = f"np.where({e.guard}, {back}, {following}.astype(i8))"
        e.control = Control("return", (e.after,), mixed)


def _emit_exit(e: Emitter, i: ptx.Instruction) -> None:
    finish(e, Control("exit", (EXIT,)))


def _emit_trap(e: Emitter, i: ptx.Instruction) -> None:
    e.line(f"trap(cx, {e.site})")
    e.control = Control("exit", (EXIT,))


# --- calls ---------------------------------------------------------------------------------


def call_parts(
    i: ptx.Instruction,
) -> tuple[tuple[ptx.Operand, ...], ptx.Operand, tuple[ptx.Operand, ...], ptx.Operand | None]:
    """Results, callee, arguments and prototype of a call."""
    operands = list(i.operands)
    results: tuple[ptx.Operand, ...] = ()
    first = operands[0]
    if isinstance(first, ptx.Group):
        results = first.elements
        operands.pop(0)
    callee = operands.pop(0)
    arguments: tuple[ptx.Operand, ...] = ()
    if operands and isinstance(operands[0], ptx.Group):
        arguments = operands.pop(0).elements  # type: ignore[union-attr]
    return results, callee, arguments, operands[0] if operands else None


def find_formals(
    e: Emitter, callee: ptx.Operand, prototype: ptx.Operand | None
) -> tuple[tuple[ptx.Variable, ...], tuple[ptx.Variable, ...]]:
    """The formal parameters and results of the callee."""
    if not isinstance(callee, ptx.Name):
        raise Unsupported("call of something that is not a name")
    function = e.program.functions.get(e.program.resolve(callee.name))
    if function is not None:
        return function.parameters, function.returns
    for declared in e.layout.flat.prototypes:
        if isinstance(prototype, ptx.Name) and declared.name == prototype.name:
            return declared.parameters, declared.returns
    if isinstance(prototype, ptx.Name):
        targets = next((t for t in e.layout.flat.targets if t.name == prototype.name), None)
        if targets is not None:
            known = e.program.functions[e.program.resolve(targets.targets[0])]
            return known.parameters, known.returns
    raise Unsupported(f"call of `{callee.name}`: not declared")


def _emit_call(e: Emitter, i: ptx.Instruction) -> None:
    results, callee, arguments, prototype = call_parts(i)
    assert isinstance(callee, ptx.Name)
    name = e.program.resolve(callee.name)
    parameters, _ = find_formals(e, callee, prototype)
    if name in e.program.layouts:
        pass_arguments(e, arguments, parameters, e.program.layouts[name])
        e.control = Control("call", (f"{name}:0",))
    elif callee.name in e.layout.registers:
        pass_arguments(e, arguments, parameters, None)
        target = e.value(callee, "b64")
        e.control = Control("table_call", (), f"find_function(cx, {e.site}, {target})")
    elif name in BUILTINS:
        call_builtin(e, name, arguments, results)
        e.control = Control("goto", (e.after,))
    else:
        if name.startswith(_DEVICE_RUNTIME):
            raise Unsupported(f"call of `{name}`: launches by the device are not supported")
        raise Unsupported(f"call of `{name}`: it has no body")


def frame_of(e: Emitter, operand: ptx.Operand) -> str | None:
    """The local address of a `.param` variable of the caller; None if the operand is a value."""
    place = e.layout.places.get(operand.name) if isinstance(operand, ptx.Name) else None
    if place is None:
        return None
    if place.space != "frame":
        raise Unsupported("argument that is not a `.param` variable")
    return e.frame_address(place.offset)


def pass_arguments(
    e: Emitter,
    arguments: tuple[ptx.Operand, ...],
    parameters: tuple[ptx.Variable, ...],
    callee: FunctionLayout | None,
) -> None:
    """Copy the arguments and the return block into the frame above; move the stack pointer."""
    size = e.program.constant(e.layout.frame_size, _WIDE)
    base = e.frame_address(0)
    above = e.temporary(f"({base} + {size})" if not e.layout.is_entry else size)
    e.line(f"open_frame(cx, {e.site}, {above})")
    places, _ = formal_offsets(parameters, ())
    for argument, formal, (offset, length) in zip(arguments, parameters, places, strict=False):
        if formal.space == "reg":
            pass_register(e, argument, formal, callee)
            continue
        where = f"({above} + {e.program.constant(offset, _WIDE)})"
        source = frame_of(e, argument)
        if source is not None:
            e.line(f"copy_local(cx, {e.site}, {where}, {source}, {length})")
        else:
            value = e.value(argument, f"b{8 * length}")
            e.line(f"store(cx, scatter_local, {e.site}, {where}, {length}, [{value}])")
    back = e.program.block_constant(e.after)
    e.line(f"store(cx, scatter_local, {e.site}, {above}, 4, [{back}])")
    e.write_number(e.program.stack_pointer, _WIDE, above)


def pass_register(
    e: Emitter, argument: ptx.Operand, formal: ptx.Variable, callee: FunctionLayout | None
) -> None:
    """Pass parameters in registers of the callee, as PTX for old targets does."""
    if callee is None:
        raise Unsupported("indirect call with register parameters")
    number, kind = callee.registers[formal.name]
    e.write_number(number, kind, e.value(argument, kind.bits))


def emit_return_point(e: Emitter, i: ptx.Instruction) -> None:
    """After a call: drop the frame above and read the results from it."""
    results, callee, _, prototype = call_parts(i)
    assert isinstance(callee, ptx.Name)
    name = e.program.resolve(callee.name)
    if name not in e.program.layouts and callee.name not in e.layout.registers:
        return
    parameters, returns = find_formals(e, callee, prototype)
    above = e.temporary(e.read_number(e.program.stack_pointer, _WIDE))
    size = e.program.constant(e.layout.frame_size, _WIDE)
    e.write_number(e.program.stack_pointer, _WIDE, f"{above} - {size}")
    _, places = formal_offsets(parameters, returns)
    for result, formal, (offset, length) in zip(results, returns, places, strict=False):
        if formal.space == "reg":
            number, kind = e.program.layouts[name].registers[formal.name]
            e.write(result, kind.bits, e.read_number(number, kind))
            continue
        where = f"({above} + {e.program.constant(offset, _WIDE)})"
        target = frame_of(e, result)
        if target is not None:
            e.line(f"copy_local(cx, {e.site}, {target}, {where}, {length})")
        else:
            text = f"load(cx, gather_local, {e.site}, {where}, {length})"
            e.write(result, f"b{8 * length}", text)


def save_registers(e: Emitter, back: Emitter, numbers: list[int]) -> None:
    """Save live registers in the frame around a call that may re-enter this function.

    The stack pointer has already moved in `e`, and is moved back by the lines of `back`, so
    both reach the frame through its own size.
    """
    kinds = e.program.register_kinds
    restores: list[str] = []
    for number in numbers:
        slot = e.layout.save_slots.get(number)
        if slot is None:
            continue
        kind = kinds[number]
        below = e.program.constant(slot - e.layout.frame_size, _WIDE)
        pointer = f"r{e.program.stack_pointer}u"
        variable = e.read_number(number, kind)
        width = max(kind.width, 1)
        shown = f"{variable}.view(u1)" if kind.form == "p" else variable
        e.line(f"store(cx, scatter_local, {e.site}, {pointer} + {below}, {width}, [{shown}])")
        loaded = f"load(cx, gather_local, {back.site}, {pointer} + {below}, {width})"
        tail = ".view(b1)" if kind.form == "p" else ""
        home = f"r{number}{'p' if kind.form == 'p' else 'u'}"
        restores.append(f"{home} = {loaded}{tail}")
        back.ins.pop(number, None)
        if number not in back.defined:
            back.defined[number] = None
            back.current[number] = {home[-1]: home}
    back.ins.setdefault(e.program.stack_pointer, f"r{e.program.stack_pointer}u")
    back.lines[:0] = restores


def call_builtin(
    e: Emitter, name: str, arguments: tuple[ptx.Operand, ...], results: tuple[ptx.Operand, ...]
) -> None:
    """Functions that the driver provides: printf, assert, malloc, free."""
    sizes, result_size = BUILTINS[name]
    values: list[str] = []
    for argument, length in zip(arguments, sizes, strict=True):
        address = frame_of(e, argument)
        if address is None:
            values.append(e.value(argument, f"b{8 * length}"))
        else:
            values.append(f"load(cx, gather_local, {e.site}, {address}, {length})")
    made = e.temporary(f"builtin_{name}(cx, {e.site}, {', '.join(values)})")
    for result in results:
        address = frame_of(e, result)
        if address is None:
            e.write(result, f"b{8 * result_size}", made)
        else:
            e.line(f"store(cx, scatter_local, {e.site}, {address}, {result_size}, [{made}])")


# --- barriers ------------------------------------------------------------------------------


def _emit_barrier(e: Emitter, i: ptx.Instruction) -> None:
    modifiers = i.opcode.modifiers
    if "warp" in modifiers:
        return
    if "cluster" in modifiers:
        _emit_cluster_barrier(e, i)
        return
    action = next((m for m in ("sync", "arrive", "red") if m in modifiers), "sync")
    operands = list(i.operands)
    target: ptx.Operand | None = None
    predicate = "None"
    operation = ""
    if action == "red":
        operation = next(m for m in ("popc", "and", "or") if m in modifiers)
        target = operands.pop(0)
        predicate = e.value(operands.pop(), "pred")
    number = e.value(operands[0], "u32") if operands else e.program.constant(0, ValueKind("u", 4))
    count = e.value(operands[1], "u32") if len(operands) > 1 else "None"
    register = -1
    if target is not None and isinstance(target, ptx.Name):
        register = e.register(target.name)[0]
        e.read_number(register, e.program.register_kinds[register])
        e.defined[register] = None
        e.program.always_out.add(register)
    value = f"({action!r}, {number}, {count}, {predicate}, {operation!r}, {register})"
    e.control = Control("barrier", (e.after,), value)


def _emit_cluster_barrier(e: Emitter, i: ptx.Instruction) -> None:
    action = "arrive" if "arrive" in i.opcode.modifiers else "wait"
    e.control = Control("cluster_barrier", (e.after,), repr(action))


def _emit_nanosleep(e: Emitter, i: ptx.Instruction) -> None:
    e.polls = True
    e.line(f"sleep(cx, {e.value(i.operands[0], 'u32')}, {e.guard})")


HANDLERS: dict[str, Handler] = {
    "bra": _emit_bra,
    "brx": _emit_brx,
    "ret": _emit_ret,
    "exit": _emit_exit,
    "trap": _emit_trap,
    "call": _emit_call,
    "%return": emit_return_point,
    "bar": _emit_barrier,
    "barrier": _emit_barrier,
    "nanosleep": _emit_nanosleep,
}
