"""A `.tsg` text to a `KernelGraph`; the inverse of `ir.graph.print_graph.print_graph`.

Errors: TSR1001 (something else is expected here) and TSR1009 (a value is not allowed here), at
the place in the text.
"""

from __future__ import annotations

import json
import re
from enum import Enum
from functools import cache
from typing import TypeVar

from lark import Lark, Token, Transformer, UnexpectedInput, v_args
from lark.exceptions import VisitError

from tessera.diagnostics import Diagnostic, Source, Span, TesseraError, error
from tessera.frontend.text.grammar import grammar_text
from tessera.frontend.text.readfile import source_of_text
from tessera.ir.graph.access import Access, AccessKind, AddressClass, Certainty, Need, NeedKind, Pin
from tessera.ir.graph.graph import (
    ContentsDigest,
    Edge,
    EdgeKind,
    GraphBuffer,
    KernelGraph,
    Node,
    TraceReference,
)
from tessera.ir.graph.print_graph import FORMAT, READABLE, VERSION
from tessera.ir.graph.region import (
    Affine,
    Descriptor,
    Dimension,
    Interval,
    Region,
    Unknown,
    WholeBuffer,
)
from tessera.ir.program.program import BufferId, LaunchId, Role
from tessera.wording import Wording

_MOST_DIGITS = 40
_DIGEST = re.compile("[0-9a-f]{64}")


def parse_graph(text: str, name: str = "<tsg>") -> KernelGraph:
    """The graph in a text; raises `TesseraError` if the text is not a graph."""
    source = source_of_text(text, name)
    try:
        return _GraphBuilder().transform(_parser().parse(source.text))
    except UnexpectedInput as fault:
        raise TesseraError(_unexpected(source, fault)) from None
    except _BadValue as fault:
        raise TesseraError(_bad_value(source, fault)) from None
    except VisitError as fault:
        if isinstance(fault.orig_exc, _BadValue):
            raise TesseraError(_bad_value(source, fault.orig_exc)) from None
        raise


@cache
def _parser() -> Lark:
    return Lark(
        grammar_text("tsg"),
        parser="lalr",
        propagate_positions=True,
        lexer_callbacks={"INT": _check_digits},
    )


def _check_digits(token: Token) -> Token:
    """Refuse numbers with thousands of digits: Python does not convert them, and no graph has
    them."""
    if len(token) > _MOST_DIGITS:
        raise _BadValue(token, f"a number of at most {_MOST_DIGITS} digits")
    return token


E = TypeVar("E", bound=Enum)


class _BadValue(Exception):
    """A token whose value is not allowed, and the values that are."""

    def __init__(self, token: Token, wanted: str) -> None:
        super().__init__(wanted)
        self.token = token
        self.wanted = wanted


def _unexpected(source: Source, fault: UnexpectedInput) -> Diagnostic:
    at = min(fault.pos_in_stream or 0, max(len(source.text) - 1, 0))
    span = Span(source, at, at + 1)
    if at == 0:
        return error("TSR1001", f"a kernel graph starts with `{FORMAT} {VERSION}`", span)
    return error("TSR1001", "this is no record of a kernel graph", span)


def _bad_value(source: Source, fault: _BadValue) -> Diagnostic:
    start = fault.token.start_pos or 0
    span = Span(source, start, start + len(fault.token))
    return error("TSR1009", f"`{fault.token}` is not {fault.wanted}", span)


def _member(kind: type[E], token: Token) -> E:
    try:
        return kind(str(token))
    except ValueError:
        known = ", ".join(f"`{member.value}`" for member in kind)
        raise _BadValue(token, f"one of {known}") from None


def _text(token: Token) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        raise _BadValue(token, "a string") from None


def _below(token: Token, limit: int, what: str) -> int:
    if int(token) >= limit:
        raise _BadValue(token, f"the number of {what}")
    return int(token)


