"""Put barriers into kernels that torch.compile writes, where threads read what others have written.

In: the source of a Triton kernel. Out: the same, with a barrier between a store and a later load of
the same buffer. Inductor writes a reduction over more than a block as several loops, and a later
one loads what an earlier one has stored. Triton may give the two another layout, so that a thread
reads what another one has written, and puts no barrier between them: results are then a matter of
luck (seen with mixtures of experts, whose gathered rows are stored in one layout and loaded in
another).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_STORE = re.compile(r"\btl\.(store|atomic_\w+)\(|\.store\(")
_LOAD = re.compile(r"\btl\.load\(|\.load\(")
_BUFFER = re.compile(r"\b(?:in_)?out_ptr\d+\b")
_BARRIER = "tl.debug_barrier()"


def with_barriers(source: str) -> str:
    """The source of a kernel, with a barrier before loads of what it has stored."""
    lines = source.split("\n")
    stored: dict[str, int] = {}
    loops: list[int] = []
    wanted: list[int] = []
    for at, line in enumerate(lines):
        text = line.strip()
        if not text or text.startswith(("#", "@")):
            continue
        while loops and _indent(line) <= _indent(lines[loops[-1]]):
            loops.pop()
        if text.startswith("def ") or text == _BARRIER:
            stored.clear()
        buffers = _BUFFER.findall(line)
        if _LOAD.search(line):
            written = max((stored.get(buffer, -1) for buffer in buffers), default=-1)
            if written >= 0:
                place = next((loop for loop in loops if loop > written), at)
                wanted.append(place)
                stored = {buffer: since for buffer, since in stored.items() if since > place}
        if _STORE.search(line):
            stored.update(dict.fromkeys(buffers, at))
        if text.startswith(("for ", "while ")):
            loops.append(at)
    for at in sorted(set(wanted), reverse=True):
        lines.insert(at, " " * _indent(lines[at]) + _BARRIER)
    return "\n".join(lines)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


@contextmanager
def barriers() -> Iterator[None]:
    """Have Inductor's kernels written with barriers."""
    from torch._inductor.codegen.triton import TritonKernel

    before: Callable[..., str] = TritonKernel.codegen_kernel

    @functools.wraps(before)
    def codegen_kernel(kernel: object, *given: object, **named: object) -> str:
        return with_barriers(before(kernel, *given, **named))

    TritonKernel.codegen_kernel = codegen_kernel
    try:
        yield
    finally:
        TritonKernel.codegen_kernel = before
