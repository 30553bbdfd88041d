"""The bytes that one launch of a kernel touches, object by object.

In: a `KernelCode` and a `Scene`. Out: a `Footprint`. First every thread is run by itself, which is
exact unless data decides something. A small grid is run CTA by CTA; a large grid is run in pieces
of CTAs that do the same at addresses that grow evenly (`pieces`). If that takes more work than the
budget allows, one row of threads stands for all CTAs and loops are widened after some rounds
(`is_coarse`). If even that is too much, the kernel may touch anything (`gave_up`).

`agreed_footprint` is for launches that compute an address from several addresses: they are run with
several draws of made-up addresses (`zones`). If the footprints differ, the touched bytes depend on
where buffers lie in memory, and the instructions are pinned.

This suffices for the following reason. If a kernel uses only sums, differences, products by
numbers, copies and choices, the address of a thread is a sum `c1 * A1 + ... + cn * An + offset` of
the objects' addresses, with whole numbers `c`. If the sum is an address in an object wherever the
objects lie, one `c` is 1 and all others are 0, and then every draw gives the same object and
offset. If not, the sum lies at the same offset of the same object in two independent draws with a
probability of about 2**-50. Other computations with addresses (on their bits) get more draws. Every
second draw inverts the bits of the previous draw, so a result that depends on one bit of an address
is never the same in all draws.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from tessera.ir.arrays import Ranges
from tessera.passes.byte_sets import intervals
from tessera.passes.byte_sets.intervals import TooManyIntervals
from tessera.passes.footprint.checkpoints import RunCheckpoint
from tessera.passes.footprint.excerpt_state import Follower
from tessera.passes.footprint.machine import OverBudget, SliceMachine
from tessera.passes.footprint.made_maps import spoiled_maps
from tessera.passes.footprint.pieces import GridPiece, TooManyPieces, boxes, whole_grid
from tessera.passes.footprint.pointer_steps import BITS, SUMS
from tessera.passes.footprint.recorder import Key, Recorder
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.shared import SharedFollower
from tessera.passes.footprint.shared_phases import SharedTrouble
from tessera.passes.footprint.shared_roots import SharedRoots
from tessera.passes.footprint.zones import LOADED
from tessera.passes.kernel_facts.kernel_code import KernelCode
from tessera.passes.lane_values.digits import Split
from tessera.wording import Wording

EXACT_BUDGET = 2_000_000_000
COARSE_BUDGET = 1_000_000_000
COARSE_ROUNDS = 64
FEW_THREADS = 1 << 14
_MOST_THREADS = 1 << 18
_SHARE_FOR_INDICES = 16


@dataclass(frozen=True, slots=True)
class FootprintEntry:
    """The bytes that one effect of one instruction touches in one zone.

    `may` and `sure` are intervals of offsets. `whole` is None unless any byte may be touched; then
    it is the instruction that makes the index unknown. `exact`: no address was an interval.
    """

    key: Key
    may: Ranges
    sure: Ranges
    whole: int | None
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """The footprint of a launch. Dictionaries map instructions to reasons.

    `unresolved` has the effects whose address points to no known object, with the instruction
    that the unknown part comes from. `nulls` says whether an access through a null pointer surely
    happens. `looked_up` are the zones whose contents decided something, `asked` those whose
    contents might have decided something. `bounded` are the pins that concern only the launch's own
    buffers. `doubt` says that an address was computed from several addresses (`pointer_steps`);
    `mixed` are the effects that use such addresses.
    """

    entries: tuple[FootprintEntry, ...]
    unresolved: dict[tuple[int, int], int]
    nulls: dict[int, bool]
    pins: dict[int, Wording]
    is_coarse: bool = False
    gave_up: bool = False
    looked_up: frozenset[int] = frozenset()
    asked: frozenset[int] = frozenset()
    bounded: frozenset[int] = frozenset()
    doubt: int = 0
    mixed: frozenset[tuple[int, int]] = frozenset()


def find_footprint(
    code: KernelCode,
    scene: Scene,
    exact_budget: int = EXACT_BUDGET,
    coarse_budget: int = COARSE_BUDGET,
    few_threads: int = FEW_THREADS,
) -> Footprint:
    """Run the excerpt of a kernel for a launch; a grid with more than `few_threads` threads is
    followed in pieces."""
    try:
        return _LaunchWalk(code, scene, exact_budget, few_threads, is_coarse=False).footprint()
    except OverBudget:
        pass
    launch = _LaunchWalk(code, scene, coarse_budget, few_threads, is_coarse=True)
    try:
        return launch.footprint()
    except OverBudget:
        looked_up = frozenset(launch.recorder.looked_up)
        return Footprint(
            entries=(), unresolved={}, nulls={}, pins={}, gave_up=True, looked_up=looked_up
        )


class _LaunchWalk:
    """Runs one launch, with all CTAs one by one or with one row that stands for all."""

    def __init__(
        self, code: KernelCode, scene: Scene, budget: int, few_threads: int, *, is_coarse: bool
    ) -> None:
        self.code = code
        self.scene = scene
        self.budget = budget
        self.few_threads = few_threads
        self.is_coarse = is_coarse
        self.recorder = Recorder(scene.zones)

    def footprint(self) -> Footprint:
        """The footprint. Shared memory is followed exactly or, if that fails, by the objects that
        addresses in it point into. A load that may give something other than an address is unknown.
        """
        use, alone = self.code.shared, self.code.unfollowed
        if use is None or alone is None:
            return self._collect(self._run(self.code, self.budget, None))
        # Following indices and flags is worth less work than following addresses.
        budget = self.budget if use.has_addresses else self.budget // _SHARE_FOR_INDICES
        try:
            return self._collect(
                self._run(self.code, budget, lambda: SharedFollower(use, self.scene))
            )
        except SharedTrouble:
            pass
        except OverBudget:
            if use.has_addresses:
                raise
        unknown: frozenset[int] = frozenset()
        is_mixed = False
        while use.has_addresses and unknown != use.loads:
            roots = SharedRoots(use, self.scene, unknown, is_mixed)
            pins = self._run(self.code, self.budget, roots.follower)
            more = roots.resolve(self.recorder)
            if not more and roots.is_mixed == is_mixed:
                return self._collect(pins)
            is_mixed = roots.is_mixed
            if more:
                unknown = use.loads if unknown else more
        if is_mixed:
            roots = SharedRoots(use, self.scene, use.loads, is_mixed)
            return self._collect(self._run(self.code, self.budget, roots.follower))
        return self._collect(self._run(alone, self.budget, None))

    def _run(
        self, code: KernelCode, budget: int, follower: Callable[[], Follower] | None
    ) -> dict[int, Wording]:
        """Run the whole launch; return the reasons for its pins. If it may write what was taken to
        be steady, nothing is."""
        pins = self._run_all(code, budget, follower)
        if not _is_steady(code, self.recorder, pins):
            self.scene = replace(self.scene, alone=frozenset())
            pins = self._run_all(code, budget, follower)
        return pins

    def _run_all(
        self, code: KernelCode, budget: int, follower: Callable[[], Follower] | None
    ) -> dict[int, Wording]:
        self.recorder = Recorder(self.scene.zones)
        if self.is_coarse:
            return self._run_coarse(code, budget, None if follower is None else follower())
        if follower is not None:
            return self._run_boxes(code, budget, follower)
        is_large = self.scene.cta_count * self.scene.threads > self.few_threads
        if is_large and self.scene.cluster in (None, (1, 1, 1)):
            return self._run_pieces(code, budget)
        return self._run_boxes(code, budget, lambda: None)

    def _run_coarse(
        self, code: KernelCode, budget: int, shared: Follower | None
    ) -> dict[int, Wording]:
        machine = SliceMachine(code, self.scene, None, self.recorder, budget, COARSE_ROUNDS, shared)
        machine.start()
        self.recorder.finish()
        return machine.pins

    def _run_boxes(
        self, code: KernelCode, budget: int, follower: Callable[[], Follower | None]
    ) -> dict[int, Wording]:
        """Run every CTA by itself, some at a time."""
        scene, recorder = self.scene, self.recorder
        pins: dict[int, Wording] = {}
        spent = done = 0
        for box in boxes(scene.grid, self._most_ctas(), scene.first):
            machine = SliceMachine(code, scene, box, recorder, budget - spent, shared=follower())
            machine.start()
            pins.update(machine.pins)
            recorder.finish()
            spent += machine.work
            done += box.listed
            # The work so far predicts whether the rest fits the budget.
            if (spent + recorder.work) * (scene.cta_count / done) > 2 * budget:
                raise OverBudget
        return pins

    def _run_pieces(self, code: KernelCode, budget: int) -> dict[int, Wording]:
        """Run CTAs that do the same at once. A piece whose CTAs turn out to differ is split at that
        point (`checkpoints`), and results after the last checkpoint are dropped."""
        pins: dict[int, Wording] = {}
        pending: list[tuple[GridPiece, RunCheckpoint | None]] = [
            (whole_grid(self.scene.grid, self.scene.first), None)
        ]
        spent = 0
        while pending:
            piece, at = pending.pop()
            recorder = Recorder(self.scene.zones)
            machine = SliceMachine(code, self.scene, piece, recorder, budget - spent)
            try:
                machine.start(at)
                machine.recorder.finish()
            except Split as wanted:
                made = machine.checkpoint
                for part in reversed(self._parts(piece, wanted)):
                    known = None if made is None else made.in_part(piece, part, code.widths)
                    pending.append((part, known))
            except TooManyIntervals:
                raise OverBudget from None
            else:
                pins.update(machine.pins)
                self.recorder.absorb(machine.recorder)
            if machine.checkpoint is not None:
                self.recorder.absorb(machine.checkpoint.recorder)
            work = machine.work + machine.recorder.work
            spent += work
            if spent + work * (piece.share - 1) > 2 * budget or spent > budget:
                raise OverBudget
        return pins

    def _parts(self, piece: GridPiece, wanted: Split) -> list[GridPiece]:
        try:
            return piece.split(wanted, self._most_ctas())
        except TooManyPieces:
            raise OverBudget from None

    def _most_ctas(self) -> int:
        return max(1, _MOST_THREADS // max(1, self.scene.threads))

    def _collect(self, pins: dict[int, Wording]) -> Footprint:
        pins = pins | spoiled_maps(self.code, self.recorder)
        # No access is certain if one row stands for all CTAs, or if a CTA may cancel others.
        ends_early = _cancels(self.code) or self.code.calls.may_exit
        is_sure = not self.is_coarse and not ends_early
        return _collect(self.recorder, pins, is_coarse=self.is_coarse, is_sure=is_sure)


def _is_steady(code: KernelCode, recorder: Recorder, pins: dict[int, Wording]) -> bool:
    """Whether nothing is written where equal addresses were taken to hold equal numbers."""
    if not recorder.steady:
        return True
    if pins or recorder.unresolved:
        return False
    effects = {step.index: step.effects for block in code.blocks for step in block}
    for at, effect, zone in recorder.touched:
        known = effects.get(at, ())
        if zone in recorder.steady and not (
            0 <= effect < len(known) and not known[effect].access.writes
        ):
            return False
    return True


def _cancels(code: KernelCode) -> bool:
    """Whether CTAs may keep other CTAs of the grid from starting."""
    return any(
        instruction.opcode.name == "clusterlaunchcontrol"
        and "try_cancel" in instruction.opcode.modifiers
        for instruction in code.flat.instructions
    )


def _collect(
    recorder: Recorder, pins: dict[int, Wording], *, is_coarse: bool, is_sure: bool
) -> Footprint:
    nothing = np.zeros((0, 2), dtype=np.int64)
    for key in [key for key in recorder.touched if key.zone >= LOADED]:
        # A zone that stands for the result of a load is not an object.
        recorder.unresolved.setdefault((key.at, key.effect), key.at)
    entries = tuple(
        FootprintEntry(
            key,
            touched.may[0],
            touched.sure[0] if is_sure else nothing,
            touched.whole,
            touched.always and not is_coarse,
        )
        for key, touched in sorted(recorder.touched.items())
    )
    return Footprint(
        entries=entries,
        unresolved=dict(sorted(recorder.unresolved.items())),
        nulls=dict(sorted(recorder.nulls.items())),
        pins=dict(sorted(pins.items())),
        is_coarse=is_coarse,
        looked_up=frozenset(recorder.looked_up),
        asked=frozenset(recorder.asked),
        bounded=frozenset(recorder.bounded),
        doubt=recorder.doubt,
        mixed=frozenset(recorder.mixed),
    )


DRAWS = {0: 1, SUMS: 3, BITS: 9}
"""The number of draws that a launch gets, by its doubt."""


def agreed_footprint(code: KernelCode, find: Callable[[int], Footprint]) -> Footprint:
    """The footprint of a launch; `find` computes the footprint for the draw of a given number."""
    first = find(0)
    done, doubt = 1, first.doubt
    while done < DRAWS[doubt] and not first.gave_up:
        other = find(done)
        done += 1
        doubt = max(doubt, other.doubt)
        first = _agreed(code, first, other)
    return first


def _agreed(code: KernelCode, first: Footprint, other: Footprint) -> Footprint:
    """The first footprint, with pins for the instructions in which the other differs."""
    if other.gave_up or first.is_coarse != other.is_coarse:
        return other if other.gave_up or other.is_coarse else first
    entries = {entry.key: entry for entry in first.entries}
    others = {entry.key: entry for entry in other.entries}
    differ = {
        key.at
        for key in entries.keys() | others.keys()
        if not _same(entries.get(key), others.get(key))
    }
    differ |= {at for at, _ in first.unresolved.keys() ^ other.unresolved.keys()}
    differ |= first.nulls.keys() ^ other.nulls.keys()
    pins = {at: _reason(code, at) for at in sorted(differ)}
    if not pins:
        return replace(first, pins={**other.pins, **first.pins})
    return replace(
        first,
        entries=tuple(
            replace(entry, sure=intervals.EMPTY) if entry.key.at in differ else entry
            for entry in first.entries
        ),
        pins={**other.pins, **first.pins, **pins},
        unresolved=other.unresolved | first.unresolved,
    )


def _same(first: FootprintEntry | None, second: FootprintEntry | None) -> bool:
    if first is None or second is None:
        return False
    return (
        np.array_equal(first.may, second.may)
        and np.array_equal(first.sure, second.sure)
        and (first.whole is None) == (second.whole is None)
        and first.exact == second.exact
    )


def _reason(code: KernelCode, index: int) -> Wording:
    opcode = code.opcode_text(index)
    return Wording(f"what `{opcode}` touches depends on where buffers lie in memory")
