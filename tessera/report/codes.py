"""What `tessc explain` lists: all codes with their titles."""

from __future__ import annotations

from tessera import codes
from tessera.report.table import Column, Fit, table

_COLUMNS = (Column(), Column(), Column(fit=Fit.WRAP))


def codes_text(width: int | None = None) -> str:
    """All codes, for a terminal of that width or for a file."""
    rows = ((entry.code, entry.severity.value, entry.title) for entry in codes.CODES)
    return "\n".join(table(_COLUMNS, rows, width, indent=0)) + "\n"
