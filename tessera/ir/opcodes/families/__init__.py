"""The opcode tables, one file per family; `notation` says how to read them."""

from tessera.ir.opcodes.families import (
    arithmetic,
    async_copy,
    atomics,
    barriers,
    control,
    fabric,
    logic,
    matrix,
    movement,
    tcgen05,
    texture_surface,
    video,
)

TABLES: tuple[str, ...] = (
    arithmetic.TABLE,
    logic.TABLE,
    movement.TABLE,
    async_copy.TABLE,
    atomics.TABLE,
    barriers.TABLE,
    control.TABLE,
    fabric.TABLE,
    texture_surface.TABLE,
    matrix.TABLE,
    tcgen05.TABLE,
    video.TABLE,
)
"""Every table. The order matters only among forms of one opcode, which share a file."""
