"""Registers of a kernel's threads: how many are live, and which decide the path.

In: a function's instructions in order. Out: an estimate of 32-bit registers: PTX has unlimited
registers, and the compiler to machine code reorders instructions. Values are live from where they
are written to where they are last read, by data flow over the branches; of that, kernels of
`benchmarks/prediction/h200_cases.py` take about 0.85. Predicates have registers of their own.

Also the names that guards, sizes of copies and descriptors of matrix instructions are computed
from; and the indices (lane, warp, three of the CTA) among them, by data flow without regard to
order: if no guard depends on an index, threads that differ in it take the same path, since up to
the first guard that differs they do the same.
"""

from __future__ import annotations

from tessera.ir.opcodes import meaning_of, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.operand_names import registers_in, written_registers
from tessera.planning.prices.integer_values import integer_function
from tessera.planning.prices.work_effects import Effect

LANE, WARP, CTA_X, CTA_Y, CTA_Z = 1, 2, 4, 8, 16
_CTA = {"x": CTA_X, "y": CTA_Y, "z": CTA_Z}


def deciding(code: list[ptx.Instruction], effects: list[Effect]) -> frozenset[str]:
    """The registers that guards and sizes are computed from."""
    sources: dict[str, set[str]] = {}
    pending: list[str] = []
    for statement, effect in zip(code, effects, strict=True):
        if statement.guard is not None:
            pending.append(statement.guard.register)
        if effect.size is not None:
            pending.extend(registers_in(effect.size))
        for name in targets(statement):
            sources.setdefault(name, set()).update(_read_names(statement))
    found: set[str] = set()
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            pending.extend(sources.get(name, ()))
    return frozenset(found)


def targets(statement: ptx.Instruction) -> tuple[str, ...]:
    """The registers that an instruction may write."""
    meaning = meaning_of(statement)
    if meaning is not None and meaning.fits:
        return written_registers(statement, meaning)
    return registers_in(statement.operands[0]) if statement.operands else ()


def packed(statement: ptx.Instruction) -> tuple[str, ...]:
    """Names for the parts of a register that `mov` puts together: each may be known alone."""
    if statement.opcode.name != "mov" or len(statement.operands) != 2:
        return ()
    target, source = statement.operands
    if not isinstance(target, ptx.Name) or not isinstance(source, ptx.Vector):
        return ()
    return tuple(f"{target.name}#{n}" for n in range(len(source.elements)))


def computes(statement: ptx.Instruction) -> bool:
    """Whether the value that an instruction makes may be known."""
    opcode = statement.opcode
    if opcode.name in ("ld", "elect", "shfl", "mbarrier"):
        return True
    return integer_function(opcode) is not None


def _read_names(statement: ptx.Instruction) -> set[str]:
    """The names from which an instruction computes its result; empty if the result is unknown."""
    if not computes(statement) or statement.opcode.name == "ld":
        return set()
    return {name for operand in statement.operands[1:] for name in registers_in(operand)}


def axes(code: list[ptx.Instruction], effects: list[Effect]) -> int:
    """The indices that guards and sizes may depend on."""
    marks: dict[str, int] = {}
    plain: set[str] = set()  # registers that hold the thread index itself
    written = [(statement, targets(statement)) for statement in code]
    changed = True
    while changed:
        changed = False
        for statement, names in written:
            mark = _mark(statement, names, marks, plain)
            for name in names:
                if mark & ~marks.get(name, 0):
                    marks[name] = marks.get(name, 0) | mark
                    changed = True
    found = 0
    for statement, effect in zip(code, effects, strict=True):
        if statement.guard is not None:
            found |= marks.get(statement.guard.register, 0)
        if effect.size is not None:
            for name in registers_in(effect.size):
                found |= marks.get(name, 0)
    return found


