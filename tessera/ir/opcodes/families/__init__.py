"""The opcode tables, one file per family: `TABLE` says what opcodes mean, `FORMS` how they look.

In: nothing. Out: rows; `notation` and `form_notation` say how to read them. Imported by
`ir.opcodes`.
"""

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

FAMILIES = (
    arithmetic,
    logic,
    movement,
    async_copy,
    atomics,
    barriers,
    control,
    fabric,
    texture_surface,
    matrix,
    tcgen05,
    video,
)

TABLES: tuple[str, ...] = tuple(family.TABLE for family in FAMILIES)
"""What opcodes mean. The order matters only among rows of one opcode, which share a file."""

FORMS: tuple[str, ...] = tuple(family.FORMS for family in FAMILIES)
"""How opcodes are written. Forms of one name share a file as well."""
