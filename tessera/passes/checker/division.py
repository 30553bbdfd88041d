"""Divided programs: that parts and twins together do what the steps of the trace do.

In: the program of a trace, its `Division`, the divided program and its graph. Out: findings.

1. The divided program is the trace's, with the parts of a cut or the copies of a twin in the place
   of their step, and nothing else has changed. The ranges of parts follow each other from 0 to the
   extent of the grid, for the code of every architecture; no cluster is cut apart.
2. No two parts of a step may write the same byte, and no part may read a byte that another may
   write. Nothing else tells CTAs apart or joins them: no atomics, no waiting, no barrier over the
   grid, no register that depends on the launch or the machine. So the parts can run in any order,
   anywhere, and leave what the whole step leaves.
3. Twins give the same bytes wherever they run. (`shape` has them on different devices.)

A walk over the divided program (`versions`) then proves the rest: its steps, one after the other on
one device, leave what the trace leaves. `division_calls` judges
library calls. Nothing is shared with `passes.division`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from tessera.ir.graph.access import AccessKind, NeedKind
from tessera.ir.graph.graph import KernelGraph, Node
from tessera.ir.opcodes.special_registers import Varies, special_register
from tessera.ir.plan.division import Cut, Division
from tessera.ir.program import program as ir
from tessera.ir.program.step_names import work_name
from tessera.passes.checker.bytes import NOTHING, Array, common, join, minus, region_ranges, text
from tessera.passes.checker.division_calls import call_fault, may_vary
from tessera.passes.checker.findings import Findings
from tessera.passes.checker.part_text import cluster_of, mentioned_names

_AXES = "xyz"
_WRONG = "TSR4018"
_DEPENDENT = "TSR4019"
_JOINED = {
    NeedKind.GRID: "its CTAs run at the same time",
    NeedKind.WAIT: "its threads wait for others",
    NeedKind.MACHINE: "what it does depends on where and when it runs",
    NeedKind.OUTPUT: "it prints",
}
_NEVER = frozenset({"%gridid", "%current_graph_exec", "clusterlaunchcontrol"})
_UNSAFE = ("%envreg", "%perctamemory", "%pm")
_OF_A_DEVICE = ("%reserved_smem", "%total_smem", "%aggr_smem")


Names = Mapping[str, set[str]]
"""What the code of a kernel names, by architecture."""


@dataclass(frozen=True, slots=True)
class _DividedStep:
    """A step of the trace and the steps that stand in its place."""

    whole: ir.Work
    parts: tuple[ir.Work, ...]


def check_division(
    divided: ir.Program, graph: KernelGraph, division: Division, findings: Findings
) -> None:
    """Add what is wrong with a divided program; `whole` is the program of the trace."""
    original = divided.whole or divided
    parts = divided.twins or any(launch.ctas for launch in divided.launches())
    if original is divided and not division and not parts:
        return
    walk = _SideBySide(original, divided, division, findings)
    before = findings.count
    walk.check_all()
    if findings.count > before or len(graph.nodes) != sum(1 for _ in divided.work()):
        return
    known: dict[tuple[int, str], Names] = {}

    def names_of(launch: ir.Launch) -> Names:
        key = int(launch.module), launch.kernel
        if key not in known:
            variants = original.modules[launch.module].variants
            known[key] = {v.arch: mentioned_names(v.ptx, launch.kernel) for v in variants}
        return known[key]

    for group in walk.cut:
        nodes = [graph.nodes[part.id] for part in group.parts]
        _check_apart(nodes, graph, findings)
        if isinstance(group.whole, ir.Launch):
            _check_code(names_of(group.whole), group.whole, _UNSAFE, findings)
    for group in walk.twins:
        for part in group.parts:
            _check_alike(part, graph.nodes[part.id], findings)
        if isinstance(group.whole, ir.Launch):
            unsafe = (*_UNSAFE, *_OF_A_DEVICE)
            _check_code(names_of(group.whole), group.whole, unsafe, findings)


# --- the steps -------------------------------------------------------------------------------


@dataclass(slots=True)
class _SideBySide:
    """The steps of both programs, side by side."""

    original: ir.Program
    divided: ir.Program
    division: Division
    findings: Findings
    cut: list[_DividedStep] = field(default_factory=list)
    twins: list[_DividedStep] = field(default_factory=list)

    def check_all(self) -> None:
        """Compare both programs; `cut` and `twins` then have what is divided."""
        first, second = self.original, self.divided
        for name in ("buffers", "modules", "pointer_tables", "resident"):
            if getattr(first, name) != getattr(second, name):
                self._wrong(f"the divided program has other {name.replace('_', ' ')}")
        if first.twins or any(launch.ctas for launch in first.launches()):
            self._wrong("the trace has parts or twins of its own")
        cuts, twins = self._records()
        coming = iter(second.steps)
        number = 0
        for step in first.steps:
            if isinstance(step, ir.Event | ir.Wait):
                if next(coming, None) != step:
                    self._wrong("an event or a wait is not where it was")
                    return
                continue
            mine = cuts.get(step.id, {})
            count = mine[""].count if "" in mine else twins.get(step.id, 1)
            parts: list[ir.Work] = []
            for part in (next(coming, None) for _ in range(count)):
                if type(part) is not type(step) or part.id != number:
                    begin = number - len(parts)
                    self._wrong(f"step {_named(step)} should be {count} steps from #{begin} on")
                    return
                parts.append(part)
                number += 1
            self._check_group(_DividedStep(step, tuple(parts)), mine)
        if next(coming, None) is not None:
            self._wrong("the divided program has more steps than its trace")
        expected = tuple(tuple(part.id for part in group.parts) for group in self.twins)
        if second.twins != expected:
            self._wrong(f"the twins are {second.twins}, and should be {expected}")

    def _wrong(self, headline: str, *notes: str, at: object = None) -> None:
        self.findings.add(_WRONG, headline, *notes, at=at)

    def _records(self) -> tuple[dict[int, dict[str, Cut]], dict[int, int]]:
        """The cuts of each step by architecture, and the number of its twins."""
        cuts: dict[int, dict[str, Cut]] = {}
        twins: dict[int, int] = {}
        known = {work.id for work in self.original.work()}
        for cut in self.division.cuts:
            mine = cuts.setdefault(cut.step, {})
            if cut.arch in mine or cut.step not in known:
                self._wrong(f"step #{cut.step} is cut twice, or not there", at=cut)
            mine[cut.arch] = cut
        for twin in self.division.twins:
            if twin.step in twins or twin.step in cuts or twin.step not in known:
                self._wrong(f"step #{twin.step} is divided twice, or not there", at=twin)
            if twin.count < 2:
                self._wrong(f"step #{twin.step} has {twin.count} twins", at=twin)
            twins[twin.step] = twin.count
        for step, mine in cuts.items():
            if "" not in mine:
                self._wrong(f"step #{step} is cut for some architectures and not for the others")
        return cuts, twins

    def _check_group(self, group: _DividedStep, cuts: Mapping[str, Cut]) -> None:
        whole, parts = group.whole, group.parts
        if not cuts:
            for part in parts:
                if replace(part, id=whole.id) != whole:
                    self._wrong(f"step {_named(part)} is not step {_named(whole)} of the trace")
            if len(parts) > 1:
                self.twins.append(group)
            return
        self.cut.append(group)
        for cut in cuts.values():
            edges = cut.edges
            if len(edges) != len(parts) + 1 or edges[0] != 0:
                self._wrong(f"{len(parts)} parts of {_named(whole)} begin at {edges[:-1]}", at=cut)
                return
            if len(parts) < 2 or any(after <= edge for edge, after in pairwise(edges)):
                self._wrong(f"the parts of {_named(whole)} have the edges {edges}", at=cut)
                return
        match whole:
            case ir.Launch():
                self._check_launch(whole, parts, cuts)  # type: ignore[arg-type]
            case ir.Memset() | ir.Memcpy():
                self._check_bytes(whole, parts, cuts[""])
            case ir.LibraryCall():
                own = cuts[""]
                if reason := call_fault(whole, parts, own):  # type: ignore[arg-type]
                    self._wrong(
                        f"step {_named(whole)} is not cut along one dimension", reason, at=own
                    )

    def _check_launch(
        self, whole: ir.Launch, parts: Sequence[ir.Launch], cuts: Mapping[str, Cut]
    ) -> None:
        """Check that parts are consecutive ranges of a launch, in the code of every variant."""
        variants = self.original.modules[whole.module].variants
        for arch in cuts.keys() - {"", *(variant.arch for variant in variants)}:
            self._wrong(f"step {_named(whole)} is cut for `{arch}`, for which there is no code")
        for variant in variants:
            cut = cuts.get(variant.arch, cuts[""])
            mine = ir.for_arch(whole, variant.arch)
            axis = _AXES.find(cut.axis)
            size = cluster_of(mine, variant.ptx)
            extent = mine.grid[axis]
            if len(cut.axis) != 1 or axis < 0 or cut.edges[-1] != extent:
                self._wrong(
                    f"the parts of {_named(whole)} for `{variant.arch}` end at {cut.edges[-1]} of "
                    f"`{cut.axis}`, and its grid is {mine.grid}",
                    at=cut,
                )
                continue
            if size is None or any(edge % size[axis] for edge in cut.edges):
                self._wrong(
                    f"clusters of {_named(whole)} are cut apart at {cut.edges[1:-1]}",
                    "its clusters are of unknown size" if size is None else f"clusters: {size}",
                    at=cut,
                )
            for part, (first, end) in zip(parts, pairwise(cut.edges), strict=True):
                own = ir.for_arch(part, variant.arch)
                grid = tuple(end - first if at == axis else n for at, n in enumerate(mine.grid))
                same = replace(own, id=mine.id, grid=mine.grid, ctas=None) == mine
                if not same or own.grid != grid or own.ctas != ir.CtaRange(axis, first, extent):
                    self._wrong(
                        f"step {_named(part)} for `{variant.arch}` is not CTAs {first} to {end} of "
                        f"{extent} along `{cut.axis}` of step {_named(whole)}",
                        at=cut,
                    )

    def _check_bytes(
        self, whole: ir.Memset | ir.Memcpy, parts: Sequence[ir.Work], cut: Cut
    ) -> None:
        """Check that parts are consecutive ranges of the bytes of a memset or memcpy."""
        size = whole.element_bytes if isinstance(whole, ir.Memset) else 1
        if cut.axis != "bytes" or cut.edges[-1] != whole.bytes or any(e % size for e in cut.edges):
            self._wrong(f"the parts of {_named(whole)} end at {cut.edges} of `{cut.axis}`", at=cut)
            return
        for part, (first, end) in zip(parts, pairwise(cut.edges), strict=True):
            mine = replace(whole, id=part.id, bytes=end - first, target=_after(whole.target, first))
            if isinstance(mine, ir.Memcpy):
                mine = replace(mine, source=_after(mine.source, first))
            if mine != part:
                self._wrong(
                    f"step {_named(part)} is not bytes {first}:{end} of {_named(whole)}", at=cut
                )


def _after(pointer: ir.Pointer, count: int) -> ir.Pointer:
    return ir.Pointer(pointer.buffer, pointer.offset + count)


def _named(work: ir.Work) -> str:
    return f"`#{work.id} {work_name(work)}`"


# --- what parts and twins touch --------------------------------------------------------------


def _check_apart(nodes: Sequence[Node], graph: KernelGraph, findings: Findings) -> None:
    """Check that parts of a step do not meet in memory, and need nothing of each other."""
    step = f"step #{nodes[0].id} `{nodes[0].name}` and the other parts of its step"
    for node in nodes:
        why = next(_joined(node), None)
        if why is not None:
            findings.add(_DEPENDENT, f"{step} cannot run apart", why, at=node)
            return
    written: dict[int, list[Array]] = {}
    for number, node in enumerate(nodes):
        for access in node.accesses:
            if access.kind.writes:
                mine = written.setdefault(int(access.buffer), [NOTHING] * len(nodes))
                length = graph.buffers[access.buffer].bytes
                mine[number] = join([mine[number], region_ranges(access.region, length)])
    for buffer, ranges in written.items():
        held = graph.buffers[buffer]
        before = NOTHING
        for node, own in zip(nodes, ranges, strict=True):
            both = common(before, own)
            if len(both):
                findings.add(
                    _DEPENDENT,
                    f"two parts may write bytes {text(both)} of `{held.name}`",
                    f"step #{node.id} `{node.name}`, and a part before it",
                )
                return
            before = join([before, own])
        for node, own in zip(nodes, ranges, strict=True):
            reads = [
                region_ranges(access.region, held.bytes)
                for access in node.accesses
                if access.buffer == buffer and access.kind.reads
            ]
            both = common(join(reads), minus(before, own))
            if len(both):
                findings.add(
                    _DEPENDENT,
                    f"step #{node.id} `{node.name}` may read bytes {text(both)} of `{held.name}`, "
                    "which another part of its step may write",
                )
                return


def _joined(node: Node) -> Iterator[str]:
    """What joins the CTAs of a step, or tells them apart, besides the bytes that they touch."""
    if node.pins:
        yield f"it is pinned: {node.pins[0].reason}"
    for need in node.needs:
        if need.kind in _JOINED:
            yield f"{_JOINED[need.kind]}: {need.reason}"
    for access in node.accesses:
        if access.kind is AccessKind.ATOMIC:
            yield f"`{access.text}` is an atomic"


def _check_alike(work: ir.Work, node: Node, findings: Findings) -> None:
    """Check that a step gives the same bytes on every device."""
    alike = replace(node, needs=tuple(need for need in node.needs if need.kind in _VARYING))
    why = next(_joined(alike), "")
    if isinstance(work, ir.LibraryCall) and may_vary(work):
        why = "the library may add in another order each time, or what it computes is not known"
    if why:
        findings.add(
            _DEPENDENT, f"step #{node.id} `{node.name}` may give other bytes than its twins", why
        )


_VARYING = (NeedKind.MACHINE, NeedKind.OUTPUT)


def _check_code(
    names: Names, launch: ir.Launch, unsafe: tuple[str, ...], findings: Findings
) -> None:
    """Check that the code of a launch reads nothing that a launch or the machine decides."""
    for arch, mentioned in names.items():
        for name in sorted(mentioned):
            special = special_register(name)
            machine = special is not None and special.varies is Varies.MACHINE
            if name in _NEVER or name.startswith(unsafe) or machine:
                findings.add(
                    _DEPENDENT,
                    f"step {_named(launch)} is divided, and its code for `{arch}` uses `{name}`",
                )
                return