def _mark(
    statement: ptx.Instruction,
    names: tuple[str, ...],
    marks: dict[str, int],
    plain: set[str],
) -> int:
    name = statement.opcode.name
    if name == "elect":
        return LANE
    sources = statement.operands[1:]
    mark = 0
    for operand in sources:
        for register in registers_in(operand):
            mark |= marks.get(register, 0)
        if isinstance(operand, ptx.Name):
            mark |= _special(operand)
    first = sources[0] if sources else None
    if isinstance(first, ptx.Name) and name in ("mov", "shr") and len(statement.operands) > 1:
        is_index = (first.name == "%tid" and first.component == "x") or first.name in plain
        if is_index and name == "mov":
            plain.update(names)
        by = sources[1] if len(sources) > 1 else None
        if is_index and name == "shr" and isinstance(by, ptx.Integer) and by.value >= 5:
            return WARP
    return mark


def _special(operand: ptx.Name) -> int:
    match operand.name:
        case "%tid":
            return LANE | WARP
        case "%laneid":
            return LANE
        case "%warpid":
            return WARP
        case "%ctaid":
            return _CTA.get(operand.component or "", 0)
        case "%clusterid" | "%cluster_ctaid":
            return _CTA.get(operand.component or "", 0)
        case "%cluster_ctarank":
            return CTA_X | CTA_Y | CTA_Z
    return 0


_MOST = 255
_KEPT = 8  # addresses, the stack, what the compiler keeps
_PART = 0.85


def live_registers(
    function: ptx.Function, code: list[ptx.Instruction], jumps: dict[int, int]
) -> int:
    """The registers of a thread; `jumps` are branches and where they go."""
    names = _LiveNames(function)
    reads, writes = [], []
    for statement in code:
        written = targets(statement)
        used = [name for operand in statement.operands for name in registers_in(operand)]
        # The accumulator of a matrix instruction appears twice, or only as its target.
        seen = [name for name in used if name not in written or used.count(name) > 1]
        reads.append(names.bits(seen))
        writes.append(names.bits(written) if statement.guard is None else 0)
    live = _flow(code, reads, writes, jumps)
    most = max((names.registers(one) for one in live), default=0.0)
    return min(_MOST, int(_PART * (most + _KEPT)))


def _flow(
    code: list[ptx.Instruction], reads: list[int], writes: list[int], jumps: dict[int, int]
) -> list[int]:
    """The live set before each instruction: backward data flow to a fixed point."""
    live = [0] * (len(code) + 1)
    changed = True
    while changed:
        changed = False
        for at in range(len(code) - 1, -1, -1):
            after = live[at + 1]
            plain = code[at].guard is None
            if at in jumps:
                target = live[min(jumps[at], len(code))]
                after = target if plain else target | after
            elif plain and code[at].opcode.name in ("ret", "exit"):
                after = 0
            found = reads[at] | (after & ~writes[at])
            if found != live[at]:
                live[at] = found
                changed = True
    return live


class _LiveNames:
    """A bit for each register, and how wide it is. Private and mutable."""

    def __init__(self, function: ptx.Function) -> None:
        self.single: dict[str, int] = {}
        self.many: dict[str, int] = {}
        self.places: dict[str, int] = {}
        self.masks: dict[int, int] = {}
        for statement in ptx.walk_statements(function.body or ()):
            if isinstance(statement, ptx.Variable) and statement.space == "reg":
                width = 0 if statement.type.endswith("pred") else type_bits(statement.type)
                kind = self.single if statement.count is None else self.many
                kind[statement.name] = width * (statement.vector or 1)

    def bits(self, given: list[str] | tuple[str, ...]) -> int:
        """The set of these names, without predicates and names that are not registers."""
        found = 0
        for name in given:
            if name not in self.places:
                width = self.single.get(name) or self.many.get(name.rstrip("0123456789"), 0)
                self.places[name] = 1 << len(self.places) if width else 0
                self.masks[width] = self.masks.get(width, 0) | self.places[name]
            found |= self.places[name]
        return found

    def registers(self, members: int) -> float:
        """Registers of 32 bits that a set takes."""
        return sum(width / 32 * (members & mask).bit_count() for width, mask in self.masks.items())
