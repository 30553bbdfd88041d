"""The bytes of a transfer between a buffer and a packed region, one range after the other."""

from __future__ import annotations

from tessera.backend.ptx_executor.memory.memory import Array
from tessera.ir.plan.launch_program import Transfer


def pack(transfer: Transfer, buffer: Array, region: Array) -> None:
    """The bytes of a transfer from a buffer, one range after the other."""
    at = 0
    for start, end in transfer.bytes:
        region[at : at + end - start] = buffer[start:end]
        at += end - start


def unpack(transfer: Transfer, region: Array, buffer: Array) -> None:
    """The inverse of `pack`."""
    at = 0
    for start, end in transfer.bytes:
        buffer[start:end] = region[at : at + end - start]
        at += end - start
