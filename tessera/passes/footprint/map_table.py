"""The tensor maps that a kernel makes itself, as far as a run has come (`made_maps`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tessera.ir.arrays import Flags, Words

Field = tuple[str, int]


@dataclass(slots=True)
class MadeMaps:
    """The map being made, and those that were copied to global memory."""

    first: int = -1
    place: str = ""
    fields: dict[Field, int] = field(default_factory=dict)
    copies: list[tuple[Words, Flags, bytes]] = field(default_factory=list)

    def drop(self) -> None:
        """Forget the map being made."""
        self.first, self.place, self.fields = -1, "", {}

    def content_at(self, addresses: Words, here: Flags) -> bytes | None:
        """The map that all threads here find at their addresses: the latest copied there."""
        for known, ctas, content in reversed(self.copies):
            shape = np.broadcast_shapes(known.shape, ctas.shape, addresses.shape, here.shape)
            same = np.broadcast_to((known == addresses) & ctas, shape)[np.broadcast_to(here, shape)]
            if same.any():
                # Made anew for some CTAs only: there is no one map.
                return content if same.all() else None
        return None
