"""The 64-bit words of a kernel's parameters that it uses as a base of addresses.

In: a module and a kernel. Out: per parameter the byte offsets of such words; None if any word may
be a base. Callers use this to tell pointers from numbers in raw argument bytes: a word that looks
like an address but never reaches an address operand in the code is a number.

A word is followed through copies, sums, selections, bit operations, arguments of calls and memory
to the address operand of an access. A word that is stored counts too, since it may be loaded again
as an address. Products and shifts stop the search, because a stride is not a base; so does
arithmetic on floats. A word in memory may come back from every load that may be of that state
space. The results of an instruction that is not understood, and what it stores, may be any of its
operands. The result errs towards "base", so callers also check whether the value points into an
allocation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tessera.ir.opcodes import Meaning, OperandRole, meaning_of
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type, type_bits
from tessera.passes.kernel_facts.inline_calls import inline_calls
from tessera.passes.kernel_facts.operand_names import (
    known_meaning,
    place_of,
    readers_of,
    registers_in,
    results_in,
    written_registers,
)

Word = tuple[str, int | None]
"""A parameter and a byte offset in it; the offset is None if it is unknown."""

_ADDRESSES = frozenset(
    {
        OperandRole.ADDRESS,
        OperandRole.MBARRIER,
        OperandRole.TENSOR_MAP,
        OperandRole.TEXTURE,
        OperandRole.SURFACE,
    }
)
_SEEN = frozenset({"global", "generic"})
_MOVERS = frozenset({"st", "atom", "red", "tensormap", "mov", "cvt", "ld"})
_ENDS = frozenset({"mul", "mul24", "shl", "shr", "div", "rem", "setp", "set", "popc", "clz"})


def base_words(module: ptx.Module, function: ptx.Function) -> dict[str, frozenset[int] | None]:
    """The words of each parameter that reach an address."""
    flat = inline_calls(module, function)
    names = frozenset(parameter.name for parameter in function.parameters)
    taints, reached = _carried(flat.instructions, names, floats=False)
    used: set[Word] = set()
    for index, meaning in reached.items():
        used.update(_addressed(flat.instructions[index], meaning, names, taints))
    return {
        name: None
        if (name, None) in used
        else frozenset(o for n, o in used if n == name and o is not None)
        for name in (parameter.name for parameter in function.parameters)
    }


def stored_words(
    module: ptx.Module, function: ptx.Function
) -> list[tuple[ptx.Instruction, frozenset[Word]]]:
    """The instructions that store words of parameters in memory that others can see, and the words;
    a call that is not followed may store all that it is given.

    These are the same words as in `base_words`, sums with them included: once stored, they are
    data.
    """
    body = function.body or ()
    written = [
        statement
        for statement in ptx.walk_statements(body)
        if isinstance(statement, ptx.Instruction)
    ]
    has_calls = any(instruction.opcode.name == "call" for instruction in written)
    # `written` counts registers of equal name in different scopes as one register, so the quick
    # check may find too many words, but never misses one.
    if not has_calls and not (_moves_words(written, function) and _stored(written, function)):
        return []
    return _stored(inline_calls(module, function).instructions, function)


def _moves_words(instructions: Sequence[ptx.Instruction], function: ptx.Function) -> bool:
    """Whether a 64-bit word can leave its kernel at all, whole or in parts.

    This check is fast, and the answer is no for most kernels.
    """
    narrow = frozenset(
        p.name for p in function.parameters if not p.dimensions and type_bits(p.type) <= 32
    )
    return any(
        (instruction.opcode.name in _MOVERS and _moves_word(instruction, narrow))
        or meaning_of(instruction) is None
        for instruction in instructions
    )


def _moves_word(instruction: ptx.Instruction, narrow: frozenset[str]) -> bool:
    """Whether an instruction stores 64 bits at a time, or makes a shorter value of a longer one."""
    types = [type_bits(m) for m in instruction.opcode.modifiers if is_type(m)]
    match instruction.opcode.name:
        case "st" | "atom" | "red" | "tensormap":
            return not types or types[-1] > 32
        case "mov":
            return isinstance(instruction.operands[0], ptx.Vector)
        case "cvt":
            return len(types) < 2 or types[-2] < types[-1] == 64
        case "ld" if any(m.startswith("param") for m in instruction.opcode.modifiers):
            is_short = not types or types[-1] < 64
            return is_short and place_of(instruction.operands[1])[0] not in narrow
        case _:
            return False


def _stored(
    instructions: Sequence[ptx.Instruction], function: ptx.Function
) -> list[tuple[ptx.Instruction, frozenset[Word]]]:
    names = frozenset(parameter.name for parameter in function.parameters)
    taints, reached = _carried(instructions, names)
    stores = []
    for index, meaning in sorted(reached.items()):
        instruction = instructions[index]
        is_call = instruction.opcode.name == "call"
        if not is_call and not any(e.access.writes and e.space in _SEEN for e in meaning.effects):
            continue
        is_copy = len(meaning.effects) > 1
        places = _memory(instruction, meaning) if is_call or is_copy else ()
        words = frozenset[Word]().union(*(taints.get(place, ()) for place in places))
        for role, operand in zip(meaning.roles, instruction.operands, strict=False):
            if role is OperandRole.SOURCE or not meaning.fits:
                words = words.union(*(taints.get(name, ()) for name in registers_in(operand)))
        if words:
            stores.append((instruction, words))
    return stores


def _carried(
    instructions: Sequence[ptx.Instruction], names: frozenset[str], *, floats: bool = True
) -> tuple[dict[str, frozenset[Word]], dict[int, Meaning]]:
    """The words that each register may carry, and the instructions that they reach.

    Without `floats` a number that was converted to a float carries no word: it depends on an
    address but is not an address.
    """
    users = readers_of(instructions)
    meanings = [known_meaning(instruction) for instruction in instructions]
    for index, instruction in enumerate(instructions):
        for place in _memory(instruction, meanings[index]):
            users.setdefault(place, []).append(index)
    taints: dict[str, frozenset[Word]] = {}
    reached: dict[int, Meaning] = {}
    pending = [index for name in names for index in users.get(name, ())]
    while pending:
        index = pending.pop()
        instruction = instructions[index]
        reached[index] = meanings[index]
        if not floats and _makes_float(instruction):
            continue
        for name, words in _flow(instruction, reached[index], names, taints):
            old = taints.get(name, frozenset())
            if not words <= old:
                taints[name] = old | words
                pending += users.get(name, ())
    return taints, reached


def _makes_float(instruction: ptx.Instruction) -> bool:
    types = [modifier for modifier in instruction.opcode.modifiers if is_type(modifier)]
    moves = instruction.opcode.name in ("mov", "ld", "st")
    return bool(types) and not moves and types[0].startswith(("f", "bf", "tf"))


def _is_parameter_load(instruction: ptx.Instruction) -> bool:
    modifiers = instruction.opcode.modifiers
    return instruction.opcode.name == "ld" and any(m.startswith("param") for m in modifiers)


def _memory(instruction: ptx.Instruction, meaning: Meaning) -> Iterator[str]:
    """What stands for the memory that an instruction may access: the variables of arguments and
    results, or state spaces."""
    spaces = {effect.space for effect in meaning.effects}
    if instruction.opcode.name == "call":
        spaces.add("generic")
        yield from (
            f"@{name}" for operand in instruction.operands for name in registers_in(operand)
        )
    if "generic" in spaces:
        yield from ("@local", "@shared", "@global")
    elif "global" in spaces:
        yield "@global"
    for modifier in instruction.opcode.modifiers:
        if modifier.startswith("param"):
            operands = instruction.operands
            yield from (f"@{place_of(o)[0]}" for o in operands if isinstance(o, ptx.Address))
        elif modifier.startswith(("local", "shared")):
            yield f"@{modifier.partition(':')[0]}"


def _flow(
    instruction: ptx.Instruction,
    meaning: Meaning,
    names: frozenset[str],
    taints: dict[str, frozenset[Word]],
) -> Iterator[tuple[str, frozenset[Word]]]:
    """The words that each written register, and memory of the launch's own, may carry."""
    if _is_parameter_load(instruction):
        yield from _loaded(instruction, names, taints)
        return
    opcode = instruction.opcode.name
    is_memory = bool(meaning.effects) or opcode == "call"
    places = [*_memory(instruction, meaning)] if is_memory else []
    if meaning.fits and (opcode in _ENDS or (meaning.effects and not places)):
        return
    sources = [
        operand
        for place, (role, operand) in enumerate(
            zip(meaning.roles, instruction.operands, strict=False)
        )
        if role
        in {
            OperandRole.SOURCE,
            OperandRole.DESTINATION_SOURCE,
            OperandRole.ADDRESS,
            OperandRole.UNKNOWN,
        }
        and not (opcode == "mad" and place < 3 and meaning.fits)
        and not (places and role is OperandRole.ADDRESS and meaning.fits)
    ]
    words = frozenset[Word]().union(*(taints.get(place, ()) for place in places))
    for operand in sources:
        for name in registers_in(operand):
            words |= taints.get(name, frozenset())
            if name in names:
                words |= {(name, None)}
    if words:
        for name in (*written_registers(instruction, meaning), *places):
            yield name, words


