"""The overview of a kernel graph: what waits for what, what is special, kernels by family.

In: a `KernelGraph`. Out: rows and lines for `report.overview`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tessera.frontend.machine.quantities import format_bytes
from tessera.ir.graph.access import AddressClass
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.graph.layers import graph_layers, kernel_family
from tessera.passes.dependences.prefix_cuts import prefix_cuts
from tessera.report.graph import Totals, address_class
from tessera.report.table import Column, Fit, amount, right, table

_MOST_FAMILIES = 8
_MOST_KINDS = 3
_WORD = re.compile(r"_*[^_]+")
_FAMILIES = (Column("kernels", Fit.CUT), *right("steps", "reads", "writes"), Column("addresses"))


def graph_rows(graph: KernelGraph) -> Iterator[tuple[str, str]]:
    """Names and texts of all rows but the kernels."""
    data = sum(edge.moves_bytes for edge in graph.edges)
    carried = sum(edge.carried for edge in graph.edges)
    later = f", {carried} of them to the next request" if carried else ""
    yield (
        "edges",
        f"{data} carry data, {len(graph.edges) - data} only order{later}; "
        f"the longest chain has {_chain(graph)} of {amount(len(graph.nodes), 'step')}",
    )
    cuts = prefix_cuts(graph)
    if cuts:
        least = min(range(len(cuts)), key=cuts.__getitem__)
        most = max(range(len(cuts)), key=cuts.__getitem__)
        yield (
            "cuts",
            f"{format_bytes(cuts[least])} (after #{least}) to {format_bytes(cuts[most])} "
            f"(after #{most}) go from the steps before to the steps after",
        )
    layers = graph_layers(graph)
    if layers:
        said = [f"#{x.first} to #{x.end - 1}: {x.length} steps, {x.times} times" for x in layers]
        yield "layers", _some(said)
    pins = Counter(pin.reason for node in graph.nodes for pin in node.pins)
    pinned = sum(bool(node.pins) for node in graph.nodes)
    reasons = _some([f"{reason} ({count})" for reason, count in pins.most_common()])
    yield "pinned", f"{amount(pinned, 'step')}: {reasons}" if pinned else "none"
    yield "indirect", _indirect(graph)
    needs = Counter(need.reason for node in graph.nodes for need in node.needs)
    if needs:
        yield "needs", _some([f"{reason} ({count})" for reason, count in needs.most_common()])
    if graph.contents:
        names = [graph.buffers[known.buffer].name for known in graph.contents]
        yield "holds for", f"these contents of {_some(names)} only"


def _chain(graph: KernelGraph) -> int:
    """Number of steps on the longest path along the edges of one request."""
    length = [1] * len(graph.nodes)
    for edge in sorted(graph.edges, key=lambda edge: edge.source):
        if not edge.carried:
            length[edge.target] = max(length[edge.target], length[edge.source] + 1)
    return max(length, default=0)


def _indirect(graph: KernelGraph) -> str:
    """The steps that use addresses or indices from memory, and on which buffers."""
    kinds: dict[str, set[int]] = {}
    reached: dict[str, Counter[str]] = {}
    for node in graph.nodes:
        for access in node.accesses:
            if access.address is not AddressClass.DIRECT and not node.pins:
                kind = access.address.value
                kinds.setdefault(kind, set()).add(node.id)
                name = graph.buffers[access.buffer].name
                reached.setdefault(kind, Counter())[name] += 1
    if not kinds:
        return "none"
    words = {"indexed": "by an index from memory", "pointer": "by a pointer from memory"}
    return "; ".join(
        f"{amount(len(kinds[kind]), 'step')} {words[kind]}, into "
        f"{_some([name for name, _ in reached[kind].most_common()])}"
        for kind in sorted(kinds)
    )


def _some(texts: list[str]) -> str:
    rest = len(texts) - _MOST_KINDS
    return ", ".join(texts[:_MOST_KINDS]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(slots=True)
class _Family:
    steps: int = 0
    reads: int = 0
    writes: int = 0
    classes: Counter[str] = field(default_factory=Counter)

    def add(self, steps: int, reads: int, writes: int, classes: Counter[str]) -> None:
        self.steps += steps
        self.reads += reads
        self.writes += writes
        self.classes += classes


def family_lines(graph: KernelGraph, width: int | None) -> list[str]:
    """Steps by family, those that touch the most bytes first."""
    totals = Totals(graph)
    of = _families({node.name for node in graph.nodes})
    by_family: dict[str, _Family] = {}
    for node in graph.nodes:
        touched = totals.of(node)
        reads, writes = (sum(t.reads for t in touched), sum(t.writes for t in touched))
        kind = Counter([address_class(node)])
        by_family.setdefault(of(node.name), _Family()).add(1, reads, writes, kind)
    ranked = sorted(by_family.items(), key=lambda each: -(each[1].reads + each[1].writes))
    rest = ranked[_MOST_FAMILIES:]
    if rest:
        others = _Family()
        for _, entry in rest:
            others.add(entry.steps, entry.reads, entry.writes, entry.classes)
        name = f"and {amount(len(rest), 'family', 'families')} more"
        ranked[_MOST_FAMILIES:] = [(name, others)]
    return table(_FAMILIES, [_family_row(name, entry) for name, entry in ranked], width)


def _family_row(name: str, entry: _Family) -> tuple[str, ...]:
    kinds = entry.classes.most_common()
    said = kinds[0][0] if len(kinds) == 1 else ", ".join(f"{count} {kind}" for kind, count in kinds)
    return (name, str(entry.steps), format_bytes(entry.reads), format_bytes(entry.writes), said)


def _families(names: set[str]) -> Callable[[str], str]:
    """Names by family: as few words from the front as are needed to fit a screen.

    Kernels of one name in several modules are one family, then those that differ in the number at
    their end, then those that begin with the same words.
    """
    kernels = {name: name.rpartition(".")[2] for name in names}
    if len(set(kernels.values())) <= _MOST_FAMILIES:
        return kernels.__getitem__
    cut = {name: kernel_family(name) for name in names}
    if len(set(cut.values())) <= _MOST_FAMILIES:
        return lambda name: cut[name] + ("*" if cut[name] != kernels[name] else "")
    shown = cut
    for words in (5, 4, 3, 2, 1):
        shown = {name: _front(whole, words) for name, whole in cut.items()}
        if len(set(shown.values())) <= _MOST_FAMILIES:
            break
    return shown.__getitem__


def _front(name: str, words: int) -> str:
    """The first words of a name; underscores belong to the word after them."""
    parts = _WORD.findall(name)
    return name if len(parts) <= words else f"{''.join(parts[:words])}_*"
