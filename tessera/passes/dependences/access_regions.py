"""The reads and writes of every step of a program.

In: a program. Out: `AccessRegions`: per step its accesses, pins and findings, in order.

A kernel is prepared once per module text (`kernel_code`), and run once per distinct scene
(`footprint`): launches that differ only in their buffers share the result, and if they have no
findings, also the regions (`launch_pattern`). `pointer_words` says which words are pointers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self, assert_never

from tessera.ir.graph.access import Access, NeedKind, Pin, PinKind
from tessera.ir.graph.graph import ContentsDigest
from tessera.ir.program import program as ir
from tessera.passes import findings
from tessera.passes.base import Analysis, Facts, Store
from tessera.passes.dependences.launch_pattern import (
    Buffers,
    KernelFacts,
    KernelMemory,
    Pattern,
    PatternContents,
    launch_pattern,
)
from tessera.passes.dependences.launch_report import (
    LaunchReport,
    StepAccesses,
    anywhere,
    combine_variants,
    launch_needs,
)
from tessera.passes.dependences.launch_scene import (
    LaunchSetting,
    TooManyObjects,
    build_setting,
)
from tessera.passes.dependences.plain_steps import (
    library_accesses,
    memcpy_accesses,
    memset_accesses,
)
from tessera.passes.dependences.pointer_words import PointerWords, Written, grows, merged
from tessera.passes.dependences.stored_addresses import AddressHolders
from tessera.passes.kernel_facts.initial_pointers import initial_pointers
from tessera.passes.kernel_facts.unneeded_parameters import unneeded_parameters, without_values
from tessera.wording import Wording

if TYPE_CHECKING:
    from tessera.passes.footprint.footprint import Footprint
    from tessera.passes.kernel_facts.kernel_code import KernelCode

_WEIGHT = ir.Role.WEIGHT
_COUNTED = 16  # report progress every 16 steps
_SLOW = "following its addresses takes too long"
_TANGLED = "a loop with several entries cannot be followed"
_Scene = tuple[ir.ModuleVariant, LaunchSetting]


@dataclass(frozen=True, slots=True)
class AccessRegions:
    """The accesses of every step, in program order.

    `contents` are the weights whose known contents (`Program.known`) decided what a step touches;
    `wanted` are the weights whose contents could decide it if they were known.

    Example: `AnalysisManager(program).get(AccessRegions).steps[0].accesses`.
    """

    name: ClassVar[str] = "access-regions"
    needs: ClassVar[tuple[type[Analysis], ...]] = ()

    steps: tuple[StepAccesses, ...]
    contents: tuple[ContentsDigest, ...] = ()
    wanted: tuple[ir.BufferId, ...] = ()

    @classmethod
    def compute(cls, program: ir.Program, facts: Facts) -> Self:
        """Walk the program in order, so that overwritten pointer tables are known."""
        return cls.remembering(program, facts.store)

    @classmethod
    def remembering(
        cls,
        program: ir.Program,
        store: Store | None,
        count: Callable[[int, int], None] = lambda done, total: None,
    ) -> Self:
        """The same, with the results for known kernels from a store; new results go to the store.

        `count` is called with the number of finished steps and the number of all steps.
        """
        walker = AccessWalk(program, store)
        work = tuple(program.work())
        while True:
            steps = tuple(_counted(map(walker.step, work), len(work), count))
            if not (walker.words.restart() | walker.holders.restart()):
                walker.close()
                told = tuple(_tell(program, steps))
                return cls(told, walker.contents(), walker.wanted())


def _counted(
    steps: Iterable[StepAccesses], total: int, count: Callable[[int, int], None]
) -> Iterator[StepAccesses]:
    for done, step in enumerate(steps):
        if done % _COUNTED == 0:
            count(done, total)
        yield step


def _tell(program: ir.Program, steps: tuple[StepAccesses, ...]) -> Iterator[StepAccesses]:
    """The steps; coarse ones get a finding, the first launch of each kernel those of its needs."""
    seen: set[tuple[str, NeedKind]] = set()
    for work, step in zip(program.work(), steps, strict=True):
        new = tuple(need for need in step.needs if (step.name, need.kind) not in seen)
        seen.update((step.name, need.kind) for need in new)
        told = list(findings.needs(step.name, new, work.span))
        if step.is_coarse:
            told.insert(0, findings.over_budget(step.name, work.span))
        yield replace(step, diagnostics=(*step.diagnostics, *told)) if told else step


class AccessWalk:
    """The state of the walk: prepared kernels, footprints by scene, intact pointer tables."""

    def __init__(self, program: ir.Program, store: Store | None) -> None:
        self.program = program
        self.store = store
        self.memories: dict[tuple[int, str], KernelMemory] = {}
        self.codes: dict[tuple[int, str, str], KernelCode] = {}
        self.facts: dict[tuple[int, str, str], KernelFacts] = {}
        self.footprints: dict[tuple[object, ...], Footprint] = {}
        # The keys of footprints that hold with all draws of addresses (`agreed_footprint`).
        self.agreed: set[tuple[object, ...]] = set()
        self.patterns: dict[tuple[object, ...], Pattern] = {}
        self.known = _known_weights(program)
        self.looked_up: set[ir.BufferId] = set()
        self.asked: set[ir.BufferId] = set()
        self.variables = _module_variables(program)
        self.words = PointerWords(program, initial_pointers(program, self.variables))
        self.holders = AddressHolders(program)

    def contents(self) -> tuple[ContentsDigest, ...]:
        """The weights whose contents decided what a step touches, with their digests."""
        return tuple(ContentsDigest(b, self.known[b].sha256) for b in sorted(self.looked_up))

    def wanted(self) -> tuple[ir.BufferId, ...]:
        """The weights of unknown contents from which excerpts load values."""
        weights = (b for b in sorted(self.asked) if self.program.buffers[b].role is _WEIGHT)
        return tuple(b for b in weights if b not in self.known)

    def _contents(self, step: ir.Launch, scenes: list[_Scene], buffers: Buffers) -> PatternContents:
        """The buffers of a launch whose contents its footprints looked up, or would have."""
        looked_up: set[ir.BufferId | None] = set()
        asked: set[ir.BufferId | None] = set()
        for variant, setting in scenes:
            footprint = self.footprints[step.module, variant.arch, step.kernel, setting.key]
            looked_up.update(setting.buffers[zone] for zone in footprint.looked_up)
            asked.update(setting.buffers.get(zone) for zone in footprint.asked)
        return PatternContents(
            looked_up=tuple(i for i, buffer in enumerate(buffers) if buffer in looked_up),
            asked=tuple(i for i, buffer in enumerate(buffers) if buffer in asked),
        )

    def _note(self, contents: PatternContents, buffers: Buffers) -> None:
        self.looked_up.update(buffers[place] for place in contents.looked_up)
        self.asked.update(buffers[place] for place in contents.asked)

    def close(self) -> None:
        """Write new results to the store."""
        for memory in self.memories.values():
            memory.close()

    def step(self, step: ir.Work) -> StepAccesses:
        """The accesses of one step; pointers that it may overwrite are forgotten."""
        match step:
            case ir.Launch():
                accesses = self.launch_accesses(step)
            case ir.Memset():
                accesses = self._record(step, "memset", memset_accesses(step))
            case ir.Memcpy():
                accesses = self._record(step, "memcpy", memcpy_accesses(step))
            case ir.LibraryCall():
                accesses = self._record(step, step.operator, tuple(library_accesses(step)))
            case _:
                assert_never(step)
        self.holders.note(step, accesses.accesses)
        return self._overwrite_tables(accesses)

    def _record(self, step: ir.Work, name: str, accesses: tuple[Access, ...]) -> StepAccesses:
        written = findings.written_weights(self.program, name, accesses)
        return StepAccesses(id=step.id, name=name, accesses=accesses, diagnostics=tuple(written))

    def _overwrite_tables(self, accesses: StepAccesses) -> StepAccesses:
        """Forget the pointer words that a step may write, and add findings for them."""
        lost = self.words.overwrite(accesses.accesses)
        if not lost:
            return accesses
        why = "it may overwrite pointers in `{}`"
        named = ((self.program.buffers[a.buffer].name, a.span) for a in dict.fromkeys(lost))
        pins = tuple(Pin(Wording(why.format(name)), at, PinKind.OVERWRITTEN) for name, at in named)
        told = findings.overwritten_pointers(pins, accesses.name)
        return replace(
            accesses, pins=(*accesses.pins, *pins), diagnostics=(*accesses.diagnostics, *told)
        )

    # --- launches --------------------------------------------------------------------------

    def launch_accesses(self, step: ir.Launch) -> StepAccesses:
        """The accesses of a launch that trusts no pointer which it may overwrite itself.

        The bytes that it writes may depend on the pointers, so this is repeated until the set of
        written bytes stops growing.
        """
        own: Written = {}
        while True:
            report = self._launch(step, own)
            new = self.words.written_by(report.accesses)
            if not grows(own, new):
                return report
            own = merged(own, new)

    def _launch(self, step: ir.Launch, own: Written) -> StepAccesses:
        """The accesses of a launch that writes `own`, for all variants of its module."""
        try:
            report = self._launch_in(step, own, True) or self._launch_in(step, own, False)
        except TooManyObjects:
            code = self.code(step, self.program.modules[step.module].variants[0])
            return self._anything(step, code, Wording("it has too many pointers"))
        assert report is not None
        return report

    def _launch_in(self, step: ir.Launch, own: Written, apart: bool) -> StepAccesses | None:
        """The same; with `apart`, pointers that are only bases get separate zones, so that the
        result serves launches with other offsets. None if an address then combines several."""
        variants = self.program.modules[step.module].variants
        scenes = [(variant, self._scene(step, variant, own, apart)) for variant in variants]
        buffers, key = launch_pattern(self.program, step, [setting for _, setting in scenes])
        known = self._pattern(step, key, buffers)
        if known is not None:
            self._note(known.contents, buffers)
            return known.report(step.id, buffers)
        for variant, setting in scenes:
            if self._footprint(step, variant, setting, own, apart).doubt and apart:
                return None
        reports = [self._variant(step, *scene) for scene in scenes]
        contents = self._contents(step, scenes, buffers)
        self._note(contents, buffers)
        report = reports[0] if len(reports) == 1 else combine_variants(self.program, reports)
        if report.pins or report.diagnostics:
            return report
        pattern = self._add_pattern(step, key, Pattern(report, buffers, contents))
        if (memory := self._memory(step)) is not None:
            memory.keep(key, pattern)
        return pattern.first

    def _pattern(self, step: ir.Launch, key: object, buffers: Buffers) -> Pattern | None:
        """The pattern of a launch, if this walk or the store has it."""
        known = self.patterns.get((step.module, step.kernel, key))
        memory = None if known is not None else self._memory(step)
        if memory is None:
            return known
        remembered = memory.find(key, step.id, self._name(step), buffers)
        return None if remembered is None else self._add_pattern(step, key, remembered)

    def _add_pattern(self, step: ir.Launch, key: object, pattern: Pattern) -> Pattern:
        pattern.first = replace(pattern.first, pattern=len(self.patterns))
        self.patterns[step.module, step.kernel, key] = pattern
        return pattern

    def _scene(
        self,
        step: ir.Launch,
        variant: ir.ModuleVariant,
        own: Written,
        apart: bool,
        draw: int = 0,
    ) -> LaunchSetting:
        facts = self._facts(step, variant)
        function = variant.ptx.definitions()[step.kernel]
        variables = self.variables.get(step.module, {})
        launch = without_values(ir.for_arch(step, variant.arch), function, facts.unneeded)
        valued = facts.valued if apart else frozenset(p.name for p in function.parameters)
        rest = (self.known, self.words.spoiled(own), draw, self.holders.buffers)
        return build_setting(launch, function, variables, self.words.intact(own), valued, *rest)

    def _footprint(
        self,
        step: ir.Launch,
        variant: ir.ModuleVariant,
        setting: LaunchSetting,
        own: Written,
        apart: bool,
    ) -> Footprint:
        """The bytes that a launch touches in its zones; equal for all launches with one key."""
        key = (step.module, variant.arch, step.kernel, setting.key)
        footprint = self.footprints.get(key)
        if footprint is not None and (apart or key in self.agreed or not footprint.doubt):
            return footprint
        # Imported here because a launch whose pattern is in the store needs no footprint.
        from tessera.passes.footprint.footprint import agreed_footprint, find_footprint

        code = self.code(step, variant)

        def find(draw: int) -> Footprint:
            drawn = self._scene(step, variant, own, apart, draw) if draw else setting
            return find_footprint(code, drawn.scene)

        self.footprints[key] = find(0) if apart else agreed_footprint(code, find)
        if not apart:
            self.agreed.add(key)
        return self.footprints[key]

    def _variant(
        self, step: ir.Launch, variant: ir.ModuleVariant, setting: LaunchSetting
    ) -> StepAccesses:
        code = self.code(step, variant)
        footprint = self.footprints[step.module, variant.arch, step.kernel, setting.key]
        if footprint.gave_up:
            return self._anything(step, code, Wording(_TANGLED if code.flow.tangled else _SLOW))
        name = self._name(step)
        return LaunchReport(self.program, step, name, code, setting, footprint).build()

    def _memory(self, step: ir.Launch) -> KernelMemory | None:
        """The stored results for a kernel, if its module has a text."""
        module = self.program.modules[step.module]
        if self.store is None or not all(variant.text for variant in module.variants):
            return None
        key = (int(step.module), step.kernel)
        if key not in self.memories:
            self.memories[key] = KernelMemory(self.store, module, step.kernel)
        return self.memories[key]

    def _facts(self, step: ir.Launch, variant: ir.ModuleVariant) -> KernelFacts:
        key = (int(step.module), variant.arch, step.kernel)
        if key not in self.facts:
            memory = self._memory(step)
            facts = None if memory is None else memory.find_facts(variant.arch)
            if facts is None:
                code = self.code(step, variant)
                facts = KernelFacts(code.valued_parameters, unneeded_parameters(code))
                if memory is not None:
                    memory.keep_facts(variant.arch, facts)
            self.facts[key] = facts
        return self.facts[key]

    def _name(self, step: ir.Launch) -> str:
        return f"{self.program.modules[step.module].name}.{step.kernel}"

    def code(self, step: ir.Launch, variant: ir.ModuleVariant) -> KernelCode:
        """The prepared code of a kernel."""
        key = (int(step.module), variant.arch, step.kernel)
        code = self.codes.get(key)
        if code is None:
            from tessera.passes.kernel_facts.kernel_code import prepare_kernel

            function = variant.ptx.definitions()[step.kernel]
            code = self.codes[key] = prepare_kernel(variant.ptx, function)
        return code

    def _anything(self, step: ir.Launch, code: KernelCode, why: Wording) -> StepAccesses:
        name = self._name(step)
        pin = Pin(why, code.module.span(code.function.at), PinKind.KERNEL)
        return StepAccesses(
            id=step.id,
            name=name,
            accesses=tuple(anywhere(self.program, why, pin.span)),
            pins=(pin,),
            needs=launch_needs(code, step),
            diagnostics=(findings.pinned(name, pin, step.span),),
        )


def _known_weights(program: ir.Program) -> dict[ir.BufferId, ir.KnownContents]:
    """Known contents that may decide accesses: of weights, except words that are pointers."""
    tables = {table.buffer for table in program.pointer_tables}
    return {
        known.buffer: known
        for known in program.known
        if program.buffers[known.buffer].role is _WEIGHT and known.buffer not in tables
    }


def _module_variables(program: ir.Program) -> dict[ir.ModuleId, dict[str, ir.BufferId]]:
    modules = {module.name: module.id for module in program.modules}
    variables: dict[ir.ModuleId, dict[str, ir.BufferId]] = {}
    for buffer in program.buffers:
        if buffer.role is not ir.Role.VARIABLE:
            continue
        module, _, symbol = buffer.name.rpartition(".")
        if module in modules:
            variables.setdefault(modules[module], {})[symbol] = buffer.id
    return variables
