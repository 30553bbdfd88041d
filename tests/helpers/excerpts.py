"""Kernels of a few lines, run step by step, with registers as a test wants them.

In: the lines of a kernel. Out: an `Excerpt`: the state of its run, the parts of which a test may
call by themselves, and what its values and accesses are, as plain numbers. Pointer `p` of the
kernel is the object of zone `FIRST + p`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tessera.frontend.ptx.read_ptx import parse_module
from tessera.ir.ptx import syntax as ptx
from tessera.ir.ptx.layout import alignment, size_bytes
from tessera.passes.footprint.pieces import GridPiece, boxes
from tessera.passes.footprint.recorder import Recorder
from tessera.passes.footprint.scene import Scene
from tessera.passes.footprint.steps import StepRunner
from tessera.passes.footprint.zones import FIRST, Zones
from tessera.passes.kernel_facts.kernel_code import Step, prepare_kernel
from tessera.passes.lane_values.lanes import MASK, NUMBER, U64, Lanes
from tessera.passes.lane_values.masks import ALL, Mask
from tests.helpers.pointer_cases import HEADER, kernel

EVERYBODY = Mask(ALL, ALL, ALL)


def lanes_of(*rows: Any, span: Any = None, kind: int = NUMBER, why: int = -1) -> Lanes:
    """A number per thread, of one CTA or (rows of numbers) of several; negative ones wrap."""

    def words(numbers: Any) -> Any:
        listed = np.array(numbers, dtype=object)
        return np.atleast_2d(np.vectorize(lambda n: U64(n & MASK[64]), otypes=[U64])(listed))

    return Lanes(words(rows), None if span is None else words(span), why, kind)


def flags(*rows: Any) -> np.ndarray:
    """A set of threads of one CTA, or of several."""
    return np.atleast_2d(np.array(rows, dtype=np.bool_))


def told(value: Lanes) -> tuple[list[Any], list[Any] | None]:
    """The numbers and the unknown parts of the threads."""
    start = value.start.tolist()
    span = None if value.span is None else value.span.tolist()
    if len(start) == 1:
        start = start[0]
    return start, span[0] if span is not None and len(span) == 1 else span


class Excerpt(StepRunner):
    """The run of one kernel."""

    def steps(self, name: str = "") -> list[Step]:
        """The steps whose opcode begins so."""
        every = (step for block in self.code.blocks for step in block)
        return [step for step in every if str(step.instruction.opcode).startswith(name)]

    def run(self, mask: Mask = EVERYBODY) -> Excerpt:
        """Run all steps but branches, one after the other."""
        for step in self.steps():
            if step.instruction.opcode.name not in ("bra", "ret"):
                self.step(step, mask)
        self.recorder.finish()
        return self

    def object(self, number: int, offset: int = 0) -> int:
        """The address of an object."""
        return self.scene.zones.address(FIRST + number, offset)

    def placed(self, value: Lanes) -> list[Any]:
        """The objects (None: none) and offsets of the addresses of the threads of a CTA."""
        zones, offsets = (a[0].tolist() for a in self.scene.zones.decode(value.low()))
        return [(z - FIRST, o) if z else None for z, o in zip(zones, offsets, strict=True)]

    def touched(self, *, sure: bool = False) -> dict[tuple[str, int], Any]:
        """By opcode and object: the bytes that may, or surely, are touched; "all" of them."""
        found = {}
        for key, entry in sorted(self.recorder.touched.items()):
            entry.compact()
            name = self.code.flat.instructions[key.at].opcode.name
            ranges = (entry.sure if sure else entry.may)[0].tolist()
            whole = entry.whole is not None and not sure
            found[name, key.zone - FIRST] = "all" if whole else ranges
        return found


def excerpt(
    body: str,
    *,
    pointers: int = 2,
    more: str = "",
    values: bytes = b"",
    before: str = "",
    threads: int = 4,
    grid: tuple[int, int, int] = (1, 1, 1),
    piece: GridPiece | bool = True,
    needed: Iterable[str] = (),
    symbols: Sequence[str] = (),
    header: str = HEADER,
    **scene: Any,
) -> Excerpt:
    """The run of a kernel with pointers in %p0 to %p9, before its first instruction.

    `more` are parameters behind the pointers, with the bytes `values`; `before` stands before the
    kernel; `symbols` are variables of the module, objects after those of the pointers. `piece` is
    the CTAs that are followed, or False for one row that stands for all. What `needed` names is
    kept, whether or not an address is made of it.
    """
    ends = "".join(f"\n  st.global.u8 [{name}], 0;" for name in needed)
    module = parse_module(header + before + kernel("k", pointers, body + ends, more))
    (function,) = (f for f in module.functions() if isinstance(f, ptx.Function) and f.name == "k")
    zones = Zones(0)
    words = b"".join(zones.address(FIRST + p).to_bytes(8, "little") for p in range(pointers))
    offsets, end = {}, 0
    for parameter in function.parameters:
        offsets[parameter.name] = end = -(-end // alignment(parameter)) * alignment(parameter)
        end += size_bytes(parameter) or 0
    given: dict[str, Any] = {
        "zones": zones,
        "grid": grid,
        "block": (threads, 1, 1),
        "cluster": (1, 1, 1),
        "dynamic_shared": 0,
        "parameters": words + values,
        "parameter_offsets": offsets,
        "pointer_words": tuple(range(0, 8 * pointers, 8)),
        "symbols": {name: FIRST + pointers + at for at, name in enumerate(symbols)},
    }
    if piece is True:
        piece = next(boxes(grid, 1 << 16))
    code = prepare_kernel(module, function)
    return Excerpt(code, Scene(**{**given, **scene}), piece or None, Recorder(zones))
