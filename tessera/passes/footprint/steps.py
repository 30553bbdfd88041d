"""One step of a slice: registers and local words in, registers and accesses out.

Registers are kept by name, local words (`slices.local`) by offset and width.
"""

# NumPy's operators on arrays of unknown element type give Any.
# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tessera.ir.opcodes import Flow, Role, TensorBox, type_bits
from tessera.ir.opcodes.types import is_type
from tessera.ir.ptx import syntax as ptx
from tessera.passes.footprint.both_ways import Guarded, Side, SureWrite, common_writes
from tessera.passes.footprint.calls import run_call
from tessera.passes.footprint.loaded import load_results
from tessera.passes.footprint.local import local_access
from tessera.passes.footprint.made_maps import is_map_step, map_step
from tessera.passes.footprint.memory import extent_accesses
from tessera.passes.footprint.operands import Key, Operands
from tessera.passes.footprint.pointer_steps import hidden_kind, pointer_results, settled
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.scene import Box, Scene
from tessera.passes.footprint.shared_access import Follower, convert_shared, in_shared
from tessera.passes.footprint.tensor import tensor_access
from tessera.passes.footprint.zones import LOCAL, PARAMETER, SHARED
from tessera.passes.kernel_facts.kernel_code import KernelCode, Step
from tessera.passes.lane_values import lanes
from tessera.passes.lane_values.elections import agreeing, choose, elect, merged_choice
from tessera.passes.lane_values.lane_ops import PREDICATES, invert, source_bits
from tessera.passes.lane_values.lanes import HARD, LOW, MASK, U64, Array, Lanes
from tessera.passes.lane_values.masks import ALL, NONE, Mask
from tessera.passes.lane_values.shuffle import shuffle

_LOCAL_SPACES = frozenset({"local", "param", "param::entry", "param::func"})


