"""The part of a model that one device needs, and what no device of the CPU backend can do.

In: a model. Out: the same model with less in it, or an error.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tessera.backend.service import Model
from tessera.ir.program import program as ir


def part_of(model: Model, device: str) -> Model:
    """The model with the contents that one device holds."""
    buffers = [
        (place.trace, model.traces[place.trace].program.buffers[place.buffer])
        for place in model.lowered.places
        if place.device == device
    ]
    names = {buffer.name for _, buffer in buffers if buffer.role is ir.Role.WEIGHT}
    kept = {buffer.name for _, buffer in buffers if buffer.role is ir.Role.STATE}
    return replace(
        model,
        weights={name: np.array(model.weights[name]) for name in sorted(names)},
        states=[{n: np.array(lane[n]) for n in sorted(kept)} for lane in model.states],
        fillings=[{n: np.array(v) for n, v in given.items()} for given in model.fillings],
    )


def refuse_library_calls(model: Model) -> None:
    """`op` records need a library that the CPU backend does not have."""
    from tessera.backend.ptx_executor.run import refuse_library_calls as refuse

    for lowered in model.lowered.traces:
        refuse(model.traces[lowered.trace].program)
