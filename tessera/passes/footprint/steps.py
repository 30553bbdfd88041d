"""One step of an excerpt: registers and local words in, registers and accesses out.

Registers are kept by name, local words (`footprint.local`) by offset and width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tessera.ir.opcodes import Flow, MemoryEffect, OperandRole, TensorBox, type_bits
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.types import is_type
from tessera.passes.footprint.calls import run_call
from tessera.passes.footprint.excerpt_state import SliceState
from tessera.passes.footprint.halves import Half, result_half
from tessera.passes.footprint.loaded import load_results
from tessera.passes.footprint.local import local_access
from tessera.passes.footprint.made_maps import map_step
from tessera.passes.footprint.memory import extent_accesses
from tessera.passes.footprint.pointer_steps import hidden_kind, pointer_results, settled
from tessera.passes.footprint.shared_access import convert_shared, in_shared
from tessera.passes.footprint.tensor import tensor_access
from tessera.passes.footprint.zones import LOCAL, PARAMETER, SHARED
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.lane_ops import source_bits
from tessera.passes.lane_values.lanes import HARD, LOW, MASK, U64, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.named_values import by_sign, named, told_operands
from tessera.passes.lane_values.narrowing import narrowed
from tessera.passes.lane_values.predicates import PREDICATES, invert
from tessera.passes.lane_values.sloped_ops import zero_extend
from tessera.passes.lane_values.symbols import impossible
from tessera.passes.lane_values.warps import choose, elect, shuffle, source_threads
from tessera.wording import Wording

_LOCAL_SPACES = frozenset({"local", "param", "param::entry", "param::func"})


class StepRunner(SliceState):
    """Executes instructions on the registers."""

    # --- steps -----------------------------------------------------------------------------

    def step(self, step: Step, mask: Mask) -> None:
        """Execute one instruction that is not a branch."""
        here = self.guarded(step.instruction, mask)
        if here is None:
            return
        self.arriving, self.here = mask, here
        name = step.instruction.opcode.name
        if self.shared is not None and in_shared(self, self.shared, step, here):
            return
        if step.meaning.flow is Flow.CALL:
            run_call(self, step, here)
        elif step.effects:
            self._access(step, here)
            if name == "tensormap":
                map_step(self, step, here)
        elif name == "tensormap":
            map_step(self, step, here)
        elif OperandRole.TENSOR_MAP in step.meaning.roles:
            self.pins[step.index] = Wording("its bytes are described by a tensor map")
            self.unknown_results(step, here)
        elif name == "mov" and any(
            isinstance(operand, ptx.Vector) for operand in step.instruction.operands
        ):
            self._vector_move(step, here)
        elif name == "cvta":
            self._convert_address(step, here)
        elif name == "shfl":
            self._shuffle(step, here)
        elif name == "elect":
            self._elect(step, here)
        elif name == "mapa":
            # The same variable of another CTA of the cluster: shared memory again.
            self.unknown_results(step, here, self.scene.zones.address(SHARED))
        elif step.function is not None:
            self._compute(step, here)
        else:
            self.unknown_results(step, here, kind=hidden_kind(self, step))

    def _compute(self, step: Step, mask: Mask) -> None:
        values = list(self._source_values(step))
        if self.products.may_touch(step, values) and self._keeps_halves(step, mask):
            moved = self.products.result(step, values)
            if moved is not None:
                self.write(step, step.targets[0], moved, mask)
                return
        half = self._half(step, values, mask)
        if isinstance(half, Lanes):
            self.write(step, step.targets[0], half, mask)
            return
        if self.elections:
            results = choose(lambda given: self._evaluate(step, given), values)
        else:
            results = self._evaluate(step, values)
        for name, result in zip(step.targets, results, strict=False):
            self.write(step, name, result, mask)
        self.halves.note(step.targets[0], self.registers.get(step.targets[0]), half)

    def _half(self, step: Step, values: Sequence[Lanes], mask: Mask) -> Half | Lanes | None:
        """What a step makes of halves of 64-bit values, for all threads that are here."""
        opcode = step.instruction.opcode
        if not self.halves.may_touch(opcode) or not self._keeps_halves(step, mask):
            return None
        operands = [operand for operand, _ in _source_table(self.code)[step.index]]
        known = [
            None if isinstance(operand, Lanes) else self.halves.of(operand, self.registers)
            for operand in operands
        ]
        return result_half(step.instruction, values, known, self.halves)

    def _keeps_halves(self, step: Step, mask: Mask) -> bool:
        """Whether a step runs in all threads of its block."""
        whole = mask.everybody or mask.strong is mask.may
        return step.instruction.guard is None and whole and mask.election == -1

    def _evaluate(self, step: Step, values: Sequence[Lanes]) -> tuple[Lanes, ...]:
        """The results of a step on the values of its sources."""
        if any(value.signs is not None for value in values):
            return by_sign(self.assumed, lambda given: self._evaluate_once(step, given), values)
        return self._evaluate_once(step, values)

    def _evaluate_once(self, step: Step, values: Sequence[Lanes]) -> tuple[Lanes, ...]:
        if any(value.kind for value in values):
            return pointer_results(self, step, values, self._run_function)
        return self._run_function(step, values)

    def _run_function(self, step: Step, values: Sequence[Lanes]) -> tuple[Lanes, ...]:
        assert step.function is not None
        opcode = step.instruction.opcode
        if any(value.form is not None for value in values):
            values = told_operands(self.assumed, opcode, values)
        if opcode.name == "setp":
            return self._predicates(step, step.function(values[:2]), values[2:])
        result = self._fit(step.function(values), step.targets[0])
        if result.span is not None and result.form is None and self.piece is not None:
            bits = self.code.widths.get(step.targets[0], 64)
            result = named(self.assumed, opcode, values, result, bits)
        return (result,)

    def _fit(self, value: Lanes, name: str) -> Lanes:
        bits = self.code.widths.get(name, 64)
        return value if bits == 64 else lanes.truncate(value, bits)

    def _predicates(self, step: Step, test: Lanes, third: Sequence[Lanes]) -> tuple[Lanes, Lanes]:
        results = (test, invert(test))
        modifiers = step.instruction.opcode.modifiers
        for operator in ("and", "or", "xor"):
            if operator in modifiers and third:
                combine = PREDICATES[operator]
                results = (combine([results[0], third[0]]), combine([results[1], third[0]]))
        return results

    def _source_values(self, step: Step) -> Iterator[Lanes]:
        table = _source_table(self.code)
        sources = table.get(step.index)
        if sources is None:
            sources = table[step.index] = tuple(_sources(step))
        return (
            operand if isinstance(operand, Lanes) else self.value(operand, bits, step.index)
            for operand, bits in sources
        )

    def _vector_move(self, step: Step, mask: Mask) -> None:
        """`mov.b64 %rd, {%r0, %r1}` and the like."""
        target, source = step.instruction.operands
        bits = type_bits(step.instruction.opcode.modifiers[-1])
        if isinstance(source, ptx.Vector) and isinstance(target, ptx.Name) and bits <= 64:
            part = bits // len(source.elements)
            if len(source.elements) == 2 and self._keeps_halves(step, mask):
                halves = [self.halves.of(element, self.registers) for element in source.elements]
                known = self.halves.whole(halves[0], halves[1], up=False)
                if known is not None and halves[0] is not None and halves[0].place == 0:
                    self.write(step, target.name, known, mask)
                    return
            result = lanes.scalar(0)
            for place, element in enumerate(source.elements):
                value = zero_extend(self.value(element, part, step.index), part)
                scaled = lanes.mul(value, lanes.scalar(1 << (place * part)), 64)
                kind = HARD if value.kind else result.kind
                result = lanes.of_kind(lanes.add(result, scaled, 64), kind)
            self.write(step, target.name, settled(self, lanes.truncate(result, bits), bits), mask)
            return
        if not isinstance(target, ptx.Vector) or isinstance(source, ptx.Vector) or bits > 64:
            self.unknown_results(step, mask, kind=hidden_kind(self, step))
            return
        whole = self.value(source, bits, step.index)
        part = bits // len(target.elements)
        for place, element in enumerate(target.elements):
            if not isinstance(element, ptx.Name):
                continue
            is_half = part == 32 and bits == 64 and self._keeps_halves(step, mask)
            shift = U64(place * part)
            if whole.span is None:
                piece = Lanes((whole.low() >> shift) & U64(MASK[part]))
            elif is_half and whole.slopes:
                piece = lanes.unknown(part, whole.why)
            else:
                low, high = lanes.unsigned_bounds(whole, bits)
                moved = lanes.from_bounds(low >> shift, high >> shift, bits, whole.why)
                piece = lanes.truncate(moved, part)
            hard = place > 0 or whole.kind == HARD
            kind = 0 if not whole.kind else HARD if hard else LOW
            self.write(step, element.name, lanes.of_kind(piece, kind), mask)
            if is_half and isinstance(source, ptx.Name) and source not in target.elements:
                written = self.registers.get(element.name)
                self.halves.note(element.name, written, Half(whole, source.name, place))

    def _convert_address(self, step: Step, mask: Mask) -> None:
        modifiers = step.instruction.opcode.modifiers
        source = step.instruction.operands[1]
        if any(m.startswith("shared") for m in modifiers):
            convert_shared(self, step, source, mask)
            return
        value = self.value(source, 64, step.index)
        if isinstance(source, ptx.Name) and self.code.widths.get(source.name, 64) < 64:
            value = lanes.unknown(64, step.index)
        self.write(step, step.targets[0], value, mask)

    def _shuffle(self, step: Step, mask: Mask) -> None:
        operands = step.instruction.operands
        source = self.value(operands[1], 32, step.index)
        others = [self.value(o, 32, step.index) for o in operands[2:4]]
        mode = step.instruction.opcode.modifiers
        threads = self.scene.threads
        half = None
        if self._keeps_halves(step, mask):
            sources = source_threads(others[0], others[1], mode, mask.everybody, threads)
            half = self.halves.of(operands[1], self.registers)
            half = self.halves.shuffled(half, sources, threads)
        if half is not None and source.slopes:
            received = lanes.unknown(32, step.index)
        else:
            received = shuffle(source, others[0], others[1], mode, mask.everybody, threads)
        received = lanes.of_kind(received, source.kind)
        received.why = received.why if received.why >= 0 else step.index
        self.write(step, step.targets[0], received, mask)
        self.halves.note(step.targets[0], self.registers.get(step.targets[0]), half)
        for name in step.targets[1:]:
            self.write(step, name, lanes.unknown(1, step.index), mask)

    def _elect(self, step: Step, mask: Mask) -> None:
        """`elect.sync`: one thread of each warp is elected, and it is unknown which."""
        members = self.value(step.instruction.operands[1], 32, step.index)
        self.elections += 1
        elected = elect(members, mask.sure, mask.may, self.scene.threads, self.elections)
        for name in step.targets:
            leads = self.code.widths.get(name) == 1
            value = elected if leads else lanes.between(0, 31, 32, step.index)
            self.write(step, name, value, mask)

    # --- memory ----------------------------------------------------------------------------

    def _access(self, step: Step, mask: Mask) -> None:
        for number, effect in enumerate(step.effects):
            if effect.space in {"tex", "surf", "fabric"}:
                kind = {"tex": "a texture", "surf": "a surface"}.get(effect.space, "another GPU")
                self.pins[step.index] = Wording(f"it accesses {kind}")
                continue
            if isinstance(effect.extent, TensorBox):
                why = tensor_access(self, step, number, effect, mask)
                if why is not None:
                    self.pins[step.index] = why
                continue
            if step.instruction.opcode.name == "multimem":
                self.pins[step.index] = Wording("it accesses multicast memory")
                continue
            address = self.address(step.instruction.operands[effect.operand], step.index)
            zone = self.common_zone(address)
            if zone == LOCAL and effect.space == "global" and not step.targets:
                # No address of global memory, and what goes there is not followed (`_reads`).
                self.forget_words()
                self.local_kind = HARD
                return
            if effect.space in _LOCAL_SPACES or zone in (LOCAL, PARAMETER):
                local_access(self, step, effect.access.writes, address, mask)
                return
            if effect.access.writes and effect.space == "generic" and zone is None:
                self.forget_words()
            if zone != SHARED:
                self._known_access(step, number, effect, address, mask)
        if step.targets:
            load_results(self, step, mask)

    def _known_access(
        self, step: Step, number: int, effect: MemoryEffect, address: Lanes, mask: Mask
    ) -> None:
        """Record an access with what its guard tells of the address."""
        mark = len(self.assumed.trail)
        self.assumed.assume(self.told(step.instruction.guard), ALL)
        if address.signs is None or address.options:
            extent_accesses(self, step, number, effect, narrowed(address, 64), mask)
        else:
            for given in address.signs[1:]:
                here = Mask(mask.may, mask.strong, NONE).without(impossible(given.form))
                if here.any():
                    extent_accesses(self, step, number, effect, narrowed(given, 64), here)
        self.assumed.undo(mark)


@lru_cache(maxsize=8)
def _source_table(code: KernelCode) -> dict[int, tuple[tuple[ptx.Operand | Lanes, int], ...]]:
    """The cache of operands of a kernel, shared by all its runs, which add to it."""
    return {}


def _sources(step: Step) -> Iterator[tuple[ptx.Operand | Lanes, int]]:
    """The operands that a step computes with and their widths; constants as values."""
    opcode = step.instruction.opcode
    types = [m for m in opcode.modifiers if is_type(m)]
    bits = min(64, type_bits(types[-1])) if types else 64
    place = 0
    for role, operand in zip(step.meaning.roles, step.instruction.operands, strict=True):
        if role not in {OperandRole.SOURCE, OperandRole.IMMEDIATE, OperandRole.PREDICATE}:
            continue
        width = 1 if role is OperandRole.PREDICATE else source_bits(opcode, place, bits)
        if isinstance(operand, ptx.Integer):
            yield lanes.scalar(operand.value, width), width
        else:
            yield operand, width
        place += 1
