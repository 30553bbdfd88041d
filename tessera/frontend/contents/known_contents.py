"""Contents of weights that an analysis may read, and the check that they are unchanged.

In: a program, its contents and the wanted weights. Out: `KnownContents` with digests; or, when a
graph is reused, an error (TSR2014) if a weight that it depends on differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from tessera.diagnostics import TesseraError
from tessera.frontend.contents.open_contents import Contents
from tessera.ir.graph.graph import KernelGraph
from tessera.ir.program.program import BufferId, KnownContents, Program, Role

MOST_BYTES = 64 << 20


def known_contents(
    program: Program, contents: Contents, wanted: Iterable[BufferId]
) -> Iterator[KnownContents]:
    """The contents of the wanted weights that the file has; large weights are left out."""
    for number in wanted:
        buffer = program.buffers[number]
        if buffer.role is Role.WEIGHT and buffer.bytes <= MOST_BYTES and contents.is_given(buffer):
            content = contents.read(buffer).tobytes()
            yield KnownContents(buffer.id, content, hashlib.sha256(content).hexdigest())


def check_contents(program: Program, graph: KernelGraph, contents: Contents) -> None:
    """Refuse contents that differ from those on which the accesses of a graph depend."""
    for known in graph.contents:
        buffer = program.buffers[known.buffer]
        if hashlib.sha256(contents.read(buffer).tobytes()).hexdigest() != known.sha256:
            raise TesseraError.of(
                "TSR2014",
                f"the weight `{buffer.name}` differs from the one analysed",
                buffer.span,
                "other contents are given for this",
                notes=("its contents decided which bytes the steps touch",),
                hint="analyse and plan again with these contents",
            )
