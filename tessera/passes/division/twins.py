"""Which steps may have twins: several devices do the step, each for itself, and leave equal bytes.

In: a program and its graph. Out: why a step may not have twins, or None.

Twins read equal bytes, so they leave equal bytes if nothing else decides what they write: not the
machine or the launch (registers, a chosen order of sums), not an address, which is another one on
every device. A module variable is there once for all requests, and a pinned step may follow an
address to any byte that is near it. Threads of one launch that write different values to one byte
leave open, on one device too, which of them stays; steps are taken not to do that.
"""

from __future__ import annotations

from tessera.ir.graph.access import AccessKind, NeedKind
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.operators.table import table
from tessera.ir.program import program as ir
from tessera.ir.ptx.print_ptx import print_module
from tessera.passes.dependences.stored_addresses import AddressHolders, copies_words
from tessera.wording import Wording

_REGISTERS = (
    "%gridid",
    "%envreg",
    "%current_graph_exec",
    "%perctamemory",
    "%reserved_smem",
    "%total_smem",
    "%aggr_smem",
)
_ORDERS = frozenset({"scatter_add", "scatter_reduce", "index_add", "cumsum", "cumprod", "histc"})
"""Functions whose libraries may add in another order each time."""


class TwinRules:
    """The rules for one program; what kernels store is found once for each of them."""

    def __init__(self, program: ir.Program, graph: KernelGraph) -> None:
        self.program = program
        self.graph = graph
        self.work = tuple(program.work())
        self.holders = AddressHolders(program)
        self.named: dict[ir.ModuleId, str] = {}
        pinned = {node.id: node for node in graph.nodes if node.pins}
        self.near = dict.fromkeys(pinned, "")
        for edge in graph.edges if pinned else ():
            for step, other in ((edge.source, edge.target), (edge.target, edge.source)):
                if other in pinned:
                    self.near.setdefault(step, pinned[other].name)

    def why_not(self, step: int) -> Wording | None:
        """Why a step may not have twins."""
        work, node = self.work[step], self.graph.nodes[step]
        if node.pins:
            return Wording(f"it is pinned: {node.pins[0].reason}")
        if node.id in self.near:
            return Wording(f"`{self.near[node.id]}`, which is pinned, shares bytes with it")
        for need in node.needs:
            if need.kind in (NeedKind.MACHINE, NeedKind.OUTPUT):
                return need.reason
        for access in node.accesses:
            name = self.program.buffers[access.buffer].name
            if access.kind is AccessKind.ATOMIC:
                return Wording(f"`{access.text}` changes `{name}` in an order that may vary")
            if access.kind.writes and self.graph.buffers[access.buffer].role is ir.Role.VARIABLE:
                return Wording(f"it writes the module variable `{name}`")
        match work:
            case ir.Launch():
                return self._in_launch(work)
            case ir.LibraryCall() if _function(work) in ("", "other"):
                return Wording(f"what `{work.operator}` computes is not known")
            case ir.LibraryCall() if _adds_in_any_order(work):
                return Wording(f"`{work.operator}` adds in an order that may vary")
            case ir.LibraryCall() | ir.Memcpy() if copies_words(self.program, node):
                return Wording("it copies addresses, which are others on every device")
            case _:
                return None

    def _in_launch(self, launch: ir.Launch) -> Wording | None:
        if launch.module not in self.named:
            texts = (
                v.text or print_module(v.ptx) for v in self.program.modules[launch.module].variants
            )
            # A name anywhere in the module counts: this only ever refuses.
            self.named[launch.module] = next(
                (name for text in texts for name in _REGISTERS if name in text), ""
            )
        if name := self.named[launch.module]:
            return Wording(f"its module names `{name}`, which differs between launches")
        if self.holders.buffers_of(launch, self.graph.nodes[launch.id].accesses):
            return Wording("it stores addresses, which are others on every device")
        return None


def _function(call: ir.LibraryCall) -> str:
    operator = table().get(call.operator)
    return "" if operator is None else operator.function


def _adds_in_any_order(call: ir.LibraryCall) -> bool:
    return _function(call) in _ORDERS or bool(dict(call.attributes).get("accumulate"))
