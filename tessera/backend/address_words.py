"""Words that hold addresses, as bytes that mean the same on every device.

In: the words of a state on a device, and the buffers of that device with their addresses. Out:
words that do not depend on the device, so that runs on different devices can be compared. A word
that holds the address it was given becomes zero. Another address into a buffer becomes a digest of
the buffer and the offset. A word that holds no such address is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from tessera.ir.program.program import POINTER_BYTES

Home = tuple[str, int, tuple[int, int]]
"""A buffer: its name, the address of its byte 0, and the bytes of it that are there."""


def plain_word(held: bytes, given: int, homes: Iterable[Home]) -> bytes:
    """The device-independent value of a word; if buffers overlap, the first that it points into."""
    value = int.from_bytes(held, "little")
    if value == given:
        return bytes(POINTER_BYTES)
    for name, address, (first, end) in homes:
        if first <= value - address < end:
            label = f"{name}+{value - address}".encode()
            return hashlib.blake2b(label, digest_size=POINTER_BYTES).digest()
    return held
