"""Faults that are a statement of their own, put into a function with registers of their own.

Each row is a statement that no version of PTX has, or that needs a newer version or target than
most files state; ptxas decides which of them are faults in the file at hand.
"""

from __future__ import annotations

import random

from tests.fuzz.faults.text import Edit, Text, read_sections

DECLARATIONS = (
    ".reg .pred %zp<9>; .reg .b16 %zh<9>; .reg .b32 %zr<40>; .reg .b64 %zd<20>; .reg .f32 %zf<40>; "
    ".reg .f64 %ze<20>; .shared .align 16 .b8 zshared[64]; .const .align 4 .b8 zconst[16]; "
    ".local .align 16 .b8 zlocal[64];"
)

TEMPLATES = read_sections("statements.txt")


def template(kind: str, text: Text, rng: random.Random) -> Edit | None:
    """A statement of one kind in a block of its own."""
    statement = text.any_statement(rng)
    if statement is None:
        return None
    return statement.before("{", DECLARATIONS, rng.choice(TEMPLATES[kind]), "}", fault=2)
