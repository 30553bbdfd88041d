"""Errors of a running launch, as exceptions inside the executor.

A `Fault` is raised deep in an instruction, where only the lanes of the running group are
known. `schedule` adds the place (kernel, PTX line, CTA and thread) and turns it into a
`TesseraError`. Nothing outside `ptx_executor` sees a `Fault`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Fault(Exception):
    """A stopped launch. `site` numbers the instruction; `lane` is flat in the group's shape."""

    code: str
    headline: str
    site: int = -1
    lane: int | None = None
    notes: tuple[str, ...] = ()
    hint: str | None = None


class AddressFault(Fault):
    """A fault caused by an address; the caller finds the lane that used it."""

    def __init__(self, code: str, headline: str, site: int, address: int, *notes: str) -> None:
        super().__init__(code, headline, site, None, notes)
        self.address = address
