"""Which threads touched a cell of shared memory since a barrier, against a list of every touch.

In: random touches, barriers of some CTAs and of warps. A thread that another one of its CTA
may have run into is never called ordered; a thread that is alone with its cell is, in one CTA.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from tessera.ir.architecture import WARP
from tessera.passes.footprint.shared_phases import Phases, SharedTrouble
from tessera.passes.lane_values.masks import Mask

THREADS, CELLS = 2 * WARP, 12


class Touches:
    """Who touched what, CTA by CTA, and whether the threads of its warp have met since."""

    def __init__(self, ctas):
        self.kinds = {kind: [{} for _ in range(ctas)] for kind in ("written", "read")}

    def add(self, kind, cta, cell, thread):
        self.kinds[kind][cta].setdefault(cell, {})[thread] = False

    def barrier(self, cta):
        for ctas in self.kinds.values():
            ctas[cta].clear()

    def meet(self, cta, warp):
        for ctas in self.kinds.values():
            for touched in ctas[cta].values():
                for thread in touched:
                    touched[thread] = touched[thread] or thread // WARP == warp

    def unordered(self, kind, cta, cell, thread):
        touched = self.kinds[kind][cta].get(cell, {})
        return any(
            other != thread and not (met and other // WARP == thread // WARP)
            for other, met in touched.items()
        )

    def is_alone(self, kind, cell, thread):
        return set(self.kinds[kind][0].get(cell, ())) <= {thread}


def some_threads(draw, ctas):
    chosen = draw.choice((range(THREADS), range(WARP), [draw.randrange(THREADS)], range(5, 9)))
    may = np.zeros((ctas, THREADS), dtype=np.bool_)
    for cta in range(ctas):
        if draw.random() < 0.7:
            may[cta, list(chosen)] = True
    return may


@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_no_thread_is_ordered_that_is_not(ctas):
    draw = random.Random(ctas)
    for _ in range(60):
        phases, model = Phases(CELLS, THREADS), Touches(ctas)
        for _ in range(draw.randrange(2, 16)):
            kind = draw.choice(("written", "read"))
            may = some_threads(draw, ctas)
            match draw.randrange(4):
                case 0:
                    whole = may.any(axis=1, keepdims=True)
                    try:
                        phases.barrier(whole)
                    except SharedTrouble:
                        break
                    for cta in np.flatnonzero(whole[:, 0]):
                        model.barrier(cta)
                case 1:
                    phases.meet_warps(may)
                    for cta, warp in np.ndindex(ctas, THREADS // WARP):
                        if may[cta, warp * WARP : (warp + 1) * WARP].all():
                            model.meet(cta, warp)
                case _:
                    touch_and_ask(draw, phases, model, may, kind)


def touch_and_ask(draw, phases, model, may, kind):
    cells = np.array([draw.randrange(-1, CELLS) for _ in range(THREADS)])
    if draw.random() < 0.5:
        cells = np.arange(THREADS) % CELLS
    mask = Mask(may, may, may)
    for phase, threads in phases.present(cells, mask):
        for asked in ("written", "read"):
            others = getattr(phase, asked).others(cells[threads], threads)
            for thread, unordered in zip(threads.tolist(), others.tolist(), strict=True):
                here = np.flatnonzero(may[:, thread] & np.broadcast_to(phase.ctas, may.shape)[:, 0])
                cell = int(cells[thread])
                if any(model.unordered(asked, cta, cell, thread) for cta in here):
                    assert unordered
                if len(may) == 1 and model.is_alone(asked, cell, thread):
                    assert not unordered
        getattr(phase, kind).add(cells[threads], threads)
    for cta, thread in np.argwhere(may):
        if cells[thread] >= 0:
            model.add(kind, cta, int(cells[thread]), int(thread))