def _loaded(
    instruction: ptx.Instruction, names: frozenset[str], taints: dict[str, frozenset[Word]]
) -> Iterator[tuple[str, frozenset[Word]]]:
    """`ld.param`: the word at a known offset, or any word of the parameter in the address."""
    target, source = instruction.operands[:2]
    types = [type_bits(m) for m in instruction.opcode.modifiers if is_type(m)]
    registers = list(results_in(target))
    direct, offset = place_of(source)
    for place, register in enumerate(registers):
        if direct in names:
            at = offset + place * types[-1] // 8 if types and offset is not None else None
            yield register, frozenset({(direct, at)})
        else:
            through: frozenset[Word] = frozenset()
            for name in registers_in(source):
                through |= taints.get(name, frozenset())
            given = taints.get(f"@{direct}", frozenset())
            yield register, given.union((name, None) for name, _ in through)


def _addressed(
    instruction: ptx.Instruction,
    meaning: Meaning,
    names: frozenset[str],
    taints: dict[str, frozenset[Word]],
) -> Iterator[Word]:
    """The words in the address operands of an instruction, and the words that it stores."""
    if _is_parameter_load(instruction):
        return
    for role, operand in zip(meaning.roles, instruction.operands, strict=False):
        whole = role is OperandRole.TENSOR_MAP
        kept = instruction.opcode.name == "st" and role is OperandRole.SOURCE
        if (
            role not in _ADDRESSES
            and not kept
            and not (role is OperandRole.UNKNOWN and meaning.effects)
        ):
            continue
        first = operand.parts[:1] if isinstance(operand, ptx.Address) else (operand,)
        for part in first:
            for name in registers_in(part):
                for word, offset in taints.get(name, ()):
                    yield word, 0 if whole and offset is None else offset
                if name in names and whole:
                    yield name, 0