class StepRunner(Operands):
    """What each instruction does to the registers.

    `arriving` are the threads that come to the instruction at hand, whatever its guard says;
    `here` are those that execute it.
    """

    arriving: Mask = Mask(ALL, ALL, ALL)
    here: Mask = arriving

    def __init__(
        self,
        code: KernelCode,
        scene: Scene,
        box: Box | None,
        recorder: Recorder,
        shared: Follower | None = None,
    ) -> None:
        super().__init__(code, scene, box, recorder)
        self._sources: dict[int, tuple[tuple[ptx.Operand | Lanes, int], ...]] = {}
        self.shared = shared

    # --- results ---------------------------------------------------------------------------

    def assign(self, key: Key, value: Lanes, mask: Mask) -> None:
        """Write a register: replace where strong, join where it only may happen."""
        old = self.registers.get(key)
        if old is None or mask.everybody:
            self.registers[key] = value
            return
        self.work += 4 * max(value.size, mask.may.size)
        weak = mask.may & ~mask.strong
        result = lanes.merge(mask.strong, value, old)
        if weak.any():
            result = lanes.merge(weak, lanes.join(old, value, self.bits(key)), result)
        if value.choice is not None and not weak.any():
            result.choice = merged_choice(mask.strong, value, old)
        self.registers[key] = result

    def write(self, step: Step, name: str, value: Lanes, mask: Mask) -> None:
        """Write a register, the result of a step."""
        self.work += 8 + value.size
        self.origins[name] = step.index
        self.assign(name, value, mask)

    def unknown_results(self, step: Step, mask: Mask, anchor: int = 0, kind: int = 0) -> None:
        """Let every register that a step writes be anything."""
        for name in step.targets:
            if name in self.code.needed:
                bits = self.code.widths.get(name, 64)
                value = lanes.unknown(bits, step.index, anchor)
                self.write(step, name, lanes.of_kind(value, max(kind, value.kind)), mask)

    # --- steps -----------------------------------------------------------------------------

    def step(self, step: Step, mask: Mask) -> None:
        """Execute one instruction that is no branch."""
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
            if is_map_step(step.instruction):
                map_step(self, step, here)
        elif is_map_step(step.instruction):
            map_step(self, step, here)
        elif Role.TENSOR_MAP in step.meaning.roles:
            self.pins[step.index] = "its bytes are described by a tensor map"
            self.unknown_results(step, here)
        elif name == "mov" and self._is_vector_move(step):
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
        elif step.function is not None and len(step.targets) >= 1:
            self._compute(step, here)
        else:
            self.unknown_results(step, here, kind=hidden_kind(self, step))

    def _compute(self, step: Step, mask: Mask) -> None:
        values = list(self._source_values(step))
        if len(step.targets) > 1 and step.instruction.opcode.name != "setp":
            self.unknown_results(step, mask, kind=hidden_kind(self, step))
            return
        if self.elections:
            results = choose(lambda given: self._evaluate(step, given), values)
        else:
            results = self._evaluate(step, values)
        for name, result in zip(step.targets, results, strict=False):
            self.write(step, name, result, mask)

    def _evaluate(self, step: Step, values: Sequence[Lanes]) -> tuple[Lanes, ...]:
        """The results of a step on the values of its sources."""
        if any(value.kind for value in values):
            return pointer_results(self, step, values, self._run_function)
        return self._run_function(step, values)

    def _run_function(self, step: Step, values: Sequence[Lanes]) -> tuple[Lanes, ...]:
        assert step.function is not None
        if step.instruction.opcode.name == "setp":
            return self._predicates(step, step.function(values[:2]), values[2:])
        return (self._fit(step.function(values), step.targets[0]),)

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
        sources = self._sources.get(step.index)
        if sources is None:
            sources = self._sources[step.index] = tuple(_sources(step))
        return (
            operand if isinstance(operand, Lanes) else self.value(operand, bits, step.index)
            for operand, bits in sources
        )

    def _is_vector_move(self, step: Step) -> bool:
        return any(isinstance(o, ptx.Vector) for o in step.instruction.operands)

    def _vector_move(self, step: Step, mask: Mask) -> None:
        """`mov.b64 %rd, {%r0, %r1}` and the like."""
        target, source = step.instruction.operands
        bits = type_bits(step.instruction.opcode.modifiers[-1])
        if isinstance(source, ptx.Vector) and isinstance(target, ptx.Name) and bits <= 64:
            part = bits // len(source.elements)
            result = lanes.scalar(0)
            for place, element in enumerate(source.elements):
                value = lanes.zero_extend(self.value(element, part, step.index), part)
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
            low, high = lanes.unsigned_bounds(whole, bits)
            shift = U64(place * part)
            if whole.span is None:
                piece = Lanes((whole.lo >> shift) & U64(MASK[part]))
            else:
                moved = lanes.from_bounds(low >> shift, high >> shift, bits, whole.why)
                piece = lanes.truncate(moved, part)
            hard = place > 0 or whole.kind == HARD
            kind = 0 if not whole.kind else HARD if hard else LOW
            self.write(step, element.name, lanes.of_kind(piece, kind), mask)

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
        found = shuffle(source, others[0], others[1], mode, mask.everybody, threads)
        found = lanes.of_kind(found, source.kind)
        found.why = found.why if found.why >= 0 else step.index
        self.write(step, step.targets[0], found, mask)
        for name in step.targets[1:]:
            self.write(step, name, lanes.unknown(1, step.index), mask)

    def _elect(self, step: Step, mask: Mask) -> None:
        """One thread of each warp; which one is not known."""
        members = self.value(step.instruction.operands[1], 32, step.index)
        self.elections += 1
        found = elect(members, mask.sure, mask.may, self.scene.threads, self.elections)
        for name in step.targets:
            leads = self.code.widths.get(name) == 1
            value = found if leads else lanes.between(0, 31, 32, step.index)
            self.write(step, name, value, mask)

    # --- memory ----------------------------------------------------------------------------

    def elected(self, values: Sequence[Array]) -> Array:
        """The threads here of warps of which one is elected, whoever it is, with these values."""
        if self.here.election == -1:
            return NONE
        return agreeing(self.here.elected, values, self.scene.threads)

    def note(self, step: Step, number: int, address: Lanes, width: int, mask: Mask) -> None:
        """Record an access; on a side of a branch that data decides, nothing is certain yet."""
        sure = mask.sure
        address = lanes.exact_in(address, mask.may)
        access = step.effects[number].access
        writes = access.writes and not access.reads and address.span is None
        if self.side is not None:
            if writes and sure.any():
                self.side.add(SureWrite(step.index, number, address.lo, width, sure))
            sure = NONE
        self.recorder.add(step.index, number, address, width, mask.may, sure)
        if writes and self.here.election != -1:
            chosen = self.elected([address.lo, mask.may]) & mask.may
            if chosen.any():
                self.recorder.add_sure(step.index, number, address.lo, width, chosen)
        if writes and step.instruction.guard is not None:
            self._note_guarded(step, number, step.instruction.guard, address, width)

    def _note_guarded(
        self, step: Step, number: int, guard: ptx.Guard, address: Lanes, width: int
    ) -> None:
        """A write under a predicate that data decides: look for it under the opposite."""
        value = self.registers.get(guard.register)
        if value is None or value.span is None:
            return
        sure = self.arriving.sure & value.span.astype(np.bool_)
        if not sure.any():
            return
        known = self.guarded_writes.get(guard.register)
        if known is None or known.value is not value:
            known = self.guarded_writes[guard.register] = Guarded(value)
        write = SureWrite(step.index, number, address.lo, width, sure)
        known.sides[guard.negated].add(write)
        self.settle_writes(Side([write]), known.sides[not guard.negated])

    def settle_writes(self, first: Side, second: Side) -> None:
        """What is written on both sides is certain, as far as coming here was."""
        for write in common_writes(first, second):
            self.work += 4 * write.lo.size
            if self.side is not None:
                self.side.add(write)
            else:
                self.recorder.add_sure(write.index, write.effect, write.lo, write.width, write.sure)

    def _access(self, step: Step, mask: Mask) -> None:
        for number, effect in enumerate(step.effects):
            if effect.space in {"tex", "surf", "fabric"}:
                kind = {"tex": "a texture", "surf": "a surface"}.get(effect.space, "another GPU")
                self.pins[step.index] = f"it accesses {kind}"
                continue
            if isinstance(effect.extent, TensorBox):
                why = tensor_access(self, step, number, effect, mask)
                if why is not None:
                    self.pins[step.index] = why
                continue
            if step.instruction.opcode.name == "multimem":
                self.pins[step.index] = "it accesses multicast memory"
                continue
            address = self.address(step.instruction.operands[effect.operand], step.index)
            zone = self.common_zone(address)
            if effect.space in _LOCAL_SPACES or zone in (LOCAL, PARAMETER):
                local_access(self, step, effect.access.writes, address, mask)
                return
            if effect.access.writes and effect.space == "generic" and zone is None:
                self.forget_words()
            if zone != SHARED:
                extent_accesses(self, step, number, effect, address, mask)
        if step.targets:
            load_results(self, step, mask)

    def common_zone(self, address: Lanes) -> int | None:
        """The zone of every thread's address, or None."""
        found = self.scene.zones.between(*address.bounds()) if address.size else None
        return None if found is None else found[0]

    def forget_words(self) -> None:
        """Nothing is known of local memory any more."""
        for key in [k for k in self.registers if not isinstance(k, str)]:
            del self.registers[key]


def _sources(step: Step) -> Iterator[tuple[ptx.Operand | Lanes, int]]:
    """The operands that a step computes with and their widths; constants as values."""
    opcode = step.instruction.opcode
    types = [m for m in opcode.modifiers if is_type(m)]
    bits = min(64, type_bits(types[-1])) if types else 64
    place = 0
    for role, operand in zip(step.meaning.roles, step.instruction.operands, strict=True):
        if role not in {Role.SOURCE, Role.IMMEDIATE, Role.PREDICATE}:
            continue
        width = 1 if role is Role.PREDICATE else source_bits(opcode, place, bits)
        if isinstance(operand, ptx.Integer):
            yield lanes.scalar(operand.value, width), width
        else:
            yield operand, width
        place += 1