@v_args(inline=True)
class _GraphBuilder(Transformer[Token, KernelGraph]):
    def start(self, version: Token, *records: object) -> KernelGraph:
        if int(version) not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise _BadValue(version, f"a version that is known; this program reads {known}")
        buffers: list[GraphBuffer] = []
        contents: list[ContentsDigest] = []
        nodes: list[tuple[LaunchId, str, list[Pin], list[Need], list[Access]]] = []
        edges: list[Edge] = []
        for record in records:
            match record:
                case GraphBuffer():
                    buffers.append(record)
                case Edge():
                    edges.append(record)
                case ContentsDigest():
                    contents.append(record)
                case Pin() if nodes:
                    nodes[-1][2].append(record)
                case Need() if nodes:
                    nodes[-1][3].append(record)
                case Access() if nodes:
                    nodes[-1][4].append(record)
                case (int(identity), str(name)):
                    nodes.append((LaunchId(identity), name, [], [], []))
        graph = KernelGraph(
            buffers=tuple(buffers),
            nodes=tuple(
                Node(id=i, name=n, accesses=tuple(a), pins=tuple(p), needs=tuple(w))
                for i, n, p, w, a in nodes
            ),
            edges=tuple(edges),
            contents=tuple(contents),
            trace=next((record for record in records if isinstance(record, TraceReference)), None),
        )
        _check(graph, version)
        return graph

    def trace(self, path: Token, digest: Token) -> TraceReference:
        return TraceReference(path=_text(path), digest=_text(digest))

    def record(self, record: object) -> object:
        return record

    def buffer(self, identity: Token, name: Token, size: Token, role: Token) -> GraphBuffer:
        return GraphBuffer(
            id=BufferId(int(identity)),
            name=_text(name),
            bytes=int(size),
            role=_member(Role, role),
        )

    def node(self, identity: Token, name: Token) -> tuple[LaunchId, str]:
        return LaunchId(int(identity)), _text(name)

    def pin(self, reason: Token) -> Pin:
        return Pin(Wording(_text(reason)))

    def need(self, kind: Token, reason: Token) -> Need:
        return Need(_member(NeedKind, kind), Wording(_text(reason)))

    def contents(self, buffer: Token, digest: Token) -> ContentsDigest:
        text = _text(digest)
        if not _DIGEST.fullmatch(text):
            raise _BadValue(digest, "64 hexadecimal digits")
        return ContentsDigest(BufferId(int(buffer)), text)

    def access(
        self,
        kind: Token,
        certainty: Token,
        address: Token,
        buffer: Token,
        region: Region,
        text: Token,
    ) -> Access:
        return Access(
            buffer=BufferId(int(buffer)),
            kind=_member(AccessKind, kind),
            certainty=_member(Certainty, certainty),
            address=_member(AddressClass, address),
            region=region,
            text=_text(text),
        )

    def edge(
        self,
        kind: Token,
        source: Token,
        target: Token,
        buffer: Token,
        count: Token,
        moves: Token,
        carried: Token,
        source_access: Token,
        target_access: Token,
        region: Region,
    ) -> Edge:
        if not int(carried) and int(source) >= int(target):
            raise _BadValue(target, f"a step after {source}: an edge that goes back makes a cycle")
        return Edge(
            kind=_member(EdgeKind, kind),
            source=LaunchId(int(source)),
            target=LaunchId(int(target)),
            buffer=BufferId(int(buffer)),
            region=region,
            bytes=int(count),
            source_access=int(source_access),
            target_access=int(target_access),
            moves_bytes=bool(_below(moves, 2, "a flag, 0 or 1")),
            carried=bool(_below(carried, 2, "a flag, 0 or 1")),
        )

    def pieces(self, *descriptors: Descriptor) -> Region:
        if len(descriptors) == 1 and not descriptors[0].dimensions:
            return Interval(descriptors[0].offset, descriptors[0].offset + descriptors[0].width)
        return Affine(tuple(descriptors))

    def piece(self, start: Token, end: Token, *dimensions: Dimension) -> Descriptor:
        if int(end) <= int(start):
            raise _BadValue(end, "past the start of its range")
        return Descriptor(int(start), int(end) - int(start), tuple(dimensions))

    def dimension(self, stride: Token, count: Token) -> Dimension:
        return Dimension(int(stride), int(count))

    def whole(self, reason: Token) -> Region:
        return WholeBuffer(Wording(_text(reason)))

    def unknown(self, reason: Token) -> Region:
        return Unknown(Wording(_text(reason)))


def _check(graph: KernelGraph, version: Token) -> None:
    """Check that numbers count from 0 in order and refer to things that exist."""
    ordered = [int(b.id) for b in graph.buffers] == list(range(len(graph.buffers)))
    ordered &= [int(n.id) for n in graph.nodes] == list(range(len(graph.nodes)))
    known = len(graph.buffers)
    steps = len(graph.nodes)
    ordered &= all(a.buffer < known for n in graph.nodes for a in n.accesses)
    ordered &= all(c.buffer < known for c in graph.contents)
    ordered &= all(
        e.buffer < known
        and max(e.source, e.target) < steps
        and e.source_access < len(graph.nodes[e.source].accesses)
        and e.target_access < len(graph.nodes[e.target].accesses)
        for e in graph.edges
    )
    if not ordered:
        raise _BadValue(version, "followed by buffers, nodes and edges whose numbers fit")
