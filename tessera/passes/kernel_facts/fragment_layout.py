"""Kernels whose results depend on how `wmma` lays fragments out.

In: a module and a kernel. Out: the first instruction that shows it, or None. PTX does not say which
element of a matrix a lane's register holds after `wmma.load` and `wmma.mma`; it differs from GPU to
GPU, and the CPU backend has a layout of its own. Fragments may go to `wmma.mma` and `wmma.store`,
and all elements of one may be changed alike. Anything else depends on the layout: storing the
registers, handing them to other lanes or to `mma.sync`, adding up elements, changing only some,
making fragments of other values. What `mma.sync` takes and gives is specified.

`fragment_slice` says which instructions matter, `fragment_values` what registers hold; that is
followed along the flow of control until nothing changes. Where lanes part at a branch, what they
change on the way to its end counts as changed by a condition, unless `wmma` is used there: then all
lanes take the branch alike. It is a hint for people, no proof: values are not followed through
shared memory, nor through local memory whose address is computed (code without optimisation).

Source: PTX ISA 9.0, section 9.7.14.4 (wmma).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.diagnostics import Diagnostic, warning
from tessera.ir.program import program as ir
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.control_flow import build_control_flow
from tessera.ir.ptx.flatten import FlatFunction
from tessera.passes.kernel_facts.fragment_slice import between, fragment_slice
from tessera.passes.kernel_facts.fragment_steps import FragmentSteps, State, Use
from tessera.passes.kernel_facts.fragment_values import JOINED, FragmentValue, Holds, combine, join
from tessera.passes.kernel_facts.inline_calls import inline_calls

_MOST_ROUNDS = 50


@dataclass(frozen=True, slots=True)
class LayoutUse:
    """The instruction that uses the layout, and how, in words."""

    instruction: ptx.Instruction
    how: str


def find_layout_use(module: ptx.Module, function: ptx.Function) -> LayoutUse | None:
    """The first use of the layout of fragments, in the order of the text."""
    flat = inline_calls(module, function)
    if not any(instruction.opcode.name == "wmma" for instruction in flat.instructions):
        return None
    uses = _FragmentWalk(flat).uses()
    if not uses:
        return None
    index = min(uses)
    return LayoutUse(flat.instructions[index], uses[index])


def layout_warnings(program: ir.Program) -> Iterator[Diagnostic]:
    """A warning for each kernel that uses the layout: those launched, or all of plain PTX."""
    launched = {(step.module, step.kernel) for step in program.launches()}
    for module in program.modules:
        told: set[str] = set()
        for variant in module.variants:
            if variant.text and "wmma" not in variant.text:
                continue
            for kernel in variant.ptx.kernels():
                wanted = not launched or (module.id, kernel.name) in launched
                if kernel.name in told or kernel.body is None or not wanted:
                    continue
                use = find_layout_use(variant.ptx, kernel)
                if use is not None:
                    told.add(kernel.name)
                    yield _finding(f"{module.name}.{kernel.name}", variant.ptx, use)


def _finding(name: str, module: ptx.Module, use: LayoutUse) -> Diagnostic:
    opcode = use.instruction.opcode
    return warning(
        "TSR2016",
        f"`{name}` depends on how `wmma` lays fragments out: {use.how}",
        module.span(use.instruction.at, len(str(opcode))),
        "which element of the matrix this is differs from GPU to GPU",
        notes=("the CPU backend has a layout of its own, so results differ from those of a GPU",),
        hint="write fragments with `wmma.store`, or use `mma.sync`, whose layout is specified",
    )


class _FragmentWalk:
    """The values of registers at the start of each block, until they are stable."""

    def __init__(self, flat: FlatFunction) -> None:
        self.flat = flat
        self.flow = build_control_flow(flat)
        self.steps = FragmentSteps(flat)
        matters = fragment_slice(flat, self.flow, self.steps.meanings)
        self.indices = [
            [index for index in range(block.start, block.end) if index in matters]
            for block in self.flow.blocks
        ]
        self.before: dict[int, State] = {0: {}}
        self.conditions: dict[int, FragmentValue] = {}

    def uses(self) -> dict[int, str]:
        """The instructions that use the layout, with how."""
        for _ in range(_MOST_ROUNDS):
            if not self._round():
                break
        layout_uses: list[Use] = []
        for number in self.flow.order:
            self._block(number, layout_uses)
        return dict(layout_uses)

    def _round(self) -> bool:
        """Walk all blocks once; whether anything changed."""
        changed = False
        for number in self.flow.order:
            after = self._block(number, [])
            for target in self.flow.blocks[number].successors:
                changed |= self._meet(target, after)
            changed |= self._part(number, after)
        return changed

    def _block(self, number: int, layout_uses: list[Use]) -> State:
        state = dict(self.before.get(number, {}))
        condition = self.conditions.get(number, FragmentValue())
        for index in self.indices[number]:
            self.steps.step(index, state, condition, layout_uses)
        return state

    def _meet(self, target: int, after: State) -> bool:
        known = self.before.get(target)
        if known is None:
            self.before[target] = dict(after)
            return True
        changed = False
        for name in {**known, **after}:
            if known.get(name) is after.get(name):
                continue
            met = join(self.steps.held(known, name), self.steps.held(after, name))
            if met != known.get(name):
                known[name] = met
                changed = True
        return changed

    def _part(self, number: int, after: State) -> bool:
        """Note the condition of a branch for the blocks that it decides about."""
        last = self.flat.instructions[self.flow.blocks[number].end - 1]
        if last.guard is None or len(self.flow.blocks[number].successors) < 2:
            return False
        condition = self.steps.held(after, last.guard.register)
        if condition.holds is Holds.UNIFORM:
            return False
        inside = list(between(self.flow, number))
        if any(self._has_wmma(block) for block in inside):
            return False
        changed = False
        for block in inside:
            old = self.conditions.get(block, FragmentValue())
            new = combine((old, condition), JOINED)
            changed |= new != old
            self.conditions[block] = new
        return changed

    def _has_wmma(self, number: int) -> bool:
        block = self.flow.blocks[number]
        return any(
            instruction.opcode.name == "wmma"
            for instruction in self.flat.instructions[block.start : block.end]
        )
