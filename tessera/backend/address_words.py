"""Words that hold addresses, as bytes that mean the same on every device.

In: the words of a state as a device has them, and where buffers are there. Out: the same words
without the device in them, so that runs on different devices can be compared: zero for the address
that a word was given, a digest of buffer and offset for another address into a buffer, and what the
word holds where it is no such address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tessera.ir.program.program import POINTER_BYTES

Home = tuple[str, int, int]
"""A buffer: its name, its address, its size."""


def plain_word(held: bytes, given: int, homes: Iterable[Home]) -> bytes:
    """A word without its device; of buffers that share memory, the first that it points into."""
    value = int.from_bytes(held, "little")
    if value == given:
        return bytes(POINTER_BYTES)
    for name, address, size in homes:
        if address <= value < address + size:
            label = f"{name}+{value - address}".encode()
            return hashlib.blake2b(label, digest_size=POINTER_BYTES).digest()
    return held
