"""How many registers a thread of a kernel needs: the most that are live at once.

In: a function's instructions in a row. Out: 32-bit registers, an estimate: PTX has as many as it
likes, and the compiler to machine code orders instructions anew. Values are live from where they
are written to where they are last read, by data flow over the branches; of that, kernels of
`benchmarks/prediction/h200_cases.py` take about 0.85. Predicates have registers of their own.
"""

from __future__ import annotations

from tessera.ir.opcodes import type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.passes.kernel_facts.operand_names import registers_in
from tessera.planning.prices.deciding import targets

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
        # What a matrix instruction adds to stands twice, or is its target alone.
        seen = [name for name in used if name not in written or used.count(name) > 1]
        reads.append(names.bits(seen))
        writes.append(names.bits(written) if statement.guard is None else 0)
    live = _flow(code, reads, writes, jumps)
    most = max((names.registers(one) for one in live), default=0.0)
    return min(_MOST, int(_PART * (most + _KEPT)))


def _flow(
    code: list[ptx.Instruction], reads: list[int], writes: list[int], jumps: dict[int, int]
) -> list[int]:
    """What is live before each instruction: backwards until nothing changes."""
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
        """The set of these names; what is no register, or a predicate, is left out."""
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
