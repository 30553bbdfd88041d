"""The section that draws a kernel graph: steps, edges, accesses, places, times, layers.

In: a `GivenTrace`, and the plan that places it, if there is one. Out: a `PageSection` of columns of
numbers that index tables of texts: names, regions and PTX lines appear once, however many steps
share them. Only PTX lines that accesses name are included.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tessera.diagnostics import Span
from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty
from tessera.ir.graph.folding import Fold, fold_steps
from tessera.ir.graph.graph import Edge, EdgeKind, KernelGraph
from tessera.ir.graph.layers import kernel_family
from tessera.ir.graph.region import region_text
from tessera.ir.plan.costs import Barred, Duration
from tessera.ir.plan.division import parts_of
from tessera.ir.plan.plan import PlacedTrace, Plan
from tessera.ir.program.program import Launch, Program
from tessera.report.graph import Totals, address_class
from tessera.report.page.given import Given, GivenTrace
from tessera.report.page.model import PageSection

ROWS, EDGES = 170, 500
"""Most rows and edges that a view of the graph draws; the rest is scrolled to or summed up."""

CLASSES = ("direct", "indexed", "pointer", "pinned")
_KINDS = (AccessKind.READ, AccessKind.WRITE, AccessKind.ATOMIC)
_ADDRESSES = (AddressClass.DIRECT, AddressClass.INDEXED, AddressClass.POINTER)
_EDGES = (EdgeKind.RAW, EdgeKind.WAR, EdgeKind.WAW)
_ORDER_ONLY, _CARRIED = 4, 8
_LONGEST_REGION = 120
_LONGEST_LINE = 200
_MOST_EDGES = 400_000


class NumberedTable:
    """Distinct values, numbered in the order in which they are added. Mutable."""

    def __init__(self) -> None:
        self.values: list[object] = []
        self._known: dict[Hashable, int] = {}

    def number(self, value: Hashable) -> int:
        """The number of a value; a new value gets the next number."""
        found = self._known.get(value)
        if found is None:
            found = self._known[value] = len(self.values)
            self.values.append(value)
        return found


def graph_section(given: Given, trace: GivenTrace, number: int) -> PageSection:
    """The section of one trace of a report."""
    graph = trace.graph
    names = NumberedTable()
    accesses = _Accesses(graph)
    several = len(given.traces) > 1
    kept = _kept(graph.edges)
    data: dict[str, object] = {
        "headline": _headline(graph),
        "trace": trace.name,
        "budget": {"rows": ROWS, "edges": EDGES},
        "buffers": {
            "name": [buffer.name for buffer in graph.buffers],
            "bytes": [buffer.bytes for buffer in graph.buffers],
            "role": [buffer.role.value for buffer in graph.buffers],
        },
        "steps": {
            "name": [names.number(name) for name in _step_names(given, trace, number)],
            "class": [CLASSES.index(address_class(node)) for node in graph.nodes],
        },
        "names": names.values,
        "pins": {str(n.id): [str(pin.reason) for pin in n.pins] for n in graph.nodes if n.pins},
        "needs": {
            str(n.id): [f"{need.kind.value}: {need.reason}" for need in n.needs]
            for n in graph.nodes
            if n.needs
        },
        "accesses": accesses.value(),
        "edges": {
            "source": [int(edge.source) for edge in kept],
            "target": [int(edge.target) for edge in kept],
            "kind": [_edge_kind(edge) for edge in kept],
            "buffer": [int(edge.buffer) for edge in kept],
            "bytes": [edge.bytes for edge in kept],
        },
        "edges_left_out": len(graph.edges) - len(kept),
        "folds": [_fold(fold) for fold in fold_steps([kernel_family(n.name) for n in graph.nodes])],
        "launches": _launches(trace.program),
    }
    if given.plan is not None:
        data |= _placed(given.plan, number)
    if given.machine is not None and trace.costs is not None:
        data |= _times(given, trace)
    measured = _measured(given, trace)
    if measured:
        data["measured"] = measured
    title = f"Graph of {trace.name}" if several else "Graph"
    return PageSection(kind="graph", id=f"graph-{number}", title=title, data=data)


def _step_names(given: Given, trace: GivenTrace, number: int) -> list[str]:
    """The name of each step; parts and twins say what they are."""
    names = [node.name for node in trace.graph.nodes]
    if given.plan is None or not (division := given.plan.traces[number].division):
        return names
    parts = parts_of(division.steps_of(len(names)), division)
    return [f"{name}{part.words()}" for name, part in zip(names, parts, strict=True)]


def _headline(graph: KernelGraph) -> str:
    moving = sum(edge.moves_bytes for edge in graph.edges)
    return f"{len(graph.nodes):,} steps, {moving:,} edges that carry bytes"


# --- steps and edges -----------------------------------------------------------------------------


class _Accesses:
    """Accesses by step: pairs of a buffer and the number of a row that steps share."""

    def __init__(self, graph: KernelGraph) -> None:
        self._graph = graph
        self._rows, self._lines, self._regions = NumberedTable(), NumberedTable(), NumberedTable()
        self._region_of: dict[int, int] = {}
        self._places: dict[tuple[int, int], tuple[int, int]] = {}

    def value(self) -> dict[str, object]:
        """All accesses, with the bytes that each step reads and writes of each buffer."""
        totals = Totals(self._graph)
        of, touched = [], []
        for node in self._graph.nodes:
            of.append([n for access in node.accesses for n in self._pair(access)])
            touched.append(
                [n for t in totals.of(node) for n in (int(t.buffer.id), t.reads, t.writes)]
            )
        return {
            "of": of,
            "touched": touched,
            "rows": self._rows.values,
            "lines": self._lines.values,
            "regions": self._regions.values,
        }

    def _pair(self, access: Access) -> tuple[int, int]:
        line, text = self._place(access)
        row = (
            _KINDS.index(access.kind),
            int(access.certainty is Certainty.MUST),
            _ADDRESSES.index(access.address),
            self._region(access),
            line,
            text,
        )
        return int(access.buffer), self._rows.number(row)

    def _region(self, access: Access) -> int:
        # The graph keeps its regions, so that an id stands for one of them.
        key = id(access.region)
        if key not in self._region_of:
            text = region_text(access.region)
            text = text if len(text) <= _LONGEST_REGION else text[:_LONGEST_REGION] + "..."
            self._region_of[key] = self._regions.number(text)
        return self._region_of[key]

    def _place(self, access: Access) -> tuple[int, int]:
        """Line number (0: not known) and the number of its text."""
        span = access.span
        if span is None:
            return 0, self._lines.number(access.text[:_LONGEST_LINE])
        key = id(span.source), span.start
        if key not in self._places:
            self._places[key] = _line_of(span), self._lines.number(_line_text(span))
        return self._places[key]


def _line_of(span: Span) -> int:
    return span.source.position(span.start)[0]


def _line_text(span: Span) -> str:
    return span.source.line_text(span.start).strip()[:_LONGEST_LINE]


def _kept(edges: Sequence[Edge]) -> Sequence[Edge]:
    """All edges, or only those that carry bytes if there are too many."""
    return edges if len(edges) <= _MOST_EDGES else [edge for edge in edges if edge.moves_bytes]


def _edge_kind(edge: Edge) -> int:
    """The kind of an edge, with a bit for order only and a bit for edges to the next request."""
    order = 0 if edge.moves_bytes else _ORDER_ONLY
    return _EDGES.index(edge.kind) + order + (_CARRIED if edge.carried else 0)


def _fold(fold: Fold) -> list[object]:
    return [fold.first, fold.end, fold.label, [_fold(inner) for inner in fold.inner]]


def _launches(program: Program | None) -> list[object]:
    """Grid and block of each step, each shape once; null for a step that is not a launch."""
    if program is None:
        return []
    shapes = NumberedTable()
    steps: list[object] = []
    for work in program.work():
        shape = (*work.grid, *work.block, work.shared_bytes) if isinstance(work, Launch) else None
        steps.append(None if shape is None else shapes.number(shape))
    return [shapes.values, steps]


# --- places and times ----------------------------------------------------------------------------


def _placed(plan: Plan, number: int) -> dict[str, object]:
    devices = [device.name for device in plan.devices]
    cards = {device.name: device.card for device in plan.devices}
    gpus = {card.name: card.gpu for card in plan.cards}
    replicas = []
    for replica in plan.replicas:
        for placed in replica.traces:
            if placed.trace == number:
                share = replica.serves(number)
                replicas.append(_replica(placed, devices, replica.policy, share))
    return {
        "devices": devices,
        "gpus": [gpus.get(cards[name], "") for name in devices],
        "busy_ns": [device.busy_ns for device in plan.devices],
        "replicas": replicas,
    }


def _replica(
    placed: PlacedTrace, devices: Sequence[str], policy: str, share: float
) -> dict[str, object]:
    sources = NumberedTable()
    return {
        "policy": policy,
        "share": share,
        "device": [devices.index(step.device) for step in placed.steps],
        "ns": [round(step.predicted_ns, 1) for step in placed.steps],
        "error": [round(step.error, 4) for step in placed.steps],
        "source": [sources.number(step.source) for step in placed.steps],
        "sources": sources.values,
        "transfers": [
            [move.tensor, move.bytes, devices.index(move.source), devices.index(move.target)]
            for move in placed.transfers
            if move.source in devices and move.target in devices
        ],
    }


def _times(given: Given, trace: GivenTrace) -> dict[str, object]:
    """The time of every step on every device of the table, or why it cannot run there."""
    assert given.machine is not None
    assert trace.costs is not None
    reasons, sources = NumberedTable(), NumberedTable()
    ns: list[object] = []
    for step in trace.costs.steps:
        row: list[float] = []
        for cost in step.on_device:
            match cost:
                case Duration():
                    row += [round(cost.ns, 1), round(cost.error, 4)]
                    row.append(sources.number(cost.source.value))
                case Barred():
                    row += [-1, reasons.number(str(cost.reason)), 0]
        ns.append(row)
    rows = NumberedTable()
    return {
        "timed_devices": [device.name for device in given.machine.devices],
        "times": [rows.number(tuple(row)) for row in ns if isinstance(row, list)],
        "time_rows": rows.values,
        "time_sources": sources.values,
        "barred": reasons.values,
    }


def _measured(given: Given, trace: GivenTrace) -> list[object]:
    """Rows of profiles: step, GPU, SMs, time, error. They are of whole steps, not of parts."""
    if trace.program is not None and trace.program.whole is not None:
        return []
    return [
        [row.step, row.gpu, row.sms, row.ns, row.error]
        for own in given.profiles
        if own.profile.program_digest == trace.digest
        for row in own.profile.rows
        if row.step < len(trace.graph.nodes)
    ]
